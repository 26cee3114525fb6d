"""Measured constants of a live cluster: a small task, messages of rounds, and exchanges, all workers busy at once.

    chain of each worker    link → link → link → …

    round of each rank      step → step → step → …        beside as many tasks without messages

Every task is pinned strictly, and checks its worker. A round is that of a run: one partner a step, which has received
and whose message was taken before the next one. A step of n bytes takes α + n·β seconds (Thakur 1995, section 4.2), and
two sizes determine both.

The constants of the network are fitted to measured redistributions.

    rows, one slab a worker  ─► columns, one slab a worker         a message is SIZES bytes
    by PEX-GEN   two ranks send to each other        β_ex
    by GEN       a rank serves two others            β_sr
    by LEX       many send to one                    β_sat
    by REX       forwarded data is copied            (powers of two)

They are real redistributions, packed, sent and unpacked. The time of an empty graph, and of each rank's own copy, is
subtracted first. Thakur 1995, section 4.3.8.

seconds = steps · α  +  tasks · τ  +  exchanged · β_ex  +  passed on · β_sr  +  sent · β_s
                                       +  on shared links · β_sat  +  packed again · a copy        (all in bytes)

A step counts with its largest message, under that message's kind. If its busiest link carries more than that (many send
to one, as in LEX), it counts with the bytes on the link. A constant that no exchange contains, or none independently of
the others, keeps its known value.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from dask.task_spec import Task, TaskRef

from oocarrays.errors import InputError, RunError
from oocarrays.graphs.calibrate.machine import seconds_of
from oocarrays.graphs.cluster.pins import pin
from oocarrays.graphs.cluster.placement import TOGETHER, Worker, cores_of, known_workers, workers_of
from oocarrays.graphs.events import this_worker
from oocarrays.graphs.exchange import messages
from oocarrays.graphs.exchange.between import Exchanges
from oocarrays.graphs.exchange.whole import whole_round
from oocarrays.graphs.layouts.parts import Parts
from oocarrays.graphs.layouts.redistribution import exchanged
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Outbox, Program, new_suffix
from oocarrays.graphs.run.run import Run, barrier
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.settings import costs
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.plan.cost import PAGE_BYTES, crowding
from oocarrays.plan.exchange.network import FlatCluster, Network, busiest
from oocarrays.plan.exchange.ordering import Exchange
from oocarrays.plan.exchange.prediction import Constants, flat_constants, message_kinds
from oocarrays.plan.exchange.schedule import Schedule, complete_exchange, schedules
from oocarrays.plan.layouts.assembly import Messaging, crowded_seconds
from oocarrays.plan.layouts.transfer import Transfer
from oocarrays.plan.machine import spread

if TYPE_CHECKING:  # its import takes longer than most commands
    from distributed import Client

LINKS = 50
"""Tasks in the chain of each worker."""
NOISE = 0.1
"""Share of a round below which the difference of two measurements is noise."""
SIZES = (2**24, 2**21, 2**12)
"""Maximum bytes of a message, the largest first: first use of memory is slow."""
TIMEOUT_SECONDS = 60
"""Seconds after which an exchange expected to take less than one second is abandoned."""


def calibrate_workers(client: Client) -> dict[str, Any]:
    """Measure the constants that a plan for workers needs on a live cluster; rank r is the r-th worker by address."""
    workers = sorted(known_workers(client))
    if not workers:
        raise InputError(f"the scheduler at {client.scheduler.address} has no workers")  # type: ignore[union-attr]
    cores = cores_of(workers_of(client))
    crowd = crowding(len(workers), cores)
    took = min(seconds_of(_chains(client, workers)) for _ in range(3)) / LINKS
    measured: dict[str, Any] = {"worker_task_seconds": took / crowd}
    measured["scheduler_seconds"] = min(_scheduler_seconds(client, workers) for _ in range(3))
    if len(workers) > 1:
        measured["step_seconds"], measured["message_bandwidth"] = step_of_rounds(client, workers, cores)
        measured["message_seconds"] = measured["step_seconds"] + 2 * measured["worker_task_seconds"]
        measured |= calibrate_exchange(client, workers)
    return measured


def _scheduler_seconds(client: Client, workers: list[str]) -> float:
    """Return the processor seconds that the scheduler's event loop spends on a task."""
    run = _chains(client, workers)
    before = client.run_on_scheduler(time.thread_time)  # type: ignore[no-untyped-call]
    run()
    after = client.run_on_scheduler(time.thread_time)  # type: ignore[no-untyped-call]
    return max(float(after - before), 1e-6) / (LINKS * len(workers))


def _chains(client: Client, workers: list[str]) -> Callable[[], object]:
    """Return a function that runs a chain of small tasks on each worker, which are pinned already."""
    suffix, graph = new_suffix(), dict[Key, Task]()
    for rank, address in enumerate(workers):
        for number in range(LINKS):
            key = f"link-{suffix}", number, rank
            graph[key] = Task(key, _link, address, *([TaskRef((key[0], number - 1, rank))] if number else []))
    ends = [(f"link-{suffix}", LINKS - 1, rank) for rank in range(len(workers))]
    pin_all(client, {suffix: workers})
    return lambda: finished(client, graph, ends, {}, "small tasks")


def _link(address: str, *before: None) -> None:
    """Check that this process is the worker at ``address``."""
    from distributed import get_worker

    here = get_worker().address
    if here != address:
        raise RunError(f"a task pinned to the worker {address} ran on {here}")


# ---------------------------------------------------------------------- rounds of one task per rank


def _check(
    live: Live[MeasuredRound], round: messages.Round, rank: int, there: Any, came: dict[int, np.ndarray | None]
) -> None:
    """Read a byte of each page of the received messages, and discard them."""
    for part in came.values():
        assert part is not None, "every rank has a message for every other"
        part[::PAGE_BYTES].sum()


@dataclass(frozen=True, kw_only=True)
class MeasuredRound(Program):
    """Round in which every rank has some bytes for every other rank."""

    exchange: ClassVar[messages.Exchange] = messages.Exchange(
        order=lambda live, round: live.program.plan, unpack=_check
    )
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
    outbox = Outbox([*np.split(buffer, program.plan.ranks)], buffer)
    Exchanges.of(worker).hold(live, (), rank, outbox)
    return outbox


def step_of_rounds(client: Client, workers: Sequence[str], cores: int) -> tuple[float, float]:
    """Measure a step of a round, and the bytes a second of its messages, on an idle cluster of two or more workers.

    Rounds are compared with as many tasks without messages: small ones by eight ranks, or one rank a worker, and large
    ones by one rank for each of up to eight workers. The results are scaled to at most two ranks for each of the
    ``cores``. Steps take at least the share ``NOISE`` of a round, and bytes that share of its steps, despite noise.
    Thakur 1995, section 4.2: a step costs its start-up time, however small its messages.
    """
    ranks, some = max(8, len(workers)), workers[:: -(-len(workers) // 8)]
    step = _steps_seconds(client, workers, ranks, nbytes=64) / (ranks - 1) / crowding(ranks, cores)
    nbytes, many = message_sizes(workers_of(client, some))[0], len(some)
    large = _steps_seconds(client, some, many, nbytes) / crowding(many, cores)
    return step, (many - 1) * nbytes / max(large - (many - 1) * step, NOISE * large)


def _steps_seconds(client: Client, workers: Sequence[str], ranks: int, nbytes: int) -> float:
    """Return the seconds of all steps of a round, without those of its other tasks."""
    took = [  # the first of four opens connections
        [_round_seconds(client, workers, ranks, nbytes, whole=whole) for whole in (True, False)] for _ in range(4)
    ]
    with_steps, without = (min(seconds) for seconds in zip(*took, strict=True))
    return max(with_steps - without, NOISE * with_steps)


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
    return seconds_of(lambda: finished(client, builder.graph, ends, {run.id: homes}, "a round of messages"))


# ---------------------------------------------------------------------- exchanges


NAMES = ("startup", "exchange", "send_receive", "single", "saturated", "forward", "task")


def parts(exchange: Exchange, network: Network) -> np.ndarray:
    """Return the terms of an exchange, one for each of ``NAMES``: steps, successive bytes of each kind, tasks."""
    found = np.zeros(len(NAMES))
    for turn in exchange:
        sources, sizes = turn.step.senders, turn.sizes
        largest = int(sizes.argmax())  # type: ignore[call-overload]
        link = busiest(network, sources, turn.step.destinations[sources], sizes)
        found[[0, 5, 6]] += 1, turn.forwards * sizes[largest], turn.tasks
        if link > sizes[largest]:
            found[4] += link
        else:
            found[1 + int(message_kinds(turn.step)[largest])] += sizes[largest]
    return found


def fitted(measured: Iterable[tuple[Exchange, float]], network: Network, known: Constants) -> Constants:
    """Fit the non-negative constants of a network to the measured seconds of exchanges."""
    exchanges, seconds = zip(*measured, strict=True)
    table = np.array([parts(exchange, network) for exchange in exchanges]) / np.array(seconds)[:, None]
    told = chosen = _independent(table)
    while len(chosen):
        scale = table[:, chosen].max(axis=0)
        values = np.linalg.lstsq(table[:, chosen] / scale, np.ones(len(table)), rcond=None)[0] / scale
        if (values >= 0).all():
            none = dict.fromkeys((NAMES[column] for column in told), 0.0)
            found = {NAMES[column]: float(value) for column, value in zip(chosen, values, strict=True)}
            return replace(known, **none | found)  # type: ignore[arg-type]
        chosen = np.delete(chosen, values.argmin())
    return known


def _independent(table: np.ndarray) -> np.ndarray:
    """Return the columns that are linearly independent of those before them."""
    chosen: list[int] = []
    for column in np.flatnonzero(table.any(axis=0)).tolist():
        scaled = table[:, [*chosen, column]] / table[:, [*chosen, column]].max(axis=0)
        if np.linalg.matrix_rank(scaled, tol=1e-6) > len(chosen):
            chosen.append(column)
    return np.array(chosen, int)


def calibrate_exchange(client: Client, workers: Sequence[str]) -> dict[str, Any]:
    workers = workers[:: -(-len(workers) // 8)]  # more add no information, and messages grow as their square
    ranks, sizes = len(workers), message_sizes(workers_of(client, workers))
    known = replace(costs(), graph_seconds=min(_seconds(client, _slabs(_rows(ranks, 1), workers)) for _ in range(4)))
    measured = []
    for nbytes in sizes:
        rows = _rows(ranks, nbytes)
        slabs = _there(client, _slabs(rows, workers))
        transfer = Transfer(rows, Layout.of(rows.shape, "(*, block)", ranks=ranks))
        own = known.graph_seconds + crowded_seconds(transfer, 1, known)
        for schedule in schedules(ranks, names=("PEX-GEN", "GEN", "LEX", "REX")):
            messaging = Messaging(schedules=(schedule,), assembly="synchronous", ordered=True)
            took = [_seconds(client, exchanged(slabs, transfer, schedule, messaging, workers)) for _ in range(3)]
            seconds = median(took[1:])  # the first is slower
            measured.append((Exchange.of(schedule, transfer.sizes()), max(seconds - own, seconds / 10)))
    constants = asdict(fitted(measured, FlatCluster.of(ranks), flat_constants(known)[0]))
    del constants["from_bytes"]
    return {"graph_seconds": known.graph_seconds, "exchange": constants}


def message_sizes(workers: Sequence[Worker]) -> list[int]:
    """Return the message sizes to try: an array of at most 256 MiB on a machine, an eighth of a worker's memory limit.

    A worker also holds sent, received and forwarded data.
    """
    most = 2**28
    ranks, (_, fullest) = len(workers), Counter(worker.host for worker in workers).most_common(1)[0]
    each = min(most // fullest, *(worker.memory_limit // 8 or most for worker in workers))
    return [max(min(size, each // ranks // 8**number), 1) for number, size in enumerate(SIZES)]


def _rows(ranks: int, nbytes: int) -> Layout:
    """Return the layout of a byte array in rows; each rank has about ``nbytes`` of every other rank's columns."""
    rows = 64
    return Layout.of((ranks * rows, ranks * max(nbytes // rows, 1)), "(block, *)", ranks=ranks)


def _slabs(layout: Layout, workers: Sequence[str]) -> Parts:
    def make(key: Key) -> Task:
        return Task(key, _ones, layout.local_shape(key[-1]))

    return Parts.made(make, layout.ranks, np.dtype("u1"), workers, verb="slab")


def _ones(shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape, "u1")


def _there(client: Client, parts: Parts) -> Parts:
    """Return the parts, computed and held in memory."""
    futures = _futures(client, parts)
    return Parts.of(dict(zip(parts.keys, futures, strict=True)), parts.keys, parts.dtype, {})


def _seconds(client: Client, parts: Parts) -> float:
    return seconds_of(lambda: _futures(client, parts))


def _futures(client: Client, parts: Parts) -> list[Any]:
    return finished(client, parts.graph, parts.keys, parts.homes, "an exchange")


def pin_all(client: Client, homes: Mapping[str, Sequence[str]]) -> None:
    for suffix, addresses in homes.items():
        pin(client, suffix, addresses, f"oocarrays-{suffix}")


def finished(
    client: Client, graph: Any, keys: Iterable[Key], homes: Mapping[str, Sequence[str]], what: str
) -> list[Any]:
    """Compute tasks, each on the worker of its rank by the suffix in its key; return the futures of some, all done."""
    from distributed import wait

    pin_all(client, homes)
    futures: list[Any] = client.get(graph, list(keys), sync=False)  # type: ignore[no-untyped-call]
    try:
        wait(futures, timeout=TIMEOUT_SECONDS)  # type: ignore[no-untyped-call]
        for future in futures:
            if future.status == "error":  # results of finished ones are large
                future.result()
    except BaseException as error:
        for future in futures:
            future.release()
        if isinstance(error, TimeoutError):
            lost = f"the cluster did not finish {what} within {TIMEOUT_SECONDS} s: a worker may be lost"
            raise RunError(lost) from None
        raise
    return futures
