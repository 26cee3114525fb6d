"""What a plan costs: counts that are exact, and seconds that are a model.

The work of a pass is done by ``min(ranks, cores)`` processors beside one storage device. The two run side by side as
far as some rank has work for each; what is not hidden so follows:

    seconds = max(cpu, device) + min(cpu, device) · (1 − hidden)

``hidden`` is nothing in a pass of one unit, and the more the more ranks there are for a core: a rank that waits for the
device leaves its core to another one.

The request counts follow del Rosario, Bordawekar and Choudhary 1993, section 3: what a distribution costs is the
number of its contiguous runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from oocarrays.mapping.grid import Stored
from oocarrays.plan.machine import BATCHED_RUNS, Costs, speed

PAGE_BYTES = SECTOR = 4096
PIECE_CALLS, PLACE_CALLS, PUT_CALLS, TURN_CALLS = 16, 8, 16, 6
"""Calls beside those that read or write: to open a file, look at it, take its pieces and close it; to lay out a
piece and write it in its place; to make a file; to copy a block to where other axes run fastest."""
TURNED_ELEMENTS = 2**15
"""Elements of such a block."""
LINE_BYTES = 64
"""Runs that are shorter are copied block by block."""
RANKS_A_CORE = 2
"""Ranks for which a core has time between their tasks and messages: of more, each waits for its turn."""
CACHE_WRITERS = 2
"""Cores that write to the system's cache at their full speed: 1 GiB took 1.7, 0.7 and 0.5 s by one, two and four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Traffic of a pass, or of a whole plan. Exact where nothing is coded and no chunk is missing."""

    read_requests: int = 0
    """Calls that read."""
    read_bytes: int = 0
    """Stored bytes read; an estimate where the source is coded."""
    index_requests: int = 0
    """Calls that read where chunks lie in a shard; on a cluster the most that there can be."""
    decoded_bytes: int = 0
    """Bytes that come out of codecs."""
    copied_bytes: int = 0
    """Bytes copied from the source's layout to the target's."""
    copied_runs: int = 0
    """Contiguous runs of those copies: an estimate."""
    pieces: int = 0
    """Visits to source chunks."""
    placed_pieces: int = field(default=0, metadata={"gained": True})
    """Pieces of chunks that are written in their places, in files that get their names when all are there."""
    placed_runs: int = field(default=0, metadata={"gained": True})
    """Contiguous runs of those pieces, at most: a request each."""
    write_requests: int = 0
    """Chunks written."""
    encoded_bytes: int = 0
    """Bytes that go into codecs."""
    packed_bytes: int = 0
    """Bytes copied into shards."""
    written_bytes: int = 0
    """Stored bytes written; an estimate where the target is coded."""
    messages: int = 0
    """Messages between different ranks."""
    exchanged_bytes: int = 0
    """Bytes that those messages can hold at most."""
    tasks: int = 0
    """Tasks in the graph."""

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Traffic)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Answers that are waited for, one after the other, where requests travel over a network: those under way at one
    time are waited for together."""

    reading: float = 0.0
    """Of all ranks together."""
    writing: float = 0.0
    """Of all ranks together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Seconds that all ranks together spend in each phase."""

    read: float = 0.0
    """Requests, the device's time, decoding, and copies up to what is handed on."""
    exchange: float = 0.0
    """Copies from what others have read, messages, and what waits in scratch."""
    write: float = 0.0
    """Encoding, copies, and the device's time."""

    def __add__(self, other: Phases) -> Phases:
        return Phases(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Phases)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """How much of a pass goes on at one time."""

    ranks: int
    """Logical processors."""
    turns: int
    """Pieces of work that may overlap: while one rank waits for the device, another has the processor."""
    idle: float = 1.0
    """Work of the busiest rank over the mean, at least 1."""
    workers: bool = False
    """Whether ranks are on workers of a cluster, and messages take a way: α + n·β for n bytes (Thakur 1995, 4.2)."""
    touched: int = 0
    """Bytes of memory that all ranks together take from the system."""
    synchronous: bool = True
    """Whether steps between workers come one after the other; else α is waited for once in a partition."""
    whole: bool = False
    """Whether one task of each rank holds all steps of an exchange between workers."""
    ahead: bool = False
    """Whether a rank can read its next slab while the one before is still taken from."""
    behind: bool = True
    """Whether what is written goes to the device while more is made."""
    past_cache: bool = True
    """Whether what is written can go past the system's cache."""
    waits: Waits = Waits()
    """Answers of a network that all ranks together wait for."""


def pass_seconds(
    traffic: Traffic, costs: Costs, source: Stored, target: Stored, pipeline: Pipeline
) -> tuple[float, Phases]:
    """Predict the seconds of one pass by the clock, and of all its ranks together by phase."""
    ranks, workers, waits = pipeline.ranks, pipeline.workers, pipeline.waits
    reading, writing = _device_seconds(traffic, costs, source, target)
    reading += _seeks(traffic, costs, source) * costs.seek_seconds / ranks
    writing += _puts(traffic, target, pipeline) * costs.put_seconds / ranks
    reading += waits.reading * costs.remote_request_seconds / ranks
    writing += waits.writing * costs.remote_request_seconds / ranks
    in_ranges = traffic.read_requests * costs.range_seconds if source.local else 0.0
    asked = (0 if source.local else traffic.read_requests) + traffic.index_requests
    asking = asked * (costs.request_seconds if source.local else costs.store_request_seconds)
    putting = traffic.write_requests * (costs.request_seconds if target.local else costs.store_request_seconds)
    through = costs.cache_bandwidth if source.local else costs.copy_bandwidth
    gather = (
        traffic.read_bytes / through
        + in_ranges
        + traffic.pieces * costs.piece_seconds
        + traffic.decoded_bytes / speed(costs.decode_bandwidth, source.codec)
    )
    move = traffic.copied_bytes / costs.copy_bandwidth + traffic.copied_runs * costs.run_seconds
    cached = target.cached or not pipeline.past_cache
    put = 0.0 if cached else traffic.written_bytes / costs.copy_bandwidth
    kept = traffic.written_bytes / costs.cache_write_bandwidth if cached else 0.0
    put += traffic.packed_bytes / costs.copy_bandwidth + traffic.encoded_bytes / speed(
        costs.encode_bandwidth, target.codec
    )
    put += traffic.write_requests * costs.file_seconds if target.local else 0.0
    touch = pipeline.touched / costs.touch_bandwidth
    requests = asking + putting
    requests += traffic.placed_pieces * costs.place_seconds + traffic.placed_runs * costs.request_seconds
    alone = requests + (0 if workers else traffic.tasks * costs.task_seconds)
    cpu = (gather + move + put + touch) * pipeline.idle / min(ranks, costs.cores) + alone
    cpu += kept * pipeline.idle / min(ranks, costs.cores, CACHE_WRITERS)
    device = reading + writing
    hidden = _hidden(pipeline, costs.cores) * (1 - 1 / max(pipeline.turns, 1))
    at_once = 1 if pipeline.synchronous else max(ranks - 1, 1)
    startup = costs.step_seconds if pipeline.whole else costs.message_seconds
    steps = _steps_seconds(traffic, costs, startup / at_once) if workers else 0.0
    of_steps = 0 if pipeline.whole else 2 * traffic.messages
    tasks = max(traffic.tasks - of_steps, 0) * costs.worker_task_seconds if workers else 0.0
    scheduler = traffic.tasks * costs.scheduler_seconds if workers else 0.0
    crowd = max(ranks / costs.cores, 1)
    if traffic.messages:
        here, there = (0.5 * (move + touch), 0.5 * (move + touch)) if workers else (touch, move)
    else:
        here, there = move + touch, 0.0
    phases = Phases(
        read=(gather + here) * crowd + reading + asking,
        exchange=there * crowd + steps,
        write=(put + kept) * crowd + writing + putting,
    )
    waiting = (steps + tasks) / ranks * crowding(ranks, costs.cores)
    work = max(cpu, device) + min(cpu, device) * (1 - hidden) + waiting
    others = 0 if workers else ranks - 1
    handed = _calls(traffic, source, target) * costs.handoff_seconds * math.sqrt(others)
    return max(work + handed, scheduler), phases


Count = Any
"""A number, or an array with one for each of many candidates."""


class Work(NamedTuple):
    """Work on one stored array."""

    requests: Count = 0
    """Calls that read or write whole chunks."""
    ranges: Count = 0
    """Calls that read byte ranges."""
    pieces: Count = 0
    """Chunks that are opened."""
    copied: Count = 0
    """Bytes."""
    touched: Count = 0
    """Bytes of memory that is taken from the system."""
    decoded: Count = 0
    """Bytes that come out of codecs."""
    encoded: Count = 0
    """Bytes that go into codecs."""
    read: Count = 0
    """Stored bytes that come from the device or the network."""
    written: Count = 0
    """Stored bytes that go to it."""
    waits: Count = 0
    """Answers of a network, one after the other."""


class Seconds(NamedTuple):
    """Predicted seconds of some work."""

    processor: Count
    """Of one core."""
    device: Count
    """Of the device, or of the network."""


def seconds(work: Work, costs: Costs, stored: Stored) -> Seconds:
    """Price work on a stored array."""
    processor = (
        work.requests * (costs.request_seconds if stored.local else costs.store_request_seconds)
        + work.ranges * (costs.range_seconds if stored.local else costs.store_request_seconds)
        + work.pieces * costs.piece_seconds
        + work.copied / costs.copy_bandwidth
        + work.touched / costs.touch_bandwidth
    )
    if stored.codec is not None:
        processor = processor + work.decoded / speed(costs.decode_bandwidth, stored.codec)
        processor = processor + work.encoded / speed(costs.encode_bandwidth, stored.codec)
    if stored.remote:
        moved = (work.read + work.written) / costs.remote_bandwidth
        return Seconds(processor, work.waits * costs.remote_request_seconds + moved)
    return Seconds(processor, work.read / costs.read_bandwidth + work.written / costs.write_bandwidth)


def crowding(ranks: int, cores: int) -> float:
    """How many times as long word to and fro takes where more ranks than two a core want a processor for it."""
    return max(ranks / (RANKS_A_CORE * cores), 1.0)


def _calls(traffic: Traffic, source: Stored, target: Stored) -> float:
    """Calls in which a thread lets go of the interpreter's lock, where files are local."""
    batched = traffic.read_requests >= BATCHED_RUNS * traffic.pieces
    asked = traffic.pieces if batched else traffic.read_requests
    reads = asked + PIECE_CALLS * traffic.pieces if source.local else 0
    writes = PUT_CALLS * traffic.write_requests + PLACE_CALLS * traffic.placed_runs if target.local else 0
    torn = traffic.copied_runs * LINE_BYTES > traffic.copied_bytes
    blocks = traffic.copied_bytes / (target.itemsize * TURNED_ELEMENTS) if torn else 0.0
    return reads + writes + TURN_CALLS * blocks


def _device_seconds(traffic: Traffic, costs: Costs, source: Stored, target: Stored) -> tuple[float, float]:
    """Seconds in which bytes come from the device or the network, and go to it; no network keeps what it brought."""
    if source.cached:
        from_device = 0
    elif is_cached(costs, source):
        from_device = min(int(source.nbytes * costs.stored_ratio(source)), traffic.read_bytes)
    else:
        from_device = (
            traffic.read_bytes + _seeks(traffic, costs, source) * PAGE_BYTES
        )  # runs begin and end within pages
    to_device = 0 if target.cached else traffic.written_bytes
    return (
        from_device / (costs.remote_bandwidth if source.remote else costs.read_bandwidth),
        to_device / costs.remote_bandwidth if target.remote else costs.write_seconds(to_device),
    )


def is_cached(costs: Costs, source: Stored) -> bool:
    """Return whether the system's cache keeps what is read of an array: it comes from the device once."""
    return not source.remote and source.nbytes * costs.stored_ratio(source) <= costs.cache_bytes


def _seeks(traffic: Traffic, costs: Costs, source: Stored) -> int:
    """Requests for which the device is waited for, beside the chunks that are read as they lie, one after the other."""
    if source.remote or not source.local or is_cached(costs, source):
        return 0
    return max(traffic.read_requests - source.grid.count, 0)


def _puts(traffic: Traffic, target: Stored, pipeline: Pipeline) -> int:
    """Writes for which the device is waited for, beside whole chunks: runs in their places that pass the cache by."""
    return traffic.placed_runs if pipeline.past_cache and not target.cached else 0


def _steps_seconds(traffic: Traffic, costs: Costs, startup: float) -> float:
    """Seconds that all ranks together spend in steps, in each of which every rank sends and receives one message."""
    return traffic.messages * startup + traffic.exchanged_bytes / costs.message_bandwidth


def _hidden(pipeline: Pipeline, cores: int) -> float:
    """The share of the lesser of processor and device time that is hidden behind the other: measured, roughly."""
    others = 0.0 if pipeline.ranks == 1 else 0.4 if pipeline.ranks < 2 * cores else 0.7
    return others + 0.1 * pipeline.ahead + 0.1 * pipeline.behind
