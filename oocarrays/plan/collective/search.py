"""Choice of a collective read method: independent or two-phase, with its aggregators and file domains.

    independent    reads and decodes     all touched chunks, for every rank
    two-phase      reads and decodes     each chunk once; then sends others their elements
                   static, dynamic       more rounds if few domains hold all wanted chunks
                   fewer aggregators     fewer messages and tasks, less parallelism

The cheapest alternative within the budget is chosen. del Rosario, Bordawekar and Choudhary 1993, section 3.2.3: fewer
readers may be faster; Thakur 1995, section 6.6.

Prices are requests, bytes, memory and seconds:

    reading      each rank's requests, decoding and copies; one device read per chunk if cached
    exchange     messages of each round, all at once or in steps
    memory       parts + read buffers + rounds read but not yet received + messages

Each box is priced once, because many sets of aggregators read the same boxes. del Rosario, Bordawekar and Choudhary
1993, section 3; Thakur 1995, section 6.6.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from oocarrays.errors import BudgetError
from oocarrays.mapping.given import chosen
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken, lengths
from oocarrays.plan.collective.domains import Aggregators, Deal, Dealing, Partition, chosen_aggregators
from oocarrays.plan.collective.read import AHEAD, BUFFER_BYTES, CollectivePlan, Method, independent, two_phase
from oocarrays.plan.collective.wanted import AccessTable, chunks_of
from oocarrays.plan.cost import Traffic, Work, seconds
from oocarrays.plan.exchange.prediction import Carrier, exchange_seconds, unordered_seconds
from oocarrays.plan.exchange.schedule import Schedule, is_auto, is_coloring, is_unordered
from oocarrays.plan.machine import MOST_TASKS, Costs, spread
from oocarrays.plan.plan import Alternative, Memory, Resources, cheapest
from oocarrays.plan.sections.read import SectionPlan
from oocarrays.plan.sections.sieve import BUFFER_BYTES as SECTION_BYTES, IN_FLIGHT, STORE_BUFFER_BYTES, decoding_bytes

_Price = tuple[int, int, float]
"""Number and bytes of the ranges of a section, and the processor seconds of reading them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Resources and options of a collective read."""

    resources: Resources
    schedule: Schedule | Literal["auto", "coloring"] | None
    """Schedule of messages, or "auto"; None to send all messages of a round at once, and on threads."""
    buffer_bytes: int
    """Bytes that an aggregator reads in a round."""
    dealing: Dealing
    known: dict[Any, _Price] = field(default_factory=dict)
    """Cached prices by box: many sets of aggregators read the same boxes, and many boxes lie alike in their chunks."""


# ---------------------------------------------------------------------- memory of each process


def _lanes(plan: CollectivePlan, means: Means) -> int:
    """Return the number of tasks that read at one time in this process."""
    tasks = sum(bool(boxes) for each in plan.rounds for boxes in each) or plan.ranks
    return max(min(tasks, means.resources.costs.cores), 1)


def _workspace(stored: Stored, means: Means) -> int:
    """Return the bytes that a rank needs beside its output: range buffers, or one chunk and its codec's workspace."""
    kept = means.resources.requests * stored.travel_bytes + stored.index_workspace
    ranges = IN_FLIGHT * (SECTION_BYTES if stored.local else STORE_BUFFER_BYTES)
    return kept + (decoding_bytes(stored) if stored.coded else ranges)


def memory(plan: CollectivePlan, means: Means) -> Memory:
    """Return the memory of this process, or of the worker that holds most."""
    here = means.resources.ranks_of_a_process(plan.ranks)
    lanes = here if means.resources.on_workers else _lanes(plan, means)
    fixed = Memory.of(parts=sum(sorted(plan.part_bytes)[-here:]), reading=lanes * _workspace(plan.stored, means))
    if plan.method == "independent":
        return fixed
    if not means.resources.on_workers:
        return fixed + Memory.of(rounds=lanes * plan.round_bytes)
    at_once = min(AHEAD, len(plan.rounds))
    each = Memory.of(
        rounds=(at_once + 1) * plan.round_bytes,  # one more round is still being released
        messages=_messages(plan, at_once) * plan.stored.itemsize,
    )
    return fixed + each * here


def _messages(plan: CollectivePlan, at_once: int) -> int:
    """Return the elements of messages that a rank holds, sent and received: of one step, or of `at_once` rounds."""
    between = plan.read.between
    if plan.schedule is None:
        return int(at_once * between.sum(axis=2).max(initial=0) + between.sum(axis=1).max(initial=0))
    carried = max((each.buffer_bytes for each in plan.read.exchanges(plan.schedule)), default=0)
    return int(2 * between.max(initial=0)) + carried


# ---------------------------------------------------------------------- seconds


class _Reads(NamedTuple):
    """Reads of each rank."""

    requests: np.ndarray
    """Number of requests for chunks, or for ranges in them."""
    asked: np.ndarray
    """Decoded bytes."""
    seconds: np.ndarray
    """Processor seconds: requests, decoding and one copy."""


def _reads(plan: CollectivePlan, means: Means) -> _Reads:
    """Count the reads of each rank: whole chunks if coded, otherwise ranges."""
    stored, costs, chunks = plan.stored, means.resources.costs, np.array(plan.chunks_read, np.int64)
    if stored.coded:
        decoded, taken = chunks * stored.chunk_bytes, plan.read.read_sizes.sum(axis=0) * stored.itemsize
        copied = np.array(plan.part_bytes, np.int64) if plan.method == "independent" else taken
        work = Work(requests=chunks, pieces=chunks, decoded=decoded, copied=copied)
        return _Reads(chunks, decoded, seconds(work, costs, stored).processor)
    if plan.method == "independent":
        each = [[_price_of(stored, axes, True, means)] for axes in plan.requests]
    else:
        each = [[_box_price(plan, box, means) for boxes in plan.rounds for box in boxes[r]] for r in range(plan.ranks)]
    sums = [tuple(map(sum, zip(*prices, strict=True))) or (0, 0, 0.0) for prices in each]
    return _Reads(*map(np.array, zip(*sums, strict=True)))


def _box_price(plan: CollectivePlan, box: Section, means: Means) -> _Price:
    if box not in means.known:
        means.known[box] = _price_of(plan.stored, plan.tight(box), plan.is_packed(box), means)
    return means.known[box]


def _price_of(stored: Stored, axes: Axes, packed: bool, means: Means) -> _Price:
    """Price the read of a section; sections at equal offsets in their chunks share one price."""
    key = packed, *map(_in_chunks, axes, stored.grid.chunks)
    if key not in means.known:
        resources, most = means.resources, SECTION_BYTES if stored.local else STORE_BUFFER_BYTES
        plan = SectionPlan.of(stored, axes, resources.costs, packed=packed, requests=resources.requests, most=most)
        means.known[key] = plan.requests, plan.asked_bytes, plan.seconds
    return means.known[key]


def _in_chunks(taken: Taken, chunk: int) -> tuple[int, int, int] | bytes:
    """Return the offsets of the selected elements relative to the first chunk."""
    if isinstance(taken, range):
        return (taken.start % chunk, taken.step, len(taken)) if taken else (0, 0, 0)
    return (taken - taken[0] // chunk * chunk).tobytes() if len(taken) else b""


def _device_seconds(plan: CollectivePlan, means: Means, reads: _Reads) -> float:
    """Return the seconds of the device or network; repeated reads are free if the page cache holds the array."""
    stored, costs = plan.stored, means.resources.costs
    read_bytes = float(reads.asked.sum()) * costs.stored_ratio(stored)
    if not stored.remote:
        distinct = stored.nbytes * costs.stored_ratio(stored)
        read_bytes = min(read_bytes, distinct if distinct <= costs.cache_bytes else math.inf)
    lanes = int(np.count_nonzero(plan.chunks_read))
    lanes = max(lanes if means.resources.on_workers else min(lanes, costs.cores), 1)
    under_way = lanes * (means.resources.requests if stored.remote else 1)
    known = means.dealing.disk_seconds("read", stored, read_bytes, costs.stored_ratio(stored), under_way)
    if known is not None:
        return known
    waits = math.ceil(int(reads.requests.max(initial=0)) / means.resources.requests)
    return float(seconds(Work(read=read_bytes, waits=waits), costs, stored).device)


def _at_once(each: np.ndarray, costs: Costs) -> float:
    """Return the wall-clock seconds of work that ranks do in parallel on the available processors."""
    return max(float(each.max(initial=0)), float(each.sum()) / costs.cores)


def _seconds_alone(plan: CollectivePlan, reads: _Reads, means: Means) -> float:
    costs = means.resources.costs
    own = reads.seconds + np.array(plan.part_bytes) / costs.touch_bandwidth
    overhead = costs.graph_seconds if means.resources.on_workers else plan.ranks * costs.task_seconds
    return max(_at_once(own, costs), _device_seconds(plan, means, reads)) + overhead


def _seconds_together(plan: CollectivePlan, reads: _Reads, means: Means) -> float:
    costs, parts = means.resources.costs, np.array(plan.part_bytes)
    filled = parts / costs.copy_bandwidth + parts / costs.touch_bandwidth
    if means.resources.on_workers:
        overhead = _exchange_seconds(plan, costs) + costs.graph_seconds
        processor = _at_once(reads.seconds, costs) + _at_once(filled, costs)
    else:
        tasks = sum(bool(boxes) for each in plan.rounds for boxes in each)
        overhead = tasks * costs.task_seconds + 2 * plan.ranks * costs.small_task_seconds
        processor = float(reads.seconds.sum() + filled.sum()) / max(min(costs.cores, tasks), 1)
    return max(processor, _device_seconds(plan, means, reads)) + overhead


def priced(plan: CollectivePlan, means: Means) -> CollectivePlan:
    stored, reads, held, together = plan.stored, _reads(plan, means), memory(plan, means), plan.method == "two-phase"
    price = Alternative(
        name=plan.method,
        ranks=len(plan.aggregators),
        seconds=(_seconds_together if together else _seconds_alone)(plan, reads, means),
        peak_bytes=held.nbytes,
        reason="",
        traffic=Traffic(
            read_requests=int(reads.requests.sum()),
            read_bytes=int(reads.asked.sum() * means.resources.costs.stored_ratio(stored)),
            decoded_bytes=int(reads.asked.sum()) if stored.coded else 0,
            messages=plan.messages,
            exchanged_bytes=plan.exchanged_bytes,
        ),
        rounds=len(plan.rounds) if together else 1,
        domains=plan.partition if together else None,
    )
    return replace(plan, price=price, memory=held)


def _exchange_seconds(plan: CollectivePlan, costs: Costs) -> float:
    """Return the seconds of the messages in all rounds; unscheduled ones pay one startup a round, and a task each."""
    sizes, rounds = plan.read.between.sum(axis=0) * plan.stored.itemsize, len(plan.rounds)
    if plan.schedule is not None:
        return exchange_seconds(plan.schedule, sizes, costs, rounds)
    most = max(int(sizes.sum(axis=0).max(initial=0)), int(sizes.sum(axis=1).max(initial=0)))
    return float(unordered_seconds(plan.messages, most, costs, plan.ranks, rounds))


# ---------------------------------------------------------------------- candidates

ANY = Dealing(partition="auto")
"""Default: wanted chunks or the whole array, whichever is faster."""


def plan_collective(
    stored: Stored,
    requests: Sequence[Axes],
    resources: Resources,
    *,
    method: str = "auto",
    aggregators: Aggregators = "auto",
    dealing: Dealing = ANY,
    buffer_bytes: int = BUFFER_BYTES,
) -> CollectivePlan:
    known, partitions, budget = get_args(Method), get_args(Partition), resources.budget
    chosen(dealing.partition, "domains", ("auto", *partitions))
    chosen(dealing.deal, "deal", get_args(Deal))
    schedule = _schedule(resources, len(requests))
    means = Means(resources=resources, schedule=schedule, buffer_bytes=buffer_bytes, dealing=dealing)
    table = AccessTable(stored.grid, requests)
    _check_parts(requests, stored, means)
    sets = chosen_aggregators(aggregators, len(requests), dealing.disks)
    chosen(method, "method", ("auto", *known))
    methods = known if method == "auto" else (method,)
    partitions = partitions if dealing.partition == "auto" else (dealing.partition,)
    plans = list(_plans(stored, table, methods, partitions, sets, means))
    fitting = [plan for plan in plans if plan.peak_bytes <= budget]
    likely = min(fitting, key=attrgetter("seconds")) if fitting else min(plans, key=attrgetter("peak_bytes"))
    if means.schedule == "auto" and likely.method == "two-phase" and likely.schedule is None:
        plans.append(_in_steps(likely, means))
    plans.sort(key=lambda plan: plan.seconds)
    best, alternatives = cheapest(plans, attrgetter("price"), budget, "this collective read")
    price = next(each for each in alternatives if each.taken)
    return replace(best, alternatives=alternatives, price=price, budget=budget)


def _check_parts(requests: Sequence[Axes], stored: Stored, means: Means) -> None:
    """Raise if the parts exceed the budget; only for many chunks, before they are enumerated."""
    if sum(chunks_of(stored.grid, axes) for axes in requests) <= MOST_TASKS:
        return
    parts = [math.prod(lengths(axes)) * stored.itemsize for axes in requests]
    there = Counter[int]()
    for part, worker in zip(parts, spread(len(parts), range(means.resources.workers or 1)), strict=True):
        there[worker] += part
    least = max(there.values())
    if least > means.resources.budget:
        raise BudgetError(means.resources.budget, least, "this collective read")


def _schedule(resources: Resources, ranks: int) -> Schedule | Literal["auto", "coloring"] | None:
    asked = resources.schedule
    if resources.workers is None or is_unordered(asked):
        return None
    if is_coloring(asked):
        return "coloring"
    return "auto" if is_auto(asked) else Schedule.of(asked, ranks)


def _plans(
    stored: Stored,
    table: AccessTable,
    methods: Sequence[str],
    partitions: Sequence[Partition],
    sets: Sequence[tuple[int, ...]],
    means: Means,
) -> Iterator[CollectivePlan]:
    """Yield every candidate plan with its price; those in two phases only if requests do not conform, or as asked."""
    if "independent" in methods:
        alone = priced(independent(stored, table.requests, workers=means.resources.workers, table=table), means)
        yield alone
        even = 1.5 * ceil_div(sum(alone.chunks_read), alone.ranks)  # no rank reads half more than its share
        fits = alone.peak_bytes <= means.resources.budget
        if not alone.table.are_shared and max(alone.chunks_read) <= even and fits:
            return
    for number, some in enumerate(sets if "two-phase" in methods else []):
        for partition in partitions if number == 0 else partitions[:1]:
            yield _fitted(stored, table, some, partition, means)


def _fitted(
    stored: Stored, table: AccessTable, aggregators: Sequence[int], partition: Partition, means: Means
) -> CollectivePlan:
    """Return the plan with the largest buffers that fit, or the least memory, which does not depend on the budget."""

    def of(buffer_bytes: int) -> CollectivePlan:
        plan = two_phase(
            stored,
            table.requests,
            aggregators=aggregators,
            dealing=replace(means.dealing, partition=partition),
            buffer_bytes=buffer_bytes,
            workers=means.resources.workers,
            table=table,
        )
        return _ordered(plan, means)

    wanted = sum(math.prod(lengths(axes)) for axes in table.requests) * stored.itemsize
    budget, least = means.resources.budget, max(2**16, wanted // 2**12)  # planning more rounds takes longer than a read
    tried = [of(means.buffer_bytes)]
    while tried[-1].peak_bytes > budget and tried[-1].buffer_bytes > least:
        last = tried[-1]
        tried.append(of(max(min(last.buffer_bytes, last.round_bytes) // 2, least)))
    found = min(tried, key=lambda plan: plan.peak_bytes)
    if len(tried) == 1 or found.peak_bytes > budget:
        return found
    last = tried[-2]
    fixed = last.memory["parts"] + last.memory["reading"]
    left = max(budget - fixed, 0) / max(last.peak_bytes - fixed, 1)  # of its buffers, what should fit
    more = of(max(int(last.round_bytes * left), least))
    return more if found.buffer_bytes < more.buffer_bytes and more.peak_bytes <= budget else found


def _ordered(plan: CollectivePlan, means: Means) -> CollectivePlan:
    """Return the plan with the requested schedule; "auto" sends everything at once, or in steps to fit the budget."""
    if means.schedule == "coloring":
        return _in_steps(plan, means)
    best = priced(replace(plan, schedule=means.schedule if isinstance(means.schedule, Schedule) else None), means)
    if means.schedule != "auto" or best.peak_bytes <= means.resources.budget:
        return best
    return min(best, _in_steps(plan, means), key=lambda each: each.peak_bytes)


def _in_steps(plan: CollectivePlan, means: Means) -> CollectivePlan:
    """Return the plan with a schedule of one partner per step: the cheapest, or a coloring of its messages."""
    sizes = plan.read.between.sum(axis=0) * plan.stored.itemsize
    schedule, _ = Carrier.between_workers(plan.ranks, means.resources.costs).cheapest(sizes, str(means.schedule))
    return priced(replace(plan, schedule=schedule), means)
