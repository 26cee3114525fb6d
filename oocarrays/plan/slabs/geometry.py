"""Slabs: arrays pass through a window, band after band, each band read once.

    rows        0      h      2h     3h   n
    bands       [──0──)[──1──)[──2──)[─3──)        read once each, into the middle of a window
    window 1         ░░[──1──)░░                   its halos: the last rows of band 0, the first of band 2
    in memory   compute 1 while 2 is there, 3 is read, and what 0 gave is written

What two windows share is handed on in memory instead of being read again (*data reuse*); bands are read ahead of the
one that is computed (*prefetch*). Each rank has a region, cut in bands of its own. Ranks of every second row of regions
go through theirs backwards, so that neighbours come to their common border at the same time and hand each other what
the other's window reaches into (*shift*): nothing is read for it.

    rank 0  0 ─► 1 ─► 2 │ 2 ◄─ 1 ◄─ 0  rank 1 │ 0 ─► 1 ─► 2  rank 2

Thakur 1995, sections 5.4, 5.5.2 and 5.5.3; a slab is his in-core local array (ICLA).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise, product
from typing import Literal, NamedTuple

import numpy as np

from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div, unravel
from oocarrays.mapping.layouts.boundary import Boundary, standing
from oocarrays.mapping.section import Section
from oocarrays.plan.slabs.options import Edges, SlabTerms


class Slab(NamedTuple):
    """A slab: its number along its rank's region, and its rank."""

    number: int
    rank: int


class Piece(NamedTuple):
    """A part of a window's halo, and where it comes from."""

    place: tuple[slice, ...]
    """Where it is in the window."""
    owner: Slab | None
    """The slab that has read it; None where it is read for this window, or a constant."""
    elements: tuple[np.ndarray, ...]
    """Which elements of the array they are, along each axis; -1 for the constant."""
    met: bool = True
    """Whether its owner reads it at about the same time; if not, its rank reads it again for this window alone."""

    @property
    def is_read(self) -> bool:
        """Whether it is read for this window alone, by its owner's rank or by that of the window."""
        return (self.owner is None or not self.met) and all(each[0] >= 0 for each in self.elements)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabGeometry(SlabTerms):
    """How arrays of one shape pass through a window."""

    edges: Edges
    """Where the regions of ranks begin along each axis, and the extent: their product is the grid of ranks."""
    axis: int
    """The axis along which slabs follow one another."""
    height: int
    """Elements of a slab along it, but for the last one of a region."""
    depth: tuple[int, ...]
    """Neighbours that the kernel sees on each side, in each axis."""
    sources: tuple[Stored, ...]
    """What is read: the array, or the file of one rank."""
    targets: tuple[Stored, ...]
    """What is written."""
    workspace: int
    """Bytes that the kernel holds beside its blocks and its results, in each rank."""
    estimated: bool = False
    """Whether the workspace is an estimate: the first kernel then shows if there is room for what it holds."""
    past_cache: bool = False
    """Whether plain local files are read and written past the system's cache: they would not stay there."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis, in elements."""
        return tuple(each[-1] for each in self.edges)

    @property
    def grid(self) -> tuple[int, ...]:
        """Ranks along each axis."""
        return tuple(len(each) - 1 for each in self.edges)

    @property
    def ranks(self) -> int:
        """Ranks, each of which has a region."""
        return math.prod(self.grid)

    def region(self, rank: int) -> Section:
        """The elements that a rank gives results for.

        >>> plan = example_plan(ranks=2)
        >>> plan.region(0).axes, plan.region(1).axes
        ((range(0, 6), range(0, 4)), (range(6, 9), range(0, 4)))
        """
        place = unravel(rank, self.grid)
        return Section(
            tuple(each[i] for each, i in zip(self.edges, place, strict=True)),
            tuple(each[i + 1] for each, i in zip(self.edges, place, strict=True)),
        )

    def slabs(self, rank: int) -> list[Slab]:
        """The slabs of a rank, in the order in which they are read.

        >>> [[slab.number for slab in example_plan(ranks=2).slabs(rank)] for rank in range(2)]
        [[0, 1, 2], [1, 0]]
        """
        numbers = self.numbers(rank)
        return [Slab(number, rank) for number in (reversed(numbers) if self.backwards(rank) else numbers)]

    def numbers(self, rank: int) -> range:
        """The numbers of the slabs of a rank, along the axis."""
        region = self.region(rank)
        return range(ceil_div(region.shape[self.axis], self.height) if region.size else 0)

    def backwards(self, rank: int) -> bool:
        """Whether a rank begins with its last slab: every second one does of those along the axis that have any."""
        return _before(self.edges[self.axis])[unravel(rank, self.grid)[self.axis]] % 2 == 1

    @property
    def count(self) -> int:
        """Slabs in all."""
        runs = (ceil_div(b - a, self.height) for a, b in pairwise(self.edges[self.axis]))
        return sum(runs) * self.ranks // self.grid[self.axis] if math.prod(self.shape) else 0

    def core(self, slab: Slab) -> Section:
        """The elements that a slab gives results for: its band."""
        region, axis = self.region(slab.rank), self.axis
        start = region.lower[axis] + slab.number * self.height
        lower, upper = list(region.lower), list(region.upper)
        lower[axis], upper[axis] = start, min(start + self.height, region.upper[axis])
        return Section(tuple(lower), tuple(upper))

    def window(self, slab: Slab) -> Section:
        """The band and its halo, also beyond the array's edges, where something stands there.

        >>> plan = example_plan()
        >>> [plan.window(slab).axes[0] for slab in plan.slabs(0)]
        [range(0, 3), range(1, 5), range(3, 7), range(5, 9), range(7, 9)]
        """
        core = self.core(slab)
        lower = tuple(l - d for l, d in zip(core.lower, self.depth, strict=True))
        upper = tuple(u + d for u, d in zip(core.upper, self.depth, strict=True))
        if self.boundary != "none":
            return Section(lower, upper)
        return Section(tuple(max(l, 0) for l in lower), tuple(map(min, upper, self.shape)))

    def read(self, slab: Slab) -> Section:
        """What is read into a window at once: its band, or without reuse all that can be read of it."""
        if self.reuse:
            return self.core(slab)
        readable = Section((0,) * len(self.shape), self.shape) if self.shared else self.region(slab.rank)
        part = self.window(slab).intersection(readable)
        assert part is not None, "a window holds its band"
        return part

    def pieces(self, slab: Slab) -> tuple[Piece, ...]:
        """What is not read at once: each part of a window's halo, and where it comes from.

        >>> plan = example_plan(boundary="reflect")
        >>> [(piece.owner, piece.elements[0].tolist()) for piece in plan.pieces(Slab(0, 0))]
        [(Slab(number=0, rank=0), [0]), (Slab(number=1, rank=0), [2])]
        """
        return _pieces(self, slab)

    def _cut_up(self, slab: Slab) -> Iterator[Piece]:
        window, there = self.window(slab), self.read(slab)
        along = [list(self._stretches(axis, window, there)) for axis in range(len(self.shape))]
        for each in product(*along):
            if all(stretch.inside and not stretch.turn for stretch in each):
                continue
            place, elements = tuple(stretch.place for stretch in each), tuple(stretch.elements for stretch in each)
            met = self._meets(slab, each[self.axis])
            yield Piece(place, self._owner(slab, each, met=met), elements, met)

    def _meets(self, slab: Slab, along: Stretch) -> bool:
        """Whether slabs are read at about the same time: round the array only the first ones of both ends are, where
        the ranks there begin at the edge. Others would wait for each other in a ring."""
        if along.inside or not along.turn or self.boundary != "periodic":
            return True
        before, mine = _before(self.edges[self.axis]), unravel(slab.rank, self.grid)[self.axis]
        first, last = before.index(1) - 1, before.index(before[-1]) - 1
        return before[-1] % 2 == 0 and (mine, along.region, along.turn) in ((first, last, -1), (last, first, 1))

    def _owner(self, slab: Slab, along: tuple[Stretch, ...], *, met: bool) -> Slab | None:
        if any(stretch.elements[0] < 0 for stretch in along):
            return None
        if all(stretch.inside for stretch in along):
            return slab
        rank = 0
        for stretch, n in zip(along, self.grid, strict=True):
            rank = rank * n + stretch.region
        return None if self.shared and not (self.reuse and met) else Slab(along[self.axis].number, rank)

    def _stretches(self, axis: int, window: Section, there: Section) -> Iterator[Stretch]:
        """A window along one axis, cut where what stands there comes from elsewhere."""
        lower, upper, extent = window.lower[axis], window.upper[axis], self.shape[axis]
        stands = standing(self.boundary, extent, lower, upper)
        regions = np.searchsorted(self.edges[axis], stands, "right") - 1
        numbers = (stands - np.take(self.edges[axis], regions)) // self.height if axis == self.axis else 0 * stands
        inside = (stands >= there.lower[axis]) & (stands < there.upper[axis])
        beyond = np.arange(lower, upper) // max(extent, 1)
        if self.shared and not self.reuse:
            numbers, regions = 0 * numbers, 0 * regions  # who else reads it does not matter
        changes = np.zeros(max(upper - lower - 1, 0), bool)
        for marks in (regions, numbers, inside, beyond):
            changes |= marks[1:] != marks[:-1]
        ends = [0, *(np.flatnonzero(changes) + 1).tolist(), upper - lower]
        for start, stop in pairwise(ends):
            yield Stretch(
                slice(start, stop),
                stands[start:stop],
                bool(inside[start]),
                int(beyond[start]),
                int(regions[start]),
                int(numbers[start]),
            )

    def givers(self, slab: Slab) -> list[Slab]:
        """The other slabs that have some of a window, in order: neighbours, and where it is wide those behind them.

        >>> example_plan(ranks=2).givers(Slab(2, 0))
        [Slab(number=1, rank=0), Slab(number=0, rank=1)]
        """
        return _givers(self, slab)

    def fetchers(self, slab: Slab) -> list[int]:
        """The ranks that read something again for a window: where files are local, and it goes round the array."""
        return sorted({piece.owner.rank for piece in self.pieces(slab) if piece.owner and not piece.met})

    def takers(self, slab: Slab) -> list[Slab]:
        """The other slabs whose windows reach into a band."""
        return _takers(self)[slab]

    def window_bytes(self) -> int:
        """Bytes of the largest window, of all sources together."""
        return self.window_elements * sum(source.itemsize for source in self.sources)

    @property
    def window_elements(self) -> int:
        """Elements of the largest window."""
        return math.prod(self._largest(self.depth))

    def _largest(self, depth: Sequence[int]) -> tuple[int, ...]:
        """The longest that a window with such a halo is along each axis."""
        across = [max(b - a for a, b in pairwise(each)) for each in self.edges]
        across[self.axis] = min(self.height, across[self.axis])
        wide = [n + 2 * d for n, d in zip(across, depth, strict=True)]
        return tuple(wide if self.boundary != "none" else map(min, wide, self.shape))

    @property
    def held(self) -> int:
        """Windows that a rank has at one time: that which is computed, those that give to it, those read ahead.

        Where files are local, corners of it are in later slabs of other ranks, which then have as many.
        """
        return 1 + (self.reach if self.reuse or not self.shared else 0) + self.prefetch

    @property
    def reach(self) -> int:
        """Slabs on either side that a window reaches into."""
        return ceil_div(self.depth[self.axis], self.height)

    def read_elements(self, slab: Slab) -> int:
        """Elements that are read for a slab."""
        apart = (piece.elements for piece in self.pieces(slab) if piece.is_read)
        return self.read(slab).size + sum(math.prod(map(len, elements)) for elements in apart)

    def all_slabs(self) -> Iterator[Slab]:
        """The slabs of all ranks."""
        for rank in range(self.ranks):
            yield from self.slabs(rank)


class Stretch(NamedTuple):
    """Neighbouring places of a window along one axis, and what stands there."""

    place: slice
    """The places in the window."""
    elements: np.ndarray
    """Which elements of the axis stand there; -1 for the constant."""
    inside: bool
    """Whether they are among what is read for the window at once."""
    turn: int
    """How often they stand beyond the array's edges: 0 where they are in it."""
    region: int
    """The region that has them."""
    number: int
    """The slab of that region that has them."""


@lru_cache(64)
def _before(edges: tuple[int, ...]) -> tuple[int, ...]:
    """How many regions along an axis that are not empty lie before each, and in all.

    >>> _before((0, 2, 2, 5, 5))
    (0, 1, 1, 2, 2)
    """
    return tuple(accumulate((a < b for a, b in pairwise(edges)), initial=0))


@lru_cache(32)
def _pieces(plan: SlabGeometry, slab: Slab) -> tuple[Piece, ...]:
    """Kept for the slabs that are under way: each of their tasks asks."""
    return tuple(plan._cut_up(slab))


@lru_cache(1024)
def _givers(plan: SlabGeometry, slab: Slab) -> list[Slab]:
    owners = (piece.owner for piece in plan.pieces(slab) if piece.met)
    return list(dict.fromkeys(owner for owner in owners if owner and owner != slab))


@lru_cache(8)
def _takers(plan: SlabGeometry) -> dict[Slab, list[Slab]]:
    found: dict[Slab, list[Slab]] = {slab: [] for slab in plan.all_slabs()}
    for slab in plan.all_slabs():
        for giver in plan.givers(slab):
            found[giver].append(slab)
    return found


def example_plan(ranks: Literal[1, 2] = 1, boundary: Boundary = "none") -> SlabGeometry:
    """Nine rows in chunks of two, with one neighbour on each side: for examples."""
    rows = Stored(grid=ChunkGrid((9, 4), (2, 4)), itemsize=8, local=True)
    return SlabGeometry(
        edges=((0, 9) if ranks == 1 else (0, 6, 9), (0, 4)),
        axis=0,
        height=2,
        depth=(1, 0),
        boundary=boundary,
        sources=(rows,),
        targets=(),
        workspace=0,
        budget=2**23,
    )
