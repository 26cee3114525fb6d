"""Slabs of a local array: what of it is in memory at one time, in a budget.

    local array, depth 1          slab 1            lower, upper     its own elements (rows 1 and 2 of the OCAD)
    · · · · · · · ·               ░ ░ ░ ░ ░ ░ ░ ░   outer lower …    with the halo (rows 3 and 4)
    · 0 0 0 0 0 0 ·               ░ 1 1 1 1 1 1 ░
    · 1 1 1 1 1 1 ·               ░ ░ ░ ░ ░ ░ ░ ░
    · · · · · · · ·

Slabs follow each other as they are stored; the halo is counted in the budget. Thakur 1995, section 5.4.1, Figure 5.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import ChunkGrid, unravel
from oocarrays.mapping.layouts.local import Depth
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
