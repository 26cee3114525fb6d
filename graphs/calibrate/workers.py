"""Measured seconds of a small task and of a message on a live cluster, with all its workers busy at once.

    chain of each worker    link → link → link → …

    step of an exchange     make on i ──message──► take on its partner      next make on i
                            take on i ("I have received")               ──►  waits for both
                            take on its partner ("mine was taken")      ──►

Every task is pinned strictly, and checks its worker. As in a run, a message is a dependency between two pinned tasks,
one partner a step. A step of n bytes takes α + n·β seconds (Thakur 1995, section 4.2), and two sizes determine both.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.task_spec import Task, TaskRef

from oocarrays.errors import InputError, RunError
from oocarrays.graphs.calibrate.exchange import TIMEOUT_SECONDS, await_all, calibrate_exchange
from oocarrays.graphs.cluster.pins import pin
from oocarrays.graphs.cluster.placement import TOGETHER, cores_of, known_workers, workers_of
from oocarrays.graphs.events import this_worker
from oocarrays.graphs.exchange.between import Exchanges
from oocarrays.graphs.exchange.messages import Exchange, Round
from oocarrays.graphs.exchange.whole import whole_round
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Outbox, Program
from oocarrays.graphs.run.run import Run, barrier
from oocarrays.mapping.layouts.local import spread
from oocarrays.plan.cost import PAGE_BYTES, crowding
from oocarrays.plan.exchange.schedule import Schedule, complete_exchange
from oocarrays.storage.local.pages import allocate

if TYPE_CHECKING:  # its import takes longer than most commands
    from distributed import Client, Future

LINKS = 50
"""Tasks in the chain of each worker."""
STEPS = 9
"""Steps of an exchange; the first opens connections, and is not timed."""
SMALL_BYTES, LARGE_BYTES = 4096, 8 * 2**20
NOISE = 0.1
"""Share of a step below which the difference of two measurements is noise."""

Key = tuple[str, int, int]
"""Name, rank and number; a task is pinned to the worker of its rank."""
Graph = dict[Key, Task]


def calibrate_workers(client: Client) -> dict[str, Any]:
    """Measure the constants that a plan for workers needs on a live cluster; rank r is the r-th worker by address."""
    workers = sorted(known_workers(client))
    if not workers:
        raise InputError(f"the scheduler at {client.scheduler.address} has no workers")  # type: ignore[union-attr]
    cores = cores_of(workers_of(client))
    crowd = crowding(len(workers), cores)
    measured: dict[str, Any] = {"worker_task_seconds": _least(lambda: _task_seconds(client, workers)) / crowd}
    measured["scheduler_seconds"] = _least(lambda: _scheduler_seconds(client, workers))
    if len(workers) > 1:
        small = _least(lambda: _step_seconds(client, workers, SMALL_BYTES))
        large = _least(lambda: _step_seconds(client, workers, LARGE_BYTES))
        measured["message_seconds"], measured["message_bandwidth"] = fit(small / crowd, large / crowd)
        measured["step_seconds"] = whole_step_seconds(client, workers, cores)
        measured |= calibrate_exchange(client, workers)
    return measured


def fit(small: float, large: float) -> tuple[float, float]:
    """Return α in seconds and 1/β in bytes a second, from the seconds of steps of ``SMALL_BYTES`` and ``LARGE_BYTES``.

    α is at least zero. The bytes of the large step take at least the share ``NOISE`` of its time, so that noise cannot
    make β zero or negative.
    """
    byte_seconds = max(large - small, NOISE * large) / (LARGE_BYTES - SMALL_BYTES)
    return max(small - SMALL_BYTES * byte_seconds, 0.0), 1 / byte_seconds


def _least(measure: Callable[[], float], times: int = 3) -> float:
    return min(measure() for _ in range(times))


def _task_seconds(client: Client, workers: list[str]) -> float:
    """Return the wall seconds of a task in a chain, with one chain per worker."""
    graph, name = _chains(workers)
    start = time.perf_counter()
    _run(client, workers, graph, [(name, rank, LINKS - 1) for rank in range(len(workers))])
    return (time.perf_counter() - start) / LINKS


def _scheduler_seconds(client: Client, workers: list[str]) -> float:
    """Return the processor seconds that the scheduler's event loop spends on a task."""
    graph, name = _chains(workers)
    before = client.run_on_scheduler(time.thread_time)  # type: ignore[no-untyped-call]
    _run(client, workers, graph, [(name, rank, LINKS - 1) for rank in range(len(workers))])
    after = client.run_on_scheduler(time.thread_time)  # type: ignore[no-untyped-call]
    return max(float(after - before), 1e-6) / len(graph)


def _chains(workers: list[str]) -> tuple[Graph, str]:
    name = f"calibrate-link-{uuid.uuid4().hex}"
    graph: Graph = {}
    for rank, address in enumerate(workers):
        for number in range(LINKS):
            before = [TaskRef((name, rank, number - 1))] if number else []
            graph[name, rank, number] = Task((name, rank, number), _link, address, *before)
    return graph, name


def _step_seconds(client: Client, workers: list[str], nbytes: int) -> float:
    """Return the seconds of a step of the slowest rank, each by the clock of its worker."""
    graph, take = _exchange(workers, nbytes)
    ranks = range(len(workers))
    times = _run(client, workers, graph, [(take, rank, step) for step in (0, STEPS - 1) for rank in ranks])
    first, last = times[: len(workers)], times[len(workers) :]
    return max(end - start for start, end in zip(first, last, strict=True)) / (STEPS - 1)


def _exchange(workers: list[str], nbytes: int) -> tuple[Graph, str]:
    make, take = (f"calibrate-{verb}-{uuid.uuid4().hex}" for verb in ("make", "take"))
    graph: Graph = {}
    before: list[list[TaskRef]] = [[] for _ in workers]
    for number, step in enumerate(_steps(len(workers))):
        for rank, partner in enumerate(step):
            message, taken = (make, rank, number), (take, partner, number)
            graph[message] = Task(message, _make, workers[rank], nbytes, *before[rank])
            graph[taken] = Task(taken, _take, workers[partner], TaskRef(message))
        before = [[TaskRef((take, r, number)) for r in (rank, partner)] for rank, partner in enumerate(step)]
    return graph, take


def _steps(ranks: int) -> list[list[int]]:
    """Return the receiver of each rank in each of ``STEPS`` steps, spread over those of the complete exchange."""
    schedule = complete_exchange(ranks)
    return [schedule.step(number * (ranks - 1) // STEPS).destinations.tolist() for number in range(STEPS)]


# ---------------------------------------------------------------------- on the cluster


def _run(client: Client, workers: list[str], graph: Graph, wanted: list[Key]) -> list[float]:
    """Run tasks, each on the worker of its rank, and return the wanted results; remove everything from the cluster."""
    name = wanted[0][0]
    layer = MaterializedLayer(graph, annotations={"workers": partial(_pins, workers), "allow_other_workers": False})
    pinned = HighLevelGraph({name: layer}, {name: set()})
    futures: list[Future] = client.get(pinned, wanted, sync=False)  # type: ignore[no-untyped-call]
    try:
        return _gathered(client, futures)
    finally:
        for future in futures:
            future.release()  # type: ignore[no-untyped-call]


def _gathered(client: Client, futures: list[Future]) -> list[float]:
    await_all(futures, "small tasks", TIMEOUT_SECONDS)
    times: list[float] = client.gather(futures)  # type: ignore[no-untyped-call]
    return times


def _pins(workers: list[str], key: Key) -> list[str]:
    return [workers[key[1]]]


def _link(address: str, *before: float) -> float:
    return _time_on(address)


def _make(address: str, nbytes: int, *before: float) -> np.ndarray:
    """Return a message with every page allocated."""
    _time_on(address)
    message = allocate(nbytes)
    message[::PAGE_BYTES] = 1
    return message


def _take(address: str, message: np.ndarray) -> float:
    message[::PAGE_BYTES].sum()
    return _time_on(address)


def _time_on(address: str) -> float:
    """Return the clock of this process, after checking that it is the worker at ``address``."""
    from distributed import get_worker

    here = get_worker().address
    if here != address:
        raise RunError(f"a task pinned to the worker {address} ran on {here}")
    return time.perf_counter()


# ---------------------------------------------------------------------- rounds of one task per rank


def _check(live: Live[SmallRound], round: Round, rank: int, there: Any, came: dict[int, np.ndarray | None]) -> None:
    assert all(part is None or len(part) == live.program.nbytes for part in came.values())


@dataclass(frozen=True, kw_only=True)
class SmallRound(Program):
    """Round in which every rank has a few bytes for every other rank."""

    exchange: ClassVar[Exchange] = Exchange(order=lambda live, round: live.program.plan, unpack=_check)
    plan: Schedule
    nbytes: int = 64

    @property
    def whole(self) -> bool:
        return True

    @property
    def processes(self) -> int:
        return self.plan.ranks


def read(live: Live[SmallRound], rank: int) -> Outbox:
    """Make the messages of a rank, and register them for the other ranks."""
    worker, program = this_worker(), live.program
    assert worker is not None, "ranks are workers"
    outbox = Outbox([np.zeros(program.nbytes, "u1") for _ in range(program.plan.ranks)], None)
    Exchanges.of(worker).hold(live, (), rank, outbox)
    return outbox


def whole_step_seconds(client: Client, workers: Sequence[str], cores: int) -> float:
    """Measure a step of a round handled by one task per rank, on an idle cluster of two or more workers.

    Rounds with steps are compared with as many tasks without: by eight ranks, or one rank a worker. The result is
    scaled to at most two ranks for each of the ``cores``. Thakur 1995, section 4.2: a step costs its start-up time,
    however small its messages.
    """
    ranks = max(8, len(workers))
    with_steps, without = (  # the first of four opens connections
        min(_round_seconds(client, workers, ranks, whole=whole) for _ in range(4)) for whole in (True, False)
    )
    return max(with_steps - without, 1e-4) / (ranks - 1) / crowding(ranks, cores)


def _round_seconds(client: Client, workers: Sequence[str], ranks: int, *, whole: bool) -> float:
    homes = spread(ranks, workers)
    run = Run(SmallRound(plan=complete_exchange(ranks)))
    builder = run.builder(homes, suffix=run.id)
    builder.share("exchange")
    made = [builder.add(read, rank) for rank in range(ranks)]
    if whole:
        ends = [builder.add_whole(whole_round, TOGETHER, rank, held=made[rank], after=made) for rank in range(ranks)]
    else:
        ends = [builder.add(barrier, rank, name="alone", buffers=(made[rank],), after=made) for rank in range(ranks)]
    pin(client, run.id, homes, run.topic)
    start = time.perf_counter()
    futures: list[Any] = client.get(builder.graph, ends, sync=False)  # type: ignore[no-untyped-call]
    await_all(futures, "a round of small messages", TIMEOUT_SECONDS)
    for future in futures:
        future.result()
    return time.perf_counter() - start
