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
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, product, repeat, starmap
from typing import NamedTuple

from oocarrays.mapping import ranges
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
        """Yield the sections one by one, with repetitions."""
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
        """Add the sections of a product of ranges along each axis."""
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
        """Merge rows that differ along one axis alone."""
        alike: dict[tuple[_Row, _Row, int], list[tuple[int, ...]]] = defaultdict(list)
        for row, times in self._rows.items():
            alike[row[:axis], row[axis + 1 :], times].append(row[axis])
        self._rows = {}
        for (head, tail, times), sets in alike.items():
            row = *head, tuple(sorted(chain.from_iterable(sets))), *tail
            self._rows[row] = self._rows.get(row, 0) + times
