"""A pass that assembles target chunks in their stored files: each source chunk is read once, with little memory.

    source                     target, unfinished
    ┌─────────────┐  read      ┌───┬───┬───┐
    │ box 0       │ ─────────► │ a │ b │ c │   a piece of every box in every chunk that it touches,
    ├─────────────┤            │┄┄┄│┄┄┄│┄┄┄│   laid out in the chunk's memory order, written in place;
    │ box 1       │ ─────────► │ a │ b │ c │   a chunk's file is renamed once its last piece is written
    └─────────────┘            └───┴───┴───┘

A unit is a box of source chunks: one, or several side by side if the pieces of one would be short runs in the
target. Memory holds a box and the laid-out part of a piece, regardless of array sizes. All counts follow from
`overlap`; nothing is enumerated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

from oocarrays.mapping.grid import Stored, ceil_div, chunks_along, turned, turned_back
from oocarrays.mapping.overlap import axis_overlap
from oocarrays.mapping.section import Section
from oocarrays.plan.cost import SECTOR, Pipeline, Traffic, pass_seconds
from oocarrays.plan.plan import MIB
from oocarrays.plan.rechunk.counting import TASK_BYTES, Counted, batch_of, batches, copied_runs
from oocarrays.plan.rechunk.passes import Pass, Problem, Shape

STAGE_BYTES = 4 * MIB
"""Approximate bytes of a piece laid out at a time: enough for a request, and less than a core's cache."""


def assembled_passes(problem: Problem) -> Iterator[Counted]:
    """Yield every box of source chunks worth comparing, with its counts; none if the target is not stored plain."""
    if not problem.target.in_place:
        return
    fixed = problem.base_bytes + problem.source.index_workspace + _counters(problem)
    for requests in problem.requests_up_to() if problem.source.travel_bytes else [1]:
        room = (problem.resources.budget - fixed) // problem.neighbours - _workspace(problem, requests)
        for region in _boxes(problem, max(room // problem.source.chunk_bytes, 1)):
            yield _count(problem, region, requests)


def _counters(problem: Problem) -> int:
    """Return the bytes of a process for the remaining writers and the state of each target chunk."""
    return 0 if problem.resources.on_workers else problem.target.grid.count * 8


def _workspace(problem: Problem, requests: int) -> int:
    """Return the bytes that a rank needs to read, in addition to its box."""
    source = problem.source
    return source.decode_workspace + requests * source.travel_bytes + problem.coded_bytes


def _boxes(problem: Problem, room: int) -> Iterator[tuple[int, ...]]:
    """Yield about 1,000 boxes of up to ``room`` chunks along the last four axes, and enlargements; always one chunk."""
    source, target = problem.source.grid, problem.target.grid
    axes = [a for a, n in enumerate(source.counts) if n > 1][-4:]
    lengths = [[1]] * len(source.counts)
    most = max(int(1000 ** (1 / max(len(axes), 1))), 3)
    for axis in axes:
        lengths[axis] = _lengths(source.counts[axis], source.chunks[axis], target.chunks[axis], most)
    for box in product(*lengths):
        if math.prod(box) <= room:
            yield box
            yield from _filling(box, axes, source.counts, room)


def _filling(box: tuple[int, ...], axes: Sequence[int], counts: Sequence[int], room: int) -> Iterator[tuple[int, ...]]:
    """Yield a box that fills more than half of the room, enlarged along one axis to fill it."""
    size = math.prod(box)
    if 2 * size > room > 1:
        for axis in axes:
            length = min(room * box[axis] // size, counts[axis])
            if length > box[axis]:
                yield (*box[:axis], length, *box[axis + 1 :])


def _lengths(count: int, source: int, target: int, most: int) -> list[int]:
    """Return up to about ``most`` lengths of a box, in chunks: one, a target chunk, and multiples of both."""
    step = math.lcm(source, target) // source
    step = step if step <= count else ceil_div(target, source)
    every = ceil_div(2 * count.bit_length(), most)
    more = [first << bit for first in (1, step) for bit in range(0, count.bit_length(), every)]
    return sorted({*(n for n in more if n < count), count})


def _count(problem: Problem, region: tuple[int, ...], requests: int) -> Counted:
    source, target, ranks = problem.source, problem.target, problem.ranks
    units = math.prod(map(ceil_div, source.grid.counts, region))
    box_bytes = math.prod(map(min, region, source.grid.counts)) * source.chunk_bytes
    order = target.order
    lengths = zip(target.grid.shape, source.grid.chunks, region, target.grid.chunks, strict=True)
    piece = tuple(c if b * s >= n else min(b * s, c) for n, s, b, c in lengths)
    tile = turned_back(stage_shape(turned(piece, order), target.itemsize), order)
    stage = stage_bytes(tile, [b * s for b, s in zip(region, source.grid.chunks, strict=True)], target)
    batch = batch_of(box_bytes, units, ranks)
    traffic = _traffic(problem, region, units, batch)
    held = box_bytes + stage + _workspace(problem, requests)
    seconds, phases = pass_seconds(
        traffic,
        problem.resources.costs,
        source,
        target,
        Pipeline(
            ranks=ranks,
            turns=units,
            idle=ceil_div(units, ranks) * ranks / units,
            workers=problem.resources.on_workers,
            touched=ranks * held,
            synchronous=problem.resources.synchronous,
            ahead=True,
            past_cache=on_sectors(source, target, region),
            waits=(max(units, source.grid.count / requests) if source.remote else 0.0, 0.0),  # one in each box
        ),
    )
    shape = Shape(method="assembled", access="chunks", region=region, requests=requests)
    graph = 0 if problem.resources.on_workers else traffic.tasks * TASK_BYTES
    each = tuple(problem.neighbours * nbytes for nbytes in (box_bytes, 0, stage, _workspace(problem, requests)))
    process = problem.base_bytes, graph, source.index_workspace, _counters(problem)
    return Counted(shape, process + each, seconds, phases, traffic, tile, batch, source.local)


def stage_shape(piece: tuple[int, ...], itemsize: int, limit: int = STAGE_BYTES) -> tuple[int, ...]:
    """Return the shape of the part of a piece laid out at a time: rows of its first long axis, in whole sectors."""
    first = next((axis for axis, n in enumerate(piece) if n > 1), 0)
    if not piece:
        return piece
    row = math.prod(piece[first + 1 :]) * itemsize
    at_once = SECTOR // math.gcd(row, SECTOR)
    rows = max(limit // row // at_once, 1) * at_once
    return (*piece[:first], min(rows, piece[first]), *piece[first + 1 :])


def stage_bytes(tile: tuple[int, ...], box: Sequence[int], target: Stored) -> int:
    """Return the bytes for laying out pieces of a box: many small ones, or a tile of a long one."""
    grid = target.grid
    most = math.prod(
        min(ceil_div(b, c) + 1, ceil_div(n, c)) * c for b, c, n in zip(box, grid.chunks, grid.shape, strict=True)
    )
    return max(math.prod(tile) * target.itemsize, min(STAGE_BYTES, most * target.itemsize))


def stage_of(step: Pass) -> int:
    box = [b * s for b, s in zip(step.unit, step.source.grid.chunks, strict=True)]
    return stage_bytes(step.tile, box, step.target)


Group = tuple[tuple[int, ...], tuple[int, ...], Section]
"""First of several target chunks, their count along each axis, and the section that they have in common."""


def groups(step: Pass, unit: int, elements: int) -> Iterator[Group]:
    """Yield the places of a unit in groups of up to ``elements`` elements, at least one place each."""
    for each in product(*step.places_along(unit)):
        piece = Section(tuple(cut.inside.start for cut in each), tuple(cut.inside.stop for cut in each))
        first, counts = [cut.chunks.start for cut in each], [len(cut.chunks) for cut in each]
        at_once = chunks_along(range(len(counts)), counts, elements // max(piece.size, 1))
        cuts = [range(0, n, step) for n, step in zip(counts, at_once, strict=True)]
        for start in product(*cuts):
            yield (
                tuple(f + s for f, s in zip(first, start, strict=True)),
                tuple(min(cut.step, n - s) for cut, n, s in zip(cuts, counts, start, strict=True)),
                piece,
            )


def _traffic(problem: Problem, region: tuple[int, ...], units: int, batch: int) -> Traffic:
    source, target = problem.source, problem.target
    count, whole = source.grid.count, source.grid.count * source.chunk_bytes
    pieces, runs = placed(source, target, region)
    written = target.padded_bytes
    return Traffic(
        read_requests=count,
        read_bytes=int(whole * problem.resources.costs.stored_ratio(source)),
        index_requests=source.shards * (problem.resources.workers or 1),
        decoded_bytes=whole if source.coded else 0,
        copied_bytes=source.nbytes,
        copied_runs=copied_runs(problem),
        pieces=count,
        placed_pieces=pieces,
        placed_runs=runs,
        write_requests=target.grid.count,
        written_bytes=written,
        tasks=batches(units, problem.ranks, batch) + 1,
    )


def placed(source: Stored, target: Stored, region: tuple[int, ...]) -> tuple[int, int]:
    """Return the pieces of all boxes in all target chunks, and the maximum of their contiguous runs in the chunks'
    files.

    Runs are overcounted where boxes and chunks do not divide each other, or a chunk lies partly beyond the edge.
    """
    grid, pieces, runs, whole = target.grid, 1, 1, True
    for axis in reversed(target.order or range(len(grid.shape))):
        n, c, box = grid.shape[axis], grid.chunks[axis], region[axis] * source.grid.chunks[axis]
        here = axis_overlap(n, c, box, 1).pieces
        pieces *= here
        runs *= here if whole else ceil_div(n, c) * c
        whole = whole and (box % c == 0 or box >= n)
    return pieces, runs


def on_sectors(source: Stored, target: Stored, region: tuple[int, ...]) -> bool:
    """Return whether all runs of boxes of ``region`` source chunks begin and end on sectors of the target's files.

    Cuts of an axis lie on multiples of the greatest common divisor of boxes and chunks; padding beyond the array's edge
    is written with the piece before it.
    """
    inner, grid = target.itemsize, target.grid
    for axis in reversed(target.order or range(len(grid.shape))):
        n, c, box = grid.shape[axis], grid.chunks[axis], region[axis] * source.grid.chunks[axis]
        if box % c and box < n:
            return math.gcd(box, c) * inner % SECTOR == 0
        inner *= c
    return inner % SECTOR == 0
