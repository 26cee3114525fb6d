"""Slabs that are alike: cut alike where they lie alike to chunks and edges.

    slabs    │ a b │ c d c d c d c d c d │ e f │        near the ends of a region each for itself
                     one period counts for all           between them as the chunks repeat

What is read, written and handed on for a slab is asked of one of each kind, so that a plan of many slabs is as soon
made as one of few.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from oocarrays.mapping.grid import ceil_div
from oocarrays.plan.slabs.geometry import Slab, SlabGeometry

Kind = tuple[int, ...]


def alike(plan: SlabGeometry) -> list[tuple[Slab, int]]:
    """One slab of each kind, and how many are of it.

    >>> from oocarrays.plan.slabs.geometry import example_plan
    >>> [(slab.number, times) for slab, times in alike(example_plan())]
    [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]
    """
    many: Counter[Kind] = Counter()
    example: dict[Kind, Slab] = {}
    for slab, times in _counted(plan):
        kind = _kind(plan, slab)
        many[kind] += times
        example.setdefault(kind, slab)
    return [(slab, many[kind]) for kind, slab in example.items()]


def _counted(plan: SlabGeometry) -> Iterator[tuple[Slab, int]]:
    """Slabs of which each stands for some in the middle of its region, and all of those near its ends."""
    chunk = math.lcm(*_chunks(plan))
    period = math.lcm(chunk, plan.height) // plan.height
    ends = ceil_div(_near(plan), plan.height) + 1
    for rank in range(plan.ranks):
        count = len(plan.numbers(rank))
        first, last = (ends, count - ends) if plan.shared and count > 2 * ends + period else (count, count)
        yield from ((Slab(number, rank), 1) for number in (*range(first), *range(last, count)))
        for number in range(first, min(first + period, last)):
            yield Slab(number, rank), len(range(number, last, period))


def _kind(plan: SlabGeometry, slab: Slab) -> Kind:
    """What all that is read and written for a slab depends on: where it lies to chunks, and to edges nearby."""
    if not plan.shared:
        return tuple(slab)
    axis, core, region = plan.axis, plan.core(slab), plan.region(slab.rank)
    start, stop = core.lower[axis], core.upper[axis]
    near = _near(plan)
    ends = (start, plan.shape[axis] - stop, start - region.lower[axis], region.upper[axis] - stop)
    across = (*region.lower[:axis], *region.lower[axis + 1 :])
    turned = plan.backwards(slab.rank)
    return (start % math.lcm(*_chunks(plan)), stop - start, *(min(each, near) for each in ends), turned, *across)


def _near(plan: SlabGeometry) -> int:
    """Elements from an edge within which it matters."""
    return plan.depth[plan.axis] + 2 * plan.height + max(_chunks(plan))


def _chunks(plan: SlabGeometry) -> list[int]:
    return [stored.grid.chunks[plan.axis] for stored in (*plan.sources, *plan.targets)]
