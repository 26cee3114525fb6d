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
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, get_args

import numpy as np

from oocarrays.errors import BudgetError, InputError
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken
from oocarrays.plan.collective import AHEAD, BUFFER_BYTES, CollectivePlan, Method, Offer, independent, two_phase
from oocarrays.plan.cost import Costs, speed
from oocarrays.plan.domains import Deal, DiskOf, Partition, spaced
from oocarrays.plan.exchange import Exchange
from oocarrays.plan.network import FlatCluster
from oocarrays.plan.prediction import cheapest, flat_constants, schedule_seconds
from oocarrays.plan.schedule import Schedule
from oocarrays.plan.sections import BUFFER_BYTES as SECTION_BYTES
from oocarrays.plan.sections import IN_FLIGHT, STORE_BUFFER_BYTES, SectionPlan, gap_bytes
from oocarrays.plan.wanted import AccessTable

TRIES = 5
"""Sizes of a buffer that are tried, until what is held keeps the budget."""
Aggregators = str | int | Sequence[int]
"""How many ranks read for all, which, or "auto"."""


class _Price(NamedTuple):
    """What it takes to read a section by ranges."""

    requests: int
    """Ranges."""
    asked_bytes: int
    """Bytes of them."""
    seconds: float
    """Of a processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a collective read may use."""

    budget: int
    """Bytes that this process may hold, or each worker."""
    costs: Costs
    """What the machine takes."""
    workers: int
    """Workers that ranks are put on in turn; 0 for threads."""
    schedule: str | None
    """The order of messages by name, or "auto"; None for all of a round at one time."""
    under_way: int
    """Requests that a rank has under way at one time, to stores over a network."""
    buffer_bytes: int
    """Bytes that an aggregator reads in a round."""
    deal: Deal
    """Whether an aggregator has chunks that follow each other, or every so-manieth."""
    disk_of: DiskOf | None
    """Where chunks lie, if that is known."""
    known: dict[Any, _Price] = field(default_factory=dict)
    """What reading takes of what has been looked at: many sets of aggregators read the same boxes, and many boxes lie
    alike in their chunks."""


def plan_collective(
    stored: Stored,
    requests: Sequence[Axes],
    *,
    method: str = "auto",
    partition: str = "auto",
    aggregators: Aggregators = "auto",
    deal: str = "block",
    disk_of: DiskOf | None = None,
    schedule: str | None = "auto",
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
        deal=deal,  # type: ignore[arg-type]
        disk_of=disk_of,
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
    made.__dict__.update({name: value for name, value in plan.__dict__.items() if name not in made.__dict__})
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
        return [spaced(ranks, n) for n in dict.fromkeys(ceil_div(ranks, 2**k) for k in range(ranks.bit_length()))]
    if isinstance(asked, int) and not isinstance(asked, bool) and 1 <= asked <= ranks:
        return [spaced(ranks, asked)]
    if _are_ranks(asked, ranks):
        return [tuple(asked)]  # type: ignore[arg-type]
    raise InputError(
        f"aggregators={asked!r} is not 'auto', a number from 1 to {ranks}, or distinct ranks below {ranks}"
    )


def _are_ranks(asked: Aggregators, ranks: int) -> bool:
    if isinstance(asked, int | str) or not asked or len({*asked}) < len(asked):
        return False
    return all(isinstance(rank, int) and 0 <= rank < ranks for rank in asked)


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
    for _ in range(TRIES):
        plan = two_phase(
            stored,
            table.requests,
            aggregators=aggregators,
            partition=partition,
            deal=means.deal,
            disk_of=means.disk_of,
            buffer_bytes=buffer_bytes,
            workers=means.workers,
            table=table,
        )
        orders = _orders(plan, means)
        offers = [_with(plan, schedule=order) for order in orders]
        offers = [_with(each, price=_two_phase_offer(each, means)) for each in offers]
        best = min(offers, key=lambda each: (_price(each).held_bytes > means.budget, _price(each).seconds))
        if _price(best).held_bytes <= means.budget or buffer_bytes <= stored.itemsize:
            break
        fixed = _fixed(best, means)
        left = max(means.budget - fixed, 0) / max(_price(best).held_bytes - fixed, 1)
        buffer_bytes = max(int(best.round_bytes * left), stored.itemsize)
    return best


def _orders(plan: CollectivePlan, means: Means) -> list[Schedule | None]:
    """The orders of messages that are looked at: all at one time, and one partner a step; or what is asked for."""
    if not means.workers or means.schedule is None:
        return [None]
    if means.schedule.lower() != "auto":
        return [Schedule.of(means.schedule, plan.ranks)]
    sizes = plan.all_sizes.sum(axis=0) * plan.stored.itemsize
    np.fill_diagonal(sizes, 0)
    return [None, cheapest(sizes, FlatCluster.of(plan.ranks), flat_constants(means.costs))]


# ---------------------------------------------------------------------- what each holds


def _lanes(plan: CollectivePlan, means: Means) -> int:
    """Tasks that read at one time in this process."""
    tasks = sum(bool(boxes) for each in plan.rounds for boxes in each) or plan.ranks
    return max(min(tasks, means.costs.cores), 1)


def _workspace(stored: Stored, means: Means) -> int:
    """Bytes that a rank needs beside what it reads: buffers of ranges, or a chunk and what its codec needs."""
    kept = means.under_way * stored.travel_bytes + stored.index_workspace
    ranges = IN_FLIGHT * (SECTION_BYTES if stored.local else STORE_BUFFER_BYTES)
    return kept + (stored.chunk_bytes + stored.decode_workspace if stored.coded else ranges)


def _fixed(plan: CollectivePlan, means: Means) -> int:
    """Bytes that are held whatever a round reads: parts, and what reading needs."""
    if not means.workers:
        return sum(plan.part_bytes) + _lanes(plan, means) * _workspace(plan.stored, means)
    here = ceil_div(plan.ranks, means.workers)
    return sum(sorted(plan.part_bytes)[-here:]) + here * _workspace(plan.stored, means)


def _held(plan: CollectivePlan, means: Means) -> int:
    """Bytes that this process holds, or the worker that holds most."""
    if not means.workers:
        return _fixed(plan, means) + _lanes(plan, means) * plan.round_bytes
    at_once = min(AHEAD, len(plan.rounds))
    rounds = (at_once + 1) * plan.round_bytes  # one that is still being let go
    here = ceil_div(plan.ranks, means.workers)
    return _fixed(plan, means) + here * (rounds + _messages(plan, at_once) * plan.stored.itemsize)


def _messages(plan: CollectivePlan, at_once: int) -> int:
    """Elements of messages that a rank holds, its own and those that come: of a step, or of rounds."""
    between = plan.between
    if plan.schedule is None:
        return int(at_once * between.sum(axis=2).max(initial=0) + between.sum(axis=1).max(initial=0))
    carried = max((Exchange.of(plan.schedule, sizes).buffer_bytes for sizes in between), default=0)
    return int(2 * between.max(initial=0)) + carried


# ---------------------------------------------------------------------- what it takes


class _Reads(NamedTuple):
    """What each rank reads of a file."""

    requests: np.ndarray
    """Of chunks, or of ranges in them."""
    asked: np.ndarray
    """Bytes as they are when decoded."""
    seconds: np.ndarray
    """Of a processor: requests, decoding, and a copy."""


def _reads(plan: CollectivePlan, means: Means) -> _Reads:
    """What each rank reads: whole chunks where they are coded, and ranges where that can be."""
    stored, costs, chunks = plan.stored, means.costs, np.array(plan.chunks_read, np.int64)
    if stored.coded:
        request = costs.request_seconds if stored.local else costs.store_request_seconds
        decoding = stored.chunk_bytes / speed(costs.decode_bandwidth, stored.codec)
        taken = plan.taken_bytes / costs.copy_bandwidth
        return _Reads(chunks, chunks * stored.chunk_bytes, chunks * (costs.piece_seconds + request + decoding) + taken)
    if plan.method == "independent":
        each = [[_price_of(stored, axes, True, means)] for axes in plan.requests]
    else:
        each = [[_box_price(plan, box, means) for boxes in plan.rounds for box in boxes[r]] for r in range(plan.ranks)]
    sums = [tuple(map(sum, zip(*prices, strict=True))) or (0, 0, 0.0) for prices in each]
    return _Reads(*map(np.array, zip(*sums, strict=True)))


def _box_price(plan: CollectivePlan, box: Section, means: Means) -> _Price:
    """What it takes to read what is wanted of a box."""
    if box not in means.known:
        means.known[box] = _price_of(plan.stored, plan.tight(box), plan.is_packed(box), means)
    return means.known[box]


def _price_of(stored: Stored, axes: Axes, packed: bool, means: Means) -> _Price:
    """What it takes to read a section: the same wherever it lies, if it lies alike in its chunks."""
    key = packed, *map(_in_chunks, axes, stored.grid.chunks)
    if key not in means.known:
        plan = SectionPlan(
            stored=stored,
            axes=axes,
            gap=gap_bytes("auto", stored, means.costs, means.under_way),
            buffer_bytes=SECTION_BYTES if stored.local else STORE_BUFFER_BYTES,
            packed=packed and stored.local,
            costs=means.costs,
        )
        means.known[key] = _Price(plan.requests, plan.asked_bytes, plan.seconds)
    return means.known[key]


def _in_chunks(taken: Taken, chunk: int) -> tuple[int, int, int] | bytes:
    """How what is taken along an axis lies in chunks, wherever the first of them is."""
    if isinstance(taken, range):
        return (taken.start % chunk, taken.step, len(taken)) if taken else (0, 0, 0)
    return (taken - taken[0] // chunk * chunk).tobytes() if len(taken) else b""


def _device_seconds(plan: CollectivePlan, means: Means, reads: _Reads) -> float:
    """Seconds of the device, which gives a chunk once where the cache keeps it, or of the network, which does not."""
    stored, costs = plan.stored, means.costs
    read_bytes = float(reads.asked.sum()) * costs.stored_ratio(stored)
    if not stored.remote:
        distinct = stored.nbytes * costs.stored_ratio(stored)
        return min(read_bytes, distinct if distinct <= costs.cache_bytes else math.inf) / costs.read_bandwidth
    waits = math.ceil(int(reads.requests.max(initial=0)) / means.under_way)
    return waits * costs.remote_request_seconds + read_bytes / costs.remote_bandwidth


def _at_once(each: np.ndarray, costs: Costs) -> float:
    """Seconds by the clock of work that ranks do side by side on the processors that there are."""
    return max(float(each.max(initial=0)), float(each.sum()) / costs.cores)


def _independent_offer(plan: CollectivePlan, means: Means) -> Offer:
    stored, costs, reads = plan.stored, means.costs, _reads(plan, means)
    own = reads.seconds + np.array(plan.part_bytes) / costs.touch_bandwidth
    overhead = costs.graph_seconds if means.workers else plan.ranks * costs.task_seconds
    here = ceil_div(plan.ranks, means.workers) if means.workers else plan.ranks
    lanes = here if means.workers else min(plan.ranks, costs.cores)
    seconds = max(_at_once(own, costs), _device_seconds(plan, means, reads)) + overhead
    parts = sum(sorted(plan.part_bytes)[-here:])
    return _offer(plan, reads, means, held=parts + lanes * _workspace(stored, means), seconds=seconds)


def _two_phase_offer(plan: CollectivePlan, means: Means) -> Offer:
    costs, reads, parts = means.costs, _reads(plan, means), np.array(plan.part_bytes)
    filled = parts / costs.copy_bandwidth + parts / costs.touch_bandwidth
    if means.workers:
        overhead = _exchange_seconds(plan, costs) + costs.graph_seconds
        processor = _at_once(reads.seconds, costs) + _at_once(filled, costs)
    else:
        tasks = sum(bool(boxes) for each in plan.rounds for boxes in each)
        overhead = (tasks + 2 * plan.ranks) * costs.task_seconds
        processor = float(reads.seconds.sum() + filled.sum()) / max(min(costs.cores, tasks), 1)
    seconds = max(processor, _device_seconds(plan, means, reads)) + overhead
    return _offer(plan, reads, means, held=_held(plan, means), seconds=seconds)


def _offer(plan: CollectivePlan, reads: _Reads, means: Means, *, held: int, seconds: float) -> Offer:
    stored, together = plan.stored, plan.method == "two-phase"
    return Offer(
        method=plan.method,
        partition=plan.partition if together else None,
        aggregators=len(plan.aggregators),
        rounds=len(plan.rounds) if together else 1,
        read_requests=int(reads.requests.sum()),
        read_bytes=int(reads.asked.sum() * means.costs.stored_ratio(stored)),
        decoded_bytes=int(reads.asked.sum()) if stored.coded else 0,
        messages=plan.messages,
        exchanged_bytes=plan.exchanged_bytes,
        held_bytes=held,
        seconds=seconds,
    )


def _exchange_seconds(plan: CollectivePlan, costs: Costs) -> float:
    """Seconds of all rounds: as of one exchange of all, and what every step more begins with; messages that go at one
    time begin once a round, and each is one task."""
    sizes = plan.between.sum(axis=0) * plan.stored.itemsize
    constants = flat_constants(costs)
    if plan.schedule is None:
        most = max(int(sizes.sum(axis=0).max(initial=0)), int(sizes.sum(axis=1).max(initial=0)))
        tasks = plan.messages + 2 * plan.ranks * len(plan.rounds)
        return len(plan.rounds) * constants[0].startup + tasks * constants[0].task + most * constants[0].exchange
    whole = schedule_seconds(plan.schedule, sizes, FlatCluster.of(plan.schedule.ranks), constants)
    return whole + max(len(plan.rounds) - 1, 0) * len(plan.schedule) * constants[0].startup
