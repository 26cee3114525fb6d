"""Access patterns: the sections of an array that a block's tasks access, folded as they are recorded.

    4 × 3 tasks, each a section        along axis 0        along axis 1
    ┌──┬──┬──┐                         4 ranges of 8       3 ranges of 20
    ├──┼──┼──┤            ═            lower 0, step 8     lower 0, step 20
    ├──┼──┼──┤
    └──┴──┴──┘

A pattern is a product over axes of a few progressions each, so a million regular tasks take no more memory than one.
Folding is lossless: the sections can be counted and listed again, with repetitions.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product, repeat
from typing import NamedTuple

import numpy as np

from oocarrays.mapping import ranges
from oocarrays.mapping.section import Section

MOST_BUFFERED = 2**20
"""Maximum number of sections buffered one by one before they are folded."""


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
    """Number of ranges."""

    def ranges(self) -> Iterator[range]:
        for k in range(self.times):
            yield range(self.lower + k * self.step, self.upper + k * self.step, self.stride)

    @property
    def length(self) -> int:
        """Elements of one range."""
        return len(range(self.lower, self.upper, self.stride))


Along = tuple[Progression, ...]
"""Progressions along one axis."""


def progressions(taken: Iterable[range]) -> Along:
    """Return the ranges as progressions, in a canonical form independent of their order."""
    alike: dict[tuple[int, int], list[int]] = {}
    for each in map(ranges.ascending, taken):
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
    """Progressions along each axis of the array."""
    times: int = 1
    """Number of times each section is accessed."""

    @classmethod
    def of(cls, axes: Iterable[Iterable[range]], times: int = 1) -> Pattern:
        """Return the product of the given ranges along each axis."""
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
        """Largest length of a section along each axis, in elements."""
        return tuple(max((each.length for each in along), default=0) for along in self.axes)

    @property
    def hull(self) -> Section:
        """Smallest section without strides that contains all sections of the pattern."""
        lower = (min((each.lower for each in along), default=0) for along in self.axes)
        upper = (max((e.upper + (e.times - 1) * e.step for e in along), default=0) for along in self.axes)
        return Section(tuple(lower), tuple(upper))

    def sections(self) -> Iterator[Section]:
        """Yield the sections one by one, with repetitions."""
        for axes in product(*self.ranges()):
            yield from repeat(Section.of(axes), self.times)


def folded(sections: Iterable[Section], axes: int) -> tuple[Pattern, ...]:
    fold = Fold(axes)
    for section in sections:
        fold.add(section.axes)
    return fold.patterns()


class Fold:
    """Accumulator that folds sections into patterns."""

    def __init__(self, axes: int) -> None:
        self._axes = axes
        self._numbers: list[dict[range, int]] = [{} for _ in range(axes)]
        """Index of each distinct range, per axis."""
        self._buffer = array("q")
        """Sections as consecutive indices of their ranges, each followed by its count."""
        self._buffered = 0
        self._table = _Table(axes)

    def add(self, section: Sequence[range], times: int = 1) -> None:
        """Add a section given as its range along each axis; skip an empty one."""
        if not all(section):
            return
        for known, taken in zip(self._numbers, section, strict=True):
            self._buffer.append(known.setdefault(taken, len(known)))
        self._buffer.append(times)
        self._buffered += 1
        if self._buffered >= MOST_BUFFERED:
            self._flush()

    def add_all(self, patterns: Iterable[Pattern]) -> None:
        for pattern in patterns:
            numbers = [
                [known.setdefault(each, len(known)) for each in taken]
                for known, taken in zip(self._numbers, pattern.ranges(), strict=True)
            ]
            if all(numbers):
                self._table.add_product([np.sort(np.array(each, np.int64)) for each in numbers], pattern.times)

    def patterns(self) -> tuple[Pattern, ...]:
        self._flush()
        self._table.fold()
        known = [list(each) for each in self._numbers]
        along: list[dict[int, Along]] = [{} for _ in known]
        made = []
        for *row, times in self._table.rows.tolist():
            for axis, number in enumerate(row):
                if number not in along[axis]:
                    along[axis][number] = progressions(known[axis][i] for i in self._table.sets[axis][number].tolist())
            axes = tuple(along[axis][number] for axis, number in enumerate(row))
            made.append(Pattern(axes=axes, times=times))
        return tuple(sorted(made, key=lambda pattern: (pattern.axes, pattern.times)))

    def _flush(self) -> None:
        if self._buffered:
            rows = np.frombuffer(self._buffer, np.int64).reshape(self._buffered, self._axes + 1)
            self._table.add_sections(rows)
            self._table.fold()
        self._buffer, self._buffered = array("q"), 0


class _Table:
    """Rows that each hold a product of sets of range indices along the axes, and a count.

    Two rows that differ along one axis alone are merged: the merged row has the union along that axis.
    """

    def __init__(self, axes: int) -> None:
        self.rows = np.empty((0, axes + 1), np.int64)
        """Index of a set along each axis, and the count, per row."""
        self.sets: list[list[np.ndarray]] = [[] for _ in range(axes)]
        """Sets of range indices along each axis: sorted arrays that may repeat an index."""
        self._known: list[dict[bytes, int]] = [{} for _ in range(axes)]

    def _number(self, axis: int, members: np.ndarray) -> int:
        number = self._known[axis].setdefault(members.tobytes(), len(self.sets[axis]))
        if number == len(self.sets[axis]):
            self.sets[axis].append(members)
        return number

    def add_sections(self, rows: np.ndarray) -> None:
        """Add sections, each row an index per axis and a count."""
        rows = rows.copy()
        for axis in range(len(self.sets)):
            members, back = np.unique(rows[:, axis], return_inverse=True)
            numbers = [self._number(axis, members[i : i + 1]) for i in range(len(members))]
            rows[:, axis] = np.array(numbers, np.int64)[back.reshape(-1)]
        self.rows = np.concatenate([self.rows, rows])

    def add_product(self, members: Sequence[np.ndarray], times: int) -> None:
        row = [self._number(axis, each) for axis, each in enumerate(members)]
        self.rows = np.concatenate([self.rows, np.array([[*row, times]], np.int64)])

    def fold(self) -> None:
        """Merge rows until no two can be merged."""
        before = -1
        while before != len(self.rows):
            before = len(self.rows)
            self._count()
            for axis in reversed(range(len(self.sets))):
                self._join(axis)

    def _count(self) -> None:
        """Merge equal rows and add their counts."""
        order = np.lexsort(self.rows[:, -2::-1].T) if self.sets else np.arange(len(self.rows))
        rows = self.rows[order]
        first = _firsts(rows[:, :-1])
        if len(first):
            self.rows = np.column_stack([rows[first, :-1], np.add.reduceat(rows[:, -1], first)])

    def _join(self, axis: int) -> None:
        """Merge rows that differ along one axis alone."""
        others = np.delete(self.rows, axis, axis=1)
        order = np.lexsort((self.rows[:, axis], *others.T))
        rows, first = self.rows[order], _firsts(others[order])
        ends = np.append(first[1:], len(rows))
        joined = rows[first]
        seen: dict[bytes, int] = {}
        for row in np.flatnonzero(ends - first > 1).tolist():
            together = rows[first[row] : ends[row], axis]
            key = together.tobytes()
            if key not in seen:
                members = np.concatenate([self.sets[axis][number] for number in together.tolist()])
                seen[key] = self._number(axis, np.sort(members))
            joined[row, axis] = seen[key]
        self.rows = joined


def _firsts(rows: np.ndarray) -> np.ndarray:
    """Return the indices of sorted rows that differ from the row before."""
    if not len(rows):
        return np.empty(0, np.int64)
    unlike = np.any(rows[1:] != rows[:-1], axis=1)
    return np.flatnonzero(np.r_[True, unlike])
