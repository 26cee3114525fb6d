"""Elements that ranks want in each box of a file, and the tight section read for all of them.

    wanted by 0   ▒ ▒ · · ·        wanted chunks, as boxes                  tight section of the first box
    wanted by 0   ▒ ▒ · · ·        ┌───┐                                    (with strides if all have them)
    wanted by 1   · · · ░ ░        │ A │                                    █ · █ · █
                                   └───┘ ┌───┐                              · · · · ·
                                         │ B │                              █ · █ · █
                                         └───┘

The requests of all ranks are the file access descriptor (FAD). The elements that each rank wants in a box, computed in
closed form along each axis, are the file domain access table (FDAT). Thakur 1995, section 6.3.1.

Coverage of each chunk by the ranks' writes, and precedence of ranks where their sections overlap:

    rank 0   █ █ █ █ · · · ·         chunks        a · · · │ b · · ·
    rank 1   · · ░ ░ ░ ░ · ·         covered       yes     │ no: read before written
                                     stays         0 0 1 1 │ 1 1 · ·     the highest rank wins

Both are computed in closed form: the requests' union and its complement are unions of products, and their description
does not grow with the array. Thakur 1995, section 6.3.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import product
from typing import NamedTuple

import numpy as np

from oocarrays.mapping.along import ascending, common_range, hull, positions
from oocarrays.mapping.grid import ChunkGrid, Index, Stored
from oocarrays.mapping.layouts.distribution import held_by
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken, common, lengths, regular, within
from oocarrays.mapping.union import Union, product_of, touched
from oocarrays.plan.cost import Traffic
from oocarrays.plan.machine import check_count

Place = tuple[slice | np.ndarray, ...]
"""Indices of elements along each axis; their product is a selection of an array."""


def requests_of(layout: Layout, within: Section | None = None) -> tuple[Axes, ...]:
    """Return the parts of a layout as requests, one per rank, in the order in which the rank holds its elements."""
    taken = [[held_by(axis, c) for c in range(axis.ranks)] for axis in layout.axes]
    whole = within.axes if within else tuple(map(range, layout.shape))
    along = [[_of(axis, each) for each in held] for axis, held in zip(whole, taken, strict=True)]
    return tuple(product(*along))


def _of(axis: range, taken: Taken) -> Taken:
    if isinstance(taken, np.ndarray):
        return regular(axis.start + taken * axis.step)
    return ascending(axis[taken.start : taken.stop : taken.step])


def _union(along: Sequence[Taken]) -> Taken:
    distinct = _distinct_taken(along)
    if all(isinstance(taken, range) for taken in distinct):
        held = hull(distinct)  # type: ignore[arg-type]
        if len(held) <= sum(map(len, distinct)):
            return held
    return regular(np.unique(np.concatenate([np.asarray(taken, np.int64) for taken in distinct])))


def _distinct_taken(along: Iterable[Taken]) -> list[Taken]:
    return [*{(taken if isinstance(taken, range) else id(taken)): taken for taken in along}.values()]


def places(request: Axes, box: Section, read: Axes) -> tuple[Place, Place]:
    """Return the places of a rank's elements of a box in its whole request and in the section read of the box."""
    there, inside = [], []
    for taken, here, lower, upper in zip(request, read, box.lower, box.upper, strict=True):
        place = within(taken, lower, upper)[0]
        there.append(place)
        inside.append(_among(taken[place], here))
    return tuple(there), tuple(inside)


def _among(taken: Taken, read: Taken) -> slice | np.ndarray:
    """Return the positions of the wanted elements among the read ones, which include them all."""
    if isinstance(read, np.ndarray):
        found = regular(np.searchsorted(read, np.asarray(taken)))
    elif isinstance(taken, np.ndarray):
        found = (taken - read.start) // read.step
    else:
        found = positions(taken, read)
    return slice(found.start, found.stop, found.step) if isinstance(found, range) else found


class Shared(NamedTuple):
    """Requests of all ranks for one box."""

    counts: np.ndarray
    """Number of elements that each rank wants."""
    ranks: tuple[int, ...]
    tight: Axes
    """Section read for all of them: along each axis the smallest regular range that contains all wanted elements, or
    exactly these, if that range has more elements than the requests together."""
    size: int
    chunks: int
    """Number of chunks that the tight section touches."""


class AccessTable:
    """File domain access table (FDAT): elements that ranks want, cached by box as many sets of readers share boxes."""

    def __init__(self, grid: ChunkGrid, requests: Sequence[Axes]) -> None:
        self.grid = grid
        self.requests = tuple(requests)
        check_boxes(self.requests, grid)
        self.whole = Section((0,) * len(grid.shape), grid.shape)
        self._along = [_Along(taken) for taken in zip(*requests, strict=True)] if grid.shape else []
        self._known: dict[Section, Shared] = {}

    def __reduce__(self) -> tuple[type[AccessTable], tuple[ChunkGrid, tuple[Axes, ...]]]:
        return AccessTable, (self.grid, self.requests)  # derived tables are recomputed after unpickling

    def of(self, box: Section) -> Shared:
        if box not in self._known:
            self.learn([box])
        return self._known[box]

    def learn(self, boxes: Iterable[Section]) -> None:
        """Compute and cache the requests of all ranks for many boxes at once."""
        new = list(dict.fromkeys(box for box in boxes if box not in self._known))
        bounds = np.array([(box.lower, box.upper) for box in new], np.int64).reshape(len(new), 2, len(self._along), 1)
        along = (axis.counts(bounds[:, 0, a], bounds[:, 1, a]) for a, axis in enumerate(self._along))
        counts = reduce(np.multiply, along, np.ones((len(new), len(self.requests)), np.int64))
        for box, each in zip(new, counts, strict=True):
            ranks = tuple(np.flatnonzero(each).tolist())
            ends = zip(self._along, box.lower, box.upper, strict=True)
            read = tuple(axis.tight(lower, upper, ranks) for axis, lower, upper in ends)
            self._known[box] = Shared(each, ranks, read, math.prod(lengths(read)), chunks_of(self.grid, read))

    def counts(self, box: Section) -> np.ndarray:
        return self.of(box).counts

    @cached_property
    def chunks(self) -> Union:
        return Union.of(product_of(axes, self.grid.chunks) for axes in self.requests)

    def boxes(self, within: Section) -> Iterator[Section]:
        """Yield the wanted chunks of a box as boxes; every chunk of these is wanted by some rank."""
        for first, last in self.chunks.within(self.grid.touched(within)).boxes():
            yield self.grid.block(first, last)

    @property
    def are_shared(self) -> bool:
        return sum(chunks_of(self.grid, axes) for axes in self.requests) > self.chunks.count


def check_boxes(requests: Sequence[Axes], grid: ChunkGrid) -> None:
    boxes = sum(_boxes(axes, grid.chunks) for axes in requests)
    check_count(boxes, "a collective read or write", "take contiguous sections")


def _boxes(axes: Axes, chunks: Sequence[int]) -> int:
    """Return an upper bound of the boxes of touched chunks; steps longer than a chunk give one box per element."""
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
        """Count the elements that each rank wants in each interval; bounds are columns, and rows are intervals."""
        first, last = (
            np.clip(-((self._start - end) // self._step), 0, self._length) for end in (lower, np.maximum(lower, upper))
        )
        counts: np.ndarray = last - first
        for rank, each in self._listed:
            counts[:, rank] = np.searchsorted(each, upper[:, 0]) - np.searchsorted(each, lower[:, 0])
        return counts

    def tight(self, lower: int, upper: int, ranks: tuple[int, ...]) -> Taken:
        """Return the elements read of an interval for ranks that all want some of it."""
        if not ranks:
            return range(0)
        if upper - lower == 1:
            return range(lower, upper)
        key = lower, upper, ranks
        if key not in self._known:
            there = _distinct_taken(self.taken[rank] for rank in ranks)
            box = Section((lower,), (upper,))
            self._known[key] = _union([common((taken,), box)[0] for taken in there])
        return self._known[key]


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Coverage of each chunk by the writes of all ranks."""

    stored: Stored
    """Array to write; its chunks are shards if it has shards."""
    requests: tuple[Axes, ...]

    @property
    def grid(self) -> ChunkGrid:
        return self.stored.grid

    @cached_property
    def inner(self) -> Coverage:
        """Coverage of the chunks inside shards; without shards the coverage itself."""
        if not self.stored.shard_chunks:
            return self
        return replace(self, stored=replace(self.stored, grid=self.stored.inner, shard_chunks=None))

    @cached_property
    def wanted(self) -> Union:
        """Chunks with at least one written element."""
        return Union.of(product_of(axes, self.grid.chunks) for axes in self.requests)

    @cached_property
    def _left(self) -> Union:
        """Chunks with at least one element that no rank writes."""
        written = Union.of(map(product_of, self.requests))
        return Union.of(touched(self.grid, written.complement(self.grid.shape)))

    def __iter__(self) -> Iterator[Index]:
        return (index for box in self.wanted.boxes() for index in product(*map(range, *box)))

    @property
    def count(self) -> int:
        return self.wanted.count

    def needs(self, chunk: tuple[int, ...]) -> bool:
        return chunk in self._left

    @property
    def reads(self) -> int:
        return self.wanted.count - (self.grid.count - self._left.count)

    @cached_property
    def shared(self) -> bool:
        """True if two ranks write to one chunk: the requests then do not conform."""
        return sum(chunks_of(self.grid, axes) for axes in self.requests) > self.wanted.count

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of each rank's request along each axis; those of an empty request meet no box."""
        axes = len(self.grid.shape)
        ends = [
            [(int(taken[0]), int(taken[-1]) + 1) for taken in request] if all(map(len, request)) else [(0, 0)] * axes
            for request in self.requests
        ]
        bounds = np.array(ends, np.int64).reshape(len(ends), axes, 2)
        return bounds[:, :, 0], bounds[:, :, 1]

    def standing(self, box: Section) -> list[tuple[int, Axes]]:
        """Return the ranks with surviving elements in a box, lowest first, and their elements.

        A rank is left out if one higher rank overwrites all of its elements there, so they need not be sent.
        """
        if box in self._known:
            return self._known[box]
        lower, upper = self._bounds
        near = np.flatnonzero(((lower < np.array(box.upper)) & (upper > np.array(box.lower))).all(axis=1))
        held: list[tuple[int, Axes]] = []
        for rank in reversed(near.tolist()):
            axes = common(self.requests[rank], box)
            if all(map(len, axes)) and not any(all(map(_holds, higher, axes)) for _, higher in held):
                held.append((rank, axes))
        self._known[box] = held[::-1]
        return self._known[box]

    @cached_property
    def _known(self) -> dict[Section, list[tuple[int, Axes]]]:
        return {}

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_known"}

    def counts(self, box: Section) -> np.ndarray:
        """Return the number of surviving elements of each rank in a box."""
        counts = np.zeros(len(self.requests), np.int64)
        for rank, axes in self.standing(box):
            counts[rank] = math.prod(lengths(axes))
        return counts

    def traffic(self, ratio: float) -> Traffic:
        """Count the reads and writes to replace the chunks, given stored bytes over decoded bytes."""
        coded = self.inner.grid.chunk_size * self.stored.itemsize if self.stored.coded else 0
        return Traffic(
            read_requests=self.reads,
            read_bytes=int(self.reads * self.stored.chunk_bytes * ratio),
            decoded_bytes=self.inner.reads * coded,
            write_requests=self.count,
            written_bytes=int(self.count * self.stored.chunk_bytes * ratio),
            encoded_bytes=self.inner.count * coded,
        )


def _holds(outer: Taken, inner: Taken) -> bool:
    if isinstance(outer, range) and isinstance(inner, range):
        return common_range(outer, inner) == ascending(inner)
    return len(inner) <= len(outer) and bool(np.isin(np.asarray(inner), np.asarray(outer), assume_unique=True).all())
