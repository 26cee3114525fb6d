"""Which way to read for many ranks: each for itself, or some for all; who these are, and what they share out.

    independent    reads and decodes     for every rank all chunks that it touches
    two-phase      reads and decodes     each chunk once; then what is for others is sent
                   static, dynamic       more rounds where few domains hold all that is wanted
                   fewer aggregators     fewer messages and tasks, less at one time

The cheapest is taken that keeps the budget. del Rosario, Bordawekar and Choudhary 1993, section 3.2.3: fewer readers
may be faster; Thakur 1995, section 6.6.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from oocarrays.errors import BudgetError, InputError
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.selection import Axes
from oocarrays.plan.collective import AHEAD, BUFFER_BYTES, CollectivePlan, Method, Offer, independent, two_phase
from oocarrays.plan.cost import Costs, speed
from oocarrays.plan.domains import Partition
from oocarrays.plan.network import FlatCluster
from oocarrays.plan.prediction import cheapest, flat_constants, schedule_seconds
from oocarrays.plan.schedule import Schedule
from oocarrays.plan.wanted import AccessTable

Aggregators = str | int | Sequence[int]
"""How many ranks read for all, which, or "auto"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a collective read may use."""

    budget: int
    """Bytes that this process may hold, or each worker."""
    costs: Costs
    """What the machine takes."""
    workers: int
    """Workers that ranks are put on in turn; 0 for threads."""
    schedule: str
    """The order of messages by name, or "auto"."""
    under_way: int
    """Requests that a rank has under way at one time, to stores over a network."""
    buffer_bytes: int
    """Bytes that an aggregator reads in a round."""


def plan_collective(
    stored: Stored,
    requests: Sequence[Axes],
    *,
    method: str = "auto",
    partition: str = "auto",
    aggregators: Aggregators = "auto",
    schedule: str = "auto",
    buffer_bytes: int = BUFFER_BYTES,
    workers: int = 0,
    budget: int = 2**62,
    costs: Costs | None = None,
    under_way: int = 1,
) -> CollectivePlan:
    """Plan a collective read: as is asked for, or the cheapest that keeps the budget.

    Parameters
    ----------
    requests : sequence of axes
        What each rank wants.
    workers : int
        Workers that ranks are put on in turn; 0 for threads.
    budget : int
        Bytes that this process may hold, or each worker.
    under_way : int
        Requests that a rank has under way at one time, to stores over a network.

    Raises
    ------
    InputError
        For a method, partition or aggregators that there are not.
    BudgetError
        Where the parts and one chunk are too much.
    ScheduleError
        Where there is no such schedule, or it does not take so many ranks.

    Examples
    --------
    >>> from oocarrays.mapping.grid import ChunkGrid
    >>> from oocarrays.plan.wanted import requests_of
    >>> from oocarrays.mapping.layout import Layout
    >>> stored = Stored(grid=ChunkGrid.of((8, 8), (2, 8)), itemsize=4, local=True)
    >>> plan_collective(stored, requests_of(Layout.of((8, 8), "(block, *)", ranks=2)))
    <CollectivePlan independent: 4 chunks read by 2 ranks, each for itself>
    """
    means = Means(
        budget=budget,
        costs=costs or Costs(),
        workers=workers,
        schedule=schedule,
        under_way=under_way,
        buffer_bytes=buffer_bytes,
    )
    table = AccessTable(stored.grid, requests)
    plans = list(_plans(stored, table, _methods(method), _partitions(partition), aggregators, means))
    fitting = [plan for plan in plans if _price(plan).held_bytes <= budget]
    if not fitting:
        raise BudgetError(budget, min(_price(plan).held_bytes for plan in plans), "this collective read")
    chosen = min(fitting, key=lambda plan: _price(plan).seconds)
    offers = sorted((_price(plan) for plan in plans), key=lambda offer: offer.seconds)
    return _with(chosen, offers=tuple(offers))


def _with(plan: CollectivePlan, **changed: object) -> CollectivePlan:
    """The same plan, with what it has derived."""
    made = replace(plan, **changed)  # type: ignore[arg-type]
    made.__dict__["table"] = plan.table
    return made


def _price(plan: CollectivePlan) -> Offer:
    assert plan.price is not None, "every plan here has a price"
    return plan.price


def _methods(method: str) -> tuple[str, ...]:
    known = get_args(Method)
    if method not in ("auto", *known):
        raise InputError(f"method={method!r} is not one of 'auto', {', '.join(map(repr, known))}")
    return known if method == "auto" else (method,)


def _partitions(partition: str) -> tuple[Partition, ...]:
    known: tuple[Partition, ...] = get_args(Partition)
    if partition not in ("auto", *known):
        raise InputError(f"partition={partition!r} is not one of 'auto', {', '.join(map(repr, known))}")
    return known if partition == "auto" else (partition,)  # type: ignore[return-value]


def chosen_aggregators(asked: Aggregators, ranks: int) -> list[tuple[int, ...]]:
    """The sets of ranks that may read for all.

    >>> chosen_aggregators("auto", 4), chosen_aggregators(2, 4), chosen_aggregators([3], 4)
    ([(0, 1, 2, 3), (0, 2), (0,)], [(0, 2)], [(3,)])

    Raises
    ------
    InputError
        Where there are no such ranks.
    """
    if asked == "auto":
        return [_spread(n, ranks) for n in dict.fromkeys(ceil_div(ranks, 2**k) for k in range(ranks.bit_length()))]
    if isinstance(asked, int) and not isinstance(asked, bool) and 1 <= asked <= ranks:
        return [_spread(asked, ranks)]
    if _are_ranks(asked, ranks):
        return [tuple(asked)]  # type: ignore[arg-type]
    raise InputError(f"aggregators={asked!r} is not 'auto', a number from 1 to {ranks}, or distinct ranks below {ranks}")


def _are_ranks(asked: Aggregators, ranks: int) -> bool:
    if isinstance(asked, int | str) or not asked or len({*asked}) < len(asked):
        return False
    return all(isinstance(rank, int) and 0 <= rank < ranks for rank in asked)


def _spread(count: int, ranks: int) -> tuple[int, ...]:
    return tuple(i * ranks // count for i in range(count))


def _plans(
    stored: Stored,
    table: AccessTable,
    methods: Sequence[str],
    partitions: Sequence[Partition],
    aggregators: Aggregators,
    means: Means,
) -> Iterator[CollectivePlan]:
    """Every plan that is looked at, with its price: fewer aggregators than all with the first partition only."""
    if "independent" in methods:
        plan = independent(stored, table.requests, workers=means.workers)
        plan.__dict__["table"] = table
        yield _with(plan, price=_independent_offer(plan, means))
    if "two-phase" in methods:
        sets = chosen_aggregators(aggregators, len(table.requests))
        for number, some in enumerate(sets):
            for partition in partitions if number == 0 else partitions[:1]:
                yield _fitted(stored, table, some, partition, means)


def _fitted(
    stored: Stored, table: AccessTable, aggregators: Sequence[int], partition: Partition, means: Means
) -> CollectivePlan:
    """A plan whose buffers are as large as the budget allows."""
    buffer_bytes = means.buffer_bytes
    for _ in range(3):
        plan = two_phase(
            stored,
            table.requests,
            aggregators=aggregators,
            partition=partition,
            buffer_bytes=buffer_bytes,
            workers=means.workers,
            table=table,
        )
        plan = _with(plan, schedule=_schedule(plan, means) if means.workers else None)
        plan = _with(plan, price=_two_phase_offer(plan, means))
        over = _price(plan).held_bytes - means.budget
        if over <= 0:
            break
        buffer_bytes = max(plan.round_bytes - ceil_div(over, _copies(plan, means)), stored.itemsize)
    return plan


def _schedule(plan: CollectivePlan, means: Means) -> Schedule:
    """The order of the messages of every round."""
    if means.schedule.lower() != "auto":
        return Schedule.of(means.schedule, plan.ranks)
    sizes = plan.all_sizes.sum(axis=0) * plan.stored.itemsize
    np.fill_diagonal(sizes, 0)
    return cheapest(sizes, FlatCluster.of(plan.ranks), flat_constants(means.costs))


# ---------------------------------------------------------------------- what each holds


def _copies(plan: CollectivePlan, means: Means) -> int:
    """What is as large as a round that a process holds at one time: on threads what is read by tasks side by side, in a
    worker what its ranks have read and others not yet taken, and messages."""
    if not means.workers:
        return _lanes(plan, means)
    return ceil_div(plan.ranks, means.workers) * (min(AHEAD, max(len(plan.rounds), 1)) + 2)


def _lanes(plan: CollectivePlan, means: Means) -> int:
    """Tasks that read at one time in this process."""
    tasks = sum(bool(boxes) for each in plan.rounds for boxes in each) or plan.ranks
    return max(min(tasks, means.costs.cores), 1)


def _workspace(stored: Stored) -> int:
    """Bytes that reading needs beside what is read: a chunk, and what its codec needs."""
    return stored.chunk_bytes + stored.decode_workspace + stored.travel_bytes + stored.index_workspace


def _held(plan: CollectivePlan, means: Means) -> int:
    if not means.workers:
        return sum(plan.part_bytes) + _lanes(plan, means) * (plan.round_bytes + _workspace(plan.stored))
    here = ceil_div(plan.ranks, means.workers)
    parts = sum(sorted(plan.part_bytes)[-here:])
    return parts + _copies(plan, means) * plan.round_bytes + here * _workspace(plan.stored)


# ---------------------------------------------------------------------- what it takes


def _reading_seconds(stored: Stored, chunks: np.ndarray, nbytes: np.ndarray, costs: Costs) -> np.ndarray:
    """Processor's seconds of each reader: requests, decoding, and a copy of what is read."""
    request = costs.request_seconds if stored.local else costs.store_request_seconds
    decoding = stored.chunk_bytes / speed(costs.decode_bandwidth, stored.codec)
    return chunks * (costs.piece_seconds + request + decoding) + nbytes / costs.copy_bandwidth


def _device_seconds(plan: CollectivePlan, means: Means, read_bytes: float) -> float:
    """Seconds of the device, which gives a chunk once where the cache keeps it, or of the network, which does not."""
    stored, costs = plan.stored, means.costs
    if not stored.remote:
        distinct = stored.nbytes * costs.stored_ratio(stored)
        return min(read_bytes, distinct if distinct <= costs.cache_bytes else math.inf) / costs.read_bandwidth
    waits = max(ceil_div(chunks, means.under_way) for chunks in plan.chunks_read)
    return waits * costs.remote_request_seconds + read_bytes / costs.remote_bandwidth


def _at_once(each: np.ndarray, costs: Costs) -> float:
    """Seconds by the clock of work that ranks do side by side on the processors that there are."""
    return max(float(each.max(initial=0)), float(each.sum()) / costs.cores)


def _independent_offer(plan: CollectivePlan, means: Means) -> Offer:
    stored, costs = plan.stored, means.costs
    chunks, parts = np.array(plan.chunks_read, np.int64), np.array(plan.part_bytes, np.int64)
    read = chunks * stored.chunk_bytes if stored.coded else np.minimum(parts, chunks * stored.chunk_bytes)
    own = _reading_seconds(stored, chunks, parts, costs) + parts / costs.touch_bandwidth
    overhead = costs.graph_seconds if means.workers else plan.ranks * costs.task_seconds
    here = ceil_div(plan.ranks, means.workers) if means.workers else plan.ranks
    lanes = here if means.workers else min(plan.ranks, costs.cores)
    return Offer(
        method="independent",
        partition=None,
        aggregators=len(plan.aggregators),
        rounds=1,
        read_requests=int(chunks.sum()),
        read_bytes=int(read.sum() * costs.stored_ratio(stored)),
        decoded_bytes=int(chunks.sum()) * stored.chunk_bytes if stored.coded else 0,
        messages=0,
        exchanged_bytes=0,
        held_bytes=sum(sorted(plan.part_bytes)[-here:]) + lanes * _workspace(stored),
        seconds=max(_at_once(own, costs), _device_seconds(plan, means, float(read.sum()))) + overhead,
    )


def _two_phase_offer(plan: CollectivePlan, means: Means) -> Offer:
    stored, costs = plan.stored, means.costs
    chunks, parts = np.array(plan.chunks_read, np.int64), np.array(plan.part_bytes, np.int64)
    wanted = plan.read_sizes.sum(axis=0) * stored.itemsize
    read = chunks * stored.chunk_bytes if stored.coded else wanted
    own = _reading_seconds(stored, chunks, wanted, costs)
    touched = parts / costs.copy_bandwidth + parts / costs.touch_bandwidth
    if means.workers:
        exchange = _exchange_seconds(plan, costs) + costs.graph_seconds
        processor = _at_once(own, costs) + _at_once(touched, costs)
    else:
        tasks = sum(bool(boxes) for each in plan.rounds for boxes in each)
        exchange = (tasks + 2 * plan.ranks) * costs.task_seconds
        processor = float(own.sum() + touched.sum()) / max(min(costs.cores, tasks), 1)
    return Offer(
        method="two-phase",
        partition=plan.partition,
        aggregators=len(plan.aggregators),
        rounds=len(plan.rounds),
        read_requests=int(chunks.sum()),
        read_bytes=int(read.sum() * costs.stored_ratio(stored)),
        decoded_bytes=int(chunks.sum()) * stored.chunk_bytes if stored.coded else 0,
        messages=plan.messages,
        exchanged_bytes=plan.exchanged_bytes,
        held_bytes=_held(plan, means),
        seconds=max(processor, _device_seconds(plan, means, float(read.sum()))) + exchange,
    )


def _exchange_seconds(plan: CollectivePlan, costs: Costs) -> float:
    """Seconds of all rounds: as of one exchange of all, and what every step more begins with."""
    assert plan.schedule is not None, "workers send messages"
    sizes = plan.all_sizes.sum(axis=0) * plan.stored.itemsize
    np.fill_diagonal(sizes, 0)
    constants = flat_constants(costs)
    whole = schedule_seconds(plan.schedule, sizes, FlatCluster.of(plan.schedule.ranks), constants)
    return whole + max(len(plan.rounds) - 1, 0) * len(plan.schedule) * constants[0].startup
