"""What one axis must move when its distribution changes: a few strided runs for each pair of ranks.

    cyclic(3) on 2     0 0 0 1 1 1 0 0 0 1 1 1 0 0 0 1 1 1 …      one period is 12 elements: lcm(3 · 2, 2 · 2)
    cyclic(2) on 2     0 0 1 1 0 0 1 1 0 0 1 1 0 0 1 1 0 0 …
    runs               ─── ─ ── ─ ─── …                            cut where either changes hands; each run comes
                                                                   again a period later, until the axis ends

A run is ``length`` elements that follow one another at both ranks, ``count`` times, a stride apart. So the work is that
of one period, however long the axis is. N-d is the product of one-axis answers. Thakur 1995, sections 3.3 to 3.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from oocarrays.mapping.axis import Axis, BlockCyclicAxis
from oocarrays.mapping.grid import ceil_div


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Runs:
    """Strided runs along one axis, sorted by source and target rank: one entry of each array a run."""

    source: np.ndarray
    """Ranks along the axis that have them before."""
    target: np.ndarray
    """Ranks along the axis that have them afterwards."""
    source_start: np.ndarray
    """Their first elements, as places with the source."""
    target_start: np.ndarray
    """Their first elements, as places with the target."""
    length: np.ndarray
    """Elements that follow one another."""
    count: np.ndarray
    """How often they come."""
    source_stride: np.ndarray
    """Elements from one time to the next, at the source."""
    target_stride: np.ndarray
    """Elements from one time to the next, at the target."""

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, chosen: slice | np.ndarray) -> Runs:
        return Runs(**{field.name: getattr(self, field.name)[chosen] for field in fields(Runs)})

    def of(self, side: Literal["source", "target"], rank: int) -> Runs:
        """The runs that ``rank`` sends, or receives."""
        if side == "target":
            return self[self.target == rank]
        return self[slice(*np.searchsorted(self.source, [rank, rank + 1]))]

    def between(self, source: int, target: int) -> Runs:
        """The runs that ``source`` sends to ``target``."""
        sent = self.of("source", source)
        return sent[slice(*np.searchsorted(sent.target, [target, target + 1]))]

    def sizes(self, sources: int, targets: int) -> np.ndarray:
        """Elements that each source sends to each target: a matrix."""
        flat = np.zeros(sources * targets, np.int64)
        np.add.at(flat, self.source * targets + self.target, self.length * self.count)
        return flat.reshape(sources, targets)


def runs_between(source: Axis, target: Axis) -> Runs:
    """The runs that must move along an axis, those that stay with their rank too.

    >>> runs = runs_between(BlockCyclicAxis(24, 2, 3), BlockCyclicAxis(24, 2, 2)).between(0, 1)
    >>> runs.source_start.tolist(), runs.length.tolist(), runs.count.tolist(), runs.source_stride.tolist()
    ([2, 3], [1, 2], [2, 2], [6, 6])
    """
    assert source.extent == target.extent, "an axis keeps its extent"
    tables = [_region(source, target, *region) for region in _regions(source, target)]
    joined = {f.name: np.concatenate([getattr(t, f.name) for t in tables]) for f in fields(Runs)} if tables else {}
    runs = Runs(**joined) if joined else _region(source, target, 0, 0, 1)
    return runs[np.lexsort((runs.source_start, runs.target, runs.source))]


def _regions(source: Axis, target: Axis) -> list[tuple[int, int, int]]:
    """The axis as regions in which all comes again after some elements: first, one past the last, these elements."""
    extent = source.extent
    period = math.lcm(_period(source), _period(target))
    choices = [(_blocks(source, period) + _blocks(target, period), [(0, extent, period)])]
    for one, other in ((source, target), (target, source)):
        blocks = _starts(one, 0, extent) if _blocks(one, extent) <= max(one.ranks, 1) else []
        cost = len(blocks) * (_blocks(other, _period(other)) + 1)
        ends = [*blocks[1:], extent]
        if len(blocks):
            choices.append((cost, [(int(a), int(b), _period(other)) for a, b in zip(blocks, ends, strict=True)]))
    return min(choices, key=lambda choice: choice[0])[1]


def _period(axis: Axis) -> int:
    """Elements after which a distribution comes again, or the extent."""
    return max(min(axis.period, axis.extent), 1) if isinstance(axis, BlockCyclicAxis) else max(axis.extent, 1)


def _blocks(axis: Axis, elements: int) -> int:
    """Blocks in so many elements, at most."""
    return ceil_div(min(elements, axis.extent), axis.block) if isinstance(axis, BlockCyclicAxis) else axis.ranks


def _starts(axis: Axis, start: int, stop: int) -> np.ndarray:
    """The first elements of the blocks that begin in an interval."""
    if isinstance(axis, BlockCyclicAxis):
        return np.arange(-(-start // axis.block) * axis.block, stop, axis.block)
    starts = np.unique([section.start for rank in range(axis.ranks) for section in axis.sections(rank)])
    return starts[(starts >= start) & (starts < stop)].astype(np.int64)


def _region(source: Axis, target: Axis, start: int, stop: int, period: int) -> Runs:
    """The runs of a region: those of its first period, again and again, and those of what is left of the last."""
    again = (stop - start) // period
    tail = start + again * period
    first = _cut(source, target, start, start + period if again else start)
    last = _cut(source, target, tail, stop)
    index = np.concatenate([first[0], last[0]])
    owners = source.owner(index), target.owner(index)
    return Runs(
        source=owners[0],
        target=owners[1],
        source_start=source.place(index),
        target_start=target.place(index),
        length=np.concatenate([first[1], last[1]]),
        count=np.concatenate([np.full(len(first[0]), again), np.ones(len(last[0]), np.int64)]),
        source_stride=np.full(len(index), _stride(source, period)),
        target_stride=np.full(len(index), _stride(target, period)),
    )


def _cut(source: Axis, target: Axis, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """An interval, cut where either side changes hands: first elements and lengths."""
    if start >= stop:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    index = np.union1d(_starts(source, start, stop), _starts(target, start, stop))
    index = np.union1d(index, [start]).astype(np.int64)
    return index, np.diff(index, append=stop)


def _stride(axis: Axis, period: int) -> int:
    """Elements that a rank holds of so many, where those are whole turns, or all its own."""
    turns, rest = divmod(period, axis.period) if isinstance(axis, BlockCyclicAxis) else (0, period)
    return turns * axis.block if isinstance(axis, BlockCyclicAxis) and not rest else period
