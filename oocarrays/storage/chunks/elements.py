"""Positions of elements in chunks: tiles, runs, byte ranges, chunk-major copies, fill values; and in units of writing.

chunk  · · · ·      piece ▒ of shape (2, 2): runs of 2 elements that start at 5 and 9,
       · ▒ ▒ ·      one byte range from 5 to 11, or tiles of as many rows as fit in a cache
       · ▒ ▒ ·

Units of writing, each one chunk or shard: the values it receives, and their positions in it.

values      a b c d e f g h             values of a box of the chunk are copied to their positions in it
chunk           ░c░░d░░e░
box              [░░d░]

Where pieces of several ranks overlap, the last one wins:

    rank 0     ┌─────────┐               chunk    ┌───────────┐
    rank 1     │    ┌────┼────┐    ──►            │ 0 0 1 1 1 │     read first only if ranks leave a gap,
               └────┼────┘    │                   │ 0 0 1 1 1 │     replaced atomically
                    └─────────┘                   │ · · 1 1 1 │

Thakur 1995, section 6.3.2.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from oocarrays.mapping.along import Piece
from oocarrays.mapping.grid import ChunkGrid, Index, ceil_div, chunk_runs, inverse, turned
from oocarrays.mapping.points import by_chunk
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, common, index_of_parts, within
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.local.pages import copy, shaped


def fill_bits(file: ArrayFile) -> bytes:
    """Return the bytes of the fill value, which elements of a missing chunk have."""
    return np.full(1, file.fill_value, file.dtype).tobytes()


def is_fill(chunk: np.ndarray, fill: bytes) -> bool:
    """Return whether every element equals the fill value bit by bit."""
    elements = chunk.reshape(-1)
    if elements[:1].tobytes() != fill or elements[-1:].tobytes() != fill:
        return False
    bits = elements.view(np.uint8).reshape(len(elements), -1)
    return bool((bits == np.frombuffer(fill, np.uint8)).all())


def cut(piece: Section, tile: tuple[int, ...]) -> Iterator[Section]:
    """Yield the tiles of a piece, the last axis varying fastest."""
    counts = [ceil_div(n, t) for n, t in zip(piece.shape, tile, strict=True)]
    for index in product(*map(range, counts)):
        lower = tuple(l + i * t for l, i, t in zip(piece.lower, index, tile, strict=True))
        yield Section(lower, tuple(min(l + t, u) for l, t, u in zip(lower, tile, piece.upper, strict=True)))


def _steps(chunks: tuple[int, ...], itemsize: int) -> list[int]:
    return [math.prod(chunks[axis + 1 :]) * itemsize for axis in range(len(chunks))]


def byte_span(part: Section, chunks: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Return the byte offsets in a chunk of the start of the first element of ``part`` and the end of the last."""
    steps = _steps(chunks, itemsize)
    start = sum(l * step for l, step in zip(part.lower, steps, strict=True))
    return start, sum((u - 1) * step for u, step in zip(part.upper, steps, strict=True)) + itemsize


def strided(elements: np.ndarray, shape: tuple[int, ...], chunks: tuple[int, ...]) -> np.ndarray:
    """View ``elements``, a byte range of a chunk, as the piece of ``shape`` that starts at its first element."""
    return np.lib.stride_tricks.as_strided(elements, shape, _steps(chunks, elements.itemsize), writeable=False)


def element_runs(part: Section, chunks: tuple[int, ...]) -> tuple[np.ndarray, int]:
    """Return the start of each contiguous run of ``part`` in a chunk, and the common length, in elements."""
    axis = len(chunks)
    length = 1
    while axis and (axis == len(chunks) or part.shape[axis] == chunks[axis]):
        axis -= 1
        length *= part.shape[axis]
    starts = np.zeros(1, np.int64)
    stride = np.cumprod((1, *chunks[:0:-1]))[::-1] if chunks else ()
    for a in range(len(chunks)):
        steps = np.arange(part.shape[a]) if a < axis else np.zeros(1, np.int64)
        starts = ((part.lower[a] + steps) * stride[a] + starts[:, None]).reshape(-1)
    return starts, length


def scatter(buffer: np.ndarray, origin: Index, section: Section, data: np.ndarray | object) -> None:
    """Copy ``data``, the elements of ``section``, to their positions in a chunk-major buffer."""
    ndim = buffer.ndim // 2
    here = section.relative_to(origin)
    axes = [list(_chunk_runs(l, u, c)) for l, u, c in zip(here.lower, here.upper, buffer.shape[ndim:], strict=True)]
    for parts in product(*axes):
        chunks, inside, source = zip(*parts, strict=True) if parts else ((), (), ())
        view = buffer[(*chunks, *inside, ...)]
        if isinstance(data, np.ndarray):
            both = zip(view.shape[:ndim], view.shape[ndim:], strict=True)
            cut = data[(*source, ...)].reshape([n for axis in both for n in axis])
            copy(view, cut.transpose([*range(0, 2 * ndim, 2), *range(1, 2 * ndim, 2)]))
        else:
            view[...] = data


def _chunk_runs(lower: int, upper: int, chunk: int) -> Iterator[tuple[slice, slice, slice]]:
    """Yield each run of equally covered chunks as slices of chunks, of elements in each, and of the interval."""
    for start, stop in chunk_runs(lower, upper, chunk):
        first, inside = divmod(start, chunk)
        last = ceil_div(stop, chunk)
        length = chunk if last - first > 1 else stop - start
        yield slice(first, last), slice(inside, inside + length), slice(start - lower, stop - lower)


def common_part(there: Section, here: Section, data: np.ndarray | None) -> Iterator[tuple[Section, np.ndarray | None]]:
    """Yield the intersection of ``here`` with the chunk at ``there``, if any, and its elements."""
    part = there.intersection(here)
    if part is not None:
        yield part, None if data is None else data[part.relative_to(there.lower).slices]


def turned_section(section: Section, order: tuple[int, ...] | None) -> Section:
    return section if order is None else Section(turned(section.lower, order), turned(section.upper, order))


def chunk_major(
    memory: np.ndarray,
    counts: tuple[int, ...],
    lengths: tuple[int, ...],
    dtype: np.dtype,
    order: tuple[int, ...] | None,
) -> np.ndarray:
    """View memory as a box of chunks stored one after another; ``result.shape == counts + lengths``."""
    lying = shaped(memory, counts + turned(lengths, order), dtype)
    return (
        lying if order is None else lying.transpose([*range(len(counts)), *(len(counts) + a for a in inverse(order))])
    )


Needs = Callable[[Index], bool]
"""Predicate: whether a chunk must be read before it is written."""


class Unit:
    """A chunk or shard that is written in whole or in part, with its axes in storage order."""

    def __init__(self, grid: ChunkGrid, parts: tuple[Piece, ...], axes: Axes, values: np.ndarray) -> None:
        self.index = tuple(part.chunk for part in parts)
        self.whole = all(part.whole for part in parts)
        """Whether all its elements inside the array are written."""
        self.lower = tuple(i * c for i, c in zip(self.index, grid.chunks, strict=True))
        """Index of its first element."""
        self.extents = grid.shape
        """Shape of the array."""
        self._axes, self._values, self._chunks = axes, values, grid.chunks

    def places(self, box: Section) -> tuple[Any, list[slice | np.ndarray]]:
        """Return the positions of a box's written elements among all values, and in the box."""
        there, inside = [], []
        for taken, n, first, l, u in zip(self._axes, self.extents, self.lower, box.lower, box.upper, strict=True):
            place, part = within(taken, first + l, min(first + u, n))
            there.append(place)
            inside.append(part)
        return tuple(there), inside

    def values(self, box: Section) -> np.ndarray:
        there, _ = self.places(box)
        return self._values[(*there, ...)]

    def covers(self, box: Section) -> bool:
        """Return whether every element of a box is written and lies inside the array."""
        return self.whole and all(l + u <= n for l, u, n in zip(self.lower, box.upper, self.extents, strict=True))

    def put_in(self, data: np.ndarray, box: Section) -> None:
        """Copy the written values of a box to their positions in ``data``."""
        there, inside = self.places(box)
        part = self._values[(*there, ...)]
        if part.size:
            place = index_of_parts(inside)
            if all(isinstance(each, slice) for each in inside):
                copy(data[place], part)
            else:
                data[place] = part

    def cut(self, chunks: tuple[int, ...]) -> Iterator[Unit]:
        """Split a shard into a unit for each of its chunks that is written."""
        upper = (min(l + c, n) for l, c, n in zip(self.lower, self._chunks, self.extents, strict=True))
        axes = common(self._axes, Section(self.lower, tuple(upper)))
        values = self.values(Section((0,) * len(chunks), self._chunks))
        return units_of(ChunkGrid.of(self.extents, chunks), axes, values)


def units_of(grid: ChunkGrid, axes: Axes, values: np.ndarray) -> Iterator[Unit]:
    return (Unit(grid, parts, axes, values) for parts in grid.pieces(axes))


class Overlay(Unit):
    """Chunk or shard written by several ranks."""

    def __init__(self, units: Sequence[Unit], needs: Needs, inner: Needs) -> None:
        self.index, self.lower = units[0].index, units[0].lower
        self.whole = not needs(self.index)
        self.extents = units[0].extents
        self._units, self._inner = units, inner

    def put_in(self, data: np.ndarray, box: Section) -> None:
        for unit in self._units:
            unit.put_in(data, box)

    def cut(self, chunks: tuple[int, ...]) -> Iterator[Unit]:
        return overlays((inner for unit in self._units for inner in unit.cut(chunks)), self._inner, self._inner)


def overlays(units: Iterator[Unit], needs: Needs, inner: Needs) -> Iterator[Overlay]:
    found: defaultdict[Index, list[Unit]] = defaultdict(list)
    for unit in units:
        found[unit.index].append(unit)
    return (Overlay(each, needs, inner) for each in found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class PointsUnit:
    """A chunk or shard with values for some of its elements, with its axes in storage order."""

    index: Index
    """Index of the chunk."""
    inside: np.ndarray
    """Position of each element in it, a row for each axis."""
    data: np.ndarray
    """Values of these elements."""
    whole: bool = False
    """Whether all its elements are written: always False, as points are not compared with the chunk."""

    def covers(self, box: Section) -> bool:
        return False

    def put_in(self, data: np.ndarray, box: Section) -> None:
        data[tuple(self.inside)] = self.data

    def cut(self, chunks: tuple[int, ...]) -> Iterator[PointsUnit]:
        """Split the points of a shard into one unit for each of its chunks."""
        for index, places in by_chunk(self.inside, chunks):
            lower = np.multiply(index, chunks)[:, None]
            yield PointsUnit(index=index, inside=self.inside[:, places] - lower, data=self.data[places])


Written = Unit | PointsUnit
"""A chunk or shard that is written in whole or in part."""
