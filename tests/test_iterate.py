"""Iterated sweeps out of core: as plain sweeps of the whole array, in as many passes and bytes as the plan says."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import BudgetError, InputError, JournalError, RunError, TargetError, UnfinishedError
from tests.dying import Server
from tests.flat import flat
from tests.profiles import examples
from tests.seams import Journal
from tests.sweeping import cases, jacobi, plain_sweeps

pytestmark = pytest.mark.once

FIELD = np.random.default_rng(5).random((48, 40))
"""Three slabs of 16 rows."""


@pytest.fixture
def field(tmp_path: Path) -> Path:
    zarr.create_array(tmp_path / "a", data=FIELD, chunks=(8, 40), compressors=None)
    return tmp_path / "a"


def iterate(source: Any, target: Any, **options: Any) -> ooc.Job:
    given = {
        "kernel": jacobi,
        "sweeps": 6,
        "fuse": 2,
        "memory": "64MiB",
        "height": 16,
        "scheduler": "threads",
    } | options
    return flat(ooc.iterate, given.pop("kernel"), source, target, **given)


def cuts_of(axes: int) -> st.SearchStrategy[dict[str, Any]]:
    """Heights, or windows of any shape."""
    heights = st.none() | st.integers(1, 9)
    windows = st.fixed_dictionaries({"height": st.none(), "window": st.tuples(*[heights] * axes)})
    return st.fixed_dictionaries({"height": heights}) | windows


@examples(25)
@given(cases(most=500), st.data())
def test_iterated_passes_are_plain_sweeps(case: dict[str, Any], data: st.DataObject) -> None:
    array, sweeps = case["array"], case["sweeps"]
    chunks = tuple(data.draw(st.integers(1, n + 1)) for n in array.shape)
    source, target = zarr.create_array({}, data=array, chunks=chunks), zarr.storage.MemoryStore()
    fuse = data.draw(st.sampled_from([*range(1, max(sweeps, 1) + 1), "auto"]))
    options = {
        "ranks": data.draw(st.integers(1, 3)),
        "prefetch": data.draw(st.integers(0, 2)),
        **data.draw(cuts_of(array.ndim)),
        "until": data.draw(st.none() | st.just(0.0)),
    }
    job = iterate(source, target, kernel=case["kernel"], sweeps=sweeps, fuse=fuse,
                  depth=case["depth"], boundary=case["boundary"], **options)  # fmt: skip
    made = job.run()
    assert made.dtype == array.dtype.newbyteorder("=")
    wanted = plain_sweeps(array, case["kernel"], case["depth"], case["boundary"], sweeps)
    np.testing.assert_array_equal(made[...], wanted)
    assert job.plan.sweeps == sweeps
    assert len(job.plan.passes) == (max(math.ceil(sweeps / fuse), 1) if fuse != "auto" else len(job.plan.passes))


@pytest.mark.parametrize(("sweeps", "fuse", "passes"), [(0, 1, 1), (6, 1, 6), (6, 4, 2), (6, 99, 1), (7, 3, 3)])
def test_passes_and_bytes_are_those_of_the_plan(
    field: Path, tmp_path: Path, sweeps: int, fuse: int, passes: int
) -> None:
    job = iterate(field, tmp_path / "b", sweeps=sweeps, fuse=fuse, ranks=2)
    before = sorted(tmp_path.iterdir())
    assert sorted(tmp_path.iterdir()) == before, "looking is free"
    np.testing.assert_array_equal(job.run(progress=True)[...], plain_sweeps(FIELD, jacobi, (1, 1), "none", sweeps))
    plan = job.plan
    assert len(plan.passes) == passes
    assert plan.read_bytes == plan.written_bytes == passes * FIELD.nbytes
    for name in ("read_requests", "read_bytes", "write_requests", "written_bytes"):
        assert getattr(job.meter, name) == getattr(plan.traffic, name), name
    assert (plan.traffic.read_bytes, plan.traffic.written_bytes) == (plan.read_bytes, plan.written_bytes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"], "scratch is gone"
    assert f"{passes}, " in job.explain()


def test_dask_computes_all_passes(field: Path, tmp_path: Path) -> None:
    job = iterate(field, tmp_path / "b", sweeps=5, ranks=2, boundary="reflect")
    (made,) = dask.compute(job)
    np.testing.assert_array_equal(made[...], plain_sweeps(FIELD, jacobi, (1, 1), "reflect", 5))
    assert job.meter.read_bytes == 3 * FIELD.nbytes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    with pytest.raises(InputError, match=r"until=0.1 is tested between passes: call job.run\(\)"):
        dask.compute(iterate(field, tmp_path / "c", until=0.1))


# ---------------------------------------------------------------------- residuals


def plain_residuals(count: int) -> list[float]:
    states = [FIELD]
    for _ in range(count):
        states.append(plain_sweeps(states[-1], jacobi, (1, 1), "none", 1))
    return [float(np.abs(after - before).max()) for before, after in pairwise(states)]


@pytest.mark.parametrize("fuse", [1, 3])
def test_sweeping_ends_where_the_residual_is_small_enough(field: Path, tmp_path: Path, fuse: int) -> None:
    residuals = plain_residuals(18)[fuse - 1 :: fuse]
    until = residuals[4]
    job = iterate(field, tmp_path / "b", sweeps=18, fuse=fuse, until=until, ranks=2)
    made = job.run()
    assert job.residuals == residuals[:5]
    np.testing.assert_array_equal(made[...], plain_sweeps(FIELD, jacobi, (1, 1), "none", 5 * fuse))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert job.meter.written_bytes == 6 * FIELD.nbytes, "five passes, and the target"


def test_all_sweeps_are_made_where_the_residual_stays_large(field: Path, tmp_path: Path) -> None:
    job = iterate(field, tmp_path / "b", sweeps=4, fuse=1, until=0.0)
    np.testing.assert_array_equal(job.run()[...], plain_sweeps(FIELD, jacobi, (1, 1), "none", 4))
    assert job.residuals == plain_residuals(4)


def test_any_residual(field: Path, tmp_path: Path) -> None:
    job = iterate(field, tmp_path / "b", sweeps=4, fuse=4, residual=lambda before, after: -float(after.min()))
    made = job.run()
    assert job.residuals == [-made[...].min()]
    assert iterate(field, tmp_path / "c").residuals == []


def test_auto_leaves_passes_in_which_a_residual_can_be_seen(field: Path, tmp_path: Path) -> None:
    assert len(iterate(field, tmp_path / "b", sweeps=40, fuse="auto").plan.passes) < 8
    assert len(iterate(field, tmp_path / "b", sweeps=40, fuse="auto", until=0.1).plan.passes) >= 8


# ---------------------------------------------------------------------- runs that stop


STOPS = [("begun", 1), ("pieces", 3), ("entry", 1), ("unrecorded", 5), ("entry", 7), ("entry", 9), ("mark", 1)]


@pytest.mark.parametrize(("at", "after"), STOPS)
def test_a_killed_run_goes_on_with_the_pass_it_was_in(
    field: Path, tmp_path: Path, runs: Server, at: str, after: int
) -> None:
    options: dict[str, Any] = {"sweeps": 6, "fuse": 2, "memory": "64MiB", "height": 16, "scheduler": "threads"}
    runs.run("iterate", "tests.sweeping:jacobi", field, tmp_path / "b", at=at, after=after, **options)
    with pytest.raises(UnfinishedError):
        ooc.open_array(tmp_path / "b")
    written = Journal(tmp_path / "b").parts()
    job = iterate(field, tmp_path / "b", resume=True)
    np.testing.assert_array_equal(job.run()[...], plain_sweeps(FIELD, jacobi, (1, 1), "none", 6))
    assert job.meter.write_requests == 2 * (9 - len(written)), "slabs that were written are not written again"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_killed_run_goes_on_in_windows(field: Path, tmp_path: Path, runs: Server) -> None:
    options: dict[str, Any] = {"sweeps": 6, "fuse": 3, "window": (32, 20), "memory": "64MiB", "scheduler": "threads"}
    runs.run("iterate", "tests.sweeping:jacobi", field, tmp_path / "b", at="entry", after=3, **options)
    assert Journal(tmp_path / "b").parts()
    job = iterate(field, tmp_path / "b", fuse=3, height=None, resume=True)
    assert job.plan.passes[0].heights == (32, 20)
    np.testing.assert_array_equal(job.run()[...], plain_sweeps(FIELD, jacobi, (1, 1), "none", 6))


class Failing:
    """A kernel that fails after some calls, until it is mended."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def __call__(self, block: np.ndarray) -> np.ndarray:
        self.calls -= 1
        if self.calls == 0:
            raise ValueError("enough")
        return jacobi(block)


def test_a_kernel_that_fails_names_the_slab_and_leaves_the_target_unfinished(field: Path, tmp_path: Path) -> None:
    job = iterate(field, tmp_path / "b", kernel=Failing(10))
    with pytest.raises(RunError, match=r"the kernel failed on slab \[\d+:\d+, 0:40\] .*ValueError: enough"):
        job.run()
    with pytest.raises(UnfinishedError):
        ooc.open_array(tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"], "scratch is gone"
    again = iterate(field, tmp_path / "b", kernel=Failing(-1), resume=True)
    np.testing.assert_array_equal(again.run()[...], plain_sweeps(FIELD, jacobi, (1, 1), "none", 6))
    np.testing.assert_array_equal(ooc.open_array(field)[...], FIELD)


def test_a_resumed_run_of_no_sweeps_copies(field: Path, tmp_path: Path) -> None:
    job = iterate(field, tmp_path / "b", sweeps=0, resume=True)
    assert (job.plan.fuse, job.plan.passes[0].sweeps.count) == (1, 0)
    np.testing.assert_array_equal(job.run()[...], FIELD)


def test_another_run_is_not_gone_on_with(field: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError):
        iterate(field, tmp_path / "b", kernel=Failing(10)).run()
    with pytest.raises(JournalError, match="sweeps=6, not 7"):
        iterate(field, tmp_path / "b", kernel=Failing(10), sweeps=7, resume=True)
    with pytest.raises(JournalError, match="was not being written by map_slabs"):
        ooc.map_slabs(jacobi, field, tmp_path / "b", depth=1, resume=True, scheduler="threads")


# ---------------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("options", "error", "line"),
    [
        ({"sweeps": -1}, InputError, "sweeps=-1 must be a whole number, at least 0"),
        ({"sweeps": 2.5}, InputError, "sweeps=2.5 must be a whole number, at least 0"),
        ({"fuse": 0}, InputError, "fuse=0 must be a whole number, at least 1"),
        ({"depth": (1,)}, InputError, r"depth=\(1,\) must be a whole number"),
        ({"boundary": "round"}, InputError, "boundary='round' is not 'none'"),
        ({"prefetch": -1}, InputError, "prefetch=-1 must be"),
        ({"until": "soon"}, InputError, "until='soon' is not a number"),
        ({"until": -1.0}, InputError, "until=-1.0 must be at least 0"),
        ({"until": float("nan"), "residual": max}, InputError, "until=nan must be at least 0"),
        ({"residual": 1}, InputError, "residual=1 is not callable"),
        ({"kernel": 3}, InputError, "kernel=3 is not callable"),
        ({"kernel": lambda block: block[1:]}, InputError, r"shape \(6, 7\) for a block of float64 and shape \(7, 7\)"),
        ({"kernel": lambda block: block.astype("f4")}, InputError, "the kernel returned float32 of shape"),
        ({"memory": 5000}, BudgetError, "one slab needs at least"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    field: Path, tmp_path: Path, options: dict[str, Any], error: type[Exception], line: str
) -> None:
    with pytest.raises(error, match=line) as raised:
        iterate(field, tmp_path / "b", **options)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "b").exists()


def test_nothing_is_overwritten_unless_that_is_asked_for(field: Path, tmp_path: Path) -> None:
    iterate(field, tmp_path / "b").run()
    with pytest.raises(TargetError, match="exists; pass overwrite=True"):
        iterate(field, tmp_path / "b")
    with pytest.raises(TargetError, match="is the source itself"):
        iterate(field, field, overwrite=True)
    job = iterate(field, tmp_path / "b", sweeps=1, overwrite=True)
    np.testing.assert_array_equal(job.run()[...], plain_sweeps(FIELD, jacobi, (1, 1), "none", 1))
