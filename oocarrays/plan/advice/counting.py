"""Counts of chunks and runs accessed by a set of sections, for many chunk shapes at once, in closed form per axis.

    sections along an axis      ├──────┤├──────┤├──────┤        three of 8 elements
    chunks of 6                 └────┘└────┘└────┘└────┘        visits 2 + 2 + 2, distinct 4, whole 2
    chunks of 8                 └──────┘└──────┘└──────┘        visits 3, distinct 3, whole 3

The sections of a pattern are the product of the intervals along its axes, and so are visits, distinct chunks and
elements. del Rosario, Bordawekar and Choudhary 1993, section 3: the cost of an access is its number of contiguous runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import mul
from typing import NamedTuple

import numpy as np

from oocarrays.mapping.along import Line, product_line
from oocarrays.plan.advice.patterns import Along, Pattern


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

    @classmethod
    def of(cls, along: Along, extent: int) -> Intervals:
        held = [each for each in along if each.length]
        starts = [np.arange(each.times if each.step else 1) * each.step + each.lower for each in held]
        kinds = [(e.stride if e.length > 1 else 1, e.length, 1 if e.step else e.times) for e in held]
        rows = np.repeat(np.array(kinds, np.int64).reshape(-1, 3), [len(each) for each in starts], axis=0)
        first = np.concatenate([np.empty(0, np.int64), *starts])
        order = np.argsort(first, kind="stable")
        return cls(extent, first[order], *rows[order].T)

    @property
    def elements(self) -> int:
        """Number of elements accessed by all sections together."""
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
    found: np.ndarray = last[:, 0] - first[:, 0] + 1 + new.sum(axis=1)
    return found


@lru_cache(maxsize=4096)
def intervals(along: Along, extent: int) -> Intervals:
    """Return the intervals of progressions; equal ones are made once."""
    return Intervals.of(along, extent)


def counted(pattern: Pattern, shape: Sequence[int], chunks: np.ndarray) -> Counts:
    """Count accesses of a pattern for each chunk shape, one per row; runs assume C order."""
    if not pattern.axes:
        one = np.ones(len(chunks), np.int64)
        return Counts(pattern.times * one, one, pattern.times * one, 0 * one, one)
    axes = [intervals(along, extent) for along, extent in zip(pattern.axes, shape, strict=True)]
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
