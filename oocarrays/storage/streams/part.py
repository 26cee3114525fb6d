"""The streams of the cells of some ranks, in one process: written, read and moved in.

write ──► at the end?   ──► append in the mode that all ranks agreed on
          before it?    ──► replace what is there, segment by segment, and append what goes beyond
read  ──► NB straight from rows, CB from rows in part, IB from the window of the cells
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from oocarrays.plan.streams.calls import Call, CellBytes, Events, Level, of_cells
from oocarrays.plan.streams.meta import (
    CB_BLOCK,
    Independent,
    Meta,
    Regular,
    check_budget,
    independent,
)
from oocarrays.plan.streams.modes import Mode, ModeAnswer, read_mode, write_mode
from oocarrays.plan.streams.places import Chunking, segments
from oocarrays.plan.streams.units import UNITS, copy_runs, unit_of
from oocarrays.storage.meter import Meter
from oocarrays.storage.streams.directories import Directory
from oocarrays.storage.streams.independent import RankWriter
from oocarrays.storage.streams.raw import Cache, RawChunks, Steps
from oocarrays.storage.streams.reading import Reader
from oocarrays.storage.streams.rows import Rows
from oocarrays.storage.streams.stream_file import ArrayStreams, StreamFile

LOG_BYTES = 2**26
"""Bytes that the calls of a process may write in IB before they are sorted, at most."""
LOG_COPIES = 10
"""What sorting holds beside the log, in its bytes."""
Whole = np.ndarray | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterFacts:
    """What a process has done, as the file is to say it."""

    nb: int
    """Bytes of each stream in NB."""
    cb: int
    """Bytes of each stream in CB."""
    ends: tuple[tuple[int, tuple[int, int]], ...]
    """Of its ranks that write in IB, their number, and where they are in data and directory."""
    blocks: tuple[int, int]
    """Bytes of a block of NB and of CB."""
    ib: Independent
    """Blocks of IB."""


class RanksPart:
    """The streams of some ranks.

    Parameters
    ----------
    ranks : range
        The ranks, of those of the file.
    budget : int
        Bytes that may be held.
    asked : dict
        Blocks that are asked for, by the name of what has them.

    Raises
    ------
    BudgetError
        Where the buffers of all cells do not fit.
    """

    def __init__(
        self, file: StreamFile, ranks: range, budget: int, *, writes: bool, asked: dict[str, int] | None = None,
        threads: int = 1, meter: Meter | None = None,
    ) -> None:  # fmt: skip
        self.file = file
        self.ranks = ranks
        self.writes = writes
        self.meter = meter or Meter()
        meta = file.meta
        self.lower = meta.cells.of_rank(ranks.start)[0]
        self.upper = meta.cells.of_rank(ranks.stop - 1)[1] if len(ranks) else self.lower
        self.count = self.upper - self.lower
        self.asked = asked or {}
        self.ib = meta.ib if meta.ib.block else self._chosen(meta.item.itemsize, budget)
        check_budget(meta, self.count, len(ranks), budget, writes=writes)
        self.budget = budget
        self.cb_block = meta.cb.block or self.asked.get("cb_block", CB_BLOCK)
        self.position: int | np.ndarray | None = None if writes else 0
        self.begun: Mode | None = None
        self.mode: Mode = "IB" if meta.ib.block else "CB" if meta.cb.block else "NB"
        self._cache = Cache(budget // 8)
        self._nb: Rows | None = None
        self._cb: Rows | None = None
        self.nb_block, self.cb_bytes = meta.nb.block, meta.cb.nbytes
        self._buffer = np.empty((0, 0), np.uint8)
        self._writers: list[RankWriter] = []
        self._reader: Reader | None = None
        self._had: np.ndarray | None = None
        self._least: int | None = None
        self._row: tuple[Rows, int, np.ndarray] | None = None
        self._pool = ThreadPoolExecutor(threads) if threads > 1 and len(ranks) > 1 else None
        self._open()

    def _chosen(self, itemsize: int, budget: int) -> Independent:
        asked = {name: self.asked[f"ib_{name}"] for name in ("block", "pointers") if f"ib_{name}" in self.asked}
        asked |= {"superblock": self.asked["superblock"]} if "superblock" in self.asked else {}
        return independent(self.count, itemsize, budget, asked)

    def _open(self) -> None:
        """Open the segments that are there."""
        meta = self.file.meta
        if meta.nb.block:
            self._nb = self._rows("nb", meta.nb.block, meta.nb.nbytes // meta.nb.block)
        if meta.cb.block:
            self._begin_cb()
        if meta.ib.block:
            self._begin_ib()

    # ------------------------------------------------------------------ segments

    def _chunking(self, block: int, rows: int) -> Chunking:
        cells = self.file.meta.cells
        width = cells.chunk_rows * max(cells.inner, 1)
        return Chunking(block, rows, width, max(-(-cells.count // width), 1))

    def _rows(self, name: str, block: int, count: int) -> Rows:
        if isinstance(self.file, ArrayStreams):
            steps = Steps(self.file.source, self.file.axis, self.meter, self.budget)
            width = max(self.file.meta.cells.count, 1)
            return Rows(steps, Chunking(block, 1, width, 1), (self.lower, self.upper), count, writes=False)
        array = self.file.array(name, write=self.writes)
        chunking = self._chunking(block, array.chunks[0])
        index = partial(_row_index, chunking.columns, array.ndim)
        chunks = RawChunks(array, index, chunking.nbytes, self.meter, self._cache)
        return Rows(chunks, chunking, (self.lower, self.upper), count, writes=self.writes)

    def _begin_cb(self) -> None:
        block, whole = self.cb_block, self.cb_bytes // self.cb_block
        self._cb = self._rows("cb", block, whole)
        self._buffer = np.zeros((self.count, block), np.uint8)
        if self.cb_bytes % block and self.count:
            self._cb.read_row(whole, self._buffer.reshape(-1))

    def _begin_ib(self) -> None:
        meta = self.file.meta
        data, directory = (self.file.array(name, write=self.writes) for name in ("ib", "directory"))
        words = directory.nbytes // max(directory.shape[0], 1) if directory.shape[0] else 0
        words = words or 8 * directory.shape[1] * directory.shape[2]
        self._data = RawChunks(data, lambda number: (number, 0), self.ib.superblock, self.meter, self._cache)
        self._directory = RawChunks(directory, lambda number: (number, 0, 0), words, self.meter, self._cache, fill=0xFF)
        if meta.ib.block:
            self._know(meta.ib)
        if self.writes:
            log = min(LOG_BYTES, max(self.budget // 2 // LOG_COPIES, 2**16)) // max(len(self.ranks), 1)
            place = [(meta.cells.of_rank(rank), (rank, meta.cells.ranks)) for rank in self.ranks]
            self._writers = [RankWriter(c, self.ib, p, self._data, self._directory, log) for c, p in place]

    def _know(self, ib: Independent) -> None:
        """Look at what is there of IB."""
        view = Directory(self._directory, ib)
        if ib.is_linked:
            first, lengths = self.file.kept_cells()
            first, lengths = first[self.lower : self.upper], lengths[self.lower : self.upper]
        else:
            first, lengths = None, view.lengths(self.file.meta.cells.count)[self.lower : self.upper]
        self._had = lengths
        self._reader = self._reading(view, lengths, first)

    def _reading(self, view: Directory, lengths: np.ndarray, first: Whole) -> Reader:
        return Reader(self._data, view, (self.lower, self.upper), lengths, first, self.budget // 4)

    def begin(self, mode: Mode, nbytes: int, dtype: Any) -> None:
        """Make what a mode needs in the store, which is there only once.

        Parameters
        ----------
        nbytes : int
            Bytes of each cell of the call that asks for it.
        """
        meta, self.begun = self.file.meta, mode
        if mode == "NB" and not self.nb_block:
            self.file.make_rows("nb", nbytes, dtype)
        elif mode == "CB" and self._cb is None:
            fits = self.nb_end % meta.item.itemsize == 0
            self.file.make_rows("cb", self.cb_block, meta.item if fits else "u1")
        elif mode == "IB" and self.mode != "IB":
            self.file.make_independent(self.ib)

    def _enter(self, mode: Mode, nbytes: int) -> None:
        """Go over to the mode of a call that appends."""
        if mode == "NB" and self._nb is None:
            self.nb_block = nbytes
            self._nb = self._rows("nb", nbytes, 0)
        elif mode == "CB" and self._cb is None:
            self._begin_cb()
        elif mode == "IB" and not self._writers:
            self._begin_ib()
        self.mode = mode

    # ------------------------------------------------------------------ what is there

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis of its cells: a part of the file's along the first."""
        cells = self.file.meta.cells
        if len(self.ranks) == cells.ranks:
            return cells.shape
        return (self.count // max(cells.inner, 1), *cells.shape[1:]) if cells.shape else ()

    @property
    def nb_end(self) -> int:
        """Bytes of each stream in NB."""
        return self._nb.count * self.nb_block if self._nb is not None else 0

    @property
    def cb_end(self) -> int:
        """Bytes of each stream in NB and CB."""
        return self.nb_end + self.cb_bytes

    def independent_lengths(self) -> np.ndarray:
        """Bytes of each stream in IB."""
        if not self._writers:
            return self._had if self._had is not None else np.zeros(self.count, np.int64)
        self._each_writer(RankWriter.drain)
        written = np.concatenate([writer.lengths for writer in self._writers])
        return written if self._had is None else written + self._had

    def ends(self) -> np.ndarray:
        """Bytes of each stream."""
        return self.independent_lengths() + self.cb_end

    def end_of(self, cell: int) -> int:
        """Bytes of one stream."""
        return int(self.independent_lengths()[cell]) + self.cb_end

    def level_end(self) -> int:
        """Bytes that all streams have."""
        if not self._writers and self._had is None:
            return self.cb_end
        if self._least is None or self._writers:
            self._least = int(self.independent_lengths().min(initial=np.iinfo(np.int64).max)) if self.count else 0
        return self.cb_end + self._least

    def tell(self) -> np.ndarray:
        """Bytes of each stream before its position."""
        if self.position is None:
            return self.ends()
        return np.broadcast_to(np.asarray(self.position, np.int64), (self.count,)).copy()

    # ------------------------------------------------------------------ writing

    def found(self, call: Call) -> ModeAnswer:
        """Find the mode of a write, as far as these cells can tell."""
        if self.position is not None and isinstance(call, Level):
            return ModeAnswer("IB", call.nbytes, True)  # whoever is at the end beside those who are not appends alone
        return call.found(self.mode, self.nb_block)

    def is_at_end(self) -> bool:
        """Whether all streams stand at their ends; where they do, that is known from then on."""
        if self.position is not None and bool((self.tell() == self.ends()).all()):
            self.position = None
        return self.position is None

    def write(self, call: Call, mode: Mode) -> None:
        """Write what a call says, in the mode that all ranks agreed on."""
        if self.position is None or self.is_at_end():
            self._append(call, mode)
        else:
            self._replace(call)

    def _append(self, call: Call, mode: Mode) -> None:
        if isinstance(call, Level) and not call.nbytes:
            return
        self._enter(mode, call.nbytes if isinstance(call, Level) else 0)
        self._forget()
        if mode == "NB" and self._nb is not None and isinstance(call, Level):
            self._nb.append(call.values.reshape(-1).view(np.uint8))
        elif mode == "CB" and isinstance(call, Level):
            self._append_cb(call.rows)
        else:
            self._append_ib(call)

    def _append_cb(self, rows: np.ndarray) -> None:
        """Fill the buffers of all cells, and send them to the store as a row each time that they are full."""
        assert self._cb is not None
        done, block = 0, self.cb_block
        while done < rows.shape[1]:
            fill = self.cb_bytes % block
            part = rows[:, done : done + block - fill]
            self._buffer[:, fill : fill + part.shape[1]] = part
            self.cb_bytes += part.shape[1]
            done += part.shape[1]
            if not self.cb_bytes % block:
                self._cb.append(self._buffer.reshape(-1))

    def _append_ib(self, call: Call) -> None:
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
            for writer in self._writers:
                act(writer)
        else:
            list(self._pool.map(act, self._writers))

    def _replace(self, call: Call) -> None:
        """Write where streams stand: bytes that are there are replaced, those beyond are appended."""
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
        """Replace one whole row of NB, from where the values are; whether that can be."""
        if self._nb is None or not call.is_contiguous or call.nbytes != self.nb_block:
            return False
        if read_mode(offset, call.nbytes, self.nb_block, self.nb_end, self.cb_end) != "NB":
            return False
        self._row = None
        self._nb.replace(offset // self.nb_block, call.values.reshape(-1).view(np.uint8))
        self.position = offset + call.nbytes
        return True

    def _change(self, runs: CellBytes, offsets: np.ndarray) -> None:
        cells = runs.cells - self.lower
        ends = self.ends()[cells]
        parts = segments(offsets, runs.counts, self.nb_end, self.cb_end, ends)
        self._forget()
        if parts.nb[1].any() and self._nb is not None:
            self._nb.change(runs.cells, parts.nb, runs.data)
        if parts.cb[1].any() and self._cb is not None:
            self._change_cb(runs.cells, parts.cb, runs.data)
        if parts.ib[1].any():
            self._change_ib(cells, parts.ib, runs.data)
        if parts.beyond[1].any():
            self._append_beyond(runs, parts.beyond)

    def _change_cb(self, cells: np.ndarray, part: tuple[np.ndarray, ...], data: np.ndarray) -> None:
        """Replace bytes of CB; those that are in the buffers still are put first, and taken up again."""
        assert self._cb is not None
        self._settle_cb()
        self._cb.change(cells, (part[0], part[1], part[2]), data)
        if self.cb_bytes % self.cb_block and self.count:
            self._cb.read_row(self._cb.count, self._buffer.reshape(-1))

    def _change_ib(self, cells: np.ndarray, part: tuple[np.ndarray, ...], data: np.ndarray) -> None:
        self._settle_ib()
        some = np.flatnonzero(part[1])
        offsets, counts, at = (each[some] for each in part)
        pieces = self.reader.pieces(cells[some], offsets, counts)
        shift = at - (np.cumsum(counts) - counts)
        of = np.searchsorted(np.cumsum(counts), pieces.into, side="right")
        self._data.change(pieces._replace(into=pieces.into + shift[of]), data)
        for writer in self._writers:
            writer.data.changed()
        self._forget()

    def _append_beyond(self, runs: CellBytes, beyond: tuple[np.ndarray, ...]) -> None:
        """Append what lies beyond the ends of streams, with zeros where a stream had been left before."""
        some = np.flatnonzero(beyond[1])
        gaps, counts, at = (each[some] for each in beyond)
        total = gaps + counts
        data = np.zeros(int(total.sum()), np.uint8)
        starts = np.cumsum(total) - total + gaps
        copy_runs(data, starts, np.ascontiguousarray(runs.data), at, counts)
        self._grow(CellBytes(cells=runs.cells[some], counts=total, data=data))

    def _grow(self, runs: CellBytes) -> None:
        """Append runs in the fastest mode that they allow."""
        count = int(runs.counts[0]) if len(runs.counts) else 0
        level = len(runs.cells) == self.count == self.file.meta.cells.count and bool((runs.counts == count).all())
        call: Call = (
            Level(values=runs.data.reshape(self.count, count), nbytes=count, is_contiguous=True) if level else runs
        )
        mode = write_mode(self.mode, count if level else -1, level, True, self.nb_block)
        self.begin(mode, count, self.file.meta.item)
        self._append(call, mode)

    # ------------------------------------------------------------------ reading

    @property
    def reader(self) -> Reader:
        """What reads IB, of all that has been written."""
        if self._reader is None:
            if self._writers:
                self._settle_ib()
                lengths = self.independent_lengths()
                self._reader = self._reading(Directory(self._directory, self.written_ib()), lengths, None)
            else:
                raise AssertionError("no IB segment")
        return self._reader

    def _forget(self) -> None:
        """Forget what was read: the file is another one."""
        self._row = None
        if self._writers:
            self._reader = None

    def written_ib(self) -> Independent:
        """The segment of IB as the ranks of this process have written it: it has all entries of their cells."""
        ranks = self.file.meta.cells.ranks
        ends = dict(zip(self.ranks, (writer.ends for writer in self._writers), strict=True))
        return replace(
            self.ib, ranks=ranks, ends=tuple(ends.get(rank, (0, 0)) for rank in range(ranks)), is_linked=False
        )

    def read_level(self, offset: int, nbytes: int) -> np.ndarray:
        """Return the same bytes of all streams, which have them: a row of bytes for each cell."""
        mode = read_mode(offset, nbytes, self.nb_block, self.nb_end, self.cb_end)
        if mode == "NB" and self._nb is not None and nbytes == self.nb_block:
            out = np.empty((self.count, nbytes), np.uint8)
            self._nb.read_row(offset // nbytes, out.reshape(-1))
            return out
        if offset >= self.cb_end and nbytes:
            return self.reader.level(offset - self.cb_end, nbytes)
        if offset + nbytes <= self.cb_end:
            return self._read_rows(offset, nbytes)
        everyone, counts = np.arange(self.lower, self.upper), np.full(self.count, nbytes)
        return self.read(everyone, np.full(self.count, offset), counts).reshape(self.count, nbytes)

    def _read_rows(self, offset: int, nbytes: int) -> np.ndarray:
        """Copy the same bytes of all cells out of rows of NB and CB, which are read whole."""
        out, done = np.empty((self.count, nbytes), np.uint8), 0
        self._settle_cb()
        while done < nbytes:
            in_nb = offset + done < self.nb_end
            segment, block = (self._nb, self.nb_block) if in_nb else (self._cb, self.cb_block)
            end = self.nb_end if in_nb else self.cb_end
            assert segment is not None
            number, within = divmod(offset + done - (0 if in_nb else self.nb_end), block)
            count = min(block - within, nbytes - done, end - offset - done)
            row = self._row_of(segment, number, block)[:, within : within + count]
            unit = unit_of(within, count, block, nbytes, done)
            out.view(UNITS[unit])[:, done // unit : (done + count) // unit] = row.view(UNITS[unit])
            done += count
        return out

    def _row_of(self, segment: Rows, number: int, block: int) -> np.ndarray:
        """Return a row of all cells, which is kept until another one is wanted."""
        if self._row is None or self._row[:2] != (segment, number):
            row = np.empty((self.count, block), np.uint8)
            segment.read_row(number, row.reshape(-1))
            self._row = (segment, number, row)
        return self._row[2]

    def read(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return bytes of some cells, which rise and have them, one cell after the other."""
        within = np.iinfo(np.int64).max
        parts = segments(offsets, counts, self.nb_end, self.cb_end, np.full(len(cells), within))
        out = np.empty(int(counts.sum()), np.uint8)
        if self._nb is not None and parts.nb[1].any():
            self._nb.read(cells, parts.nb, out)
        if self._cb is not None and parts.cb[1].any():
            self._settle_cb()
            self._cb.read(cells, parts.cb, out)
        if parts.ib[1].any():
            self._read_ib(cells - self.lower, parts.ib, out)
        return out

    def _read_ib(self, cells: np.ndarray, part: tuple[np.ndarray, ...], out: np.ndarray) -> None:
        some = np.flatnonzero(part[1])
        offsets, counts, into = (each[some] for each in part)
        data = self.reader.read(cells[some], offsets, counts)
        if len(data) == len(out):
            out[:] = data
            return
        starts = np.cumsum(counts) - counts
        copy_runs(out, into, data, starts, counts)

    # ------------------------------------------------------------------ to the store

    def _settle_cb(self) -> None:
        if self._cb is not None and self.writes:
            self._cb.settle(self._buffer.reshape(-1) if self.cb_bytes % self.cb_block else None)

    def _settle_ib(self) -> None:
        self._each_writer(RankWriter.settle)

    def settle(self) -> WriterFacts:
        """Put all that was written in the store, and say what that is."""
        if self._nb is not None and self.writes:
            self._nb.settle()
        self._settle_cb()
        self._settle_ib()
        ends = tuple((rank, writer.ends) for rank, writer in zip(self.ranks, self._writers, strict=False))
        return WriterFacts(
            nb=self.nb_end, cb=self.cb_bytes, ends=ends, blocks=(self.nb_block, self.cb_block), ib=self.ib
        )  # fmt: skip

    def link(self, ib: Independent) -> tuple[np.ndarray, np.ndarray]:
        """Link the directory, as all ranks have settled it: the first entry and the length of each cell."""
        return Directory(self._directory, ib).link(self.file.meta.cells.count), self.independent_lengths()

    def prime(self) -> None:
        """Read ahead in IB, of each cell what comes next: calls for one cell after the other follow."""
        if self._reader is None and not self._writers:
            return
        starts = np.maximum(self.tell() - self.cb_end, 0)
        lengths = self.independent_lengths()
        if lengths.any():
            self.reader.prime(np.minimum(starts, lengths))

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def committed(meta: Meta, facts: list[WriterFacts], *, begins_ib: bool = False) -> Meta:
    """Return what a file is to say once all of its ranks have settled.

    Parameters
    ----------
    begins_ib : bool
        Whether IB begins now, without anything in it.
    """
    one, ranks, ib = facts[0], meta.cells.ranks, meta.ib
    nb_block = max(each.blocks[0] for each in facts)
    nb = Regular(block=nb_block if one.nb else 0, nbytes=one.nb)
    cb = Regular(block=one.blocks[1] if one.cb else 0, nbytes=one.cb)
    ends = dict(end for each in facts for end in each.ends)
    if ends:
        all_ends = tuple(ends.get(rank, (0, 0)) for rank in range(ranks))
        ib = replace(one.ib, ranks=ranks, ends=all_ends, is_linked=False)
    elif begins_ib and not ib.block:
        ib = replace(one.ib, ranks=ranks)
    return replace(meta, nb=nb, cb=cb, ib=ib, is_closed=False)


def _row_index(columns: int, ndim: int, number: int) -> tuple[int, ...]:
    """The index of a chunk of rows, whose cells are cut along their first axis alone."""
    row, column = divmod(number, columns)
    return (row, column, *(0,) * (ndim - 2)) if ndim > 1 else (row,)
