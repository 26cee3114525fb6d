"""Segments of a stream file for the cells of some ranks in one process.

CB   calls ──► buffers of all cells, full together ──► rows
IB   calls ──► a writer for each rank ──► superblocks and their directory; one reader for those of all ranks
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from oocarrays.plan.streams.calls import Call, Events, Level, of_cells
from oocarrays.plan.streams.meta import Independent
from oocarrays.plan.streams.units import UNITS, before, side_by_side, unit_of
from oocarrays.storage.meter import Meter
from oocarrays.storage.streams.directories import Directory, Heads, Reader
from oocarrays.storage.streams.independent import RankWriter
from oocarrays.storage.streams.raw import ChunkCache, RawChunks
from oocarrays.storage.streams.rows import CellBlocks, Rows
from oocarrays.storage.streams.stream_file import StreamFile

Linked = tuple[np.ndarray, np.ndarray, np.ndarray]
"""First entry of each cell, all level entries, and the length of each cell."""


class CommonSegment:
    """Segment of CB for some cells."""

    def __init__(self, block: int, nbytes: int, *, writes: bool) -> None:
        self.block, self.nbytes = block, nbytes
        self.rows: Rows | None = None
        """Rows in the store; None while the segment does not exist."""
        self.buffer = np.empty((0, 0), np.uint8)
        """Next bytes of each cell, not yet a full row."""
        self._width = 0
        """Bytes of each cell in a call, while the buffers hold one call after the other; 0 while each cell has its
        own."""
        self._writes = writes
        self._is_settled = True

    def begin(self, rows: Rows, cells: int) -> None:
        """Attach to an existing or new segment of ``cells`` cells."""
        self.rows, self.buffer = rows, np.zeros((cells, self.block), np.uint8)
        self._fill()

    def _fill(self) -> None:
        """Load the partial row into the buffers."""
        self._width = 0
        if self.nbytes % self.block and len(self.buffer):
            self._row.read_row(self._row.count, self.buffer.reshape(-1))

    @property
    def _row(self) -> Rows:
        assert self.rows is not None, "the segment has been begun"
        return self.rows

    def append(self, values: np.ndarray) -> None:
        """Fill the buffers of all cells, and write each full row to the store.

        Calls that together fill a block are kept in call order, and transposed when it is full. A few bytes in the
        buffer of each cell would use a cache line each.
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
        """Distribute buffered calls to the buffers of their cells."""
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
        """Replace bytes of some cells, after writing the buffers; then load the buffers again."""
        self.settle()
        self._row.change(cells, (part[0], part[1], part[2]), data)
        self._fill()
        self._is_settled = False

    def settle(self) -> None:
        """Write the buffers to the store."""
        if self.rows is not None and self._writes and not self._is_settled:
            self._deal_out()
            self.rows.settle(self.buffer.reshape(-1) if self.nbytes % self.block else None)
            self._is_settled = True


class IndependentSegment:
    """Segment of IB for the cells of some ranks."""

    def __init__(self, file: StreamFile, ranks: range, ib: Independent, budget: int, *, threads: int) -> None:
        cells = file.meta.cells
        self.file, self.ranks, self.ib, self.budget = file, ranks, ib, budget
        self.lower = cells.of_rank(ranks.start)[0]
        self.upper = cells.of_rank(ranks.stop - 1)[1] if len(ranks) else self.lower
        self.count = self.upper - self.lower
        self.writers: list[RankWriter] = []
        self._had: np.ndarray | None = None
        self._least: int | None = None
        self._reader: Reader | None = None
        self._pool = ThreadPoolExecutor(threads) if threads > 1 and len(ranks) > 1 else None

    def begin(self, meter: Meter, cache: ChunkCache, *, writes: bool) -> None:
        """Attach to an existing or new segment."""
        meta = self.file.meta
        data = self.file.array("ib", write=writes)
        self._data = RawChunks.of_array(data, lambda number: (number, 0), self.ib.superblock, meter, cache)
        self._directory = self.file.directory(meter, cache, write=writes)
        if meta.ib.block:
            self._open(meta.ib)
        if writes:
            each = min(2**28, self.budget // 2) // max(len(self.ranks), 1)  # bytes of unsorted calls
            place = [(meta.cells.of_rank(rank), (rank, meta.cells.ranks)) for rank in self.ranks]
            self.writers = [RankWriter(c, self.ib, p, self._data, self._directory, each) for c, p in place]

    def _open(self, ib: Independent) -> None:
        """Read the lengths of the cells of an existing segment."""
        view = Directory(self._directory, ib)
        file, mine = self.file, slice(self.lower, self.upper)

        def kept(name: str) -> np.ndarray:
            """Return the values of this process's cells in an array of all cells."""
            return file.kept(name).reshape(-1)[mine]

        self._had = kept("length") if ib.is_linked else view.lengths(file.meta.cells.count)[mine]
        heads = (lambda: (kept("first"), file.kept("level"))) if ib.is_linked else None  # without a cycle through self
        self._reader = self._reading(view, self._had, heads)

    def _reading(self, view: Directory, lengths: np.ndarray, heads: Callable[[], Heads] | None) -> Reader:
        return Reader(self._data, view, (self.lower, self.upper), lengths, heads, self.budget // 4)

    # ------------------------------------------------------------------ contents

    @property
    def is_there(self) -> bool:
        return bool(self.writers) or self._had is not None

    def lengths(self) -> np.ndarray:
        """Return the bytes of each stream in the segment."""
        if not self.writers:
            return self._had if self._had is not None else np.zeros(self.count, np.int64)
        self._each_writer(RankWriter.drain)
        written = np.concatenate([writer.lengths for writer in self.writers])
        return written if self._had is None else written + self._had

    def least(self) -> int:
        """Return the bytes that all streams have in the segment."""
        if not self.is_there or not self.count:
            return 0
        if self._least is None or self.writers:
            self._least = int(self.lengths().min())
        return self._least

    @property
    def reader(self) -> Reader:
        if self._reader is None:
            assert self.writers, "there is a segment"
            self.settle()
            self._reader = self._reading(Directory(self._directory, self.written()), self.lengths(), None)
        return self._reader

    def blocks_at(self, offset: int, preceding: int) -> CellBlocks | None:
        """Return the local blocks that hold a byte of all streams; None if no such blocks exist.

        ``preceding`` bytes of each stream are in other segments. Local blocks are memory-mapped; those of other stores
        are better read all together.
        """
        levels = self.reader.levels if self._data.is_local else None
        blocks = None if levels is None else levels.at(offset)
        return None if blocks is None else CellBlocks(blocks.lower + preceding, blocks.upper + preceding, blocks.parts)

    def written(self) -> Independent:
        """Return the segment as written by the ranks of this process, with all entries of their cells."""
        ranks = self.file.meta.cells.ranks
        ends = dict(zip(self.ranks, (writer.ends for writer in self.writers), strict=True))
        return replace(
            self.ib, ranks=ranks, ends=tuple(ends.get(rank, (0, 0)) for rank in range(ranks)), is_linked=False
        )

    def discard(self) -> None:
        """Discard the reader, because the file has changed."""
        if self.writers:
            self._reader = None

    # ------------------------------------------------------------------ writing

    def append(self, call: Call) -> None:
        """Append a call, each rank for its own cells."""

        def one(writer: RankWriter) -> None:
            mine = of_cells(call, writer.lower - shift, writer.lower + writer.count - shift)
            if isinstance(mine, Level):
                writer.append_level(mine.rows)
            elif isinstance(mine, Events):
                writer.append_events(mine.cells, mine.items)
            else:
                writer.append_runs(mine.cells, mine.counts, mine.data)

        shift = self.lower if isinstance(call, Level) else 0
        self._each_writer(one)

    def _each_writer(self, act: Callable[[RankWriter], None]) -> None:
        if self._pool is None:
            for writer in self.writers:
                act(writer)
        else:
            list(self._pool.map(act, self.writers))

    def change(self, cells: np.ndarray, part: tuple[np.ndarray, ...], data: np.ndarray) -> None:
        """Replace bytes of some cells of this process."""
        self.settle()
        some = np.flatnonzero(part[1])
        offsets, counts, at = (each[some] for each in part)
        pieces = self.reader.pieces(cells[some], offsets, counts)
        shift = at - before(counts)
        of = np.searchsorted(np.cumsum(counts), pieces.into, side="right")
        self._data.change(pieces._replace(into=pieces.into + shift[of]), data)
        for writer in self.writers:
            writer.data.changed()
        self.discard()

    def settle(self) -> None:
        """Write all buffered data to the store."""
        self._each_writer(RankWriter.settle)

    def link(self, ib: Independent) -> Linked:
        """Link the directory settled by all ranks; return first and level entries, and the length of each cell."""
        return *Directory(self._directory, ib).link(self.file.meta.cells.count), self.lengths()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
