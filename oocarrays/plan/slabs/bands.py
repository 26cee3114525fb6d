"""One axis of a pass over slabs: regions of ranks, cut in bands, and the source of each band's halo.

    exchange   │────0────│────1────│────2──│      each band is read once, and sent to those on either side
    reread     │────0────░░│                      read with its halo: elements shared by two bands are read twice
                       ░░│────1────░░│

A window in several axes is the product of its intervals along each axis (Thakur 1995, section 5.5.3, has the first way
along one axis).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

import numpy as np

from oocarrays.mapping.grid import ceil_div
from oocarrays.mapping.layouts.halo import Boundary, standing
from oocarrays.mapping.selection import Taken

Way = Literal["exchange", "reread"]
"""Way of obtaining the elements of a window shared with neighbours along an axis: from both sides as soon as they are
read, or by reading them again.
"""
Ends = tuple[int, int]
"""First element of an interval, and one past its last."""


class WindowSegment(NamedTuple):
    """Adjacent positions of a window along one axis, with the elements at them."""

    place: slice
    """Positions in the window."""
    elements: Taken
    """Elements of the axis at those positions; -1 for the constant."""
    main: bool
    """Whether they are the main read of the window."""
    region: int
    """Region that contains them."""
    number: int
    """Band of that region that reads them."""
    met: bool
    """Whether that band is read at about the same time."""


class SlabAxis(NamedTuple):
    """One axis of a pass."""

    edges: tuple[int, ...]
    """Start of each region, and the extent."""
    height: int
    """Elements of a band, except the last one of a region."""
    depth: int
    """Number of neighbours that the kernel sees on each side."""
    boundary: Boundary
    shared: bool
    """Whether a rank can read the region of another."""
    way: Way
    """Way of obtaining elements shared with neighbouring bands."""
    closest: bool
    """Whether consecutive windows are adjacent along this axis."""

    @property
    def extent(self) -> int:
        return self.edges[-1]

    def bands(self, region: int) -> int:
        return ceil_div(self.edges[region + 1] - self.edges[region], self.height)

    def core(self, region: int, number: int) -> Ends:
        start = self.edges[region] + number * self.height
        return start, min(start + self.height, self.edges[region + 1])

    def window(self, region: int, number: int) -> Ends:
        """Return the ends of a band with its halo, and with values beyond the edges if the boundary fills them."""
        lower, upper = self.core(region, number)
        lower, upper = lower - self.depth, upper + self.depth
        return (lower, upper) if self.boundary != "none" else (max(lower, 0), min(upper, self.extent))

    def read(self, region: int, number: int) -> Ends:
        """Return the ends of the main read of a band."""
        lower, upper = self.core(region, number)
        if self.way == "exchange":
            return lower, upper
        first, last = (0, self.extent) if self.shared else self.edges[region : region + 2]
        return max(lower - self.depth, first), min(upper + self.depth, last)

    def segments(self, region: int, number: int) -> Iterator[WindowSegment]:
        """Yield a window, cut where the source of its elements changes."""
        (lower, upper), there = self.window(region, number), self.read(region, number)
        start = there[0] if there[0] < there[1] else upper
        yield from self._around(region, number, lower, min(start, upper))
        if start < upper:
            place = slice(start - lower, there[1] - lower)
            yield WindowSegment(place, range(*there), True, region, number, True)
            yield from self._around(region, number, there[1], upper)

    def _around(self, region: int, number: int, start: int, stop: int) -> Iterator[WindowSegment]:
        """Yield the segments of a part of a window outside its main read."""
        if start >= stop:
            return
        stands, there = standing(self.boundary, self.extent, start, stop), self.read(region, number)
        beyond = np.arange(start, stop) // max(self.extent, 1)
        inside = (stands >= there[0]) & (stands < there[1])
        regions, numbers, met = self._owners(region, stands, beyond)
        regions, numbers, met = np.where(inside, region, regions), np.where(inside, number, numbers), met | inside
        changes = np.zeros(stop - start - 1, bool)
        for marks in (regions, numbers, inside, beyond, met):
            changes |= marks[1:] != marks[:-1]
        first = self.window(region, number)[0]
        for a, b in pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), stop - start]):
            yield WindowSegment(
                slice(start - first + a, start - first + b), _straight(stands[a:b]), False, int(regions[a]),
                int(numbers[a]), bool(met[a]),
            )  # fmt: skip

    def _owners(self, region: int, stands: np.ndarray, beyond: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the region and band that read each element, and whether they meet."""
        nothing = 0 * stands  # no owner is needed if the window is read again
        if self.shared and self.way == "reread":
            return nothing, nothing, nothing.astype(bool)
        regions = np.searchsorted(self.edges, stands, "right") - 1
        if not self.closest and longest(self.edges) > self.height:  # its bands are not walked consecutively
            return regions, nothing, nothing.astype(bool)
        numbers = (stands - np.take(self.edges, regions)) // self.height
        around = self.closest and self.boundary == "periodic"  # ranks would wait for each other in a ring
        return regions, numbers, (beyond == 0) if around else np.ones(len(stands), bool)


def _straight(stands: np.ndarray) -> Taken:
    first, count = int(stands[0]), len(stands)
    if first < 0 or int(stands[-1]) - first != count - 1 or (np.diff(stands) != 1).any():
        return stands
    return range(first, first + count)


@lru_cache(64)
def longest(edges: tuple[int, ...]) -> int:
    """Return the elements of the longest region along an axis, at least 1."""
    return max(1, *(b - a for a, b in pairwise(edges)))


@lru_cache(64)
def regions_before(edges: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of non-empty regions before each region along an axis, and in all."""
    return tuple(accumulate((a < b for a, b in pairwise(edges)), initial=0))
