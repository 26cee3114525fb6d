"""What a set of sections takes of an array, counted for many chunk shapes at one time, in closed form along each axis.

    sections along an axis      ├──────┤├──────┤├──────┤        three of 8 elements
    chunks of 6                 └────┘└────┘└────┘└────┘        visits 2 + 2 + 2, distinct 4, whole 2
    chunks of 8                 └──────┘└──────┘└──────┘        visits 3, distinct 3, whole 3

The sections of a footprint are the product of what stands along its axes: so are visits, distinct chunks and elements.
del Rosario, Bordawekar and Choudhary 1993, section 3: what an access costs is the number of its contiguous runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from oocarrays.mapping.selection import Axes
from oocarrays.plan.collective.wanted import regular

MOST_LISTED = 2**20
"""Elements that are gone through one by one, at most, to see which chunks strided sections share."""


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals along one axis, each taken by some sections.

    >>> along = Intervals.of([range(0, 8), range(8, 16), range(16, 24)], 24)
    >>> chunks = np.array([6, 8])
    >>> along.visits(chunks), along.distinct(chunks), along.whole(chunks), along.elements
    (array([6, 3]), array([4, 3]), array([2, 3]), 24)
    """

    extent: int
    """Elements of the axis."""
    first: np.ndarray
    """First element of each, ascending."""
    step: np.ndarray
    """Elements from one taken to the next."""
    length: np.ndarray
    """Elements taken."""
    times: np.ndarray
    """Sections that take just this."""

    @classmethod
    def of(cls, taken: Iterable[range], extent: int) -> Intervals:
        """Return intervals of ranges, those that are alike together."""
        counted = Counter((each.start, each.step if len(each) > 1 else 1, len(each)) for each in taken if len(each))
        table = np.array(sorted(counted), np.int64).reshape(len(counted), 3)
        times = np.array([counted[key] for key in sorted(counted)], np.int64)
        return cls(extent, *table.T, times)

    @property
    def sections(self) -> int:
        """Sections that take any."""
        return int(self.times.sum())

    @property
    def elements(self) -> int:
        """Elements that all sections together take."""
        return int((self.length * self.times).sum())

    @property
    def longest(self) -> int:
        """Elements of the longest."""
        return int(self.length.max(initial=0))

    @property
    def _last(self) -> np.ndarray:
        return self.first + (self.length - 1) * self.step

    @property
    def _plain(self) -> bool:
        """Whether all are contiguous."""
        return bool((self.step == 1).all())

    def visited(self, chunks: np.ndarray) -> np.ndarray:
        """Chunks that each interval touches: a row for each chunk length."""
        c = chunks[:, None]
        across = self._last // c - self.first // c + 1
        return across if self._plain else np.where(self.step >= c, self.length, across)

    def visits(self, chunks: np.ndarray) -> np.ndarray:
        """Chunks that all sections touch, each as often as it is."""
        found: np.ndarray = self.visited(chunks) @ self.times
        return found

    def distinct(self, chunks: np.ndarray) -> np.ndarray:
        """Chunks that any touches, each once."""
        if not len(self.first):
            return np.zeros(len(chunks), np.int64)
        if self._plain or int(self.length.sum()) > MOST_LISTED:
            return self._covered(chunks)
        listed = np.unique(np.concatenate([f + s * np.arange(n) for f, s, n in zip(*self._table, strict=True)]))
        return np.array([1 + int(np.count_nonzero(np.diff(listed // c))) for c in chunks.tolist()], np.int64)

    @property
    def _table(self) -> tuple[list[int], list[int], list[int]]:
        return self.first.tolist(), self.step.tolist(), self.length.tolist()

    def _covered(self, chunks: np.ndarray) -> np.ndarray:
        """The same of contiguous intervals: each adds the chunks behind those before it."""
        c = chunks[:, None]
        first, last = self.first // c, np.maximum.accumulate(self._last // c, axis=1)
        before = np.concatenate([np.full_like(last[:, :1], -1), last[:, :-1]], axis=1)
        found: np.ndarray = np.maximum(last - np.maximum(first, before + 1) + 1, 0).sum(axis=1)
        return found

    def whole(self, chunks: np.ndarray) -> np.ndarray:
        """Visits to chunks of which all that is there is taken."""
        c = chunks[:, None]
        stop = np.where(self._last + 1 == self.extent, -(-self.extent // c) * c, self._last + 1)
        inside = np.maximum(stop // c - -(-self.first // c), 0)
        if not self._plain:  # a strided interval has the whole of a chunk of which there is one element
            at_edge = (self._last + 1 == self.extent) & (self.extent % c == 1)
            inside = np.where(self.step == 1, inside, np.where(c == 1, self.length, at_edge))
        found: np.ndarray = inside @ self.times
        return found

    def runs(self, chunks: np.ndarray) -> np.ndarray:
        """Contiguous runs in the chunks of which not all is taken."""
        pieces = np.where(self.step == 1, self.visited(chunks), self.length) @ self.times
        found: np.ndarray = pieces - self.whole(chunks)
        return found


@dataclass(frozen=True, eq=False)
class Footprint:
    """Sections that are the product of what stands along each axis, one for each task or rank.

    >>> rows = Footprint.of([[range(0, 4), range(4, 8)], [range(8)]], (8, 8))
    >>> rows.visits(np.array([[4, 4], [8, 2]])), rows.distinct(np.array([[4, 4], [8, 2]])), rows.sections
    (array([4, 8]), array([4, 4]), 2)
    >>> rows.runs(np.array([[4, 4], [8, 2], [4, 8]]))
    array([4, 8, 2])
    """

    axes: tuple[Intervals, ...]
    """What stands along each axis."""

    @classmethod
    def of(cls, axes: Sequence[Iterable[range]], shape: Sequence[int]) -> Footprint:
        """Return the product of ranges along each axis."""
        return cls(tuple(Intervals.of(taken, extent) for taken, extent in zip(axes, shape, strict=True)))

    @property
    def sections(self) -> int:
        """Sections: tasks or ranks."""
        return math.prod(axis.sections for axis in self.axes)

    @property
    def elements(self) -> int:
        """Elements that all sections together take."""
        return math.prod(axis.elements for axis in self.axes)

    @property
    def largest(self) -> tuple[int, ...]:
        """Extent of the largest section along each axis."""
        return tuple(axis.longest for axis in self.axes)

    def visits(self, chunks: np.ndarray) -> np.ndarray:
        """Chunks that all sections touch, each as often as it is: for each row of ``chunks``, a chunk shape."""
        return self._product(Intervals.visits, chunks)

    def distinct(self, chunks: np.ndarray) -> np.ndarray:
        """Chunks that any section touches, each once."""
        return self._product(Intervals.distinct, chunks)

    def whole(self, chunks: np.ndarray) -> np.ndarray:
        """Visits to chunks of which all that is there is taken."""
        return self._product(Intervals.whole, chunks)

    def at_once(self, chunks: np.ndarray) -> np.ndarray:
        """Chunks that one section touches, at most."""
        return self._product(lambda axis, lengths: axis.visited(lengths).max(axis=1, initial=0), chunks)

    def runs(self, chunks: np.ndarray) -> np.ndarray:
        """Contiguous runs that all sections together take of chunks in C order, from the fastest axis outwards."""
        whole, broken = np.ones(len(chunks), np.int64), np.zeros(len(chunks), np.int64)
        for a in reversed(range(len(self.axes))):
            axis = self.axes[a]
            broken = _along(axis, Intervals.runs, chunks[:, a]) * whole + axis.elements * broken
            whole = _along(axis, Intervals.whole, chunks[:, a]) * whole
        return whole + broken

    def _product(self, count: Callable[[Intervals, np.ndarray], np.ndarray], chunks: np.ndarray) -> np.ndarray:
        found = np.ones(len(chunks), np.int64)
        for a, axis in enumerate(self.axes):
            found = found * _along(axis, count, chunks[:, a])
        return found


def _along(axis: Intervals, count: Callable[[Intervals, np.ndarray], np.ndarray], chunks: np.ndarray) -> np.ndarray:
    """Count along an axis, once for each chunk length."""
    lengths, back = np.unique(chunks, return_inverse=True)
    found: np.ndarray = count(axis, lengths)[back.reshape(-1)]
    return found


def footprints(requests: Sequence[Axes], shape: Sequence[int]) -> tuple[Footprint, ...]:
    """Return what ranks want as footprints: one where that is a product, as layouts' parts are, else one a rank.

    Indices without a rule count as what lies between the first and the last of them.
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
