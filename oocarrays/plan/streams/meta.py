"""Metadata of a stream file: cells, ranks, and the valid length of each segment.

    byte of a stream   0 …… nb_end …… cb_end …… length[cell]
    lies in            NB         CB        IB

The paper keeps it in a .meta file; here it is an attribute of the group. Data in a segment beyond its valid length
belongs to a process that has not settled, and may have died.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from oocarrays.errors import BudgetError, DescriptorError
from oocarrays.mapping.grid import ceil_div
from oocarrays.plan.documents import Document, read_as

VERSION = 1
"""Version of this format."""
KEY = "oocarrays:streams"
"""Attribute of a group that is a stream file."""
NB_GATHERED = 2**18
"""Minimum bytes of a row that is a chunk by itself; smaller ones are gathered."""
IB_BLOCK, LEAST_IB_BLOCK = 64, 16
"""Bytes of a buffer of IB: the paper's value, which is best here, too, and the minimum."""
WRITING_BYTES = 440
"""Maximum bytes of each cell in addition to buffers of IB while cells write; 200 while a directory is read."""
LEAST_POINTERS = 2
"""Minimum number of pointers of an entry of the directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Cells of a file, distributed over ranks and chunks along the first axis, in blocks."""

    shape: tuple[int, ...]
    ranks: int
    """Number of logical processors that write."""
    rank_rows: int
    """Rows of each rank along the first axis."""
    chunk_rows: int
    """Rows of a chunk of one step along the first axis; ranks begin at chunk boundaries."""

    @classmethod
    def of(cls, shape: tuple[int, ...], ranks: int, cell_bytes: int = 8) -> Cells:
        """Distribute cells over ranks, in chunks of at most 4 MiB if the first axis can be cut."""
        rows = ceil_div(max(shape[0] if shape else 1, 1), ranks)
        nbytes = rows * math.prod(shape[1:]) * cell_bytes
        chunk = ceil_div(rows, min(max(ceil_div(nbytes, 2**22), 1), rows))
        return cls(shape=shape, ranks=ranks, rank_rows=ceil_div(rows, chunk) * chunk, chunk_rows=chunk)

    def redealt(self, ranks: int) -> Cells:
        """Distribute the same cells over other ranks, which begin at chunk boundaries."""
        rows = ceil_div(max(self.shape[0] if self.shape else 1, 1), ranks)
        return replace(self, ranks=ranks, rank_rows=ceil_div(rows, self.chunk_rows) * self.chunk_rows)

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def inner(self) -> int:
        """Cells of one row along the first axis."""
        return math.prod(self.shape[1:])

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        return (self.chunk_rows, *(max(n, 1) for n in self.shape[1:])) if self.shape else ()

    def of_rank(self, rank: int) -> tuple[int, int]:
        begin = min(rank * self.rank_rows * self.inner, self.count)
        return begin, min(begin + self.rank_rows * self.inner, self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regular:
    """Segment of NB or CB: rows of one block of each cell."""

    block: int = 0
    """Bytes of a block; 0 if the segment is empty."""
    nbytes: int = 0
    """Bytes of each stream in the segment."""

    @property
    def rows(self) -> int:
        """Number of rows; the last one may be partial."""
        return ceil_div(self.nbytes, self.block) if self.block else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Independent:
    """Segment of IB: superblocks and their directory, both assigned to ranks in turn."""

    block: int = 0
    """Bytes of a block; 0 if the segment is empty."""
    superblock: int = 0
    """Bytes of a superblock, in whole blocks."""
    pointers: int = 0
    """Pointers of an entry of the directory."""
    entries: int = 0
    """Entries of a superblock of the directory."""
    base: tuple[int, int] = (0, 0)
    """Superblocks of data and of the directory at the start of the current writers."""
    ranks: int = 0
    """Number of ranks that have written since."""
    ends: tuple[tuple[int, int], ...] = ()
    """Bytes of data and entries of the directory of each of these ranks, in its own superblocks."""
    is_linked: bool = False
    """Whether entries have their nexts, and each cell its first entry and its length."""

    @property
    def superblocks(self) -> tuple[int, int]:
        """Superblocks of data and of the directory, including unwritten ones between written ones."""
        return self._last(0, self.superblock), self._last(1, self.entries)

    def _last(self, which: int, each: int) -> int:
        reached = [(rank, ceil_div(end[which], each)) for rank, end in enumerate(self.ends) if end[which]]
        return self.base[which] + max((rank + self.ranks * (turns - 1) + 1 for rank, turns in reached), default=0)

    def valid_entries(self, superblock: int) -> int:
        if superblock < self.base[1]:
            return self.entries
        turn, rank = divmod(superblock - self.base[1], max(self.ranks, 1))
        end = self.ends[rank][1] if rank < len(self.ends) else 0
        return min(max(end - turn * self.entries, 0), self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Metadata of a stream file."""

    cells: Cells
    """Cells of the file, and the ranks of the last writers."""
    dtype: Any
    """Type of an item for reading, as numpy's description of a type."""
    nb: Regular = Regular()
    cb: Regular = Regular()
    ib: Independent = Independent()
    is_closed: bool = False
    """Whether the file was closed; otherwise a process is writing it, or has died."""

    @property
    def item(self) -> np.dtype:
        return type_of(self.dtype)

    def as_json(self) -> Document:
        return {"version": VERSION, **asdict(self)}


class WriterFacts(NamedTuple):
    """State of a settled writing process."""

    nb: Regular
    cb: Regular
    ib: Independent
    ends: tuple[tuple[int, tuple[int, int]], ...]
    """Number of each rank that writes in IB, with its position in data and directory."""


def committed(meta: Meta, facts: list[WriterFacts], *, begins_ib: bool = False) -> Meta:
    one, ranks, ib = facts[0], meta.cells.ranks, meta.ib
    ends = dict(end for each in facts for end in each.ends)
    if ends:
        all_ends = tuple(ends.get(rank, (0, 0)) for rank in range(ranks))
        ib = replace(one.ib, ranks=ranks, ends=all_ends, is_linked=False)
    elif begins_ib and not ib.block:
        ib = replace(one.ib, ranks=ranks)
    nb = max((each.nb for each in facts), key=attrgetter("block"))
    return replace(meta, nb=nb, cb=one.cb, ib=ib, is_closed=False)


def meta_from(found: Any, place: str) -> Meta:
    try:
        if found["version"] != VERSION:
            raise DescriptorError(f"{place} holds streams of version {found['version']}; this one reads {VERSION}")
        kinds = {"cells": Cells, "nb": Regular, "cb": Regular, "ib": Independent}
        parts = {name: read_as(kind, found[name], f"{name} of {place}") for name, kind in kinds.items()}
        return Meta(**parts, dtype=found["dtype"], is_closed=found["is_closed"])
    except (LookupError, TypeError, ValueError) as error:
        if isinstance(error, DescriptorError):
            raise
        raise DescriptorError(f"{place} does not describe its streams as this version does: {error!r}") from None


def independent(cells: int, itemsize: int, budget: int, asked: Mapping[str, int] | None = None) -> Independent:
    """Choose the largest blocks of IB that fit a third of a budget, up to the paper's 6 pointers and 2 MiB at once."""
    asked = asked or {}
    block, count = IB_BLOCK, 6
    room = min(budget // 3, budget * 3 // 4 - WRITING_BYTES * cells)
    while cells * (block + 8 * count) > room and (block > LEAST_IB_BLOCK or count > LEAST_POINTERS):
        block, count = (block // 2, count) if block > LEAST_IB_BLOCK else (block, LEAST_POINTERS)
    block = asked.get("ib_block") or (ceil_div(block, itemsize) * itemsize if itemsize <= IB_BLOCK else block)
    count = asked.get("ib_pointers") or count
    room = min(asked.get("superblock") or 2**21, max(budget // 32, 4096))
    superblock = max(room // block, 1) * block
    return Independent(
        block=block, superblock=superblock, pointers=count, entries=max(superblock // (8 * (2 + count)), 1)
    )


def check_budget(meta: Meta, cells: int, ranks: int, budget: int, *, writes: bool) -> None:
    ib = meta.ib
    block, pointers = (ib.block, ib.pointers) if ib.block else (LEAST_IB_BLOCK, LEAST_POINTERS)
    buffers = cells * (block + 8 * pointers + 2 * np.dtype(np.int32).itemsize) if writes else 0
    least = buffers + (WRITING_BYTES if writes else 200) * cells + 2 * (ib.superblock or 4096) * ranks + 2**16
    if least > budget:
        raise BudgetError(budget, least, f"streams of {cells} cells")


def described(item: np.dtype) -> Any:
    if item.subdtype is not None:
        return {"base": described(item.subdtype[0]), "shape": list(item.subdtype[1])}
    if item.names is None:
        return item.str
    fields = ((name, *item.fields[name][:2]) for name in item.names)  # type: ignore[index]
    return {"fields": [[name, described(each), offset] for name, each, offset in fields], "itemsize": item.itemsize}


def type_of(said: Any) -> np.dtype:
    made: Any = said
    if isinstance(said, dict) and "fields" in said:
        names, types, offsets = zip(*said["fields"], strict=True)
        formats = [type_of(each) for each in types]
        made = {"names": names, "formats": formats, "offsets": offsets, "itemsize": said["itemsize"]}
    elif isinstance(said, dict):
        made = type_of(said["base"]), tuple(said["shape"])
    elif isinstance(said, list):
        made = [tuple(tuple(part) if isinstance(part, list) else part for part in field) for field in said]
    return np.dtype(made)


def ended(meta: Meta) -> Meta:
    """Return the metadata for the next writers: their superblocks follow all present ones."""
    ib = replace(meta.ib, base=meta.ib.superblocks, ranks=0, ends=(), is_linked=False)
    return replace(meta, ib=ib, is_closed=False)
