"""Local array files: each rank's own part of the array, and a halo of its neighbours' elements.

    array           0 1 2 3 4 5 6 7 8 9 10 11          block over 3 ranks
    file of rank 0          · 0 1 2 3 4                depth 1; at the array's border the halo is there too
    file of rank 1                3 4 5 6 7 8
    file of rank 2                      7 8 9 10 11 ·

Along an axis with a halo each rank holds one block. The halo of a rank that holds nothing has the fill value.
Thakur 1995, section 5.4 (Figure 5.4).

rank      0  1  2  3  4
place     a  a  a  b  b        neighbours together: their borders stay where they are
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from numbers import Integral
from typing import Any, TypeVar

import numpy as np

from oocarrays.errors import LayoutError
from oocarrays.mapping import orientation
from oocarrays.mapping.given import by_axis
from oocarrays.mapping.layouts.axis import Axis
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken, common, lengths, within

Place = TypeVar("Place")


def spread(ranks: int, places: Sequence[Place]) -> tuple[Place, ...]:
    """Return the place of each rank: neighbours together, and in no place more than one rank more than in another.

    Of fewer ranks than places each has one of the first; no place makes no places.
    """
    if not places:
        return ()
    return tuple(places[rank * len(places) // max(ranks, len(places))] for rank in range(ranks))


def evenly(count: int, places: Sequence[Place]) -> Sequence[Place]:
    """Return so many of the places, or all, where they are no more: evenly, as neighbours may be on one machine."""
    return tuple(places[n * len(places) // count] for n in range(count)) if count < len(places) else places


def sides(before: int, after: int, places: Sequence[Place]) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """The places of the ranks of an exchange as they send and as they receive, where it changes how many there are.

    A rank that is there on one side only is, on the other, where it would be of all.
    """
    every = spread(max(before, after), places)
    return spread(before, places) + every[before:], spread(after, places) + every[after:]


Depth = tuple[int, ...]
"""How many neighbours a rank sees along each axis, on either side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPart:
    """The part of the array that one local array file holds."""

    shape: tuple[int, ...]
    """Extent of each axis of the file, its halo among them."""
    own: Axes
    """The elements that the rank holds, along each axis."""
    seen: Axes
    """These and what it sees of its neighbours."""
    start: tuple[int, ...]
    """Where the first of what is seen stands in the file, along each axis."""
    depth: Depth
    """Elements of the halo along each axis, on either side."""

    @classmethod
    def of(cls, layout: Layout, rank: int, depth: Depth) -> LocalPart:
        """Return the file of one rank; see `check_depth` for what layouts have a halo."""
        return _part(layout, rank, depth)

    @property
    def inside(self) -> Section:
        """Where the rank's own elements are in the file."""
        return Section(self.depth, tuple(d + n for d, n in zip(self.depth, lengths(self.own), strict=True)))

    @property
    def without_halo(self) -> LocalPart:
        """The same file, as if nothing were seen but what the rank holds."""
        return replace(self, seen=self.own, start=self.depth)

    def of_box(self, box: Section) -> tuple[Axes, Section]:
        """Return the elements of a box of the array that the file has, and the box in the file where they stand."""
        places = [
            within(taken, l, u)[0].indices(len(taken))
            for taken, l, u in zip(self.seen, box.lower, box.upper, strict=True)
        ]
        lower = tuple(s + first for s, (first, _, _) in zip(self.start, places, strict=True))
        upper = tuple(s + last for s, (_, last, _) in zip(self.start, places, strict=True))
        return common(self.seen, box), Section(lower, upper)


def depths(depth: Any, axes: int, names: Sequence[str | None] | None = None) -> Depth:
    """One depth for each axis; of a mapping, by numbers or names, 0 for axes that it leaves out."""
    depth = by_axis(depth, axes, 0, names, "depth")
    each: tuple[Any, ...] = tuple(depth) if isinstance(depth, Sequence) else (depth,) * axes
    if len(each) != axes or not all(isinstance(d, Integral) and int(d) >= 0 for d in each):
        raise LayoutError(f"depth={depth!r} must be a whole number, at least 0, or one for each of {axes} axes")
    return tuple(map(int, each))


def check_depth(layout: Layout, depth: Depth) -> None:
    """Refuse a halo along an axis of which a rank holds more than one block."""
    for number, (axis, d) in enumerate(zip(layout.axes, depth, strict=True)):
        if d and any(len(held) != _span(held) for held in map(partial(_held, axis), range(axis.ranks))):
            raise LayoutError(
                f"depth={d} along axis {number}: in {layout} a rank holds more than one block there; "
                "a halo needs block, gen_block or *"
            )


def largest_rank(layout: Layout) -> int:
    """Return a rank whose part is as long as any along every axis."""
    return layout.rank([max(range(axis.ranks), key=axis.size) for axis in layout.axes])


def shared(wanted: Taken, held: Taken) -> tuple[Taken, Taken]:
    """Where the elements of both stand among what is wanted, and among what is held."""
    if isinstance(wanted, range) and isinstance(held, range):
        both = orientation.common(wanted, held)
        return _places(both, wanted), _places(both, held)
    _, among, there = np.intersect1d(np.asarray(wanted), np.asarray(held), assume_unique=True, return_indices=True)
    return among, there


def _places(both: range, among: range) -> range:
    if not both:
        return range(0)
    first, last = (both[0] - among.start) // among.step, (both[-1] - among.start) // among.step
    return orientation.ascending(range(first, last + 1, max(both.step // among.step, 1)))


@lru_cache(maxsize=4096)
def _part(layout: Layout, rank: int, depth: Depth) -> LocalPart:
    own = tuple(map(_held, layout.axes, layout.coordinates(rank)))
    seen = tuple(_seen(taken, d, n) for taken, d, n in zip(own, depth, layout.shape, strict=True))
    return LocalPart(
        shape=tuple(len(taken) + 2 * d for taken, d in zip(own, depth, strict=True)),
        own=own,
        seen=seen,
        start=tuple(_start(taken, d) for taken, d in zip(own, depth, strict=True)),
        depth=depth,
    )


def _held(axis: Axis, rank: int) -> Taken:
    """Return the indices that a rank holds along an axis, in its order, which is ascending."""
    sections = axis.sections(rank)
    if len(sections) < 2:
        return orientation.ascending(sections[0]) if sections else range(0)
    return axis.index(rank, np.arange(axis.size(rank)))


def _span(taken: Taken) -> int:
    return int(taken[-1]) - int(taken[0]) + 1 if len(taken) else 0


def _seen(taken: Taken, depth: int, extent: int) -> Taken:
    if not depth or not len(taken):
        return taken
    return range(max(int(taken[0]) - depth, 0), min(int(taken[-1]) + 1 + depth, extent))


def _start(taken: Taken, depth: int) -> int:
    return max(depth - int(taken[0]), 0) if len(taken) else depth


def places_in(axes: Axes, box: Section) -> tuple[Any, Any] | None:
    """Return the positions of a box's selected elements in the selection and in the box, or None where it has none."""
    along = [within(taken, l, u) for taken, l, u in zip(axes, box.lower, box.upper, strict=True)]
    if any(there.start == there.stop for there, _ in along):
        return None
    among: Any = (*(there for there, _ in along), ...)
    inside = [part for _, part in along]
    if all(isinstance(part, slice) for part in inside):
        return among, (*inside, ...)
    return among, np.ix_(*(np.r_[part] if isinstance(part, slice) else part for part in inside))
