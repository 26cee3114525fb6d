"""The best single pass from one stored array to another in a budget: candidates, counted and compared.

Every candidate is a shape of region that fits. What it costs follows from `overlap`, exactly; which one is best
follows from `cost`, a model. There is no rule of thumb beside these two.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations, product
from operator import mul
from typing import NamedTuple

from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div
from oocarrays.mapping.orientation import turned, turned_back
from oocarrays.mapping.overlap import (
    axis_overlap,
    chunk_visits,
    range_requests,
    span_elements,
    tile_shape,
    touched_by_region,
)
from oocarrays.plan.cost import Phases, Pipeline, Traffic, Waits, pass_seconds
from oocarrays.plan.exchange.ordering import load_in_place, load_of
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.memory import Memory
from oocarrays.plan.rechunk.passes import ALONE, Access, Method, Pass, unit_chunks
from oocarrays.plan.resources import Resources

MIB = 2**20
BASE_BYTES = 24 * MIB
"""What a run holds beside its buffers: threads' stacks, the graph's first tasks, file names."""
TASK_BYTES = 4096
"""What the graph holds for each task."""
HELD = ("stacks", "graph", "index", "counters", "regions", "messages", "chunks", "codecs")
"""Names of what a process holds: of the run, and of all its ranks."""
TILE_BYTES = MIB
"""A tile stays in a core's cache between the read and the copy."""
MAX_TASKS = 9_000
"""Tasks of a pass that nobody notices."""
RUNNABLE_TASKS = 298_000
"""Tasks of a pass that a scheduler gets through in a few minutes, and keeps in half a gigabyte."""
BATCH_BYTES = 64 * MIB
SLAB_BYTES = (0, 32 * MIB, 256 * MIB)
FRACTIONS = (1, 2, 4, 8)
MOST_AXES = 8
"""Axes that are looked at, at most, where there are many: from which regions are grown, along which they are shared."""
REQUESTS = (1, 4, 8, 16, 32, 64, 128)
"""Requests that a rank may have under way, worth a look."""
TURNED = 8
"""Elements that are copied in the time of a run, where each is one: from chunks in which another axis runs fastest."""
WHOLE_CREDIT = 2
"""Messages that come to a rank at one time, where one task holds the whole exchange and they come as they come."""
TRAVEL_COPIES = 2
"""A library holds a message twice while it joins the parts that came, or copies what goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One pass to be planned."""

    source: Stored
    target: Stored
    resources: Resources
    """Memory, processes and requests that it may use."""
    schedule: Schedule
    """The order in which ranks exchange."""
    any_order: bool = False
    """Whether another order may be taken, where it is predicted to take less time."""
    remote_scratch: bool = False
    """Whether scratch arrays are in a store that is reached so."""

    @property
    def ranks(self) -> int:
        """Logical processors."""
        return self.schedule.ranks

    @property
    def whole(self) -> bool:
        """Whether one task a rank holds the whole exchange of a round: where ranks are many, or take what has come."""
        steps = self.ranks < self.resources.steps_below and self.resources.synchronous
        return self.resources.on_workers and not steps

    @property
    def under_way(self) -> int:
        """Parts that a rank holds at one time beside its region: those it takes, those that come, those it carries."""
        load = load_of(self.schedule)
        if self.whole and not self.schedule.forwards:
            return 2 if self.resources.synchronous else 1 + WHOLE_CREDIT
        return load.held if self.resources.synchronous else load.held_at_most

    @property
    def neighbours(self) -> int:
        """Ranks in one process."""
        return self.resources.ranks_of_a_process(self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A candidate, before it is counted."""

    method: Method
    access: Access
    region: tuple[int, ...]
    split: int
    slab: int
    slabs: int
    depth: int
    behind: bool
    requests: int
    workspace: tuple[int, int] = (0, 0)
    """Bytes of chunks that a rank keeps, and of what reading and writing take beside them."""

    @property
    def kept(self) -> bool:
        """Whether messages wait in scratch."""
        return self.method == "kept"


class Infeasible(Exception):
    """No pass of this kind fits the budget.

    Parameters
    ----------
    least : int
        Bytes that the smallest one needs.
    """

    def __init__(self, least: int):
        self.least = least
        super().__init__(f"needs {least} bytes")


def counted_passes(problem: Problem, method: Method) -> Iterator[Counted]:
    """Every pass of a method in which ranks build whole target chunks, counted."""
    return (_count(problem, shape) for shape in _shapes(problem, method))


def best_pass(problem: Problem, counted: Iterable[Counted]) -> Pass:
    """The cheapest pass that fits, of those that were counted.

    Raises
    ------
    Infeasible
        Where even one chunk a rank is too much.
    """
    ways = list(counted)
    fitting = [way for way in ways if way.peak_bytes <= problem.resources.budget]
    if not fitting:
        raise Infeasible(min(way.peak_bytes for way in ways))
    best = min(fitting, key=lambda way: (too_many(way.traffic.tasks), way.seconds, way.peak_bytes))
    return best.made(problem)


def too_many(tasks: int) -> int:
    """Say how far a graph is beyond what a scheduler does beside all else: 0 for not at all, 2 for one to be avoided.

    >>> too_many(1000), too_many(100_000), too_many(7_000_000)
    (0, 1, 2)
    """
    return (tasks > MAX_TASKS) + (tasks > RUNNABLE_TASKS)


def fits(problem: Problem, counted: Iterable[Counted]) -> bool:
    """Whether any pass fits: the first one that does ends the search."""
    return any(each.peak_bytes <= problem.resources.budget for each in counted)


def _accesses(problem: Problem, method: Method) -> tuple[Access, ...]:
    source = problem.source
    if source.coded or (method != "independent" and not problem.resources.on_workers):
        return ("chunks",)
    if source.remote:
        return ("sieved", "ranges")
    cached = source.local and source.nbytes <= problem.resources.costs.cache_bytes
    return ("mapped", "ranges", "chunks") if cached else ("ranges", "chunks")


def _shapes(problem: Problem, method: Method) -> Iterator[Shape]:
    can_wait = problem.target.made and not problem.target.travel_bytes
    for access, (depth, slabs, slab), behind in product(
        _accesses(problem, method), _holdings(problem, method), (True, False) if can_wait else (False,)
    ):
        shape = Shape(
            method=method,
            access=access,
            region=(),
            split=0,
            slab=slab,
            slabs=slabs,
            depth=depth,
            behind=behind,
            requests=1,
        )
        yield from _sized(problem, shape)


def _sized(problem: Problem, shape: Shape) -> Iterator[Shape]:
    """A candidate with every number of requests under way, and every region that may fit beside them."""
    method = shape.method
    for requests in _requests(problem, shape):
        shape = replace(shape, requests=requests)
        shape = replace(shape, workspace=_workspace(problem, shape))
        fixed = BASE_BYTES + MIB + problem.source.index_workspace + problem.neighbours * sum(shape.workspace)
        held = problem.neighbours * _held_regions(problem, shape) * problem.target.chunk_bytes
        chunks = int((problem.resources.budget - fixed) // held)
        if method == "kept":  # a single partition has no messages to keep
            chunks = min(chunks, problem.target.grid.count // (2 * problem.ranks))
        shared = method != "independent"
        for region, split in _regions(problem.target.grid.counts, max(chunks, 1), problem.ranks, shared=shared):
            yield replace(shape, region=region, split=split)


def _requests(problem: Problem, shape: Shape) -> list[int]:
    """Numbers of requests that a rank may have under way: its reads and its writes, where they are at one time."""
    if not (problem.source.travel_bytes or problem.target.travel_bytes):
        return [1]
    streams = 1 if shape.method == "independent" else shape.slabs + shape.depth
    most = max(problem.resources.requests // (problem.neighbours * streams), 1)
    return [n for n in REQUESTS if n < most] + [min(most, REQUESTS[-1])]


def _holdings(problem: Problem, method: Method) -> list[tuple[int, int, int]]:
    """Depths, numbers of slabs and source chunks of one that are worth a look."""
    if method == "independent":
        return [(1, 1, 1)]
    if problem.resources.on_workers:
        return [(1, 1, 1), (1, 2, 1), (2, 2, 1)]
    most = ceil_div(problem.source.grid.count, problem.ranks)
    slabs = {min(max(nbytes // problem.source.chunk_bytes, 1), most) for nbytes in SLAB_BYTES}
    return [(*held, slab) for held in ((1, 1), (1, 2), (2, 2)) for slab in sorted(slabs)]


def _held_regions(problem: Problem, shape: Shape) -> float:
    """Regions, and what is as large as one, that a rank holds: what it has packed for a partition, and messages."""
    if shape.method == "independent" or not problem.resources.on_workers:
        return shape.depth
    return shape.depth + shape.slabs + problem.under_way / problem.ranks


def _workspace(problem: Problem, shape: Shape) -> tuple[int, int]:
    """Bytes that one rank holds beside its region: slabs or a tile, a message to be kept; and what codecs need."""
    target = problem.target
    held, reading = _reading_workspace(problem, shape)
    putting = shape.requests * target.travel_bytes
    writing = shape.depth * (target.encode_workspace + target.behind_workspace * shape.behind + putting)
    never_both = shape.method == "independent" or (problem.resources.on_workers and shape.slabs == shape.depth == 1)
    return held, max(reading, writing) if never_both else reading + writing


def _reading_workspace(problem: Problem, shape: Shape) -> tuple[int, int]:
    """Bytes of chunks that a rank keeps, and bytes that it needs only while it reads."""
    source, chunk = problem.source, problem.source.chunk_bytes
    if shape.access == "mapped":
        return 0, 2 * chunk if problem.resources.on_workers else 0  # a worker's limit counts the pages of files
    if shape.access == "ranges":
        return 0, TILE_BYTES if source.local else (1 + TRAVEL_COPIES) * TILE_BYTES
    if shape.access == "sieved":
        return 0, shape.requests * source.travel_bytes
    chunks = 1 if problem.resources.on_workers else shape.slab * shape.slabs + 2 * shape.kept
    pages = chunk if problem.resources.on_workers and source.coded else 0
    getting = shape.requests * source.travel_bytes
    return chunks * chunk, shape.slabs * (source.decode_workspace + getting) + pages


@lru_cache(maxsize=128)
def _regions(
    counts: tuple[int, ...], chunks: int, ranks: int, *, shared: bool
) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Boxes of at most ``chunks`` target chunks, and for partitions, which ranks share, the axis that is shared out."""
    axes = tuple(axis for axis, n in enumerate(counts) if n > 1)
    boxes = dict.fromkeys(
        box
        for order, fraction in product(_axis_orders(axes), FRACTIONS)
        for box in _boxes(counts, order, max(chunks // fraction, 1), ranks)
    )
    return tuple((box, split) for box in boxes for split in (_splits(counts, box) if shared else (0,)))


def _splits(counts: tuple[int, ...], region: tuple[int, ...]) -> tuple[int, ...]:
    left = _some(tuple(axis for axis, (n, r) in enumerate(zip(counts, region, strict=True)) if r < n))
    return left or (max(range(len(counts)), key=counts.__getitem__, default=0),)


def _some(axes: Sequence[int]) -> tuple[int, ...]:
    """All axes, or where they are many some of them, evenly."""
    return tuple(axes[:: max(ceil_div(len(axes), MOST_AXES), 1)])


def _axis_orders(axes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Orders of the axes along which there are several chunks."""
    if len(axes) <= 3:
        yield from permutations(axes)
        return
    for axis in _some(axes):
        first = axes.index(axis)
        forward = axes[first:] + axes[:first]
        yield forward
        yield forward[::-1]


def _boxes(counts: tuple[int, ...], order: tuple[int, ...], chunks: int, ranks: int) -> Iterator[tuple[int, ...]]:
    """A box grown axis by axis in ``order``, evened out; and the same with a multiple of ``ranks`` boxes."""
    region, room = [1] * len(counts), chunks
    for axis in order:
        region[axis] = min(counts[axis], max(room, 1))
        room //= region[axis]
    parts = [ceil_div(n, r) for n, r in zip(counts, region, strict=True)]
    even = tuple(map(ceil_div, counts, parts))
    yield even
    for axis in _some(sorted(order)):
        more = ceil_div(parts[axis], ranks) * ranks
        yield (*even[:axis], ceil_div(counts[axis], more), *even[axis + 1 :])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lie:
    """How units lie over source chunks: the same for all candidates that differ in what they hold."""

    visits: int
    requests: int
    span: int
    touched: Counter[int]


@lru_cache(maxsize=4096)
def _lie(source: ChunkGrid, sizes: tuple[int, ...], tile: tuple[int, ...]) -> _Lie:
    axes = list(map(axis_overlap, source.shape, source.chunks, sizes, tile))
    return _Lie(
        visits=chunk_visits(axes),
        requests=range_requests(axes),
        span=span_elements(axes, source.chunks),
        touched=touched_by_region(axes),
    )


class Counted(NamedTuple):
    """A candidate that has been counted."""

    shape: Shape
    """What it is."""
    held: tuple[int, ...]
    """Bytes that a process holds, of each of `HELD`."""
    seconds: float
    """Predicted."""
    phases: Phases
    """Predicted, of all ranks together."""
    traffic: Traffic
    """What moves."""
    tile: tuple[int, ...]
    """Elements in each axis of what is read before it is copied."""
    batch: int
    """Regions that one task works through."""
    read_ahead: bool
    """Whether the operating system is asked to fetch the next chunks whole."""
    packed: tuple[int, int] = (0, 0)
    """Bytes of all messages that a rank packs for a partition, and of the longest."""

    @property
    def peak_bytes(self) -> int:
        """Bytes that a process holds at one time, at most."""
        return sum(self.held)

    def made(self, problem: Problem) -> Pass:
        """Make it a pass."""
        shape, workers = self.shape, problem.resources.on_workers
        return Pass(
            source=problem.source,
            target=problem.target,
            method=shape.method,
            access=shape.access,
            ranks=problem.ranks,
            region=shape.region,
            split=shape.split,
            slab=shape.slab,
            slabs=shape.slabs,
            depth=shape.depth,
            tile=self.tile,
            batch=self.batch,
            packed=workers and shape.method == "two-phase",
            whole=problem.whole and shape.method == "two-phase",
            scheduler_seconds=workers * self.traffic.tasks * problem.resources.costs.scheduler_seconds,
            synchronous=problem.resources.synchronous,
            outbox_bytes=self.packed[0],
            message_bytes=self.packed[1],
            requests=shape.requests,
            write_behind=shape.behind,
            read_ahead=self.read_ahead,
            traffic=self.traffic,
            memory=Memory(tuple(zip(HELD, self.held, strict=True))),
            seconds=self.seconds,
            phases=self.phases,
            exchange=None if shape.method in ALONE else problem.schedule,
        )


def _count(problem: Problem, shape: Shape) -> Counted:
    """Count a candidate: what it moves, holds and takes."""
    source, target, ranks = problem.source, problem.target, problem.ranks
    unit = unit_chunks(shape.method, shape.region, shape.split, ranks)
    packed = problem.resources.on_workers and shape.method == "two-phase"
    counts, sizes = target.grid.counts, tuple(map(mul, unit, target.grid.chunks))
    piece = list(map(min, source.grid.chunks, sizes))
    tile = tile_shape(turned(piece, source.order), source.itemsize, TILE_BYTES)
    units = math.prod(map(ceil_div, counts, unit))
    whole = tuple(map(mul, counts, target.grid.chunks)) if shape.kept else sizes
    lie = _lie(source.lying.grid, turned(whole, source.order), tile)
    batch = _batch(problem, shape, units)
    if packed:
        shape = replace(shape, slab=ceil_div(max(lie.touched), ranks))
    exchanges = _exchanges(problem, shape, lie.touched)
    traffic = _traffic(problem, shape, lie, units, batch, exchanges)
    turns = exchanges * shape.slabs or units
    region_bytes = math.prod(shape.region) * target.chunk_bytes
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
            whole=problem.whole,
            ahead=shape.slabs > 1,
            behind=shape.behind or not target.made or bool(target.travel_bytes),
            waits=_waits(problem, shape, traffic, units, exchanges),
        ),
    )
    graph = 0 if problem.resources.on_workers else traffic.tasks * TASK_BYTES
    held = BASE_BYTES, graph, source.index_workspace, 0, *(problem.neighbours * nbytes for nbytes in each)
    ahead = source.local and traffic.read_bytes <= problem.resources.costs.cache_bytes
    return Counted(shape, held, seconds, phases, traffic, turned_back(tile, source.order), batch, ahead, packed_bytes)


def _waits(problem: Problem, shape: Shape, traffic: Traffic, units: int, exchanges: int) -> Waits:
    """Answers of the network that are waited for one after the other: at least one in each piece of work."""
    source, target = problem.source, problem.target
    tasks = units * (1 if shape.method == "independent" else problem.ranks)
    reads = traffic.pieces if shape.access == "ranges" else exchanges or units
    at_once = shape.requests if source.travel_bytes else 1
    puts = shape.requests if target.travel_bytes else 1
    return Waits(
        reading=max(reads, traffic.read_requests / at_once) if source.remote else 0.0,
        writing=max(tasks, traffic.write_requests / puts) if target.remote else 0.0,
    )


def _packed_bytes(problem: Problem, shape: Shape, piece: list[int]) -> tuple[int, int]:
    """Bytes that a rank packs for a partition, and bytes of the longest of those messages, at most."""
    if not piece:
        return problem.source.itemsize, problem.source.itemsize
    outbox = shape.slab * math.prod(piece) * problem.source.itemsize
    along = piece[shape.split]
    taken = min(along, shape.region[shape.split] * problem.target.grid.chunks[shape.split])
    return outbox, outbox // along * taken


def _batch(problem: Problem, shape: Shape, units: int) -> int:
    region_bytes = math.prod(shape.region) * problem.target.chunk_bytes
    enough = max(BATCH_BYTES // max(region_bytes, 1), ceil_div(units, MAX_TASKS // 4), 1)
    return min(enough, ceil_div(units, problem.ranks))


def _idle(problem: Problem, shape: Shape, units: int) -> float:
    ranks = problem.ranks
    if shape.method == "independent":
        return ceil_div(units, ranks) * ranks / units
    if not shape.region:
        return float(ranks)
    shared = min(shape.region[shape.split] * ranks, problem.target.grid.counts[shape.split])
    return ceil_div(shared, ranks) * ranks / shared


def _exchanges(problem: Problem, shape: Shape, touched: Counter[int]) -> int:
    """Rounds of all partitions, times ranks."""
    if shape.method == "independent":
        return 0
    at_once = problem.ranks * shape.slab
    return sum(ceil_div(chunks, at_once) * units for chunks, units in touched.items()) * problem.ranks


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
        says = load.receives if problem.resources.synchronous else 0
        each = 4 * ranks + load.messages + load.receives + load.carries + says
        tasks = rounds * (4 * ranks + 1 if problem.whole else each)
    elif exchanges:
        tasks = rounds * (2 * ranks + load.receives) + units * ranks + (units - 1) * ranks * shape.kept
    else:
        each, more = divmod(units, ranks)
        tasks = more * ceil_div(each + 1, batch) + (ranks - more) * ceil_div(each, batch)
    return Traffic(
        read_requests=lie.requests if shape.access == "ranges" else visits,
        read_bytes=read_bytes.get(shape.access, source.nbytes),
        index_requests=source.shards * (problem.resources.workers or 1),
        mapped_bytes=whole if shape.access == "mapped" else 0,
        decoded_bytes=whole if source.coded else 0,
        copied_bytes=source.nbytes * (2 if exchanges and problem.resources.on_workers else 1),
        copied_runs=copied_runs(problem),
        pieces=visits * (units * ranks if shape.kept else 1),
        write_requests=target.grid.count,
        encoded_bytes=written if target.coded else 0,
        packed_bytes=written if target.shard_chunks else 0,
        written_bytes=int(written * problem.resources.costs.stored_ratio(target))
        + target.grid.count * target.index_bytes,
        kept_bytes=_kept_bytes(problem, shape) if shape.kept else 0,
        messages=rounds * load.messages,
        exchanged_bytes=source.nbytes * load.parts // ranks**2 if exchanges else 0,
        tasks=tasks,
    )


def _kept_bytes(problem: Problem, shape: Shape) -> int:
    """Bytes of all but the first partition."""
    source, target = problem.source, problem.target.grid
    unit = unit_chunks(shape.method, shape.region, shape.split, problem.ranks)
    first = math.prod(min(u * c, n) for u, c, n in zip(unit, target.chunks, target.shape, strict=True))
    return source.nbytes - first * source.itemsize


def copied_runs(problem: Problem) -> int:
    """Contiguous runs of a copy from source chunks to target chunks: an estimate from the axis that is fastest."""
    grid, source = problem.target.grid, problem.source
    if not grid.shape:
        return 1
    axis, there = ((stored.order or range(len(grid.shape)))[-1] for stored in (problem.target, source))
    if axis != there:
        return math.prod(grid.shape) // TURNED
    run = min(grid.chunks[axis], source.grid.chunks[axis], grid.shape[axis])
    return math.prod(grid.shape) // max(run, 1)
