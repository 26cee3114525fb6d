"""Bytes in the largest possible units, and runs expanded to indices.

runs      (start 0, 3 units) (start 7, 2 units)   ──► indices 0 1 2 7 8

counts   │ block 0 │ block 1 │ … │     a box of cells that follow one another
values   │ block 0 │ 1 a │ 1 b │ …     a block of them; several, where cells are larger than all others
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from oocarrays.mapping.grid import ceil_div


class ValuesCut(NamedTuple):
    """Block of values: a part of those of consecutive cells."""

    lower: int
    """First cell."""
    upper: int
    """One past the last cell."""
    start: int
    """Items of these cells before the part."""
    stop: int
    """One past the last item of the part."""


def cell_chunks(items: np.ndarray, most: int) -> tuple[tuple[int, ...], ...]:
    """Cut the first axis into blocks of about ``most`` items; the next one, too, where its mean row is larger."""
    chunks: list[tuple[int, ...]] = []
    for axis, extent in enumerate(items.shape):
        rows = items.reshape(math.prod(items.shape[:axis]), *items.shape[axis:]).sum(
            tuple(range(2, items.ndim - axis + 1))
        )
        each = rows.mean(0) if len(rows) else np.zeros(extent)
        if axis + 1 < items.ndim and extent and each.mean() > most:
            chunks.append((1,) * extent)
        else:
            lengths = tuple(run.stop - run.start for run in groups(each, most)) or (0,)
            return *chunks, lengths, *((n,) for n in items.shape[axis + 1 :])
    return tuple(chunks)


def groups(sizes: np.ndarray, most: int) -> list[slice]:
    ends, found, start = np.cumsum(sizes), [], 0
    while start < len(sizes):
        had = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, had + most, "right")), start + 1)
        found.append(slice(start, stop))
        start = stop
    return found


def value_cuts(items: np.ndarray, chunks: tuple[tuple[int, ...], ...], most: int) -> list[ValuesCut]:
    """Return the blocks of values of blocks of cells, each of at most ``most`` items."""
    ends, cuts, lower = np.concatenate(([0], np.cumsum(items.reshape(-1)))), [], 0
    for cells in map(math.prod, itertools.product(*chunks)):
        upper = lower + cells
        count = int(ends[upper] - ends[lower])
        each = ceil_div(count, max(ceil_div(count, most), 1))
        starts = range(0, count, each) if count else (0,)
        cuts += [ValuesCut(lower, upper, start, min(start + each, count)) for start in starts]
        lower = upper
    return cuts


def parts_of(counts: np.ndarray, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the cells of the items from ``start`` to ``stop``, the first item of each, and their number."""
    ends = np.cumsum(counts)
    first = int(np.searchsorted(ends, start, "right"))
    last = min(int(np.searchsorted(ends, stop, "left")) + 1, len(counts))
    ends, here = ends[first:last], counts[first:last]
    begins = ends - here
    lower = np.maximum(start - begins, 0)
    number = np.minimum(stop - begins, here) - lower
    some = np.flatnonzero(number > 0)
    return some + first, lower[some], number[some]


UNITS: dict[int, np.dtype] = {np.dtype(name).itemsize: np.dtype(name) for name in ("u1", "u2", "u4", "u8", "c16")}
"""Types that numpy copies unchanged, by their bytes."""


def unit_of(*sizes: int) -> int:
    """Return the bytes of the largest unit that divides all sizes."""
    common = math.gcd(*sizes)
    return min(common & -common, 16) if common else 16


def in_units(data: np.ndarray, unit: int) -> np.ndarray:
    """Return a view of contiguous bytes as units, in one axis."""
    return data.reshape(-1).view(np.uint8).view(UNITS[unit])


def spreads(counts: np.ndarray, *starts: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the indices of runs of the same lengths for each array of starts."""
    had = before(counts)
    numbers = np.arange(int(had[-1] + counts[-1]) if len(counts) else 0)
    for each in starts:
        indices = np.repeat(each - had, counts)
        indices += numbers
        yield indices


def before(counts: np.ndarray) -> np.ndarray:
    return np.cumsum(counts) - counts


def cut(starts: np.ndarray, counts: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut runs at multiples of ``size``: return the run, start and length of each piece; no run is empty."""
    ends = starts + counts
    pieces = (ends - 1) // size - starts // size + 1
    of = np.repeat(np.arange(len(counts)), pieces)
    bounds = next(spreads(pieces, starts // size)) * size
    lower, upper = np.maximum(bounds, starts[of]), np.minimum(bounds + size, ends[of])
    return of, lower, upper - lower


def side_by_side(items: np.ndarray, calls: int, width: int) -> np.ndarray:
    """Return the bytes of each cell from several calls, joined side by side."""
    unit = unit_of(width)
    rows = in_units(items, unit).reshape(calls, -1, width // unit)
    together = rows[:, :, 0].T if unit == width else rows.transpose(1, 0, 2)
    return np.ascontiguousarray(together).reshape(-1).view(np.uint8)


def copy_runs(out: np.ndarray, into: np.ndarray, data: np.ndarray, of: np.ndarray, counts: np.ndarray) -> None:
    """Copy runs of bytes: ``out[into[k] : into[k] + counts[k]] = data[of[k] : of[k] + counts[k]]`` for each k.

    Up to 64 runs, or runs of at least 512 bytes, are copied one by one; those of up to 16 lengths as rows.
    """
    if not counts.any():
        return
    if len(counts) <= 64 or int(counts.min()) >= 512:
        for to, start, count in zip(into.tolist(), of.tolist(), counts.tolist(), strict=True):
            out[to : to + count] = data[start : start + count]
        return
    bits = int(np.bitwise_or.reduce(into) | np.bitwise_or.reduce(of) | np.bitwise_or.reduce(counts))
    unit = unit_of(bits, len(out), len(data))
    target, source = in_units(out, unit), in_units(data, unit)
    units = counts // unit
    in_order = np.sort(units)
    widths = in_order[np.flatnonzero(np.diff(in_order, prepend=0))]
    if len(widths) <= 16 and int(widths[-1]) > 1:
        for width in widths.tolist():
            same = slice(None) if len(widths) == 1 and in_order[0] else np.flatnonzero(units == width)
            rows = sliding_window_view(source, width)[of[same] // unit]
            sliding_window_view(target, width, writeable=True)[into[same] // unit] = rows
        return
    there, here = spreads(units, into // unit, of // unit)
    target[there] = source.take(here)


def copy_columns(out: np.ndarray, into: slice, data: np.ndarray, where: slice) -> None:
    """Copy bytes of columns of one table to those of another one, in the largest possible units."""
    unit = unit_of(out.shape[1], data.shape[1], into.start, where.start, into.stop - into.start)
    here, there = (slice(each.start // unit, each.stop // unit) for each in (into, where))
    out.view(UNITS[unit])[:, here] = data.view(UNITS[unit])[:, there]
