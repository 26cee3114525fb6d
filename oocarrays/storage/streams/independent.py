"""Writing in IB: what the cells of a rank write, each for itself, goes to the store in superblocks.

    calls ──► log ──► sorted by cell ──► buffers of cells ──► blocks in superblocks
                                                 └──► pointers ──► entries in superblocks of the directory

The paper moves what a call writes to the buffers at once. Here calls are gathered first: cells are found once for many
of them, and what a cell writes in a while becomes one run of blocks with one pointer.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from oocarrays.plan.streams.buffers import Buffers, CellRun, grouped
from oocarrays.plan.streams.directory import HEAD, NONE, pointers
from oocarrays.plan.streams.meta import Independent
from oocarrays.plan.streams.units import UNITS, in_units, unit_of
from oocarrays.storage.streams.raw import RawChunks
from oocarrays.storage.streams.superblocks import Superblocks

MANY = 4
"""Calls of all cells that follow each other, and are put side by side without looking for their cells."""
Logged = tuple[int, np.ndarray | None]
"""Items of a call, and their cells; None for all cells."""


class RankWriter:
    """The writer of one rank.

    Parameters
    ----------
    cells : tuple of int
        Its cells, from and to.
    place : tuple of int
        Its number, and how many ranks there are.
    log_bytes : int
        Bytes that calls may write before they are sorted.
    """

    def __init__(
        self, cells: tuple[int, int], ib: Independent, place: tuple[int, int], data: RawChunks, directory: RawChunks,
        log_bytes: int,
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
        self._most = log_bytes
        self._index = np.dtype(np.int32 if self.count < 2**31 else np.int64)
        self._room = np.empty(0, np.uint8)
        self._calls: list[Logged] = []
        self._logged = self._width = 0

    @property
    def ends(self) -> tuple[int, int]:
        """Bytes of data, and entries of the directory, in its superblocks."""
        return self.data.end, self.directory.end // (8 * (HEAD + self.ib.pointers))

    # ------------------------------------------------------------------ calls

    def append_level(self, values: np.ndarray) -> None:
        """Append as many bytes to every cell: a row of bytes for each."""
        self._note(values, None)

    def append_events(self, cells: np.ndarray, items: np.ndarray) -> None:
        """Append items to cells, in any order: a row of bytes for each item, and its cell, of the file."""
        at_once = max(self._most // max(items.shape[1], 1), 1)
        for start in range(0, len(items), at_once):
            self._note(items[start : start + at_once], cells[start : start + at_once] - self.lower)

    def append_runs(self, cells: np.ndarray, counts: np.ndarray, data: np.ndarray) -> None:
        """Append bytes to cells of the file that rise, of each as many as ``counts`` says."""
        self.drain()
        self._take(self._buffers.push(cells - self.lower, counts, data))
        self.lengths[cells - self.lower] += counts

    def _note(self, items: np.ndarray, cells: np.ndarray | None) -> None:
        """Keep the bytes of a call, one after the other as all of the log, so that they are moved as one array."""
        if self._width != items.shape[1] or self._logged + items.nbytes > self._most:
            self.drain()
        self._width = items.shape[1]
        self._calls.append((len(items), None if cells is None else cells.astype(self._index)))
        if items.nbytes > self._most:
            self._drain(np.ascontiguousarray(items).reshape(-1))
            return
        if not len(self._room):
            self._room = np.empty(self._most, np.uint8)
        self._room[self._logged : self._logged + items.nbytes].reshape(items.shape)[:] = items
        self._logged += items.nbytes

    # ------------------------------------------------------------------ the log

    def drain(self) -> None:
        """Move what calls have written to the buffers of their cells, and what is full to superblocks."""
        self._drain(self._room[: self._logged])

    def _drain(self, items: np.ndarray) -> None:
        calls, self._calls, self._logged = self._calls, [], 0
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
        start = self.data.end
        self.data.append(run.data)
        lengths = -(-run.counts // self.ib.block) * self.ib.block
        of, places, counts = self.data.places(start, lengths)
        last = np.concatenate((of[1:] != of[:-1], [True]))
        counts = np.where(last, counts - (lengths - run.counts)[of], counts)
        self._point(run.cells[of], pointers(places // self.ib.block, counts))

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
    """Divide calls into those of all cells, where many follow each other, and others.

    >>> some = np.array([1])
    >>> [(is_level, len(group)) for is_level, group in runs_of_kind([(9, None), (1, some), *[(9, None)] * MANY])]
    [(False, 2), (True, 4)]
    """
    runs: list[tuple[bool, list[Logged]]] = []
    for of_all, each in groupby(calls, lambda call: call[1] is None):
        group = list(each)
        is_level = of_all and (len(group) >= MANY or len(group) == len(calls))
        if runs and not is_level and not runs[-1][0]:
            runs[-1][1].extend(group)
        else:
            runs.append((is_level, group))
    return runs


def side_by_side(items: np.ndarray, calls: int, width: int) -> np.ndarray:
    """Put what each cell wrote in many calls side by side.

    Parameters
    ----------
    items : numpy.ndarray
        Of each call, bytes of every cell.
    width : int
        Bytes of a cell in one call.

    Examples
    --------
    >>> side_by_side(np.array([1, 2, 3, 4], "u1"), 2, 1).tolist()
    [1, 3, 2, 4]
    """
    unit = unit_of(width)
    rows = in_units(items, unit).reshape(calls, -1, width // unit)
    together = rows[:, :, 0].T if unit == width else rows.transpose(1, 0, 2)
    return np.ascontiguousarray(together).reshape(-1).view(np.uint8)
