"""Read-ahead for calls of all cells, or of individual cells.

    rows of a segment     │ cell 0: 0 1 2 3 │ cell 1: 0 1 2 3 │ …        a call reads byte 0 of all, the next one byte 1
    of this call, of the next ones    0 0 0 … │ 1 1 1 … │ 2 2 2 … │ 3 3 3 …

The bytes of one call lie in a block beside those of the next calls, and a memory transfer fetches both. As much as one
transfer fetches is therefore transposed into the results of the next calls. If cells lie anywhere, or calls read
different bytes of each, the next bytes of all cells are read together (section 5.3: most programs read as they wrote):
a window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from oocarrays.plan.streams.directory import LEVEL, NONE, Extents, extents_of, levels_of
from oocarrays.plan.streams.units import UNITS, before, copy_runs, unit_of
from oocarrays.storage.streams.directories import Directory
from oocarrays.storage.streams.raw import RawChunks

FIRST_SPAN, GROWTH = 256, 4
"""Initial bytes of read-ahead per cell, and its growth factor for consecutive reads."""
FEW = 64
"""Calls that name fewer than one in this many cells cause no read-ahead of all cells."""
TURNED = 2048
"""Cells transposed at a time: their bytes stay in the cache."""


class CellBlocks(NamedTuple):
    """Bytes at the same offsets of all streams."""

    lower: int
    """First byte, as an offset in a stream."""
    upper: int
    """Byte after the last."""
    parts: Sequence[tuple[int, int, Callable[[], np.ndarray]]]
    """First and last cell, and a function that returns their bytes, one row for each."""


class Ahead:
    """Prepared results of the next calls of all cells."""

    def __init__(self, cells: int, most: int) -> None:
        self.cells = cells
        self._most = most
        self._ready: dict[tuple[int, int], np.ndarray] = {}

    def forget(self) -> None:
        self._ready = {}

    def level(self, offset: int, nbytes: int, end: int, blocks_at: Callable[[int], CellBlocks]) -> np.ndarray:
        """Return the same bytes of all streams, a row for each cell."""
        found = self._ready.pop((offset, nbytes), None)
        if found is not None:
            return found
        self._ready = {}
        room = self._most // max(self.cells * nbytes, 1)
        line = 64  # bytes of a cache line
        calls = max(min(line // nbytes, (end - offset) // nbytes, room), 1)
        outs = [np.empty((self.cells, nbytes), np.uint8) for _ in range(calls)]
        _fill(outs, offset, nbytes, blocks_at)
        self._ready = {(offset + turn * nbytes, nbytes): out for turn, out in enumerate(outs)}
        return self._ready.pop((offset, nbytes))


def _fill(outs: list[np.ndarray], offset: int, nbytes: int, blocks_at: Callable[[int], CellBlocks]) -> None:
    """Transpose the bytes of the next calls, from ``offset`` on, into their results."""
    place, end = offset, offset + len(outs) * nbytes
    while place < end:
        blocks = blocks_at(place)
        upper = min(end, blocks.upper)
        for first, last, rows in blocks.parts:
            wanted = rows()[:, place - blocks.lower : upper - blocks.lower]
            _turn([out[first:last] for out in outs], wanted, place - offset, nbytes)
        place = upper


def _turn(outs: list[np.ndarray], rows: np.ndarray, place: int, nbytes: int) -> None:
    """Copy to each result its bytes of rows; the rows begin ``place`` bytes after the first result's first byte."""
    unit = unit_of(place, nbytes, rows.shape[1], rows.strides[0], rows.ctypes.data)
    width, place, end = nbytes // unit, place // unit, (place + rows.shape[1]) // unit
    source = rows.view(UNITS[unit])
    turned = [out.view(UNITS[unit]) for out in outs]
    for start in range(0, len(rows), TURNED):
        part = np.ascontiguousarray(source[start : start + TURNED])
        for turn in range(place // width, -(-end // width)):
            lower, upper = max(turn * width, place), min((turn + 1) * width, end)
            into = turned[turn][start : start + TURNED, lower - turn * width : upper - turn * width]
            into[...] = part[:, lower - place : upper - place]


class Window:
    """Bytes of all cells that were read ahead."""

    def __init__(self, starts: np.ndarray, counts: np.ndarray, data: np.ndarray) -> None:
        self.starts = starts
        self.counts = counts
        self.offsets = before(counts)
        self.data = data

    def has(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> bool:
        starts = self.starts[cells]
        return bool(((offsets >= starts) & (offsets + counts <= starts + self.counts[cells])).all())

    def reaches(self, cells: np.ndarray, offsets: np.ndarray) -> bool:
        """Return whether offsets begin in the window or at its end: calls are consecutive."""
        return self.has(cells, offsets, np.zeros_like(offsets))

    def level(self, offset: int) -> CellBlocks | None:
        """Return the same bytes of all cells as blocks; None if they differ, or lack that of ``offset``."""
        lower, nbytes = int(self.starts[0]), int(self.counts[0])
        holds = lower <= offset < lower + nbytes
        if not holds or bool((self.starts != lower).any() or (self.counts != nbytes).any()):
            return None
        rows = self.data.reshape(-1, nbytes)
        return CellBlocks(lower, lower + nbytes, [(0, len(rows), lambda: rows)])

    def read(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return bytes of some cells, one cell after the other."""
        out = np.empty(int(counts.sum()), np.uint8)
        copy_runs(out, before(counts), self.data, self.offsets[cells] + offsets - self.starts[cells], counts)
        return out


class LevelBlocks:
    """Blocks of IB that all cells wrote together, from level entries."""

    def __init__(self, data: RawChunks, directory: Directory, cells: tuple[int, int]) -> None:
        self.data = data
        self.superblock = directory.ib.superblock
        self.cells = cells
        everyone = np.arange(*cells)
        entries = directory.near(everyone)
        is_level = entries[:, 0] <= LEVEL
        levels = levels_of(entries[is_level], directory.ib.block)
        fits = levels.place % self.superblock + (levels.upper - levels.lower) * levels.stride <= self.superblock
        mine = np.flatnonzero(fits & (levels.upper > cells[0]) & (levels.lower < cells[1]))
        levels = type(levels)(*(each[mine] for each in levels))
        order = np.argsort(levels.place)
        self.levels = type(levels)(*(each[order] for each in levels))
        others = extents_of(everyone, entries[~is_level], directory.ib.block) if len(order) else None
        self.offsets = self._offsets(others)

    def _offsets(self, others: Extents | None) -> np.ndarray:
        """Return the stream offset of each level entry; -1 if cells differ."""
        offsets = np.full(len(self.levels.place), NONE, np.int64)
        if others is None:
            return offsets
        had = np.zeros(self.cells[1] - self.cells[0], np.int64)
        order = np.argsort(others.place)
        owner, count = others.owner[order], others.count[order]
        until, done = np.searchsorted(others.place[order], self.levels.place), 0
        for number, upto in enumerate(until.tolist()):
            np.add.at(had, owner[done:upto], count[done:upto])
            done, (lower, upper) = upto, self._own(number)
            here = had[lower:upper]
            if bool((here == here[0]).all()):
                offsets[number] = here[0]
            here += self.levels.nbytes[number]
        return offsets

    def _own(self, number: int) -> tuple[int, int]:
        """Return the range of this process's cells in a level entry, relative to its first cell."""
        lower, upper = self.cells
        return (
            max(int(self.levels.lower[number]), lower) - lower,
            min(int(self.levels.upper[number]), upper) - lower,
        )

    def at(self, offset: int) -> CellBlocks | None:
        """Return the blocks that hold a byte of all streams; None if there are none."""
        ends = self.offsets + self.levels.nbytes
        here = np.flatnonzero((self.offsets != NONE) & (self.offsets <= offset) & (offset < ends)).tolist()
        own = [self._own(number) for number in here]
        if not here or sum(upper - lower for lower, upper in own) < self.cells[1] - self.cells[0]:
            return None
        first = int(self.offsets[here].max())
        parts = [
            (lower, upper, partial(self._rows, number, first - int(self.offsets[number])))
            for number, (lower, upper) in zip(here, own, strict=True)
        ]
        return CellBlocks(first, int(ends[here].min()), parts)

    def _rows(self, number: int, skipped: int) -> np.ndarray:
        """Return the bytes of a level entry, a row for each cell, without the first ``skipped`` of each."""
        (lower, upper), stride = self._own(number), int(self.levels.stride[number])
        superblock, place = divmod(int(self.levels.place[number]), self.superblock)
        place += (self.cells[0] + lower - int(self.levels.lower[number])) * stride
        data = self.data.view(superblock)[place : place + (upper - lower) * stride]
        return data.reshape(upper - lower, stride)[:, skipped:]
