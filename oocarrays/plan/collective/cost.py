"""Cost of a collective read: requests, bytes, memory and seconds.

    reading      each rank's requests, decoding and copies; one device read per chunk if cached
    exchange     messages of each round, all at once or in steps
    memory       parts + read buffers + rounds read but not yet received + messages

Each box is priced once, because many sets of aggregators read the same boxes. del Rosario, Bordawekar and Choudhary
1993, section 3; Thakur 1995, section 6.6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from oocarrays.mapping.grid import Stored
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken
from oocarrays.plan.alternative import Alternative
from oocarrays.plan.collective.domains import Dealing
from oocarrays.plan.collective.read import AHEAD, CollectivePlan
from oocarrays.plan.cost import Traffic, Work, seconds
from oocarrays.plan.exchange.exchange import Exchange
from oocarrays.plan.exchange.network import FlatCluster
from oocarrays.plan.exchange.prediction import flat_constants, schedule_seconds
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.machine import Costs
from oocarrays.plan.memory import Memory, Resources
from oocarrays.plan.sections.batches import BUFFER_BYTES as SECTION_BYTES
from oocarrays.plan.sections.batches import IN_FLIGHT, STORE_BUFFER_BYTES, decoding_bytes
from oocarrays.plan.sections.read import SectionPlan


class _Price(NamedTuple):
    """Price of reading a section by byte ranges."""

    requests: int
    """Number of ranges."""
    asked_bytes: int
    """Bytes of all ranges."""
    seconds: float
    """Processor seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Resources and options of a collective read."""

    resources: Resources
    """Memory, workers and number of requests."""
    schedule: Schedule | Literal["auto", "coloring"] | None
    """Schedule of messages, or "auto"; None to send all messages of a round at once, and on threads."""
    buffer_bytes: int
    """Bytes that an aggregator reads in a round."""
    dealing: Dealing
    """Assignment of chunks to aggregators."""
    known: dict[Any, _Price] = field(default_factory=dict)
    """Cached prices by box: many sets of aggregators read the same boxes, and many boxes lie alike in their chunks."""


# ---------------------------------------------------------------------- what each holds


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
    between = plan.between
    if plan.schedule is None:
        return int(at_once * between.sum(axis=2).max(initial=0) + between.sum(axis=1).max(initial=0))
    carried = max((Exchange.of(plan.schedule, sizes).buffer_bytes for sizes in between), default=0)
    return int(2 * between.max(initial=0)) + carried


# ---------------------------------------------------------------------- what it takes


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
        decoded = chunks * stored.chunk_bytes
        work = Work(requests=chunks, pieces=chunks, decoded=decoded, copied=plan.taken_bytes)
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
        means.known[key] = _Price(plan.requests, plan.asked_bytes, plan.seconds)
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
    known = means.dealing.disk_seconds("read", stored, read_bytes, costs.stored_ratio(stored), _under_way(plan, means))
    if known is not None:
        return known
    waits = math.ceil(int(reads.requests.max(initial=0)) / means.resources.requests)
    return float(seconds(Work(read=read_bytes, waits=waits), costs, stored).device)


def _under_way(plan: CollectivePlan, means: Means) -> int:
    """Return the number of chunks read at one time: one per rank, or several for a remote store."""
    lanes = int(np.count_nonzero(plan.chunks_read))
    if not means.resources.on_workers:
        lanes = min(lanes, means.resources.costs.cores)
    return max(lanes, 1) * (means.resources.requests if plan.stored.remote else 1)


def _at_once(each: np.ndarray, costs: Costs) -> float:
    """Return the wall-clock seconds of work that ranks do in parallel on the available processors."""
    return max(float(each.max(initial=0)), float(each.sum()) / costs.cores)


def _seconds_alone(plan: CollectivePlan, reads: _Reads, means: Means) -> float:
    """Return the wall-clock seconds if each rank reads its own part."""
    costs = means.resources.costs
    own = reads.seconds + np.array(plan.part_bytes) / costs.touch_bandwidth
    overhead = costs.graph_seconds if means.resources.on_workers else plan.ranks * costs.task_seconds
    return max(_at_once(own, costs), _device_seconds(plan, means, reads)) + overhead


def _seconds_together(plan: CollectivePlan, reads: _Reads, means: Means) -> float:
    """Return the wall-clock seconds if some ranks read for all and send."""
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
    """Return the plan with its price and memory."""
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
    """Return the seconds of the messages in all rounds.

    Transfers are priced as one exchange of all rounds together. Each further round adds the startup of its steps.
    Unscheduled messages pay one startup per round and one task each.
    """
    sizes = plan.between.sum(axis=0) * plan.stored.itemsize
    constants = flat_constants(costs)
    if plan.schedule is None:
        most = max(int(sizes.sum(axis=0).max(initial=0)), int(sizes.sum(axis=1).max(initial=0)))
        tasks = plan.messages + 2 * plan.ranks * len(plan.rounds)
        return len(plan.rounds) * constants[0].startup + tasks * constants[0].task + most * constants[0].exchange
    whole = schedule_seconds(plan.schedule, sizes, FlatCluster.of(plan.schedule.ranks), constants)
    return whole + max(len(plan.rounds) - 1, 0) * len(plan.schedule) * constants[0].startup
