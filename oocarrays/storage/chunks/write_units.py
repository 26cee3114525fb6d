"""Units of writing, each one chunk or shard: which of the values go there, and to which places.

values      a b c d e f g h             what is written of a box of the chunk is put where it lies in it
chunk           ░c░░d░░e░
box              [░░d░]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Protocol

import numpy as np

from oocarrays.mapping.grid import ChunkGrid, Index
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, common, within
from oocarrays.plan.sections.write import AxisPart, axis_parts
from oocarrays.storage.pool import copy


class Written(Protocol):
    """A chunk, or shard, of which something is written, its axes as they are stored."""

    @property
    def index(self) -> Index:
        """Which one."""

    @property
    def whole(self) -> bool:
        """Whether all that it has of the array is written."""

    def covers(self, box: Section) -> bool:
        """Return whether all of a box is written, what is beyond the array's edge too."""

    def put_in(self, data: np.ndarray, box: Section) -> None:
        """Put what is written of a box in its elements."""

    def cut(self, chunks: tuple[int, ...]) -> Iterator[Written]:
        """Cut what is written of a shard into a unit for each of its chunks."""


class Unit:
    """A chunk, or shard, of which a section is written."""

    def __init__(self, grid: ChunkGrid, parts: tuple[AxisPart, ...], axes: Axes, values: np.ndarray) -> None:
        self.index = tuple(part.chunk for part in parts)
        self.whole = all(part.whole for part in parts)
        """Whether all that it has of the array is written."""
        self.lower = tuple(i * c for i, c in zip(self.index, grid.chunks, strict=True))
        """Its first element."""
        self.extents = grid.shape
        """Of the array."""
        self._axes, self._values, self._chunks = axes, values, grid.chunks

    def places(self, box: Section) -> tuple[Any, list[slice | np.ndarray]]:
        """Of what is written in a box of the unit the places among all values, and in the box."""
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
        """Return whether all of a box is written, what is beyond the array's edge too."""
        return self.whole and all(l + u <= n for l, u, n in zip(self.lower, box.upper, self.extents, strict=True))

    def put_in(self, data: np.ndarray, box: Section) -> None:
        there, inside = self.places(box)
        part = self._values[(*there, ...)]
        if part.size:
            place = _place(inside)
            if all(isinstance(each, slice) for each in inside):
                copy(data[place], part)
            else:
                data[place] = part

    def cut(self, chunks: tuple[int, ...]) -> Iterator[Unit]:
        """Cut what is written of a shard into a unit for each of its chunks."""
        upper = (min(l + c, n) for l, c, n in zip(self.lower, self._chunks, self.extents, strict=True))
        axes = common(self._axes, Section(self.lower, tuple(upper)))
        values, grid = self.values(Section((0,) * len(chunks), self._chunks)), ChunkGrid.of(self.extents, chunks)
        for parts in product(*map(axis_parts, axes, self.extents, chunks)):
            yield Unit(grid, parts, axes, values)


def _place(inside: list[slice | np.ndarray]) -> Any:
    """Return an index of a product of slices and sorted indices."""
    if all(isinstance(part, slice) for part in inside):
        return (*inside, ...)
    return np.ix_(*(np.r_[part] if isinstance(part, slice) else part for part in inside))
