"""Distributions of one axis over ranks, in HPF's terms.

    block        │ 0 0 0 │ 1 1 1 │ 2 2 2 │ 3      │     cyclic      │0│1│2│3│0│1│2│3│0│1│
    cyclic(2)    │ 0 0 │ 1 1 │ 2 2 │ 3 3 │ 0 0 │       gen_block   │ 0 │ 1 1 1 1 │ 2 2 │ 3 3 3 │

A distribution applies to any extent; `over` an extent and a number of ranks it is an `Axis`, which maps elements to
ranks. Thakur 1995, section 3.2, Table 3.1; HPF 1.0, section 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

from oocarrays.errors import LayoutError
from oocarrays.mapping.given import whole, wholes
from oocarrays.mapping.layouts.axis import Axis, BlockCyclicAxis, GenBlockAxis

MOST_RANKS = 2**16
"""Maximum number of ranks of a layout or of an exchange: each has tasks of its own."""


@dataclass(frozen=True, slots=True)
class Block:
    """Contiguous blocks of one length, one per rank; the last ranks may have less, or nothing (HPF ``BLOCK``).

    >>> axis = Block().over(10, 4)
    >>> [axis.size(rank) for rank in range(4)]
    [3, 3, 3, 1]
    """

    length: int | None = None
    """Elements of a block; None for ``ceil(extent / ranks)``."""

    def over(self, extent: int, ranks: int) -> Axis:
        """Return this distribution of an axis over ranks.

        Raises
        ------
        LayoutError
            If the blocks do not cover the axis: ``length * ranks < extent``.
        """
        extent, ranks = _known(extent, ranks)
        least = -(-extent // ranks)
        axis = _dealt(self, extent, ranks, max(least, 1) if self.length is None else self.length)
        if axis.period < extent:
            raise LayoutError(
                f"{self} over {ranks} ranks holds {axis.period} elements of {extent}: "
                f"the block must be at least {least}"
            )
        return axis

    def __str__(self) -> str:
        return "block" if self.length is None else f"block({self.length})"


@dataclass(frozen=True, slots=True)
class Cyclic:
    """Blocks of one length assigned in turn (HPF ``CYCLIC(m)``).

    >>> axis = Cyclic(3).over(26, 4)
    >>> [axis.size(rank) for rank in range(4)]
    [8, 6, 6, 6]
    """

    length: int = 1
    """Elements of a block."""

    def over(self, extent: int, ranks: int) -> Axis:
        """Return this distribution of an axis over ranks.

        Raises
        ------
        LayoutError
            If the length of a block is less than 1.
        """
        return _dealt(self, extent, ranks, self.length)

    def __str__(self) -> str:
        return "cyclic" if self.length == 1 else f"cyclic({self.length})"


@dataclass(frozen=True, slots=True)
class GenBlock:
    """Blocks of any length, one per rank (HPF ``GEN_BLOCK``; Dask's chunk tuples).

    >>> GenBlock.even(10, 4)
    GenBlock(sizes=(3, 3, 2, 2))
    >>> [list(GenBlock.even(3, 4).part(rank)) for rank in range(4)]
    [[0], [1], [2], []]
    """

    sizes: tuple[int, ...]
    """Elements of each rank's block."""

    @classmethod
    def even(cls, extent: int, ranks: int) -> GenBlock:
        """Cut an axis in blocks of lengths that differ by at most one, the longer ones first.

        Raises
        ------
        LayoutError
            If there are more than `MOST_RANKS` ranks.
        """
        extent, ranks = whole(extent, "extent", 0, error=LayoutError), whole(ranks, "ranks", 1, error=LayoutError)
        if ranks > MOST_RANKS:
            raise LayoutError(f"ranks={ranks} exceeds {MOST_RANKS}, the maximum of a layout")
        size, longer = divmod(extent, ranks)
        return cls(tuple(size + (rank < longer) for rank in range(ranks)))

    def part(self, rank: int) -> range:
        """Return the elements that ``rank`` holds.

        Raises
        ------
        LayoutError
            If the rank does not exist.
        """
        if whole(rank, "rank", 0, error=LayoutError) >= len(self.sizes):
            raise LayoutError(f"rank={rank} is out of range for the {len(self.sizes)} ranks of {self._short}")
        start = sum(self.sizes[:rank])
        return range(start, start + self.sizes[rank])

    def over(self, extent: int, ranks: int) -> Axis:
        """Return this distribution of an axis over ranks.

        Raises
        ------
        LayoutError
            If the number of blocks is not that of ranks, or they do not cover the axis.
        """
        extent, ranks = _known(extent, ranks)
        sizes = wholes(self.sizes, "gen_block", error=LayoutError)
        if min(sizes, default=0) < 0:
            raise LayoutError(f"{self._short}: every block must have a whole number of elements, at least 0")
        if len(self.sizes) != ranks or sum(self.sizes) != extent:
            raise LayoutError(
                f"{self._short} has {len(self.sizes)} blocks of {sum(self.sizes)} elements in all: "
                f"an axis of {extent} elements over {ranks} ranks was requested"
            )
        return GenBlockAxis(extent, ranks, sizes)

    @property
    def _short(self) -> str:
        """Text, shortened to fit in a line."""
        return str(self) if len(self.sizes) <= 8 else f"gen_block({','.join(map(str, self.sizes[:6]))},…)"

    def __str__(self) -> str:
        return f"gen_block({','.join(map(str, self.sizes))})"


@dataclass(frozen=True, slots=True)
class Collapsed:
    """Undistributed axis: every rank has all of it (HPF ``*``).

    >>> Collapsed().over(5, 1).size(0)
    5
    """

    def over(self, extent: int, ranks: int) -> Axis:
        """Return this axis on its single rank.

        Raises
        ------
        LayoutError
            If there is more than one rank.
        """
        extent, ranks = _known(extent, ranks)
        if ranks != 1:
            raise LayoutError(f"an axis that is not distributed (*) takes 1 rank of the grid, not {ranks}")
        return BlockCyclicAxis(extent, 1, max(extent, 1))

    def __str__(self) -> str:
        return "*"


Distribution = Block | Cyclic | GenBlock | Collapsed


def _dealt(distribution: Block | Cyclic, extent: int, ranks: int, length: int) -> BlockCyclicAxis:
    if not isinstance(length, Integral) or length < 1:
        raise LayoutError(f"{distribution}: the length of a block must be a whole number, at least 1")
    extent, ranks = _known(extent, ranks)
    return BlockCyclicAxis(extent, ranks, int(length))


def _known(extent: Any, ranks: Any) -> tuple[int, int]:
    return whole(extent, "extent", 0, error=LayoutError), whole(ranks, "ranks", 1, error=LayoutError)
