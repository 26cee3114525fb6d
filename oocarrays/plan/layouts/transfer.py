"""All-to-all between two layouts: elements that each rank sends to each, and the work of each rank.

    cyclic(2) on 2 → block on 3, 12 elements                          rank    0   1   2
    before        0 0 1 1 0 0 1 1 0 0 1 1                             held    6   6   0
    afterwards    0 0 0 0 1 1 1 1 2 2 2 2                             due     4   4   4
    kept          ───         ───                                     sends   2   2   0

    general   cyclic(11) ─────────────────► cyclic(3)          one transfer
    gcd       cyclic(11) ──► cyclic(1)  ──► cyclic(3)          by way of the block that divides both
    lcm       cyclic(11) ──► cyclic(33) ──► cyclic(3)          by way of the block that both divide
    indirect  one axis after the other; indirect-lcm by way of such a block in each (Figure 3.21)

The runs of an axis are computed once for both directions, and shared by all layouts with that axis. Thakur 1995,
chapter 3; methods: sections 3.3 to 3.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from oocarrays.errors import LayoutError
from oocarrays.mapping.layouts.distribution import Axis, BlockCyclicAxis, Cyclic, Distribution
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.plan.layouts.runs import Runs, Side, formula, runs_between

BY_WAY_OF = {"gcd": math.gcd, "lcm": math.lcm}
"""Rules for the intermediate block between two others, such that closed formulas lead to it and from it."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """All-to-all in which every rank of ``source`` sends each rank of ``target`` the elements that it is to hold."""

    source: Layout
    target: Layout
    held: tuple[Runs, ...] | None = field(default=None, repr=False, compare=False)
    """Runs along each axis if they are stored and sent with the transfer; None to compute them once per process."""

    def __post_init__(self) -> None:
        if self.source.shape != self.target.shape:
            raise LayoutError(f"an array of shape {self.source.shape} cannot be laid out as one of {self.target.shape}")

    @property
    def axes(self) -> tuple[Runs, ...]:
        return _axes(self.source, self.target) if self.held is None else self.held

    def holding(self) -> Transfer:
        """Return the transfer with its runs, so that other processes need not compute them."""
        return replace(self, held=self.axes)

    def bare(self) -> Transfer:
        """Return the transfer without its runs, which is small; workers compute the runs."""
        return Transfer(self.source, self.target)

    def runs(self, source: int, target: int) -> tuple[Runs, ...]:
        """Return the runs that ``source`` sends to ``target`` along each axis; their product moves."""
        places = zip(self.axes, self.source.coordinates(source), self.target.coordinates(target), strict=True)
        return tuple(runs.between(s, t) for runs, s, t in places)

    def size(self, source: int, target: int) -> int:
        return math.prod(int((runs.length * runs.count).sum()) for runs in self.runs(source, target))

    def sizes(self) -> np.ndarray:
        """Return a matrix of the elements that each source sends to each target, itself included."""
        sizes = np.ones((1, 1), np.int64)
        for runs, sources, targets in zip(self.axes, self.source.grid, self.target.grid, strict=True):
            sizes = np.kron(sizes, runs.sizes(sources, targets))
        return sizes

    @property
    def work(self) -> TransferWork:
        return _work(self)

    def reversed(self) -> Transfer:
        """Return the transfer of the way back; only the order of its runs is computed."""
        held = None if self.held is None else tuple(runs.reversed() for runs in self.held)
        return Transfer(self.target, self.source, held)


class TransferWork(NamedTuple):
    """Work of each rank in a transfer: arrays by rank, over all ranks before or after it."""

    held: np.ndarray
    """Number of elements held before."""
    due: np.ndarray
    """Number of elements held after."""
    kept: np.ndarray
    """Number of elements held both before and after."""
    sends: np.ndarray
    """Number of messages sent to other ranks."""
    receives: np.ndarray
    """Number of messages received from other ranks."""
    pieces: np.ndarray
    """Number of contiguous pieces of the rank's arrays copied into messages and out of them."""

    @property
    def moved(self) -> int:
        return int((self.held - self.kept).sum())


@lru_cache(maxsize=256)
def _axes(source: Layout, target: Layout) -> tuple[Runs, ...]:
    pairs = zip(source.axes, target.axes, strict=True)
    return tuple(_runs(s, t) for s, t in pairs)


@lru_cache(maxsize=256)
def _runs(source: Axis, target: Axis) -> Runs:
    """Return the runs of an axis; one direction is computed, in sorted order, and the other derived from it."""
    if repr(source) > repr(target):
        return _runs(target, source).reversed()
    return runs_between(source, target)


@lru_cache(maxsize=256)
def _work(transfer: Transfer) -> TransferWork:
    """Return the work of each rank, as a product of those of single axes."""
    ranks = max(transfer.source.ranks, transfer.target.ranks)
    kept = _filled(_kept(transfer), ranks)
    held, sends, taken = (_filled(numbers, ranks) for numbers in _side(transfer, "source"))
    due, receives, put = (_filled(numbers, ranks) for numbers in _side(transfer, "target"))
    keeps = (kept > 0).astype(np.int64)
    return TransferWork(
        held=held, due=due, kept=kept, sends=sends - keeps, receives=receives - keeps, pieces=taken + put
    )


def _side(transfer: Transfer, side: Side) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, per rank of a side, its elements, its partners on the other side, and its contiguous pieces."""
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
    """Return the number of elements that each rank of both sides holds before and after."""
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
    """Pairs of ranks along an axis with runs between them, in order."""

    source: np.ndarray
    target: np.ndarray
    size: np.ndarray
    pieces: np.ndarray


def _pairs(runs: Runs) -> _Pairs:
    """Return the elements and contiguous pieces of each pair, summed over its runs."""
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
    """Return numbers padded with zeros for ranks missing on a side."""
    return np.append(numbers, np.zeros(ranks - len(numbers), np.int64))


@lru_cache(maxsize=256)
def ways_between(source: Layout, target: Layout) -> dict[str, list[tuple[Transfer, ...]]]:
    """Return the applicable methods, formulas first; an intermediate layout may use either side's grid."""
    whole: tuple[Transfer, ...] = (Transfer(source, target),)
    changed = [axis for axis, (s, t) in enumerate(zip(source.axes, target.axes, strict=True)) if s != t]
    between = {name: _between(source, target, changed, rule) for name, rule in BY_WAY_OF.items()}
    ways = {name: [_by_way_of(source, target, [each]) for each in found] for name, found in between.items() if found}
    if len(changed) > 1:
        ways = {"direct": [whole]} | ways
        if source.grid == target.grid:
            ways["indirect"] = [_axis_after_axis(source, target, changed)]
            for name, rule in BY_WAY_OF.items():
                if name in ways:
                    ways[f"indirect-{name}"] = [_axis_after_axis(source, target, changed, rule)]
        return ways
    names = [formula(source.axes[axis], target.axes[axis]) for axis in changed]
    first = {name: [whole] for name in names if name}
    return first | {"general": [whole if changed else ()]} | ways


def _between(source: Layout, target: Layout, axes: list[int], rule: Callable[[int, int], int]) -> list[Layout]:
    """Return the intermediate layouts for the axes without a closed formula; empty if none applies."""
    blocks = {axis: _block_between(source.axes[axis], target.axes[axis], rule) for axis in axes}
    known = {axis: block for axis, block in blocks.items() if block is not None}
    found = []
    for side in dict.fromkeys([source, target] if source.grid != target.grid else [source]):
        layout = side
        for axis, block in known.items():
            layout = _with(layout, axis, Cyclic(block))
        found += [layout] if known and layout not in (source, target) else []
    return found


def _block_between(s: Axis, t: Axis, rule: Callable[[int, int], int]) -> int | None:
    """Return the intermediate block of two block-cyclic axes over several ranks each; None if it is one of theirs."""
    if not (isinstance(s, BlockCyclicAxis) and isinstance(t, BlockCyclicAxis)) or 1 in (s.ranks, t.ranks):
        return None
    block = rule(s.block, t.block)
    direct = s.ranks == t.ranks and formula(s, t) is not None
    return None if direct or block in (s.block, t.block) else block


def _axis_after_axis(
    source: Layout, target: Layout, changed: list[int], rule: Callable[[int, int], int] | None = None
) -> tuple[Transfer, ...]:
    """Return transfers that change one axis after the other, at equal cost in any order (Thakur 1995, 3.6.1)."""
    between = [source]
    for axis in changed:
        block = rule and _block_between(source.axes[axis], target.axes[axis], rule)
        if block:
            between.append(_with(between[-1], axis, Cyclic(block)))
        between.append(_with(between[-1], axis, target.distributions[axis]))
    return _by_way_of(source, target, between[1:-1])


def _by_way_of(source: Layout, target: Layout, between: list[Layout]) -> tuple[Transfer, ...]:
    return tuple(Transfer(*pair) for pair in pairwise([source, *between, target]))


def _with(layout: Layout, axis: int, distribution: Distribution) -> Layout:
    distributions = (*layout.distributions[:axis], distribution, *layout.distributions[axis + 1 :])
    return replace(layout, distributions=distributions)
