"""Workers that are killed at a known place: before a task, after it, in the middle of a file.

A worker is told beforehand where it is to die. So what is lost is known, and how much is done again for it.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

import oocarrays as ooc
from oocarrays.graphs import events
from tests.flat import flat
from tests.graphs.clusters import FIELD, tight, until, within
from tests.profiles import is_nightly, some
from tests.seams import KEPT_REQUEST, KEPT_SOURCE, known_workers
from tests.small import CODECS, make

pytestmark = pytest.mark.long

RANKS = 3


@pytest.fixture
def job_of(spare: Client, tmp_path: Path) -> Callable[..., ooc.Job]:
    """Makes a job on three of the workers, of four partitions and a part for each rank in each of them."""
    make(tmp_path / "field.zarr", FIELD, chunks=(50, 768), compressors=CODECS["zstd"])
    until(lambda: len(known_workers(spare)) == RANKS + 1)
    there = sorted(known_workers(spare))[:RANKS]

    def made(method: str, **options: Any) -> ooc.Job:
        given = {"chunks": (1024, 64), "compressors": (), "overwrite": True, "workers": there, "ranks": RANKS} | options
        place = tmp_path / "field.zarr", tmp_path / "target.zarr"
        return tight(lambda **memory: flat(ooc.rechunk, *place, method=method, scheduler=spare, **given, **memory))

    return made


def dies(client: Client, address: str, place: str, name: str, number: int, when: str) -> None:
    """Have a worker kill itself before or after its nth call of something: a verb of the graph, or a function."""

    def prepare() -> None:
        import functools
        import importlib
        import inspect
        import os
        import signal

        module, _, owner = place.partition(":")
        there: Any = importlib.import_module(module)
        there = getattr(there, owner) if owner else there
        left = [number]

        def deadly(plain: Any) -> Any:
            def call(*args: Any, **options: Any) -> Any:
                left[0] -= 1
                if left[0] == 0 and when == "before":
                    os.kill(os.getpid(), signal.SIGKILL)
                result = plain(*args, **options)
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            async def awaited(*args: Any, **options: Any) -> Any:
                left[0] -= 1
                last = left[0] == 0
                if last and when == "before":
                    os.kill(os.getpid(), signal.SIGKILL)
                result = await plain(*args, **options)
                if last:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            chosen = awaited if inspect.iscoroutinefunction(plain) else call
            return functools.wraps(plain)(chosen)  # a task may name it: it is pickled by its own name

        setattr(there, name, deadly(getattr(there, name)))

    client.run(prepare, workers=[address])


TASKS, JOURNAL = "oocarrays.graphs.rechunk.tasks", "oocarrays.storage.journal.journal:Journal"
ROUND, EXCHANGE = "oocarrays.graphs.exchange.whole:RankRound", "oocarrays.graphs.rechunk.exchange"
INDEPENDENT = [
    (TASKS, "probe", 1, "before", 1),
    (TASKS, "create", 1, "before", 0),
    (TASKS, "copy", 1, "after", 2),
    (TASKS, "finish", 1, "before", 0),
    (JOURNAL, "begin", 1, "after", 0),
]
TWO_PHASE = [
    (TASKS, "create", 1, "after", 0),
    (EXCHANGE, "read", 2, "before", 1),
    (EXCHANGE, "read", 3, "after", 2),
    (ROUND, "_open", 3, "after", 0),
    (ROUND, "_take", 5, "after", 1),
    (ROUND, "went", 3, "before", 0),
    (TASKS, "write", 2, "after", 1),
    (EXCHANGE, "free", 2, "after", 0),
    (JOURNAL, "_publish", 3, "before", 1),
    ("oocarrays.storage.local.blobs:LocalBlobs", "_write", 2, "after", 2),
]
STAGED = [(TASKS, "copy", 1, "after", 1), (TASKS, "copy", 2, "before", 0), (TASKS, "start", 2, "before", 0)]
KILLED = [
    *(("independent", *case) for case in INDEPENDENT),
    *(("two-phase", *case) for case in TWO_PHASE),
    *(("staged", *case) for case in STAGED),
]


def named(case: tuple) -> str:
    method, _, name, number, when, rank = case
    return f"{method}: {when} {name.strip('_')} {number} of rank {rank}"


@pytest.mark.sampled
@pytest.mark.parametrize("case", KILLED, ids=named)
def test_a_worker_dies_and_the_run_goes_on(spare: Client, job_of: Callable, case: tuple) -> None:
    method, *where, rank = case
    job = job_of(method)
    victim = job.placement[rank]
    dies(spare, victim, *where)
    check(job, within(job.run))
    assert victim not in known_workers(spare), "it was there that it died"
    check_moves(job, victim)
    check_done_again(job)


def check(job: ooc.Job, target: ooc.OutOfCoreArray) -> None:
    """The array is right, and there is nothing else."""
    np.testing.assert_array_equal(target, FIELD)
    folder = Path(target.store)
    assert sorted(path.name for path in folder.iterdir()) == [KEPT_REQUEST, KEPT_SOURCE, "c", "zarr.json"]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["field.zarr", "target.zarr"]
    assert not list(folder.rglob("*.partial"))


def check_moves(job: ooc.Job, victim: str) -> None:
    """All ranks of the worker went together to one that had none."""
    (move,) = job.moves
    assert move.lost == victim
    assert list(move.ranks) == [rank for rank, home in job.placement.items() if home == victim]
    assert move.worker not in job.placement.values()
    assert "was lost" in job.explain()
    assert "budget now holds" not in job.explain()


def check_done_again(job: ooc.Job) -> None:
    """What a worker held, or was in the middle of: the outboxes of its ranks, or a batch."""
    again = job.meter.read_requests - job.plan.read_requests
    (ranks,) = (len(move.ranks) for move in job.moves)
    if job.plan.strategy == "two-phase":
        (step,) = job.plan.passes
        assert again <= ranks * (step.slabs + 1) * step.slab
    else:
        assert again <= 0, "what a killed task read died with it; nothing else is read again"
    assert job.meter.decoded_bytes - job.plan.traffic.decoded_bytes <= job.plan.peak_bytes


def test_ranks_that_share_a_worker_move_together(spare: Client, job_of: Callable) -> None:
    job = job_of("two-phase", ranks=2 * RANKS)
    assert all(job.__dask_graph__() for _ in range(3)), "who only looks has nothing moved"
    victim = job.placement[2]
    dies(spare, victim, ROUND, "_take", 4, "after")
    check(job, within(job.run))
    assert [list(move.ranks) for move in job.moves] == [[2, 3]]
    check_moves(job, victim)


def test_workers_die_one_after_the_other(spare: Client, job_of: Callable) -> None:
    """The second one while the ranks of the first are at home again."""
    job = job_of("two-phase")
    for rank, task in ((1, (EXCHANGE, "read")), (2, (TASKS, "write"))):
        dies(spare, job.placement[rank], *task, 2, "before")
    check(job, within(job.run))
    assert {move.lost for move in job.moves} >= {job.placement[1], job.placement[2]}


def test_a_worker_dies_at_any_time(spare: Client, job_of: Callable) -> None:
    """Four times, at night a dozen: whichever worker, whenever between the first task that is done and the last."""
    chance = random.Random(4)
    moved = 0
    times = list(some(range(12)))
    for number in times:
        until(lambda: len(known_workers(spare)) == RANKS + 1)
        there = chance.sample(sorted(known_workers(spare)), RANKS)
        method = chance.choice(["independent", "two-phase", "two-phase", "staged"])
        job = job_of(method, workers=there, ranks=chance.randint(2, 4), chunks=(1024, 128))
        victim = chance.choice(sorted(set(job.placement.values())))
        wait = chance.randrange(job.plan.tasks * 3 // 4)
        with pytest.MonkeyPatch.context() as patch:
            kill_after(patch, wait, spare.run(os.getpid)[victim])
            np.testing.assert_array_equal(within(job.run), FIELD, err_msg=f"{number}: {method}, {wait} tasks")
        moved += len(job.moves)
    assert moved >= (len(times) // 2 if is_nightly() else 1)


def kill_after(patch: pytest.MonkeyPatch, number: int, pid: int) -> None:
    """SIGKILL a process when the workers have told of so many tasks."""
    plain, heard = events.deliver, count()

    def deliver(*args: Any) -> None:
        plain(*args)
        if next(heard) == number:
            os.kill(pid, signal.SIGKILL)

    patch.setattr(events, "deliver", deliver)


# ---------------------------------------------------------------------- where it does not go on


def test_a_worker_dies_between_mark_and_journal(spare: Client, job_of: Callable) -> None:
    job = job_of("independent")
    dies(spare, job.placement[0], JOURNAL, "begin", 1, "before")
    check(job, within(job.run))


def test_a_worker_dies_when_it_has_finished_and_not_said_so(spare: Client, job_of: Callable) -> None:
    job = job_of("two-phase", overwrite=False)
    dies(spare, job.placement[0], TASKS, "finish", 1, "after")
    spare.amm.stop()  # it may drop the run where nobody needs it any more: the target would then be made again
    try:
        check(job, within(job.run))
    finally:
        spare.amm.start()


def test_a_worker_dies_while_it_makes_room_for_the_target(spare: Client, job_of: Callable, tmp_path: Path) -> None:
    make(tmp_path / "target.zarr", FIELD, chunks=(50, 50))
    job = job_of("independent")
    dies(spare, job.placement[0], "os", "rmdir", 1, "before")
    check(job, within(job.run))
