"""Segment of IB: each rank gathers the data of its cells, and stores them in superblocks; one reader for all ranks.

    calls ──► log ──► sorted by cell ──► buffers of cells ──► blocks in superblocks
                                                 └──► pointers ──► entries in superblocks of the directory
                                                 └──► level entries, if all cells have equally many blocks

The paper moves each call's data to the buffers at once. Here calls are logged first: cells are looked up once for many
calls, and a cell's data of several calls becomes one run of blocks with one pointer.

rank 0 of 2   superblocks 0 2 4 …        rank 1 of 2   superblocks 1 3 5 …

Superblocks are numbered in turn over the ranks, so that no rank needs to ask where the others write (section 5.2.2). A
partial superblock is written on flush, and written again when full.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np

from oocarrays.plan.streams.buffers import Buffers, CellBytes, Part, grouped
from oocarrays.plan.streams.calls import Call, Events, Level, of_cells
from oocarrays.plan.streams.directory import BITS, HEAD, NONE, level_entries
from oocarrays.plan.streams.meta import Independent, WriterFacts, committed
from oocarrays.plan.streams.units import UNITS, before, cut, side_by_side, unit_of
from oocarrays.storage.meter import Meter
from oocarrays.storage.streams.directories import Directory, Reader
from oocarrays.storage.streams.raw import CellBlocks, ChunkCache, RawChunks
from oocarrays.storage.streams.stream_file import StreamFile


class Superblocks:
    """Superblocks of one rank."""

    def __init__(self, chunks: RawChunks, first: int, step: int) -> None:
        self.chunks, self.nbytes = chunks, chunks.nbytes
        self.first, self.step = first, step
        self.end = 0

    def append(self, data: np.ndarray) -> None:
        """Append bytes; write full superblocks, without a copy if their bytes are contiguous in ``data``."""
        done = 0
        while done < len(data):
            turn, place = divmod(self.end, self.nbytes)
            part = data[done : done + self.nbytes - place]
            ends = place + len(part) == self.nbytes
            self.chunks.write(self.first + turn * self.step, place, part, ends=ends)
            self.end += len(part)
            done += len(part)

    @property
    def room(self) -> int:
        return self.nbytes - self.end % self.nbytes

    def place(self, ends: Any) -> Any:
        """Return the offsets in the segment of bytes, by how many come before each in these superblocks."""
        turn, place = divmod(ends, self.nbytes)
        return (self.first + turn * self.step) * self.nbytes + place


LEVEL_BYTES, LEVEL_COPIES = 2**23, 4
"""Bytes of calls of all cells that are transposed together, if they make whole blocks: no more than the cache holds.
And the memory for that, as a multiple of these bytes."""
LEAST_LOG = 2**11
"""Minimum bytes of the log, if memory allows hardly any."""
FEW_CALLS = 4
"""Calls of all cells: fewer of them beside events are sorted as events."""


class RankWriter:
    """Writer of one rank."""

    def __init__(
        self, cells: tuple[int, int], ib: Independent, place: tuple[int, int], data: RawChunks, directory: RawChunks,
        sorting_bytes: int,
    ) -> None:  # fmt: skip
        (self.lower, self.upper), (rank, ranks) = cells, place
        self.count = self.upper - self.lower
        self.ib = ib
        self._buffers = Buffers(self.count, ib.block)
        self._pointers = Buffers(self.count, 8 * ib.pointers, padding=NONE & 0xFF)
        self.data = Superblocks(data, ib.base[0] + rank, ranks)
        self.directory = Superblocks(directory, ib.base[1] + rank, ranks)
        self.lengths = np.zeros(self.count, np.int64)
        self._sorting_bytes = sorting_bytes
        self._most, self._most_level = 0, max(sorting_bytes // LEVEL_COPIES, LEAST_LOG)
        self._index = np.dtype(np.int32 if self.count < 2**31 else np.int64)
        self._room = np.empty(0, np.uint8)
        self._calls: list[np.ndarray | None] = []  # cells of each logged call; None for all cells
        self._logged = self._width = 0
        self._has_events = False  # whether a call of the log names its cells
        self._levels = 0  # calls of all cells that came last

    @property
    def ends(self) -> tuple[int, int]:
        return self.data.end, self.directory.end // (8 * (HEAD + self.ib.pointers))

    def append(self, call: Call) -> None:
        if isinstance(call, Level):
            self._turn_to(call.nbytes)
            self._note(call.rows, None)
        elif isinstance(call, Events):
            self._turn_to(call.items.shape[1])
            at_once = max(self._most // max(self._width, 1), 1)
            for start in range(0, len(call.items), at_once):
                some = slice(start, start + at_once)
                self._note(call.items[some], call.cells[some] - self.lower)
        else:
            self.drain()
            self._take(self._buffers.push(call.cells - self.lower, call.counts, call.data))
            self.lengths[call.cells - self.lower] += call.counts

    def _turn_to(self, width: int) -> None:
        """Log items of ``width`` bytes from now on, and size the log for one sort."""
        if self._width == width:
            return
        self.drain()
        at_once = self._sorting_bytes // (28 + 6 * width)  # copies of an item, and the bytes that its sort needs
        self._width, self._most = width, max(at_once * width, LEAST_LOG)

    def _note(self, items: np.ndarray, cells: np.ndarray | None) -> None:
        """Log the bytes of a call contiguously: calls of all cells, which need no sort, or events and few of these."""
        self._levels = self._levels + 1 if cells is None else 0
        if self._levels >= FEW_CALLS if self._has_events else cells is not None and len(self._calls) >= FEW_CALLS:
            self.drain()
        most = self._most if self._has_events or cells is not None else self._most_level
        if self._logged + items.nbytes > most:
            self.drain()
        named = None if cells is None else cells.astype(self._index)
        if items.nbytes > most:
            self._move(np.ascontiguousarray(items).reshape(-1), [named])
            return
        self._calls.append(named)
        self._has_events |= cells is not None
        if not len(self._room):
            self._room = np.empty(self._most_level, np.uint8)
        self._room[self._logged : self._logged + items.nbytes].reshape(items.shape)[:] = items
        self._logged += items.nbytes
        if not self._has_events and self._logged >= LEVEL_BYTES:
            filled = int(self._buffers.fill[0]) + len(self._calls) * self._width
            over, rest = divmod(filled % self.ib.block, self._width)
            self.drain(keep=0 if rest else over)

    def drain(self, keep: int = 0) -> None:
        """Move logged calls to the buffers of their cells, and full blocks to superblocks.

        The last calls are kept, which are of all cells: so are those that make no whole blocks.
        """
        upto = max(len(self._calls) - keep, 0)
        if not upto:
            return
        nbytes = self._logged - (len(self._calls) - upto) * self.count * self._width
        self._move(self._room[:nbytes], self._calls[:upto])
        self._room[: self._logged - nbytes] = self._room[nbytes : self._logged]
        self._calls, self._logged, self._has_events = self._calls[upto:], self._logged - nbytes, False

    def _move(self, items: np.ndarray, calls: list[np.ndarray | None]) -> None:
        if not len(items):
            return
        if all(cells is None for cells in calls):
            self._take(self._buffers.push(
                np.arange(self.count), np.full(self.count, len(calls) * self._width),
                side_by_side(items, len(calls), self._width),
            ))  # fmt: skip
            self.lengths += len(calls) * self._width
            return
        everyone = np.arange(self.count, dtype=self._index)
        cells, unit = np.concatenate([everyone if each is None else each for each in calls]), unit_of(self._width)
        units = items.view(UNITS[unit]).reshape(-1, self._width // unit)
        found, counts, values = grouped(cells, units[:, 0] if unit == self._width else units, self.count)
        counts = counts * self._width
        self._take(self._buffers.push(found, counts, values))
        self.lengths[found] += counts

    def _take(self, run: CellBytes) -> None:
        """Move whole blocks to superblocks, and pointers to them to the directory."""
        if not len(run.cells):
            return
        block = self.ib.block
        stride = -(-int(run.counts[0]) // block) * block
        together = len(run.cells) == self.count >= 4 and stride * 8 <= self.ib.superblock  # else a pointer for each
        if together and bool((run.counts == run.counts[0]).all()):
            self._take_level(int(run.counts[0]), stride, run.data)
            return
        lengths = -(-run.counts // block) * block
        of, starts, counts = cut(self.data.end + before(lengths), lengths, self.data.nbytes)
        self.data.append(run.data)
        last = np.concatenate((of[1:] != of[:-1], [True]))
        counts = np.where(last, counts - (lengths - run.counts)[of], counts)
        cells, found = run.cells[of], self.data.place(starts) // block << BITS | counts
        first = np.flatnonzero(np.concatenate(([True], cells[1:] != cells[:-1])))
        self._enter(self._pointers.push(cells[first], np.diff(first, append=len(cells)) * 8, found))

    def _take_level(self, nbytes: int, stride: int, data: np.ndarray) -> None:
        """Move equally many blocks of every cell, whole cells in each superblock, with a level entry for each."""
        cells, counts, places, done = [], [], [], 0
        while done < self.count:
            some = min(self.data.room // stride, self.count - done)
            if not some:
                self.data.append(np.zeros(self.data.room, np.uint8))
                continue
            cells.append(self.lower + done)
            counts.append(some)
            places.append(self.data.place(self.data.end))
            self.data.append(data[done * stride : (done + some) * stride])
            done += some
        blocks = np.array(places) // self.ib.block
        entries = level_entries(np.array(cells), np.array(counts), blocks, nbytes, self.ib.pointers)
        self.directory.append(entries.view(np.uint8).reshape(-1))

    def _enter(self, run: CellBytes) -> None:
        """Append directory entries of whole blocks of pointers."""
        if not len(run.cells):
            return
        width = 8 * self.ib.pointers
        each = -(-run.counts // width)
        entries = np.empty((int(each.sum()), HEAD + self.ib.pointers), np.int64)
        entries[:, 0] = np.repeat(run.cells + self.lower, each)
        entries[:, 1] = NONE
        entries[:, HEAD:] = run.data.view(np.int64).reshape(-1, self.ib.pointers)
        self.directory.append(entries.view(np.uint8).reshape(-1))

    def flush(self) -> None:
        """Move all buffered data to superblocks, including partial blocks and entries."""
        self.drain()
        self._take(self._buffers.flush())
        self._enter(self._pointers.flush())


Linked = tuple[np.ndarray, np.ndarray, np.ndarray]
"""First entry of each cell, all level entries, and the length of each cell."""


class IndependentSegment:
    """Segment of IB for the cells of some ranks."""

    def __init__(
        self, file: StreamFile, ranks: range, cells: tuple[int, int], ib: Independent, budget: int, *, threads: int
    ) -> None:
        self.file, self.ranks, self.cells, self.ib, self.budget = file, ranks, cells, ib, budget
        self.writers: list[RankWriter] = []
        self.is_there = False
        """Whether it exists in the store."""
        self._had = np.zeros(cells[1] - cells[0], np.int64)
        self._least: int | None = None
        self._reader: Reader | None = None
        self._pool = ThreadPoolExecutor(threads) if threads > 1 and len(ranks) > 1 else None

    def begin(self, meter: Meter, cache: ChunkCache, *, writes: bool) -> None:
        meta, self.is_there = self.file.meta, True
        self._data = self.file.chunks("ib", meter, cache, write=writes)
        self._directory = self.file.chunks("directory", meter, cache, write=writes)
        if meta.ib.block:
            file, mine, ib, view = self.file, slice(*self.cells), meta.ib, Directory(self._directory, meta.ib)

            def kept(name: str) -> np.ndarray:
                return file.kept(name).reshape(-1)[mine]

            self._had = kept("length") if ib.is_linked else view.lengths(meta.cells.count)[mine]
            heads = lru_cache(lambda: (kept("first"), file.kept("level"))) if ib.is_linked else None  # no cycle by self
            self._reader = Reader(self._data, view, self.cells, self._had, heads, self.budget // 4)
        if writes:
            each = min(2**28, self.budget // 2) // max(len(self.ranks), 1)  # bytes of unsorted calls
            place = [(meta.cells.of_rank(rank), (rank, meta.cells.ranks)) for rank in self.ranks]
            self.writers = [RankWriter(c, self.ib, p, self._data, self._directory, each) for c, p in place]

    def lengths(self) -> np.ndarray:
        if not self.writers:
            return self._had
        self._each_writer(RankWriter.drain)
        written: np.ndarray = np.concatenate([writer.lengths for writer in self.writers])
        written += self._had
        return written

    def least(self) -> int:
        """Return the bytes that all streams have in the segment."""
        if self._least is None or self.writers:
            self._least = int(self.lengths().min()) if len(self._had) else 0
        return self._least

    @property
    def reader(self) -> Reader:
        if self._reader is None:
            self._each_writer(RankWriter.flush)
            meta = self.file.meta
            facts = WriterFacts(meta.nb, meta.cb, self.ib, self.ends())
            view = Directory(self._directory, committed(meta, [facts]).ib)
            self._reader = Reader(self._data, view, self.cells, self.lengths(), None, self.budget // 4)
        return self._reader

    def at(self, offset: int) -> CellBlocks | None:
        """Return the mapped blocks that hold a byte of all streams; None if there are none, or they are not local."""
        levels = self.reader.levels if self._data.is_local else None
        return None if levels is None else levels.at(offset)

    def read(self, cells: np.ndarray, part: Part, out: np.ndarray) -> None:
        self.reader.read(cells, part, out)

    def ends(self) -> tuple[tuple[int, tuple[int, int]], ...]:
        return tuple((rank, writer.ends) for rank, writer in zip(self.ranks, self.writers, strict=False))

    def append(self, call: Call) -> None:
        self._reader = None
        shift = self.cells[0] if isinstance(call, Level) else 0
        self._each_writer(lambda writer: writer.append(of_cells(call, writer.lower - shift, writer.upper - shift)))

    def _each_writer(self, act: Callable[[RankWriter], None]) -> None:
        if self._pool is None:
            for writer in self.writers:
                act(writer)
        else:
            list(self._pool.map(act, self.writers))

    def change(self, cells: np.ndarray, part: Part, data: np.ndarray) -> None:
        self._data.change(self.reader.pieces(cells, part), data)

    def settle(self) -> None:
        if self.writers:
            self._each_writer(RankWriter.flush)
            self._data.settle()
            self._directory.settle()

    def link(self, ib: Independent) -> Linked:
        """Link the directory settled by all ranks; return first and level entries, and the length of each cell."""
        return *Directory(self._directory, ib).link(self.file.meta.cells.count), self.lengths()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
