"""Reductions that are written, by any number of ranks, and gone on with after they were killed."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import (
    BudgetError,
    InputError,
    JournalError,
    KernelError,
    NotFoundError,
    TargetError,
    UnfinishedError,
)
from tests.dying import Server
from tests.seams import replace_step, set_constants

pytestmark = pytest.mark.long

DAYS = np.random.default_rng(0).normal(280, 9, (1920, 3, 4)).astype("f4")
MONTHS = np.arange(1920) // 160 % 5
HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}


@pytest.fixture(autouse=True)
def small_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several boxes of small arrays: as many as in processes that die."""
    set_constants(monkeypatch, box_bytes=2**12)


@pytest.fixture
def days(tmp_path: Path) -> Path:
    names = {"dimension_names": ("time", "lat", "lon"), "compressors": None}
    zarr.create_array(tmp_path / "days", data=DAYS, chunks=(20, 3, 4), **names)
    return tmp_path / "days"


def mean_of(days: Path) -> Any:
    """A job that has the mean of each month."""
    return ooc.reduce(days, "mean", 0, by=MONTHS, target=days.parent / "mean", **HERE)


def test_a_target_has_what_is_returned_without_one(days: Path) -> None:
    a = mean_of(days).run()
    assert a[...].tobytes() == ooc.reduce(days, "mean", 0, by=MONTHS, **HERE).tobytes()
    np.testing.assert_allclose(a[...], [DAYS[m == MONTHS].mean(axis=0, dtype="f8") for m in range(5)], rtol=1e-14)
    assert a.zarr.metadata.dimension_names == ("group", "lat", "lon")
    assert a.attrs["groups"] == [0, 1, 2, 3, 4]
    assert a.dtype == "f8"


def test_labels_that_json_lacks_are_texts_in_the_attributes_of_a_target(tmp_path: Path) -> None:
    for number, (labels, said) in enumerate([([b"b", b"a\xe9"], ["a\xe9", "b"]), ([1j, 2], ["1j", "(2+0j)"])]):
        a = ooc.reduce(np.arange(2.0), "sum", 0, by=labels, target=tmp_path / str(number), **HERE).run()
        assert a.attrs["groups"] == said


def test_it_is_planned_and_metered_as_other_jobs_are(days: Path) -> None:
    job = mean_of(days)
    assert not (days.parent / "mean").exists()
    assert "partial results" in job.explain()
    assert job.plan.peak_bytes <= job.plan.budget
    job.run()
    traffic, meter = job.plan.traffic, job.meter
    assert (meter.read_requests, meter.read_bytes) == (traffic.read_requests, traffic.read_bytes)
    assert (meter.write_requests, meter.written_bytes) == (traffic.write_requests, traffic.written_bytes)
    assert "last run" in job.explain()


def test_dask_computes_it(days: Path, tmp_path: Path) -> None:
    (made,) = dask.compute(ooc.reduce(days, "max", (1, 2), target=tmp_path / "max", **HERE))
    np.testing.assert_array_equal(made[...], DAYS.max(axis=(1, 2)))


def test_a_target_in_a_group_is_one_of_its_arrays(days: Path, tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    group = zarr.create_group(tmp_path / "group")
    ooc.reduce(days, "sum", 0, target=f"{tmp_path}/group/sum", **HERE).run()
    assert group["sum"].shape == (3, 4)
    np.testing.assert_allclose(xr.open_zarr(tmp_path / "group", consolidated=False)["sum"], DAYS.sum(0, dtype="f8"))


@pytest.mark.parametrize(("zarr_format", "shape"), [(2, (40, 6)), (3, (9,)), (3, (0, 4)), (2, (3, 0))])
def test_targets_of_any_format_and_shape(tmp_path: Path, zarr_format: Any, shape: tuple[int, ...]) -> None:
    data = np.arange(float(np.prod(shape))).reshape(shape)
    z = zarr.create_array(tmp_path / "a", shape=shape, chunks=tuple(max(n // 2, 1) for n in shape), dtype="f8",
                          zarr_format=zarr_format)  # fmt: skip
    if data.size:
        z[...] = data
    for axis in range(len(shape)):
        made = ooc.reduce(z, "sum", axis, target=tmp_path / f"sum{axis}", **HERE).run()
        np.testing.assert_array_equal(made[...], data.sum(axis=axis))
    z.attrs["x"] = 1
    whole = ooc.reduce(z, "count", target=tmp_path / "count", **HERE).run()
    assert (whole.shape, whole[...], whole.dtype) == ((), data.size, "i8")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("at", ["journal", "begun", "entry", "unrecorded", "mark", "finished"])
@pytest.mark.parametrize("after", [1, 4])
def test_killed_it_goes_on(days: Path, tmp_path: Path, runs: Server, at: str, after: int) -> None:
    if after > 1 and at not in ("entry", "unrecorded"):
        pytest.skip("it comes there once")
    options = {"by": MONTHS.tolist(), "target": str(tmp_path / "std"), **HERE}
    runs.run("reduce", str(days), "std", 0, **options, at=at, after=after)
    wanted = ooc.reduce(days, "std", 0, by=MONTHS, **HERE)
    if at == "finished":
        assert ooc.open_array(tmp_path / "std")[...].tobytes() == wanted.tobytes()
        return
    with pytest.raises(NotFoundError if at == "journal" else UnfinishedError):
        ooc.open_array(tmp_path / "std")
    if at == "journal":  # nothing was made
        job = ooc.reduce(days, "std", 0, by=MONTHS, target=tmp_path / "std", **HERE)
        assert job.run()[...].tobytes() == wanted.tobytes()
        return
    job = ooc.resume(tmp_path / "std", memory="32MiB", kind="reduce")
    assert job.left == (1 if at == "begun" or (at, after) == ("unrecorded", 1) else pytest.approx(job.left))
    assert job.run()[...].tobytes() == wanted.tobytes()
    if (at, after) == ("entry", 4):
        assert job.left <= 0.75
        assert job.meter.read_requests < job.plan.traffic.read_requests, "partial results that were kept are not read"
    if at == "mark":
        assert job.meter.read_requests == 0


@pytest.mark.parametrize("way", ["resume", "the same call"])
def test_a_version_with_boxes_of_another_size_keeps_those_of_the_run(
    days: Path, tmp_path: Path, runs: Server, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    wanted = ooc.reduce(days, "std", 0, **HERE)
    runs.run("reduce", str(days), "std", 0, target=str(tmp_path / "std"), **HERE, at="entry", after=4)
    set_constants(monkeypatch, box_bytes=2**14)
    assert ooc.reduce(days, "std", 0, **HERE).tobytes() != wanted.tobytes()
    if way == "resume":
        job = ooc.resume(tmp_path / "std")
    else:
        job = ooc.reduce(days, "std", 0, target=tmp_path / "std", resume=True, **HERE)
    assert job.left < 1
    assert job.run()[...].tobytes() == wanted.tobytes()


def test_partial_results_that_cannot_be_read_are_made_again(days: Path, tmp_path: Path, runs: Server) -> None:
    runs.run("reduce", str(days), "mean", 0, target=str(tmp_path / "mean"), **HERE, at="entry", after=5)
    kept = sorted((tmp_path / "mean/.oocarrays/done-states").glob("0.*"))
    assert len(kept) >= 4
    kept[0].unlink()
    data = kept[1].read_bytes()
    kept[1].write_bytes(data[:-30] + bytes(30))
    kept[2].write_bytes(b"0" * len(data))
    job = ooc.resume(tmp_path / "mean")
    assert job.run()[...].tobytes() == ooc.reduce(days, "mean", 0, **HERE).tobytes()
    assert not (tmp_path / "mean/.oocarrays").exists()


def test_what_was_asked_for_is_kept(
    days: Path, tmp_path: Path, runs: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.run("reduce", str(days), "var", [0, 1], ddof=1, target=str(tmp_path / "var"), **HERE, at="entry")
    assert main(["resume", str(tmp_path / "var")]) == 0
    np.testing.assert_allclose(ooc.open_array(tmp_path / "var")[...], DAYS.var((0, 1), ddof=1, dtype="f8"), rtol=1e-12)
    land = np.random.default_rng(1).random((3, 4)) < 0.5
    job = ooc.reduce(days, "mean", 0, where=land, skipna=False, target=tmp_path / "land", **HERE)
    with pytest.MonkeyPatch.context() as patch:
        replace_step(patch, "finish reduction", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            job.run()
    again = ooc.resume(tmp_path / "land")
    np.testing.assert_allclose(again.run()[...], np.where(land, DAYS.mean(0, dtype="f8"), np.nan), rtol=1e-13)


def _interrupt(*given: Any) -> None:
    raise KeyboardInterrupt


def power(block: np.ndarray, axes: tuple[int, ...]) -> Any:
    return (block.astype("f8") ** 2).sum(axis=axes)


def test_functions_of_ones_own_are_given_again(days: Path, tmp_path: Path) -> None:
    how = (power, np.add, np.sqrt)
    with pytest.MonkeyPatch.context() as patch:
        replace_step(patch, "finish reduction", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            ooc.reduce(days, how, 0, target=tmp_path / "norm", **HERE).run()
    with pytest.raises(JournalError, match="pass it again"):
        ooc.resume(tmp_path / "norm")
    made = ooc.resume(tmp_path / "norm", kernel=[*how]).run()
    np.testing.assert_allclose(made[...], np.sqrt((DAYS.astype("f8") ** 2).sum(0)), rtol=1e-13)


def test_a_source_that_has_changed_is_refused(days: Path, tmp_path: Path, runs: Server) -> None:
    runs.run("reduce", str(days), "mean", 0, target=str(tmp_path / "mean"), **HERE, at="entry", after=3)
    zarr.open_array(days, mode="r+")[0] = 5
    with pytest.raises(JournalError, match="have changed since"):
        ooc.resume(tmp_path / "mean")
    made = ooc.resume(tmp_path / "mean", again=True).run()
    assert made[...].tobytes() == ooc.reduce(days, "mean", 0, **HERE).tobytes()


def test_wrong_input_makes_no_target(days: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    calls = 0

    def late(block: np.ndarray, axes: tuple[int, ...]) -> Any:
        nonlocal calls
        calls += 1
        return 1 / (calls < 4) * block.sum(axis=axes)

    with pytest.raises(InputError, match="returns 3 axes; expected 2"):
        ooc.reduce(days, (lambda block, axes: block, np.add, np.negative), 0, target=target, **HERE)
    with pytest.raises(KernelError, match="ZeroDivisionError"):
        ooc.reduce(days, (lambda block, axes: 1 // 0, np.add, np.negative), 0, target=target, **HERE)
    with pytest.raises(BudgetError, match="this reduction needs at least"):
        ooc.reduce(days, "mean", 0, target=target, memory=1000, scheduler="threads")
    job = ooc.reduce(days, (late, np.add, np.negative), 0, target=target, **HERE)
    with pytest.raises(KernelError, match="division by zero"):
        job.run()
    assert not target.exists()
    ooc.reduce(days, "mean", 0, target=target, **HERE).run()
    with pytest.raises(TargetError, match="exists"):
        ooc.reduce(days, "mean", 0, target=target, **HERE)
    with pytest.raises(TargetError, match="is the source itself"):
        ooc.reduce(days, "mean", 0, target=days, overwrite=True, **HERE)
    ooc.reduce(days, "max", 0, target=target, overwrite=True, **HERE).run()
    np.testing.assert_array_equal(ooc.open_array(target)[...], DAYS.max(0))


@pytest.mark.parametrize("how", ["mean", "std", "min"])
def test_what_is_held_of_many_groups_is_what_the_plan_says(tmp_path: Path, how: str) -> None:
    z = zarr.create_array(tmp_path / "a", shape=(512, 256, 256), chunks=(4, 256, 256), dtype="f4", compressors=None)
    for first in range(0, 512, 64):
        z[first : first + 64] = np.random.default_rng(first).random((64, 256, 256), "f4")
    job = ooc.reduce(z, how, 0, by=np.arange(512) % 12, target=tmp_path / how, memory="192MiB", scheduler="threads")
    assert job.plan.cut.segments > 1
    tracemalloc.start()
    try:
        job.run()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.5 * job.plan.peak_bytes < peak <= job.plan.peak_bytes
