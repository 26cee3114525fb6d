"""Directory of IB: the blocks of the segment that form a cell's stream.

    first[cell] ──► entry │ cell │ next │ pointer │ pointer │ …   ──► entry │ cell │ next │ …   ──► −1

A pointer is a block of the segment and the bytes from there on, which may span several blocks of one superblock:
``block << 24 | bytes``. Entries are written without next, together with their blocks. When a file is closed, they are
traversed backwards and linked (section 5.2.4, Figure 7). Their cells alone suffice to repeat that.

    level entry │ −2 − cell │ cells │ pointer │        as many bytes of each of these cells, one after the other

Cells that fill together need no pointer each: one entry has the start of the blocks of all of them. The blocks of each
cell are in the order of its stream, in both kinds of entries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from oocarrays.plan.streams.units import before, spreads

BITS = 24
"""Number of bits of a pointer for its bytes."""
MOST_RUN = 1 << BITS
"""Exclusive upper bound for the bytes of a run: superblocks are at most half as large."""
NONE = -1
"""No entry, no block, no cell: the fill value of a directory."""
HEAD = 2
"""Words of an entry before its pointers: its cell, and the next entry."""
LEVEL = -2
"""First word of a level entry is this minus its first cell; the second is the number of cells."""


def level_entries(
    cells: np.ndarray, counts: np.ndarray, blocks: np.ndarray, nbytes: int, pointers_each: int
) -> np.ndarray:
    """Return level entries: the first cell of each, the number of cells, and the start of their blocks."""
    entries = np.full((len(cells), HEAD + pointers_each), NONE, np.int64)
    entries[:, 0], entries[:, 1] = LEVEL - cells, counts
    entries[:, HEAD] = blocks << BITS | nbytes
    return entries


class LevelEntries(NamedTuple):
    """Level entries, each for the cells from ``lower`` to ``upper``."""

    lower: np.ndarray
    """First cell of each entry."""
    upper: np.ndarray
    """One past its last cell."""
    place: np.ndarray
    """Byte offset of the blocks of its first cell in the segment."""
    nbytes: np.ndarray
    """Bytes of each cell."""
    stride: np.ndarray
    """Bytes from cell to cell, in whole blocks."""


def levels_of(entries: np.ndarray, block: int) -> LevelEntries:
    lower, pointer = LEVEL - entries[:, 0], entries[:, HEAD]
    nbytes = pointer & (MOST_RUN - 1)
    upper = lower + np.maximum(entries[:, 1], 0)
    return LevelEntries(lower, upper, (pointer >> BITS) * block, nbytes, -(-nbytes // block) * block)


class Extents(NamedTuple):
    """Runs of bytes that form streams, by cell and in the order of each stream."""

    owner: np.ndarray
    """Index of the owner among the requested cells."""
    offset: np.ndarray
    """Byte offset in the stream's IB part."""
    place: np.ndarray
    """Byte offset in the segment."""
    count: np.ndarray  # type: ignore[assignment]
    """Number of bytes."""


def extents_of(cells: np.ndarray, entries: np.ndarray, block: int) -> Extents:
    """Return the extents of some cells, from entries in the order of writing."""
    if not len(cells):
        return Extents(*(np.empty(0, np.int64) for _ in Extents._fields))
    is_level = entries[:, 0] <= LEVEL
    if not is_level.any():
        return _extents(*_pointed(cells, entries, block))
    parts = zip(_pointed(cells, entries[~is_level], block), _leveled(cells, entries[is_level], block), strict=True)
    owner, place, count = (np.concatenate(both) for both in parts)
    order = np.lexsort((place, owner))
    return _extents(owner[order], place[order], count[order])


def _pointed(cells: np.ndarray, entries: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return owner, place and bytes of the pointers in entries of one cell, cell by cell."""
    at = np.searchsorted(cells, entries[:, 0])
    at[at == len(cells)] = 0
    mine = np.flatnonzero(cells[at] == entries[:, 0])
    order = mine[np.argsort(at[mine], kind="stable")]
    words = entries[order, HEAD:]
    there = words != NONE
    found = words[there]
    return np.repeat(at[order], there.sum(1)), (found >> BITS) * block, found & (MOST_RUN - 1)


def _leveled(cells: np.ndarray, entries: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found = levels_of(entries, block)
    first = np.searchsorted(cells, found.lower)
    each = np.searchsorted(cells, found.upper) - first
    owner = next(spreads(each, first))
    place = np.repeat(found.place, each) + (cells[owner] - np.repeat(found.lower, each)) * np.repeat(found.stride, each)
    return owner, place, np.repeat(found.nbytes, each)


def _extents(owner: np.ndarray, place: np.ndarray, count: np.ndarray) -> Extents:
    """Return runs in the order of streams with their offsets in the stream."""
    all_before = before(count)
    first = np.concatenate(([True], owner[1:] != owner[:-1])) if len(owner) else np.empty(0, bool)
    offset = all_before - np.maximum.accumulate(np.where(first, all_before, 0)) if len(owner) else all_before
    return Extents(owner, offset, place, count)


def are_whole(entries: np.ndarray, cells: int, block: int, superblock: int) -> np.ndarray:
    """Return for each entry whether its cells are valid, and its blocks lie in one superblock."""
    is_level = entries[:, 0] <= LEVEL
    lower = np.where(is_level, LEVEL - entries[:, 0], entries[:, 0])
    count = np.where(is_level, entries[:, 1], 1)
    found = entries[:, HEAD:]
    nbytes = found & (MOST_RUN - 1)
    room = superblock - (found >> BITS) * block % superblock
    stride = np.where(is_level, -(-nbytes[:, 0] // block) * block, 0)
    fits = (found == NONE) | ((found > 0) & (nbytes > 0) & (nbytes + ((count - 1) * stride)[:, None] <= room))
    whole: np.ndarray = fits.all(1) & (found[:, 0] != NONE) & (lower < cells) & (count > 0) & (lower <= cells - count)
    whole |= (entries == NONE).all(1)
    return whole


def overlaps(
    extents: Extents, offsets: np.ndarray, counts: np.ndarray, into: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the requested bytes of each cell as runs: place in the segment, in a result, and number of bytes."""
    owner = extents.owner
    begin = np.maximum(extents.offset, offsets[owner])
    length = np.minimum(extents.offset + extents.count, (offsets + counts)[owner]) - begin
    wanted = np.flatnonzero(length > 0)
    begin, owner = begin[wanted], owner[wanted]
    return extents.place[wanted] + begin - extents.offset[wanted], into[owner] + begin - offsets[owner], length[wanted]


def linked(entries: np.ndarray, first_id: int, head: np.ndarray) -> np.ndarray:
    """Return the entries of one superblock linked to each other and to those after it, which are linked already."""
    there = np.flatnonzero(entries[:, 0] >= 0)
    order = there[np.argsort(entries[there, 0], kind="stable")]
    cells = entries[order, 0]
    is_last = np.concatenate((cells[1:] != cells[:-1], [True])) if len(cells) else np.empty(0, bool)
    following = np.concatenate((order[1:], [0])) + first_id if len(cells) else order
    out = entries.copy()
    out[order, 1] = np.where(is_last, head[cells], following)
    starts = np.concatenate(([True], is_last[:-1])) if len(cells) else is_last
    head[cells[starts]] = order[starts] + first_id
    return out
