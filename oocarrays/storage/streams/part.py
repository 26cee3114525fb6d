"""Streams of the cells of some ranks in one process: their segments, positions and writes.

write ──► at the end?   ──► append in the mode agreed on by all ranks
          before it?    ──► replace existing bytes, segment by segment, and append the rest
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocarrays.mapping.grid import ceil_div
from oocarrays.plan.streams.buffers import Chunking, Part, segments
from oocarrays.plan.streams.calls import MODES, Call, CellBytes, Level, Mode, Prepared, write_mode
from oocarrays.plan.streams.meta import Meta, WriterFacts, check_budget, independent
from oocarrays.plan.streams.units import before, copy_runs
from oocarrays.storage.meter import Meter
from oocarrays.storage.streams.independent import IndependentSegment, Linked
from oocarrays.storage.streams.raw import CellBlocks, RowSegment, chunk_cache
from oocarrays.storage.streams.stream_file import StreamFile


class RanksPart:
    """Streams of some ranks."""

    def __init__(
        self, file: StreamFile, ranks: range, budget: int, *, writes: bool, asked: dict[str, int] | None = None,
        threads: int = 1,
    ) -> None:  # fmt: skip
        self.file, self.ranks, self.budget, self.writes = file, ranks, budget, writes
        self.meter = Meter()
        meta, asked = file.meta, asked or {}
        self.lower = meta.cells.of_rank(ranks.start)[0]
        self.upper = meta.cells.of_rank(ranks.stop - 1)[1] if len(ranks) else self.lower
        self.count = self.upper - self.lower
        self.item = meta.item
        ib = meta.ib if meta.ib.block else independent(self.count, self.item.itemsize, budget, asked)
        check_budget(meta, self.count, len(ranks), budget, writes=writes)
        self.position: int | np.ndarray | None = None if writes else 0
        self.appends = False  # mode "a": each write appends to the streams that it names
        self.begun: Mode | None = None
        self.mode: Mode = "IB" if meta.ib.block else "CB" if meta.cb.block else "NB"
        self._cache = chunk_cache(budget // 8)
        cells = self.lower, self.upper
        self.nb, self.cb = RowSegment(meta.nb, 0, cells), RowSegment(meta.cb, asked.get("cb_block", 64), cells)
        self.ib = IndependentSegment(file, ranks, cells, ib, budget, threads=threads)
        self.segments: tuple[RowSegment | IndependentSegment, ...] = self.nb, self.cb, self.ib
        for mode, block in zip(MODES, (meta.nb.block, meta.cb.block, meta.ib.block), strict=True):
            if block:
                self._attach(mode, block)

    def _attach(self, mode: Mode, block: int) -> None:
        if mode == "IB":
            self.ib.begin(self.meter, self._cache, writes=self.writes)
            return
        segment, cells = self.nb if mode == "NB" else self.cb, self.file.meta.cells
        segment.block = block
        steps = self.file.steps(self.meter, self.budget, self._cache)
        if steps is not None:
            segment.begin(steps, Chunking(block, 1, max(cells.count, 1), 1))
            return
        width = cells.chunk_rows * max(cells.inner, 1)
        columns = max(ceil_div(cells.count, width), 1)
        chunks = self.file.chunks(mode.lower(), self.meter, self._cache, write=self.writes, columns=columns)
        segment.begin(chunks, Chunking(block, chunks.nbytes // (width * block), width, columns))

    def begin(self, mode: Mode, nbytes: int, dtype: Any) -> None:
        self.begun = mode
        if mode == "NB" and not self.nb.block:
            self.file.make_rows("nb", nbytes, dtype, self._most_gathered)
        elif mode == "CB" and not self.cb.is_there:
            fits = self.nb.nbytes % self.item.itemsize == 0
            self.file.make_rows("cb", self.cb.block, self.item if fits else "u1", self._most_gathered)
        elif mode == "IB" and self.mode != "IB":
            self.file.make_independent(self.ib.ib)

    @property
    def _most_gathered(self) -> int:
        """Maximum bytes of a chunk of rows; each column of cells holds one such chunk in each of two segments."""
        cells = self.file.meta.cells
        columns = ceil_div(self.count, max(cells.chunk_rows * cells.inner, 1))
        return self.budget // 8 // max(columns, 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis of its cells, a part of the file's first axis."""
        cells = self.file.meta.cells
        if len(self.ranks) == cells.ranks:
            return cells.shape
        return (self.count // max(cells.inner, 1), *cells.shape[1:]) if cells.shape else ()

    @property
    def cb_end(self) -> int:
        return self.nb.nbytes + self.cb.nbytes

    def ends(self) -> np.ndarray:
        return self.ib.lengths() + self.cb_end

    def end_of(self, cell: int) -> int:
        return int(self.ib.lengths()[cell]) + self.cb_end

    def level_end(self) -> int:
        """Return the bytes that all streams have."""
        return self.cb_end + self.ib.least()

    def tell(self) -> np.ndarray:
        if self.position is None:
            return self.ends()
        return np.broadcast_to(np.asarray(self.position, np.int64), (self.count,)).copy()

    def is_at_end(self) -> bool:
        """Return whether all streams are at their ends, and cache a positive answer."""
        if self.position is not None and bool((self.tell() == self.ends()).all()):
            self.position = None
        return self.position is None

    def goes_to_ends(self) -> bool:
        return self.is_at_end() or self.appends

    def prepared(self, call: Call, dtype: np.dtype) -> Prepared:
        """Return a write as far as these cells determine it."""
        appends = self.goes_to_ends()
        if not isinstance(call, Level):
            return Prepared("IB", -1, dtype, appends, self.begun)
        mode = write_mode(self.mode, call.nbytes, call.is_contiguous, self.nb.block)
        # ranks at the end append by themselves if others are not
        return Prepared(mode if appends else "IB", call.nbytes, dtype, appends, self.begun)

    def write(self, call: Call, mode: Mode) -> None:
        if self.is_at_end():
            self._append(call, mode)
        elif self.appends:  # regardless of positions; streams that the call does not name keep theirs
            position, self.position = self.tell(), None
            self._append(call, mode)
            if not isinstance(call, Level):
                cells = call.cells - self.lower
                position[cells] = self.ends()[cells]
                self.position = position
        else:
            self._replace(call)

    def _append(self, call: Call, mode: Mode) -> None:
        if isinstance(call, Level) and not call.nbytes:
            return
        self.mode = mode
        if isinstance(call, Level) and mode != "IB":
            segment = self.nb if mode == "NB" else self.cb
            if not segment.is_there:
                self._attach(mode, segment.block or call.nbytes)
            segment.append(call.rows)
            return
        if not self.ib.writers:
            self.cb.release()
            self._attach("IB", 0)
        self.ib.append(call)

    def _replace(self, call: Call) -> None:
        """Write at the positions: replace existing bytes, and append those beyond the ends."""
        if isinstance(call, Level) and call.is_contiguous and isinstance(self.position, int):
            row = self.row_at(self.position, call.nbytes)
            if row is not None:
                self.nb.replace(row, call.rows.reshape(-1))
                self.position += call.nbytes
                return
        runs, position = call.as_runs(self.lower), self.tell()
        cells = runs.cells - self.lower
        ends = self.ends()[cells]
        *parts, beyond = segments(position[cells], runs.counts, self.nb.nbytes, self.cb_end, ends)
        for segment, part in zip(self.segments, parts, strict=True):
            if part[1].any():
                segment.change(cells, part, runs.data)
        if beyond[1].any():
            self._append_beyond(runs, beyond)
        position[cells] += runs.counts
        self.position = position

    def row_at(self, offset: int, nbytes: int) -> int | None:
        """Return the number of the row of NB that bytes of all streams are; None if they are not a row."""
        is_row = nbytes and nbytes == self.nb.block and not offset % nbytes and offset + nbytes <= self.nb.nbytes
        return offset // nbytes if is_row else None

    def _append_beyond(self, runs: CellBytes, beyond: Part) -> None:
        """Append the bytes beyond the ends, after zeros in gaps, in the fastest possible mode."""
        some = np.flatnonzero(beyond[1])
        gaps, counts, at = (each[some] for each in beyond)
        total = gaps + counts
        data = np.zeros(int(total.sum()), np.uint8)
        copy_runs(data, before(total) + gaps, np.ascontiguousarray(runs.data), at, counts)
        call: Call = CellBytes(cells=runs.cells[some], counts=total, data=data)
        mode: Mode = "IB"
        count = int(total[0])
        if len(some) == self.count == self.file.meta.cells.count and bool((total == count).all()):
            call = Level(values=data.reshape(self.count, count), nbytes=count, is_contiguous=True)
            mode = write_mode(self.mode, count, True, self.nb.block)
        self.begin(mode, count, self.item)
        self._append(call, mode)

    def at(self, offset: int) -> CellBlocks | None:
        """Return the blocks that hold a byte of all streams; None if they are scattered."""
        starts = zip(self.segments, (0, self.nb.nbytes, self.cb_end), strict=True)
        *_, (segment, start) = (each for each in starts if offset >= each[1])
        found = segment.at(offset - start)
        return None if found is None else CellBlocks(found.lower + start, found.upper + start, found.parts)

    def fetch(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return bytes of ascending cells from their segments, one cell after the other; the bytes must exist."""
        out = np.empty(int(counts.sum()), np.uint8)
        if self.ib.is_there and len(cells) and int(offsets.min()) >= self.cb_end:
            self.ib.read(cells, (offsets - self.cb_end, counts, before(counts)), out)
            return out
        everything = np.full(len(cells), np.iinfo(np.int64).max)
        *parts, _ = segments(offsets, counts, self.nb.nbytes, self.cb_end, everything)
        for segment, part in zip(self.segments, parts, strict=True):
            if part[1].any():
                segment.read(cells, part, out)
        return out

    def settle(self) -> list[WriterFacts]:
        if self.writes:
            for segment in self.segments:
                segment.settle()
        return [WriterFacts(self.nb.regular, self.cb.regular, self.ib.ib, self.ib.ends())]

    def link(self, meta: Meta) -> Linked:
        return self.ib.link(meta.ib)

    def end(self) -> None:
        self.ib.close()
