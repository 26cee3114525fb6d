"""Elements of one axis: regular ranges of them, and how a selection lies over its chunks.

    every 4th from 1      · 1 · · · 5 · · · 9 · · · 13· ·
    every 6th from 3      · · · 3 · · · · · 9 · · · · · 15
    common                · · · · · · · · · 9 · · · · · ·          every 12th: lcm(4, 6)
    hull                  · 1 · 3 · 5 · 7 · 9 · 11· 13· 15         every 2nd: gcd(4, 6, 3 - 1)

The common elements of two ranges follow from the Chinese remainder theorem, for any length. Descending ranges are not
accepted; `ascending` reverses them.

    chunks      │ 0 1 2 3 │ 4 5 6 7 │ 8 9 a b │ c d e f │        chunk = 4, selected from 2 to e
    selected    │     2 3 │ 4 5 6 7 │ 8 9 a b │ c d e   │

    pieces      0: 2 to 4 │ 1: all  │ 2: all  │ 3: 0 to 3         one per chunk: to read and write it
    cuts        0: 2 to 4 │ 1 to 2: all       │ 3: 0 to 3         equal neighbours together: to plan them once
    alike       1 ×       │ 2 ×               │ 1 ×               equal chunks anywhere: to count them

Cuts and classes of a range are found from its stride and the chunk length, whatever the number of chunks. N-d is the
product of one-axis results; `Line` multiplies numbers of contiguous runs.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

Taken = range | np.ndarray
"""Selected indices along one axis, ascending, each once."""


def ascending(axis: range) -> range:
    """Return the same elements ascending, with an end after the last, and step 1 for a single element."""
    if not axis:
        return range(0)
    if axis.step == 1:
        return axis
    low, high = sorted((axis[0], axis[-1]))
    return range(low, high + 1, abs(axis.step) if low < high else 1)


def common_range(a: range, b: range) -> range:
    """Return the elements in both, as a range: each ``lcm`` of the strides, or nothing."""
    low, high = max(a.start, b.start), min(a.stop, b.stop)
    apart, shared = b.start - a.start, math.gcd(a.step, b.step)
    if apart % shared or low >= high:
        return range(0)
    # the one x in a whole turn with x = a.start (mod a.step) and x = b.start (mod b.step)
    steps = apart // shared * pow(a.step // shared, -1, b.step // shared) % (b.step // shared)
    turn = a.step * b.step // shared
    return ascending(range(low + (a.start + steps * a.step - low) % turn, high, turn))


def hull(axes: Iterable[range]) -> range:
    """Return the smallest regular section with all elements; its stride divides every distance between them."""
    held = [axis for axis in axes if axis]
    if not held:
        return range(0)
    low, high = min(axis[0] for axis in held), max(axis[-1] for axis in held)
    strides = (axis.step for axis in held if len(axis) > 1)
    return ascending(range(low, high + 1, math.gcd(*strides, *(axis[0] - low for axis in held)) or 1))


def positions(axis: range, among: range) -> range:
    """Return the positions of elements in a range that contains all of them."""
    if not axis:
        return range(0)
    first, last = (axis[0] - among.start) // among.step, (axis[-1] - among.start) // among.step
    return ascending(range(first, last + 1, max(axis.step // among.step, 1)))


Some = TypeVar("Some", bound=Taken, covariant=True)


class Cut(NamedTuple, Generic[Some]):
    """Equidistant chunks in which the same elements are selected, one chunk's elements after the other's."""

    chunks: range
    inside: Some
    """Selected indices relative to each chunk's start."""
    first: int
    """Position of the first element in the selection."""

    @property
    def out(self) -> slice:
        """Places of its elements in the selection."""
        return slice(self.first, self.first + len(self.chunks) * len(self.inside))


class Piece(NamedTuple):
    """Selected elements in one chunk."""

    chunk: int
    inside: slice | np.ndarray
    """Their places in the chunk."""
    out: slice
    """Their places in the selection."""
    whole: bool
    """Whether they are all elements of the axis in the chunk."""

    @property
    def size(self) -> int:
        return int(self.out.stop - self.out.start)

    @property
    def runs(self) -> int:
        if isinstance(self.inside, slice):
            return 1 if self.inside.step == 1 else self.size
        return 1 + int((np.diff(self.inside) > 1).sum())


def cuts(taken: Taken, chunk: int) -> Iterator[Cut[Taken]]:
    """Yield the chunks with selected elements in order; neighbours with the same elements are one cut."""
    return range_cuts(taken, chunk) if isinstance(taken, range) else _list_cuts(taken, chunk)


def range_cuts(taken: range, chunk: int) -> Iterator[Cut[range]]:
    """Yield the cuts of a range, as many chunks at once as its stride allows."""
    number, left, at, step = 0, len(taken), taken.start, taken.step
    while left:
        index, start = at // chunk, at % chunk
        count, apart = (chunk - start + step - 1) // step, step // chunk or 1
        if count > left:
            count = left
        times = left // count if count * step == chunk or step % chunk == 0 else 1
        inside = range(start, start + (count - 1) * step + 1, step if count > 1 else 1)
        yield Cut(range(index, index + (times - 1) * apart + 1, apart), inside, number)
        number, left, at = number + times * count, left - times * count, at + times * count * step


def _list_cuts(taken: np.ndarray, chunk: int) -> Iterator[Cut[np.ndarray]]:
    numbers, inside = np.divmod(taken, chunk)
    held: Cut[np.ndarray] | None = None
    first = 0
    for last in (np.flatnonzero(np.diff(numbers, append=-1)) + 1).tolist():
        here = Cut(range(int(numbers[first]), int(numbers[first]) + 1), inside[first:last], first)
        joined = held and _joined(held, here)
        if held and not joined:
            yield held
        held, first = joined or here, last
    if held:
        yield held


def _joined(cut: Cut[np.ndarray], more: Cut[np.ndarray]) -> Cut[np.ndarray] | None:
    """Return a cut extended by the next chunk if that has the same elements at the same distance."""
    apart = more.chunks[0] - cut.chunks[-1]
    if (len(cut.chunks) > 1 and cut.chunks.step != apart) or not np.array_equal(cut.inside, more.inside):
        return None
    return cut._replace(chunks=range(cut.chunks[0], more.chunks[0] + 1, apart))


@dataclass(frozen=True, eq=False)
class AxisOverGrid:
    """Selection of elements of an axis that is cut in chunks: an iterable of its pieces, one per touched chunk."""

    taken: Taken
    extent: int
    chunk: int
    """Elements of a chunk along it."""

    def __iter__(self) -> Iterator[Piece]:
        for cut in cuts(self.taken, self.chunk):
            for number in range(len(cut.chunks)):
                yield self._piece(cut, number)

    def _piece(self, cut: Cut[Taken], number: int) -> Piece:
        chunk, inside, count = cut.chunks[number], cut.inside, len(cut.inside)
        place = slice(inside.start, inside.stop, inside.step) if isinstance(inside, range) else inside
        first = cut.first + number * count
        whole = count in (self.chunk, self.extent - chunk * self.chunk)
        return Piece(chunk, place, slice(first, first + count), whole)

    @cached_property
    def alike(self) -> list[tuple[Piece, int]]:
        """One piece of each kind with the number of equal ones; the last chunk of the axis is a kind of its own."""
        last, found = (self.extent - 1) // self.chunk, dict[Any, tuple[Piece, int]]()
        for start, stop, times in self._periods():
            for cut in cuts(self.taken[start:stop], self.chunk):
                inner = len(cut.chunks) - (cut.chunks[-1] == last)
                for number, many in ((0, inner), (inner, len(cut.chunks) - inner)):
                    if many:
                        key = cut.inside if isinstance(cut.inside, range) else cut.inside.tobytes()
                        piece, known = found.get((key, number == inner), (None, 0))
                        piece = piece or self._piece(cut._replace(first=start + cut.first), number)
                        found[key, number == inner] = piece, known + many * times
        return list(found.values())

    def _periods(self) -> Iterator[tuple[int, int, int]]:
        """Yield the positions up to a chunk's edge, then of a period with how often it repeats, then of the rest."""
        taken, size = self.taken, len(self.taken)
        each = math.lcm(taken.step, self.chunk) // taken.step if isinstance(taken, range) else size
        if not isinstance(taken, range) or size <= each:
            yield 0, size, 1
            return
        head = -(-(-taken[0] % self.chunk) // taken.step)
        times = max(size - head - 1, 0) // each
        yield 0, head, 1
        if times:
            yield head, head + each, times
        yield head + times * each, size, 1

    def line(self, *, whole: bool = False) -> Line:
        """Return the counts over all touched chunks, or over those with all their elements."""
        held = [(piece, times) for piece, times in self.alike if piece.whole or not whole]
        return Line(
            elements=sum(times * piece.size for piece, times in held),
            runs=sum(times * piece.runs for piece, times in held),
            wholes=sum(times for piece, times in held if piece.size == self.chunk),
        )


def over_edges(edges: Sequence[int], lower: int, upper: int) -> Iterator[Piece]:
    """Yield the pieces of an interval in cells of unequal lengths, given by their edges."""
    for cell in range(bisect_right(edges, lower) - 1, bisect_left(edges, upper)):
        first, last = edges[cell : cell + 2]
        start, stop = max(first, lower), min(last, upper)
        if start < stop:
            whole = (start, stop) == (first, last)
            yield Piece(cell, slice(start - first, stop - first), slice(start - lower, stop - lower), whole)


OverGrid = tuple[AxisOverGrid, ...]
"""Selection along each axis of a grid."""


class Line(NamedTuple):
    """Counts along one axis, or along a product of axes, summed over chunks: integers, or arrays of them."""

    elements: Any = 1
    runs: Any = 1
    """Number of contiguous pieces, separated at chunk edges."""
    wholes: Any = 1
    """Number of chunks with all of their stored elements."""
    longest: Any = 1
    """Elements of the longest piece of an uncut line."""


def product_line(lines: Sequence[Line]) -> Line:
    """Return the counts of the product of axes, from the slowest to the fastest."""
    return reduce(_times, reversed(lines), Line())


def _times(inner: Line, outer: Line) -> Line:
    """Return the counts of the product with a slower axis.

    A piece begins with each element of the outer line, unless it continues the previous one: if the elements are
    adjacent there, and the inner line is whole.
    """
    followed = outer.elements - outer.runs
    return Line(
        elements=outer.elements * inner.elements,
        runs=outer.elements * inner.runs - followed * inner.wholes,
        wholes=outer.wholes * inner.wholes,
    )
