"""Units of writing, each one chunk or shard: the values it receives, and their positions in it.

values      a b c d e f g h             values of a box of the chunk are copied to their positions in it
chunk           ░c░░d░░e░
box              [░░d░]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from oocarrays.mapping.along import Piece
from oocarrays.mapping.grid import ChunkGrid, Index
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, common, index_of_parts, within
from oocarrays.storage.pool import copy


class Written(Protocol):
    """A chunk or shard that is written in whole or in part, with its axes in storage order."""

    @property
    def index(self) -> Index:
        """Index of the chunk or shard."""

    @property
    def whole(self) -> bool:
        """Whether all its elements inside the array are written."""

    def covers(self, box: Section) -> bool:
        """Return whether every element of a box is written and lies inside the array."""

    def put_in(self, data: np.ndarray, box: Section) -> None:
        """Copy the written values of a box to their positions in ``data``."""

    def cut(self, chunks: tuple[int, ...]) -> Iterator[Written]:
        """Split a shard into a unit for each of its chunks that is written."""


class Unit:
    """A chunk or shard with a section that is written."""

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
        values, grid = self.values(Section((0,) * len(chunks), self._chunks)), ChunkGrid.of(self.extents, chunks)
        for parts in grid.pieces(axes):
            yield Unit(grid, parts, axes, values)
