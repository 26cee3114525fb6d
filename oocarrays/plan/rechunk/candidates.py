"""Best single pass from one stored array to another in a budget, by comparison of candidates.

Every candidate is a shape of region that fits. Its cost is counted; the best one follows from `cost`, a model. No
other rule decides.

Both neighbours of a scratch array read and write long runs of it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, permutations, product

from oocarrays.limits import TRAVEL_COPIES
from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div, chunks_along
from oocarrays.plan.plan import MIB
from oocarrays.plan.rechunk.counting import MAX_TASKS, RUNNABLE_TASKS, Counted
from oocarrays.plan.rechunk.passes import TILE_BYTES, Access, Method, Pass, Problem, Shape, some


def legs(problem: Problem, path: Sequence[tuple[int, ...]]) -> Iterator[Problem]:
    """Yield one pass after the other, through scratch arrays with these chunks."""
    shape = problem.source.grid.shape
    between = (scratch_array(problem, ChunkGrid.of(shape, chunks)) for chunks in path)
    for source, target in pairwise((problem.source, *between, problem.target)):
        yield replace(problem, source=source, target=target)


def scratch_array(problem: Problem, grid: ChunkGrid) -> Stored:
    """Return a plain array in scratch: local files, or network objects."""
    away, size = problem.remote_scratch, grid.chunk_size * problem.source.itemsize
    fits = problem.source.nbytes <= problem.resources.costs.cache_bytes / 4  # of more, the system writes data out
    return Stored(
        grid=grid,
        itemsize=problem.source.itemsize,
        local=not away,
        remote=away,
        travel_bytes=TRAVEL_COPIES * size if away else 0,
        decode_workspace=size if away else 0,
        encode_workspace=size if away else 0,
        cached=fits and not (away or problem.resources.on_workers),
    )


def scratch_paths(problem: Problem, stages: int) -> list[tuple[tuple[int, ...], ...]]:
    """Return the chunks of the scratch arrays of at most four ways, evenly chosen: each needs a search a pass."""
    found = sorted(set(_paths(problem, stages)))
    return found[:: ceil_div(len(found), 4)]


def _paths(problem: Problem, stages: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield scratch chunks: the common part of both sides' (as in rechunker), or steps in equal ratios between them."""
    room = max((problem.resources.budget - problem.base_bytes) // problem.neighbours, 1)
    shape = problem.source.grid.shape
    for start in _grown(problem.source, room):
        for stop in _grown(problem.target, room):
            if stages == 2:
                yield (at_least(tuple(map(min, start, stop)), shape, problem.source.itemsize),)
                continue
            steps = [i / (stages - 2) for i in range(stages - 1)]
            ends = list(zip(start, stop, strict=True))
            yield tuple(tuple(max(round(a ** (1 - step) * b**step), 1) for a, b in ends) for step in steps)


def _grown(stored: Stored, room: int) -> list[tuple[int, ...]]:
    """Return boxes of whole chunks of at most a quarter of ``room`` bytes, grown along one axis first."""
    shape, chunks = stored.grid.shape, stored.grid.chunks
    boxes = set()
    for first in some(range(len(shape))):
        box = [min(c, n) for c, n in zip(chunks, shape, strict=True)]
        for axis in (first, *(a for a in reversed(range(len(shape))) if a != first)):
            times = max(room // 4 // (math.prod(box) * stored.itemsize), 1)
            box[axis] = min(box[axis] * times, shape[axis])
        boxes.add(tuple(box))
    return sorted(boxes) or [()]


def at_least(chunk: tuple[int, ...], shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the chunk, lengthened from the last axis until it has a MiB, so that scratch has few files."""
    box = list(chunk)
    for axis in reversed(range(len(box))):
        missing = ceil_div(MIB, math.prod(box) * itemsize)
        box[axis] = min(box[axis] * missing, shape[axis])
    return tuple(box)


def best_pass(problem: Problem, counted: Iterable[Counted]) -> Pass | int:
    """Return the cheapest pass that fits, or the minimum bytes that one needs if none does."""
    ways = list(counted)
    fitting = [way for way in ways if way.peak_bytes <= problem.resources.budget]
    if not fitting:
        return min(way.peak_bytes for way in ways)
    limits = MAX_TASKS, RUNNABLE_TASKS  # larger graphs are considerable beside other work, and then to be avoided
    best = min(fitting, key=lambda way: (bisect_left(limits, way.traffic.tasks), way.seconds, way.peak_bytes))
    return best.made(problem)


def _accesses(problem: Problem, method: Method) -> tuple[Access, ...]:
    source = problem.source
    if source.coded or (method != "independent" and not problem.resources.on_workers):
        return ("chunks",)
    if source.remote:
        return ("sieved", "ranges")
    return ("ranges", "chunks")


def shapes(problem: Problem, method: Method) -> Iterator[Shape]:
    """Yield every candidate of a method in which ranks build whole target chunks."""
    can_wait = problem.target.made and not problem.target.travel_bytes
    for access, (depth, slabs, slab), behind in product(
        _accesses(problem, method), _holdings(problem, method), (True, False) if can_wait else (False,)
    ):
        shape = Shape(method=method, access=access, slab=slab, slabs=slabs, depth=depth, write_behind=behind)
        yield from _sized(problem, shape)


def _sized(problem: Problem, shape: Shape) -> Iterator[Shape]:
    """Yield a candidate with every number of requests, and every region that may fit in the remaining memory."""
    method, streams = shape.method, 1 if shape.method == "independent" else shape.slabs + shape.depth
    travels = problem.source.travel_bytes or problem.target.travel_bytes
    for requests in problem.requests_up_to(streams) if travels else [1]:
        shape = replace(shape, requests=requests)
        shape = replace(shape, workspace=_workspace(problem, shape))
        fixed = problem.base_bytes + MIB + problem.source.index_workspace + problem.neighbours * sum(shape.workspace)
        shared, regions = method != "independent", float(shape.depth)
        if shared and problem.resources.on_workers:  # and packed data of the same size, and messages
            regions += shape.slabs + problem.under_way / problem.ranks
        chunks = int((problem.resources.budget - fixed) // (problem.neighbours * regions * problem.target.chunk_bytes))
        for region, split in _regions(problem.target.grid.counts, max(chunks, 1), problem.ranks, shared=shared):
            if math.prod(region) > 1 or not shape.write_behind:  # behind one chunk no other is made
                yield replace(shape, region=region, split=split)


def _holdings(problem: Problem, method: Method) -> list[tuple[int, int, int]]:
    """Return the candidate depths, numbers of slabs, and source chunks of a slab."""
    if method == "independent":
        return [(1, 1, 1)]
    if problem.resources.on_workers:
        return [(1, 1, 1), (1, 2, 1), (2, 2, 1)]
    most = ceil_div(problem.source.grid.count, problem.ranks)
    slabs = {min(max(nbytes // problem.source.chunk_bytes, 1), most) for nbytes in (0, 32 * MIB, 256 * MIB)}
    return [(*held, slab) for held in ((1, 1), (1, 2), (2, 2)) for slab in sorted(slabs)]


def _workspace(problem: Problem, shape: Shape) -> tuple[int, int]:
    """Return a rank's bytes in addition to its region: slabs or a tile; and buffers of codecs and requests."""
    source, target, getting = problem.source, problem.target, shape.requests * problem.source.travel_bytes
    held, reading = 0, getting
    if shape.access == "ranges":
        reading = TILE_BYTES if source.local else (1 + TRAVEL_COPIES) * TILE_BYTES
    elif shape.access == "chunks":
        held = (1 if problem.resources.on_workers else shape.slab * shape.slabs) * source.chunk_bytes
        reading = shape.slabs * (source.decode_workspace + getting) + problem.coded_bytes
    putting = shape.requests * target.travel_bytes
    writing = shape.depth * (target.encode_workspace + target.behind_workspace * shape.write_behind + putting)
    never_both = shape.method == "independent" or (problem.resources.on_workers and shape.slabs == shape.depth == 1)
    return held, max(reading, writing) if never_both else reading + writing


@lru_cache(maxsize=128)
def _regions(
    counts: tuple[int, ...], chunks: int, ranks: int, *, shared: bool
) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Return about 100 boxes of at most ``chunks`` target chunks, with the axis along which ranks share a partition."""
    axes = tuple(axis for axis, n in enumerate(counts) if n > 1)
    boxes = dict.fromkeys(
        box
        for order, fraction in product(_axis_orders(axes), (1, 2, 4, 8))
        for box in _boxes(counts, order, max(chunks // fraction, 1), ranks)
    )
    found = tuple((box, split) for box in boxes for split in (_splits(counts, box) if shared else (0,)))
    return found[:: ceil_div(len(found), 100)]


def _splits(counts: tuple[int, ...], region: tuple[int, ...]) -> tuple[int, ...]:
    left = some(tuple(axis for axis, (n, r) in enumerate(zip(counts, region, strict=True)) if r < n))
    return left or (max(range(len(counts)), key=counts.__getitem__, default=0),)


def _axis_orders(axes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if len(axes) <= 3:
        yield from permutations(axes)
        return
    for axis in some(axes):
        first = axes.index(axis)
        forward = axes[first:] + axes[:first]
        yield forward
        yield forward[::-1]


def _boxes(counts: tuple[int, ...], order: tuple[int, ...], chunks: int, ranks: int) -> Iterator[tuple[int, ...]]:
    """Yield a box grown axis by axis in ``order``, evened out; and variants with a multiple of ``ranks`` boxes."""
    region = chunks_along(order[::-1], counts, chunks)
    parts = [ceil_div(n, r) for n, r in zip(counts, region, strict=True)]
    even = tuple(map(ceil_div, counts, parts))
    yield even
    for axis in some(sorted(order)):
        more = ceil_div(parts[axis], ranks) * ranks
        yield (*even[:axis], ceil_div(counts[axis], more), *even[axis + 1 :])
