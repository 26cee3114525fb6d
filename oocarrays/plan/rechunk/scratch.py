"""The scratch arrays on the way of a staged rechunk: plain Zarr arrays whose chunks lie between those of both ends.

Both neighbours of a scratch array read and write long runs of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div
from oocarrays.plan.rechunk.problem import MIB, TRAVEL_COPIES, Problem, some

LEAST_SCRATCH_CHUNK = MIB
"""Bytes: scratch is made of few files."""
PATHS = 4
"""Ways through scratch that are looked at for a number of passes: each takes a search for every pass."""
CACHED_SHARE = 0.25
"""Of what the system's cache can keep so much may be scratch: it begins to write out what is more by itself."""


def legs(problem: Problem, path: Sequence[tuple[int, ...]]) -> Iterator[Problem]:
    """One pass after the other, through scratch arrays of such chunks."""
    shape = problem.source.grid.shape
    between = (scratch_array(problem, ChunkGrid.of(shape, chunks)) for chunks in path)
    for source, target in pairwise((problem.source, *between, problem.target)):
        yield replace(problem, source=source, target=target)


def scratch_array(problem: Problem, grid: ChunkGrid) -> Stored:
    """A plain array in scratch: local files, or objects that travel."""
    away, size = problem.remote_scratch, grid.chunk_size * problem.source.itemsize
    fits = problem.source.nbytes <= CACHED_SHARE * problem.resources.costs.cache_bytes
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
    """Chunks of the scratch arrays on the way, `PATHS` at most, evenly chosen."""
    found = sorted(set(_paths(problem, stages)))
    return found[:: ceil_div(len(found), PATHS)]


def _paths(problem: Problem, stages: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Between a region of the source's chunks and one of the target's.

    With two passes each scratch chunk is the part that both have in common (as in rechunker's algorithm); with
    more, the scratch chunks step from the one to the other in equal ratios.
    """
    room = max((problem.resources.budget - problem.base_bytes) // problem.neighbours, 1)
    shape = problem.source.grid.shape
    for start in _grown(problem.source, room):
        for stop in _grown(problem.target, room):
            if stages == 2:
                yield (at_least(tuple(map(min, start, stop)), shape, problem.source.itemsize),)
                continue
            steps = [i / (stages - 2) for i in range(stages - 1)]
            yield tuple(_between(start, stop, step) for step in steps)


def _between(start: tuple[int, ...], stop: tuple[int, ...], step: float) -> tuple[int, ...]:
    return tuple(max(round(a ** (1 - step) * b**step), 1) for a, b in zip(start, stop, strict=True))


def _grown(stored: Stored, room: int) -> list[tuple[int, ...]]:
    """Boxes of whole chunks of at most a quarter of ``room`` bytes, grown along one axis first."""
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
    """The chunk, lengthened from the last axis until it is no tiny file."""
    box = list(chunk)
    for axis in reversed(range(len(box))):
        missing = ceil_div(LEAST_SCRATCH_CHUNK, math.prod(box) * itemsize)
        box[axis] = min(box[axis] * missing, shape[axis])
    return tuple(box)
