"""Slices of layouts: each rank keeps its own elements of a slice, so that no data moves.

    block(4) on 3, x[1::3]      0 1 2 3 │ 4 5 6 7 │ 8 9          rank 0 keeps 1, rank 1 keeps 4 and 7
                                  ▔        ▔     ▔               gen_block(1,2,0)

Axes with more than one block per rank must be redistributed in blocks first; uncut ones stay unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oocarrays.errors import LayoutError
from oocarrays.mapping.grid import ceil_div
from oocarrays.mapping.layouts.distribution import Block, Collapsed, Distribution, GenBlock, is_block
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.selection import one_an_axis

Slices = tuple[range, ...]
"""Selected elements along each axis."""


def slices_of(key: Any, layout: Layout) -> Slices:
    """Return the elements that a key of slices selects along each axis."""
    taken = []
    for number, (entry, axis) in enumerate(zip(one_an_axis(key, len(layout.shape)), layout.axes, strict=False)):
        if not isinstance(entry, slice):
            raise LayoutError(f"{entry!r} is not a slice: x[5:6] keeps the axis, x.to_dask()[5] drops it")
        try:
            along = range(*entry.indices(axis.extent))
        except (TypeError, ValueError) as error:
            raise LayoutError(f"{entry} is not a slice of whole numbers: {error}") from None
        if along.step < 0 and axis.ranks > 1:
            raise LayoutError(
                f"{entry} has a negative step along axis {number}, where ranks are in order; x.to_dask() accepts it"
            )
        taken.append(along)
    return tuple(taken)


def in_blocks(layout: Layout, taken: Slices | None = None) -> Layout:
    """Return the layout over the same grid with one block per rank along all axes, or those that a slice cuts."""
    ready = [
        d if is_block(axis) or (taken is not None and not _is_cut(layout, number, taken[number])) else Block()
        for number, (d, axis) in enumerate(zip(layout.distributions, layout.axes, strict=True))
    ]
    return layout if ready == [*layout.distributions] else Layout.of(layout.shape, ready, grid=layout.grid)


def sliced_layout(layout: Layout, taken: Slices) -> Layout:
    """Return the layout of a slice in which each rank keeps its own elements."""
    distributions = [_distribution(layout, axis, along) for axis, along in enumerate(taken)]
    return Layout.of(tuple(map(len, taken)), distributions, grid=layout.grid)


def _distribution(layout: Layout, axis: int, along: range) -> Distribution:
    if layout.grid[axis] == 1:
        return Collapsed()
    if not _is_cut(layout, axis, along):
        return layout.distributions[axis]
    ranks = range(layout.grid[axis])
    return GenBlock(tuple(len(range(*_held(layout, axis, along, rank).indices(2**62))) for rank in ranks))


def local_slices(layout: Layout, taken: Slices, rank: int) -> tuple[slice, ...]:
    places: Sequence[tuple[int, range]] = list(zip(layout.coordinates(rank), taken, strict=True))
    return tuple(_held(layout, axis, along, place) for axis, (place, along) in enumerate(places))


def _is_cut(layout: Layout, axis: int, along: range) -> bool:
    """Return whether a distributed axis is selected only partly."""
    return layout.grid[axis] > 1 and along != range(layout.shape[axis])


def _held(layout: Layout, axis: int, along: range, place: int) -> slice:
    """Return the indices of a slice along an axis within a rank's local part."""
    if layout.grid[axis] == 1:
        return slice(along.start, along.stop if along.stop >= 0 else None, along.step)
    if not _is_cut(layout, axis, along):
        return slice(None)
    held = next(iter(layout.axes[axis].sections(place)), range(0))
    ends = held.start, held.start + len(held)
    first, last = (min(max(ceil_div(end - along.start, along.step), 0), len(along)) for end in ends)
    if first >= last:
        return slice(0, 0, 1)
    start = along.start - held.start
    return slice(start + first * along.step, start + (last - 1) * along.step + 1, along.step)
