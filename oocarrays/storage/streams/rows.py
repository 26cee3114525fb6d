"""Segments of NB and CB: rows of one block of every cell, appended, read and replaced.

    row k   │ cell 0 │ cell 1 │ … │ cell N−1 │     a chunk holds some rows of the cells of a rank, or of a part of them

NB   calls of a block of each cell   ──► rows, without a copy
CB   other calls of all cells        ──► the log of calls ──► buffers of all cells, full together ──► rows

A large row is a chunk by itself. Small rows are gathered into a chunk, which is written when it is full, and on flush.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from oocarrays.plan.streams.buffers import Buffers, Chunking, Part, Pieces
from oocarrays.plan.streams.meta import Regular
from oocarrays.plan.streams.units import copy_columns, copy_runs, side_by_side
from oocarrays.storage.streams.raw import RawChunks


class CellBlocks(NamedTuple):
    """Bytes at the same offsets of all streams."""

    lower: int
    """First byte, as an offset in a stream."""
    upper: int
    """Byte after the last."""
    parts: Sequence[tuple[int, int, Callable[[], np.ndarray]]]
    """First and last cell, and a function that returns their bytes, one row for each."""


class RowSegment:
    """Segment of NB or CB for some cells, which begin at the first cell of a chunk."""

    def __init__(self, stored: Regular, block: int, cells: tuple[int, int]) -> None:
        self.block = stored.block or block
        """Bytes of a block; 0 while it is unknown."""
        self.nbytes = stored.nbytes
        """Bytes of each cell."""
        self.lower, self.cells = cells[0], cells[1] - cells[0]
        self.is_there = False
        """Whether it exists in the store."""
        self.chunks: RawChunks
        self.chunking: Chunking
        self.buffers: Buffers | None = None
        """Next bytes of each cell, not yet a full row."""
        self._logged = self._width = 0  # bytes of each cell in the log of calls, and in one call of it
        self._is_drained = True  # whether the chunks have what the buffers have

    def begin(self, chunks: RawChunks, chunking: Chunking) -> None:
        self.chunks, self.chunking, self.is_there = chunks, chunking, True
        each, total = chunking.width * self.block, self.cells * self.block
        self._columns = [
            (self.lower // chunking.width + k, slice(start, min(start + each, total)))
            for k, start in enumerate(range(0, total, each))
        ]

    @property
    def regular(self) -> Regular:
        return Regular(block=self.block if self.nbytes else 0, nbytes=self.nbytes)

    @property
    def count(self) -> int:
        return (self.nbytes - self._logged) // self.block

    def _row(self, number: int) -> list[tuple[int, int, slice]]:
        """Return the chunks of a row, the place of its bytes in each, and the part of the row."""
        first, place = divmod(number, self.chunking.rows)
        first, place = first * self.chunking.columns, place * self.chunking.width * self.block
        return [(first + column, place, part) for column, part in self._columns]

    def append(self, values: np.ndarray) -> None:
        """Append equally many bytes to every cell: a contiguous row of bytes for each.

        Calls are gathered as they come, and transposed when they fill a block. A few bytes in the buffer of each cell
        would use a cache line each.
        """
        width, data = values.shape[1], values.reshape(-1)
        if self._logged and (width != self._width or self._logged + width > self.block):
            self._push_log()
        if width == self.block and not self.nbytes % width:
            self._put(self.nbytes // width, data, ends=True)
            self.nbytes += width
            return
        if width > self.block or not self.cells:
            self._push(data, width)
            return
        if self.buffers is None:
            self._load()
        self._log[self._logged * self.cells :][: len(data)] = data
        self._width, self._logged, self.nbytes = width, self._logged + width, self.nbytes + width
        if not self.nbytes % self.block:
            self._push_log()

    def _load(self) -> Buffers:
        """Make the buffers, with a partial row of the store."""
        self.buffers, self._log = Buffers(self.cells, self.block), np.empty(self.cells * self.block, np.uint8)
        fill = self.nbytes % self.block
        if fill:
            self.read_row(self.count, self.buffers.data)
            self.buffers.fill[:] = fill
        return self.buffers

    def _push_log(self) -> None:
        logged, self._logged = self._logged, 0
        self.nbytes -= logged
        self._push(side_by_side(self._log[: logged * self.cells], logged // self._width, self._width), logged)

    def _push(self, data: np.ndarray, width: int) -> None:
        """Move bytes of all cells to the buffers, and full rows to chunks."""
        number = self.count
        if self.cells:
            data = (self.buffers or self._load()).push_level(width, data).data
        self.nbytes += width
        rows = data.reshape(self.cells, self.count - number, self.block)
        for row in range(rows.shape[1]):
            self._put(number + row, np.ascontiguousarray(rows[:, row]).reshape(-1), ends=True)
        self._is_drained = False

    def _put(self, number: int, row: np.ndarray, *, ends: bool) -> None:
        ends = ends and not (number + 1) % self.chunking.rows
        for chunk, place, part in self._row(number):
            self.chunks.write(chunk, place, row[part], ends=ends)

    def drain(self) -> None:
        """Move gathered bytes to the chunks, where reads find them."""
        if self._logged:
            self._push_log()
        fill = self.nbytes % self.block if self.block else 0
        if fill and self.buffers is not None and not self._is_drained:
            self.buffers.data.reshape(self.cells, self.block)[:, fill:] = 0
            self._put(self.count, self.buffers.data, ends=False)
        self._is_drained = True

    def release(self) -> None:
        """Move gathered bytes to the chunks, and release the buffers, which another append loads again."""
        self.drain()
        self.buffers, self._log = None, np.empty(0, np.uint8)

    def settle(self) -> None:
        if self.is_there:
            self.drain()
            self.chunks.settle()

    def replace(self, number: int, row: np.ndarray) -> None:
        if self.chunking.rows == 1:
            self._put(number, row, ends=True)
            return
        each = [(chunk, place, part.start, part.stop - part.start) for chunk, place, part in self._row(number)]
        self.chunks.change(Pieces(*np.array(each).T), row)

    def change(self, cells: np.ndarray, part: Part, data: np.ndarray) -> None:
        self.release()
        self.chunks.change(self.chunking.pieces(cells + self.lower, *part), data)

    def read(self, cells: np.ndarray, part: Part, out: np.ndarray) -> None:
        self.drain()
        are_many = len(cells) >= 16 and int(cells[-1]) - int(cells[0]) == len(cells) - 1 and part[1][0] >= self.block
        if are_many and all(bool((each == each[0]).all()) for each in part[:2]):
            self._read_even(int(cells[0]), part, out)
        else:
            self.chunks.read(self.chunking.pieces(cells + self.lower, *part), out)

    def _read_even(self, first: int, part: Part, out: np.ndarray) -> None:
        """Read the same bytes of consecutive cells, row by row, where they are contiguous."""
        offset, nbytes, into = int(part[0][0]), int(part[1][0]), part[2]
        cells, end = len(into), offset + nbytes
        lies_so = len(out) == cells * nbytes
        found = out.reshape(cells, nbytes) if lies_so else np.empty((cells, nbytes), np.uint8)
        for start, stop in self._spans(first, first + cells):
            room = np.empty((stop - start) * self.block, np.uint8)
            for number in range(offset // self.block, -(-end // self.block)):
                lower, upper = max(number * self.block, offset), min((number + 1) * self.block, end)
                rows = self._block(number, start, stop, room)
                where = slice(lower % self.block, upper - number * self.block)
                copy_columns(found[start - first : stop - first], slice(lower - offset, upper - offset), rows, where)
        if not lies_so:
            copy_runs(out, into, found.reshape(-1), np.arange(cells) * nbytes, part[1])

    def _spans(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield runs of cells in the same chunks."""
        while first < last:
            stop = min(first + self.chunking.width - (self.lower + first) % self.chunking.width, last)
            yield first, stop
            first = stop

    def _block(self, number: int, first: int, last: int, room: np.ndarray | None = None) -> np.ndarray:
        """Return a block of consecutive cells in the same chunk, a row for each; a large row is read to ``room``."""
        column, place = divmod(self.lower + first, self.chunking.width)
        start = (number % self.chunking.rows * self.chunking.width + place) * self.block
        chunk, rows = number // self.chunking.rows * self.chunking.columns + column, room
        if rows is None or self.chunking.rows > 1:
            rows = self.chunks.get(chunk)[start : start + (last - first) * self.block]
        else:
            self.chunks.read_into(chunk, start, rows)
        return rows.reshape(-1, self.block)

    def read_row(self, number: int, out: np.ndarray) -> None:
        """Read one row of all cells directly into contiguous bytes."""
        for chunk, place, part in self._row(number):
            self.chunks.read_into(chunk, place, out[part])

    def at(self, offset: int) -> CellBlocks:
        """Return the row of all cells that holds a byte of them; the last one may be partial."""
        number = offset // self.block
        spans = self._spans(0, self.cells)
        parts = [(first, last, partial(self._block, number, first, last)) for first, last in spans]
        return CellBlocks(number * self.block, min((number + 1) * self.block, self.nbytes), parts)
