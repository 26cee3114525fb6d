"""Runs: elements of one axis that move when its distribution changes, as a few strided runs per pair of ranks.

    cyclic(3) on 2     0 0 0 1 1 1 0 0 0 1 1 1 0 0 0 1 1 1 …      one period is 12 elements: lcm(3 · 2, 2 · 2)
    cyclic(2) on 2     0 0 1 1 0 0 1 1 0 0 1 1 0 0 1 1 0 0 …
    runs               ─── ─ ── ─ ─── …                            cut where either owner changes; each run repeats
                                                                   every period, until the axis ends

A run is ``length`` elements that are contiguous at both ranks, repeated ``count`` times at a stride. The work is
therefore that of one period, however long the axis is. This works for any two distributions, and finds the runs of the
thesis's formulas; that from block(m) to cyclic is used, because it is several times faster. Runs of several axes are
products of those of one axis. Thakur 1995, sections 3.3 to 3.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple

import numpy as np

from oocarrays.mapping.grid import ceil_div
from oocarrays.mapping.layouts.distribution import Axis, BlockCyclicAxis, GenBlockAxis

Side = Literal["source", "target"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Runs:
    """Strided runs along one axis, sorted by source and target rank; each array has one entry per run."""

    source: np.ndarray
    """Ranks along the axis that hold the runs before."""
    target: np.ndarray
    """Ranks along the axis that hold the runs afterwards."""
    source_start: np.ndarray
    """Local index of each run's first element at the source."""
    target_start: np.ndarray
    """Local index of each run's first element at the target."""
    length: np.ndarray
    """Number of contiguous elements per repetition."""
    count: np.ndarray
    source_stride: np.ndarray
    """Elements between the starts of repetitions at the source; the run's length if it occurs once."""
    target_stride: np.ndarray
    """Elements between the starts of repetitions at the target; the run's length if it occurs once."""

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, chosen: slice | np.ndarray) -> Runs:
        return Runs(**{name: column[chosen] for name, column in self.columns()})

    def columns(self) -> Iterator[tuple[str, np.ndarray]]:
        return ((field.name, getattr(self, field.name)) for field in fields(self))

    def of(self, side: Side, rank: int) -> Runs:
        if side == "target":
            return self[self.target == rank]
        return self[slice(*np.searchsorted(self.source, [rank, rank + 1]))]

    def between(self, source: int, target: int) -> Runs:
        sent = self.of("source", source)
        return sent[slice(*np.searchsorted(sent.target, [target, target + 1]))]

    def sizes(self, sources: int, targets: int) -> np.ndarray:
        """Return a matrix of the elements that each source sends to each target."""
        flat = np.zeros(sources * targets, np.int64)
        np.add.at(flat, self.source * targets + self.target, self.length * self.count)
        return flat.reshape(sources, targets)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for _, column in self.columns())

    def reversed(self) -> Runs:
        """Return the runs of the way back; only their order is computed (Thakur 1995, section 3.7)."""
        swapped = replace(
            self,
            source=self.target,
            target=self.source,
            source_start=self.target_start,
            target_start=self.source_start,
            source_stride=self.target_stride,
            target_stride=self.source_stride,
        )
        # stable: entries sorted by source and place stay so; ranks of 16 bits are sorted in linear time
        ranks = self.target.astype(np.uint16) if self.target.max(initial=0) < 2**16 else self.target
        return swapped[np.argsort(ranks, kind="stable")]


def runs_between(source: Axis, target: Axis) -> Runs:
    """Return the runs that move along an axis, including those that stay at their rank."""
    match formula(source, target):
        case "block-to-cyclic":
            return block_to_cyclic(source, target)
        case "cyclic-to-block":
            return block_to_cyclic(target, source).reversed()
    return cut(source, target)


def formula(source: Axis, target: Axis) -> str | None:
    """Return the name of the thesis's formula for two distributions; None if it has none."""
    if not (isinstance(source, BlockCyclicAxis) and isinstance(target, BlockCyclicAxis)):
        return None
    if target.block == 1 and source.period >= source.extent:
        return "block-to-cyclic"
    if source.block == 1 and target.period >= target.extent:
        return "cyclic-to-block"
    if not source.ranks == target.ranks > 1:
        return None
    return "x-to-kx" if target.block % source.block == 0 else "ky-to-y" if source.block % target.block == 0 else None


def cut(source: Axis, target: Axis) -> Runs:
    """Return the runs between any two distributions: those of the first period of each region, with their counts."""
    regions = _regions(source, target)
    ends = np.minimum(regions.start + regions.period, regions.stop)
    cuts = [regions.start, _starts(source, regions.start, ends), _starts(target, regions.start, ends)]
    index = np.unique(np.concatenate(cuts))
    region = np.searchsorted(regions.start, index, side="right") - 1
    first = Runs(
        source=source.owner(index),
        target=target.owner(index),
        source_start=source.place(index),
        target_start=target.place(index),
        length=np.minimum(np.append(index[1:], ends[-1:]), ends[region]) - index,
        count=np.ones_like(index),
        source_stride=np.full_like(index, regions.source_stride),
        target_stride=np.full_like(index, regions.target_stride),
    )
    return _repeated(first, regions.stop[region] - index, regions.period)


def block_to_cyclic(source: Axis, target: Axis) -> Runs:
    """Return the runs from block(m) to cyclic, dealt out in turn (Thakur 1995, 3.3, Figure 3.5 as corrected)."""
    assert isinstance(source, BlockCyclicAxis)
    sources, targets = np.arange(source.ranks)[:, None], np.arange(target.ranks)
    start = source.block * sources
    first = (targets - start) % target.ranks
    count = (np.clip(source.extent - start, 0, source.block) - first - 1) // target.ranks + 1
    sends = np.nonzero(count > 0)
    return _joined(
        Runs(
            source=sends[0],
            target=sends[1],
            source_start=first[sends],
            target_start=((start + first) // target.ranks)[sends],
            length=np.ones_like(sends[0]),
            count=count[sends],
            source_stride=np.full_like(sends[0], target.ranks),
            target_stride=np.ones_like(sends[0]),
        )
    )


class _Regions(NamedTuple):
    """Half-open intervals that partition the axis, such that runs repeat every ``period`` elements in each."""

    start: np.ndarray
    stop: np.ndarray
    period: int
    source_stride: int
    target_stride: int


def _regions(source: Axis, target: Axis) -> _Regions:
    """Return the regions that need the fewest cuts: the whole axis, or the blocks of one side."""
    extent = source.extent
    period = math.lcm(_period(source), _period(target))
    choices = [
        (_blocks(source, period) + _blocks(target, period), [source, target]),
        (_blocks(source, extent) * (_blocks(target, _period(target)) + 1), [target]),
        (_blocks(target, extent) * (_blocks(source, _period(source)) + 1), [source]),
    ]
    dealt = min(choices, key=lambda choice: choice[0])[1]
    period = math.lcm(*map(_period, dealt))
    all_of_it = np.zeros(1, np.int64), np.array([extent])
    start = _starts(target if dealt == [source] else source, *all_of_it) if len(dealt) == 1 else all_of_it[0][:extent]
    strides = (_stride(axis, period) if axis in dealt else period for axis in (source, target))
    return _Regions(start, np.append(start[1:], np.full(min(len(start), 1), extent)), period, *strides)


def _period(axis: Axis) -> int:
    return max(min(axis.period, axis.extent), 1) if isinstance(axis, BlockCyclicAxis) else max(axis.extent, 1)


def _blocks(axis: Axis, elements: int) -> int:
    """Return the maximum number of blocks in the given number of elements; 1 if one rank owns all."""
    if axis.ranks == 1 or not isinstance(axis, BlockCyclicAxis):
        return axis.ranks
    return ceil_div(min(elements, axis.extent), axis.block)


def _starts(axis: Axis, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Return the first elements of the blocks that begin in the intervals."""
    if axis.ranks == 1:
        return np.unique(start[(start == 0) & (start < stop)])
    if isinstance(axis, BlockCyclicAxis):
        numbers = _ranges(-(-start // axis.block), -(-stop // axis.block))
        return numbers * axis.block
    assert isinstance(axis, GenBlockAxis)
    starts: np.ndarray = np.unique(np.array(axis.starts))
    numbers = _ranges(np.searchsorted(starts, start), np.searchsorted(starts, stop))
    return np.asarray(starts[numbers])


def _ranges(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    counts = stop - start
    firsts = np.repeat(start - (counts.cumsum() - counts), counts)
    return firsts + np.arange(len(firsts))


def _stride(axis: Axis, period: int) -> int:
    """Return a rank's elements of a period if that is whole turns of the distribution, otherwise the period."""
    turns, rest = divmod(period, axis.period) if isinstance(axis, BlockCyclicAxis) else (0, period)
    return turns * axis.block if isinstance(axis, BlockCyclicAxis) and not rest else period


def _repeated(first: Runs, left: np.ndarray, period: int) -> Runs:
    """Return runs repeated every period while elements are ``left``, with a shorter last repetition if needed."""
    count = np.maximum((left - first.length) // period + 1, 0)
    left = left - count * period
    again, last = replace(first, count=count)[count > 0], left > 0
    shorter = replace(
        first,
        source_start=first.source_start + count * first.source_stride,
        target_start=first.target_start + count * first.target_stride,
        length=left,
    )[last]
    both = Runs(**{name: np.concatenate([column, getattr(shorter, name)]) for name, column in again.columns()})
    return _joined(both[np.lexsort((both.source_start, both.target, both.source))])


def _joined(runs: Runs) -> Runs:
    """Merge runs that are contiguous at both ranks, and repetitions that are contiguous, into single runs."""
    runs = _neighbours_joined(runs)
    whole = (runs.length == runs.source_stride) & (runs.length == runs.target_stride) & (runs.count > 1)
    length = np.where(whole, runs.length * runs.count, runs.length)
    runs = _neighbours_joined(replace(runs, length=length, count=np.where(whole, 1, runs.count)))
    once = runs.count == 1
    strides = (np.where(once, runs.length, stride) for stride in (runs.source_stride, runs.target_stride))
    return replace(runs, source_stride=next(strides), target_stride=next(strides))


def _neighbours_joined(runs: Runs) -> Runs:
    """Merge consecutive runs that are adjacent at both source and target in every repetition."""
    follows = runs.count[:-1] == runs.count[1:]
    for before, starts in ((runs.source, runs.source_start), (runs.target, runs.target_start)):
        follows &= (before[:-1] == before[1:]) & (starts[:-1] + runs.length[:-1] == starts[1:])
    for stride in (runs.source_stride, runs.target_stride):
        follows &= (stride[:-1] == stride[1:]) | (runs.count[1:] == 1)
    first = np.flatnonzero(np.append(np.full(min(len(runs), 1), True), ~follows))
    return runs if len(first) == len(runs) else replace(runs[first], length=np.add.reduceat(runs.length, first))
