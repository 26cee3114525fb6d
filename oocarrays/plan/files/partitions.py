"""Partitions of a global array: boxes of whole chunks, in file order, that each fit in memory.

    chunks 4 × 4, room for 5        0 0 0 0        room for 2        0 0 1 1
                                    1 1 1 1                          2 2 3 3
                                    2 2 2 2                          …

Thakur 1995, section 5.3.2: the partitioned in-core model.

    local array, depth 1          slab 1            lower, upper     its own elements (rows 1 and 2 of the OCAD)
    · · · · · · · ·               ░ ░ ░ ░ ░ ░ ░ ░   outer lower …    with the halo (rows 3 and 4)
    · 0 0 0 0 0 0 ·               ░ 1 1 1 1 1 1 ░
    · 1 1 1 1 1 1 ·               ░ ░ ░ ░ ░ ░ ░ ░
    · · · · · · · ·

Slabs are numbered in storage order; the budget includes the halo. Thakur 1995, section 5.4.1, Figure 5.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import ChunkGrid, chunks_along, turned, turned_back, unravel
from oocarrays.mapping.layouts.local import Depth
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken, lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBlock:
    """Elements of one box of a file domain that belong to one rank: one part of a message."""

    axes: Axes
    place: Section
    """Section of the rank's file that holds the elements."""

    @property
    def size(self) -> int:
        return self.place.size


def before(taken: Taken, bounds: np.ndarray) -> np.ndarray:
    """Return the number of the ascending indices `taken` before each bound."""
    if isinstance(taken, np.ndarray):
        return np.searchsorted(taken, bounds)
    return np.clip(-(-(bounds - taken.start) // taken.step), 0, len(taken))


def alike_spans(spans: tuple[np.ndarray, np.ndarray], chunk: int, extent: int) -> list[tuple[range, int]]:
    """Return one representative, and the count, of spans at equal offsets in chunks and before the end of a file."""
    lower, upper = spans
    key = np.stack([lower % chunk, upper - lower, upper > extent // chunk * chunk], axis=1)
    _, first, times = np.unique(key, axis=0, return_index=True, return_counts=True)
    return [(range(int(lower[i]), int(upper[i])), int(n)) for i, n in zip(first, times, strict=True)]


def message_size(blocks: Sequence[FileBlock | None]) -> int:
    return sum(block.size for block in blocks if block)


def views(message: np.ndarray | None, blocks: Sequence[FileBlock | None]) -> list[tuple[FileBlock, np.ndarray] | None]:
    """Return each block with a view of its elements in a message that stores the blocks one after the other."""
    found: list[tuple[FileBlock, np.ndarray] | None] = []
    start = 0
    for block in blocks:
        if block is None or message is None:
            found.append(None)
            continue
        found.append((block, message[start : start + block.size].reshape(lengths(block.axes))))
        start += block.size
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class InCore:
    """Bounds of one slab (ICLA), relative to the rank's first element; the halo starts below zero."""

    own: Section
    """Slab without its halo: rows 1 and 2, ``own.lower`` and ``own.upper``."""
    outer: Section
    """Slab with its halo on either side: rows 3 and 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slabs:
    """Division of a local array into slabs."""

    grid: ChunkGrid
    """Grid of the local array without its halo, with slabs as chunks, in elements."""
    depth: Depth
    """Halo width along each axis, on either side, in elements."""
    order: tuple[int, ...]
    """Axes from the slowest to the fastest."""

    @classmethod
    def of(cls, shape: Sequence[int], *, depth: Depth, order: Sequence[int], itemsize: int, budget: int) -> Slabs:
        """Return the largest slabs that fit ``budget`` bytes with their halo."""
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
        """Return slab ``number``, in storage order."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        own = self.grid.section(turned_back(unravel(number, turned(self.grid.counts, self.order)), self.order))
        lower = tuple(l - d for l, d in zip(own.lower, self.depth, strict=True))
        return InCore(own=own, outer=Section(lower, tuple(u + d for u, d in zip(own.upper, self.depth, strict=True))))


@dataclass(frozen=True, slots=True)
class Partitions:
    """Boxes of whole chunks in file order, created on demand: they may be too many to list."""

    grid: ChunkGrid
    box: ChunkGrid
    """Grid of the boxes, in chunks."""

    def __len__(self) -> int:
        return self.box.count

    def __getitem__(self, number: int) -> Section:
        chunks = self.box.section(unravel(range(self.box.count)[number], self.box.counts))
        return self.grid.block(chunks.lower, chunks.upper)

    def __iter__(self) -> Iterator[Section]:
        return map(self.__getitem__, range(self.box.count))  # itertools.product would list its arguments

    def edges(self, axis: int) -> range:
        """Return the first element of each box along an axis."""
        step = self.box.chunks[axis] * self.grid.chunks[axis]
        return range(0, self.box.counts[axis] * step, step)


def partitions(grid: ChunkGrid, room: int) -> Partitions:
    """Return boxes of at most ``room`` chunks, and at least one."""
    counts = grid.counts
    return Partitions(grid, ChunkGrid.of(counts, chunks_along(range(len(counts)), counts, room)))
