"""One all-to-all between two layouts: what every rank sends to every rank, and what that makes each of them do.

    cyclic(2) on 2 → block on 3, 12 elements                          rank    0   1   2
    before        0 0 1 1 0 0 1 1 0 0 1 1                             held    6   6   0
    afterwards    0 0 0 0 1 1 1 1 2 2 2 2                             due     4   4   4
    kept          ───         ───                                     sends   2   2   0

An axis is computed once for both directions, whatever layouts it is in. Thakur 1995, chapter 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from oocarrays.errors import LayoutError
from oocarrays.mapping.layouts.axis import Axis
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.plan.layouts.runs import Runs, Side, runs_between


@dataclass(frozen=True, slots=True)
class Transfer:
    """One all-to-all: every rank of ``source`` sends to every rank of ``target`` what the latter is to hold."""

    source: Layout
    """Who holds what before."""
    target: Layout
    """Who holds what afterwards."""
    held: tuple[Runs, ...] | None = field(default=None, repr=False, compare=False)
    """The runs along each axis, where they are kept with it, and travel; otherwise they are found when they are asked
    for, once a process."""

    def __post_init__(self) -> None:
        if self.source.shape != self.target.shape:
            raise LayoutError(f"an array of shape {self.source.shape} cannot be laid out as one of {self.target.shape}")

    @property
    def axes(self) -> tuple[Runs, ...]:
        """The runs along each axis, between coordinates of the two grids."""
        return _axes(self.source, self.target) if self.held is None else self.held

    def holding(self) -> Transfer:
        """Return the same with its runs: it need not find them again, wherever it goes."""
        return replace(self, held=self.axes)

    def bare(self) -> Transfer:
        """Return the same without them, which is small: workers find them."""
        return Transfer(self.source, self.target)

    def runs(self, source: int, target: int) -> tuple[Runs, ...]:
        """Return the runs that ``source`` sends to ``target`` along each axis; what moves is their product."""
        places = zip(self.axes, self.source.coordinates(source), self.target.coordinates(target), strict=True)
        return tuple(runs.between(s, t) for runs, s, t in places)

    def size(self, source: int, target: int) -> int:
        return math.prod(int((runs.length * runs.count).sum()) for runs in self.runs(source, target))

    def sizes(self) -> np.ndarray:
        """Elements that each source sends to each target, and to itself: a matrix."""
        sizes = np.ones((1, 1), np.int64)
        for runs, sources, targets in zip(self.axes, self.source.grid, self.target.grid, strict=True):
            sizes = np.kron(sizes, runs.sizes(sources, targets))
        return sizes

    @property
    def work(self) -> TransferWork:
        return _work(self)

    def reversed(self) -> Transfer:
        """Return the way back, of which nothing is to be computed but the order of its runs."""
        held = None if self.held is None else tuple(runs.reversed() for runs in self.held)
        return Transfer(self.target, self.source, held)


class TransferWork(NamedTuple):
    """The work of each rank in a transfer: arrays by rank, at most as many as there are before and afterwards."""

    held: np.ndarray
    """Elements before."""
    due: np.ndarray
    """Elements afterwards."""
    kept: np.ndarray
    """Elements that it has before and afterwards."""
    sends: np.ndarray
    """Messages to others."""
    receives: np.ndarray
    """Messages from others."""
    pieces: np.ndarray
    """Contiguous pieces of its arrays that are copied, into messages and out of them."""

    @property
    def moved(self) -> int:
        """Elements that go from one rank to another."""
        return int((self.held - self.kept).sum())


@lru_cache(maxsize=256)
def _axes(source: Layout, target: Layout) -> tuple[Runs, ...]:
    pairs = zip(source.axes, target.axes, strict=True)
    return tuple(_runs(s, t) for s, t in pairs)  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _runs(source: Axis, target: Axis) -> Runs:
    """One way is computed, and the way back is read from it: of the two, that whose sides are in order."""
    if repr(source) > repr(target):
        return _runs(target, source).reversed()  # type: ignore[arg-type]
    return runs_between(source, target)


@lru_cache(maxsize=256)
def _work(transfer: Transfer) -> TransferWork:
    """N-d is the product of one-axis answers, rank by rank."""
    ranks = max(transfer.source.ranks, transfer.target.ranks)
    kept = _filled(_kept(transfer), ranks)
    held, sends, taken = (_filled(numbers, ranks) for numbers in _side(transfer, "source"))
    due, receives, put = (_filled(numbers, ranks) for numbers in _side(transfer, "target"))
    keeps = (kept > 0).astype(np.int64)
    return TransferWork(
        held=held, due=due, kept=kept, sends=sends - keeps, receives=receives - keeps, pieces=taken + put
    )


def _side(transfer: Transfer, side: Side) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each rank of a side: elements, ranks of the other side that they are of or for, and contiguous pieces."""
    elements = partners = pieces = np.ones(1, np.int64)
    grid = transfer.source.grid if side == "source" else transfer.target.grid
    grids = zip(transfer.source.grid, transfer.target.grid, strict=True)
    inner = max((axis for axis, both in enumerate(grids) if both != (1, 1)), default=-1)
    for axis, (runs, ranks) in enumerate(zip(transfer.axes, grid, strict=True)):
        pairs = _pairs(runs)
        rank = getattr(pairs, side)
        size = _totals(rank, pairs.size, ranks)
        elements = np.kron(elements, size)
        partners = np.kron(partners, _totals(rank, np.ones_like(rank), ranks))
        if axis <= inner:
            pieces = np.kron(pieces, _totals(rank, pairs.pieces, ranks) if axis == inner else size)
    return elements, partners, pieces


def _kept(transfer: Transfer) -> np.ndarray:
    """Elements that each rank, which is on both sides, has before and afterwards."""
    ranks = np.arange(min(transfer.source.ranks, transfer.target.ranks))
    kept = np.ones_like(ranks)
    for axis, runs in enumerate(transfer.axes):
        pairs, targets = _pairs(runs), transfer.target.grid[axis]
        known = np.append(pairs.source * targets + pairs.target, -1)
        asked = _along(transfer.source.grid, axis, ranks) * targets + _along(transfer.target.grid, axis, ranks)
        found = np.searchsorted(known[:-1], asked)
        kept *= np.where(known[found] == asked, np.append(pairs.size, 0)[found], 0)
    return kept


class _Pairs(NamedTuple):
    """Pairs of ranks along an axis that have runs between them, in order."""

    source: np.ndarray
    target: np.ndarray
    size: np.ndarray
    pieces: np.ndarray


def _pairs(runs: Runs) -> _Pairs:
    """Add up the runs of each pair: elements, and contiguous pieces."""
    new = (np.diff(runs.source, prepend=-1) != 0) | (np.diff(runs.target, prepend=-1) != 0)
    first = np.flatnonzero(new)
    if not len(first):
        return _Pairs(runs.source, runs.target, runs.count, runs.count)
    sums = (np.add.reduceat(numbers, first) for numbers in (runs.length * runs.count, runs.count))
    return _Pairs(runs.source[first], runs.target[first], *sums)


def _along(grid: tuple[int, ...], axis: int, ranks: np.ndarray) -> np.ndarray:
    return ranks // math.prod(grid[axis + 1 :]) % grid[axis]


def _totals(rank: np.ndarray, numbers: np.ndarray, ranks: int) -> np.ndarray:
    totals = np.zeros(ranks, np.int64)
    np.add.at(totals, rank, numbers)
    return totals


def _filled(numbers: np.ndarray, ranks: int) -> np.ndarray:
    """Numbers of as many ranks, with nothing for those that a side has not."""
    return np.append(numbers, np.zeros(ranks - len(numbers), np.int64))
