"""Local array files: each rank's own part of the array, and a halo of its neighbours' elements.

    array           0 1 2 3 4 5 6 7 8 9 10 11          block over 3 ranks
    file of rank 0          · 0 1 2 3 4                depth 1; the file has a halo also at the array's border
    file of rank 1                3 4 5 6 7 8
    file of rank 2                      7 8 9 10 11 ·

Along an axis with a halo each rank holds one block. The halo of a rank without elements has the fill value.
Thakur 1995, section 5.4 (Figure 5.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from oocarrays.errors import LayoutError
from oocarrays.mapping.along import common_range, positions
from oocarrays.mapping.given import by_axis, index_of
from oocarrays.mapping.layouts.distribution import held_by, is_block
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken, common, index_of_parts, lengths, within

Depth = tuple[int, ...]
"""Number of neighbours that a rank sees along each axis, on either side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPart:
    """Part of the array in one local array file."""

    shape: tuple[int, ...]
    """Extent of each axis of the file, including its halo."""
    own: Axes
    """Elements of the rank, along each axis."""
    seen: Axes
    """Elements of the rank and of its halo."""
    start: tuple[int, ...]
    """Index in the file of the first element in ``seen``, along each axis."""
    depth: Depth
    """Elements of the halo along each axis, on either side."""

    @classmethod
    @lru_cache(maxsize=4096)
    def of(cls, layout: Layout, rank: int, depth: Depth) -> LocalPart:
        """Return the file of one rank; `check_depth` validates the halo."""
        own = tuple(map(held_by, layout.axes, layout.coordinates(rank)))
        each = list(zip(own, depth, strict=True))
        return cls(
            shape=tuple(len(taken) + 2 * d for taken, d in each),
            own=own,
            seen=tuple(_seen(taken, d, n) for (taken, d), n in zip(each, layout.shape, strict=True)),
            start=tuple(max(d - int(taken[0]), 0) if len(taken) else d for taken, d in each),
            depth=depth,
        )

    @property
    def inside(self) -> Section:
        """Section of the rank's own elements in the file."""
        return Section(self.depth, tuple(d + n for d, n in zip(self.depth, lengths(self.own), strict=True)))

    def of_box(self, box: Section) -> tuple[Axes, Section]:
        """Return the file's elements in a box of the array, and their section in the file."""
        along = zip(self.start, self.seen, box.lower, box.upper, strict=True)
        places = [(start, within(taken, l, u)[0]) for start, taken, l, u in along]
        lower = tuple(start + place.start for start, place in places)
        upper = tuple(start + place.stop for start, place in places)
        return common(self.seen, box), Section(lower, upper)


def depths(depth: Any, axes: int, names: Sequence[str | None] | None = None) -> Depth:
    """Return one depth for each axis; a mapping by numbers or names has 0 for omitted axes."""
    depth = by_axis(depth, axes, 0, names, "depth")
    each: tuple[Any, ...] = tuple(depth) if isinstance(depth, Sequence) else (depth,) * axes
    if len(each) != axes or any((n := index_of(d)) is None or n < 0 for d in each):
        raise LayoutError(f"depth={depth!r} must be a whole number, at least 0, or one for each of {axes} axes")
    return tuple(map(int, each))


def check_depth(layout: Layout, depth: Depth) -> None:
    """Raise if an axis with a halo has more than one block per rank."""
    for number, (axis, d) in enumerate(zip(layout.axes, depth, strict=True)):
        if d and not is_block(axis):
            raise LayoutError(
                f"depth={d} along axis {number}: in {layout} a rank holds more than one block there; "
                "a halo needs block, gen_block or *"
            )


def largest_rank(layout: Layout) -> int:
    """Return a rank with a part of maximum length along every axis."""
    return layout.rank([max(range(axis.ranks), key=axis.size) for axis in layout.axes])


def shared(wanted: Taken, held: Taken) -> tuple[Taken, Taken]:
    """Return the positions of common elements among the wanted, and among the held ones."""
    if isinstance(wanted, range) and isinstance(held, range):
        both = common_range(wanted, held)
        return positions(both, wanted), positions(both, held)
    _, among, there = np.intersect1d(np.asarray(wanted), np.asarray(held), assume_unique=True, return_indices=True)
    return among, there


def _seen(taken: Taken, depth: int, extent: int) -> Taken:
    if not depth or not len(taken):
        return taken
    return range(max(int(taken[0]) - depth, 0), min(int(taken[-1]) + 1 + depth, extent))


def places_in(axes: Axes, box: Section) -> tuple[Any, Any] | None:
    """Return the positions of a box's selected elements in the selection and in the box, or None if it has none."""
    along = [within(taken, l, u) for taken, l, u in zip(axes, box.lower, box.upper, strict=True)]
    if any(there.start == there.stop for there, _ in along):
        return None
    return (*(there for there, _ in along), ...), index_of_parts([part for _, part in along])
