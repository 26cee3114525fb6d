"""Reading in IB: superblocks are read as they were written, and what lies in them is handed out cell by cell.

    superblock ▓▓▓▓▓▓▓▓ ──► window: the next bytes of every cell ──► what a call wants of each

Most programs read as they wrote (section 5.3): the blocks of a superblock are wanted at about the same time. So the
next bytes of all cells are read together, as many as memory allows, each superblock once for all that is wanted of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from oocarrays.errors import CorruptChunkError
from oocarrays.plan.streams.directory import Extents, overlaps
from oocarrays.plan.streams.places import Pieces
from oocarrays.plan.streams.units import before, copy_runs
from oocarrays.storage.streams.ahead import LevelBlocks
from oocarrays.storage.streams.directories import Directory
from oocarrays.storage.streams.raw import RawChunks

POINTER_BYTES = 256
"""Bytes that are held of each block while it is looked for where blocks lie: its entry, and what is made of it."""
ENTRY_COPIES = 4
"""Times that the directory is held, at most, while all of it is looked through."""
FEW = 64
"""Of so many cells one is few: its entries are followed, and others are not looked at."""


Heads = tuple[np.ndarray, np.ndarray]
"""The first entry of each cell, and all level entries."""


class Window:
    """The bytes that have been read of all cells, and not asked for yet."""

    def __init__(self, starts: np.ndarray, counts: np.ndarray, data: np.ndarray) -> None:
        self.starts = starts
        self.counts = counts
        self.offsets = before(counts)
        self.data = data
        self.is_level = bool(len(counts)) and bool((counts == counts[0]).all() and (starts == starts[0]).all())

    def level(self, offset: int, nbytes: int) -> np.ndarray | None:
        """Return the same bytes of all cells, a row for each; None where they are not all here."""
        if not self.is_level:
            return None
        start = offset - int(self.starts[0])
        each = int(self.counts[0])
        if start < 0 or start + nbytes > each:
            return None
        return self.data.reshape(-1, each)[:, start : start + nbytes]

    def has(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> bool:
        """Whether all of some bytes are here."""
        starts = self.starts[cells]
        return bool(((offsets >= starts) & (offsets + counts <= starts + self.counts[cells])).all())


class Reader:
    """The reader of IB for cells of one process.

    Parameters
    ----------
    cells : tuple of int
        The cells, from and to.
    lengths : numpy.ndarray
        Bytes of each stream in the segment.
    heads : tuple, optional
        The first entry of each cell, and all level entries, where entries are linked.
    window_bytes : int
        Bytes to read ahead, at most.
    """

    def __init__(
        self, data: RawChunks, directory: Directory, cells: tuple[int, int], lengths: np.ndarray,
        heads: Heads | None, window_bytes: int,
    ) -> None:  # fmt: skip
        self.data = data
        self.directory = directory
        self.lower, upper = cells
        self.count = upper - self.lower
        self.lengths = lengths
        self._heads = heads
        self._most = window_bytes
        self._window: Window | None = None
        self._extents: tuple[np.ndarray, Extents] | None = None

    def level(self, offset: int, nbytes: int) -> np.ndarray:
        """Return the same bytes of all cells, which have them: a row of bytes for each."""
        window = self._window
        found = None if window is None else window.level(offset, nbytes)
        if found is not None:
            return found
        everyone = np.arange(self.count)
        counts = np.full(self.count, nbytes)
        return self.read(everyone, np.full(self.count, offset), counts).reshape(self.count, nbytes)

    def read(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray, *, ahead: bool = True) -> np.ndarray:
        """Return bytes of some cells, which rise and have them, one cell after the other.

        Parameters
        ----------
        cells : numpy.ndarray
            Cells, of those of this process.
        ahead : bool
            Whether what comes next of all cells may be read with them.
        """
        if self._window is None or not self._window.has(cells, offsets, counts):
            if not ahead or len(cells) * FEW < self.count or int(counts.sum()) >= self._most:
                return self._fetch(cells, offsets, counts)
            self._window = self._ahead(cells, offsets, counts)
        window = self._window
        out = np.empty(int(counts.sum()), np.uint8)
        places = window.offsets[cells] + offsets - window.starts[cells]
        copy_runs(out, before(counts), window.data, places, counts)
        return out

    @cached_property
    def levels(self) -> LevelBlocks | None:
        """Blocks that all cells wrote together; None where there is no memory for the whole directory to find them."""
        if self.directory.nbytes * ENTRY_COPIES > self._most:
            return None
        return LevelBlocks(self.data, self.directory, (self.lower, self.lower + self.count))

    def prime(self, starts: np.ndarray) -> None:
        """Read ahead, of all cells what comes after ``starts``."""
        self._window = self._ahead(np.arange(self.count), starts, np.zeros(self.count, np.int64))

    def _ahead(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> Window:
        """Read what is wanted, and of all cells what comes next."""
        starts = self.lengths.copy() if self._window is None else self._window.starts.copy()
        if self._window is None and len(cells) < self.count:
            starts[:] = offsets.min()
        starts[cells] = offsets
        wanted = np.zeros(self.count, np.int64)
        wanted[cells] = counts
        left = np.maximum(self.lengths - starts, 0)
        starts = np.minimum(starts, self.lengths)
        each = self.directory.ib.block
        while each < left.max(initial=0) and np.minimum(left, 2 * each).sum() <= self._most:
            each *= 2
        if np.minimum(left, each).sum() > self._most:
            each = 0
        ahead = np.maximum(np.minimum(left, each), wanted)
        self._window = None
        return Window(starts, ahead, self._fetch(np.arange(self.count), starts, ahead))

    def _fetch(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> np.ndarray:
        out = np.empty(int(counts.sum()), np.uint8)
        done = 0
        for part in self._parts(cells):
            upto = done + int(counts[part].sum())
            self.data.read(self.pieces(cells[part], offsets[part], counts[part]), out[done:upto])
            done = upto
        return out

    def _parts(self, cells: np.ndarray) -> Iterator[slice]:
        """Yield cells that follow one another, as many as there is memory for what is said of their blocks."""
        said = np.cumsum((self.lengths[cells] // max(self.directory.ib.block, 1) + 1) * POINTER_BYTES)
        start = 0
        while start < len(cells):
            had = int(said[start - 1]) if start else 0
            stop = max(int(np.searchsorted(said, had + self._most, "right")), start + 1)
            yield slice(start, stop)
            start = stop

    def pieces(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> Pieces:
        """Return where bytes of some cells lie in superblocks.

        Raises
        ------
        CorruptChunkError
            Where the directory knows of fewer than there should be.
        """
        extents = self._found(cells)
        place, into, count = overlaps(extents, offsets, counts)
        superblock, rest = np.divmod(place, self.directory.ib.superblock)
        if int(count.sum()) != int(counts.sum()) or bool((rest + count > self.directory.ib.superblock).any()):
            raise CorruptChunkError(
                f"the directory {self.directory.chunks.name} does not know all blocks of its streams: "
                "rebuild it with oocarrays resume"
            )
        return Pieces(superblock, rest, into, count)

    def _found(self, cells: np.ndarray) -> Extents:
        if self._extents is not None and np.array_equal(self._extents[0], cells):
            return self._extents[1]
        mine = cells + self.lower
        if self._heads is not None and len(cells) * FEW < max(self.count, FEW):
            first, levels = self._heads
            return self.directory.follow(mine, first[cells], levels)
        found = self.directory.scan(mine)
        nbytes = sum(each.nbytes for each in found)
        self._extents = (cells.copy(), found) if nbytes <= self._most else None
        return found
