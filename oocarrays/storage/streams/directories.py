"""Directories of IB as they are stored: looked through, followed from entry to entry, and linked.

few cells    first ──► entry ──► next ──► next       each superblock that is touched is read once
many cells   all superblocks, one after the other
"""

from __future__ import annotations

import numpy as np

from oocarrays.errors import CorruptChunkError
from oocarrays.plan.streams.directory import HEAD, MOST_RUN, NONE, Extents, extents_of, linked
from oocarrays.plan.streams.meta import Independent
from oocarrays.storage.streams.raw import RawChunks


class Directory:
    """A directory in a store, as far as it is valid."""

    def __init__(self, chunks: RawChunks, ib: Independent) -> None:
        self.chunks = chunks
        self.ib = ib

    def entries(self, superblock: int) -> np.ndarray:
        """Return the words of the valid entries of a superblock."""
        valid = self.ib.valid_entries(superblock)
        if not valid:
            return np.empty((0, HEAD + self.ib.pointers), np.int64)
        words = self.chunks.get(superblock).view(np.int64).reshape(-1, HEAD + self.ib.pointers)[:valid]
        if superblock >= self.ib.base[1] and words[0, 0] == NONE:
            raise CorruptChunkError(f"superblock {superblock} of {self.chunks.array.store_path} is missing")
        return words

    def _all(self) -> range:
        return range(self.ib.superblocks[1])

    def scan(self, cells: np.ndarray) -> Extents:
        """Return the extents of cells that rise, by a look at every entry."""
        found = []
        for superblock in self._all():
            words = self.entries(superblock)
            if len(cells):
                near = (words[:, 0] >= cells[0]) & (words[:, 0] <= cells[-1])
                found.append(words[near] if not near.all() else words)
        none = np.empty((0, HEAD + self.ib.pointers), np.int64)
        return extents_of(cells, np.concatenate(found or [none]), self.ib.block)

    def follow(self, cells: np.ndarray, first: np.ndarray) -> Extents:
        """Return the extents of cells that rise, from the first entry of each on."""
        found: list[np.ndarray] = []
        ids = first[first != NONE]
        steps = self.ib.superblocks[1] * self.ib.entries
        while len(ids):
            steps -= 1
            words = self._words(ids)
            if steps < 0 or not np.isin(words[:, 0], cells).all():
                raise CorruptChunkError(f"the directory {self.chunks.array.store_path} leads in a circle: resume it")
            found.append(words)
            ids = words[:, 1][words[:, 1] != NONE]
        none = np.empty((0, HEAD + self.ib.pointers), np.int64)
        return extents_of(cells, np.concatenate(found or [none]), self.ib.block)

    def _words(self, ids: np.ndarray) -> np.ndarray:
        words = np.empty((len(ids), HEAD + self.ib.pointers), np.int64)
        superblock, place = np.divmod(ids, self.ib.entries)
        for number in np.unique(superblock).tolist():
            here = superblock == number
            known = self.entries(number)
            if not ((place[here] >= 0) & (place[here] < len(known))).all():
                raise CorruptChunkError(f"the directory {self.chunks.array.store_path} has entries that are not there")
            words[here] = known[place[here]]
        return words

    def lengths(self, cells: int) -> np.ndarray:
        """Return the bytes of each cell's stream in the segment."""
        lengths = np.zeros(cells, np.int64)
        for superblock in self._all():
            words = self.entries(superblock)
            pointers = words[:, HEAD:]
            counts = np.where(pointers == NONE, 0, pointers & (MOST_RUN - 1)).sum(1)
            there = words[:, 0] != NONE
            np.add.at(lengths, words[there, 0], counts[there])
        return lengths

    def link(self, cells: int) -> np.ndarray:
        """Give each entry its next one, going backwards, a superblock at a time: the first entry of each cell."""
        head = np.full(cells, NONE, np.int64)
        for superblock in reversed(self._all()):
            words = self.entries(superblock)
            new = linked(words, superblock * self.ib.entries, head)
            if not np.array_equal(new, words):
                chunk = self.chunks.get(superblock).copy()
                chunk.view(np.int64).reshape(-1, HEAD + self.ib.pointers)[: len(new)] = new
                self.chunks.put(superblock, chunk)
        return head
