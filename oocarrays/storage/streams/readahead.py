"""Reads of streams, and read-ahead: one cache of the bytes that the next calls are expected to read.

    rows of a segment     │ cell 0: 0 1 2 3 │ cell 1: 0 1 2 3 │ …        a call reads byte 0 of all, the next one byte 1
    of this call, of the next ones    0 0 0 … │ 1 1 1 … │ 2 2 2 … │ 3 3 3 …

whole rows of NB            directly
same bytes of all cells     transposed from the blocks of a segment into the results of the next calls: a memory
                            transfer fetches the bytes of several calls
any bytes of many cells     a window: the next bytes of every cell (section 5.3: most programs read as they wrote)
one cell after the other    a window: the remaining bytes of the next cells
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from oocarrays.plan.streams.units import UNITS, before, copy_runs, unit_of
from oocarrays.storage.streams.directories import FEW
from oocarrays.storage.streams.part import RanksPart
from oocarrays.storage.streams.raw import CellBlocks

FIRST_SPAN, GROWTH = 256, 4
"""Initial bytes of a window per cell, and their growth factor if the next call needs more."""
WINDOW_SHARE, RESULTS_SHARE = 4, 8
"""Divisors of the budget for a window, and for the results of the next calls."""
TURNED = 2048
"""Cells that are transposed at a time: their bytes stay in the cache."""
READ_BYTES = 2**18
"""Bytes of all cells that are read in the time of a single read."""


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

    def at(self, offset: int, cells: int) -> CellBlocks | None:
        """Return the same bytes of all cells as blocks; None if cells differ, or the byte at ``offset`` is missing."""
        if len(self.starts) < cells:
            return None
        lower, nbytes = int(self.starts[0]), int(self.counts[0])
        if not lower <= offset < lower + nbytes or bool((self.starts != lower).any() or (self.counts != nbytes).any()):
            return None
        rows = self.data.reshape(-1, nbytes)
        return CellBlocks(lower, lower + nbytes, [(0, cells, lambda: rows)])


EMPTY = Window(0, *(np.empty(0, np.int64),) * 3, np.empty(0, np.uint8))
"""Window without cells."""


class StreamReader:
    """Reader of streams, with the bytes that were read ahead of the calls that return them."""

    def __init__(self, part: RanksPart) -> None:
        self.part = part
        self._positions: np.ndarray | None = None
        self._span, self._misses = FIRST_SPAN, 0
        self.discard()

    def discard(self) -> None:
        """Discard all bytes, because the file changes."""
        self._results: dict[tuple[int, int], np.ndarray] = {}
        self._window, self._positions = EMPTY, None

    def follow(self, positions: np.ndarray | None) -> None:
        """Read ahead from these positions for reads of one cell after the other; with None, stop that."""
        self._positions = positions
        if positions is not None:
            left = int(np.maximum(self.part.ends() - positions, 0).sum())
            self._span = left if left <= self._most else max(self._most // len(positions), FIRST_SPAN)

    @property
    def _most(self) -> int:
        return self.part.budget // WINDOW_SHARE

    def level(self, offset: int, nbytes: int) -> np.ndarray:
        """Return the same bytes of all streams, a row for each cell; the bytes must exist."""
        part, row = self.part, self.part.row_at(offset, nbytes)
        if row is not None or not nbytes:
            out = np.empty((part.count, nbytes), np.uint8)
            if row is not None:
                part.nb.read_row(row, out.reshape(-1))
            return out
        found = self._results.pop((offset, nbytes), None)
        if found is not None:
            return found
        self._results = {}
        part.cb.drain()
        end = part.cb_end if offset < part.cb_end else part.level_end()  # without access to IB if possible
        room = part.budget // RESULTS_SHARE // max(part.count * nbytes, 1)
        calls = max(min(64 // nbytes, (end - offset) // nbytes, room), 1)
        outs = [np.empty((part.count, nbytes), np.uint8) for _ in range(calls)]  # of each cell a cache line
        place, end = offset, offset + calls * nbytes
        while place < end:
            blocks = part.at(place) or self._scattered(place)
            upper = min(end, blocks.upper)
            for first, last, rows in blocks.parts:
                wanted = rows()[:, place - blocks.lower : upper - blocks.lower]
                _turn([out[first:last] for out in outs], wanted, place - offset, nbytes)
            place = upper
        self._results = {(offset + turn * nbytes, nbytes): out for turn, out in enumerate(outs)}
        return self._results.pop((offset, nbytes))

    def read(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> np.ndarray:
        is_there = self._window.has(cells, offsets, counts) or self._next(cells, offsets, counts)
        return (self._window.read if is_there else self.part.fetch)(cells, offsets, counts)

    def one(self, cell: int, offset: int, nbytes: int) -> np.ndarray:
        found = self._window.one(cell, offset, nbytes)
        if found is None and (self._following(cell, offset, nbytes) or self._missed()):
            found = self._window.one(cell, offset, nbytes)
        return self.part.fetch(*(np.array([n]) for n in (cell, offset, nbytes))) if found is None else found

    def _scattered(self, offset: int) -> CellBlocks:
        """Return bytes of all streams that are gathered cell by cell, with those of the next calls."""
        cells = self.part.count
        blocks = self._window.at(offset, cells)
        if blocks is None:
            starts = np.full(cells, offset)
            self._grow(np.arange(cells), starts)
            left = int(self.part.ends().min()) - offset
            most = min(self._span, left, self.part.budget // RESULTS_SHARE // cells)
            self._of_all(starts, np.zeros(cells, np.int64), max(most, 1))
            blocks = self._window.at(offset, cells)
        assert blocks is not None, "all streams have these bytes"
        return blocks

    def _next(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> bool:
        """Read bytes of some cells, and of the next calls, unless a direct read is better."""
        count = self.part.count
        if len(cells) * FEW < count:
            return self._missed() and self._window.has(cells, offsets, counts)
        if count < 2 or int(counts.sum()) >= self._most:
            return False
        is_whole, wanted = len(self._window.starts) == count, np.zeros(count, np.int64)
        starts = self._window.starts.copy() if is_whole else np.full(count, offsets.min(initial=0))
        starts[cells], wanted[cells] = offsets, counts
        self._grow(cells, offsets)
        return self._of_all(starts, wanted, self._span)

    def _grow(self, cells: np.ndarray, offsets: np.ndarray) -> None:
        """Set the span of the next window: longer if it continues the last one."""
        is_next = self._window.has(cells, offsets, np.zeros_like(offsets))
        self._span = self._span * GROWTH if is_next else FIRST_SPAN

    def _missed(self) -> bool:
        """Read all streams if that costs no more than the single reads so far."""
        self._misses += 1
        if self._misses % FEW or int(self.part.ends().sum()) > min(self._misses * READ_BYTES, self._most):
            return False
        none = np.zeros(self.part.count, np.int64)
        return self._of_all(none, none, self.part.budget)

    def _of_all(self, starts: np.ndarray, wanted: np.ndarray, each: int) -> bool:
        """Read the wanted bytes of every cell, and up to ``each`` bytes that follow, within the budget."""
        ends = self.part.ends()
        starts = np.minimum(starts, ends)
        left = ends - starts
        while each and int(np.minimum(left, each).sum()) > self._most:
            each //= 2
        return self._fetch(0, starts, np.maximum(np.minimum(left, each), wanted))

    def _following(self, cell: int, offset: int, nbytes: int) -> bool:
        """Read bytes of one cell, and of as many cells after it as fit the budget, unless its position has jumped."""
        if self._positions is None:
            return False
        place = end = int(self._positions[cell])
        had = cell - self._window.first
        if 0 <= had < len(self._window.starts):
            place = self._window.starts.item(had)
            end = place + self._window.counts.item(had)
        if not place <= offset <= end:
            return False
        if end > place:  # the cell needs more than was read ahead
            self._span = max(self._span * GROWTH, nbytes)
        starts = self._positions[cell:].copy()
        starts[0] = offset
        counts = np.minimum(np.maximum(self.part.ends()[cell:] - starts, 0), self._span)
        counts[0] = max(int(counts[0]), nbytes)
        cells = max(int(np.searchsorted(np.cumsum(counts), self._most, "right")), 1)
        return self._fetch(cell, starts[:cells], counts[:cells])

    def _fetch(self, first: int, starts: np.ndarray, counts: np.ndarray) -> bool:
        self._window = EMPTY  # before the next one takes memory
        data = self.part.fetch(np.arange(first, first + len(starts)), starts, counts)
        self._window = Window(first, starts, counts, before(counts), data)
        return True


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
