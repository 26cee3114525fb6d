"""One axis over ranks: who holds an element, where, and what a rank holds, in closed form.

    cyclic(3) of 26 over 4     rank 1 holds  3 4 5  15 16 17        extent 26, ranks 4, block 3
    block(7)  of 26 over 4     rank 1 holds  7 8 9 10 11 12 13      the same with one block a rank
    *         of 26            rank 0 holds  0 … 25                 the same with one rank

BLOCK, CYCLIC(m) and ``*`` are one thing: blocks of ``block`` elements dealt out in turn. All indices are from 0; the
paper's are from 1 (Thakur 1995, Table 3.1, whose CYCLIC(m) global to local is misprinted: it must divide g − 1).
Ranks, elements and places may be integers or integer arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, TypeVar

import numpy as np

from oocarrays.mapping.grid import ceil_div

Ints = TypeVar("Ints", int, np.ndarray)


class Axis(Protocol):
    """One axis over ranks."""

    @property
    def extent(self) -> int:
        """Elements."""

    @property
    def ranks(self) -> int:
        """Ranks along this axis."""

    def size(self, rank: int) -> int:
        """Elements that ``rank`` holds."""

    def owner(self, index: Ints) -> Ints:
        """The rank that holds the elements ``index``."""

    def place(self, index: Ints) -> Ints:
        """Where the elements ``index`` are with their owners: global to local."""

    def index(self, rank: int, place: Ints) -> Ints:
        """The elements that ``rank`` holds at ``place``: local to global."""

    def sections(self, rank: int) -> list[range]:
        """What ``rank`` holds, in order of its first elements: as few regular sections as can be."""


@dataclass(frozen=True, slots=True)
class BlockCyclicAxis:
    """Blocks of one length dealt out in turn; where there are no more blocks than ranks, a BLOCK distribution.

    >>> axis = BlockCyclicAxis(26, 4, 3)
    >>> axis.owner(16), axis.place(16), axis.index(1, 4)
    (1, 4, 16)
    """

    extent: int
    """Elements."""
    ranks: int
    """Ranks along this axis."""
    block: int
    """Elements of a block."""

    @property
    def period(self) -> int:
        """Elements after which the same rank is dealt to again."""
        return self.block * self.ranks

    def size(self, rank: int) -> int:
        """Elements that ``rank`` holds (ScaLAPACK's NUMROC)."""
        whole, rest = divmod(self.extent, self.period)
        return whole * self.block + min(max(rest - rank * self.block, 0), self.block)

    def owner(self, index: Ints) -> Ints:
        """The rank that holds the elements ``index`` (INDXG2P)."""
        return index // self.block % self.ranks

    def place(self, index: Ints) -> Ints:
        """Global to local (INDXG2L)."""
        return index // self.period * self.block + index % self.block

    def index(self, rank: int, place: Ints) -> Ints:
        """Local to global (INDXL2G)."""
        return (place // self.block * self.ranks + rank) * self.block + place % self.block

    def sections(self, rank: int) -> list[range]:
        """What ``rank`` holds: its blocks, or its blocks' first, second, … elements, whichever are fewer.

        >>> BlockCyclicAxis(26, 4, 3).sections(0), BlockCyclicAxis(26, 4, 1).sections(1)
        ([range(0, 3), range(12, 15), range(24, 26)], [range(1, 26, 4)])
        """
        first = rank * self.block
        blocks = max(ceil_div(self.extent - first, self.period), 0)
        if blocks <= self.block:
            starts = range(first, self.extent, self.period)
            return [range(start, min(start + self.block, self.extent)) for start in starts]
        return [range(first + i, self.extent, self.period) for i in range(self.block)]


@dataclass(frozen=True, slots=True)
class GenBlockAxis:
    """Blocks of any lengths, one a rank.

    >>> axis = GenBlockAxis(10, 3, (1, 5, 4))
    >>> axis.owner(6), axis.place(6), axis.index(2, 0)
    (2, 0, 6)
    """

    extent: int
    """Elements."""
    ranks: int
    """Ranks along this axis."""
    sizes: tuple[int, ...]
    """Elements of each rank's block."""

    @property
    def starts(self) -> tuple[int, ...]:
        """The first element of each block, and the extent."""
        return tuple(accumulate(self.sizes, initial=0))

    def size(self, rank: int) -> int:
        """Elements that ``rank`` holds."""
        return self.sizes[rank]

    def owner(self, index: Ints) -> Ints:
        """The rank that holds the elements ``index``."""
        found = np.searchsorted(self.starts, index, side="right") - 1
        return found if isinstance(index, np.ndarray) else int(found)  # type: ignore[return-value]

    def place(self, index: Ints) -> Ints:
        """Global to local."""
        start = np.asarray(self.starts)[self.owner(index)]
        return index - (start if isinstance(index, np.ndarray) else int(start))

    def index(self, rank: int, place: Ints) -> Ints:
        """Local to global."""
        return place + self.starts[rank]

    def sections(self, rank: int) -> list[range]:
        """What ``rank`` holds: one section, or none."""
        start, stop = self.starts[rank : rank + 2]
        return [range(start, stop)] if start < stop else []
