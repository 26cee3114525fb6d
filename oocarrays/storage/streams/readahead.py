"""Read-ahead: one cache of the bytes that the next calls are expected to read.

    rows of a segment     │ cell 0: 0 1 2 3 │ cell 1: 0 1 2 3 │ …        a call reads byte 0 of all, the next one byte 1
    of this call, of the next ones    0 0 0 … │ 1 1 1 … │ 2 2 2 … │ 3 3 3 …

same bytes of all cells     transposed from the blocks of a segment into the results of the next calls: a memory
                            transfer fetches the bytes of several calls
any bytes of many cells     a window: the next bytes of every cell (section 5.3: most programs read as they wrote)
one cell after the other    a window: the remaining bytes of the next cells
"""

from __future__ import annotations

import weakref
from typing import NamedTuple, Protocol

import numpy as np

from oocarrays.plan.streams.units import UNITS, before, copy_runs, unit_of
from oocarrays.storage.streams.directories import FEW
from oocarrays.storage.streams.rows import CellBlocks

FIRST_SPAN, GROWTH = 256, 4
"""Initial bytes of a window per cell, and their growth factor if the next call needs more."""
WINDOW_SHARE, RESULTS_SHARE = 4, 8
"""Divisors of the budget for a window, and for the results of the next calls."""
LINE = 64
"""Bytes of each cell that are transposed at a time: a cache line."""
TURNED = 2048
"""Cells that are transposed at a time: their bytes stay in the cache."""
READ_BYTES = 2**18
"""Bytes of all cells that are read in the time of a single read."""


class Source(Protocol):
    """Streams of some cells, which are numbered from 0."""

    count: int
    """Number of cells."""
    budget: int
    """Budget in bytes."""

    def ends(self) -> np.ndarray:
        """Return the bytes of each stream."""

    def blocks_at(self, offset: int) -> CellBlocks | None:
        """Return the blocks that hold a byte of all streams; None if they are scattered."""

    def fetch(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return bytes of ascending cells, one cell after the other."""


class Window(NamedTuple):
    """Bytes of consecutive cells."""

    first: int
    """First cell."""
    starts: np.ndarray
    """First byte of each cell, as an offset in its stream."""
    counts: np.ndarray
    """Bytes of each cell."""
    places: np.ndarray
    """Offset of each cell's bytes in the data."""
    data: np.ndarray
    """Bytes, one cell after the other."""

    def has(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> bool:
        """Return whether the window holds bytes of ascending cells."""
        if not len(cells):
            return True
        if cells[0] < self.first or cells[-1] >= self.first + len(self.starts):
            return False
        starts = self._of(self.starts, cells)
        ends = starts + self._of(self.counts, cells)
        return bool(((offsets >= starts) & (offsets + counts <= ends)).all())

    def _of(self, values: np.ndarray, cells: np.ndarray) -> np.ndarray:
        return values if len(cells) == len(values) else values[cells - self.first]

    def read(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return bytes of cells that the window holds, one cell after the other."""
        out = np.empty(int(counts.sum()), np.uint8)
        places = self._of(self.places, cells) + offsets - self._of(self.starts, cells)
        copy_runs(out, before(counts), self.data, places, counts)
        return out

    def one(self, cell: int, offset: int, nbytes: int) -> np.ndarray | None:
        """Return bytes of one cell; None if the window lacks some of them."""
        cell -= self.first
        if not 0 <= cell < len(self.starts):
            return None
        skipped = offset - self.starts.item(cell)
        if skipped < 0 or skipped + nbytes > self.counts.item(cell):
            return None
        place = self.places.item(cell) + skipped
        return self.data[place : place + nbytes]

    def level(self, offset: int, cells: int) -> CellBlocks | None:
        """Return the same bytes of all cells as blocks; None if cells differ, or the byte at ``offset`` is missing."""
        lower, nbytes = int(self.starts[0]), int(self.counts[0])
        if len(self.starts) < cells or not lower <= offset < lower + nbytes:
            return None
        if bool((self.starts != lower).any() or (self.counts != nbytes).any()):
            return None
        rows = self.data.reshape(-1, nbytes)
        return CellBlocks(lower, lower + nbytes, [(0, cells, lambda: rows)])


class ReadAhead:
    """Bytes that were read ahead of the calls that return them."""

    def __init__(self, source: Source) -> None:
        self._source: Source = weakref.proxy(source)  # it holds this: no cycle that waits for a collection
        self._results: dict[tuple[int, int], np.ndarray] = {}
        self._window: Window | None = None
        self._positions: np.ndarray | None = None
        self._span, self._misses = FIRST_SPAN, 0

    def discard(self) -> None:
        """Discard all bytes, because the file has changed."""
        self._results, self._window, self._positions = {}, None, None

    def follow(self, positions: np.ndarray | None) -> None:
        """Read ahead from these positions for reads of one cell after the other; with None, stop that."""
        self._positions = positions
        if positions is not None:
            left = int(np.maximum(self._source.ends() - positions, 0).sum())
            self._span = left if left <= self._most else max(self._most // len(positions), FIRST_SPAN)

    @property
    def _most(self) -> int:
        return self._source.budget // WINDOW_SHARE

    # ------------------------------------------------------------------ reads

    def level(self, offset: int, nbytes: int, end: int) -> np.ndarray:
        """Return the same bytes of all streams, a row for each cell; ``end`` is the last byte to read ahead."""
        found = self._results.pop((offset, nbytes), None)
        if found is not None:
            return found
        self._results = {}
        cells = self._source.count
        room = self._source.budget // RESULTS_SHARE // max(cells * nbytes, 1)
        calls = max(min(LINE // nbytes, (end - offset) // nbytes, room), 1)
        outs = [np.empty((cells, nbytes), np.uint8) for _ in range(calls)]
        place, end = offset, offset + calls * nbytes
        while place < end:
            blocks = self._source.blocks_at(place) or self._scattered(place)
            upper = min(end, blocks.upper)
            for first, last, rows in blocks.parts:
                wanted = rows()[:, place - blocks.lower : upper - blocks.lower]
                _turn([out[first:last] for out in outs], wanted, place - offset, nbytes)
            place = upper
        self._results = {(offset + turn * nbytes, nbytes): out for turn, out in enumerate(outs)}
        return self._results.pop((offset, nbytes))

    def read(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return bytes of ascending cells, one cell after the other."""
        window = self._window
        if window is None or not window.has(cells, offsets, counts):
            window = self._next(cells, offsets, counts)
        return (self._source.fetch if window is None else window.read)(cells, offsets, counts)

    def one(self, cell: int, offset: int, nbytes: int) -> np.ndarray:
        """Return bytes of one cell."""
        found = None if self._window is None else self._window.one(cell, offset, nbytes)
        if found is None:
            window = None if self._positions is None else self._following(cell, offset, nbytes)
            window = self._missed() if window is None else window
            found = None if window is None else window.one(cell, offset, nbytes)
        return self._source.fetch(*(np.array([n]) for n in (cell, offset, nbytes))) if found is None else found

    # ------------------------------------------------------------------ windows

    def _scattered(self, offset: int) -> CellBlocks:
        """Return bytes of all streams that are gathered cell by cell, with those of the next calls."""
        cells = self._source.count
        blocks = None if self._window is None else self._window.level(offset, cells)
        if blocks is None:
            starts = np.full(cells, offset)
            self._grow(np.arange(cells), starts)
            left = int(self._source.ends().min()) - offset
            most = min(self._span, left, self._source.budget // RESULTS_SHARE // cells)
            blocks = self._of_all(starts, np.zeros(cells, np.int64), max(most, 1)).level(offset, cells)
        assert blocks is not None, "all streams have these bytes"
        return blocks

    def _next(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> Window | None:
        """Read a window with bytes of some cells and of the next calls; return None if a direct read is better."""
        count = self._source.count
        if len(cells) * FEW < count:
            window = self._missed()
            return window if window is not None and window.has(cells, offsets, counts) else None
        if int(counts.sum()) >= self._most:
            return None
        had, wanted = self._window, np.zeros(count, np.int64)
        is_whole = had is not None and len(had.starts) == count
        starts = had.starts.copy() if had is not None and is_whole else np.full(count, offsets.min(initial=0))
        starts[cells], wanted[cells] = offsets, counts
        had = None
        self._grow(cells, offsets)
        return self._of_all(starts, wanted, self._span)

    def _grow(self, cells: np.ndarray, offsets: np.ndarray) -> None:
        """Set the span of the next window: longer if it continues the last one."""
        had = self._window
        is_next = had is not None and had.has(cells, offsets, np.zeros_like(offsets))
        self._span = self._span * GROWTH if is_next else FIRST_SPAN

    def _missed(self) -> Window | None:
        """Read all streams if that costs no more than the single reads so far."""
        self._misses += 1
        if self._misses % FEW or int(self._source.ends().sum()) > min(self._misses * READ_BYTES, self._most):
            return None
        none = np.zeros(self._source.count, np.int64)
        return self._of_all(none, none, self._source.budget)

    def _of_all(self, starts: np.ndarray, wanted: np.ndarray, each: int) -> Window:
        """Read the wanted bytes of every cell, and up to ``each`` bytes that follow, within the budget."""
        ends = self._source.ends()
        starts = np.minimum(starts, ends)
        left = ends - starts
        while each and int(np.minimum(left, each).sum()) > self._most:
            each //= 2
        return self._fetched(0, starts, np.maximum(np.minimum(left, each), wanted))

    def _following(self, cell: int, offset: int, nbytes: int) -> Window | None:
        """Read bytes of one cell, and of as many cells after it as fit the budget; None if its position has jumped."""
        assert self._positions is not None, "cells are read one after the other"
        place, end = int(self._positions[cell]), int(self._positions[cell])
        if self._window is not None and self._window.first <= cell < self._window.first + len(self._window.starts):
            place = self._window.starts.item(cell - self._window.first)
            end = place + self._window.counts.item(cell - self._window.first)
        if not place <= offset <= end:
            return None
        if end > place:  # the cell needs more than was read ahead
            self._span = max(self._span * GROWTH, nbytes)
        starts = self._positions[cell:].copy()
        starts[0] = offset
        counts = np.minimum(np.maximum(self._source.ends()[cell:] - starts, 0), self._span)
        counts[0] = max(int(counts[0]), nbytes)
        cells = max(int(np.searchsorted(np.cumsum(counts), self._most, "right")), 1)
        return self._fetched(cell, starts[:cells], counts[:cells])

    def _fetched(self, first: int, starts: np.ndarray, counts: np.ndarray) -> Window:
        self._window = None  # before the next one takes memory
        data = self._source.fetch(np.arange(first, first + len(starts)), starts, counts)
        self._window = Window(first, starts, counts, before(counts), data)
        return self._window


def _turn(outs: list[np.ndarray], rows: np.ndarray, place: int, nbytes: int) -> None:
    """Copy to each result its bytes of rows; the rows begin ``place`` bytes after the first result's first byte."""
    unit = unit_of(place, nbytes, rows.shape[1], rows.strides[0], rows.ctypes.data)
    width, place, end = nbytes // unit, place // unit, (place + rows.shape[1]) // unit
    source = rows.view(UNITS[unit])
    turned = [out.view(UNITS[unit]) for out in outs]
    for start in range(0, len(rows), TURNED):
        part = np.ascontiguousarray(source[start : start + TURNED])
        for turn in range(place // width, -(-end // width)):
            lower, upper = max(turn * width, place), min((turn + 1) * width, end)
            into = turned[turn][start : start + TURNED, lower - turn * width : upper - turn * width]
            into[...] = part[:, lower - place : upper - place]
