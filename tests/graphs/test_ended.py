"""Workers that die when the last task is done and nobody has heard of it: a run ends once, however often it is asked.

Every kind of job, with a worker killed as a task that begins, closes or ends it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import BudgetError, RunError
from oocarrays.graphs.run import recording
from tests.flat import flat
from tests.graphs.clusters import events, until, within
from tests.graphs.test_killed_tasks import dies
from tests.seams import JOURNAL_FOLDER, Journal, known_workers, task_of

pytestmark = pytest.mark.long
RANKS = 3
FIELD = np.random.default_rng(5).integers(1, 99, (96, 60), dtype="i4")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    zarr.create_array(tmp_path / "a", data=FIELD, chunks=(8, 60), compressors=None, fill_value=-1)
    return tmp_path / "a"


def double(block: np.ndarray) -> np.ndarray:
    return 2 * block


def scattered(source: Path) -> Any:
    where = {"ranks": RANKS, "overwrite": True, "scheduler": "threads"}
    return flat(ooc.ranks.scatter_files, source, "(block, *)", source.parent / "l", **where).run()


def group_of(source: Path) -> Path:
    group = zarr.create_group(source.parent / "group", attributes={"title": "of two"})
    group.create_array("air", data=FIELD, chunks=(8, 60))
    group.create_array("land", data=FIELD[:8], chunks=(8, 60))
    return source.parent / "group"


def grouped(source: Path, target: Path, **where: Any) -> Any:
    return flat(ooc.rechunk, group_of(source), target, chunks={"air": (96, 10)}, **where)


def local_slabs(source: Path, target: Path, **where: Any) -> Any:
    return flat(ooc.map_slabs, double, scattered(source), target, **where)


def local_sweeps(source: Path, target: Path, **where: Any) -> Any:
    return flat(ooc.iterate, double, scattered(source), target, sweeps=1, depth=0, **where)


def dataset(source: Path, target: Path, **where: Any) -> Any:
    xr = pytest.importorskip("xarray")
    variables = {"air": (("y", "x"), da.from_array(FIELD, chunks=(8, 60))), "lon": (("x",), np.arange(60))}
    return flat(ooc.rechunk, xr.Dataset(variables), target, chunks={"air": (8, 60)}, **where)


JOBS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any], int]] = {
    "rechunk": (
        lambda s, t, **where: flat(ooc.rechunk, s, t, chunks=(96, 10), resources=ooc.Resources(ranks=RANKS), **where),
        lambda made: made[...],
        1,
    ),
    "group": (grouped, lambda made: made["air"][...], 1),
    "scatter": (
        lambda s, t, **where: flat(ooc.ranks.scatter_files, s, "(block, *)", t, ranks=RANKS, **where),
        lambda made: made[...],
        1,
    ),
    "gather": (
        lambda s, t, **where: flat(ooc.ranks.gather_files, scattered(s), ooc.Target(t, chunks=(8, 60)), **where),
        lambda made: made[...],
        1,
    ),
    "slabs": (
        lambda s, t, **where: flat(ooc.map_slabs, double, s, t, resources=ooc.Resources(ranks=RANKS), **where),
        lambda made: made[...],
        2,
    ),
    "local slabs": (local_slabs, lambda made: made[...], 2),
    "iterate": (
        lambda s, t, **where: flat(
            ooc.iterate, double, s, t, sweeps=1, depth=0, resources=ooc.Resources(ranks=RANKS), **where
        ),
        lambda made: made[...],
        2,
    ),
    "local iterate": (local_sweeps, lambda made: made[...], 2),
    "aligned blocks": (
        lambda s, t, **where: flat(ooc.rechunk, da.from_array(FIELD, chunks=(8, 60)), t, **where),
        lambda made: made[...],
        1,
    ),
    "joined blocks": (
        lambda s, t, **where: flat(ooc.rechunk, da.from_array(FIELD, chunks=(8, 60)), t, chunks=(96, 7), **where),
        lambda made: made[...],
        1,
    ),
    "dataset": (dataset, lambda made: made["air"].values, 1),
}
"""Of each kind: how it is made of a source and a target, what its result holds, times what."""


def there(client: Client) -> list[str]:
    """The workers that have ranks, when all are at home again."""
    until(lambda: len(known_workers(client)) == RANKS + 1)
    return sorted(known_workers(client))[:RANKS]


def job_of(client: Client, kind: str, source: Path, **options: Any) -> Any:
    target = source.parent / "target"
    return JOBS[kind][0](source, target, scheduler=client, workers=there(client), **options)


def check(kind: str, made: Any, target: Path) -> None:
    """The result is right, and nothing else is left."""
    _, values, times = JOBS[kind]
    np.testing.assert_array_equal(values(made), times * FIELD)
    until(lambda: not list(target.rglob(JOURNAL_FOLDER)))
    assert not [path for path in target.parent.iterdir() if path.name.startswith(".oocarrays")]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", JOBS)
def test_the_last_task_returns_and_its_worker_dies(spare: Client, source: Path, kind: str) -> None:
    job = job_of(spare, kind, source)
    victim = job.placement[0]
    dies(spare, victim, *task_of(job, "end"), 1, "after")
    made = within(job.run)
    assert victim not in known_workers(spare), "it was there that it died"
    check(kind, made, source.parent / "target")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "task", "rank"),
    [
        ("scatter", "begin", 0),
        ("scatter", "make files", 1),
        ("scatter", "close", 1),
        ("gather", "begin", 0),
        ("group", "begin", 0),
        ("local slabs", "close", 1),
        ("local iterate", "begin", 0),
        ("local iterate", "make files", 1),
        ("local iterate", "end pass", 0),
        ("local iterate", "close", 1),
        ("local iterate", "close", 2),
        ("dataset", "begin", 0),
    ],
)
def test_what_begins_or_closes_returns_and_its_worker_dies(
    spare: Client, source: Path, kind: str, task: str, rank: int
) -> None:
    job = job_of(spare, kind, source)
    dies(spare, job.placement[rank], *task_of(job, task), 1, "after")
    check(kind, within(job.run), source.parent / "target")


@pytest.mark.parametrize("kind", ["rechunk", "scatter", "gather"])
def test_what_has_been_finished_is_not_made_again(spare: Client, source: Path, kind: str) -> None:
    within(job_of(spare, kind, source).run)
    job = job_of(spare, kind, source, overwrite=True)
    dies(spare, job.placement[0], *task_of(job, "end"), 1, "after")
    check(kind, within(job.run), source.parent / "target")
    assert job.meter.read_bytes <= job.plan.traffic.read_bytes
    assert job.meter.written_bytes <= job.plan.traffic.written_bytes


@pytest.mark.parametrize("kind", ["rechunk", "scatter"])
def test_whoever_computes_it_hears_that_it_has_ended(spare: Client, source: Path, kind: str) -> None:
    job = job_of(spare, kind, source)
    dies(spare, job.placement[0], *task_of(job, "end"), 1, "after")
    (made,) = within(lambda: dask.compute(job))
    check(kind, made, source.parent / "target")


def test_the_scheduler_knows_what_has_been_heard(spare: Client, source: Path) -> None:
    """What a job that is persisted holds is lost long after: nothing is read or written again."""
    kept = within(job_of(spare, "rechunk", source).persist)
    until(
        lambda: not (source.parent / "target" / JOURNAL_FOLDER).exists() and (source.parent / "target" / "c").exists()
    )
    before = len(events(spare, kept))
    (holder,) = spare.who_has()[str(kept._key)] if str(kept._key) in spare.who_has() else _holders(spare, kept._key)
    spare.run(_die, workers=[holder], on_error="ignore")
    check("rechunk", within(kept.compute), source.parent / "target")
    assert not [told for told in events(spare, kept)[before:] if told.get("read_bytes") or told.get("written_bytes")]


def _holders(client: Client, key: Any) -> list[str]:
    return [address for address, keys in client.has_what().items() if key in keys]


def _die(dask_worker: Any = None) -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def test_a_run_that_is_asked_for_again_is_done_again(spare: Client, source: Path) -> None:
    job = job_of(spare, "rechunk", source, overwrite=True)
    for number in (0, 1):
        zarr.open_array(source, mode="r+")[...] = FIELD + number
        np.testing.assert_array_equal(within(job.run)[...], FIELD + number)
    for number in (2, 3):
        zarr.open_array(source, mode="r+")[...] = FIELD + number
        (made,) = within(lambda: dask.compute(job))
        np.testing.assert_array_equal(made[...], FIELD + number)


# ---------------------------------------------------------------------- what is read again


def tight(plan: Callable[..., Any]) -> Any:
    """A job in the least memory that it needs: of many rounds."""
    try:
        return plan(memory=1)
    except BudgetError as error:
        return plan(memory=error.least)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["scatter", "gather"])
@pytest.mark.parametrize(("task", "number", "rank"), [("write", 3, 2), ("close", 1, 1)])
def test_no_more_is_read_again_than_the_worker_held(
    spare: Client, source: Path, kind: str, task: str, number: int, rank: int
) -> None:
    chunks = {"chunks": (8, 60)} if kind == "scatter" else {}
    job = tight(lambda memory: job_of(spare, kind, source, memory=memory, **chunks))
    assert len(job.plan.rounds) > 3
    dies(spare, job.placement[rank], *task_of(job, task), number, "after")
    check(kind, within(job.run), source.parent / "target")
    assert job.meter.read_bytes - job.plan.traffic.read_bytes <= job.plan.peak_bytes // 2
    assert job.meter.written_bytes <= job.plan.traffic.written_bytes


# ---------------------------------------------------------------------- what is left where nobody hears


def test_word_of_a_run_that_nobody_heard_is_in_nobodys_way(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    ooc.rechunk(source, target, chunks=(96, 10), scheduler="threads").run()
    Journal(target).notes.say_ended("c0ffee123456")
    np.testing.assert_array_equal(ooc.open_array(target)[...], FIELD)
    np.testing.assert_array_equal(zarr.open_array(target)[...], FIELD)
    again = ooc.rechunk(source, target, chunks=(48, 10), overwrite=True, scheduler="threads").run()
    assert not (target / JOURNAL_FOLDER).exists()
    np.testing.assert_array_equal(again[...], FIELD)


def test_a_scatter_that_was_killed_before_any_file_was_made_goes_on_or_begins_again(
    source: Path, tmp_path: Path
) -> None:
    job = ooc.ranks.scatter_files(source, "(block, *)", tmp_path / "l", ranks=2, scheduler="threads")
    job._run.live.make_targets()
    job._run.live.journal.begin(job.run_id, job._run.state.content)
    left = ooc.resume(tmp_path / "l")
    assert left.left == 1
    a = ooc.ranks.scatter_files(
        source, "(block, *)", tmp_path / "l", ranks=2, overwrite=True, scheduler="threads"
    ).run()
    np.testing.assert_array_equal(a[...], FIELD)
    again = ooc.ranks.scatter_files(source, "(block, *)", tmp_path / "m", ranks=2, scheduler="threads")
    again._run.live.make_targets()
    again._run.live.journal.begin(again.run_id, again._run.state.content)
    again._run.live.journal.release()
    np.testing.assert_array_equal(ooc.resume(tmp_path / "m").run()[...], FIELD)


def test_a_scatter_that_failed_when_files_were_closed_is_run_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ooc.ranks.scatter_files(source, "(block, *)", tmp_path / "l", ranks=2, scheduler="threads")
    with monkeypatch.context() as patch:
        patch.setattr(recording, "end", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            job.run()
    np.testing.assert_array_equal(job.run()[...], FIELD)


# ---------------------------------------------------------------------- kernels that fail at once


def failing(block: np.ndarray) -> np.ndarray:
    raise ValueError("at once")


@pytest.mark.parametrize("run", [lambda job: job.run(), dask.compute], ids=["run", "compute"])
def test_a_kernel_that_fails_before_anything_is_written_leaves_nothing(source: Path, run: Any) -> None:
    target = source.parent / "t"
    for job in (
        ooc.map_slabs(failing, source, target, scheduler="threads"),
        ooc.iterate(failing, source, target, sweeps=2, depth=0, scheduler="threads"),
        ooc.map_slabs(failing, scattered(source), target, scheduler="threads"),
    ):
        with pytest.raises(RunError, match="at once"):
            run(job)
        until(lambda: not target.exists())  # other tasks may be running when `dask.compute` raises


def test_a_kernel_that_fails_on_a_worker_leaves_nothing(spare: Client, source: Path) -> None:
    job = ooc.map_slabs(
        failing, source, source.parent / "t", scheduler=spare, resources=ooc.Resources(workers=there(spare))
    )
    with pytest.raises(RunError, match="at once"):
        within(job.run)
    assert not (source.parent / "t").exists()
