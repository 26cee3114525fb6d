"""One task a rank and round: the right elements, steps in order, nobody that waits in a circle, workers that die."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from random import Random
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, Future, LocalCluster, Scheduler, SchedulerPlugin
from distributed.core import Status
from hypothesis import HealthCheck, given, strategies as st

import oocarrays as ooc
from oocarrays.errors import CorruptChunkError, PlacementError
from oocarrays.graphs.exchange.between import Delivered, Exchanges
from oocarrays.graphs.exchange.whole import RankRound
from oocarrays.graphs.rechunk import exchange
from oocarrays.plan.exchange.ordering import CREDIT
from tests.flat import flat
from tests.graphs.clusters import FIELD, assert_steps, cluster, kill_when, most_held, tight, until, within
from tests.profiles import examples
from tests.seams import SCHEDULES
from tests.small import make

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def two() -> Iterator[Client]:
    """Two workers of one thread: of four ranks and more not all can run at one time."""
    with cluster(2, memory_limit=0) as client:
        yield client


@pytest.fixture(scope="module")
def here() -> Iterator[Client]:
    """Three workers of one thread in this process."""
    with inside(3) as client:
        yield client


@contextmanager
def inside(workers: int) -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=0
        ) as made,
        Client(made) as client,
    ):
        yield client


@pytest.fixture
def field(tmp_path: Path) -> Path:
    make(tmp_path / "field.zarr", FIELD, chunks=(50, 768))
    return tmp_path / "field.zarr"


def job_of(source: Path, client: Client, assembly: str = "synchronous", **options: Any) -> ooc.Job:
    given: dict[str, Any] = {"chunks": (1024, 64), "method": "two-phase", "ranks": 4, "scheduler": client}
    target = source.parent / "target.zarr"
    with dask.config.set({"oocarrays.assembly": assembly}):
        return tight(lambda **memory: flat(ooc.rechunk, source, target, overwrite=True, **(given | options | memory)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("assembly", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_elements_and_messages(two: Client, field: Path, name: str, assembly: str) -> None:
    job = job_of(field, two, assembly, schedule=name.lower())
    np.testing.assert_array_equal(within(job.run), FIELD)
    (step,), planned = job.plan.passes, job.plan.traffic
    assert step.packed
    assert step.units > 1
    assert len(job._graph) == job.plan.tasks
    if step.schedule.forwards:
        until(lambda: 0 < job.meter.messages <= planned.messages, 10)
        return
    until(lambda: job.meter.sent_bytes >= planned.exchanged_bytes, 10)
    assert (job.meter.messages, job.meter.sent_bytes) == (planned.messages, planned.exchanged_bytes)


def test_threads_cannot_do_what_workers_do_together(two: Client, field: Path) -> None:
    job = job_of(field, two)
    with pytest.raises(PlacementError, match=r"was planned for a cluster.*scheduler='threads'"):
        dask.threaded.get(*job._run.graph(["x"] * 4))


ORDERED = [(4, name) for name in SCHEDULES if name != "LEX"] + [(3, "GEN"), (5, "GEN"), (7, "PEX-GEN")]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("ranks", "name"), ORDERED, ids=str)
def test_steps_come_one_after_the_other(two: Client, field: Path, ranks: int, name: str) -> None:
    job = job_of(field, two, schedule=name.lower(), ranks=ranks)
    within(job.run)
    assert_steps(job)


@contextmanager
def credit_used() -> Iterator[Counter[Any]]:
    """Count the most messages that each rank had at one time and had not said to have taken, of workers in here."""
    held, most = Counter[Any](), Counter[Any]()

    def came(place: Any) -> None:
        held[place] += 1
        most[place] = max(most[place], held[place])

    def taken(place: Any) -> None:
        held[place] -= 1

    with messages_seen(came, taken):
        yield most


@contextmanager
def messages_seen(came: Callable[[Any], None], taken: Callable[[Any], None]) -> Iterator[None]:
    """Tell of each message that workers in here get, and that they have unpacked, whose it is."""
    fetch = Exchanges.fetch

    async def seen(self: Exchanges, course: Any, *asked: Any) -> Delivered:
        delivered = await fetch(self, course, *asked)
        came(course.place)

        async def told() -> None:
            taken(course.place)
            await delivered.taken()

        return Delivered(delivered.message, told)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Exchanges, "fetch", seen)
        yield


@examples(8, suppress_health_check=list(HealthCheck))
@given(
    ranks=st.integers(1, 9),
    late=st.lists(st.integers(0, 30), min_size=9, max_size=9),
    name=st.sampled_from(["gen", "lex", "pex-gen", "auto"]),
    assembly=st.sampled_from(["synchronous", "asynchronous"]),
)
def test_nobody_waits_in_a_circle(
    here: Client, tmp_path_factory: pytest.TempPathFactory, ranks: int, late: list[int], name: str, assembly: str
) -> None:
    """Whatever is there first; with credit for few messages."""
    source = tmp_path_factory.mktemp("f") / "field.zarr"
    data = FIELD[:90, :64]
    make(source, data, chunks=(7, 64))
    read = exchange.read

    @wraps(read)
    def read_late(live: Any, number: int, unit: int, rank: int) -> Any:
        time.sleep(late[rank] / 1000)
        return read(live, number, unit, rank)

    with pytest.MonkeyPatch.context() as patched, credit_used() as most:
        patched.setattr(exchange, "read", read_late)
        job = job_of(source, here, assembly, ranks=ranks, chunks=(90, 4), schedule=name)
        np.testing.assert_array_equal(within(job.run), data)
    credit = CREDIT if assembly == "asynchronous" and not job.plan.passes[0].schedule.forwards else 1
    assert max(most.values(), default=0) <= credit


class AnyOrder(SchedulerPlugin):
    """Gives tasks a random priority, whatever is needed first."""

    name = "any-order"

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def update_graph(self, scheduler: Scheduler, *, tasks: Collection[Any], **kwargs: Any) -> None:
        random = Random(self.seed)
        for key in sorted(tasks, key=str):
            scheduler.tasks[key].priority = (*scheduler.tasks[key].priority[:-1], random.random())


@examples(8, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32),
    ranks=st.integers(2, 9),
    name=st.sampled_from(["gen", "lex", "pex-gen", "auto"]),
    assembly=st.sampled_from(["synchronous", "asynchronous"]),
)
def test_tasks_may_start_in_any_order(
    here: Client, tmp_path_factory: pytest.TempPathFactory, seed: int, ranks: int, name: str, assembly: str
) -> None:
    """Of several rounds, on three workers of one thread: none of them waits for what cannot start before it ends."""
    source = tmp_path_factory.mktemp("f") / "field.zarr"
    make(source, FIELD, chunks=(50, 768))
    job = job_of(source, here, assembly, ranks=ranks, schedule=name)
    assert job.plan.passes[0].units > 1
    here.register_plugin(AnyOrder(seed))
    try:
        np.testing.assert_array_equal(within(job.run), FIELD)
    finally:
        here.unregister_scheduler_plugin(AnyOrder.name)


def test_what_has_come_is_unpacked_in_the_order_of_arrival(here: Client, field: Path) -> None:
    """A rank that is late holds back none of those after it."""
    read, fetch, came = exchange.read, Exchanges.fetch, Counter[int]()
    others = dict.fromkeys((0, 2, 3, 4, 5), 4)

    @wraps(read)
    def read_last(live: Any, number: int, unit: int, rank: int) -> Any:
        if rank == 1 and unit == 0:
            until(lambda: came == others)
        return read(live, number, unit, rank)

    async def counted(self: Exchanges, course: Any, *asked: Any) -> Delivered:
        delivered = await fetch(self, course, *asked)

        async def taken() -> None:
            came[course.place[2]] += course.place[1] == (0, 0)
            await delivered.taken()

        return Delivered(delivered.message, taken)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exchange, "read", read_last)
        patched.setattr(Exchanges, "fetch", counted)
        with inside(6) as six:
            job = job_of(field, six, "asynchronous", ranks=6, memory="96MiB", chunks=(1024, 128))
            within(job.run)
    assert came == {**dict.fromkeys(others, 5), 1: 5}, "all that is sent"


# ---------------------------------------------------------------------- workers that die


def dies_at(stage: int, dask_worker: Any) -> None:
    """Have a worker die when one of its ranks comes to a stage."""
    opened = RankRound._open

    def open_or_die(self: RankRound, now: int) -> None:
        if now == stage and self._worker is dask_worker:
            os.kill(os.getpid(), signal.SIGKILL)
        opened(self, now)

    RankRound._open = open_or_die  # type: ignore[method-assign]


STAGES = [
    (name, stage + 1) for name in ("pex", "gen", "rex", "lex") for stage in range(len(ooc.ranks.Schedule.of(name, 4)))
]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_a_worker_dies_in_a_step(two: Client, field: Path, name: str, stage: int) -> None:
    two.wait_for_workers(2, timeout=60)
    job = job_of(field, two, schedule=name)
    victim = job.placement[3]
    two.run(dies_at, stage, workers=[victim])
    np.testing.assert_array_equal(within(job.run), FIELD)
    assert [move.lost for move in job.moves] == [victim]
    again = job.meter.decoded_bytes - job.plan.traffic.decoded_bytes
    assert again <= job.plan.peak_bytes, "no more is read again than the worker held"
    assert sorted(path.name for path in field.parent.iterdir()) == ["field.zarr", "target.zarr"]


@pytest.mark.parametrize("verb", ["read", "write", "free"])
def test_a_worker_dies_before_and_after(two: Client, field: Path, verb: str) -> None:
    two.wait_for_workers(2, timeout=60)
    job = job_of(field, two)
    kill_when(two, job, job.placement[3], lambda: verb in job.meter.seconds)
    np.testing.assert_array_equal(within(job.run), FIELD)


def test_a_worker_pauses_and_another_comes(two: Client, field: Path) -> None:
    def pause(seconds: float, dask_worker: Any) -> None:
        dask_worker.status = Status.paused
        dask_worker.loop.call_later(seconds, lambda: setattr(dask_worker, "status", Status.running))

    two.wait_for_workers(2, timeout=60)
    job = job_of(field, two)
    two.run(pause, 0.5, workers=[job.placement[1]])
    two.cluster.scale(3)
    try:
        np.testing.assert_array_equal(within(job.run), FIELD)
        assert job.moves == []
    finally:
        two.cluster.scale(2)


def courses(dask_worker: Any) -> int:
    there = dask_worker.extensions.get(Exchanges.name)
    return len(there.courses) if there else 0


@pytest.mark.parametrize("how", ["run", "compute"])
def test_a_round_that_nobody_wants_ends(two: Client, tmp_path: Path, how: str) -> None:
    """One rank cannot read: the others wait for it no longer than until that is heard of."""
    make(tmp_path / "field.zarr", FIELD, chunks=(50, 768), compressors=None)
    chunk = tmp_path / "field.zarr/c/20/0"
    chunk.write_bytes(chunk.read_bytes()[:100])
    two.wait_for_workers(2, timeout=60)
    job = job_of(tmp_path / "field.zarr", two)
    with pytest.raises((CorruptChunkError, ooc.errors.OocError)):
        within(job.run if how == "run" else lambda: dask.compute(job))
    until(lambda: not any(two.run(courses).values()))


# ---------------------------------------------------------------------- memory


def test_every_worker_keeps_its_budget_with_many_ranks(two: Client, tmp_path: Path) -> None:
    data = np.random.default_rng(2).random((4096, 4096), dtype="f4")
    make(tmp_path / "field.zarr", data, chunks=(64, 4096))
    two.wait_for_workers(2, timeout=60)
    within(job_of(tmp_path / "field.zarr", two, ranks=32, chunks=(4096, 32)).run)
    job = job_of(tmp_path / "field.zarr", two, ranks=32, chunks=(4096, 32))
    for peak in most_held(two, lambda: np.testing.assert_array_equal(job.run(), data), 2**21):
        assert 2**21 < peak <= job.plan.peak_bytes


def test_it_is_stopped_from_outside(two: Client, field: Path) -> None:
    """A run that is taken away leaves nothing that waits."""
    two.wait_for_workers(2, timeout=60)
    job = job_of(field, two)

    def take_away() -> None:
        with suppress(CancelledError, RuntimeError):  # whoever waits for what is cancelled hears of it, too
            two.cancel([Future(key, two) for key in list(two.futures)], force=True)

    timer = threading.Timer(0.3, take_away)
    timer.start()
    with suppress(ooc.errors.OocError):
        within(job.run)
    timer.join()
    until(lambda: not any(two.run(courses).values()))
