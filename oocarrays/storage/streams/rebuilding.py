"""Recovery of stream files left by a crash, from the directory, where each entry names the cell of its blocks.

    whole entries ──► up to the last existing block ──► linked again ──► the file is closed

The paper omits this: "the VP values in the directory blocks allow the streams to be reconstructed again" (5.2.4).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from oocarrays.errors import CorruptChunkError
from oocarrays.plan.streams.directory import BITS, HEAD, NONE, are_whole
from oocarrays.plan.streams.meta import Independent
from oocarrays.storage.meter import Meter
from oocarrays.storage.streams.directories import Directory
from oocarrays.storage.streams.raw import RawChunks
from oocarrays.storage.streams.stream_file import StreamFile, open_file, stored_numbers


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
    directory = file.array("directory", write=True)
    words = 8 * meta.ib.entries * (HEAD + meta.ib.pointers)
    chunks = RawChunks.of_array(directory, lambda number: (number, 0, 0), words, Meter(), fill=0xFF)
    cells = meta.cells.count
    before = 0
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
