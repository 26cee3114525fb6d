"""Runs: what one axis must move when its distribution changes, as a few strided runs for each pair of ranks.

    cyclic(3) on 2     0 0 0 1 1 1 0 0 0 1 1 1 0 0 0 1 1 1 …      one period is 12 elements: lcm(3 · 2, 2 · 2)
    cyclic(2) on 2     0 0 1 1 0 0 1 1 0 0 1 1 0 0 1 1 0 0 …
    runs               ─── ─ ── ─ ─── …                            cut where either changes hands; each run comes
                                                                   again a period later, until the axis ends

A run is ``length`` elements that follow one another at both ranks, ``count`` times, a stride apart. So the work is that
of one period, however long the axis is. Any two distributions are cut so; for those of which the thesis has formulas,
`runs_between` takes these. N-d is the product of one-axis answers. Thakur 1995, sections 3.3 to 3.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple

import numpy as np

from oocarrays.mapping.grid import ceil_div
from oocarrays.mapping.layouts.axis import Axis, BlockCyclicAxis, GenBlockAxis

Side = Literal["source", "target"]


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
    """Elements from one time to the next, at the source; its length, where a run comes once."""
    target_stride: np.ndarray
    """Elements from one time to the next, at the target."""

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, chosen: slice | np.ndarray) -> Runs:
        return Runs(**{name: column[chosen] for name, column in self.columns()})

    def columns(self) -> Iterator[tuple[str, np.ndarray]]:
        """Each field's name and array."""
        return ((field.name, getattr(self, field.name)) for field in fields(self))

    def of(self, side: Side, rank: int) -> Runs:
        """Return the runs that ``rank`` sends, or receives."""
        if side == "target":
            return self[self.target == rank]
        return self[slice(*np.searchsorted(self.source, [rank, rank + 1]))]

    def between(self, source: int, target: int) -> Runs:
        sent = self.of("source", source)
        return sent[slice(*np.searchsorted(sent.target, [target, target + 1]))]

    def sizes(self, sources: int, targets: int) -> np.ndarray:
        """Elements that each source sends to each target: a matrix."""
        flat = np.zeros(sources * targets, np.int64)
        np.add.at(flat, self.source * targets + self.target, self.length * self.count)
        return flat.reshape(sources, targets)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for _, column in self.columns())

    def reversed(self) -> Runs:
        """Return the same runs for the way back: nothing is computed but their order (Thakur 1995, section 3.7)."""
        swapped = replace(
            self,
            source=self.target,
            target=self.source,
            source_start=self.target_start,
            target_start=self.source_start,
            source_stride=self.target_stride,
            target_stride=self.source_stride,
        )
        # stable: what is in order by source and place stays so; ranks of 16 bits are sorted in linear time
        ranks = self.target.astype(np.uint16) if self.target.max(initial=0) < 2**16 else self.target
        return swapped[np.argsort(ranks, kind="stable")]


def runs_between(source: Axis, target: Axis) -> Runs:
    """Return the runs that must move along an axis, those that stay with their rank too."""
    name = formula(source, target)
    return FORMULAS[name](source, target) if name and _is_once_a_pair(source, target) else cut(source, target)


def formula(source: Axis, target: Axis) -> str | None:
    """Return the name of the thesis's formula for two distributions, where it has one: of ``FORMULAS``."""
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
    """The runs between any two distributions: those of the first period of each region, and how often they come."""
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


def block_to_cyclic(source: BlockCyclicAxis, target: BlockCyclicAxis) -> Runs:
    """Block(m) to cyclic: each source deals out its elements in turn (Thakur 1995, 3.3, Figure 3.5 as corrected)."""
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


def ky_to_y(source: BlockCyclicAxis, target: BlockCyclicAxis) -> Runs:
    """Cyclic(k · y) to cyclic(y): each block's k parts go to k ranks in turn (Thakur 1995, 3.5.1, Figure 3.9).

    The sequence of ranks is that of every block; in print, it does not repeat where k does not divide the ranks.
    """
    k = source.block // target.block
    ranks = np.repeat(np.arange(source.ranks), k)
    part = np.arange(source.ranks * k)
    first = Runs(
        source=ranks,
        target=part % target.ranks,
        source_start=part % k * target.block,
        target_start=part // target.ranks * target.block,
        length=np.full_like(part, target.block),
        count=np.ones_like(part),
        source_stride=np.full_like(part, source.block),
        target_stride=np.full_like(part, source.block),
    )
    return _repeated(first, source.extent - part * target.block, source.period)


def cyclic_to_block(source: BlockCyclicAxis, target: BlockCyclicAxis) -> Runs:
    """Cyclic to block(m): `block_to_cyclic` the other way (Thakur 1995, 3.4, Figure 3.6)."""
    return block_to_cyclic(target, source).reversed()


def x_to_kx(source: BlockCyclicAxis, target: BlockCyclicAxis) -> Runs:
    """Cyclic(x) to cyclic(k · x): `ky_to_y` the other way (Thakur 1995, 3.5.2, Figure 3.12)."""
    return ky_to_y(target, source).reversed()


FORMULAS: dict[str, Callable[..., Runs]] = {
    "block-to-cyclic": block_to_cyclic,
    "cyclic-to-block": cyclic_to_block,
    "ky-to-y": ky_to_y,
    "x-to-kx": x_to_kx,
}
"""The thesis's formulas by name."""


def _is_once_a_pair(source: Axis, target: Axis) -> bool:
    """Return whether a formula gives a pair of ranks one run: a block deals to no rank twice, or is one of a kind."""
    assert isinstance(source, BlockCyclicAxis)
    assert isinstance(target, BlockCyclicAxis)
    small, large = sorted((source.block, target.block))
    return large <= small * source.ranks or formula(source, target) in ("block-to-cyclic", "cyclic-to-block")


class _Regions(NamedTuple):
    """Where all comes again after ``period`` elements: half-open intervals that are the axis together."""

    start: np.ndarray
    stop: np.ndarray
    period: int
    source_stride: int
    target_stride: int


def _regions(source: Axis, target: Axis) -> _Regions:
    """Return the regions that need the fewest cuts: the axis, or the blocks of one side."""
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
    """Elements after which a distribution comes again, or the extent."""
    return max(min(axis.period, axis.extent), 1) if isinstance(axis, BlockCyclicAxis) else max(axis.extent, 1)


def _blocks(axis: Axis, elements: int) -> int:
    """Blocks in so many elements, at most; one where all are of one rank."""
    if axis.ranks == 1 or not isinstance(axis, BlockCyclicAxis):
        return axis.ranks
    return ceil_div(min(elements, axis.extent), axis.block)


def _starts(axis: Axis, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Return the first elements of the blocks that begin in intervals."""
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
    """Elements that a rank holds of a period, which is whole turns, or all there is."""
    turns, rest = divmod(period, axis.period) if isinstance(axis, BlockCyclicAxis) else (0, period)
    return turns * axis.block if isinstance(axis, BlockCyclicAxis) and not rest else period


def _repeated(first: Runs, left: np.ndarray, period: int) -> Runs:
    """Runs that come again after each period while elements are ``left``; at last, perhaps, a shorter one."""
    count = np.maximum((left - first.length) // period + 1, 0)
    left = left - count * period
    again, last = replace(first, count=count)[count > 0], left > 0
    shorter = replace(
        first,
        source_start=first.source_start + count * first.source_stride,
        target_start=first.target_start + count * first.target_stride,
        length=left,
    )[last]
    return _joined(_sorted(_concatenated(again, shorter)))


def _concatenated(one: Runs, other: Runs) -> Runs:
    return Runs(**{name: np.concatenate([column, getattr(other, name)]) for name, column in one.columns()})


def _sorted(runs: Runs) -> Runs:
    return runs[np.lexsort((runs.source_start, runs.target, runs.source))]


def _joined(runs: Runs) -> Runs:
    """The same elements in fewer runs: what follows one another at both ranks, in a run or in two, is one run once."""
    runs = _neighbours_joined(runs)
    whole = (runs.length == runs.source_stride) & (runs.length == runs.target_stride) & (runs.count > 1)
    length = np.where(whole, runs.length * runs.count, runs.length)
    runs = _neighbours_joined(replace(runs, length=length, count=np.where(whole, 1, runs.count)))
    once = runs.count == 1
    strides = (np.where(once, runs.length, stride) for stride in (runs.source_stride, runs.target_stride))
    return replace(runs, source_stride=next(strides), target_stride=next(strides))


def _neighbours_joined(runs: Runs) -> Runs:
    """Runs of which one begins where the one before ends, each time, as one."""
    follows = runs.count[:-1] == runs.count[1:]
    for before, starts in ((runs.source, runs.source_start), (runs.target, runs.target_start)):
        follows &= (before[:-1] == before[1:]) & (starts[:-1] + runs.length[:-1] == starts[1:])
    for stride in (runs.source_stride, runs.target_stride):
        follows &= (stride[:-1] == stride[1:]) | (runs.count[1:] == 1)
    first = np.flatnonzero(np.append(np.full(min(len(runs), 1), True), ~follows))
    return runs if len(first) == len(runs) else replace(runs[first], length=np.add.reduceat(runs.length, first))
