"""Writes of sections as plans: the action for each touched chunk, counted before it is done.

    chunk       ▒▒█▒▒█▒▒█▒      sieve     read ▒▒▒▒▒▒▒▒▒▒, put █ in, write ▒▒█▒▒█▒▒█▒ under another name, rename
    section       █  █  █       direct    write █, █ and █ in place: not atomic, so only on request
                ██████████      whole     nothing is read

Sieving costs twice the requests of a read, because the data between the strides is read first: 2 ⌈(u₂ − l₂ + 1) / n⌉
of a buffer of n columns. Thakur 1995, section 5.5.1 (writing array sections).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

import numpy as np

from oocarrays.errors import BudgetError, UnsupportedError
from oocarrays.mapping.along import OverGrid, Piece, product_line
from oocarrays.mapping.given import chosen
from oocarrays.mapping.grid import Stored, ceil_div, chunks_along, turned
from oocarrays.mapping.selection import Axes
from oocarrays.plan.cost import Traffic
from oocarrays.plan.machine import Costs

WriteMethod = Literal["auto", "direct", "sieve"]
"""Method for partly written chunks: ``"direct"`` writes each run in place, so a reader or a crash can see a partial
write; ``"sieve"`` reads, changes and replaces the chunk at once. ``"auto"`` is ``"sieve"``.
"""
BUFFER_BYTES = 2**28
"""Default maximum bytes of a write, unless one chunk needs more."""


def runs_of(inside: Sequence[np.ndarray], chunks: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and lengths of the contiguous runs of a product of indices in a chunk, in elements."""
    starts, lengths, size = np.zeros(1, np.int64), np.ones(1, np.int64), 1
    for positions, extent in zip(reversed(inside), reversed(chunks), strict=True):
        if len(lengths) == 1 and lengths[0] == size:
            first = np.flatnonzero(np.diff(positions, prepend=-2) > 1)
            starts, lengths = positions[first] * size, np.diff(first, append=len(positions)) * size
        else:
            starts, lengths = (positions[:, None] * size + starts).reshape(-1), np.tile(lengths, len(positions))
        size *= extent
    return starts, lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionWritePlan:
    """Reads, writes and memory of writing a section; measured counts agree if nothing is missing or coded."""

    stored: Stored
    """Array as written, with axes in storage order; its chunks are shards, if any."""
    axes: OverGrid
    """Indices written along each axis, by chunk."""
    method: WriteMethod
    """``"sieve"`` or ``"direct"``."""
    window: tuple[int, ...]
    """Elements along each axis that are read, changed and written at a time: a chunk, if the buffer holds it."""
    reads: Traffic
    writes: Traffic
    at_once: int
    """Number of chunks under way at one time."""
    held_bytes: int
    """Maximum bytes for those chunks, in addition to the values."""

    def units(self) -> Iterator[tuple[Piece, ...]]:
        """Yield the chunks in file order, each as its written part along each axis."""
        return product(*self.axes)


def plan_section_write(
    stored: Stored,
    axes: Axes,
    *,
    method: WriteMethod = "auto",
    buffer_bytes: int | None = None,
    requests: int = 1,
) -> SectionWritePlan:
    _check_method(stored, method)
    stored, axes = stored.lying, turned(axes, stored.order)
    parts = stored.grid.over(axes)
    window, held = _held(stored, parts, method, buffer_bytes)
    at_once = max(min(requests, _count(parts), (buffer_bytes or BUFFER_BYTES) // held), 1)
    reads, writes = _moved(stored, axes, parts, method, window)
    return SectionWritePlan(
        stored=stored,
        axes=parts,
        method="direct" if method == "direct" else "sieve",
        window=window,
        reads=reads,
        writes=writes,
        at_once=at_once,
        held_bytes=at_once * held,
    )


def _moved(
    stored: Stored, axes: Axes, parts: OverGrid, method: WriteMethod, window: tuple[int, ...]
) -> tuple[Traffic, Traffic]:
    """Return the traffic of reading what remains of partly written chunks, and of writing."""
    direct, whole, ratio = method == "direct", _count(parts, whole=True), Costs().stored_ratio(stored)
    changed = _count(parts) - whole
    rewritten = whole if direct else whole + changed
    runs = run_elements = 0
    if direct:  # those of chunks that are written partly
        every, wholes = (product_line([along.line(whole=only) for along in parts]) for only in (False, True))
        runs, run_elements = every.runs - wholes.runs, every.elements - wholes.elements
    inner = stored.inner.over(axes) if stored.shard_chunks else parts
    inner_bytes = math.prod(stored.shard_chunks or stored.grid.chunks) * stored.itemsize
    in_whole = _chunks_within(stored, parts, whole=True)
    in_rewritten = in_whole if direct else _chunks_within(stored, parts)
    windows = math.prod(map(ceil_div, stored.grid.chunks, window))
    coded = inner_bytes if stored.coded else 0
    written = int(in_rewritten * inner_bytes * ratio) + rewritten * stored.index_bytes + run_elements * stored.itemsize
    return Traffic(
        read_requests=(rewritten - whole) * windows,
        read_bytes=int((in_rewritten - in_whole) * inner_bytes * ratio) + (rewritten - whole) * stored.index_bytes,
        decoded_bytes=(_count(inner) - _count(inner, whole=True)) * coded,
    ), Traffic(write_requests=rewritten * windows + runs, written_bytes=written, encoded_bytes=_count(inner) * coded)


def _check_method(stored: Stored, method: str) -> None:
    chosen(method, "method", get_args(WriteMethod), error=UnsupportedError)
    if method == "direct" and not stored.in_place:
        what = (
            "in shards" if stored.shard_chunks else f"coded by {stored.codec}" if stored.coded else "in no local file"
        )
        raise UnsupportedError(
            f"method='direct' changes uncompressed chunks of local files in place; these are {what}: use 'auto'"
        )


def _count(axes: OverGrid, *, whole: bool = False) -> int:
    return math.prod(sum(n for part, n in along.alike if part.whole or not whole) for along in axes)


def _chunks_within(stored: Stored, axes: OverGrid, *, whole: bool = False) -> int:
    """Return the number of inner chunks in the units that are written, at least partly or as a whole."""
    return math.prod(
        sum(
            times * ceil_div(min(along.chunk, along.extent - part.chunk * along.chunk), c)
            for part, times in along.alike
            if part.whole or not whole
        )
        for along, c in zip(axes, stored.inner.chunks, strict=True)
    )


def _held(stored: Stored, axes: OverGrid, method: str, buffer_bytes: int | None) -> tuple[tuple[int, ...], int]:
    """Return the window that is written at a time, in elements along each axis, and its bytes."""
    chunks, itemsize = stored.grid.chunks, stored.itemsize
    least = stored.chunk_bytes + stored.decode_workspace + stored.encode_workspace
    if stored.in_place:
        piece = math.prod(max((part.size for part, _ in along.alike), default=0) for along in axes) * itemsize
        least = max(piece if method == "direct" else itemsize, itemsize)
    if buffer_bytes is not None and buffer_bytes < least:
        raise BudgetError(buffer_bytes, least, "writing this section")
    if not stored.in_place:
        return chunks, least
    room = buffer_bytes or max(BUFFER_BYTES, least)
    window = chunks_along(range(len(chunks)), chunks, room // itemsize)
    return window, max(math.prod(window) * itemsize, least)
