"""Distributions of one axis over ranks, in HPF's terms and as HPF text; and an axis over ranks, in closed form.

    block        │ 0 0 0 │ 1 1 1 │ 2 2 2 │ 3      │     cyclic      │0│1│2│3│0│1│2│3│0│1│
    cyclic(2)    │ 0 0 │ 1 1 │ 2 2 │ 3 3 │ 0 0 │       gen_block   │ 0 │ 1 1 1 1 │ 2 2 │ 3 3 3 │

    cyclic(3) of 26 over 4     rank 1 holds  3 4 5  15 16 17        extent 26, ranks 4, block 3
    block(7)  of 26 over 4     rank 1 holds  7 8 9 10 11 12 13      the same with one block a rank
    *         of 26            rank 0 holds  0 … 25                 the same with one rank

A distribution applies to any extent; `over` an extent and a number of ranks it is an `Axis`, which maps elements to
ranks. BLOCK, CYCLIC(m) and ``*`` are one scheme: blocks of ``block`` elements assigned in turn. All indices are from 0;
the paper's are from 1 (Thakur 1995, section 3.2, Table 3.1: its CYCLIC(m) global to local is misprinted and must divide
g − 1; HPF 1.0, section 3.3).

Ranks, elements and places are integers, or arrays of them that numpy broadcasts; arrays are returned as int64. They are
not validated here, in the inner loops: `Layout` rejects invalid ones. The text of a layout can be parsed back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from numbers import Integral
from operator import index
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocarrays.errors import LayoutError
from oocarrays.mapping.along import Taken, ascending
from oocarrays.mapping.given import whole, wholes

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


# ---------------------------------------------------------------------- distributions


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


# ---------------------------------------------------------------------- as text


Asked = str | Distribution | Sequence["str | Distribution | Sequence[int]"]
"""Distributions as given by a user: a sequence of integers is a `GenBlock`."""

EXAMPLES = "'block', 'cyclic(3)', 'gen_block(2,5)' and '*'"


def written(distributions: Sequence[Distribution], grid: Sequence[int] = ()) -> str:
    return f"({', '.join(map(str, distributions))})" + (f" on {' × '.join(map(str, grid))}" if grid else "")


def parse_layout(asked: Asked) -> tuple[tuple[Distribution, ...], tuple[int, ...] | None]:
    """Return the distributions, and the grid if a text states one."""
    named = (
        re.fullmatch(r"(.*)\son\s+(\d+(?:\s*[x×]\s*\d+)*)\s*", asked, re.I | re.S) if isinstance(asked, str) else None
    )
    if named is None:
        return parse_distributions(asked), None
    return parse_distributions(named[1]), tuple(map(int, re.split("[x×]", named[2], flags=re.I)))


def parse_distributions(asked: Asked) -> tuple[Distribution, ...]:
    if isinstance(asked, str):
        inner = asked.strip()
        inner = inner[1:-1] if inner.startswith("(") and inner.endswith(")") else inner
        words = re.split(r",(?![^()]*\))", inner) if inner.strip() else []
        return tuple(_parse(word, asked) for word in words)
    return tuple(map(_distribution, asked if isinstance(asked, Sequence) else (asked,)))


def _distribution(asked: str | Distribution | Sequence[int]) -> Distribution:
    if isinstance(asked, str):
        return _parse(asked, asked)
    if isinstance(asked, Distribution) and not isinstance(asked, GenBlock):
        return asked
    try:
        return GenBlock(tuple(map(index, asked.sizes if isinstance(asked, GenBlock) else asked)))
    except TypeError:
        raise LayoutError(f"{asked!r} is not a distribution such as {EXAMPLES}") from None


def _parse(word: str, whole: str) -> Distribution:
    text = re.fullmatch(r"(block|cyclic|gen_block|\*)(?:\s*\(\s*(-?\d+(?:\s*,\s*-?\d+)*)\s*\))?", word.strip().lower())
    numbers = tuple(map(int, text[2].split(","))) if text and text[2] else ()
    match text and text[1], len(numbers):
        case "*", 0:
            return Collapsed()
        case "block", 0 | 1:
            return Block(*numbers)
        case "cyclic", 0 | 1:
            return Cyclic(*numbers)
        case "gen_block", count if count:
            return GenBlock(numbers)
    where = "" if word == whole else f" in {whole!r}"
    raise LayoutError(f"{word.strip()!r}{where} is not a distribution such as {EXAMPLES}")
