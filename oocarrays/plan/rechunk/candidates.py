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

from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div
from oocarrays.mapping.overlap import (
    axis_overlap,
    chunk_visits,
    range_requests,
    span_elements,
    tile_shape,
    touched_by_region,
)
from oocarrays.plan.cost import Costs, Pipeline, Traffic, Waits, pass_seconds
from oocarrays.plan.exchange.ordering import load_in_place, load_of
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.rechunk.passes import Access, Method, Pass, unit_chunks
from oocarrays.plan.resources import Resources

MIB = 2**20
BASE_BYTES = 24 * MIB
"""What a run holds beside its buffers: threads' stacks, the graph's first tasks, file names."""
TASK_BYTES = 4096
"""What the graph holds for each task."""
TILE_BYTES = MIB
"""A tile stays in a core's cache between the read and the copy."""
MAX_TASKS = 9_000
BATCH_BYTES = 64 * MIB
SLAB_BYTES = (0, 32 * MIB, 256 * MIB)
FRACTIONS = (1, 2, 4, 8)
MOST_AXES = 8
"""Axes that are looked at, at most, where there are many: from which regions are grown, along which they are shared."""
REQUESTS = (1, 4, 8, 16, 32, 64, 128)
"""Requests that a rank may have under way, worth a look."""
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
    def costs(self) -> Costs:
        """Seconds that each kind of work takes."""
        return self.resources.costs

    @property
    def on_workers(self) -> bool:
        """Whether ranks are on workers of a cluster."""
        return self.resources.workers is not None

    @property
    def under_way(self) -> int:
        """Parts that a rank holds at one time beside its region: those it takes, those that come, those it carries."""
        load = load_of(self.schedule)
        return load.held if self.resources.synchronous else load.held_at_most

    @property
    def neighbours(self) -> int:
        """Ranks in one process."""
        return self.resources.ranks_of_a_process(self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
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


def counted_passes(problem: Problem, method: Method) -> Iterator[Pass]:
    """Every pass of a method in which ranks build whole target chunks, counted."""
    return (_count(problem, shape) for shape in _shapes(problem, method))


def best_pass(problem: Problem, counted: Iterable[Pass]) -> Pass:
    """The cheapest pass that fits, of those that were counted.

    Raises
    ------
    Infeasible
        Where even one chunk a rank is too much.
    """
    passes = list(counted)
    fitting = [p for p in passes if p.peak_bytes <= problem.resources.budget]
    if not fitting:
        raise Infeasible(min(p.peak_bytes for p in passes))
    return min(fitting, key=lambda p: (p.traffic.tasks > MAX_TASKS, p.seconds, p.peak_bytes))


def fits(problem: Problem, counted: Iterable[Pass]) -> bool:
    """Whether any pass fits: the first one that does ends the search."""
    return any(each.peak_bytes <= problem.resources.budget for each in counted)


def _accesses(problem: Problem, method: Method) -> tuple[Access, ...]:
    source = problem.source
    if source.coded or (method != "independent" and not problem.on_workers):
        return ("chunks",)
    if source.remote:
        return ("sieved", "ranges")
    cached = source.local and source.nbytes <= problem.costs.cache_bytes
    return ("mapped", "ranges", "chunks") if cached else ("ranges", "chunks")


def _shapes(problem: Problem, method: Method) -> Iterator[_Shape]:
    can_wait = problem.target.made and not problem.target.travel_bytes
    for access, (depth, slabs, slab), behind in product(
        _accesses(problem, method), _holdings(problem, method), (True, False) if can_wait else (False,)
    ):
        shape = _Shape(
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


def _sized(problem: Problem, shape: _Shape) -> Iterator[_Shape]:
    """A candidate with every number of requests under way, and every region that may fit beside them."""
    method = shape.method
    for requests in _requests(problem, shape):
        shape = replace(shape, requests=requests)
        fixed = BASE_BYTES + MIB + problem.source.index_workspace + problem.neighbours * _workspace(problem, shape)
        held = problem.neighbours * _held_regions(problem, shape) * problem.target.chunk_bytes
        chunks = int((problem.resources.budget - fixed) // held)
        if method == "kept":  # a single partition has no messages to keep
            chunks = min(chunks, problem.target.grid.count // (2 * problem.ranks))
        shared = method != "independent"
        for region, split in _regions(problem.target.grid.counts, max(chunks, 1), problem.ranks, shared=shared):
            yield replace(shape, region=region, split=split)


def _requests(problem: Problem, shape: _Shape) -> list[int]:
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
    if problem.on_workers:
        return [(1, 1, 1), (1, 2, 1), (2, 2, 1)]
    most = ceil_div(problem.source.grid.count, problem.ranks)
    slabs = {min(max(nbytes // problem.source.chunk_bytes, 1), most) for nbytes in SLAB_BYTES}
    return [(*held, slab) for held in ((1, 1), (1, 2), (2, 2)) for slab in sorted(slabs)]


def _held_regions(problem: Problem, shape: _Shape) -> float:
    """Regions, and what is as large as one, that a rank holds: what it has packed for a partition, and messages."""
    if shape.method == "independent" or not problem.on_workers:
        return shape.depth
    return shape.depth + shape.slabs + problem.under_way / problem.ranks


def _workspace(problem: Problem, shape: _Shape) -> int:
    """Bytes that one rank holds beside its region: slabs or a tile, a message to be kept, and what codecs need."""
    target = problem.target
    held, reading = _reading_workspace(problem, shape)
    putting = shape.requests * target.travel_bytes
    writing = shape.depth * (target.encode_workspace + target.behind_workspace * shape.behind + putting)
    never_both = shape.method == "independent" or (problem.on_workers and shape.slabs == shape.depth == 1)
    return held + (max(reading, writing) if never_both else reading + writing)


def _reading_workspace(problem: Problem, shape: _Shape) -> tuple[int, int]:
    """Bytes of chunks that a rank keeps, and bytes that it needs only while it reads."""
    source, chunk = problem.source, problem.source.chunk_bytes
    if shape.access == "mapped":
        return 0, 2 * chunk if problem.on_workers else 0  # a worker's limit counts the pages of files
    if shape.access == "ranges":
        return 0, TILE_BYTES if source.local else (1 + TRAVEL_COPIES) * TILE_BYTES
    if shape.access == "sieved":
        return 0, shape.requests * source.travel_bytes
    chunks = 1 if problem.on_workers else shape.slab * shape.slabs + 2 * shape.kept
    pages = chunk if problem.on_workers and source.coded else 0
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


def _count(problem: Problem, shape: _Shape) -> Pass:
    """Count a candidate: what it moves, holds and takes."""
    source, target, ranks = problem.source, problem.target, problem.ranks
    unit = unit_chunks(shape.method, shape.region, shape.split, ranks)
    packed = problem.on_workers and shape.method == "two-phase"
    counts, sizes = target.grid.counts, tuple(map(mul, unit, target.grid.chunks))
    piece = list(map(min, source.grid.chunks, sizes))
    tile = tile_shape(piece, source.itemsize, TILE_BYTES)
    units = math.prod(map(ceil_div, counts, unit))
    lie = _lie(source.grid, tuple(map(mul, counts, target.grid.chunks)) if shape.kept else sizes, tile)
    batch = _batch(problem, shape, units)
    if packed:
        shape = replace(shape, slab=ceil_div(max(lie.touched), ranks))
    exchanges = _exchanges(problem, shape, lie.touched)
    traffic = _traffic(problem, shape, lie, units, batch, exchanges)
    turns = exchanges * shape.slabs or units
    region_bytes = math.prod(shape.region) * target.chunk_bytes
    outbox_bytes, message_bytes = _packed_bytes(problem, shape, piece) if packed else (0, 0)
    holds = shape.depth * region_bytes + shape.slabs * outbox_bytes + problem.under_way * message_bytes
    workspace = _workspace(problem, shape)
    seconds, phases = pass_seconds(
        traffic,
        problem.costs,
        source,
        target,
        Pipeline(
            ranks=ranks,
            turns=turns,
            idle=_idle(problem, shape, units),
            workers=problem.on_workers,
            touched=ranks * (holds + workspace),
            synchronous=problem.resources.synchronous,
            ahead=shape.slabs > 1,
            behind=shape.behind or not target.made or bool(target.travel_bytes),
            waits=_waits(problem, shape, traffic, units, exchanges),
        ),
    )
    graph = 0 if problem.on_workers else traffic.tasks * TASK_BYTES
    return Pass(
        source=source,
        target=target,
        method=shape.method,
        access=shape.access,
        ranks=ranks,
        region=shape.region,
        split=shape.split,
        slab=shape.slab,
        slabs=shape.slabs,
        depth=shape.depth,
        tile=tile,
        batch=batch,
        packed=packed,
        synchronous=problem.resources.synchronous,
        outbox_bytes=outbox_bytes,
        message_bytes=message_bytes,
        requests=shape.requests,
        write_behind=shape.behind,
        read_ahead=source.local and traffic.read_bytes <= problem.costs.cache_bytes,
        traffic=traffic,
        peak_bytes=BASE_BYTES + graph + source.index_workspace + problem.neighbours * (holds + workspace),
        seconds=seconds,
        phases=phases,
        exchange=None if shape.method == "independent" else problem.schedule,
    )


def _waits(problem: Problem, shape: _Shape, traffic: Traffic, units: int, exchanges: int) -> Waits:
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


def _packed_bytes(problem: Problem, shape: _Shape, piece: list[int]) -> tuple[int, int]:
    """Bytes that a rank packs for a partition, and bytes of the longest of those messages, at most."""
    if not piece:
        return problem.source.itemsize, problem.source.itemsize
    outbox = shape.slab * math.prod(piece) * problem.source.itemsize
    along = piece[shape.split]
    taken = min(along, shape.region[shape.split] * problem.target.grid.chunks[shape.split])
    return outbox, outbox // along * taken


def _batch(problem: Problem, shape: _Shape, units: int) -> int:
    region_bytes = math.prod(shape.region) * problem.target.chunk_bytes
    enough = max(BATCH_BYTES // max(region_bytes, 1), ceil_div(units, MAX_TASKS // 4), 1)
    return min(enough, ceil_div(units, problem.ranks))


def _idle(problem: Problem, shape: _Shape, units: int) -> float:
    ranks = problem.ranks
    if shape.method == "independent":
        return ceil_div(units, ranks) * ranks / units
    if not shape.region:
        return float(ranks)
    shared = min(shape.region[shape.split] * ranks, problem.target.grid.counts[shape.split])
    return ceil_div(shared, ranks) * ranks / shared


def _exchanges(problem: Problem, shape: _Shape, touched: Counter[int]) -> int:
    """Rounds of all partitions, times ranks."""
    if shape.method == "independent":
        return 0
    at_once = problem.ranks * shape.slab
    return sum(ceil_div(chunks, at_once) * units for chunks, units in touched.items()) * problem.ranks


def _traffic(problem: Problem, shape: _Shape, lie: _Lie, units: int, batch: int, exchanges: int) -> Traffic:
    source, target, ranks = problem.source, problem.target, problem.ranks
    load = (load_of if problem.on_workers else load_in_place)(problem.schedule)
    rounds = exchanges // ranks
    visits = lie.visits
    whole = visits * source.chunk_bytes
    read_bytes = {
        "chunks": int(whole * problem.costs.stored_ratio(source)),
        "sieved": lie.span * source.itemsize,
    }
    written = target.padded_bytes
    if exchanges and problem.on_workers:
        says = load.receives if problem.resources.synchronous else 0
        tasks = rounds * (4 * ranks + load.messages + load.receives + load.carries + says)
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
        copied_bytes=source.nbytes * (2 if exchanges and problem.on_workers else 1),
        copied_runs=_runs(problem),
        pieces=visits * (units * ranks if shape.kept else 1),
        write_requests=target.grid.count,
        encoded_bytes=written if target.coded else 0,
        packed_bytes=written if target.shard_chunks else 0,
        written_bytes=int(written * problem.costs.stored_ratio(target)) + target.grid.count * target.index_bytes,
        kept_bytes=_kept_bytes(problem, shape) if shape.kept else 0,
        messages=rounds * load.messages,
        exchanged_bytes=source.nbytes * load.parts // ranks**2 if exchanges else 0,
        tasks=tasks,
    )


def _kept_bytes(problem: Problem, shape: _Shape) -> int:
    """Bytes of all but the first partition."""
    source, target = problem.source, problem.target.grid
    unit = unit_chunks(shape.method, shape.region, shape.split, problem.ranks)
    first = math.prod(min(u * c, n) for u, c, n in zip(unit, target.chunks, target.shape, strict=True))
    return source.nbytes - first * source.itemsize


def _runs(problem: Problem) -> int:
    """Contiguous runs of a copy from source chunks to target chunks: an estimate from the last axis."""
    grid = problem.target.grid
    if not grid.shape:
        return 1
    run = min(grid.chunks[-1], problem.source.grid.chunks[-1], grid.shape[-1])
    return math.prod(grid.shape) // max(run, 1)
