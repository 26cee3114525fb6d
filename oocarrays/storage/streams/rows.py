"""Rows of a segment of NB or CB: one block of every cell, appended, read and replaced.

    row k   │ cell 0 │ cell 1 │ … │ cell N−1 │     a chunk holds some rows of the cells of a rank, or of a part of them

A large row is a chunk by itself, and is written without a copy. Small rows are gathered into a chunk, which is written
when it is full, and on flush.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from oocarrays.plan.streams.buffers import Chunking, Pieces
from oocarrays.plan.streams.units import before, copy_columns, copy_runs
from oocarrays.storage.streams.raw import RawChunks


class CellBlocks(NamedTuple):
    """Bytes at the same offsets of all streams."""

    lower: int
    """First byte, as an offset in a stream."""
    upper: int
    """Byte after the last."""
    parts: Sequence[tuple[int, int, Callable[[], np.ndarray]]]
    """First and last cell, and a function that returns their bytes, one row for each."""


class Rows:
    """Rows of some cells, which begin at the first cell of a chunk."""

    def __init__(
        self, chunks: RawChunks, chunking: Chunking, cells: tuple[int, int], count: int, *, writes: bool = True
    ) -> None:
        self.chunks = chunks
        self.chunking = chunking
        self.cells = cells
        self.count = count
        self._tail: list[np.ndarray] = []
        self._is_changed = False
        if writes and chunking.rows > 1 and count % chunking.rows:
            self._begin(load=True)

    @property
    def _columns(self) -> range:
        width = self.chunking.width
        return range(self.cells[0] // width, -(-self.cells[1] // width)) if self.cells[1] > self.cells[0] else range(0)

    def _begin(self, *, load: bool = False) -> None:
        """Start the chunk of the next row in memory."""
        self._tail = []
        for column in self._columns:
            number = self.chunking.number(self.count, column)
            chunk = self.chunks.get(number).copy() if load else np.zeros(self.chunking.nbytes, np.uint8)
            self._tail.append(chunk)
            self.chunks.hold(number, chunk)

    def append(self, row: np.ndarray) -> None:
        """Append one row: contiguous bytes of all cells."""
        self._write(self.count, row)
        self.count += 1
        if self._is_changed and not self.count % self.chunking.rows:
            self._put_tail(self.count - 1, held=False)
            self._tail = []

    def _write(self, number: int, row: np.ndarray) -> None:
        if self.chunking.rows == 1:
            self._put_row(number, row)
            return
        place = number % self.chunking.rows
        if not place:
            self._begin()
        each = self.chunking.width * self.chunking.block
        for chunk, part in zip(self._tail, self._parts(row), strict=True):
            chunk[place * each : place * each + len(part)] = part
        self._is_changed = True

    def _parts(self, row: np.ndarray) -> list[np.ndarray]:
        """Return the bytes of a row for each chunk."""
        each = self.chunking.width * self.chunking.block
        return [row[start : start + each] for start in range(0, len(row), each)]

    def _put_row(self, number: int, row: np.ndarray) -> None:
        """Write a row that is a chunk by itself, padding the last chunk of cells."""
        for column, part in zip(self._columns, self._parts(row), strict=True):
            if len(part) < self.chunking.nbytes:
                part = np.concatenate((part, np.zeros(self.chunking.nbytes - len(part), np.uint8)))
            self.chunks.put(self.chunking.number(number, column), part)

    def _put_tail(self, number: int, *, held: bool) -> None:
        for column, chunk in zip(self._columns, self._tail, strict=True):
            self.chunks.put(self.chunking.number(number, column), chunk, held=held)
        self._is_changed = False

    def settle(self, part: np.ndarray | None = None) -> None:
        """Write the gathered rows, with a partial next row if given."""
        if part is not None:
            self._write(self.count, part)
        if self._is_changed:
            self._put_tail(self.count - (part is None), held=True)

    def replace(self, number: int, row: np.ndarray) -> None:
        """Replace an existing row."""
        if self.chunking.rows == 1:
            self._put_row(number, row)
            return
        each = self.chunking.width * self.chunking.block
        chunks = np.array([self.chunking.number(number, column) for column in self._columns])
        counts = np.array([len(part) for part in self._parts(row)])
        place = np.full(len(chunks), number % self.chunking.rows * each)
        self._change(Pieces(chunks, place, before(counts), counts), row)

    def _change(self, pieces: Pieces, data: np.ndarray) -> None:
        self.chunks.change(pieces, data)
        self._is_changed = bool(self._tail) or self._is_changed

    def change(self, cells: np.ndarray, part: tuple[np.ndarray, np.ndarray, np.ndarray], data: np.ndarray) -> None:
        """Replace bytes of some cells: ``part`` has their offsets in the segment, sizes, and places in ``data``."""
        self._change(self.chunking.pieces(cells, *part), data)

    def read(self, cells: np.ndarray, part: tuple[np.ndarray, np.ndarray, np.ndarray], out: np.ndarray) -> None:
        """Read bytes of some cells into their places in ``out``."""
        if is_even(cells, part, self.chunking.block):
            self._read_even(int(cells[0]), part, out)
        else:
            self.chunks.read(self.chunking.pieces(cells, *part), out)

    def _read_even(self, first: int, part: tuple[np.ndarray, np.ndarray, np.ndarray], out: np.ndarray) -> None:
        """Read the same bytes of consecutive cells, row by row, where they are contiguous."""
        offset, nbytes, into = int(part[0][0]), int(part[1][0]), part[2]
        cells, width = len(into), self.chunking.width
        lies_so = len(out) == cells * nbytes
        found = out.reshape(cells, nbytes) if lies_so else np.empty((cells, nbytes), np.uint8)
        done = 0
        while done < cells:
            count = min(cells - done, width - (first + done) % width)
            self._read_column(first + done, offset, found[done : done + count])
            done += count
        if not lies_so:
            copy_runs(out, into, found.reshape(-1), np.arange(cells) * nbytes, part[1])

    def _read_column(self, first: int, offset: int, out: np.ndarray) -> None:
        """Read the same bytes of consecutive cells in the same chunks: cells × bytes."""
        chunking, (cells, nbytes) = self.chunking, out.shape
        block, (column, place) = chunking.block, divmod(first, chunking.width)
        room = np.empty(cells * block, np.uint8)
        for number in range(offset // block, -(-(offset + nbytes) // block)):
            start, row = (number % chunking.rows * chunking.width + place) * block, room
            if chunking.rows > 1:
                row = self.chunks.get(chunking.number(number, column))[start : start + len(room)]
            else:
                self.chunks.read_into(chunking.number(number, column), start, room)
            lower, upper = max(number * block, offset), min((number + 1) * block, offset + nbytes)
            where = slice(lower - number * block, upper - number * block)
            copy_columns(out, slice(lower - offset, upper - offset), row.reshape(cells, block), where)

    def read_row(self, number: int, out: np.ndarray) -> None:
        """Read one row of all cells directly into contiguous bytes."""
        each = self.chunking.width * self.chunking.block
        place = number % self.chunking.rows * each
        for column, part in zip(self._columns, self._parts(out), strict=True):
            self.chunks.read_into(self.chunking.number(number, column), place, part)

    def blocks(self, number: int, preceding: int) -> CellBlocks:
        """Return one row of all cells in place; ``preceding`` bytes of each stream precede the segment."""
        chunking, (lower, upper) = self.chunking, self.cells
        each, parts = chunking.width * chunking.block, []
        place = number % chunking.rows * each

        def rows(column: int, cells: int) -> np.ndarray:
            chunk = self.chunks.get(chunking.number(number, column))
            return chunk[place : place + cells * chunking.block].reshape(cells, chunking.block)

        for column in self._columns:
            first, last = (min(k * chunking.width, upper) - lower for k in (column, column + 1))
            parts.append((first, last, partial(rows, column, last - first)))
        start = preceding + number * chunking.block
        return CellBlocks(start, start + chunking.block, parts)


def is_even(cells: np.ndarray, part: tuple[np.ndarray, np.ndarray, np.ndarray], block: int) -> bool:
    """Return whether many consecutive cells are read at the same offset, a block or more of each."""
    if len(cells) < 16 or int(cells[-1]) - int(cells[0]) != len(cells) - 1 or part[1][0] < block:
        return False
    return all(bool((each == each[0]).all()) for each in part[:2])
