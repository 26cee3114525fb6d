"""Measured seconds of a small task and of a message on a live cluster, with all its workers busy at once.

    chain of each worker    link → link → link → …

    round of each rank      step → step → step → …        beside as many tasks without messages

Every task is pinned strictly, and checks its worker. A round is that of a run: one partner a step, which has received
and whose message was taken before the next one. A step of n bytes takes α + n·β seconds (Thakur 1995, section 4.2), and
two sizes determine both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from dask.task_spec import Task, TaskRef

from oocarrays.errors import InputError, RunError
from oocarrays.graphs.calibrate.exchange import calibrate_exchange, finished, message_sizes
from oocarrays.graphs.cluster.placement import TOGETHER, cores_of, known_workers, workers_of
from oocarrays.graphs.events import this_worker
from oocarrays.graphs.exchange.between import Exchanges
from oocarrays.graphs.exchange.messages import Exchange, Round
from oocarrays.graphs.exchange.whole import whole_round
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Outbox, Program, new_suffix
from oocarrays.graphs.run.run import Run, barrier
from oocarrays.graphs.run.steps import Key
from oocarrays.mapping.layouts.local import spread
from oocarrays.plan.cost import PAGE_BYTES, crowding
from oocarrays.plan.exchange.schedule import Schedule, complete_exchange

if TYPE_CHECKING:  # its import takes longer than most commands
    from distributed import Client

LINKS = 50
"""Tasks in the chain of each worker."""
SMALL_BYTES = 64
NOISE = 0.1
"""Share of a round below which the difference of two measurements is noise."""


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
        measured["step_seconds"], measured["message_bandwidth"] = step_of_rounds(client, workers, cores)
        measured["message_seconds"] = measured["step_seconds"] + 2 * measured["worker_task_seconds"]
        measured |= calibrate_exchange(client, workers)
    return measured


def _least(measure: Callable[[], float], times: int = 3) -> float:
    return min(measure() for _ in range(times))


def _task_seconds(client: Client, workers: list[str]) -> float:
    """Return the wall seconds of a task in a chain, with one chain per worker."""
    start = time.perf_counter()
    _chains(client, workers)
    return (time.perf_counter() - start) / LINKS


def _scheduler_seconds(client: Client, workers: list[str]) -> float:
    """Return the processor seconds that the scheduler's event loop spends on a task."""
    before = client.run_on_scheduler(time.thread_time)  # type: ignore[no-untyped-call]
    _chains(client, workers)
    after = client.run_on_scheduler(time.thread_time)  # type: ignore[no-untyped-call]
    return max(float(after - before), 1e-6) / (LINKS * len(workers))


def _chains(client: Client, workers: list[str]) -> None:
    """Run a chain of small tasks on each worker."""
    suffix, graph = new_suffix(), dict[Key, Task]()
    for rank, address in enumerate(workers):
        for number in range(LINKS):
            key = f"link-{suffix}", number, rank
            graph[key] = Task(key, _link, address, *([TaskRef((key[0], number - 1, rank))] if number else []))
    ends = [(f"link-{suffix}", LINKS - 1, rank) for rank in range(len(workers))]
    finished(client, graph, ends, {suffix: workers}, "small tasks")


def _link(address: str, *before: None) -> None:
    """Check that this process is the worker at ``address``."""
    from distributed import get_worker

    here = get_worker().address
    if here != address:
        raise RunError(f"a task pinned to the worker {address} ran on {here}")


# ---------------------------------------------------------------------- rounds of one task per rank


def _check(live: Live[MeasuredRound], round: Round, rank: int, there: Any, came: dict[int, np.ndarray | None]) -> None:
    """Read a byte of each page of the received messages, and discard them."""
    for part in came.values():
        assert part is not None, "every rank has a message for every other"
        part[::PAGE_BYTES].sum()


@dataclass(frozen=True, kw_only=True)
class MeasuredRound(Program):
    """Round in which every rank has some bytes for every other rank."""

    exchange: ClassVar[Exchange] = Exchange(order=lambda live, round: live.program.plan, unpack=_check)
    plan: Schedule
    nbytes: int

    @property
    def whole(self) -> bool:
        return True

    @property
    def processes(self) -> int:
        return self.plan.ranks


def read(live: Live[MeasuredRound], rank: int) -> Outbox:
    """Make the messages of a rank, and register them for the other ranks."""
    worker, program = this_worker(), live.program
    assert worker is not None, "ranks are workers"
    buffer = live.rooms.take(program.plan.ranks * program.nbytes)
    buffer[:] = 1
    outbox = Outbox(np.split(buffer, program.plan.ranks), buffer)
    Exchanges.of(worker).hold(live, (), rank, outbox)
    return outbox


def step_of_rounds(client: Client, workers: Sequence[str], cores: int) -> tuple[float, float]:
    """Measure a step of a round, and the bytes a second of its messages, on an idle cluster of two or more workers.

    Rounds are compared with as many tasks without messages: small ones by eight ranks, or one rank a worker, and large
    ones by one rank for each of up to eight workers. The results are scaled to at most two ranks for each of the
    ``cores``. The bytes of large messages take at least the share ``NOISE`` of a round, so that noise cannot make the
    bandwidth negative. Thakur 1995, section 4.2: a step costs its start-up time, however small its messages.
    """
    ranks, some = max(8, len(workers)), workers[:: -(-len(workers) // 8)]
    step = max(_steps_seconds(client, workers, ranks, SMALL_BYTES) / (ranks - 1), 1e-4) / crowding(ranks, cores)
    nbytes, many = message_sizes(workers_of(client, some))[0], len(some)
    large = _steps_seconds(client, some, many, nbytes) / crowding(many, cores)
    return step, (many - 1) * nbytes / max(large - (many - 1) * step, NOISE * large, 1e-9)


def _steps_seconds(client: Client, workers: Sequence[str], ranks: int, nbytes: int) -> float:
    """Return the seconds of all steps of a round, without those of its other tasks."""
    with_steps, without = (  # the first of four opens connections
        min(_round_seconds(client, workers, ranks, nbytes, whole=whole) for _ in range(4)) for whole in (True, False)
    )
    return with_steps - without


def _round_seconds(client: Client, workers: Sequence[str], ranks: int, nbytes: int, *, whole: bool) -> float:
    homes = spread(ranks, workers)
    run = Run(MeasuredRound(plan=complete_exchange(ranks), nbytes=nbytes))
    builder = run.builder(homes, suffix=run.id)
    builder.share("exchange")
    made = [builder.add(read, rank) for rank in range(ranks)]
    if whole:
        ends = [builder.add_whole(whole_round, TOGETHER, rank, held=made[rank], after=made) for rank in range(ranks)]
    else:
        ends = [builder.add(barrier, rank, name="alone", buffers=(made[rank],), after=made) for rank in range(ranks)]
    start = time.perf_counter()
    finished(client, builder.graph, ends, {run.id: homes}, "a round of messages")
    return time.perf_counter() - start
