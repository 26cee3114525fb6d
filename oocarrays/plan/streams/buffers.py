"""Buffers of cells: each collects bytes of its own stream, and releases whole blocks when it is full.

    cell 3   ▓▓▓▓▓▓··   + 5 bytes   ──►  a whole block ▓▓▓▓▓▓▓▓ is released, and ▓▓▓····· remains

The bytes of IB go through one such set of buffers, and the pointers of its directory through another (sections 5.2.2
and Figures 6 and 7). All cells of a call are moved together, in the largest possible units.

    cell 5, bytes 60 … 70 of NB, b = 8   ──►  row 7 from byte 4, 4 bytes;  row 8 from byte 0, 6 bytes

A row is one block of every cell. Chunks contain some rows of some cells, so that every piece is a run of bytes of a
chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from oocarrays.plan.streams.units import UNITS, before, cut, in_units, spreads, unit_of


class Pieces(NamedTuple):
    """Runs of bytes in chunks, with their positions in a result."""

    chunk: np.ndarray
    """Number of the chunk."""
    place: np.ndarray
    """Byte offset in the chunk."""
    into: np.ndarray
    """Byte offset in the result."""
    count: np.ndarray  # type: ignore[assignment]
    """Number of bytes."""

    def by_chunk(self) -> list[tuple[int, Pieces]]:
        if len(self.chunk) == 1:
            return [(int(self.chunk[0]), self)]
        order = np.argsort(self.chunk, kind="stable")
        ordered = Pieces(*(each[order] for each in self))
        ends = np.flatnonzero(np.diff(ordered.chunk, append=-1)) + 1 if len(order) else np.empty(0, np.int64)
        starts = [0, *ends[:-1].tolist()]
        cuts = [slice(a, b) for a, b in zip(starts, ends.tolist(), strict=False)]
        return [(int(ordered.chunk[c.start]), Pieces(*(each[c] for each in ordered))) for c in cuts]


class Chunking(NamedTuple):
    """Cells and rows of one chunk of a segment of NB or CB."""

    block: int
    """Bytes of a block."""
    rows: int
    """Rows of a chunk."""
    width: int
    """Cells of a chunk."""
    columns: int
    """Chunks side by side, for all cells."""

    def pieces(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray, into: np.ndarray) -> Pieces:
        some = np.flatnonzero(counts)
        cells, offsets, counts, into = cells[some], offsets[some], counts[some], into[some]
        of, lower, count = cut(offsets, counts, self.block)
        row, inside = np.divmod(lower, self.block)
        chunk = row // self.rows * self.columns + cells[of] // self.width
        place = ((row % self.rows) * self.width + cells[of] % self.width) * self.block + inside
        return Pieces(chunk, place, into[of] + lower - offsets[of], count)


Part = tuple[np.ndarray, np.ndarray, np.ndarray]
"""First byte of each cell in a segment, number of bytes, and their place in a result."""


def segments(offsets: np.ndarray, counts: np.ndarray, nb_end: int, cb_end: int, ends: np.ndarray) -> list[Part]:
    """Divide bytes of some cells over NB, CB and IB, and those beyond the end of a stream, counted from there."""
    into, upper = before(counts), offsets + counts
    bounds = (np.zeros_like(ends), np.full_like(ends, nb_end), np.full_like(ends, cb_end), ends)
    parts = []
    for lower, limit in zip(bounds, (*bounds[1:], upper), strict=True):
        first = np.maximum(offsets, lower)
        count = np.maximum(np.minimum(upper, limit) - first, 0)
        parts.append((np.where(count > 0, first - lower, 0), count, into + np.where(count > 0, first - offsets, 0)))
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class CellBytes:
    """Bytes for some cells, one cell after the other."""

    cells: np.ndarray
    """Cells, ascending, by their numbers in the file."""
    counts: np.ndarray
    """Bytes of each cell; in whole blocks, as buffers release them, the rest of a cell's last block is padding."""
    data: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def as_runs(self, lower: int) -> CellBytes:
        return self


class Buffers:
    """Buffers of ``cells`` cells, each of ``block`` bytes."""

    def __init__(self, cells: int, block: int, padding: int = 0) -> None:
        self.cells = cells
        self.block = block
        self.padding = padding
        self.data = np.empty(cells * block, np.uint8)
        self.fill = np.zeros(cells, np.int32)
        self._unit = unit_of(block)

    def push(self, cells: np.ndarray, counts: np.ndarray, values: np.ndarray) -> CellBytes:
        is_level = len(cells) == self.cells and len(cells) and bool((counts == counts[0]).all())
        if is_level and bool((self.fill == self.fill[0]).all()):
            return self.push_level(int(counts[0]), values.reshape(-1).view(np.uint8))
        common = int(np.bitwise_or.reduce(counts)) if len(counts) else 0
        self._unit = unit_of(self._unit, common)  # a divisor of all pushed byte counts
        return self._push_each(cells, counts // self._unit, in_units(values, self._unit))

    def push_level(self, count: int, values: np.ndarray) -> CellBytes:
        """Add ``count`` bytes to every buffer; all are equally full."""
        self._unit = unit_of(self._unit, count)
        had, total = int(self.fill[0]), int(self.fill[0]) + count
        going, staying = total - total % self.block, total % self.block
        unit = unit_of(self.block, count, had)
        rows, new = (in_units(each, unit).reshape(self.cells, -1) for each in (self.data, values))
        had, count, going, staying = had // unit, count // unit, going // unit, staying // unit
        out = new[:, : max(going - had, 0)]
        out = np.concatenate((rows[:, :had], out), axis=1) if had and going else out
        kept = staying if going else count
        rows[:, staying - kept : staying] = new[:, count - kept :]
        self.fill[:] = staying * unit
        if not going:
            return NOTHING
        data = np.ascontiguousarray(out).reshape(-1).view(np.uint8)
        return CellBytes(cells=np.arange(self.cells), counts=np.full(self.cells, going * unit), data=data)

    def _push_each(self, cells: np.ndarray, counts: np.ndarray, values: np.ndarray) -> CellBytes:
        """Push in units: ``counts`` and ``values`` are in units."""
        width = self.block // self._unit
        had = (self.fill[cells] // self._unit).astype(np.int64)
        total = had + counts
        whole = total // width
        starts, flat = before(counts), in_units(self.data, self._unit)
        full = np.flatnonzero(whole)
        going = np.where(whole > 0, whole * width - had, 0)
        out = np.empty(int(whole.sum()) * width, values.dtype)  # of full buffers: the old bytes, then the new ones
        first = before(whole[full])
        out.reshape(-1, width)[first] = flat.reshape(self.cells, width).take(cells[full], 0)
        _move(out, first * width + had[full], values, starts[full], going[full])
        staying = counts - going
        _move(flat, cells * width + np.where(whole > 0, 0, had), values, starts + going, staying)
        self.fill[cells] = (total - whole * width) * self._unit
        if not len(full):
            return NOTHING
        return CellBytes(cells=cells[full], counts=whole[full] * self.block, data=out.view(np.uint8))

    def flush(self) -> CellBytes:
        """Return the contents of the buffers, each padded to a block."""
        cells = np.flatnonzero(self.fill)
        counts = self.fill[cells].astype(np.int64)
        rows = self.data.reshape(self.cells, self.block).take(cells, 0)
        if len(cells) and bool((counts == counts[0]).all()):
            rows[:, int(counts[0]) :] = self.padding
        else:
            unit = self._unit  # divides all pushed byte counts
            padding = np.full(unit, self.padding, np.uint8).view(UNITS[unit])
            rows.view(UNITS[unit])[np.arange(0, self.block, unit) >= counts[:, None]] = padding
        self.fill[:] = 0
        self._unit = unit_of(self.block)
        return CellBytes(cells=cells, counts=counts, data=rows.reshape(-1))


def _move(out: np.ndarray, into: np.ndarray, values: np.ndarray, of: np.ndarray, counts: np.ndarray) -> None:
    """Copy runs of units: from 128 on one by one, as irregular events have few of them with most of the bytes."""
    is_long = counts >= 128
    long = np.flatnonzero(is_long)
    for to, start, count in zip(into[long].tolist(), of[long].tolist(), counts[long].tolist(), strict=True):
        out[to : to + count] = values[start : start + count]
    some = np.flatnonzero((counts > 0) & ~is_long)
    there, here = spreads(counts[some], into[some], of[some])
    out[there] = values.take(here)


NOTHING = CellBytes(cells=np.empty(0, np.int64), counts=np.empty(0, np.int64), data=np.empty(0, np.uint8))
"""Run without blocks."""


def grouped(cells: np.ndarray, items: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group events by cell in order of arrival: return the cells, the number of events of each, and all items.

    A cell and the index of an event make one number, and these are sorted: numpy sorts plain numbers many times faster
    than it finds an order.
    """
    bits = max(len(cells) - 1, 1).bit_length()
    assert bits + most.bit_length() < 64
    keys = cells.astype(np.int64) << bits
    keys |= np.arange(len(cells))
    keys.sort()
    order = keys & ((1 << bits) - 1)
    keys >>= bits
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))) if len(keys) else np.empty(0, np.int64)
    return keys[first], np.diff(first, append=len(keys)), items.take(order, 0)
