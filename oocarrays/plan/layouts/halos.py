"""Halo exchange: each rank sends its borders, so that its neighbours have them around their own parts.

    (block, block) on 2 × 2, depth 1        rank 0 gets a column of 1, a row of 2 and a corner of 3
    ┌───────┬─┬ ─ ─ ─ ┐
    │ 0   0 │1│   1                         each as one message: corners need no second step
    │ 0   0 │1│   1   │
    ├───────┼─┼ ─ ─ ─ ┤                     if the depth exceeds a rank's part, ranks farther away also send
    │ 2   2 │3│   3
    ├───────┴─┘ ─ ─ ─ ┤

Only border rows are sent, and none twice to one rank: the receiver copies elements that repeat beyond an edge. Thakur
1995, section 5.4 (PASSION_oc_shift).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice, product
from typing import Any, ClassVar, NamedTuple

import numpy as np

from oocarrays.mapping.along import ascending
from oocarrays.mapping.layouts.distribution import Axis
from oocarrays.mapping.layouts.halo import AxisWindow, Boundaries, Boundary, Lent, axis_window, of_axis, of_each
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.layouts.local import Depth, check_depth
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, lengths
from oocarrays.plan.layouts.assembly import RankExchange
from oocarrays.plan.plan import Facts

Place = tuple[Any, ...]
"""NumPy index that returns a view."""


class Loan(NamedTuple):
    """Box of one rank's part that appears in another rank's halo, or in its own."""

    taken: Axes
    """Indices in the part of the rank that owns the elements."""
    strips: tuple[tuple[Place, Place], ...]
    """Pairs of an index in the receiver's window and an index into the taken elements."""

    @property
    def size(self) -> int:
        return math.prod(lengths(self.taken))


@dataclass(frozen=True, kw_only=True)
class HaloPlan(RankExchange):
    """Plan of a halo exchange between the ranks of a layout: messages, and each rank's memory."""

    layout: Layout
    depth: Depth
    """Halo width on each side, along each axis, in elements."""
    boundary: Boundaries
    """Boundary condition: the elements beyond the array's edges."""
    made: ClassVar[str] = "seen"

    def __post_init__(self) -> None:
        check_depth(self.layout, self.depth)

    @cached_property
    def held(self) -> np.ndarray:
        return np.array([self.layout.local_size(rank) for rank in range(self.layout.ranks)], np.int64)

    def windows(self, rank: int) -> tuple[AxisWindow, ...]:
        return tuple(axis_window(*each) for each in self._along(rank))

    def _along(self, rank: int) -> Iterator[tuple[Axis, int, int, Boundary]]:
        boundaries = of_each(self.boundary, len(self.depth))
        return zip(self.layout.axes, self.layout.coordinates(rank), self.depth, boundaries, strict=True)

    def shape(self, rank: int) -> tuple[int, ...]:
        """Return the shape of a rank's window; an empty part has no halo."""
        if not self.layout.local_size(rank):
            return self.layout.local_shape(rank)
        return tuple(window.length for window in self.windows(rank))

    def inside(self, rank: int) -> Section:
        """Return the section of a rank's window that is its own part."""
        held = self.layout.local_shape(rank)
        before = tuple(window.before for window in self.windows(rank)) if math.prod(held) else (0,) * len(held)
        return Section(before, tuple(b + n for b, n in zip(before, held, strict=True)))

    def lenders(self, rank: int) -> list[int]:
        """Return the ranks with elements in a rank's window, itself included."""
        if not self.layout.local_size(rank):
            return []
        return sorted(map(self.layout.rank, product(*(window.lent for window in self.windows(rank)))))

    def taken(self, source: int, rank: int) -> Axes:
        """Return the indices in the part of ``source`` that appear in a rank's window, along each axis, each once."""
        return tuple(lent.taken for lent in self._lent(source, rank))

    def strips(self, source: int, rank: int) -> Iterator[tuple[Place, Place]]:
        """Yield the places of ``source``'s elements: an index in a rank's window, and one into the taken elements."""
        for strips in product(*(lent.strips for lent in self._lent(source, rank))):
            yield (*(there for there, _ in strips), ...), (*(among for _, among in strips), ...)

    def filled(self, rank: int) -> Iterator[tuple[Place, Boundary]]:
        """Yield the places of constants in a rank's window, with their boundary; in corners the last axis wins."""
        if self.layout.local_size(rank):
            for axis, window in enumerate(self.windows(rank)):
                for there in window.filled:
                    yield (slice(None),) * axis + (there, ...), of_axis(self.boundary, axis)

    def loans(self, source: int, rank: int) -> list[Loan]:
        """Return ``source``'s elements in a rank's halo: one box, or for the rank's own elements one per place."""
        if source != rank:
            return [Loan(self.taken(source, rank), tuple(self.strips(source, rank)))]
        own = product(*(lent.strips for lent in self._lent(rank, rank)))
        held, loans = self.layout.local_shape(rank), []
        for strips in islice(own, 1, None):  # the first is its part without a halo
            taken = tuple(ascending(range(n)[among]) for n, (_, among) in zip(held, strips, strict=True))
            turned = (*(slice(None, None, among.step) for _, among in strips), ...)
            loans.append(Loan(taken, (((*(there for there, _ in strips), ...), turned),)))
        return loans

    def borders(self, rank: int) -> list[Section]:
        """Return the disjoint boxes of a rank's part that other ranks, or its own halo, need."""
        held = self.layout.local_shape(rank)
        if not math.prod(held):
            return []
        kept = [_kept(*each) for each in self._along(rank)]
        lower, upper = zip(*kept, strict=True) if kept else ((), ())
        return frame(Section((0,) * len(held), held), Section(lower, upper))

    def halo(self, rank: int) -> list[Section]:
        """Return the disjoint boxes of a rank's window outside its own part."""
        shape = self.shape(rank)
        return frame(Section((0,) * len(shape), shape), self.inside(rank)) if math.prod(shape) else []

    def _lent(self, source: int, rank: int) -> list[Lent]:
        owners = self.layout.coordinates(source)
        return [window.lent[owner] for window, owner in zip(self.windows(rank), owners, strict=True)]

    def sizes(self) -> np.ndarray:
        """Return a matrix of the elements of each source's part in each rank's window; its own part counts whole."""
        sizes = np.zeros((self.ranks, self.ranks), np.int64)
        for rank in range(self.ranks):
            for source in self.lenders(rank):
                sizes[source, rank] = math.prod(lengths(self.taken(source, rank)))
        return sizes

    @property
    def title(self) -> str:
        return f"{self.layout} with a halo of depth {' × '.join(map(str, self.depth))}, boundary {self.boundary!r}"

    def facts(self) -> Facts:
        first, middle = self.shape(0), self.shape(self.ranks // 2)
        return [("layout", (self.title,)), ("ranks see", (first, " of rank 0, ", middle, f" of {self.ranks // 2}"))]


@lru_cache(maxsize=4096)
def _kept(axis: Axis, rank: int, depth: int, boundary: Boundary) -> tuple[int, int]:
    """Return the interval of a rank's part, along an axis, that no halo needs."""
    size, needed = axis.size(rank), [np.zeros(0, np.int64)]
    for other in range(axis.ranks):
        found = axis_window(axis, other, depth, boundary).lent.get(rank)
        if found and other == rank:
            needed += [np.asarray(range(size)[among]) for _, among in found.strips[1:]]
        elif found:
            needed.append(np.asarray(found.taken))
    taken = np.unique(np.concatenate(needed))
    first, last = _in_a_row(taken), size - _in_a_row(size - 1 - taken[::-1])
    return (first, last) if first < last else (0, 0)


def _in_a_row(taken: np.ndarray) -> int:
    """Return the number of consecutive indices from 0 at the start of ascending ones."""
    return int(np.argmin(np.append(taken == np.arange(len(taken)), False)))


def frame(outer: Section, inner: Section) -> list[Section]:
    """Return the rest of a box around an inner one, as disjoint boxes."""
    if not inner.size:
        return [outer] if outer.size else []
    lower, upper, found = list(outer.lower), list(outer.upper), []
    for axis, (low, high) in enumerate(zip(inner.lower, inner.upper, strict=True)):
        for start, stop in ((lower[axis], low), (high, upper[axis])):
            box = Section((*lower[:axis], start, *lower[axis + 1 :]), (*upper[:axis], stop, *upper[axis + 1 :]))
            found += [box] if start < stop and box.size else []
        lower[axis], upper[axis] = low, high
    return found
