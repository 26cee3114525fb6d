"""Kinds of slabs: slabs with the same position relative to chunks and edges are counted once.

    bands    │ a b │ c d c d c d c d c d │ e f │        near the ends of a region each for itself
                     one period counts for all           between them as the chunks repeat

A slab is a band of each axis, and its kind is the combination of theirs. Reads, writes and transfers are computed for
one slab of each kind, so that planning many slabs takes no longer than planning few.
"""

from __future__ import annotations

import math
from itertools import chain, pairwise, product
from typing import Any, NamedTuple

from oocarrays.mapping.grid import ceil_div
from oocarrays.mapping.layouts.halo import of_each
from oocarrays.plan.slabs.geometry import Slab, SlabGeometry


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
