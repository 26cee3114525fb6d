"""What ranks want of a file, and of each part of it: who wants a chunk, and the tight section that is read for all.

    wanted by 0   ▒ ▒ · · ·        chunks that anybody wants, as boxes      tight section of the first box
    wanted by 0   ▒ ▒ · · ·        ┌───┐                                    (strides, where all have them)
    wanted by 1   · · · ░ ░        │ A │                                    █ · █ · █
                                   └───┘ ┌───┐                              · · · · ·
                                         │ B │                              █ · █ · █
                                         └───┘

The requests of all ranks are the file access descriptor (FAD); what each wants of a box, found in closed form along
each axis, is the file domain access table (FDAT). Thakur 1995, section 6.3.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np

from oocarrays.mapping import orientation
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.layouts.axis import Axis
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken, common, lengths, within
from oocarrays.mapping.union import Union, product_of
from oocarrays.plan.machine import check_count

Place = tuple[slice | np.ndarray, ...]
"""Where elements are along each axis; their product is where they are in an array."""


def requests_of(layout: Layout, within: Section | None = None) -> tuple[Axes, ...]:
    """Return the parts of a layout as requests, one a rank, in the order in which the rank holds its elements."""
    taken = [[_held(axis, c) for c in range(axis.ranks)] for axis in layout.axes]
    whole = within.axes if within else tuple(map(range, layout.shape))
    along = [[_of(axis, each) for each in held] for axis, held in zip(whole, taken, strict=True)]
    ranks = map(layout.coordinates, range(layout.ranks))
    return tuple(tuple(held[c] for held, c in zip(along, coordinates, strict=True)) for coordinates in ranks)


def _held(axis: Axis, rank: int) -> Taken:
    """Return the elements that a rank holds along an axis."""
    sections = axis.sections(rank)
    return sections[0] if len(sections) == 1 else regular(axis.index(rank, np.arange(axis.size(rank))))


def _of(axis: range, taken: Taken) -> Taken:
    if isinstance(taken, np.ndarray):
        return regular(axis.start + taken * axis.step)
    return orientation.ascending(axis[taken.start : taken.stop : taken.step])


def regular(indices: np.ndarray) -> Taken:
    if not len(indices):
        return range(0)
    step = int(indices[1] - indices[0]) if len(indices) > 1 else 1
    found = range(int(indices[0]), int(indices[-1]) + 1, step)
    return found if len(found) == len(indices) and bool((np.diff(indices) == step).all()) else indices


# ---------------------------------------------------------------------- of one box


def _union(along: Sequence[Taken]) -> Taken:
    distinct = _distinct_taken(along)
    if all(isinstance(taken, range) for taken in distinct):
        held = orientation.hull(distinct)  # type: ignore[arg-type]
        if len(held) <= sum(map(len, distinct)):
            return held
    return regular(np.unique(np.concatenate([np.asarray(taken, np.int64) for taken in distinct])))


def _distinct_taken(along: Iterable[Taken]) -> list[Taken]:
    return [*{(taken if isinstance(taken, range) else id(taken)): taken for taken in along}.values()]


def places(request: Axes, box: Section, read: Axes) -> tuple[Place, Place]:
    """Where what a rank wants of a box is in all that it wants, and in what is read of the box."""
    there, inside = [], []
    for taken, here, lower, upper in zip(request, read, box.lower, box.upper, strict=True):
        place = within(taken, lower, upper)[0]
        there.append(place)
        inside.append(_among(taken[place], here))
    return tuple(there), tuple(inside)


def _among(taken: Taken, read: Taken) -> slice | np.ndarray:
    """The places of what is taken among what is read, which has all of it."""
    if isinstance(taken, range) and isinstance(read, range):
        if not taken:
            return slice(0, 0)
        first, step = (taken[0] - read.start) // read.step, max(taken.step // read.step, 1)
        return slice(first, first + (len(taken) - 1) * step + 1, step)
    if isinstance(read, range):
        return (np.asarray(taken) - read.start) // read.step
    found = regular(np.searchsorted(read, np.asarray(taken)))
    return slice(found.start, found.stop, found.step) if isinstance(found, range) else found


# ---------------------------------------------------------------------- of all


class Shared(NamedTuple):
    """Wishes of all ranks for one box."""

    counts: np.ndarray
    """Elements that each rank wants."""
    ranks: tuple[int, ...]
    """Those that want any."""
    tight: Axes
    """What is read for all of them."""
    size: int
    """Elements of that, ..."""
    chunks: int
    """... and the chunks in which they are."""


class AccessTable:
    """Table of what ranks want of a file, box by box and chunk by chunk: the file domain access table (FDAT).

    What is known of a box is kept: many sets of aggregators are tried, which read the same boxes.
    """

    def __init__(self, grid: ChunkGrid, requests: Sequence[Axes]) -> None:
        self.grid = grid
        self.requests = tuple(requests)
        check_boxes(self.requests, grid)
        self.whole = Section((0,) * len(grid.shape), grid.shape)
        self._along = [_Along(taken) for taken in zip(*requests, strict=True)] if grid.shape else []
        self._known: dict[Section, Shared] = {}

    def __reduce__(self) -> tuple[type[AccessTable], tuple[ChunkGrid, tuple[Axes, ...]]]:
        return AccessTable, (self.grid, self.requests)  # what is derived is derived again there

    # ------------------------------------------------------------------ of one box

    def of(self, box: Section) -> Shared:
        """Find what ranks want of a box."""
        if box not in self._known:
            self.learn([box])
        return self._known[box]

    def learn(self, boxes: Iterable[Section]) -> None:
        """Find out what ranks want of many boxes, together."""
        new = list(dict.fromkeys(box for box in boxes if box not in self._known))
        bounds = np.array([(box.lower, box.upper) for box in new], np.int64).reshape(len(new), 2, len(self._along), 1)
        along = (axis.counts(bounds[:, 0, a], bounds[:, 1, a]) for a, axis in enumerate(self._along))
        counts = reduce(np.multiply, along, np.ones((len(new), len(self.requests)), np.int64))
        for box, each in zip(new, counts, strict=True):
            ranks = tuple(np.flatnonzero(each).tolist())
            read = self._tight(box, ranks)
            self._known[box] = Shared(each, ranks, read, math.prod(lengths(read)), chunks_of(self.grid, read))

    def _tight(self, box: Section, ranks: tuple[int, ...]) -> Axes:
        bounds = zip(self._along, box.lower, box.upper, strict=True)
        return tuple(axis.tight(lower, upper, ranks) for axis, lower, upper in bounds)

    def counts(self, box: Section) -> np.ndarray:
        """Elements of a box that each rank wants."""
        return self.of(box).counts

    def ranks(self, box: Section) -> tuple[int, ...]:
        return self.of(box).ranks

    def tight(self, box: Section) -> Axes:
        """Return the section read of a box for all who want any of it: along each axis the smallest regular that holds
        what anybody takes, or where that has more than is taken, just what is.
        """
        return self.of(box).tight

    # ------------------------------------------------------------------ of many chunks

    @cached_property
    def chunks(self) -> Union:
        return Union.of(product_of(axes, self.grid.chunks) for axes in self.requests)

    def boxes(self, within: Section) -> Iterator[Section]:
        """The chunks of a box that anybody wants, as boxes: every chunk in one of these is wanted by some rank."""
        for first, last in self.chunks.within(self.grid.touched(within)).boxes():
            yield self.grid.block(first, last)

    @property
    def are_shared(self) -> bool:
        """Whether any chunk is wanted by two ranks."""
        return sum(chunks_of(self.grid, axes) for axes in self.requests) > self.chunks.count


def check_boxes(requests: Sequence[Axes], grid: ChunkGrid) -> None:
    """Refuse sections of more boxes of chunks than can be listed."""
    boxes = sum(_boxes(axes, grid.chunks) for axes in requests)
    check_count(boxes, "a collective read or write", "take contiguous sections")


def _boxes(axes: Axes, chunks: Sequence[int]) -> int:
    """Boxes of chunks of which some is taken, at most: where a step is longer than a chunk each has its own."""
    along = zip(axes, chunks, strict=True)
    return math.prod(len(a) if not isinstance(a, range) or a.step > c else min(len(a), 1) for a, c in along)


def chunks_of(grid: ChunkGrid, axes: Axes) -> int:
    return math.prod(int(np.diff(runs).sum()) for runs in product_of(axes, grid.chunks))


class _Along:
    """Selections of every rank along one axis."""

    def __init__(self, taken: Sequence[Taken]) -> None:
        self.taken = taken
        regular = [each if isinstance(each, range) else range(0) for each in taken]
        self._start, self._step, self._length = (
            np.array([f(each) for each in regular], np.int64) for f in (lambda r: r.start, lambda r: r.step, len)
        )
        self._listed = [(rank, each) for rank, each in enumerate(taken) if isinstance(each, np.ndarray)]
        self._known: dict[tuple[int, int, tuple[int, ...]], Taken] = {}

    def counts(self, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
        """Elements that each takes of intervals: a row an interval, of which the bounds are columns."""
        first, last = (
            np.clip(-((self._start - end) // self._step), 0, self._length) for end in (lower, np.maximum(lower, upper))
        )
        counts: np.ndarray = last - first
        for rank, each in self._listed:
            counts[:, rank] = np.searchsorted(each, upper[:, 0]) - np.searchsorted(each, lower[:, 0])
        return counts

    def tight(self, lower: int, upper: int, ranks: tuple[int, ...]) -> Taken:
        """Return what is read of an interval for some ranks that all want some of it."""
        if not ranks:
            return range(0)
        if upper - lower == 1:
            return range(lower, upper)
        key = lower, upper, ranks
        if key not in self._known:
            there = _distinct_taken(self.taken[rank] for rank in ranks)
            self._known[key] = _union([_part(taken, lower, upper) for taken in there])
        return self._known[key]


def _part(taken: Taken, lower: int, upper: int) -> Taken:
    return common((taken,), Section((lower,), (upper,)))[0]
