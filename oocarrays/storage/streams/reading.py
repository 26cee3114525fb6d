"""Reading in IB: each superblock is read once for all that a call wants of it, cell after cell.

directory ──► extents of the cells ──► pieces of superblocks ──► bytes, one cell after the other
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from oocarrays.errors import CorruptChunkError
from oocarrays.plan.streams.directory import Extents, overlaps
from oocarrays.plan.streams.places import Pieces
from oocarrays.storage.streams.ahead import FEW, LevelBlocks
from oocarrays.storage.streams.directories import Directory
from oocarrays.storage.streams.raw import RawChunks

POINTER_BYTES = 256
"""Bytes that are held of each block while it is looked for where blocks lie: its entry, and what is made of it."""
ENTRY_COPIES = 4
"""Times that the directory is held, at most, while all of it is looked through."""

Heads = tuple[np.ndarray, np.ndarray]
"""The first entry of each cell, and all level entries."""


class Reader:
    """The reader of IB for cells of one process."""

    def __init__(
        self, data: RawChunks, directory: Directory, cells: tuple[int, int], lengths: np.ndarray,
        heads: Heads | None, most: int,
    ) -> None:  # fmt: skip
        self.data = data
        self.directory = directory
        self.lower, upper = cells
        self.count = upper - self.lower
        self.lengths = lengths
        self._heads = heads
        self._most = most
        self._extents: tuple[np.ndarray, Extents] | None = None

    @cached_property
    def levels(self) -> LevelBlocks | None:
        """Blocks that all cells wrote together; None where there is no memory for the whole directory to find them."""
        if self.directory.nbytes * ENTRY_COPIES > self._most:
            return None
        return LevelBlocks(self.data, self.directory, (self.lower, self.lower + self.count))

    def read(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return bytes of some cells of this process, which rise and have them, one cell after the other."""
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
        """Return where bytes of some cells lie in superblocks."""
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
