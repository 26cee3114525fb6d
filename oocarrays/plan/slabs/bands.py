"""One axis of a pass over slabs: regions of ranks, cut in bands, and how a band comes by its neighbours.

    handed   │────0────│────1────│────2────│      each band is read once, and given to those on either side
    kept     │────0─────░│────1────░│───2──│      read ahead by the depth: what the next one shares with it is kept
    again    │────0────░░│                        read with its halo: what two share is read twice
                     ░░│────1────░░│

What holds of a window in any number of axes is the product of what holds along each (Thakur 1995, section 5.5.3, has
the first way along one axis).
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

Way = Literal["handed", "kept", "again"]
"""How a window comes by what it shares with its neighbours along an axis: from both, as soon as they have been read;
from those before it, which keep it; or by reading it again."""
Ends = tuple[int, int]
"""The first element of an interval, and the one behind its last."""


class Stretch(NamedTuple):
    """Neighbouring places of a window along one axis, and what stands there."""

    place: slice
    """The places in the window."""
    elements: Taken
    """Which elements of the axis stand there; -1 for the constant."""
    inside: bool
    """Whether they are among what is read for the window at once."""
    turn: int
    """How often they stand beyond the array's edges: 0 where they are in it."""
    region: int
    """The region that has them."""
    number: int
    """The band of that region for which they are read."""
    met: bool
    """Whether that is read at about the same time, or kept from then on."""


class Along(NamedTuple):
    """One axis of a pass."""

    edges: tuple[int, ...]
    """Where regions begin, and the extent."""
    height: int
    """Elements of a band, but for the last one of a region."""
    depth: int
    """Neighbours that the kernel sees on each side."""
    boundary: Boundary
    """What stands beyond the edges."""
    shared: bool
    """Whether a rank can read what is in the region of another."""
    way: Way
    """How a band comes by what it shares with its neighbours."""
    closest: bool
    """Whether it is the axis along which windows follow one another most closely."""

    @property
    def extent(self) -> int:
        """Its length, in elements."""
        return self.edges[-1]

    @property
    def is_outer(self) -> bool:
        """Whether regions are cut along it in bands that do not follow one another at once."""
        return not self.closest and self.most_bands > 1

    @property
    def most_bands(self) -> int:
        """Bands of the longest region."""
        return ceil_div(longest(self.edges), self.height)

    def bands(self, region: int) -> int:
        return ceil_div(self.edges[region + 1] - self.edges[region], self.height)

    def core(self, region: int, number: int) -> Ends:
        """The elements that a band gives results for."""
        start = self.edges[region] + number * self.height
        return start, min(start + self.height, self.edges[region + 1])

    def window(self, region: int, number: int) -> Ends:
        """A band and its halo, also beyond the array's edges, where something stands there."""
        lower, upper = self.core(region, number)
        lower, upper = lower - self.depth, upper + self.depth
        return (lower, upper) if self.boundary != "none" else (max(lower, 0), min(upper, self.extent))

    def read(self, region: int, number: int) -> Ends:
        """Return the ends of what is read for a band at once."""
        lower, upper = self.core(region, number)
        if self.way == "handed":
            return lower, upper
        first, last = (0, self.extent) if self.shared else self.edges[region : region + 2]
        above = max(lower - self.depth, first) if number == 0 or self.way == "again" else lower + self.depth
        below = min(upper + self.depth, last)
        return min(above, below), below

    def stretches(self, region: int, number: int) -> Iterator[Stretch]:
        """A window, cut where what stands there comes from elsewhere."""
        (lower, upper), there = self.window(region, number), self.read(region, number)
        start = there[0] if there[0] < there[1] else upper
        yield from self._around(region, number, lower, min(start, upper))
        if start < upper:
            place = slice(start - lower, there[1] - lower)
            yield Stretch(place, range(*there), True, 0, region, number, True)
            yield from self._around(region, number, there[1], upper)

    def _around(self, region: int, number: int, start: int, stop: int) -> Iterator[Stretch]:
        """A part of a window that is not read at once."""
        if start >= stop:
            return
        stands, there = standing(self.boundary, self.extent, start, stop), self.read(region, number)
        beyond = np.arange(start, stop) // max(self.extent, 1)
        inside = (stands >= there[0]) & (stands < there[1])
        regions, numbers, met = self._owners(region, number, stands, beyond)
        regions, numbers, met = np.where(inside, region, regions), np.where(inside, number, numbers), met | inside
        changes = np.zeros(stop - start - 1, bool)
        for marks in (regions, numbers, inside, beyond, met):
            changes |= marks[1:] != marks[:-1]
        first = self.window(region, number)[0]
        for a, b in pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), stop - start]):
            yield Stretch(
                slice(start - first + a, start - first + b), _straight(stands[a:b]), bool(inside[a]), int(beyond[a]),
                int(regions[a]), int(numbers[a]), bool(met[a]),
            )  # fmt: skip

    def _owners(
        self, region: int, number: int, stands: np.ndarray, beyond: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For which band of which region elements are read, and whether that is met."""
        if self.shared and self.way == "again":
            nothing = 0 * stands  # who else reads it does not matter
            return nothing, nothing, nothing.astype(bool)
        regions = np.searchsorted(self.edges, stands, "right") - 1
        if self.is_outer or self.way == "kept":
            mine = np.ones(len(stands), bool) if self.shared else regions == region
            numbers = (stands - self.edges[region] - self.depth) // self.height
            numbers = np.clip(numbers, 0, max(self.bands(region) - 1, 0))
            around = (self.boundary == "periodic") & (beyond != 0)
            kept = mine & ~around if self.way == "kept" else np.zeros(len(stands), bool)
            return np.where(mine, region, regions), np.where(mine, numbers, 0), kept
        numbers = (stands - np.take(self.edges, regions)) // self.height
        met = [self._meets(region, int(turn), int(other)) for turn, other in zip(beyond, regions, strict=True)]
        return regions, numbers, np.array(met, bool)

    def _meets(self, region: int, turn: int, other: int) -> bool:
        """Whether bands are read at about the same time: round the array only the first ones of both ends are, where
        the ranks there begin at the edge. Others would wait for each other in a ring."""
        if not self.closest or not turn or self.boundary != "periodic":
            return True
        before = regions_before(self.edges)
        first, last = before.index(1) - 1, before.index(before[-1]) - 1
        return before[-1] % 2 == 0 and (region, other, turn) in ((first, last, -1), (last, first, 1))


def _straight(stands: np.ndarray) -> Taken:
    """Elements as a range, where they follow one another."""
    first, count = int(stands[0]), len(stands)
    if first < 0 or int(stands[-1]) - first != count - 1 or (np.diff(stands) != 1).any():
        return stands
    return range(first, first + count)


@lru_cache(64)
def longest(edges: tuple[int, ...]) -> int:
    """Elements of the longest region along an axis, at least 1."""
    return max(1, *(b - a for a, b in pairwise(edges)))


@lru_cache(64)
def regions_before(edges: tuple[int, ...]) -> tuple[int, ...]:
    """How many regions along an axis that are not empty lie before each, and in all."""
    return tuple(accumulate((a < b for a, b in pairwise(edges)), initial=0))
