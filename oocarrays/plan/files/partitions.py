"""Partitions of a global array: boxes of whole chunks, in file order, each of which fits in memory.

    chunks 4 × 4, room for 5        0 0 0 0        room for 2        0 0 1 1
                                    1 1 1 1                          2 2 3 3
                                    2 2 2 2                          …
Thakur 1995, section 5.3.2: the partitioned in-core model.

local array, depth 1          slab 1            lower, upper     its own elements (rows 1 and 2 of the OCAD)
    · · · · · · · ·               ░ ░ ░ ░ ░ ░ ░ ░   outer lower …    with the halo (rows 3 and 4)
    · 0 0 0 0 0 0 ·               ░ 1 1 1 1 1 1 ░
    · 1 1 1 1 1 1 ·               ░ ░ ░ ░ ░ ░ ░ ░
    · · · · · · · ·

Slabs follow each other as they are stored; the halo is counted in the budget. Thakur 1995, section 5.4.1, Figure 5.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import ChunkGrid, unravel
from oocarrays.mapping.layouts.local import Depth
from oocarrays.mapping.orientation import chunks_along
from oocarrays.mapping.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class InCore:
    """The bounds of one slab (ICLA), counted from the first element that the rank holds: below zero lies its halo."""

    own: Section
    """Its own elements: rows 1 and 2, ``own.lower`` and ``own.upper``."""
    outer: Section
    """These with the halo on either side: rows 3 and 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slabs:
    """How a local array is cut into slabs.

    >>> slabs = Slabs.of((8, 6), depth=(1, 1), order=(0, 1), itemsize=4, budget=160)
    >>> len(slabs), slabs[1].own, slabs[1].outer
    (3, Section(lower=(3, 0), upper=(6, 6)), Section(lower=(2, -1), upper=(7, 7)))
    """

    grid: ChunkGrid
    """The local array without its halo, and the most of a slab along each axis, in elements."""
    depth: Depth
    """Elements of the halo along each axis, on either side."""
    order: tuple[int, ...]
    """The axes from the slowest to the fastest."""

    @classmethod
    def of(cls, shape: Sequence[int], *, depth: Depth, order: Sequence[int], itemsize: int, budget: int) -> Slabs:
        """The largest slabs that fit ``budget`` bytes with their halo."""
        least = math.prod(1 + 2 * d for d in depth) * itemsize
        if budget < least:
            raise BudgetError(budget, least, "a slab of one element and its halo")
        slab = [1] * len(shape)
        for axis in reversed(order):
            across = math.prod(n + 2 * d for a, (n, d) in enumerate(zip(slab, depth, strict=True)) if a != axis)
            slab[axis] = max(min(shape[axis], budget // (across * itemsize) - 2 * depth[axis]), 1)
        return cls(grid=ChunkGrid.of(tuple(shape), tuple(slab)), depth=depth, order=tuple(order))

    def __len__(self) -> int:
        return self.grid.count

    def __getitem__(self, number: int) -> InCore:
        """Slab ``number``, in the order in which they are stored."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        places = unravel(number, tuple(self.grid.counts[axis] for axis in self.order))
        index = dict(zip(self.order, places, strict=True))
        own = self.grid.section(tuple(index[axis] for axis in range(len(index))))
        lower = tuple(l - d for l, d in zip(own.lower, self.depth, strict=True))
        return InCore(own=own, outer=Section(lower, tuple(u + d for u, d in zip(own.upper, self.depth, strict=True))))


@dataclass(frozen=True, slots=True)
class Partitions(Sequence[Section]):
    """Boxes of whole chunks in file order, each made when it is asked for: there may be more than could be listed."""

    grid: ChunkGrid
    """The chunks of the array."""
    box: ChunkGrid
    """The boxes, in chunks."""

    def __len__(self) -> int:
        return self.box.count

    @overload
    def __getitem__(self, number: int) -> Section: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[Section, ...]: ...

    def __getitem__(self, number: int | slice) -> Section | tuple[Section, ...]:
        if isinstance(number, slice):
            return tuple(self[i] for i in range(self.box.count)[number])
        left, index = range(self.box.count)[number], []
        for count in reversed(self.box.counts):
            left, place = divmod(left, count)
            index.append(place)
        return self._section(tuple(reversed(index)))

    def __iter__(self) -> Iterator[Section]:
        return map(self.__getitem__, range(self.box.count))  # product would list what it goes through

    def _section(self, index: tuple[int, ...]) -> Section:
        chunks = self.box.section(index)
        return self.grid.block(chunks.lower, chunks.upper)

    def edges(self, axis: int) -> range:
        """Where boxes begin along an axis, in elements."""
        step = self.box.chunks[axis] * self.grid.chunks[axis]
        return range(0, self.box.counts[axis] * step, step)


def partitions(grid: ChunkGrid, room: int) -> Partitions:
    """Boxes of at most ``room`` chunks each, one chunk at least.

    >>> tuple(partitions(ChunkGrid.of((5, 8), (2, 4)), 4))
    (Section(lower=(0, 0), upper=(4, 8)), Section(lower=(4, 0), upper=(5, 8)))
    """
    counts = grid.counts
    return Partitions(grid, ChunkGrid.of(counts, chunks_along(range(len(counts)), counts, room)))
