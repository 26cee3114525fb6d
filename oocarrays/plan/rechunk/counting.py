"""Cost of a candidate: its traffic, memory and seconds follow from `overlap`, exactly.

    source rank 1's chunks            message 1 → 0                  rank 0's region

    ┌───────────────┐                 ┌──────┬──────┐                ┌──────┬──────┐
    │ ······ ······ │ ──► pack ──►    │ c 0  │ c 1  │ ──► unpack ──► │ c 0  │ c 1  │  in long runs
    └───────────────┘                 └──────┴──────┘                └──────┴──────┘

The sender's chunks in a partition are a few boxes. The intersection of such a box with the receiver's target chunks is
cut in blocks of alike chunks. A block lies in the message chunk after chunk, as the target stores it.

del Rosario, Bordawekar, Choudhary 1993, section 4.1; Thakur 1995, section 4.2 (one message a partner and step).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import product
from operator import mul
from typing import NamedTuple

from oocarrays.mapping.along import product_line
from oocarrays.mapping.grid import ChunkGrid, ceil_div, chunk_runs, chunks_along, turned
from oocarrays.mapping.overlap import axis_overlap, span_elements, touched_by_region
from oocarrays.mapping.section import Section
from oocarrays.plan.cost import Phases, Pipeline, Traffic, pass_seconds
from oocarrays.plan.exchange.ordering import load_in_place, load_of
from oocarrays.plan.plan import MIB, Memory
from oocarrays.plan.rechunk.passes import ALONE, TILE_BYTES, Pass, Problem, Shape, unit_chunks


@dataclass(frozen=True, slots=True)
class MessageBlock:
    """Part of a message: whole target chunks along an axis, or a part of one."""

    section: Section
    counts: tuple[int, ...]
    """Number of chunks that it touches in each axis."""
    lengths: tuple[int, ...]
    """Number of its elements per chunk, in each axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in the message: ``counts + lengths``, each chunk's part contiguous."""
        return self.counts + self.lengths

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def place(self, grid: ChunkGrid, first: tuple[int, ...]) -> tuple[slice, ...]:
        """Return the block's slices in a region of shape ``counts + chunks`` with the first chunk ``first``."""
        starts = [divmod(l, c) for l, c in zip(self.section.lower, grid.chunks, strict=True)]
        chunks = (slice(i - f, i - f + n) for (i, _), f, n in zip(starts, first, self.counts, strict=True))
        inside = (slice(at, at + n) for (_, at), n in zip(starts, self.lengths, strict=True))
        return (*chunks, *inside)


def blocks(section: Section, chunks: tuple[int, ...]) -> Iterator[MessageBlock]:
    for each in product(*map(chunk_runs, section.lower, section.upper, chunks)):
        lower, upper = tuple(start for start, _ in each), tuple(stop for _, stop in each)
        counts = tuple(ceil_div(stop, c) - start // c for (start, stop), c in zip(each, chunks, strict=True))
        lengths = tuple((stop - start) // n for (start, stop), n in zip(each, counts, strict=True))
        yield MessageBlock(Section(lower, upper), counts, lengths)


def message_blocks(step: Pass, unit: int, source: int, destination: int) -> Iterator[MessageBlock]:
    """Yield the blocks that ``source`` sends to ``destination`` in a partition, in the order of their packing."""
    share = step.share(unit, destination)
    if share is None:
        return
    wanted = step.section(share)
    for box in step.read_boxes(unit, 0, source):  # a partition is one round if messages are packed
        common = step.source.grid.block(*box).intersection(wanted)
        if common is not None:
            yield from blocks(common, step.target.grid.chunks)


TASK_BYTES = 4096
"""Bytes of the graph per task."""
HELD = ("stacks", "graph", "index", "counters", "regions", "messages", "chunks", "codecs")
"""Names of memory terms: those of the run, and those of all its ranks."""
MAX_TASKS = 9_000
"""Maximum number of tasks of a pass with negligible overhead."""
RUNNABLE_TASKS = 298_000
"""Tasks of a pass that a scheduler runs in a few minutes, and stores in half a gigabyte."""
BATCH_BYTES = 64 * MIB
"""Approximate bytes read or copied by one task: few tasks, of similar duration."""


class _Lie(NamedTuple):
    """Overlap of units with source chunks, shared by candidates that differ only in memory."""

    visits: int
    requests: int
    span: int
    touched: Counter[int]


@lru_cache(maxsize=4096)
def _lie(source: ChunkGrid, sizes: tuple[int, ...], tile: tuple[int, ...]) -> _Lie:
    axes = list(map(axis_overlap, source.shape, source.chunks, sizes, tile))
    pieces, requests = [axis.pieces for axis in axes], product_line([axis.line for axis in axes]).runs
    span = span_elements(source.shape, pieces, source.chunks)
    return _Lie(math.prod(pieces), requests, span, touched_by_region(axes))


class Counted(NamedTuple):
    """Candidate with its counts."""

    shape: Shape
    held: tuple[int, ...]
    """Bytes of a process, for each of `HELD`."""
    seconds: float
    phases: Phases
    traffic: Traffic
    tile: tuple[int, ...]
    """Elements in each axis that are read before they are copied."""
    batch: int
    read_ahead: bool
    packed: tuple[int, int] = (0, 0)
    """Bytes of all messages that a rank packs for a partition, and of the longest."""

    @property
    def peak_bytes(self) -> int:
        return sum(self.held)

    def made(self, problem: Problem) -> Pass:
        shape, workers = self.shape, problem.resources.on_workers
        chosen = {each.name: getattr(shape, each.name) for each in fields(shape) if each.name != "workspace"}
        return Pass(
            **chosen,
            source=problem.source,
            target=problem.target,
            ranks=problem.ranks,
            tile=self.tile,
            batch=self.batch,
            packed=workers and shape.method == "two-phase",
            scheduler_seconds=workers * self.traffic.tasks * problem.resources.costs.scheduler_seconds,
            synchronous=problem.resources.synchronous,
            outbox_bytes=self.packed[0],
            message_bytes=self.packed[1],
            read_ahead=self.read_ahead,
            traffic=self.traffic,
            memory=Memory(tuple(zip(HELD, self.held, strict=True))),
            seconds=self.seconds,
            phases=self.phases,
            exchange=None if shape.method in ALONE else problem.schedule,
        )


def count_pass(problem: Problem, shape: Shape) -> Counted:
    source, target, ranks = problem.source, problem.target, problem.ranks
    unit = unit_chunks(shape.method, shape.region, shape.split, ranks)
    packed = problem.resources.on_workers and shape.method == "two-phase"
    counts, sizes = target.grid.counts, tuple(map(mul, unit, target.grid.chunks))
    piece = list(map(min, source.grid.chunks, sizes))
    tile = chunks_along(source.order or range(len(piece)), piece, TILE_BYTES // source.itemsize)
    units = math.prod(map(ceil_div, counts, unit))
    lie = _lie(source.lying.grid, turned(sizes, source.order), turned(tile, source.order))
    region_bytes = math.prod(shape.region) * target.chunk_bytes
    batch = batch_of(region_bytes, units, ranks)
    if packed:
        shape = replace(shape, slab=ceil_div(max(lie.touched), ranks))
    exchanges = 0  # rounds of all partitions, times ranks
    if shape.method != "independent":
        exchanges = sum(ceil_div(chunks, ranks * shape.slab) * n for chunks, n in lie.touched.items()) * ranks
    traffic = _traffic(problem, shape, lie, units, batch, exchanges)
    turns = exchanges * shape.slabs or units
    outbox, message = packed_bytes = _packed_bytes(problem, shape, piece) if packed else (0, 0)
    each = shape.depth * region_bytes, shape.slabs * outbox + problem.under_way * message, *shape.workspace
    seconds, phases = pass_seconds(
        traffic,
        problem.resources.costs,
        source,
        target,
        Pipeline(
            ranks=ranks,
            turns=turns,
            idle=_idle(problem, shape, units),
            workers=problem.resources.on_workers,
            touched=ranks * sum(each),
            synchronous=problem.resources.synchronous,
            whole=True,
            ahead=shape.slabs > 1,
            behind=shape.write_behind or not target.made or bool(target.travel_bytes),
            waits=_waits(problem, shape, traffic, units, exchanges),
        ),
    )
    graph = 0 if problem.resources.on_workers else traffic.tasks * TASK_BYTES
    held = problem.base_bytes, graph, source.index_workspace, 0, *(problem.neighbours * nbytes for nbytes in each)
    ahead = source.local and traffic.read_bytes <= problem.resources.costs.cache_bytes
    return Counted(shape, held, seconds, phases, traffic, tile, batch, ahead, packed_bytes)


def _waits(problem: Problem, shape: Shape, traffic: Traffic, units: int, exchanges: int) -> tuple[float, float]:
    """Return the sequential network round trips to read and to write: at least one in each piece of work."""
    source, target = problem.source, problem.target
    tasks = units * (1 if shape.method == "independent" else problem.ranks)
    reads = traffic.pieces if shape.access == "ranges" else exchanges or units
    at_once = shape.requests if source.travel_bytes else 1
    puts = shape.requests if target.travel_bytes else 1
    return (
        max(reads, traffic.read_requests / at_once) if source.remote else 0.0,
        max(tasks, traffic.write_requests / puts) if target.remote else 0.0,
    )


def _packed_bytes(problem: Problem, shape: Shape, piece: list[int]) -> tuple[int, int]:
    """Return the maximum bytes that a rank packs for a partition, and those of its longest message."""
    if not piece:
        return problem.source.itemsize, problem.source.itemsize
    outbox = shape.slab * math.prod(piece) * problem.source.itemsize
    along = piece[shape.split]
    taken = min(along, shape.region[shape.split] * problem.target.grid.chunks[shape.split])
    return outbox, outbox // along * taken


def batch_of(nbytes: int, units: int, ranks: int) -> int:
    """Return the number of units of one task: regions, or boxes of source chunks, of a number of bytes each."""
    enough = max(BATCH_BYTES // max(nbytes, 1), ceil_div(units, MAX_TASKS // 4), 1)
    return min(enough, ceil_div(units, ranks))


def batches(units: int, ranks: int, batch: int) -> int:
    """Return the number of tasks of all ranks, which take the units in turn."""
    each, more = divmod(units, ranks)
    return more * ceil_div(each + 1, batch) + (ranks - more) * ceil_div(each, batch)


def _idle(problem: Problem, shape: Shape, units: int) -> float:
    ranks = problem.ranks
    if shape.method == "independent":
        return ceil_div(units, ranks) * ranks / units
    if not shape.region:
        return float(ranks)
    shared = min(shape.region[shape.split] * ranks, problem.target.grid.counts[shape.split])
    return ceil_div(shared, ranks) * ranks / shared


def _traffic(problem: Problem, shape: Shape, lie: _Lie, units: int, batch: int, exchanges: int) -> Traffic:
    source, target, ranks = problem.source, problem.target, problem.ranks
    load = (load_of if problem.resources.on_workers else load_in_place)(problem.schedule)
    rounds = exchanges // ranks
    visits = lie.visits
    whole = visits * source.chunk_bytes
    read_bytes = {
        "chunks": int(whole * problem.resources.costs.stored_ratio(source)),
        "sieved": lie.span * source.itemsize,
    }
    written = target.padded_bytes
    if exchanges and problem.resources.on_workers:
        tasks = rounds * (4 * ranks + 1)
    elif exchanges:
        tasks = rounds * (2 * ranks + load.receives) + units * ranks
    else:
        tasks = batches(units, ranks, batch)
    return Traffic(
        read_requests=lie.requests if shape.access == "ranges" else visits,
        read_bytes=read_bytes.get(shape.access, source.nbytes),
        index_requests=source.shards * (problem.resources.workers or 1),
        decoded_bytes=whole if source.coded else 0,
        copied_bytes=source.nbytes * (2 if exchanges and problem.resources.on_workers else 1),
        copied_runs=copied_runs(problem),
        pieces=visits,
        write_requests=target.grid.count,
        encoded_bytes=written if target.coded else 0,
        packed_bytes=written if target.shard_chunks else 0,
        written_bytes=int(written * problem.resources.costs.stored_ratio(target))
        + target.grid.count * target.index_bytes,
        messages=rounds * load.messages,
        exchanged_bytes=source.nbytes * load.parts // ranks**2 if exchanges else 0,
        tasks=tasks,
    )


def copied_runs(problem: Problem) -> int:
    """Return the contiguous runs of a copy from source chunks to target chunks: an estimate from the fastest axis."""
    grid, source = problem.target.grid, problem.source
    if not grid.shape:
        return 1
    axis, there = ((stored.order or range(len(grid.shape)))[-1] for stored in (problem.target, source))
    if axis != there:  # each element is a run, and 8 are copied in the time of one
        return math.prod(grid.shape) // 8
    run = min(grid.chunks[axis], source.grid.chunks[axis], grid.shape[axis])
    return math.prod(grid.shape) // max(run, 1)
