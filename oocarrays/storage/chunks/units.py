"""Units of writing, each one chunk or shard: the values it receives, and their positions in it.

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

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocarrays.mapping.along import Piece
from oocarrays.mapping.grid import ChunkGrid, Index
from oocarrays.mapping.points import by_chunk
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, common, index_of_parts, within
from oocarrays.storage.local.pages import copy

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
    """Yield a unit for each chunk with elements of a section."""
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
        """Yield a unit for each chunk of a shard that is written."""
        return overlays((inner for unit in self._units for inner in unit.cut(chunks)), self._inner, self._inner)


def overlays(units: Iterator[Unit], needs: Needs, inner: Needs) -> Iterator[Overlay]:
    """Group units of the same chunk, in order."""
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
        """Return whether a box is written completely: always False."""
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
