"""Cut of an array for a reduction: boxes to read, segments to fold, parts of the result.

    axes that are kept      ┌────┬────┬────┬────┐   time ─►     boxes of whole chunks
                            │ 0    1 │ 2    3   │               segments of them: folded in order, a partial result each
        part 0 = a chunk of │────┴────┼────┴────│
        the result          ├────┬────┼────┬────┤
        part 1              │ 4    5 │ 6    7   │
                            └────┴────┴────┴────┘
                              segment 0  segment 1              partial results of a part: folded in order, once more

The cut depends on shape, chunks and groups alone, and so do the bits of the result: memory, threads and ranks do not
change them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from oocarrays.mapping.grid import Stored, ceil_div, chunks_along, unravel
from oocarrays.mapping.section import Section

BOX_BYTES = 2**24
"""Bytes read and reduced at one time, unless chunks are larger."""
PART_BYTES = 2**20
"""Bytes of a chunk of the result, unless boxes are larger."""
STATE_BYTES = 24
"""Bytes of an element of a partial result for cutting segments: a count, a sum, and its rounding error."""

Unit = tuple[int, int]
"""Part, and a segment of it."""
Spans = dict[int, tuple[int, int]]
"""First element, and one past the last, by axis."""


def spread_over(count: int, ranks: int, rank: int) -> range:
    """Return a rank's contiguous share of ``count`` items."""
    return range(rank * count // ranks, (rank + 1) * count // ranks)


@dataclass(frozen=True, kw_only=True)
class ReduceCut:
    """Cut of an array for a reduction: a function of these fields only."""

    source: Stored
    """Array to reduce, as it is read."""
    axes: tuple[int, ...]
    groups: int
    """Number of groups of the indices of the axis; 0 without groups."""
    box_bytes: int = field(default_factory=lambda: BOX_BYTES)
    """Bytes of a box, unless chunks are larger."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.grid.shape

    @cached_property
    def kept(self) -> tuple[int, ...]:
        return tuple(axis for axis in range(len(self.shape)) if axis not in self.axes)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Elements of a box along each axis: whole chunks, extended along reduced axes first."""
        chunks, shape = self.source.grid.chunks, tuple(max(n, 1) for n in self.shape)
        room = self.box_bytes // (math.prod(chunks) * max(self.source.itemsize, 1))
        times = chunks_along((*self.kept, *self.axes), tuple(map(ceil_div, shape, chunks)), room)
        return tuple(min(c * t, n) for c, t, n in zip(chunks, times, shape, strict=True))

    @cached_property
    def part_lengths(self) -> dict[int, int]:
        """Elements of a part along each kept axis: at least 64 parts, if boxes are small enough."""
        lengths, shape = ([each[axis] for axis in self.kept] for each in (self.lengths, self.shape))
        room = min(PART_BYTES // (8 * max(self.groups, 1)), math.prod(shape) // 64) // math.prod(lengths)
        most = [ceil_div(max(n, 1), length) for n, length in zip(shape, lengths, strict=True)]
        times = chunks_along(range(len(shape)), most, room)
        each = zip(self.kept, lengths, times, shape, strict=True)
        return {axis: min(length * more, max(n, 1)) for axis, length, more, n in each}

    @property
    def part_elements(self) -> int:
        return math.prod(self.part_lengths.values())

    @cached_property
    def group_chunk(self) -> int:
        """Groups in a chunk of the result; 0 without groups."""
        return min(max(PART_BYTES // (8 * self.part_elements), 1), self.groups)

    @property
    def group_chunks(self) -> int:
        """Chunks of the result in a part, along groups; 1 without groups."""
        return ceil_div(self.groups, self.group_chunk) if self.groups else 1

    @cached_property
    def parts(self) -> int:
        return math.prod(self._counts(self.part_lengths))

    @cached_property
    def deep(self) -> int:
        """Number of boxes along the reduced axes."""
        return math.prod(self._counts(self._box_shape))

    @property
    def _box_shape(self) -> dict[int, int]:
        return {axis: self.lengths[axis] for axis in self.axes}

    def _counts(self, lengths: Mapping[int, int]) -> tuple[int, ...]:
        return tuple(ceil_div(max(self.shape[axis], 1), length) for axis, length in lengths.items())

    @cached_property
    def segments(self) -> int:
        """Segments of a part: 16 partial results of all parts together; more than 4 have at most half a GiB."""
        most = max(2**29 // (STATE_BYTES * self.part_elements * max(self.groups, 1)), 4)
        return min(self.deep, ceil_div(16, self.parts), 1 << (most.bit_length() - 1))

    @property
    def units(self) -> int:
        return self.parts * self.segments

    def unit(self, number: int) -> Unit:
        return divmod(number, self.segments)

    def part(self, number: int) -> Spans:
        return self._spans(self.part_lengths, number)

    def _spans(self, lengths: Mapping[int, int], number: int) -> Spans:
        """Return the elements of the box at a position among all of these lengths, the last axis being the fastest."""
        index = zip(lengths.items(), unravel(number, self._counts(lengths)), strict=True)
        return {axis: (i * length, min((i + 1) * length, self.shape[axis])) for (axis, length), i in index}

    def columns(self, part: int) -> Iterator[Spans]:
        """Yield the spans of a part's boxes along the kept axes."""
        along = [
            [(i, min(i + self.lengths[axis], last)) for i in range(first, max(last, first + 1), self.lengths[axis])]
            for axis, (first, last) in self.part(part).items()
        ]
        for each in product(*along):
            yield dict(zip(self.kept, each, strict=True))

    def layers(self, segment: int) -> Iterator[Spans]:
        """Return the spans of a segment's boxes along the reduced axes, in order."""
        numbers = spread_over(self.deep, self.segments, segment)
        return (self._spans(self._box_shape, number) for number in numbers)

    def group_span(self, group_chunk: int) -> range:
        first = group_chunk * self.group_chunk
        return range(first, min(first + self.group_chunk, self.groups))

    def place(self, part: int, group_chunk: int) -> Section:
        spans = self.part(part)
        along = [spans[axis] for axis in self.kept]
        if self.groups:
            span = self.group_span(group_chunk)
            along.insert(self.axes[0], (span.start, span.stop))
        return Section(tuple(first for first, _ in along), tuple(last for _, last in along))

    @property
    def result_shape(self) -> tuple[int, ...]:
        return self._with_groups([self.shape[axis] for axis in self.kept], self.groups)

    @property
    def result_chunks(self) -> tuple[int, ...]:
        """Chunks of the result: a part each, with some of its groups."""
        return self._with_groups([*self.part_lengths.values()], self.group_chunk)

    def _with_groups(self, lengths: Sequence[int], groups: int) -> tuple[int, ...]:
        found = list(lengths)
        if self.groups:
            found.insert(self.axes[0], groups)
        return tuple(found)
