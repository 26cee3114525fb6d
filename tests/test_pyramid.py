"""Pyramids: levels against brute force, metadata against ome-zarr-models, one reading, what was killed goes on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client
from hypothesis import given, strategies as st
from ome_zarr_models.v04.image import Image as Image4
from ome_zarr_models.v05.image import Image as Image5
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import BudgetError, InputError, JournalError, TargetError, UnfinishedError, UnsupportedError
from tests.dying import Server
from tests.flat import flat
from tests.graphs.clusters import cluster
from tests.profiles import examples
from tests.unfinished import left_behind

pytestmark = pytest.mark.long

HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}
IMAGE = np.random.default_rng(5).integers(0, 2**16, (70, 93), dtype="u2")


def value(group: np.ndarray, method: str) -> Any:
    """One value for a group, in plain words."""
    values = group.reshape(-1)
    if method == "nearest":
        return values[0]
    if method == "mode":
        kinds, counts = np.unique(values, return_counts=True)
        return kinds[np.argmax(counts)]
    found = np.mean(values, dtype="f8") if method == "mean" else np.median(values.astype("f8"))
    return math.floor(found + 0.5) if values.dtype.kind in "iu" else found


def above(level: np.ndarray, factors: tuple[int, ...], method: str) -> np.ndarray:
    """The level above one, group by group."""
    made = np.empty(tuple(-(-n // f) for n, f in zip(level.shape, factors, strict=True)), level.dtype)
    for index in np.ndindex(made.shape):
        group = level[tuple(slice(i * f, (i + 1) * f) for i, f in zip(index, factors, strict=True))]
        made[index] = value(group, method)
    return made


def check(group: Any, image: np.ndarray, factors: tuple[int, ...], method: str, levels: int) -> None:
    expected = image
    assert sorted(group) == [str(level) for level in range(levels)]
    for level in range(levels):
        found = group[str(level)][...]
        assert found.dtype == image.dtype
        if image.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-5)
        else:
            np.testing.assert_array_equal(found, expected)
        expected = above(found, factors, method)


@st.composite
def requests(draw: st.DrawFn) -> tuple[np.ndarray, tuple[int, ...], tuple[int, ...], int, str]:
    ndim = draw(st.integers(2, 4))
    shape = tuple(draw(st.integers(1, 40 if ndim == 2 else 12)) for _ in range(ndim))
    dtype = draw(st.sampled_from(["u1", "i2", "u2", "i8", "u8", "f4"]))
    values = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 99, shape).astype(dtype)
    values = values - values.dtype.type(40) if np.dtype(dtype).kind in "if" else values
    chunks = tuple(draw(st.integers(1, n)) for n in shape)
    factors = tuple(draw(st.integers(1, 4)) for _ in shape)
    method = draw(st.sampled_from(["mean", "median", "nearest", "mode"]))
    levels = draw(st.integers(1, 4)) if max(factors) > 1 else 1  # factors of 1 merge nothing: there is one level
    return values, chunks, factors, levels, method


@given(requests(), st.integers(1, 3), st.booleans())
@examples(25)
def test_levels_are_those_of_brute_force(asked: Any, ranks: int, small: bool) -> None:
    image, chunks, factors, levels, method = asked
    source = zarr.create_array({}, data=image, chunks=chunks)
    how: dict[str, Any] = HERE | {"ranks": ranks, "levels": levels, "factor": factors, "method": method}
    if small:
        try:
            flat(ooc.pyramid, source, MemoryStore(), **how | {"memory": 1})
        except BudgetError as error:
            how["memory"] = error.least
    job = flat(ooc.pyramid, source, MemoryStore(), **how)
    assert job.plan.peak_bytes <= job.plan.budget
    check(job.run(), image, factors, method, levels)
    assert job.meter.decoded_bytes <= job.plan.traffic.decoded_bytes  # chunks that are fill values are not stored
    assert job.meter.write_requests <= job.plan.traffic.write_requests
    Image5.from_zarr(zarr.open_group(job._run.destination.store, mode="r"))


@pytest.mark.parametrize("chunks", [(32, 32), (32, 1024), (512, 64)])
@pytest.mark.parametrize("more", [0, 2**19])
def test_each_chunk_is_read_and_written_once(tmp_path: Path, chunks: tuple[int, int], more: int) -> None:
    image = np.random.default_rng(6).integers(1, 2**16, (512, 1024), dtype="u2")
    zarr.create_array(tmp_path / "a", data=image, chunks=chunks, compressors=None)
    with pytest.raises(BudgetError) as refused:
        flat(ooc.pyramid, tmp_path / "a", tmp_path / "levels", **HERE | {"levels": 4, "memory": 1})
    memory = refused.value.least + more
    job = flat(ooc.pyramid, tmp_path / "a", tmp_path / "levels", **HERE | {"levels": 4, "memory": memory})
    assert job.plan.count > 1
    made = job.run()
    np.testing.assert_array_equal(made["0"][...], image)
    traffic, meter = job.plan.traffic, job.meter
    assert meter.read_bytes == traffic.read_bytes == image.nbytes
    assert meter.write_requests == traffic.write_requests == sum(zarr.open(a.store).nchunks for a in made.values())
    assert meter.written_bytes == traffic.written_bytes


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    ("names", "shape", "factors"),
    [
        (None, (20, 33), (2, 2)), (("lat", "lon"), (20, 33), (2, 2)), (("c", "y", "x"), (3, 20, 33), (1, 2, 2)),
        (("t", "c", "z", "y", "x"), (2, 2, 5, 9, 8), (1, 1, 2, 2, 2)), (None, (3, 4, 9, 8), (1, 2, 2, 2)),
    ],
)  # fmt: skip
def test_the_group_is_an_image_to_others(
    tmp_path: Path, zarr_format: Any, names: Any, shape: Any, factors: Any
) -> None:
    image = np.random.default_rng(2).integers(0, 99, shape, dtype="u1")
    a = zarr.create_array(
        tmp_path / "a", data=image, chunks=tuple(-(-n // 2) for n in shape), zarr_format=zarr_format,
        dimension_names=names if zarr_format == 3 else None, attributes={"stain": "DAPI"},
    )  # fmt: skip
    if zarr_format == 2 and names:
        a.attrs["_ARRAY_DIMENSIONS"] = list(names)
    made = ooc.pyramid(tmp_path / "a", tmp_path / "cells.zarr", levels=3, **HERE).run()
    check(made, image, factors, "mean", 3)
    group = zarr.open_group(tmp_path / "cells.zarr", mode="r")
    read = (Image4 if zarr_format == 2 else Image5).from_zarr(group)
    (scales,) = read.attributes.multiscales if zarr_format == 2 else read.ome_attributes.multiscales
    assert scales.name == "cells"
    assert [tuple(d.coordinateTransformations[0].scale) for d in scales.datasets] == [
        tuple(float(f**level) for f in factors) for level in range(3)
    ]
    axes = [axis.name for axis in scales.axes]
    assert axes == list(names or {2: "yx", 4: "czyx"}[len(shape)])
    for level in group.arrays():
        assert level[1].attrs["stain"] == "DAPI"
        assert zarr_format == 2 or list(level[1].metadata.dimension_names) == axes


def test_the_middle_of_what_an_element_stands_for() -> None:
    """The third level of factor 3 begins with the mean of elements 0 to 8, whose middle is 4."""
    source = zarr.create_array({}, data=IMAGE, chunks=(9, 9))
    for method, translation in (("mean", 4.0), ("nearest", None)):
        made = ooc.pyramid(source, MemoryStore(), levels=3, factor=3, method=method, **HERE).run()  # type: ignore[arg-type]
        found = made.attrs["ome"]["multiscales"][0]["datasets"][2]["coordinateTransformations"]
        assert [each.get("translation") for each in found[1:]] == ([[translation] * 2] if translation else [])


@pytest.mark.parametrize(("shape", "levels"), [((70, 93), 1), ((256, 257), 2), ((1000, 300), 3), ((1100, 9), 4)])
def test_levels_go_on_until_256_elements_are_left(shape: tuple[int, int], levels: int) -> None:
    source = zarr.create_array({}, data=np.ones(shape, "u1"), chunks=(16, 64))
    assert list(ooc.pyramid(source, MemoryStore(), **HERE).run()) == [str(level) for level in range(levels)]


def test_factors_by_name_and_number() -> None:
    source = zarr.create_array({}, data=IMAGE, chunks=(16, 16), dimension_names=("y", "x"))
    for factor in ({"x": 3}, {1: 3}, (1, 3)):
        made = ooc.pyramid(source, MemoryStore(), levels=3, factor=factor, **HERE).run()
        check(made, IMAGE, (1, 3), "mean", 3)


def test_floats_that_are_missing() -> None:
    image = np.where(IMAGE > 50000, np.nan, IMAGE).astype("f8")
    source = zarr.create_array({}, data=image, chunks=(16, 16))
    for method in ("mean", "median", "nearest"):
        check(ooc.pyramid(source, MemoryStore(), levels=2, method=method, **HERE).run(), image, (2, 2), method, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "error", "match"),
    [
        ({"levels": 0}, InputError, "levels=0"), ({"method": "max"}, InputError, "method='max'"),
        ({"factor": 0}, InputError, "factor=0"), ({"factor": (2,)}, InputError, "has 1 axis"),
        ({"factor": {"q": 2}}, InputError, "'q' is not one of the"), ({"factor": "2"}, InputError, "factor='2'"),
        ({"factor": 1}, InputError, "factor=1 merges nothing: it must be at least 2 along an axis, unless levels=1"),
        ({"factor": {"y": 1}, "levels": 3}, InputError, "merges nothing"),
        ({"memory": 2000}, BudgetError, "needs at least"), ({"chunks": (0, 1)}, InputError, "chunks="),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(tmp_path: Path, how: dict[str, Any], error: Any, match: str) -> None:
    source = zarr.create_array({}, data=IMAGE, chunks=(16, 16))
    with pytest.raises(error, match=match):
        flat(ooc.pyramid, source, tmp_path / "levels", **HERE | how)
    assert not list(tmp_path.iterdir())


def test_a_factor_of_one_leaves_one_level(tmp_path: Path) -> None:
    source = zarr.create_array({}, data=IMAGE, chunks=(16, 16))
    made = ooc.pyramid(source, tmp_path / "levels", factor=1, levels=1, **HERE).run()
    assert [*made] == ["0"]
    np.testing.assert_array_equal(made["0"][...], IMAGE)


def test_arrays_that_are_no_images_are_refused() -> None:
    several = [((4,), None), ((2, 2, 2), ("y", "t", "time")), ((2, 4, 4), ("c", "band", "x")), ((1,) * 6, None)]
    for shape, names in several:
        with pytest.raises(UnsupportedError, match="OME-Zarr"):
            ooc.pyramid(zarr.create_array({}, data=np.zeros(shape), dimension_names=names), MemoryStore(), **HERE)
    with pytest.raises(UnsupportedError, match="have no mean"):
        ooc.pyramid(zarr.create_array({}, data=np.zeros((4, 4), "M8[s]")), MemoryStore(), **HERE)


def test_what_is_there_is_replaced_by_name_only(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a", data=IMAGE, chunks=(16, 16))
    ooc.pyramid(tmp_path / "a", tmp_path / "b", levels=5, **HERE).run()
    with pytest.raises(TargetError, match="exists; pass overwrite=True"):
        ooc.pyramid(tmp_path / "a", tmp_path / "b", **HERE)
    with pytest.raises(TargetError, match="are one inside the other"):
        ooc.pyramid(tmp_path / "a", tmp_path / "a" / "levels", **HERE)
    made = ooc.pyramid(tmp_path / "a", tmp_path / "b", levels=2, method="mode", overwrite=True, **HERE).run()
    check(made, IMAGE, (2, 2), "mode", 2)
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["0", "1", "zarr.json"]


def test_a_lazy_job_and_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import dask

    zarr.create_array(tmp_path / "a", data=IMAGE, chunks=(16, 16))
    dask.compute(ooc.pyramid(tmp_path / "a", tmp_path / "lazy", levels=3, **HERE))
    words = ["pyramid", f"{tmp_path}/a", f"{tmp_path}/b", "--levels", "3", "--factor", "y=1,x=2", "--memory", "64MiB"]
    zarr.open_array(tmp_path / "a")
    assert main([*words, "--dry-run"]) == 0
    assert "70 × 93, 70 × 47, 70 × 24" in capsys.readouterr().out
    assert not (tmp_path / "b").exists()
    assert main(words) == 0
    check(ooc.open_group(tmp_path / "b"), IMAGE, (1, 2), "mean", 3)
    check(ooc.open_group(tmp_path / "lazy"), IMAGE, (2, 2), "mean", 3)
    assert main(words) == 2
    assert "--overwrite" in capsys.readouterr().err


# ---------------------------------------------------------------------- what was killed

SLABS: dict[str, Any] = {"levels": 6, "memory": "10MiB", "ranks": 1, "scheduler": "threads"}


def big(folder: Path) -> np.ndarray:
    image = np.random.default_rng(3).integers(1, 2**16, (1024, 512), dtype="u2")
    zarr.create_array(folder / "a", data=image, chunks=(64, 64))
    return image


@pytest.mark.parametrize(
    ("at", "after", "how"),
    [
        ("begun", 1, ""), ("entry", 2, ""), ("chunk", 170, ""), ("finished", 3, ""), ("consolidated", 1, ""),
        ("entry", 2, "memory"), ("entry", 2, "verify"), ("entry", 2, "again"),
    ],
)  # fmt: skip
def test_a_killed_run_goes_on(tmp_path: Path, runs: Server, at: str, after: int, how: str) -> None:
    """Killed when nothing is written, in the middle, while gathered levels are written, and while marks go."""
    image, target = big(tmp_path), tmp_path / "levels"
    runs.run("pyramid", tmp_path / "a", target, at=at, after=after, **SLABS)
    with pytest.raises(UnfinishedError):
        ooc.open_group(target)
    more: dict[str, Any] = {"": {}, "memory": {"memory": "64MiB"}, "verify": {"verify": True}, "again": {"again": True}}
    job = flat(ooc.resume, target, **more[how])
    made = job.run()
    for level, fine in zip(range(1, 6), range(5), strict=True):
        below = made[str(fine)][...].astype("f8")
        mean = below.reshape(len(below) // 2, 2, -1, 2).mean(axis=(1, 3))
        np.testing.assert_array_equal(made[str(level)][...], np.floor(mean + 0.5))
    np.testing.assert_array_equal(made["0"][...], image)
    if how == "" and at != "begun":
        assert job.meter.write_requests < job.plan.traffic.write_requests
    assert left_behind(tmp_path) == []
    Image5.from_zarr(zarr.open_group(target, mode="r"))


def test_it_is_resumed_as_it_was_asked_for(tmp_path: Path, runs: Server) -> None:
    big(tmp_path)
    runs.run("pyramid", tmp_path / "a", tmp_path / "levels", at="entry", after=2, **SLABS)
    with pytest.raises(JournalError, match="begun with method=mean, not median"):
        flat(ooc.pyramid, tmp_path / "a", tmp_path / "levels", method="median", resume=True, **SLABS)
    job = flat(ooc.pyramid, tmp_path / "a", tmp_path / "levels", resume=True, **SLABS)
    assert job.left < 1
    assert list(job.run()) == [str(level) for level in range(6)]


def test_on_workers(tmp_path: Path) -> None:
    image = big(tmp_path)
    with cluster(2) as client:
        on: dict[str, Any] = {"levels": 6, "memory": "32MiB", "scheduler": client}
        made = flat(ooc.pyramid, tmp_path / "a", tmp_path / "levels", **on).run()
        alone = ooc.pyramid(tmp_path / "a", tmp_path / "alone", levels=6, **HERE).run()
        np.testing.assert_array_equal(made["0"][...], image)
        for level in alone:
            np.testing.assert_array_equal(made[level][...], alone[level][...])
        assert isinstance(client, Client)


# ---------------------------------------------------------------------- targets of unlike shapes, of any kernel

DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


def means(block: np.ndarray) -> list[np.ndarray]:
    """Daily, monthly and yearly means of hours."""
    days = block.reshape(365, 24, *block.shape[1:]).mean(axis=1)
    months = np.stack([month.mean(axis=0) for month in np.split(days, np.cumsum(DAYS)[:-1])])
    return [days, months, days.mean(axis=0, keepdims=True)]


@pytest.mark.parametrize("chunks", [(8760, 3, 4), (100, 6, 5)])
def test_days_months_and_years_in_one_pass(tmp_path: Path, chunks: tuple[int, ...]) -> None:
    hours = np.random.default_rng(4).random((8760, 6, 11))
    a = zarr.create_array(
        tmp_path / "hours", data=hours, chunks=chunks, compressors=None, dimension_names=("time", "y", "x")
    )
    factor = [{"time": 24}, {"time": [24 * n for n in DAYS]}, {0: 8760}]
    targets = [tmp_path / name for name in ("days", "months", "years")]
    job = ooc.map_slabs(means, tmp_path / "hours", targets, results=ooc.Results(factor=factor), **HERE)
    for made, expected in zip(job.run(), means(hours), strict=True):
        np.testing.assert_allclose(made[...], expected)
    stored = 8 * a.nchunks * math.prod(chunks)
    assert job.meter.read_bytes == job.plan.traffic.read_bytes <= stored


def halved(block: np.ndarray) -> np.ndarray:
    return block[::2, ::3]


def test_one_target_that_is_coarser(tmp_path: Path, runs: Server) -> None:
    source = zarr.create_array(tmp_path / "a", data=IMAGE, chunks=(7, 9))
    for window in ((12, 12), (70, 3), None):
        made = ooc.map_slabs(
            halved, source, MemoryStore(), window=window, results=ooc.Results(factor=(2, 3)), **HERE
        ).run()
        np.testing.assert_array_equal(made[...], IMAGE[::2, ::3])


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"factor": [2, 2, 2]}, "has 3 axes"), ({"factor": 2, "depth": 1}, "the kernel sees no neighbours"),
        ({"factor": {0: [30, 30]}}, "adds up to 60 elements"), ({"factor": {2: 2}}, "is not one of the 2 axes"),
        ({"factor": 2, "window": (15, 93)}, "cut the 2 elements"), ({"factor": 2, "verify": True}, "verify=True"),
        ({"factor": {0: []}}, "neither a whole number"), ({"factor": 2.5}, "neither a whole number"),
    ],
)  # fmt: skip
def test_factors_that_cannot_be(tmp_path: Path, how: dict[str, Any], match: str) -> None:
    source = zarr.create_array({}, data=IMAGE, chunks=(7, 9))
    with pytest.raises(InputError, match=match):
        flat(ooc.map_slabs, halved, source, tmp_path / "b", **HERE | how)


def test_results_of_another_shape_than_was_asked_for() -> None:
    source = zarr.create_array({}, data=IMAGE, chunks=(7, 9))
    with pytest.raises(ooc.errors.KernelError, match="returned shape"):
        ooc.map_slabs(np.negative, source, MemoryStore(), results=ooc.Results(factor=2), **HERE).run()


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 0)])
def test_images_of_next_to_nothing(shape: tuple[int, int]) -> None:
    source = zarr.create_array({}, data=np.ones(shape, "u1"), chunks=(2, 2))
    made = ooc.pyramid(source, MemoryStore(), levels=3, **HERE).run()
    assert [made[str(level)].shape for level in range(3)] == [
        tuple(-(-n // 2**level) for n in shape) for level in range(3)
    ]
