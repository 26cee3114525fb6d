"""Cells in blocks whose streams fit in so many bytes, as Dask cuts arrays; and the blocks of their values.

counts   │ block 0 │ block 1 │ … │     a box of cells that follow one another
values   │ block 0 │ 1 a │ 1 b │ …     a block of them; several, where cells are larger than all others
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from oocarrays.mapping.grid import ceil_div


class ValuesCut(NamedTuple):
    """A block of values: a part of those of cells that follow one another."""

    lower: int
    """The first cell."""
    upper: int
    """The last one, and one more."""
    start: int
    """Items of these cells before the part."""
    stop: int
    """The last item of the part, and one more."""


def cell_chunks(items: np.ndarray, most: int) -> tuple[tuple[int, ...], ...]:
    """Cut the axes of cells, so that a block has about ``most`` items, and its cells follow one another.

    The first axis is cut; an axis whose rows are larger than that on the average is cut at every row, and the next one
    with it.

    Examples
    --------
    >>> cell_chunks(np.array([3, 1, 0, 9, 1]), 4)
    ((3, 1, 1),)
    >>> cell_chunks(np.full((2, 4), 3), 6)
    ((1, 1), (2, 2))
    """
    chunks: list[tuple[int, ...]] = []
    for axis, extent in enumerate(items.shape):
        rows = items.reshape(math.prod(items.shape[:axis]), *items.shape[axis:]).sum(
            tuple(range(2, items.ndim - axis + 1))
        )
        each = rows.mean(0) if len(rows) else np.zeros(extent)
        if axis + 1 < items.ndim and extent and each.mean() > most:
            chunks.append((1,) * extent)
        else:
            return *chunks, _filled(each, most), *((n,) for n in items.shape[axis + 1 :])
    return tuple(chunks)


def _filled(sizes: np.ndarray, most: int) -> tuple[int, ...]:
    """Rows that follow one another, as many as have so many items; at least one."""
    ends, lengths, start = np.cumsum(sizes), [], 0
    while start < len(sizes):
        had = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, had + most, "right")), start + 1)
        lengths.append(stop - start)
        start = stop
    return tuple(lengths) or (0,)


def value_cuts(items: np.ndarray, chunks: tuple[tuple[int, ...], ...], most: int) -> list[ValuesCut]:
    """Return the blocks of values of blocks of cells, each of at most so many items.

    >>> value_cuts(np.array([3, 1, 0, 9, 1]), ((3, 1, 1),), 5)[1:3]
    [ValuesCut(lower=3, upper=4, start=0, stop=5), ValuesCut(lower=3, upper=4, start=5, stop=9)]
    """
    ends, cuts, lower = np.concatenate(([0], np.cumsum(items.reshape(-1)))), [], 0
    for cells in _sizes(chunks):
        upper = lower + cells
        count = int(ends[upper] - ends[lower])
        each = ceil_div(count, max(ceil_div(count, most), 1))
        starts = range(0, count, each) if count else (0,)
        cuts += [ValuesCut(lower, upper, start, min(start + each, count)) for start in starts]
        lower = upper
    return cuts


def _sizes(chunks: tuple[tuple[int, ...], ...]) -> list[int]:
    """Cells of each block, in the order of an array."""
    sizes = np.ones(1, np.int64)
    for lengths in chunks:
        sizes = (sizes[:, None] * np.array(lengths, np.int64)).reshape(-1)
    return [int(size) for size in sizes]


def parts_of(counts: np.ndarray, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return whose items those from ``start`` to ``stop`` are: cells, the first item of each, and how many.

    >>> [each.tolist() for each in parts_of(np.array([3, 1, 0, 9]), 2, 6)]
    [[0, 1, 3], [2, 0, 0], [1, 1, 2]]
    """
    ends = np.cumsum(counts)
    first = int(np.searchsorted(ends, start, "right"))
    last = min(int(np.searchsorted(ends, stop, "left")) + 1, len(counts))
    ends, here = ends[first:last], counts[first:last]
    begins = ends - here
    lower = np.maximum(start - begins, 0)
    number = np.minimum(stop - begins, here) - lower
    some = np.flatnonzero(number > 0)
    return some + first, lower[some], number[some]
