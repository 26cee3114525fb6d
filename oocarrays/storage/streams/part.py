"""Streams of the cells of some ranks in one process: writes, reads and positions.

write ──► at the end?   ──► append in the mode agreed on by all ranks
          before it?    ──► replace existing bytes, segment by segment, and append the rest
read  ──► whole rows of NB directly, anything else with read-ahead
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from oocarrays.plan.streams.buffers import Chunking, segments
from oocarrays.plan.streams.calls import Call, CellBytes, Events, Level, Mode, ModeAnswer, read_mode, write_mode
from oocarrays.plan.streams.meta import Meta, Regular, WriterFacts, check_budget, independent
from oocarrays.plan.streams.units import before, copy_runs
from oocarrays.storage.meter import Meter
from oocarrays.storage.streams.raw import RawChunks, chunk_cache
from oocarrays.storage.streams.readahead import ReadAhead
from oocarrays.storage.streams.rows import CellBlocks, Rows
from oocarrays.storage.streams.segments import CommonSegment, IndependentSegment, Linked
from oocarrays.storage.streams.stream_file import StreamFile


class RanksPart:
    """Streams of some ranks."""

    def __init__(
        self, file: StreamFile, ranks: range, budget: int, *, writes: bool, asked: dict[str, int] | None = None,
        threads: int = 1,
    ) -> None:  # fmt: skip
        self.file = file
        self.ranks = ranks
        self.writes = writes
        self.meter = Meter()
        meta = file.meta
        self.lower = meta.cells.of_rank(ranks.start)[0]
        self.upper = meta.cells.of_rank(ranks.stop - 1)[1] if len(ranks) else self.lower
        self.count = self.upper - self.lower
        self.item = meta.item
        self.asked = asked or {}
        ib = meta.ib if meta.ib.block else independent(self.count, self.item.itemsize, budget, self.asked)
        check_budget(meta, self.count, len(ranks), budget, writes=writes)
        self.budget = budget
        self.position: int | np.ndarray | None = None if writes else 0
        self.appends = False  # mode "a": each write appends to the streams that it names
        self.begun: Mode | None = None
        self.mode: Mode = "IB" if meta.ib.block else "CB" if meta.cb.block else "NB"
        self._cache = chunk_cache(budget // 8)
        self._nb: Rows | None = None
        self.nb_block = meta.nb.block
        self.common = CommonSegment(meta.cb.block or self.asked.get("cb_block", 64), meta.cb.nbytes, writes=writes)
        self.apart = IndependentSegment(file, ranks, ib, budget, threads=threads)
        self.ahead = ReadAhead(self)
        self._open()

    def _open(self) -> None:
        meta = self.file.meta
        if meta.nb.block:
            self._nb = self._rows("nb", meta.nb.block, meta.nb.nbytes // meta.nb.block)
        if meta.cb.block:
            self._begin_common()
        if meta.ib.block:
            self._begin_apart()

    # ------------------------------------------------------------------ segments

    def _rows(self, name: str, block: int, count: int) -> Rows:
        steps = self.file.steps(self.meter, self.budget, self._cache)
        if steps is not None:
            width = max(self.file.meta.cells.count, 1)
            return Rows(steps, Chunking(block, 1, width, 1), (self.lower, self.upper), count, writes=self.writes)
        array, cells = self.file.array(name, write=self.writes), self.file.meta.cells
        width = cells.chunk_rows * max(cells.inner, 1)
        chunking = Chunking(block, array.chunks[0], width, max(-(-cells.count // width), 1))
        index = partial(_row_index, chunking.columns, array.ndim)
        chunks = RawChunks.of_array(array, index, chunking.nbytes, self.meter, self._cache)
        return Rows(chunks, chunking, (self.lower, self.upper), count, writes=self.writes)

    def _begin_common(self) -> None:
        self.common.begin(self._rows("cb", self.common.block, self.common.nbytes // self.common.block), self.count)

    def _begin_apart(self) -> None:
        self.apart.begin(self.meter, self._cache, writes=self.writes)

    def begin(self, mode: Mode, nbytes: int, dtype: Any) -> None:
        """Create the arrays of a mode in the store; call it in one process only."""
        self.begun = mode
        if mode == "NB" and not self.nb_block:
            self.file.make_rows("nb", nbytes, dtype, self._most_gathered)
        elif mode == "CB" and self.common.rows is None:
            fits = self.nb_end % self.item.itemsize == 0
            self.file.make_rows("cb", self.common.block, self.item if fits else "u1", self._most_gathered)
        elif mode == "IB" and self.mode != "IB":
            self.file.make_independent(self.apart.ib)

    @property
    def _most_gathered(self) -> int:
        """Maximum bytes of a chunk of rows; each column of cells holds one such chunk in each of two segments."""
        cells = self.file.meta.cells
        columns = -(-self.count // max(cells.chunk_rows * cells.inner, 1))
        return self.budget // 8 // max(columns, 1)

    def _enter(self, mode: Mode, nbytes: int) -> None:
        """Switch to the mode of an appending call."""
        if mode == "NB" and self._nb is None:
            self.nb_block = nbytes
            self._nb = self._rows("nb", nbytes, 0)
        elif mode == "CB" and self.common.rows is None:
            self._begin_common()
        elif mode == "IB" and not self.apart.writers:
            self._begin_apart()
        self.mode = mode

    # ------------------------------------------------------------------ contents

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis of its cells, a part of the file's first axis."""
        cells = self.file.meta.cells
        if len(self.ranks) == cells.ranks:
            return cells.shape
        return (self.count // max(cells.inner, 1), *cells.shape[1:]) if cells.shape else ()

    @property
    def nb_end(self) -> int:
        return self._nb.count * self.nb_block if self._nb is not None else 0

    @property
    def cb_end(self) -> int:
        """Bytes of each stream in NB and CB."""
        return self.nb_end + self.common.nbytes

    def ends(self) -> np.ndarray:
        """Return the bytes of each stream."""
        return self.apart.lengths() + self.cb_end

    def end_of(self, cell: int) -> int:
        """Return the bytes of one stream."""
        return int(self.apart.lengths()[cell]) + self.cb_end

    def level_end(self) -> int:
        """Return the bytes that all streams have."""
        return self.cb_end + self.apart.least()

    def tell(self) -> np.ndarray:
        """Return the position of each stream."""
        if self.position is None:
            return self.ends()
        return np.broadcast_to(np.asarray(self.position, np.int64), (self.count,)).copy()

    # ------------------------------------------------------------------ writing

    def found(self, call: Call) -> ModeAnswer:
        """Return the mode of a write as far as these cells determine it."""
        if not isinstance(call, Level):
            return ModeAnswer("IB", -1, False)
        if self.position is not None and not self.appends:
            return ModeAnswer("IB", call.nbytes, True)  # ranks at the end append by themselves if others are not
        mode = write_mode(self.mode, call.nbytes, True, call.is_contiguous, self.nb_block)
        return ModeAnswer(mode, call.nbytes, True)

    def is_at_end(self) -> bool:
        """Return whether all streams are at their ends, and cache a positive answer."""
        if self.position is not None and bool((self.tell() == self.ends()).all()):
            self.position = None
        return self.position is None

    def goes_to_ends(self) -> bool:
        """Return whether the next write only appends."""
        return self.is_at_end() or self.appends

    def write(self, call: Call, mode: Mode) -> None:
        """Write a call, in the mode agreed on by all ranks."""
        if self.is_at_end():
            self._append(call, mode)
        elif self.appends:
            self._append_from(self.tell(), call, mode)
        else:
            self._replace(call)

    def _append_from(self, position: np.ndarray, call: Call, mode: Mode) -> None:
        """Append regardless of positions; streams that the call does not name keep theirs."""
        self.position = None
        self._append(call, mode)
        if not isinstance(call, Level):
            cells = call.cells - self.lower
            position[cells] = self.ends()[cells]
            self.position = position

    def _append(self, call: Call, mode: Mode) -> None:
        if isinstance(call, Level) and not call.nbytes:
            return
        self._enter(mode, call.nbytes if isinstance(call, Level) else 0)
        self._discard()
        if mode == "NB" and self._nb is not None and isinstance(call, Level):
            self._nb.append(call.values.reshape(-1).view(np.uint8))
        elif mode == "CB" and isinstance(call, Level):
            self.common.append(call.rows)
        else:
            self.apart.append(call)

    def _replace(self, call: Call) -> None:
        """Write at the positions: replace existing bytes, and append those beyond the ends."""
        if isinstance(call, Level) and isinstance(self.position, int) and self._replace_row(call, self.position):
            return
        runs = call.as_runs() if isinstance(call, Events) else call
        if isinstance(runs, Level):
            everyone = np.arange(self.lower, self.upper)
            counts = np.full(self.count, runs.nbytes)
            runs = CellBytes(cells=everyone, counts=counts, data=runs.rows.reshape(-1))
        position = self.tell()
        self._change(runs, position[runs.cells - self.lower])
        position[runs.cells - self.lower] += runs.counts
        self.position = position

    def _replace_row(self, call: Level, offset: int) -> bool:
        """Replace one whole row of NB directly from the values; return whether that was possible."""
        if self._nb is None or not call.is_contiguous or call.nbytes != self.nb_block:
            return False
        if read_mode(offset, call.nbytes, self.nb_block, self.nb_end, self.cb_end) != "NB":
            return False
        self._discard()
        self._nb.replace(offset // self.nb_block, call.values.reshape(-1).view(np.uint8))
        self.position = offset + call.nbytes
        return True

    def _change(self, runs: CellBytes, offsets: np.ndarray) -> None:
        cells = runs.cells - self.lower
        ends = self.ends()[cells]
        parts = segments(offsets, runs.counts, self.nb_end, self.cb_end, ends)
        self._discard()
        if parts.nb[1].any() and self._nb is not None:
            self._nb.change(runs.cells, parts.nb, runs.data)
        if parts.cb[1].any():
            self.common.change(runs.cells, parts.cb, runs.data)
        if parts.ib[1].any():
            self.apart.change(cells, parts.ib, runs.data)
        if parts.beyond[1].any():
            self._append_beyond(runs, parts.beyond)

    def _append_beyond(self, runs: CellBytes, beyond: tuple[np.ndarray, ...]) -> None:
        """Append the bytes beyond the ends of streams, with zeros in gaps."""
        some = np.flatnonzero(beyond[1])
        gaps, counts, at = (each[some] for each in beyond)
        total = gaps + counts
        data = np.zeros(int(total.sum()), np.uint8)
        copy_runs(data, before(total) + gaps, np.ascontiguousarray(runs.data), at, counts)
        self._grow(CellBytes(cells=runs.cells[some], counts=total, data=data))

    def _grow(self, runs: CellBytes) -> None:
        """Append runs in the fastest possible mode."""
        count = int(runs.counts[0]) if len(runs.counts) else 0
        level = len(runs.cells) == self.count == self.file.meta.cells.count and bool((runs.counts == count).all())
        call: Call = (
            Level(values=runs.data.reshape(self.count, count), nbytes=count, is_contiguous=True) if level else runs
        )
        mode = write_mode(self.mode, count if level else -1, level, True, self.nb_block)
        self.begin(mode, count, self.item)
        self._append(call, mode)

    # ------------------------------------------------------------------ reading

    def _discard(self) -> None:
        """Discard cached reads, because the file has changed."""
        self.ahead.discard()
        self.apart.discard()

    def read_level(self, offset: int, nbytes: int) -> np.ndarray:
        """Return the same bytes of all streams, a row for each cell; the bytes must exist."""
        mode = read_mode(offset, nbytes, self.nb_block, self.nb_end, self.cb_end)
        if mode == "NB" and self._nb is not None and nbytes == self.nb_block:
            out = np.empty((self.count, nbytes), np.uint8)
            self._nb.read_row(offset // nbytes, out.reshape(-1))
            return out
        self.common.settle()
        if not nbytes:
            return np.empty((self.count, 0), np.uint8)
        end = self.cb_end if offset < self.cb_end else self.level_end()  # without access to IB if possible
        return self.ahead.level(offset, nbytes, end)

    def blocks_at(self, offset: int) -> CellBlocks | None:
        """Return the blocks that hold a byte of all streams; None if they are scattered."""
        if self._nb is not None and offset < self.nb_end:
            return self._nb.blocks(offset // self.nb_block, 0)
        if self.common.rows is not None and offset < self.cb_end:
            blocks = self.common.rows.blocks((offset - self.nb_end) // self.common.block, self.nb_end)
            return blocks._replace(upper=min(blocks.upper, self.cb_end))  # the last row may be partial
        return self.apart.blocks_at(offset - self.cb_end, self.cb_end)

    def read(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return bytes of ascending cells, with read-ahead, one cell after the other; the bytes must exist."""
        return (self.ahead.read if self.count > 1 else self.fetch)(cells, offsets, counts)

    def fetch(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return bytes of ascending cells from their segments, one cell after the other; the bytes must exist."""
        if len(cells) and int(offsets.min()) >= self.cb_end and self.apart.is_there:
            return self.apart.reader.read(cells, offsets - self.cb_end, counts)
        within = np.iinfo(np.int64).max
        parts = segments(offsets, counts, self.nb_end, self.cb_end, np.full(len(cells), within))
        out = np.empty(int(counts.sum()), np.uint8)
        if self._nb is not None and parts.nb[1].any():
            self._nb.read(cells + self.lower, parts.nb, out)
        if self.common.rows is not None and parts.cb[1].any():
            self.common.settle()
            self.common.rows.read(cells + self.lower, parts.cb, out)
        if parts.ib[1].any():
            self._read_ib(cells, parts.ib, out)
        return out

    def _read_ib(self, cells: np.ndarray, part: tuple[np.ndarray, ...], out: np.ndarray) -> None:
        some = np.flatnonzero(part[1])
        offsets, counts, into = (each[some] for each in part)
        data = self.apart.reader.read(cells[some], offsets, counts)
        if len(data) == len(out):
            out[:] = data
            return
        copy_runs(out, into, data, before(counts), counts)

    # ------------------------------------------------------------------ flushing

    def settle(self) -> list[WriterFacts]:
        """Write all buffered data to the store, and return the resulting sizes."""
        if self._nb is not None and self.writes:
            self._nb.settle()
        self.common.settle()
        self.apart.settle()
        nb, cb = (
            Regular(block=block if nbytes else 0, nbytes=nbytes)
            for block, nbytes in ((self.nb_block, self.nb_end), (self.common.block, self.common.nbytes))
        )
        ends = tuple((rank, writer.ends) for rank, writer in zip(self.ranks, self.apart.writers, strict=False))
        return [WriterFacts(nb, cb, self.apart.ib, ends)]

    def link(self, meta: Meta) -> Linked:
        """Link the directory of a file whose ranks have settled."""
        return self.apart.link(meta.ib)

    def end(self) -> None:
        """End the threads of the ranks."""
        self.apart.close()


def _row_index(columns: int, ndim: int, number: int) -> tuple[int, ...]:
    """Return the index of a chunk of rows; cells are split along their first axis only."""
    row, column = divmod(number, columns)
    return (row, column, *(0,) * (ndim - 2)) if ndim > 1 else (row,)
