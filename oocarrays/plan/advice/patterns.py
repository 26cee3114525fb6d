"""Access patterns: the sections of an array that a block's tasks access, folded as they are recorded.

    4 × 3 tasks, each a section        along axis 0        along axis 1
    ┌──┬──┬──┐                         4 ranges of 8       3 ranges of 20
    ├──┼──┼──┤            ═            lower 0, step 8     lower 0, step 20
    ├──┼──┼──┤
    └──┴──┴──┘

A pattern is a product over axes of a few progressions each, so a million regular tasks take no more memory than one.
Folding is lossless: the sections can be counted and listed again, with repetitions.

Their chunks and runs are counted in closed form along each axis, for many chunk lengths at once.

    sections along an axis      ├──────┤├──────┤├──────┤        three of 8 elements
    chunks of 6                 └────┘└────┘└────┘└────┘        visits 2 + 2 + 2, distinct 4, whole 2
    chunks of 8                 └──────┘└──────┘└──────┘        visits 3, distinct 3, whole 3

The sections of a pattern are the product of the intervals along its axes, and so are visits, distinct chunks and
elements. del Rosario, Bordawekar and Choudhary 1993, section 3: the cost of an access is its number of contiguous runs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from itertools import chain, product, repeat, starmap
from operator import mul
from typing import NamedTuple

import numpy as np

from oocarrays.mapping.along import Line, ascending, product_line
from oocarrays.mapping.section import Section

MOST_BUFFERED = 2**16
"""Maximum number of sections buffered one by one before they are folded."""
_Row = tuple[tuple[int, ...], ...]
"""Indices of ranges along each axis, sorted; an index may be repeated."""


class Progression(NamedTuple):
    """Equally spaced ranges of equal length along an axis."""

    lower: int
    """First element of the first range."""
    upper: int
    """End of the first range (exclusive)."""
    stride: int
    """Distance between elements of a range."""
    step: int
    """Distance between the starts of consecutive ranges; 0 if one range is repeated."""
    times: int

    def ranges(self) -> Iterator[range]:
        for k in range(self.times):
            yield range(self.lower + k * self.step, self.upper + k * self.step, self.stride)

    @property
    def length(self) -> int:
        return len(range(self.lower, self.upper, self.stride))


Along = tuple[Progression, ...]
"""Progressions along one axis."""


def progressions(taken: Iterable[range]) -> Along:
    """Return the ranges as progressions, in a canonical form independent of their order."""
    alike: dict[tuple[int, int], list[int]] = {}
    for each in map(ascending, taken):
        alike.setdefault((each.stop - each.start, each.step), []).append(each.start)
    found = chain.from_iterable(_runs(sorted(starts), *kind) for kind, starts in alike.items())
    return tuple(sorted(found))


def _runs(starts: Sequence[int], span: int, stride: int) -> Iterator[Progression]:
    """Yield the longest progressions, from the first range on, of ranges of equal span and stride."""
    first = 0
    while first < len(starts):
        last, step = first, 0
        if first + 1 < len(starts):
            last, step = first + 1, starts[first + 1] - starts[first]
            while last + 1 < len(starts) and starts[last + 1] - starts[last] == step:
                last += 1
        yield Progression(starts[first], starts[first] + span, stride, step, last - first + 1)
        first = last + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Sections formed by the product of ranges along each axis, one per task."""

    axes: tuple[Along, ...]
    times: int = 1

    @classmethod
    def of(cls, axes: Iterable[Iterable[range]], times: int = 1) -> Pattern:
        return cls(axes=tuple(map(progressions, axes)), times=times)

    def ranges(self) -> tuple[tuple[range, ...], ...]:
        return tuple(tuple(chain.from_iterable(each.ranges() for each in along)) for along in self.axes)

    @property
    def count(self) -> int:
        """Number of sections, with repetitions."""
        return self.times * math.prod(sum(each.times for each in along) for along in self.axes)

    @property
    def elements(self) -> int:
        return self.times * math.prod(sum(each.times * each.length for each in along) for along in self.axes)

    @property
    def largest(self) -> tuple[int, ...]:
        return tuple(max((each.length for each in along), default=0) for along in self.axes)

    @property
    def span(self) -> tuple[int, ...]:
        """Largest length of a section along each axis, including the gaps of its strides."""
        return tuple(max((e.length * e.stride if e.length > 1 else 1 for e in along), default=0) for along in self.axes)

    @property
    def hull(self) -> Section:
        """Smallest section without strides that contains all sections of the pattern."""
        lower = (min((each.lower for each in along), default=0) for along in self.axes)
        upper = (max((e.upper + (e.times - 1) * e.step for e in along), default=0) for along in self.axes)
        return Section(tuple(lower), tuple(upper))

    def sections(self) -> Iterator[Section]:
        for axes in product(*self.ranges()):
            yield from repeat(Section.of(axes), self.times)


def folded(sections: Iterable[Section], axes: int) -> tuple[Pattern, ...]:
    fold = Fold(axes)
    for section in sections:
        fold.add(section.axes)
    return fold.patterns()


class Fold:
    """Accumulator that folds sections into patterns.

    A row is a product of sets of ranges along the axes, with a count. Rows that differ along one axis alone are merged:
    the merged row has the union along that axis.
    """

    def __init__(self, axes: int) -> None:
        self._numbers: list[dict[range, int]] = [{} for _ in range(axes)]
        """Index of each distinct range, per axis."""
        self._rows: dict[_Row, int] = {}
        self._most = MOST_BUFFERED

    def add(self, section: Sequence[range], times: int = 1) -> None:
        """Add a section given as its range along each axis; skip an empty one."""
        if all(section):
            pairs = zip(self._numbers, section, strict=True)
            self._add(tuple([(known.setdefault(taken, len(known)),) for known, taken in pairs]), times)

    def add_product(self, axes: Iterable[Iterable[range]], times: int = 1) -> None:
        pairs = zip(self._numbers, axes, strict=True)
        row = [tuple(sorted(known.setdefault(e, len(known)) for e in taken if e)) for known, taken in pairs]
        if all(row):
            self._add(tuple(row), times)

    def add_all(self, patterns: Iterable[Pattern]) -> None:
        for pattern in patterns:
            self.add_product(pattern.ranges(), pattern.times)

    def _add(self, row: _Row, times: int) -> None:
        self._rows[row] = self._rows.get(row, 0) + times
        if len(self._rows) >= self._most:
            self._fold()
            self._most = max(MOST_BUFFERED, 2 * len(self._rows))

    def patterns(self) -> tuple[Pattern, ...]:
        self._fold()
        known = [list(each) for each in self._numbers]

        @cache
        def along(axis: int, members: tuple[int, ...]) -> Along:
            return progressions(known[axis][number] for number in members)

        made = (Pattern(axes=tuple(starmap(along, enumerate(row))), times=times) for row, times in self._rows.items())
        return tuple(sorted(made, key=lambda pattern: (pattern.axes, pattern.times)))

    def _fold(self) -> None:
        """Merge rows until no two can be merged."""
        before = -1
        while before != len(self._rows):
            before = len(self._rows)
            for axis in reversed(range(len(self._numbers))):
                self._join(axis)

    def _join(self, axis: int) -> None:
        alike: dict[tuple[_Row, _Row, int], list[tuple[int, ...]]] = defaultdict(list)
        for row, times in self._rows.items():
            alike[row[:axis], row[axis + 1 :], times].append(row[axis])
        self._rows = {}
        for (head, tail, times), sets in alike.items():
            row = *head, tuple(sorted(chain.from_iterable(sets))), *tail
            self._rows[row] = self._rows.get(row, 0) + times


class Counts(NamedTuple):
    """Access counts along an axis or of a whole array, one entry per chunk length or shape."""

    visits: np.ndarray
    """Number of chunks touched by all sections, with repetitions."""
    distinct: np.ndarray
    whole: np.ndarray
    """Number of visits that access every element of the chunk."""
    runs: np.ndarray
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

    @classmethod
    @lru_cache(maxsize=4096)
    def of(cls, along: Along, extent: int) -> Intervals:
        """Return the intervals of progressions; equal ones are made once."""
        held = [each for each in along if each.length]
        starts = [np.arange(each.times if each.step else 1) * each.step + each.lower for each in held]
        kinds = [(e.stride if e.length > 1 else 1, e.length, 1 if e.step else e.times) for e in held]
        sizes = np.array([len(each) for each in starts], np.int64)
        rows = np.repeat(np.array(kinds, np.int64).reshape(-1, 3), sizes, axis=0)
        first = np.concatenate([np.empty(0, np.int64), *starts])
        order = np.argsort(first, kind="stable")
        return cls(extent, first[order], *rows[order].T)

    @property
    def elements(self) -> int:
        return int(self.length @ self.times)

    def counts(self, chunks: np.ndarray) -> Counts:
        """Count accesses for each chunk length, some lengths at a time if there are many intervals."""
        parts = np.array_split(chunks, len(chunks) * len(self.first) // 2**22 + 1)
        return Counts(*map(np.concatenate, zip(*map(self._counts, parts), strict=True)))

    def _counts(self, chunks: np.ndarray) -> Counts:
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
        distinct = self._listed(chunks) if listed else _covered(first, last, bool((np.diff(stop) < 0).any()))
        found = visited @ self.times, distinct, inside @ self.times, pieces @ self.times, visited.max(axis=1, initial=0)
        return Counts(*(each.astype(np.int64, copy=False) for each in found))

    def _listed(self, chunks: np.ndarray) -> np.ndarray:
        """Count the chunks that strided intervals touch, element by element."""
        taken = np.zeros(self.extent, bool)
        for first, step, length in zip(self.first.tolist(), self.step.tolist(), self.length.tolist(), strict=True):
            taken[first : first + step * length : step] = True
        if taken.all():
            return np.asarray(-(-self.extent // chunks))
        each = (np.logical_or.reduceat(taken, np.arange(0, self.extent, c)) for c in chunks.tolist())
        return np.array([np.count_nonzero(touched) for touched in each], np.int64)


def _covered(first: np.ndarray, last: np.ndarray, nested: bool) -> np.ndarray:
    """Count the distinct chunks between the first and the last chunk of each interval."""
    if not first.shape[1]:
        return np.zeros(len(first), np.int64)
    if nested:
        last = np.maximum.accumulate(last, axis=1)
    again = np.maximum(last[:, :-1] - first[:, 1:] + 1, 0)
    new = np.where(again > 0, np.diff(last, axis=1), last[:, 1:] - first[:, 1:] + 1)
    return last[:, 0] - first[:, 0] + 1 + new.sum(axis=1)


def counted(pattern: Pattern, shape: Sequence[int], chunks: np.ndarray) -> Counts:
    """Count accesses of a pattern for each chunk shape, one per row; runs assume C order."""
    if not pattern.axes:
        one = np.ones(len(chunks), np.int64)
        return Counts(pattern.times * one, one, pattern.times * one, 0 * one, one)
    axes = [Intervals.of(along, extent) for along, extent in zip(pattern.axes, shape, strict=True)]
    along = [axis.counts(chunks[:, number]) for number, axis in enumerate(axes)]
    pairs = zip(axes, along, strict=True)
    line = product_line([Line(axis.elements, each.runs, each.whole) for axis, each in pairs])
    return Counts(
        visits=pattern.times * reduce(mul, (each.visits for each in along)),
        distinct=reduce(mul, (each.distinct for each in along)),
        whole=pattern.times * line.wholes,
        runs=pattern.times * line.runs,
        most=reduce(mul, (each.most for each in along)),
    )
