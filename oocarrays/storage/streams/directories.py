"""Stored directories of IB, reads by them, and recovery of files left by a crash.

few cells    first ──► entry ──► next ──► next       each superblock touched is read once
many cells   all superblocks, one after the other
all alike    level entries ──► blocks in place
recovery     whole entries ──► up to the last existing block ──► linked again ──► the file is closed

The paper omits recovery: "the VP values in the directory blocks allow the streams to be reconstructed again" (5.2.4).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from oocarrays.errors import CorruptChunkError
from oocarrays.plan.streams.buffers import Part, Pieces
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
    overlaps,
)
from oocarrays.plan.streams.meta import Independent
from oocarrays.plan.streams.units import groups
from oocarrays.storage.meter import Meter
from oocarrays.storage.streams.raw import CellBlocks, RawChunks
from oocarrays.storage.streams.stream_file import StreamFile, open_file, stored_numbers

FEW = 64
"""Calls of fewer than one in this many cells are reads of single cells, not of all."""


class Directory:
    """Valid part of a directory in a store."""

    def __init__(self, chunks: RawChunks, ib: Independent) -> None:
        self.chunks = chunks
        self.ib = ib
        self._all = range(ib.superblocks[1])
        self._no_entries = np.empty((0, HEAD + ib.pointers), np.int64)

    def entries(self, superblock: int) -> np.ndarray:
        valid = self.ib.valid_entries(superblock)
        if not valid:
            return self._no_entries
        words = self.chunks.get(superblock).view(np.int64).reshape(-1, HEAD + self.ib.pointers)[:valid]
        if superblock >= self.ib.base[1] and words[0, 0] == NONE:
            raise CorruptChunkError(f"superblock {superblock} of {self.chunks.name} is missing")
        return words

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
                raise self.damaged("has a cycle")
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
                raise self.damaged("points to missing entries")
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
            raise self.damaged(f"points to missing cells or blocks in superblock {superblock}")
        return words

    def damaged(self, how: str) -> CorruptChunkError:
        return CorruptChunkError(f"the directory {self.chunks.name} {how}: rebuild it with oocarrays resume")

    def link(self, cells: int) -> tuple[np.ndarray, np.ndarray]:
        """Link each entry to its next one, backwards; return the first entry of each cell and all level entries."""
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


class LevelBlocks:
    """Blocks that all cells of a process wrote together, by level entries."""

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
        mine = mine[np.argsort(levels.place[mine])]
        self.levels = type(levels)(*(each[mine] for each in levels))
        self.lower = np.maximum(self.levels.lower, cells[0]) - cells[0]
        self.upper = np.minimum(self.levels.upper, cells[1]) - cells[0]
        others = extents_of(everyone, entries[~is_level], directory.ib.block) if len(mine) else None
        self.offsets = self._offsets(others)

    def _offsets(self, others: Extents | None) -> np.ndarray:
        """Return the stream offset of each level entry; -1 if cells differ."""
        offsets = np.full(len(self.lower), NONE, np.int64)
        if others is None:
            return offsets
        had = np.zeros(self.cells[1] - self.cells[0], np.int64)
        order = np.argsort(others.place)
        owner, count = others.owner[order], others.count[order]
        until, done = np.searchsorted(others.place[order], self.levels.place), 0
        for number, upto in enumerate(until.tolist()):
            np.add.at(had, owner[done:upto], count[done:upto])
            done, here = upto, had[self.lower[number] : self.upper[number]]
            if bool((here == here[0]).all()):
                offsets[number] = here[0]
            here += self.levels.nbytes[number]
        return offsets

    def at(self, offset: int) -> CellBlocks | None:
        """Return the blocks that hold a byte of all streams; None if no such blocks exist."""
        ends = self.offsets + self.levels.nbytes
        here = np.flatnonzero((self.offsets != NONE) & (self.offsets <= offset) & (offset < ends))
        if not len(here) or int((self.upper - self.lower)[here].sum()) < self.cells[1] - self.cells[0]:
            return None
        first = int(self.offsets[here].max())
        parts = [
            (int(self.lower[number]), int(self.upper[number]), partial(self._rows, number, first))
            for number in here.tolist()
        ]
        return CellBlocks(first, int(ends[here].min()), parts)

    def _rows(self, number: int, offset: int) -> np.ndarray:
        cells, stride = int(self.upper[number] - self.lower[number]), int(self.levels.stride[number])
        superblock, place = divmod(int(self.levels.place[number]), self.superblock)
        place += int(self.cells[0] + self.lower[number] - self.levels.lower[number]) * stride
        data = self.data.get(superblock)[place : place + cells * stride]
        return data.reshape(cells, stride)[:, offset - int(self.offsets[number]) :]


Heads = tuple[np.ndarray, np.ndarray]
"""First entry of each cell, and all level entries."""


class Reader:
    """Reader of IB for the cells of one process, which are numbered from 0."""

    def __init__(
        self, data: RawChunks, directory: Directory, cells: tuple[int, int], lengths: np.ndarray,
        heads: Callable[[], Heads] | None, most: int,
    ) -> None:  # fmt: skip
        self.data = data
        self.directory = directory
        self.cells = cells
        self.lengths = lengths
        self._links = heads
        self._most = most
        self._extents: tuple[np.ndarray, Extents] | None = None

    @cached_property
    def levels(self) -> LevelBlocks | None:
        """Blocks that all cells wrote together; None without memory to scan the whole directory."""
        ib = self.directory.ib
        if ib.superblocks[1] * ib.entries * (HEAD + ib.pointers) * 8 * 4 > self._most:  # a scan holds up to four copies
            return None
        return LevelBlocks(self.data, self.directory, self.cells)

    def read(self, cells: np.ndarray, part: Part, out: np.ndarray) -> None:
        """Read bytes of ascending cells into their places in ``out``; the bytes must exist."""
        blocks = self.lengths[cells] // max(self.directory.ib.block, 1) + 1
        for some in groups(blocks * 256, self._most):  # bytes of an entry and of data derived from it
            offsets, counts, into = (each[some] for each in part)
            self.data.read(self.pieces(cells[some], (offsets, counts, into)), out)

    def pieces(self, cells: np.ndarray, part: Part) -> Pieces:
        place, into, count = overlaps(self._found(cells), *part)
        superblock, rest = np.divmod(place, self.directory.ib.superblock)
        if int(count.sum()) != int(part[1].sum()) or bool((rest + count > self.directory.ib.superblock).any()):
            raise self.directory.damaged("lacks blocks of its streams")
        return Pieces(superblock, rest, into, count)

    def _found(self, cells: np.ndarray) -> Extents:
        """Return the extents of some cells: by links if they are few, otherwise by a scan."""
        if self._extents is not None and np.array_equal(self._extents[0], cells):
            return self._extents[1]
        mine, count = cells + self.cells[0], self.cells[1] - self.cells[0]
        if self._links is not None and len(cells) * FEW < max(count, FEW):
            first, levels = self._links()
            return self.directory.follow(mine, first[cells], levels)
        found = extents_of(mine, self.directory.near(mine), self.directory.ib.block)
        nbytes = sum(each.nbytes for each in found)
        self._extents = (cells.copy(), found) if nbytes <= self._most else None
        return found


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
        file.release()


def _rebuilt(file: StreamFile) -> Rebuilt:
    meta = file.meta
    if not meta.ib.block:
        file.commit(replace(meta, is_closed=True))
        return Rebuilt(place=file.name, flushed_bytes=0, nbytes=0)
    directory, chunks = file.array("directory", write=True), file.chunks("directory", Meter(), write=True)
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
