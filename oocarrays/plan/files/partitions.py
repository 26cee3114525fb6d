"""Partitions of a global array: boxes of whole chunks, in file order, each of which fits in memory.

    chunks 4 × 4, room for 5        0 0 0 0        room for 2        0 0 1 1
                                    1 1 1 1                          2 2 3 3
                                    2 2 2 2                          …
Thakur 1995, section 5.3.2: the partitioned in-core model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.orientation import chunks_along
from oocarrays.mapping.section import Section


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
