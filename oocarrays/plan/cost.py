"""Cost of a plan: exact counts, and seconds predicted by a model.

The work of a pass is done by ``min(ranks, cores)`` processors beside one storage device. The two overlap as long as
some rank has work for each; the part that is not hidden adds to the total:

    seconds = max(cpu, device) + min(cpu, device) · (1 − hidden)

``hidden`` is zero in a pass of one unit, and grows with the number of ranks per core: a rank that waits for the device
leaves its core to another one.

The request counts follow del Rosario, Bordawekar and Choudhary 1993, section 3: the cost of a distribution is the
number of its contiguous runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self

from oocarrays.limits import BATCHED_RUNS
from oocarrays.mapping.grid import Stored
from oocarrays.plan.machine import Costs, speed

PAGE_BYTES = SECTOR = 4096
PIECE_CALLS = 16
"""Calls to open and inspect a file, locate its pieces and close it, in addition to reads."""
RANKS_A_CORE = 2
"""Ranks that a core can serve without delay between their tasks and messages."""


class Sums:
    """Base of numbers that are added field by field."""

    __slots__ = ()

    def __add__(self, other: Self) -> Self:
        both: Any = self
        return type(self)(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(both)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic(Sums):
    """Traffic of a pass, or of a whole plan. Exact if nothing is coded and no chunk is missing."""

    read_requests: int = 0
    """Calls that read."""
    read_bytes: int = 0
    """Stored bytes read; an estimate if the source is coded."""
    index_requests: int = 0
    """Requests for the locations of chunks in shards; an upper bound on a cluster."""
    decoded_bytes: int = 0
    """Bytes produced by codecs."""
    copied_bytes: int = 0
    """Bytes copied from the source's layout to the target's."""
    copied_runs: int = 0
    """Contiguous runs of those copies; an estimate."""
    pieces: int = 0
    """Visits to source chunks."""
    placed_pieces: int = field(default=0, metadata={"gained": True})
    """Pieces of chunks written in place, into files that are renamed once complete."""
    placed_runs: int = field(default=0, metadata={"gained": True})
    """Contiguous runs of those pieces, at most; one request each."""
    write_requests: int = 0
    """Chunks written."""
    encoded_bytes: int = 0
    """Bytes passed to codecs."""
    packed_bytes: int = 0
    """Bytes copied into shards."""
    written_bytes: int = 0
    """Stored bytes written; an estimate if the target is coded."""
    messages: int = 0
    """Messages between different ranks."""
    exchanged_bytes: int = 0
    """Maximum bytes of those messages."""
    tasks: int = 0
    """Tasks in the graph."""

    def __mul__(self, times: int) -> Traffic:
        return Traffic(**{f.name: getattr(self, f.name) * times for f in fields(Traffic)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases(Sums):
    """Seconds that all ranks together spend in each phase."""

    read: float = 0.0
    """Seconds of requests, the device, decoding, and copies into the data to send."""
    exchange: float = 0.0
    """Seconds of copies from received data, messages, and scratch."""
    write: float = 0.0
    """Seconds of encoding, copies, and the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Concurrency within a pass."""

    ranks: int
    turns: int
    """Units of work that may overlap: while one rank waits for the device, another uses the processor."""
    idle: float = 1.0
    """Work of the busiest rank over the mean, at least 1."""
    workers: bool = False
    """Whether ranks run on workers of a cluster and messages cost α + n·β for n bytes (Thakur 1995, 4.2)."""
    touched: int = 0
    """Bytes of memory that all ranks together allocate from the system."""
    synchronous: bool = True
    """Whether steps between workers are sequential; otherwise each partition waits for α only once."""
    whole: bool = False
    """Whether one task of each rank holds all steps of an exchange between workers."""
    ahead: bool = False
    """Whether a rank can read its next slab before the current one is consumed."""
    behind: bool = True
    """Whether written data goes to the device while more is produced."""
    past_cache: bool = True
    """Whether writes can bypass the system's cache."""
    waits: tuple[float, float] = (0.0, 0.0)
    """Sequential network round trips to read and to write, of all ranks together; concurrent requests share one."""


def pass_seconds(
    traffic: Traffic, costs: Costs, source: Stored, target: Stored, pipeline: Pipeline
) -> tuple[float, Phases]:
    """Return the predicted elapsed seconds of one pass, and the seconds of all its ranks together by phase."""
    ranks, workers, (read_waits, write_waits) = pipeline.ranks, pipeline.workers, pipeline.waits
    reading, writing = _device_seconds(traffic, costs, source, target)
    reading += _seeks(traffic, costs, source) * costs.seek_seconds / ranks
    if pipeline.past_cache and not target.cached:  # writes in place wait for the device
        writing += traffic.placed_runs * costs.put_seconds / ranks
    reading += read_waits * costs.remote_request_seconds / ranks
    writing += write_waits * costs.remote_request_seconds / ranks
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
    cpu += kept * pipeline.idle / min(ranks, costs.cores, costs.cache_writers)
    device = reading + writing
    others = 0.0 if ranks == 1 else 0.4 if ranks < 2 * costs.cores else 0.7  # measured, roughly
    hidden = (others + 0.1 * pipeline.ahead + 0.1 * pipeline.behind) * (1 - 1 / max(pipeline.turns, 1))
    at_once = 1 if pipeline.synchronous else max(ranks - 1, 1)
    startup = costs.step_seconds if pipeline.whole else costs.message_seconds
    sent = traffic.messages * (startup / at_once) + traffic.exchanged_bytes / costs.message_bandwidth
    steps = sent if workers else 0.0  # in a step each rank sends and receives one message
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
"""Number, or an array with one number for each of many candidates."""


class Work(NamedTuple):
    """Work on one stored array."""

    requests: Count = 0
    """Calls that read or write whole chunks."""
    ranges: Count = 0
    """Calls that read byte ranges."""
    rows: Count = 0
    """Calls that read part of one row each."""
    pieces: Count = 0
    """Opened chunks."""
    copied: Count = 0
    touched: Count = 0
    """Bytes of memory allocated from the system."""
    decoded: Count = 0
    """Bytes produced by codecs."""
    encoded: Count = 0
    """Bytes passed to codecs."""
    read: Count = 0
    """Stored bytes read from the device or the network."""
    written: Count = 0
    """Stored bytes written to the device or the network."""
    waits: Count = 0
    """Sequential network round trips."""


class Seconds(NamedTuple):
    """Predicted seconds of some work."""

    processor: Count
    """Seconds of one core."""
    device: Count
    """Seconds of the device, or of the network."""


def seconds(work: Work, costs: Costs, stored: Stored) -> Seconds:
    asking = costs.range_seconds if stored.local else costs.store_request_seconds
    processor = (
        work.requests * (costs.request_seconds if stored.local else costs.store_request_seconds)
        + work.ranges * asking
        + work.rows * max(asking, costs.row_seconds)
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


def overlapped(device: float, processor: float, turns: int) -> float:
    """Return the elapsed seconds of work in turns: while one waits for the device, another uses the processor."""
    return max(device, processor) + min(device, processor) / max(turns, 1)


def crowding(ranks: int, cores: int) -> float:
    """Return the factor by which messages are delayed when more than two ranks share a core."""
    return max(ranks / (RANKS_A_CORE * cores), 1.0)


def _calls(traffic: Traffic, source: Stored, target: Stored) -> float:
    """Return the number of calls that release the interpreter's lock; file access counts for local stores only.

    It takes 8 calls to lay out and write a piece in place, 16 to create a file, 6 to transpose a block of 2**15
    elements. Copies are made block by block if runs are shorter than 64 bytes on average.
    """
    batched = traffic.read_requests >= BATCHED_RUNS * traffic.pieces
    asked = traffic.pieces if batched else traffic.read_requests
    reads = asked + PIECE_CALLS * traffic.pieces if source.local else 0
    writes = 16 * traffic.write_requests + 8 * traffic.placed_runs if target.local else 0
    torn = traffic.copied_runs * 64 > traffic.copied_bytes
    blocks = traffic.copied_bytes / (target.itemsize * 2**15) if torn else 0.0
    return reads + writes + 6 * blocks


def _device_seconds(traffic: Traffic, costs: Costs, source: Stored, target: Stored) -> tuple[float, float]:
    """Return the seconds of reading from and writing to the device or the network; network reads are never cached."""
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
    """Return whether the system's cache retains the array once it has been read."""
    return not source.remote and source.nbytes * costs.stored_ratio(source) <= costs.cache_bytes


def _seeks(traffic: Traffic, costs: Costs, source: Stored) -> int:
    """Return the requests that wait for the device, except one sequential read per chunk."""
    if source.remote or not source.local or is_cached(costs, source):
        return 0
    return max(traffic.read_requests - source.grid.count, 0)
