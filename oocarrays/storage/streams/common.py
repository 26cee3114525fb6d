"""The segment of CB: buffers of all cells that fill together, and the rows that went to the store from them."""

from __future__ import annotations

import numpy as np

from oocarrays.plan.streams.units import UNITS, side_by_side, unit_of
from oocarrays.storage.streams.rows import Rows


class CommonSegment:
    """The segment of CB, as far as some cells have it."""

    def __init__(self, block: int, nbytes: int, *, writes: bool) -> None:
        self.block, self.nbytes = block, nbytes
        self.rows: Rows | None = None
        """Those that are in the store; None while there is no segment."""
        self.buffer = np.empty((0, 0), np.uint8)
        """The next bytes of each cell, which are no row yet."""
        self._width = 0
        """Bytes of each cell in a call, where the buffers have one call after the other; 0 where each has its own."""
        self._writes = writes
        self._is_settled = True

    def begin(self, rows: Rows, cells: int) -> None:
        """Take up a segment that is there, or has just been made, of so many cells."""
        self.rows, self.buffer = rows, np.zeros((cells, self.block), np.uint8)
        self._fill()

    def _fill(self) -> None:
        """Take the row that is not full into the buffers."""
        self._width = 0
        if self.nbytes % self.block and len(self.buffer):
            self._row.read_row(self._row.count, self.buffer.reshape(-1))

    @property
    def _row(self) -> Rows:
        assert self.rows is not None, "the segment has been begun"
        return self.rows

    def append(self, values: np.ndarray) -> None:
        """Fill the buffers of all cells, and send them to the store as a row each time that they are full.

        Calls that fill a block together are kept as they come, and put side by side when it is full: in the buffer of
        each cell a few bytes would take a line of the processor's cache each.
        """
        width, self._is_settled = values.shape[1], False
        if not self.nbytes % self.block:
            self._width = width if width < self.block and not self.block % width else 0
        if self._width == width:
            self._append_call(values)
        else:
            self._deal_out()
            self._append_bytes(values)

    def _append_call(self, values: np.ndarray) -> None:
        cells, width = values.shape
        unit, calls = unit_of(width), self.buffer.reshape(-1, cells, width)
        calls[self.nbytes % self.block // width].view(UNITS[unit])[:] = values.view(UNITS[unit])
        self.nbytes += width
        if not self.nbytes % self.block:
            self._row.append(side_by_side(self.buffer.reshape(-1), len(calls), width))

    def _deal_out(self) -> None:
        """Give each cell what calls have written to it, in its own buffer."""
        fill = self.nbytes % self.block
        if self._width and fill:
            calls = self.buffer.reshape(-1)[: fill * len(self.buffer)].copy()
            self.buffer[:, :fill] = side_by_side(calls, fill // self._width, self._width).reshape(-1, fill)
            self.buffer[:, fill:] = 0
        self._width = 0

    def _append_bytes(self, values: np.ndarray) -> None:
        done, block = 0, self.block
        while done < values.shape[1]:
            fill = self.nbytes % block
            count = min(block - fill, values.shape[1] - done)
            unit = unit_of(fill, count, done, block, values.shape[1])
            part = values.view(UNITS[unit])[:, done // unit : (done + count) // unit]
            self.buffer.view(UNITS[unit])[:, fill // unit : (fill + count) // unit] = part
            self.nbytes += count
            done += count
            if not self.nbytes % block:
                self._row.append(self.buffer.reshape(-1))

    def change(self, cells: np.ndarray, part: tuple[np.ndarray, ...], data: np.ndarray) -> None:
        """Replace bytes of some cells; those that are in the buffers still are put first, and taken up again."""
        self.settle()
        self._row.change(cells, (part[0], part[1], part[2]), data)
        self._fill()
        self._is_settled = False

    def settle(self) -> None:
        """Put what is in the buffers, too."""
        if self.rows is not None and self._writes and not self._is_settled:
            self._deal_out()
            self.rows.settle(self.buffer.reshape(-1) if self.nbytes % self.block else None)
            self._is_settled = True
