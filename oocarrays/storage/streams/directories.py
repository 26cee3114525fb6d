"""Stored directories of IB: scans, traversal by links, linking, and recovery of files left by a crash.

few cells    first ──► entry ──► next ──► next       each superblock touched is read once
many cells   all superblocks, one after the other
recovery     whole entries ──► up to the last existing block ──► linked again ──► the file is closed

The paper omits recovery: "the VP values in the directory blocks allow the streams to be reconstructed again" (5.2.4).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from oocarrays.errors import CorruptChunkError
from oocarrays.plan.streams.directory import (
    BITS,
    HEAD,
    LEVEL,
    MOST_RUN,
    NONE,
    Extents,
    are_whole,
    extents_of,
    levels_of,
    linked,
)
from oocarrays.plan.streams.meta import Independent
from oocarrays.storage.meter import Meter
from oocarrays.storage.streams.raw import RawChunks
from oocarrays.storage.streams.stream_file import StreamFile, open_file, stored_numbers


class Directory:
    """Valid part of a directory in a store."""

    def __init__(self, chunks: RawChunks, ib: Independent) -> None:
        self.chunks = chunks
        self.ib = ib
        self._all = range(ib.superblocks[1])
        self._no_entries = np.empty((0, HEAD + ib.pointers), np.int64)

    def entries(self, superblock: int) -> np.ndarray:
        """Return the words of the valid entries of a superblock."""
        valid = self.ib.valid_entries(superblock)
        if not valid:
            return self._no_entries
        words = self.chunks.get(superblock).view(np.int64).reshape(-1, HEAD + self.ib.pointers)[:valid]
        if superblock >= self.ib.base[1] and words[0, 0] == NONE:
            raise CorruptChunkError(f"superblock {superblock} of {self.chunks.name} is missing")
        return words

    @property
    def nbytes(self) -> int:
        """Maximum bytes of all entries."""
        return len(self._all) * self.ib.entries * (HEAD + self.ib.pointers) * 8

    def scan(self, cells: np.ndarray) -> Extents:
        """Return the extents of ascending cells, by a scan of all entries."""
        return extents_of(cells, self.near(cells), self.ib.block)

    def near(self, cells: np.ndarray) -> np.ndarray:
        """Return the entries in the range of ascending cells, and all level entries."""
        found = [self._no_entries]
        for superblock in self._all if len(cells) else ():
            words = self.entries(superblock)
            near = (words[:, 0] <= LEVEL) | ((words[:, 0] >= cells[0]) & (words[:, 0] <= cells[-1]))
            found.append(words[near] if not near.all() else words)
        return np.concatenate(found)

    def follow(self, cells: np.ndarray, first: np.ndarray, levels: np.ndarray) -> Extents:
        """Return the extents of ascending cells, by the links from the first entry of each, with level entries."""
        found = [levels]
        ids = first[first != NONE]
        steps = self.ib.superblocks[1] * self.ib.entries
        while len(ids):
            steps -= 1
            words = self._words(ids)
            if steps < 0 or not np.isin(words[:, 0], cells).all():
                raise CorruptChunkError(f"the directory {self.chunks.name} leads in a circle: resume it")
            found.append(words)
            ids = words[:, 1][words[:, 1] != NONE]
        return extents_of(cells, np.concatenate(found), self.ib.block)

    def _words(self, ids: np.ndarray) -> np.ndarray:
        words = np.empty((len(ids), HEAD + self.ib.pointers), np.int64)
        superblock, place = np.divmod(ids, self.ib.entries)
        for number in np.unique(superblock).tolist():
            here = superblock == number
            known = self.entries(number)
            if not ((place[here] >= 0) & (place[here] < len(known))).all():
                raise CorruptChunkError(f"the directory {self.chunks.name} has entries that are not there")
            words[here] = known[place[here]]
        return words

    def lengths(self, cells: int) -> np.ndarray:
        """Return the bytes of each cell's stream in the segment."""
        lengths, steps = np.zeros(cells, np.int64), np.zeros(cells + 1, np.int64)
        for superblock in self._all:
            words = self._whole(superblock, cells)
            own, level = words[words[:, 0] >= 0], levels_of(words[words[:, 0] <= LEVEL], self.ib.block)
            pointers = own[:, HEAD:]
            np.add.at(lengths, own[:, 0], np.where(pointers == NONE, 0, pointers & (MOST_RUN - 1)).sum(1))
            np.add.at(steps, level.lower, level.nbytes)
            np.subtract.at(steps, level.upper, level.nbytes)
        return lengths + np.cumsum(steps[:-1])

    def _whole(self, superblock: int, cells: int) -> np.ndarray:
        """Return the entries of a superblock; raise if one names a cell or block outside the file."""
        words = self.entries(superblock)
        if not are_whole(words, cells, self.ib.block, self.ib.superblock).all():
            raise CorruptChunkError(
                f"superblock {superblock} of {self.chunks.name} speaks of what is not there: "
                "rebuild it with oocarrays resume"
            )
        return words

    def link(self, cells: int) -> tuple[np.ndarray, np.ndarray]:
        """Link each entry to its next one, backwards by superblock; return the first entry of each cell and level
        entries."""
        head, levels = np.full(cells, NONE, np.int64), [self._no_entries]
        for superblock in reversed(self._all):
            words = self._whole(superblock, cells)
            levels.append(words[words[:, 0] <= LEVEL])
            new = linked(words, superblock * self.ib.entries, head)
            if not np.array_equal(new, words):
                chunk = self.chunks.get(superblock).copy()
                chunk.view(np.int64).reshape(-1, HEAD + self.ib.pointers)[: len(new)] = new
                self.chunks.put(superblock, chunk)
        return head, np.concatenate(levels[::-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """Result of a recovery."""

    place: str
    """Location of the file."""
    flushed_bytes: int
    """Bytes in IB as of the last flush; 0 if its directory is damaged."""
    nbytes: int
    """Bytes in IB after recovery."""


def rebuild(store: object, *, durable: bool = True) -> Rebuilt:
    """Recover a file left open by a crash, or with a damaged directory, from all existing blocks."""
    file = open_file(store, durable=durable)  # type: ignore[arg-type]
    file.hold()
    try:
        return _rebuilt(file)
    finally:
        file.let_go()


def _rebuilt(file: StreamFile) -> Rebuilt:
    meta = file.meta
    if not meta.ib.block:
        file.commit(replace(meta, is_closed=True))
        return Rebuilt(place=file.name, flushed_bytes=0, nbytes=0)
    directory, chunks = file.array("directory", write=True), file.directory(Meter(), write=True)
    cells, before = meta.cells.count, 0
    with suppress(CorruptChunkError):
        before = int(Directory(chunks, meta.ib).lengths(cells).sum())
    ib = _as_far(meta.ib, chunks, stored_numbers(directory), set(stored_numbers(file.array("ib"))), cells)
    view = Directory(chunks, ib)
    lengths = view.lengths(cells)
    file.meta = replace(meta, ib=ib)
    file.keep_cells(*view.link(cells), lengths)
    file.commit(replace(meta, ib=replace(ib, is_linked=True), is_closed=True))
    return Rebuilt(place=file.name, flushed_bytes=before, nbytes=int(lengths.sum()))


def _as_far(ib: Independent, chunks: RawChunks, directory: list[int], data: set[int], cells: int) -> Independent:
    """Return the segment up to each rank's last consecutive entry with existing blocks."""
    if not ib.ranks:
        return ib
    ends = []
    for rank in range(ib.ranks):
        entries = _whole_entries(ib, rank, chunks, set(directory), data, cells)
        mine = [number for number in data if number >= ib.base[0] and (number - ib.base[0]) % ib.ranks == rank]
        turns = max(((number - ib.base[0]) // ib.ranks + 1 for number in mine), default=0)
        ends.append((turns * ib.superblock, entries))
    return replace(ib, ends=tuple(ends), is_linked=False)


def _whole_entries(
    ib: Independent, rank: int, chunks: RawChunks, directory: set[int], data: set[int], cells: int
) -> int:
    count, blocks = 0, ib.superblock // ib.block
    there = np.array(sorted(data), np.int64)
    for number in range(ib.base[1] + rank, max(directory, default=-1) + 1, ib.ranks):
        if number not in directory:
            break
        words = chunks.get(number).view(np.int64).reshape(-1, HEAD + ib.pointers)
        pointed = words[:, HEAD:]
        fine = (
            (words[:, 0] != NONE)
            & are_whole(words, cells, ib.block, ib.superblock)
            & ((pointed == NONE) | np.isin((pointed >> BITS) // blocks, there)).all(1)
        )
        whole = int(np.argmin(fine)) if not fine.all() else len(fine)
        count += whole
        if whole < len(fine):
            break
    return count
