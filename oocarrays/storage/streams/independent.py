"""Writes in IB: a rank gathers the data of each of its cells, and stores them in superblocks.

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

from itertools import groupby

import numpy as np

from oocarrays.plan.streams.buffers import Buffers, CellRun, grouped
from oocarrays.plan.streams.directory import HEAD, NONE, cut, level_entries, pointers
from oocarrays.plan.streams.meta import Independent
from oocarrays.plan.streams.units import UNITS, side_by_side, unit_of
from oocarrays.storage.streams.raw import RawChunks


class Superblocks:
    """Superblocks of one rank."""

    def __init__(self, chunks: RawChunks, nbytes: int, first: int, step: int, fill: int = 0) -> None:
        self.chunks = chunks
        self.nbytes = nbytes
        self.first = first
        self.step = step
        self.fill = fill
        self.end = 0
        self._tail = np.empty(0, np.uint8)
        self._is_changed = False

    def number(self, turn: int) -> int:
        """Return the number of the rank's superblock at a turn."""
        return self.first + turn * self.step

    def append(self, data: np.ndarray) -> None:
        """Append bytes; write full superblocks, without a copy if their bytes are contiguous in ``data``."""
        done = 0
        while done < len(data):
            turn, place = divmod(self.end, self.nbytes)
            part = data[done : done + self.nbytes - place]
            if len(part) == self.nbytes:
                self.chunks.put(self.number(turn), part)
            else:
                self._gather(turn, place, part)
            self.end += len(part)
            done += len(part)

    @property
    def room(self) -> int:
        """Bytes left in the current superblock."""
        return self.nbytes - self.end % self.nbytes

    @property
    def place(self) -> int:
        """Offset in the segment of the next byte."""
        turn, place = divmod(self.end, self.nbytes)
        return self.number(turn) * self.nbytes + place

    def skip(self) -> None:
        """Pad the current superblock to its end."""
        self.append(np.full(self.room, self.fill, np.uint8))

    def _gather(self, turn: int, place: int, part: np.ndarray) -> None:
        if not place:
            self._tail = np.full(self.nbytes, self.fill, np.uint8)
            self.chunks.hold(self.number(turn), self._tail)
        self._tail[place : place + len(part)] = part
        self._is_changed = True
        if place + len(part) == self.nbytes:
            self.chunks.put(self.number(turn), self._tail)
            self._is_changed = False

    def settle(self) -> None:
        """Write the partial superblock."""
        if self._is_changed:
            self.chunks.put(self.number(self.end // self.nbytes), self._tail, held=True)
            self._is_changed = False

    def changed(self) -> None:
        """Mark the partial superblock as changed."""
        self._is_changed = bool(self.end % self.nbytes)

    def places(self, start: int, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Split runs appended from ``start`` into pieces: the run, place in the segment and size in bytes of each."""
        of, starts, counts = cut(start, lengths, self.nbytes)
        turn, place = np.divmod(starts, self.nbytes)
        return of, (self.first + turn * self.step) * self.nbytes + place, counts


LEVEL_BYTES, LEVEL_COPIES = 2**23, 4
"""Bytes of calls of all cells that are transposed together, if they make whole blocks: no more than the cache holds.
And the memory for that, as a multiple of these bytes."""
LEAST_LOG = 2**11
"""Minimum bytes of the log, if memory allows hardly any."""
Logged = tuple[int, np.ndarray | None]
"""Number of items of a call, and their cells; None for all cells."""


class RankWriter:
    """Writer of one rank."""

    def __init__(
        self, cells: tuple[int, int], ib: Independent, place: tuple[int, int], data: RawChunks, directory: RawChunks,
        sorting_bytes: int,
    ) -> None:  # fmt: skip
        (self.lower, upper), (rank, ranks) = cells, place
        self.count = upper - self.lower
        self.ib = ib
        self._buffers = Buffers(self.count, ib.block)
        self._pointers = Buffers(self.count, 8 * ib.pointers, padding=NONE & 0xFF)
        self.data = Superblocks(data, ib.superblock, ib.base[0] + rank, ranks)
        entry = 8 * (HEAD + ib.pointers)
        self.directory = Superblocks(directory, ib.entries * entry, ib.base[1] + rank, ranks, fill=NONE & 0xFF)
        self.lengths = np.zeros(self.count, np.int64)
        self._sorting_bytes = sorting_bytes
        self._most, self._most_level = 0, max(sorting_bytes // LEVEL_COPIES, LEAST_LOG)
        self._index = np.dtype(np.int32 if self.count < 2**31 else np.int64)
        self._room = np.empty(0, np.uint8)
        self._calls: list[Logged] = []
        self._logged = self._width = 0
        self._has_events = False  # whether a call of the log names its cells

    @property
    def ends(self) -> tuple[int, int]:
        """Bytes of data, and number of directory entries, in its superblocks."""
        return self.data.end, self.directory.end // (8 * (HEAD + self.ib.pointers))

    # ------------------------------------------------------------------ calls

    def append_level(self, values: np.ndarray) -> None:
        """Append equally many bytes to every cell: a row of bytes for each."""
        self._turn_to(values.shape[1])
        self._note(values, None)

    def append_events(self, cells: np.ndarray, items: np.ndarray) -> None:
        """Append items to cells of the file in any order: a row of bytes and a cell for each item."""
        self._turn_to(items.shape[1])
        at_once = max(self._most // max(items.shape[1], 1), 1)
        for start in range(0, len(items), at_once):
            self._note(items[start : start + at_once], cells[start : start + at_once] - self.lower)

    def append_runs(self, cells: np.ndarray, counts: np.ndarray, data: np.ndarray) -> None:
        """Append ``counts`` bytes to each of ascending cells of the file."""
        self.drain()
        self._take(self._buffers.push(cells - self.lower, counts, data))
        self.lengths[cells - self.lower] += counts

    def _turn_to(self, width: int) -> None:
        """Log items of ``width`` bytes from now on, and size the log for one sort."""
        if self._width == width:
            return
        self.drain()
        at_once = self._sorting_bytes // (28 + 6 * width)  # copies of an item, and the bytes that its sort needs
        self._width, self._most = width, max(at_once * width, LEAST_LOG)

    def _note(self, items: np.ndarray, cells: np.ndarray | None) -> None:
        """Log the bytes of a call contiguously, so that the log is moved as one array."""
        most = self._most if self._has_events or cells is not None else self._most_level
        if self._logged + items.nbytes > most:
            self.drain()
        call = len(items), None if cells is None else cells.astype(self._index)
        if items.nbytes > most:
            self._drain(np.ascontiguousarray(items).reshape(-1), [call])
            return
        self._calls.append(call)
        self._has_events |= cells is not None
        if not len(self._room):
            self._room = np.empty(self._most_level, np.uint8)
        self._room[self._logged : self._logged + items.nbytes].reshape(items.shape)[:] = items
        self._logged += items.nbytes
        if cells is None and self._logged >= LEVEL_BYTES:
            self._drain_whole()

    # ------------------------------------------------------------------ the log

    def drain(self) -> None:
        """Move logged calls to the buffers of their cells, and full blocks to superblocks."""
        calls, logged = self._calls, self._logged
        self._calls, self._logged, self._has_events = [], 0, False
        self._drain(self._room[:logged], calls)

    def _drain_whole(self) -> None:
        """Drain the calls of all cells that make whole blocks; keep the last ones in the log."""
        is_level, last = runs_of_kind(self._calls)[-1]
        if not is_level:
            self.drain()
            return
        self._drain_first(self._logged - len(last) * self.count * self._width, self._calls[: -len(last)])
        spare, rest = divmod((int(self._buffers.fill[0]) + len(last) * self._width) % self.ib.block, self._width)
        if not rest and spare >= len(last):
            return
        spare = 0 if rest else spare
        self._drain_first(self._logged - spare * self.count * self._width, last[: len(last) - spare])

    def _drain_first(self, nbytes: int, calls: list[Logged]) -> None:
        """Drain the first calls of the log, ``nbytes`` long; the remaining ones must be of all cells."""
        if not calls:
            return
        self._drain(self._room[:nbytes], calls)
        self._room[: self._logged - nbytes] = self._room[nbytes : self._logged]
        self._calls, self._logged, self._has_events = self._calls[len(calls) :], self._logged - nbytes, False

    def _drain(self, items: np.ndarray, calls: list[Logged]) -> None:
        if not len(items):
            return
        place = 0
        for is_level, group in runs_of_kind(calls):
            nbytes = sum(count for count, _ in group) * self._width
            part = items[place : place + nbytes]
            place += nbytes
            if is_level:
                self._drain_level(part, len(group))
            else:
                everyone = np.arange(self.count, dtype=self._index)
                self._drain_events(part, [everyone if cells is None else cells for _, cells in group])

    def _drain_level(self, items: np.ndarray, calls: int) -> None:
        counts = np.full(self.count, calls * self._width)
        self._take(self._buffers.push(np.arange(self.count), counts, side_by_side(items, calls, self._width)))
        self.lengths += calls * self._width

    def _drain_events(self, items: np.ndarray, cells: list[np.ndarray]) -> None:
        unit = unit_of(self._width)
        each = items.view(UNITS[unit]).reshape(-1, self._width // unit)
        found, counts, values = grouped(np.concatenate(cells), each[:, 0] if unit == self._width else each, self.count)
        counts = counts * self._width
        self._take(self._buffers.push(found, counts, values))
        self.lengths[found] += counts

    # ------------------------------------------------------------------ superblocks

    def _take(self, run: CellRun) -> None:
        """Move whole blocks to superblocks, and pointers to them to the directory."""
        if not len(run.cells):
            return
        block = self.ib.block
        stride = -(-int(run.counts[0]) // block) * block
        together = len(run.cells) == self.count >= 4 and stride * 8 <= self.ib.superblock  # else a pointer for each
        if together and bool((run.counts == run.counts[0]).all()):
            self._take_level(int(run.counts[0]), stride, run.data)
            return
        start = self.data.end
        self.data.append(run.data)
        lengths = -(-run.counts // block) * block
        of, places, counts = self.data.places(start, lengths)
        last = np.concatenate((of[1:] != of[:-1], [True]))
        counts = np.where(last, counts - (lengths - run.counts)[of], counts)
        self._point(run.cells[of], pointers(places // block, counts))

    def _take_level(self, nbytes: int, stride: int, data: np.ndarray) -> None:
        """Move equally many blocks of every cell to superblocks, whole cells in each, with a level entry per
        superblock."""
        cells, counts, places, done = [], [], [], 0
        while done < self.count:
            some = min(self.data.room // stride, self.count - done)
            if not some:
                self.data.skip()
                continue
            cells.append(self.lower + done)
            counts.append(some)
            places.append(self.data.place)
            self.data.append(data[done * stride : (done + some) * stride])
            done += some
        blocks = np.array(places) // self.ib.block
        entries = level_entries(np.array(cells), np.array(counts), blocks, nbytes, self.ib.pointers)
        self.directory.append(entries.view(np.uint8).reshape(-1))

    def _point(self, cells: np.ndarray, found: np.ndarray) -> None:
        first = np.flatnonzero(np.concatenate(([True], cells[1:] != cells[:-1])))
        counts = np.diff(first, append=len(cells)) * 8
        self._enter(self._pointers.push(cells[first], counts, found))

    def _enter(self, run: CellRun) -> None:
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

    def settle(self) -> None:
        """Write all buffered data to the store, including partial blocks and entries."""
        self.drain()
        self._take(self._buffers.flush())
        self._enter(self._pointers.flush())
        self.data.settle()
        self.directory.settle()


def runs_of_kind(calls: list[Logged]) -> list[tuple[bool, list[Logged]]]:
    """Group calls into runs: four and more consecutive calls of all cells, which need no sort, or others."""
    runs: list[tuple[bool, list[Logged]]] = []
    for of_all, each in groupby(calls, lambda call: call[1] is None):
        group = list(each)
        is_level = of_all and (len(group) >= 4 or len(group) == len(calls))
        if runs and not is_level and not runs[-1][0]:
            runs[-1][1].extend(group)
        else:
            runs.append((is_level, group))
    return runs
