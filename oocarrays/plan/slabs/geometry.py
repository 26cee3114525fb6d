"""Slabs: arrays pass through a window, band after band, each band read once.

    rows        0      h      2h     3h   n
    bands       [──0──)[──1──)[──2──)[─3──)        read once each, into the middle of a window
    window 1         ░░[──1──)░░                   its halos: the last rows of band 0, the first of band 2
    in memory   compute 1 while 2 is in memory, 3 is read, and the result of 0 is written

Elements shared by two windows are passed on in memory instead of being read again (*data reuse*); bands are read ahead
of the computed one (*prefetch*). Each rank has a region, cut in bands of its own. Ranks of every second row of regions
walk backwards, so that neighbours reach their common border at the same time and exchange their halos (*shift*):
nothing is read for it.

    rank 0  0 ─► 1 ─► 2 │ 2 ◄─ 1 ◄─ 0  rank 1 │ 0 ─► 1 ─► 2  rank 2

A region may be cut along several axes: its slabs are blocks, in row-major order, and each axis has bands. A row reads
the elements again that it shares with the one before (`oocarrays.plan.slabs.bands`).

    0 ─► 1 ─► 2
    3 ─► 4 ─► 5          4 reads the upper edge of its window, and has the sides of 3 and 5

Of targets of unlike shapes, some are written slab by slab, others are gathered and written at the end:

    slabs      │       │       │       │       │
    level 1    │ ┌─┬─┐ │ ┌─┬─┐ │ ┌─┬─┐ │ ┌─┬─┐ │      whole chunks of each slab: written with it
    level 4    │   ┌───────────┐   ┌───────────┐      a chunk of many slabs: its parts stay in memory

So each chunk of each target is written once, by one task, and no written data is read again. Gathered data is small:
if a slab has 8 chunks along each of two axes, all levels with larger chunks come to a 190th of the source.

Slabs at the same position relative to chunks and edges are counted once. A slab is a band of each axis, and its kind
the combination of theirs, so that planning many slabs takes no longer than planning few:

    bands    │ a b │ c d c d c d c d c d │ e f │        near the ends of a region each for itself
                     one period counts for all           between them as the chunks repeat

Thakur 1995, sections 5.4, 5.5.2 and 5.5.3; a slab is his in-core local array (ICLA).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise, product
from typing import Any, NamedTuple

from oocarrays.mapping.coarsening import Coarsening
from oocarrays.mapping.grid import Stored, ceil_div, ravel, unravel
from oocarrays.mapping.layouts.halo import of_axis, of_each
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes
from oocarrays.plan.slabs.bands import SlabAxis, Way, longest, regions_before
from oocarrays.plan.slabs.options import Edges, SlabTerms


class Slab(NamedTuple):
    """Slab, identified by its number in the walk of its rank's region, and its rank."""

    number: int
    rank: int


class Piece(NamedTuple):
    """Part of a window's halo, with its source."""

    place: tuple[slice, ...]
    owner: Slab | None
    """Slab that has read it; None if it is read for this window, or constant."""
    elements: Axes
    """Elements of the array along each axis; -1 for the constant."""
    met: bool = True
    """Whether its owner reads it at about the same time; otherwise its rank reads it again for this window alone."""

    @property
    def is_read(self) -> bool:
        """Whether it is read for this window alone, by its owner's rank or by the window's."""
        return (self.owner is None or not self.met) and all(each[0] >= 0 for each in self.elements)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabGeometry(SlabTerms):
    """Cut of arrays of one shape into slabs, with windows and halos."""

    edges: Edges
    """Start of each rank's region along each axis, and the extent; their product is the grid of ranks."""
    axis: int
    """Axis along which slabs follow one another; if regions are cut along several, the fastest one."""
    heights: tuple[int, ...]
    """Elements of a slab along each axis, except the last ones of a region; the whole axis if it is not cut."""
    depth: tuple[int, ...]
    """Number of neighbours that the kernel sees on each side, in each axis."""
    sources: tuple[Stored, ...]
    targets: tuple[Stored, ...]
    workspace: int
    """Bytes of the kernel in addition to its blocks and results, in each rank."""
    estimated: bool = False
    """Whether the workspace is an estimate: the first kernel run then shows whether it fits."""
    past_cache: bool = False
    """Whether plain local files bypass the system's cache, because they would not stay in it."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(each[-1] for each in self.edges)

    @property
    def height(self) -> int:
        return self.heights[self.axis]

    @property
    def cut_axes(self) -> tuple[int, ...]:
        """Axes along which regions are cut, in the order of the walk: the last one is the fastest."""
        return _cut_axes(self.edges, self.heights, self.order)

    @property
    def order(self) -> tuple[int, ...]:
        return (*(axis for axis in range(len(self.edges)) if axis != self.axis), self.axis)

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(len(each) - 1 for each in self.edges)

    @property
    def ranks(self) -> int:
        return math.prod(self.grid)

    def along(self, axis: int) -> SlabAxis:
        return SlabAxis(
            self.edges[axis], self.heights[axis], self.depth[axis], of_axis(self.boundary, axis), self.shared,
            self.way(axis), axis == self.axis,
        )  # fmt: skip

    def way(self, axis: int) -> Way:
        """Return the way of obtaining elements shared with neighbouring windows along an axis."""
        is_outer = axis != self.axis and self.heights[axis] < longest(self.edges[axis])
        return "exchange" if self.reuse and not is_outer else "reread"

    def region(self, rank: int) -> Section:
        return _box(each[i : i + 2] for each, i in zip(self.edges, unravel(rank, self.grid), strict=True))

    def slabs(self, rank: int) -> list[Slab]:
        numbers, row = self.numbers(rank), max(self.bands(rank)[self.axis], 1)
        if not self.backwards(rank):
            return [Slab(number, rank) for number in numbers]
        rows = (range(start, start + row) for start in numbers[::row])
        return [Slab(number, rank) for each in rows for number in reversed(each)]

    def numbers(self, rank: int) -> range:
        return range(math.prod(self.bands(rank)))

    def bands(self, rank: int) -> tuple[int, ...]:
        """Return the number of bands of a rank's region along each axis; a slab is one of each."""
        place = unravel(rank, self.grid)
        return tuple(self.along(axis).bands(region) for axis, region in enumerate(place))

    def backwards(self, rank: int) -> bool:
        """Return whether a rank begins with its last slab: every second non-empty region along the axis does."""
        return self.turned(self.axis, unravel(rank, self.grid)[self.axis])

    def turned(self, axis: int, region: int) -> bool:
        """Return whether the bands of a region are walked from the last one to the first."""
        return axis == self.axis and regions_before(self.edges[axis])[region] % 2 == 1

    @property
    def count(self) -> int:
        return math.prod(
            sum(ceil_div(b - a, height) for a, b in pairwise(each))
            for each, height in zip(self.edges, self.heights, strict=True)
        )

    def at(self, slab: Slab) -> list[tuple[SlabAxis, int, int]]:
        """Return the axis, region and band along each axis, the factors of a slab."""
        regions, counts, order = unravel(slab.rank, self.grid), self.bands(slab.rank), self.order
        bands = dict(zip(order, unravel(slab.number, tuple(counts[axis] for axis in order)), strict=True))
        return [(self.along(axis), region, bands[axis]) for axis, region in enumerate(regions)]

    def slab_at(self, regions: Sequence[int], numbers: Sequence[int]) -> Slab:
        rank = ravel(regions, self.grid)
        counts = self.bands(rank)
        return Slab(ravel([numbers[a] for a in self.order], [counts[a] for a in self.order]), rank)

    def core(self, slab: Slab) -> Section:
        return _box(along.core(region, number) for along, region, number in self.at(slab))

    def made(self, slab: Slab, target: int) -> Section:
        return self.standing(self.core(slab), target)

    def standing(self, section: Section, target: int) -> Section:
        """Return the elements of a target that correspond to a section of the sources, halo or not."""
        return self.coarser[target].section(section) if self.coarser else section

    def window(self, slab: Slab) -> Section:
        """Return the slab and its halo, including the part beyond the array's edges if the boundary fills it."""
        return _box(along.window(region, number) for along, region, number in self.at(slab))

    def seen(self, slab: Slab) -> Section:
        """Return the part of a window that its kernel sees: all of it, except a margin."""
        if not self.margin:
            return self.window(slab)
        core, window = self.core(slab), self.window(slab)
        depth = [d - m for d, m in zip(self.depth, self.margin, strict=True)]
        lower = (max(a - d, least) for a, d, least in zip(core.lower, depth, window.lower, strict=True))
        upper = (min(b + d, most) for b, d, most in zip(core.upper, depth, window.upper, strict=True))
        return Section(tuple(lower), tuple(upper))

    def read(self, slab: Slab) -> Section:
        """Return the main read of a window: the part that no other has read; without reuse, all of it."""
        return _box(along.read(region, number) for along, region, number in self.at(slab))

    @lru_cache(32)  # noqa: B019  # each task of a slab asks for them
    def pieces(self, slab: Slab) -> tuple[Piece, ...]:
        """Return the parts of a window's halo outside the main read, with their sources."""
        return tuple(self._pieces(slab))

    def _pieces(self, slab: Slab) -> Iterator[Piece]:
        along = [list(each.segments(region, number)) for each, region, number in self.at(slab)]
        for each in product(*along):
            if all(segment.main for segment in each):
                continue
            place, elements = tuple(segment.place for segment in each), tuple(segment.elements for segment in each)
            met = all(segment.met for segment in each)
            own = any(segment.elements[0] < 0 for segment in each) or (self.shared and not met)
            owner = None if own else self.slab_at([s.region for s in each], [s.number for s in each])
            yield Piece(place, owner, elements, met)

    @lru_cache(1024)  # noqa: B019
    def givers(self, slab: Slab) -> list[Slab]:
        """Return the other slabs that provide parts of a window, in order; a wide halo reaches behind neighbours."""
        owners = (piece.owner for piece in self.pieces(slab) if piece.met)
        return list(dict.fromkeys(owner for owner in owners if owner and owner != slab))

    def fetchers(self, slab: Slab) -> list[int]:
        """Return the ranks that read elements again for a window: with local files, across a periodic boundary."""
        return sorted({piece.owner.rank for piece in self.pieces(slab) if piece.owner and not piece.met})

    def takers(self, slab: Slab) -> list[Slab]:
        """Return the other slabs with windows that reach into this slab."""
        return _takers(self)[slab]

    def window_bytes(self) -> int:
        return self.window_elements * sum(source.itemsize for source in self.sources)

    @property
    def window_elements(self) -> int:
        return math.prod(self.largest(self.depth))

    def largest(self, depth: Sequence[int]) -> tuple[int, ...]:
        """Return the maximum length of a window with this halo along each axis."""
        beyond = tuple(each != "none" for each in of_each(self.boundary, len(self.edges)))
        return _largest(self.edges, self.heights, tuple(depth), beyond)

    @property
    def held(self) -> int:
        """Windows of a rank at one time; with local files, other ranks hold as many: corners are in later slabs."""
        reach = ceil_div(self.depth[self.axis], self.height)  # slabs on either side that a window reaches into
        return 1 + (reach if self.reuse or not self.shared else 0) + self.prefetch

    def read_elements(self, slab: Slab) -> int:
        apart = (piece.elements for piece in self.pieces(slab) if piece.is_read)
        return self.read(slab).size + sum(math.prod(map(len, elements)) for elements in apart)

    def all_slabs(self) -> Iterator[Slab]:
        for rank in range(self.ranks):
            yield from self.slabs(rank)


def _box(ends: Iterable[Sequence[int]]) -> Section:
    lower, upper = zip(*ends, strict=True)
    return Section(lower, upper)


@lru_cache(256)
def _largest(
    edges: Edges, heights: tuple[int, ...], depth: tuple[int, ...], beyond: tuple[bool, ...]
) -> tuple[int, ...]:
    across = (min(height, longest(each)) for height, each in zip(heights, edges, strict=True))
    wide = [n + 2 * d for n, d in zip(across, depth, strict=True)]
    return tuple(n if out else min(n, each[-1]) for n, each, out in zip(wide, edges, beyond, strict=True))


@lru_cache(256)
def _cut_axes(edges: Edges, heights: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis in order if heights[axis] < longest(edges[axis]))


@lru_cache(8)
def _takers(plan: SlabGeometry) -> dict[Slab, list[Slab]]:
    found: dict[Slab, list[Slab]] = {slab: [] for slab in plan.all_slabs()}
    for slab in plan.all_slabs():
        for giver in plan.givers(slab):
            found[giver].append(slab)
    return found


@lru_cache(512)
def gathered(plan: SlabGeometry) -> tuple[int, ...]:
    """Return the targets without whole chunks in each slab."""

    def cuts(target: Stored, coarse: Coarsening) -> bool:
        each = (
            (coarse.chunk(axis, target.grid.chunks), plan.heights[axis])
            for axis, n in enumerate(plan.shape)
            if plan.heights[axis] < n
        )
        return any(chunk is None or height % chunk for chunk, height in each)

    return tuple(number for number, each in enumerate(zip(plan.targets, plan.coarser, strict=False)) if cuts(*each))


def written(plan: SlabGeometry) -> tuple[int, ...]:
    """Return the targets that each slab writes: all, if they have the sources' shape."""
    return tuple(number for number in range(len(plan.targets)) if number not in gathered(plan))


def gathered_bytes(plan: SlabGeometry) -> list[int]:
    return [plan.targets[number].nbytes for number in gathered(plan)]


def all_of(stored: Stored) -> Section:
    return Section((0,) * len(stored.grid.shape), stored.grid.shape)


class Band(NamedTuple):
    """Representative of equal bands of an axis: its region, its number in the region, and the number of its equals."""

    region: int
    number: int
    times: int


def alike(plan: SlabGeometry) -> list[tuple[Slab, int]]:
    """Return one slab of each kind, with the number of its equals."""
    along = [_bands(plan, axis) for axis in range(len(plan.shape))]
    return [
        (plan.slab_at([band.region for band in each], [band.number for band in each]), math.prod(b.times for b in each))
        for each in product(*along)
    ]


def read_elements(plan: SlabGeometry) -> int:
    if not plan.shared or "periodic" in of_each(plan.boundary, len(plan.shape)):  # some are read apart
        return sum(plan.read_elements(slab) * times for slab, times in alike(plan))
    total = 1
    for axis in range(len(plan.shape)):
        along = plan.along(axis)
        ends = ((along.read(band.region, band.number), band.times) for band in _bands(plan, axis))
        total *= sum((upper - lower) * times for (lower, upper), times in ends)
    return total


def neighbours(plan: SlabGeometry) -> int:
    """Return the number of windows that share elements with a window, including itself, if they are as high as deep."""
    shared = (axis for axis in plan.cut_axes if plan.depth[axis])
    return math.prod(3 if plan.way(axis) == "exchange" else 1 for axis in shared)


def _bands(plan: SlabGeometry, axis: int) -> list[Band]:
    """Return one band of each kind, which determines all accesses along an axis; none cuts a coarser target's chunk."""
    along, arrays = plan.along(axis), (*plan.sources, *(() if plan.coarser else plan.targets))
    chunks = [stored.grid.chunks[axis] for stored in arrays]
    chunk, period = math.lcm(*chunks), math.lcm(*chunks, along.height) // along.height
    near = along.depth + 2 * along.height + max(chunks)  # an edge affects a band
    ends = ceil_div(near, along.height) + 1
    found: dict[Any, Band] = {}
    for region, (lower, upper) in enumerate(pairwise(along.edges)):
        count, turned = along.bands(region), plan.turned(axis, region)
        first, last = (ends, count - ends) if plan.shared and count > 2 * ends + period else (count, count)
        single = ((number, 1) for number in (*range(first), *range(last, count)))
        inside = ((number, len(range(number, last, period))) for number in range(first, min(first + period, last)))
        for number, times in chain(single, inside):
            start, stop = along.core(region, number)
            far = (min(each, near) for each in (start, along.extent - stop, start - lower, upper - stop))
            kind = (start % chunk, stop - start, *far, turned) if plan.shared else (region, number)
            known = found.get(kind, Band(region, number, 0))
            found[kind] = known._replace(times=known.times + times)
    return list(found.values())
