"""Raw chunks of a segment: stored bytes, read whole or in part, gathered until they are whole; and segments of rows.

    write ──► a whole chunk       ──► put, without a copy
          ──► a part of a chunk   ──► held until it ends ──► put        settle: put what is held, and keep it
    read  ──► held, or cached, or mapped, or read

Each chunk is replaced atomically: after a crash it is the old one or the new one. Plain binary files are written in
place.

    row k   │ cell 0 │ cell 1 │ … │ cell N−1 │     a chunk holds some rows of the cells of a rank, or of a part of them

NB   calls of a block of each cell   ──► rows, without a copy
CB   other calls of all cells        ──► the log of calls ──► buffers of all cells, full together ──► rows

A large row is a chunk by itself. Small rows are gathered into a chunk, which is written when it is full, and on flush.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import zarr

from oocarrays.errors import CorruptChunkError
from oocarrays.limits import COPIED_BYTES
from oocarrays.plan.streams.buffers import Buffers, Chunking, Part, Pieces
from oocarrays.plan.streams.meta import Regular
from oocarrays.plan.streams.units import copy_columns, copy_runs, side_by_side
from oocarrays.storage.local.blobs import LocalBlobs, MissingBlob, byte_view
from oocarrays.storage.local.cache import Cache
from oocarrays.storage.local.pages import can_map
from oocarrays.storage.meter import Meter

ChunkCache = Cache[tuple[int, int], np.ndarray]
"""Cache of chunks, by the identity of their array and their number."""


def chunk_cache(nbytes: int) -> ChunkCache:
    return Cache(nbytes, attrgetter("nbytes"))


class RawChunks:
    """Uncompressed chunks by number, in ``blobs``, which have ``read_into`` and ``put`` by key."""

    def __init__(
        self, blobs: Any, key: Callable[[int], Any], nbytes: int, meter: Meter, *, name: str,
        cache: ChunkCache | None = None, fill: int | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.key = key
        self.nbytes = nbytes
        self.fill = fill
        self._blobs = blobs
        self._meter = meter
        self.is_local = isinstance(blobs, LocalBlobs)
        """Whether each chunk is a local file."""
        self._maps = self.is_local and nbytes >= COPIED_BYTES and can_map()
        # of files: the system reclaims their pages as needed
        self._cache = chunk_cache(2**26) if self._maps else cache or chunk_cache(0)
        self._held: dict[int, np.ndarray] = {}
        self._changed: set[int] = set()

    def write(self, number: int, place: int, data: np.ndarray, *, ends: bool) -> None:
        """Write bytes of a chunk from ``place`` on; they are held until some bytes end it, or it is settled."""
        if ends and len(data) == self.nbytes:
            self.put(number, data)
            return
        held = self._held.get(number)
        if held is None:
            held = self.get(number).copy() if place else np.full(self.nbytes, self.fill or 0, np.uint8)
            self._held[number] = held
        held[place : place + len(data)] = data
        self._changed.add(number)
        if ends:
            self.put(number, held)

    def put(self, number: int, data: np.ndarray) -> None:
        self._store(number, data)
        self._held.pop(number, None)
        self._changed.discard(number)

    def _store(self, number: int, data: np.ndarray) -> None:
        self._blobs.put(self.key(number), byte_view(data))
        self._meter.add(write_requests=1, written_bytes=data.nbytes)
        self._cache.drop((id(self), number))

    def settle(self) -> None:
        for number in sorted(self._changed):
            self._store(number, self._held[number])
        self._changed.clear()

    def change(self, pieces: Pieces, data: np.ndarray) -> None:
        """Change pieces of existing chunks: each is read, changed and replaced, unless it is held."""
        for number, here in pieces.by_chunk():
            held = self._held.get(number)
            chunk = self.get(number).copy() if held is None else held
            copy_runs(chunk, here.place, data, here.into, here.count)
            if held is None:
                self.put(number, chunk)
            else:
                self._changed.add(number)

    def get(self, number: int) -> np.ndarray:
        """Return a chunk for reading: the pages of a large local file, otherwise a copy in memory."""
        found = self._held.get(number)
        if found is None:
            found = self._cache.get((id(self), number))
        if found is None:
            found = self._mapped(number) if self._maps else self._loaded(number)
            self._cache.keep((id(self), number), found)
        return found

    def _loaded(self, number: int) -> np.ndarray:
        data = np.empty(self.nbytes, np.uint8)
        self.read_into(number, 0, data)
        return data

    def _mapped(self, number: int) -> np.ndarray:
        try:
            blob = self._blobs.open(self.key(number))
        except MissingBlob:
            return self._loaded(number)
        with closing(blob):
            pages: np.ndarray = blob.pages()[: self.nbytes]
        if len(pages) < self.nbytes:
            raise CorruptChunkError(f"chunk {self.key(number)} of {self.name} is truncated")
        self._meter.add(read_requests=1, read_bytes=self.nbytes)
        return pages

    def read_into(self, number: int, place: int, out: np.ndarray) -> None:
        """Fill ``out`` with bytes of a chunk from ``place``, in one request."""
        held = self._held.get(number)
        if held is not None:
            out[:] = held[place : place + len(out)]
            return
        if not self._blobs.read_into(self.key(number), place, out.data):
            if self.fill is None:
                raise CorruptChunkError(f"chunk {self.key(number)} of {self.name} is missing")
            out[:] = self.fill
        self._meter.add(read_requests=1, read_bytes=len(out))

    def read(self, pieces: Pieces, out: np.ndarray) -> None:
        """Copy pieces of chunks into a result, reading each chunk at most once."""
        for number, here in pieces.by_chunk():
            into, count = int(here.into[0]), int(here.count[0])
            if len(here.count) == 1 and count * 8 < self.nbytes and self._cache.get((id(self), number)) is None:
                self.read_into(number, int(here.place[0]), out[into : into + count])  # few bytes, without their chunk
            else:
                copy_runs(out, here.into, self.get(number), here.place, here.count)


class ArraySteps:
    """Steps of any Zarr array along an axis, as blobs by number; the steps of one read are cached."""

    def __init__(self, array: zarr.Array, axis: int, budget: int) -> None:
        self.nbytes = array.nbytes // max(array.shape[axis], 1)
        self._array, self._axis = array, axis
        self._at_once = max(min(array.chunks[axis], budget // 4 // max(self.nbytes, 1)), 1)
        self._first, self._rows = -1, np.empty((0, 0), np.uint8)

    def read_into(self, number: int, place: int, out: memoryview) -> bool:
        first = number // self._at_once * self._at_once
        if first != self._first:
            steps = slice(first, first + self._at_once)
            block = np.moveaxis(np.asarray(self._array[(slice(None),) * self._axis + (steps,)]), self._axis, 0)
            self._rows = np.ascontiguousarray(block).reshape(-1).view(np.uint8).reshape(len(block), self.nbytes)
            self._first = first
        out[:] = self._rows[number - first, place : place + len(out)].data
        return True


# ---------------------------------------------------------------------- rows


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
