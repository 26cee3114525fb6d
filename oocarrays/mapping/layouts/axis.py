"""One axis over ranks, in closed form: the owner and place of an element, and the elements of a rank.

    cyclic(3) of 26 over 4     rank 1 holds  3 4 5  15 16 17        extent 26, ranks 4, block 3
    block(7)  of 26 over 4     rank 1 holds  7 8 9 10 11 12 13      the same with one block a rank
    *         of 26            rank 0 holds  0 … 25                 the same with one rank

BLOCK, CYCLIC(m) and ``*`` are one scheme: blocks of ``block`` elements assigned in turn. All indices are from 0; the
paper's are from 1 (Thakur 1995, Table 3.1: its CYCLIC(m) global to local is misprinted and must divide g − 1).

Ranks, elements and places are integers, or arrays of them that numpy broadcasts; arrays are returned as int64. They are
not validated here, in the inner loops: `Layout` rejects invalid ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocarrays.mapping.along import Taken, ascending

Ints = TypeVar("Ints", int, NDArray[np.int64])


@dataclass(frozen=True, slots=True)
class BlockCyclicAxis:
    """Blocks of one length assigned in turn; with at most one block per rank, a BLOCK distribution."""

    extent: int
    """Number of elements."""
    ranks: int
    """Number of ranks along this axis."""
    block: int
    """Elements of a block."""

    @property
    def period(self) -> int:
        """Elements between consecutive blocks of a rank, from start to start."""
        return self.block * self.ranks

    def size(self, rank: int) -> int:
        """Return the number of elements of ``rank`` (ScaLAPACK's NUMROC)."""
        whole, rest = divmod(self.extent, self.period)
        return whole * self.block + min(max(rest - rank * self.block, 0), self.block)

    def owner(self, index: Ints) -> Ints:
        """Return the ranks of the elements ``index`` (INDXG2P)."""
        return _wide(index) // self.block % self.ranks

    def place(self, index: Ints) -> Ints:
        """Return the local indices of the elements ``index`` (INDXG2L)."""
        index = _wide(index)
        return index // self.period * self.block + index % self.block

    def index(self, rank: int, place: Ints) -> Ints:
        """Return the elements at local index ``place`` of ``rank`` (INDXL2G)."""
        place = _wide(place)
        return (place // self.block * self.ranks + rank) * self.block + place % self.block

    def sections(self, rank: int) -> list[range]:
        """Return the part of ``rank`` in the fewest slices: all, blocks, or every block's first, second, … element."""
        if self.ranks == 1:
            return [range(self.extent)] if self.extent else []
        first = rank * self.block
        blocks = range(first, self.extent, self.period)
        if len(blocks) <= self.block:
            return [range(start, min(start + self.block, self.extent)) for start in blocks]
        return [range(start, self.extent, self.period) for start in range(first, first + self.block)]


@dataclass(frozen=True)
class GenBlockAxis:
    """Blocks of any lengths, one per rank."""

    extent: int
    """Number of elements."""
    ranks: int
    """Number of ranks along this axis."""
    sizes: tuple[int, ...]
    """Elements of each rank's block."""

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """First element of each block, and the extent."""
        return np.array([*accumulate(self.sizes, initial=0)], np.int64)

    def size(self, rank: int) -> int:
        """Return the number of elements of ``rank``."""
        return self.sizes[rank]

    def owner(self, index: Ints) -> Ints:
        """Return the ranks of the elements ``index``: the last block that starts no later."""
        return _alike(index, np.searchsorted(self.starts, index, side="right") - 1)

    def place(self, index: Ints) -> Ints:
        """Return the local indices of the elements ``index``."""
        return _alike(index, index - self.starts[self.owner(index)])

    def index(self, rank: int, place: Ints) -> Ints:
        """Return the elements at local index ``place`` of ``rank``."""
        return _alike(place, place + self.starts[rank])

    def sections(self, rank: int) -> list[range]:
        """Return the part of ``rank``: one section, or none."""
        start, stop = self.starts[rank : rank + 2].tolist()
        return [range(start, stop)] if start < stop else []


Axis = BlockCyclicAxis | GenBlockAxis
"""One axis over ranks."""


def is_block(axis: Axis) -> bool:
    """Return whether every rank along an axis holds one block or nothing."""
    return not isinstance(axis, BlockCyclicAxis) or axis.ranks == 1 or axis.extent <= axis.period


def _wide(index: Ints) -> Ints:
    """Return integers unchanged, and arrays as int64: a narrower type might not represent the period of its blocks."""
    return index if isinstance(index, int) else np.asarray(index, np.int64)


def _alike(asked: Ints, found: Any) -> Ints:
    """Return an integer for an integer, otherwise int64."""
    return int(found) if isinstance(asked, int) else np.asarray(found, np.int64)


def held_by(axis: Axis, rank: int) -> Taken:
    """Return the elements of ``rank`` along an axis, ascending as stored."""
    sections = axis.sections(rank)
    if len(sections) < 2:
        return ascending(sections[0]) if sections else range(0)
    return axis.index(rank, np.arange(axis.size(rank)))
