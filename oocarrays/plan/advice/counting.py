"""Counts of chunks and runs accessed by a set of sections, for many chunk shapes at once, in closed form per axis.

    sections along an axis      ├──────┤├──────┤├──────┤        three of 8 elements
    chunks of 6                 └────┘└────┘└────┘└────┘        visits 2 + 2 + 2, distinct 4, whole 2
    chunks of 8                 └──────┘└──────┘└──────┘        visits 3, distinct 3, whole 3

The sections of a footprint are the product of the intervals along its axes, and so are visits, distinct chunks and
elements. del Rosario, Bordawekar and Choudhary 1993, section 3: the cost of an access is its number of contiguous runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import NamedTuple

import numpy as np

from oocarrays.mapping.along import Line, product_line
from oocarrays.mapping.selection import Axes, regular


class Counts(NamedTuple):
    """Access counts along an axis or of a whole array, one entry per chunk length or shape."""

    visits: np.ndarray
    """Number of chunks touched by all sections, with repetitions."""
    distinct: np.ndarray
    """Number of distinct chunks touched."""
    whole: np.ndarray
    """Number of visits that access every element of the chunk."""
    runs: np.ndarray
    """Contiguous runs."""
    most: np.ndarray
    """Maximum number of chunks touched by one section."""


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals along one axis, each accessed by one or more sections."""

    extent: int
    """Length of the axis, in elements."""
    first: np.ndarray
    """First element of each interval, ascending."""
    step: np.ndarray
    """Distance between accessed elements of each interval."""
    length: np.ndarray
    """Number of accessed elements of each interval."""
    times: np.ndarray
    """Number of sections that access each interval."""
    tile: int
    """Length of the tiles that cover the axis, where the last may be shorter; 0 if the intervals are no tiles."""
    sections: int
    """Number of nonempty sections."""
    elements: int
    """Number of elements accessed by all sections together."""
    longest: int
    """Number of elements of the longest interval."""
    span: int
    """Largest product of step and length of an interval, at most the extent."""

    @classmethod
    def of(cls, taken: Iterable[range], extent: int) -> Intervals:
        """Return the intervals of the given ranges, merging equal ones."""
        counted = Counter((each.start, each.step if len(each) > 1 else 1, len(each)) for each in taken if len(each))
        alike = sorted(counted)
        table = np.array(alike, np.int64).reshape(len(alike), 3)
        times = [counted[key] for key in alike]
        tile = _tile(alike, extent) if len(set(times)) == 1 else 0
        lengths = [length for *_, length in alike]
        elements, longest = sum(map(mul, lengths, times)), max(lengths, default=0)
        columns = table[:, 0], table[:, 1], table[:, 2], np.array(times, np.int64)
        span = min(max((step * length for _, step, length in alike), default=0), extent)
        return cls(extent, *columns, tile, sum(times), elements, longest, span)

    def counts(self, chunks: np.ndarray) -> Counts:
        if self.tile:
            return self._tiled(chunks, self.tile)
        c = chunks[:, None].astype(np.int32 if self.extent + int(chunks.max(initial=0)) < 2**31 else np.int64)
        start, stop = self.first.astype(c.dtype), (self.first + (self.length - 1) * self.step + 1).astype(c.dtype)
        plain = bool((self.step == 1).all())
        first, last = start // c, (stop - 1) // c
        visited = last - first + 1
        inside = np.maximum(stop // c + ((stop == self.extent) & (stop % c != 0)) - first - (start != first * c), 0)
        pieces = visited
        if not plain:  # a strided interval has the whole of a chunk of which there is one element
            visited = np.where(self.step >= c, self.length, visited)
            at_edge = (stop == self.extent) & (self.extent % c == 1)
            inside = np.where(self.step == 1, inside, np.where(c == 1, self.length, at_edge))
            pieces = np.where(self.step == 1, visited, self.length)
        listed = not plain and max(int(self.length.sum()), self.extent) <= 2**20  # visited one by one
        return Counts(
            visits=visited @ self.times,
            distinct=self._listed(chunks) if listed else _covered(first, last, bool((np.diff(stop) < 0).any())),
            whole=inside @ self.times,
            runs=pieces @ self.times,
            most=visited.max(axis=1, initial=0),
        )

    def _tiled(self, chunks: np.ndarray, tile: int) -> Counts:
        """Count chunks and runs for tiles that cover the axis, from the number of edges that tiles and chunks share."""
        tiles, times, extent = len(self.first), int(self.times[0]), self.extent
        count = -(-extent // chunks)
        if tiles == 1:
            return Counts(times * count, count, times * count, times * count, count)
        together = (tiles - 1) // (chunks // np.gcd(chunks, tile))  # edges of tiles that are edges of chunks
        visits = tiles + count - 1 - together
        last = (count - 1) * chunks >= self.first[-1]  # the last chunk may be short enough for one tile
        inside = np.where(chunks <= tile, count - (tiles - 1 - together), last)
        farthest = chunks - np.gcd(chunks, tile)  # from the edge of a chunk to that of a tile
        return Counts(
            visits=times * visits,
            distinct=count,
            whole=times * inside,
            runs=times * visits,
            most=np.minimum((farthest + tile - 1) // chunks + 1, count),
        )

    def _listed(self, chunks: np.ndarray) -> np.ndarray:
        """Count the chunks that strided intervals touch, element by element."""
        taken = np.zeros(self.extent, bool)
        for first, step, length in zip(self.first.tolist(), self.step.tolist(), self.length.tolist(), strict=True):
            taken[first : first + step * length : step] = True
        if taken.all():
            return np.asarray(-(-self.extent // chunks))
        each = (np.logical_or.reduceat(taken, np.arange(0, self.extent, c)) for c in chunks.tolist())
        return np.array([np.count_nonzero(touched) for touched in each], np.int64)


def _tile(alike: Sequence[tuple[int, int, int]], extent: int) -> int:
    """Return the tile length if the intervals (first, step, length) tile the axis; otherwise 0."""
    if not alike:
        return 0
    tile = alike[0][2]
    begin = all(first == i * tile and step == 1 for i, (first, step, _) in enumerate(alike))
    alone = all(length == tile for *_, length in alike[:-1])
    first, _, last = alike[-1]
    return tile if begin and alone and last <= tile and first + last == extent else 0


def _covered(first: np.ndarray, last: np.ndarray, nested: bool) -> np.ndarray:
    """Count the distinct chunks between the first and the last chunk of each interval."""
    if not first.shape[1]:
        return np.zeros(len(first), np.int64)
    if nested:
        last = np.maximum.accumulate(last, axis=1)
    again = np.maximum(last[:, :-1] - first[:, 1:] + 1, 0)
    new = np.where(again > 0, np.diff(last, axis=1), last[:, 1:] - first[:, 1:] + 1)
    found: np.ndarray = last[:, 0] - first[:, 0] + 1 + new.sum(axis=1)
    return found


@dataclass(frozen=True, eq=False)
class Footprint:
    """Sections formed by the product of intervals along each axis, one per task or rank."""

    axes: tuple[Intervals, ...]
    """Intervals along each axis."""
    times: int = 1
    """Number of times each section is accessed."""

    @classmethod
    def of(cls, axes: Sequence[Iterable[range]], shape: Sequence[int], times: int = 1) -> Footprint:
        """Return the product of ranges along each axis."""
        return cls(tuple(Intervals.of(taken, extent) for taken, extent in zip(axes, shape, strict=True)), times)

    @property
    def sections(self) -> int:
        return self.times * math.prod(axis.sections for axis in self.axes)

    @property
    def elements(self) -> int:
        return self.times * math.prod(axis.elements for axis in self.axes)

    @property
    def largest(self) -> tuple[int, ...]:
        """Extent of the largest section along each axis."""
        return tuple(axis.longest for axis in self.axes)

    @property
    def span(self) -> tuple[int, ...]:
        """Extent of the largest section along each axis, including the gaps of its strides."""
        return tuple(axis.span for axis in self.axes)

    def counts(self, chunks: np.ndarray) -> Counts:
        """Count accesses for each chunk shape, one per row; runs assume C order."""
        if not self.axes:
            one = np.ones(len(chunks), np.int64)
            return Counts(self.times * one, one, self.times * one, 0 * one, one)
        along = [self._along(axis, chunks) for axis in range(len(self.axes))]
        pairs = zip(self.axes, along, strict=True)
        line = product_line([Line(axis.elements, each.runs, each.whole) for axis, each in pairs])
        return Counts(
            visits=self.times * reduce(mul, (each.visits for each in along)),
            distinct=reduce(mul, (each.distinct for each in along)),
            whole=self.times * line.wholes,
            runs=self.times * line.runs,
            most=reduce(mul, (each.most for each in along)),
        )

    def _along(self, axis: int, chunks: np.ndarray) -> Counts:
        return Counts(*(each.astype(np.int64, copy=False) for each in self.axes[axis].counts(chunks[:, axis])))


def footprints(requests: Sequence[Axes], shape: Sequence[int]) -> tuple[Footprint, ...]:
    """Return the footprints of the ranks' requests: one if the requests form a product, otherwise one per rank.

    Requests for the parts of a layout form a product. Irregular indices count as the range from the first to the
    last.
    """
    ranges = [tuple(_as_range(taken) for taken in axes) for axes in requests if all(map(len, axes))]
    if not ranges:
        return ()
    along = [tuple(dict.fromkeys(each)) for each in zip(*ranges, strict=True)]
    if math.prod(map(len, along)) == len(set(ranges)) == len(ranges):
        return (Footprint.of(along, shape),)
    return tuple(Footprint.of([(taken,) for taken in axes], shape) for axes in ranges)


def _as_range(taken: range | np.ndarray) -> range:
    found = taken if isinstance(taken, range) else regular(taken)
    return found if isinstance(found, range) else range(int(found[0]), int(found[-1]) + 1)
