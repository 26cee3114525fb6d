"""Positions of streams, and reading items from there: the same of all cells, or of each its own number.

A position is one number where all streams stand at the same place, else one of each cell; None at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocarrays.errors import InputError, SelectionError
from oocarrays.mapping.given import chosen, whole
from oocarrays.plan.streams.units import before
from oocarrays.storage.streams.part import RanksPart
from oocarrays.streaming.items import as_array
from oocarrays.streaming.ragged import Ragged
from oocarrays.streaming.text import Token, scanned

TEXT_AHEAD = 256
"""Bytes of each cell that scanf looks at first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The matches of a format in the text of each cell."""

    tokens: list[Token]
    """The parts of the format."""
    matches: list[tuple[list[Any], int, bool]]
    """Of each cell, the values, the bytes that they took, and whether its text ended before a directive."""

    @property
    def counts(self) -> np.ndarray:
        """Conversions that each cell matched, as C returns them: -1 where its text ended before the first."""
        return np.array([-1 if ended and not values else len(values) for values, _, ended in self.matches], np.int64)

    def columns(self) -> list[np.ndarray]:
        """The values of each conversion: 0, nan or empty where a cell did not match it."""
        made = []
        for number, kind in enumerate(token.type for token in self.tokens if token.type is not None):
            empty: Any = "" if kind is str else math.nan if kind is float else 0
            column = [values[number] if number < len(values) else empty for values, _, _ in self.matches]
            made.append(_integers(column) if kind is int else np.array(column, kind))
        return made


def _integers(values: list[int]) -> np.ndarray:
    """Return integers as numpy has them, or as they are where some are too large."""
    limits = [(dtype, np.iinfo(dtype)) for dtype in (np.int64, np.uint64)]
    least, most = min(values, default=0), max(values, default=0)
    return np.array(values, next((dtype for dtype, it in limits if it.min <= least and most <= it.max), object))


def scanned_cells(part: RanksPart, tokens: list[Token]) -> Matches:
    """Match the text of each cell; where a match may go on, with more of it."""
    found: list[tuple[list[Any], int, bool]] = [([], 0, False)] * part.count
    position, ends = part.tell(), part.ends()
    cells, size = np.arange(part.count), TEXT_AHEAD
    while len(cells):
        rest = np.maximum(ends - position, 0)[cells]
        left = np.minimum(rest, size)
        data = part.read(cells + part.lower, position[cells], left).tobytes()
        starts, more = before(left).tolist(), []
        for cell, start, count, all_left in zip(cells.tolist(), starts, left.tolist(), rest.tolist(), strict=True):
            found[cell] = scanned(tokens, data[start : start + count])
            if found[cell][1] == count < all_left:  # it may go on
                more.append(cell)
        cells, size = np.array(more, np.int64), size * 4
    return Matches(tokens=tokens, matches=found)


def returned(results: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray | None:
    """Return what a function returned for each cell as an array; None where it returned nothing."""
    if all(result is None for result in results):
        return None
    if all(isinstance(result, int | float | complex | np.number | np.bool_) for result in results):
        return np.array(results).reshape(shape)
    out = np.empty(len(results), object)
    out[:] = results
    return out.reshape(shape)


MOST_ITEMS = 2**62
"""Items that are read of a stream, at most."""
WHENCES = (0, 1, 2)
"""From the beginning, from where a stream stands, from its end: os.SEEK_SET, os.SEEK_CUR, os.SEEK_END."""


def moved(part: RanksPart, offset: Any, whence: int) -> int | np.ndarray | None:
    """Return where streams stand after a seek."""
    chosen(whence, "whence", WHENCES)
    given = as_array(offset, "offset=")
    if given.dtype.kind not in "iu" or given.shape not in ((), part.shape):
        raise InputError(f"offset={offset!r:.80} is no whole number, nor one for each cell of shape {part.shape}")
    if whence == 2 and given.ndim == 0 and given == 0:
        return None if part.writes else simple(part.ends())
    start = 0 if whence == 0 else part.tell() if whence == 1 else part.ends()
    position = start + given.reshape(-1).astype(np.int64) if given.ndim else start + int(given)
    if np.min(position, initial=0) < 0:
        raise SelectionError(f"seek to byte {np.min(position)} is before the beginning of a stream")
    return position if isinstance(position, int) else simple(position)


def simple(position: np.ndarray) -> int | np.ndarray:
    """One number for the positions of all cells, where they are the same."""
    if len(position) and bool((position == position[0]).all()):
        return int(position[0])
    return position if len(position) else 0


def read_level(part: RanksPart, items: int, item: np.dtype) -> np.ndarray | None:
    """Read as many items of all cells, which stand at the same place: cells × items. None where some have fewer."""
    position, nbytes = part.position, items * item.itemsize
    if not isinstance(position, int) or position + nbytes > part.level_end():
        return None
    rows = part.read_level(position, nbytes)
    part.position = position + nbytes
    return np.ascontiguousarray(_viewed(rows, item))


def read_each(part: RanksPart, n: Any, mask: np.ndarray | None, item: np.dtype) -> Any:
    """Read of each cell its own number of items, or those of a mask: an array where all have what is asked for."""
    counts = _wanted(part, n)
    cells = np.arange(part.count) if mask is None else np.flatnonzero(mask)
    position, ends = part.tell(), part.ends()
    left = np.maximum(ends - position, 0)[cells] // item.itemsize
    got = left if counts is None else np.minimum(counts[cells], left)
    data = part.read(cells + part.lower, position[cells], got * item.itemsize)
    position[cells] += got * item.itemsize
    part.position = simple(position)
    is_full = counts is not None and bool((got == counts[cells]).all()) and np.ndim(n) == 0
    values = data.view(item)
    if not is_full:
        all_counts = np.zeros(part.count, np.int64)
        all_counts[cells] = got
        return Ragged(all_counts.reshape(part.shape), values)
    within = () if n is None else (int(n),)
    return values.reshape((*(part.shape if mask is None else (len(cells),)), *within))


def _wanted(part: RanksPart, n: Any) -> np.ndarray | None:
    """Items of each cell; None for all that there are."""
    counts = as_array(1 if n is None else n, "n=")
    if not counts.ndim:
        number = 1 if n is None else min(whole(n, "n", -1), MOST_ITEMS)
        return None if number == -1 else np.full(part.count, number)
    if counts.shape != part.shape or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise InputError(f"n= of shape {counts.shape} and dtype {counts.dtype} are no counts of shape {part.shape}")
    return counts.reshape(-1).astype(np.int64)


def _viewed(rows: np.ndarray, item: np.dtype) -> np.ndarray:
    """View rows of bytes as items: those that lie apart are moved as such, many times faster than as bytes."""
    return rows.view(item) if rows.shape[1] and rows.strides[1] == 1 else np.empty((len(rows), 0), item)
