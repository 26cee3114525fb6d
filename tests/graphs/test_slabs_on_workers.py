"""Passes over slabs on a cluster: every rank where it was put, workers that die, runs that are resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import RunError, TargetError, UnfinishedError
from tests.flat import flat
from tests.graphs.clusters import events, home_of, until, within
from tests.graphs.test_killed_tasks import dies
from tests.seams import Journal, known_workers
from tests.small import CODECS, make
from tests.whole import around, corners, expected

pytestmark = pytest.mark.long

FIELD = np.random.default_rng(2).random((240, 64))
RANKS = 3
SLABS = 20
RUN, TASKS = "oocarrays.graphs.run.run", "oocarrays.graphs.slabs.tasks"
JOURNAL = "oocarrays.storage.journal.journal:Journal"


@pytest.fixture
def job_of(spare: Client, tmp_path: Path) -> Callable[..., ooc.Job]:
    """Makes a job on three of the workers, of twenty slabs."""
    make(tmp_path / "field.zarr", FIELD, chunks=(12, 64), compressors=CODECS["zstd"])
    until(lambda: len(known_workers(spare)) == RANKS + 1)
    there = sorted(known_workers(spare))[:RANKS]
    kernel = around((2, 0))

    def made(kernel: Any = kernel, **options: Any) -> ooc.Job:
        given = {"depth": (2, 0), "boundary": "reflect", "memory": "64MiB", "height": 12, "workers": there} | options
        place = tmp_path / "field.zarr", given.pop("target", tmp_path / "target.zarr")
        return flat(ooc.map_slabs, kernel, *place, scheduler=spare, **given)

    return made


def check(target: ooc.OutOfCoreArray, boundary: Any = "reflect", depth: int = 2) -> None:
    """The array is right, and there is nothing else."""
    (want,) = expected(around((depth, 0)), [FIELD], (depth, 0), boundary)
    np.testing.assert_allclose(target[...], want)
    folder = Path(target.store)
    assert sorted(path.name for path in folder.iterdir()) == [".oocarrays.made", "c", "zarr.json"]
    assert not list(folder.rglob("*.partial"))


@pytest.mark.parametrize(
    ("boundary", "options"), [("none", {"ranks": 6}), ("none", {"reuse": False, "prefetch": 0}), ("periodic", {})]
)
def test_a_pass_on_workers(spare: Client, job_of: Callable, boundary: str, options: dict) -> None:
    job = job_of(around((15, 0)), depth=(15, 0), boundary=boundary, **options)
    check(within(job.run), boundary, 15)
    assert all(event["worker"] == home_of(job, event) for event in events(spare, job))
    if boundary == "none":
        assert job.meter.decoded_bytes == job.plan.traffic.decoded_bytes
    assert job.meter.write_requests == job.plan.traffic.write_requests == SLABS


@pytest.mark.parametrize("chunks", [(12, 16), (24, 64)], ids=["whole", "in parts"])
def test_windows_on_workers(spare: Client, job_of: Callable, tmp_path: Path, chunks: tuple[int, ...]) -> None:
    """Each rank has rows of windows, and reads at their borders what is another's."""
    kernel = corners((1, 2))
    job = job_of(kernel, depth=(1, 2), window=(12, 16), height=None, chunks=chunks)
    assert job.plan.cut_axes == (0, 1)
    made = within(job.run)
    (want,) = expected(kernel, [FIELD], (1, 2), "reflect")
    np.testing.assert_allclose(made[...], want)
    assert all(event["worker"] == home_of(job, event) for event in events(spare, job))
    assert job.plan.again_bytes > 0
    assert "are read again" in job.explain()
    job = ooc.iterate(
        lambda block: (block + np.roll(block, 1, 1)) / 2,
        tmp_path / "field.zarr",
        tmp_path / "swept.zarr",
        sweeps=3,
        boundary="nearest",
        memory="64MiB",
        scheduler=spare,
        resources=ooc.Resources(fuse=2, window=(24, 64), workers=None),
    )
    assert (len(job.plan.passes), job.plan.passes[0].heights) == (2, (24, 64))
    assert within(job.run).shape == FIELD.shape


KILLED = [
    (RUN, "create", 1, "before", 0),
    (TASKS, "read", 4, "after", 1),
    (TASKS, "compute", 3, "before", 2),
    (TASKS, "write", 4, "before", 1),
    (TASKS, "write", 6, "after", 2),
    (TASKS, "finish", 1, "before", 0),
    (JOURNAL, "begin", 1, "before", 0),
    (JOURNAL, "_publish", 3, "after", 1),
]


@pytest.mark.sampled
@pytest.mark.parametrize("case", KILLED, ids=lambda case: f"{case[3]} {case[1]} {case[2]} of rank {case[4]}")
def test_a_worker_dies_and_the_pass_goes_on(spare: Client, job_of: Callable, case: tuple) -> None:
    *where, rank = case
    job = job_of()
    victim = job.placement[rank]
    dies(spare, victim, *where)
    check(within(job.run))
    (move,) = job.moves
    assert move.lost == victim
    again = job.meter.write_requests - SLABS
    assert again <= job.plan.held, "what was written is not computed again"


def test_a_second_target_is_made_once_though_a_worker_dies(spare: Client, job_of: Callable, tmp_path: Path) -> None:
    """Between the making of the second target and of the first."""
    targets = [tmp_path / "first.zarr", tmp_path / "second.zarr"]
    job = job_of(lambda block: (around((2, 0))(block), -block), target=targets)
    dies(spare, job.placement[0], "oocarrays.storage.files.creating:TargetSpec", "create", 1, "after")
    first, second = within(job.run)
    check(first)
    np.testing.assert_array_equal(second, -FIELD)


def test_levels_of_a_pyramid_are_made_though_a_worker_dies_before(spare: Client, tmp_path: Path) -> None:
    """Between the making of the group and of its arrays."""
    make(tmp_path / "image.zarr", np.arange(4096, dtype="u2").reshape(64, 64), chunks=(16, 16))
    until(lambda: len(known_workers(spare)) == RANKS + 1)
    how: dict[str, Any] = {"memory": "64MiB", "workers": sorted(known_workers(spare))[:RANKS], "scheduler": spare}
    job = flat(ooc.pyramid, tmp_path / "image.zarr", tmp_path / "levels", levels=3, method="nearest", **how)
    dies(spare, job.placement[0], "oocarrays.storage.files.group_file", "make_group", 1, "after")
    levels = within(job.run)
    assert len(job.moves) == 1
    for number, step in enumerate((1, 2, 4)):
        np.testing.assert_array_equal(levels[str(number)][...], ooc.open_array(tmp_path / "image.zarr")[::step, ::step])


def failing(block: np.ndarray) -> np.ndarray:
    if FIELD[120, 0] in block:
        raise ZeroDivisionError("row 120")
    return around((2, 0))(block)


def test_a_kernel_that_fails_names_its_slab_and_the_pass_is_resumed(job_of: Callable, tmp_path: Path) -> None:
    on = tmp_path / "on"
    on.touch()

    def switch(block: np.ndarray) -> np.ndarray:
        return failing(block) if on.exists() else around((2, 0))(block)

    with pytest.raises(
        RunError, match=r"the kernel failed on slab \[1\d\d:1\d\d, 0:64\] .*: ZeroDivisionError: row 120"
    ):
        within(job_of(switch).run)
    with pytest.raises(UnfinishedError):
        ooc.open_array(tmp_path / "target.zarr")
    done = Journal(tmp_path / "target.zarr").parts()
    on.unlink()
    job = job_of(switch, resume=True, height=None)
    assert job.plan.height == 12
    check(within(job.run))
    computed = {tuple(span.args) for span in job.meter.spans if span.phase == "compute"}
    assert len(computed) == SLABS - len(done)


def test_a_job_runs_twice_and_a_finished_target_is_not_written_again(job_of: Callable) -> None:
    job = job_of(overwrite=True)
    for _ in range(2):
        check(within(job.run))
    with pytest.raises(TargetError, match="exists; pass overwrite=True"):
        job_of()
