"""Kinds of slabs: slabs with the same position relative to chunks and edges are counted once.

    bands    │ a b │ c d c d c d c d c d │ e f │        near the ends of a region each for itself
                     one period counts for all           between them as the chunks repeat

A slab is a band of each axis, and its kind is the combination of theirs. Reads, writes and transfers are computed for
one slab of each kind, so that planning many slabs takes no longer than planning few.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import NamedTuple

from oocarrays.mapping.grid import ceil_div
from oocarrays.mapping.layouts.halo import of_each
from oocarrays.plan.slabs.bands import Along
from oocarrays.plan.slabs.geometry import Slab, SlabGeometry

Kind = tuple[int, ...]


class Band(NamedTuple):
    """Representative of equal bands of an axis."""

    region: int
    """Region of the band."""
    number: int
    """Number of the band in its region."""
    times: int
    """Number of equal bands."""


def alike(plan: SlabGeometry) -> list[tuple[Slab, int]]:
    """Return one slab of each kind, with the number of its equals."""
    along = [_bands(plan, axis) for axis in range(len(plan.shape))]
    return [
        (plan.slab_at([band.region for band in each], [band.number for band in each]), math.prod(b.times for b in each))
        for each in product(*along)
    ]


def read_elements(plan: SlabGeometry) -> int:
    if plan.shared and "periodic" not in of_each(plan.boundary, len(plan.shape)):  # nothing is read apart
        bands = (_bands(plan, axis) for axis in range(len(plan.shape)))
        return math.prod(sum(map(partial(_read, plan.along(axis)), each)) for axis, each in enumerate(bands))
    return sum(plan.read_elements(slab) * times for slab, times in alike(plan))


def _read(along: Along, band: Band) -> int:
    """Return the elements in the main reads of all bands of a kind."""
    lower, upper = along.read(band.region, band.number)
    return (upper - lower) * band.times


def neighbours(plan: SlabGeometry) -> int:
    """Return the number of windows that share elements with a window, including itself, if they are as high as deep."""
    shared = (axis for axis in plan.cut_axes if plan.depth[axis])
    return math.prod({"handed": 3, "kept": 2, "again": 1}[plan.ways[axis]] for axis in shared)


def _bands(plan: SlabGeometry, axis: int) -> list[Band]:
    found: dict[Kind, Band] = {}
    for region, number, times in _counted(plan, axis):
        kind = _kind(plan, axis, region, number)
        known = found.get(kind, Band(region, number, 0))
        found[kind] = known._replace(times=known.times + times)
    return list(found.values())


def _counted(plan: SlabGeometry, axis: int) -> Iterator[Band]:
    """Yield bands that represent those in the middle of each region, and all bands near its ends."""
    along, chunk = plan.along(axis), math.lcm(*_chunks(plan, axis))
    period = math.lcm(chunk, along.height) // along.height
    ends = ceil_div(_near(plan, axis), along.height) + 1
    for region in range(len(along.edges) - 1):
        count = along.bands(region)
        first, last = (ends, count - ends) if plan.shared and count > 2 * ends + period else (count, count)
        yield from (Band(region, number, 1) for number in (*range(first), *range(last, count)))
        for number in range(first, min(first + period, last)):
            yield Band(region, number, len(range(number, last, period)))


def _kind(plan: SlabGeometry, axis: int, region: int, number: int) -> Kind:
    """Return a band's kind, which determines all reads and writes along an axis: its position among chunks and
    edges."""
    if not plan.shared:
        return region, number
    along = plan.along(axis)
    (start, stop), (lower, upper) = along.core(region, number), along.edges[region : region + 2]
    near = _near(plan, axis)
    ends = (start, along.extent - stop, start - lower, upper - stop)
    turned = plan.turned(axis, region)
    return (start % math.lcm(*_chunks(plan, axis)), stop - start, *(min(each, near) for each in ends), turned)


def _near(plan: SlabGeometry, axis: int) -> int:
    """Return the number of elements from an edge within which the edge affects a band."""
    reach = plan.depth[axis] * (2 if plan.ways[axis] == "kept" else 1)
    return reach + 2 * plan.heights[axis] + max(_chunks(plan, axis))


def _chunks(plan: SlabGeometry, axis: int) -> list[int]:
    """Return the lengths of chunks, in elements of the sources; coarser targets are excluded, as bands do not cut
    them."""
    targets = () if plan.coarser else plan.targets
    return [stored.grid.chunks[axis] for stored in (*plan.sources, *targets)]
