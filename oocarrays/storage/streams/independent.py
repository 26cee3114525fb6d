"""Writing in IB: what the cells of a rank write, each for itself, goes to the store in superblocks.

    calls ──► log ──► sorted by cell ──► buffers of cells ──► blocks in superblocks
                                                 └──► pointers ──► entries in superblocks of the directory
                                                 └──► level entries, where all cells give as many blocks

The paper moves what a call writes to the buffers at once. Here calls are gathered first: cells are found once for many
of them, and what a cell writes in a while becomes one run of blocks with one pointer.

rank 0 of 2   superblocks 0 2 4 …        rank 1 of 2   superblocks 1 3 5 …

They are dealt to ranks in turn, so that no rank need ask where the others are (section 5.2.2). One that is not full is
put when all is to be there, and put again when it is.
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
    """The superblocks of one rank."""

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
        """Number of the rank's superblock of this turn."""
        return self.first + turn * self.step

    def append(self, data: np.ndarray) -> None:
        """Append bytes; superblocks that are full are written, from where they are where they lie together."""
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
        """Bytes that fit in the superblock that is being filled."""
        return self.nbytes - self.end % self.nbytes

    @property
    def place(self) -> int:
        """Bytes of the segment before what comes next."""
        turn, place = divmod(self.end, self.nbytes)
        return self.number(turn) * self.nbytes + place

    def skip(self) -> None:
        """Leave what is left of a superblock as it is."""
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
        """Put what has been gathered, too."""
        if self._is_changed:
            self.chunks.put(self.number(self.end // self.nbytes), self._tail, held=True)
            self._is_changed = False

    def changed(self) -> None:
        """Keep that bytes which are gathered were changed where they are."""
        self._is_changed = bool(self.end % self.nbytes)

    def places(self, start: int, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cut runs that are appended from ``start`` on: what each piece is of, where it is, and its bytes."""
        of, starts, counts = cut(start, lengths, self.nbytes)
        turn, place = np.divmod(starts, self.nbytes)
        return of, (self.first + turn * self.step) * self.nbytes + place, counts


MANY = 4
"""Calls of all cells that follow each other, and are put side by side without looking for their cells."""
LEVEL_BYTES, LEVEL_COPIES = 2**23, 4
"""Bytes that calls of all cells write before they are put side by side, where whole blocks come of it: no more than a
processor keeps near. And what that holds, in their bytes."""
EVENT_BYTES, ITEM_COPIES = 28, 6
"""What sorting holds of each item beside its bytes, and of these how many copies, those in the log among them."""
LEAST_LOG = 2**11
"""Bytes that calls may write before they are sorted, where there is room for hardly any."""
FEW_CELLS, FEW_EACH = 4, 8
"""Fewer cells, or fewer that fit in a superblock, have a pointer each."""
Logged = tuple[int, np.ndarray | None]
"""Items of a call, and their cells; None for all cells."""


class RankWriter:
    """The writer of one rank."""

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
        """Bytes of data, and entries of the directory, in its superblocks."""
        return self.data.end, self.directory.end // (8 * (HEAD + self.ib.pointers))

    # ------------------------------------------------------------------ calls

    def append_level(self, values: np.ndarray) -> None:
        """Append as many bytes to every cell: a row of bytes for each."""
        self._turn_to(values.shape[1])
        self._note(values, None)

    def append_events(self, cells: np.ndarray, items: np.ndarray) -> None:
        """Append items to cells, in any order: a row of bytes for each item, and its cell, of the file."""
        self._turn_to(items.shape[1])
        at_once = max(self._most // max(items.shape[1], 1), 1)
        for start in range(0, len(items), at_once):
            self._note(items[start : start + at_once], cells[start : start + at_once] - self.lower)

    def append_runs(self, cells: np.ndarray, counts: np.ndarray, data: np.ndarray) -> None:
        """Append bytes to cells of the file that rise, of each as many as ``counts`` says."""
        self.drain()
        self._take(self._buffers.push(cells - self.lower, counts, data))
        self.lengths[cells - self.lower] += counts

    def _turn_to(self, width: int) -> None:
        """Log items of so many bytes from now on: the log has room for as many as may be sorted at one time."""
        if self._width == width:
            return
        self.drain()
        at_once = self._sorting_bytes // (EVENT_BYTES + ITEM_COPIES * width)
        self._width, self._most = width, max(at_once * width, LEAST_LOG)

    def _note(self, items: np.ndarray, cells: np.ndarray | None) -> None:
        """Keep the bytes of a call, one after the other as all of the log, so that they are moved as one array."""
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
        """Move what calls have written to the buffers of their cells, and what is full to superblocks."""
        calls, logged = self._calls, self._logged
        self._calls, self._logged, self._has_events = [], 0, False
        self._drain(self._room[:logged], calls)

    def _drain_whole(self) -> None:
        """Drain as many calls of all cells as whole blocks come of; the last ones stay."""
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
        """Drain the first calls of the log, which are so many bytes of it; those that stay are of all cells."""
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
                self._drain_events(part, [self._everyone() if cells is None else cells for _, cells in group])

    def _everyone(self) -> np.ndarray:
        return np.arange(self.count, dtype=self._index)

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
        together = len(run.cells) == self.count >= FEW_CELLS and stride * FEW_EACH <= self.ib.superblock
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
        """Move as many blocks of every cell, whole cells in each superblock, with a level entry for each of these."""
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
        """Make entries of the directory of whole blocks of pointers."""
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
        """Put all that was written in the store, blocks and entries that are not full among it."""
        self.drain()
        self._take(self._buffers.flush())
        self._enter(self._pointers.flush())
        self.data.settle()
        self.directory.settle()


def runs_of_kind(calls: list[Logged]) -> list[tuple[bool, list[Logged]]]:
    """Divide calls into those of all cells, where many follow each other, and others."""
    runs: list[tuple[bool, list[Logged]]] = []
    for of_all, each in groupby(calls, lambda call: call[1] is None):
        group = list(each)
        is_level = of_all and (len(group) >= MANY or len(group) == len(calls))
        if runs and not is_level and not runs[-1][0]:
            runs[-1][1].extend(group)
        else:
            runs.append((is_level, group))
    return runs
