"""Reading items of streams: the same of all cells, or of each its own number; positions move on."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocarrays.errors import InputError
from oocarrays.mapping.given import whole
from oocarrays.storage.streams.part import RanksPart
from oocarrays.streaming.positions import simple
from oocarrays.streaming.ragged import Ragged


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
    is_full = counts is not None and bool((got == counts[cells]).all()) and not isinstance(n, np.ndarray | list)
    values = data.view(item)
    if not is_full:
        all_counts = np.zeros(part.count, np.int64)
        all_counts[cells] = got
        return Ragged(all_counts.reshape(part.shape), values)
    within = () if n is None else (int(n),)
    return values.reshape(*(part.shape if mask is None else (len(cells),)), *within)


def _wanted(part: RanksPart, n: Any) -> np.ndarray | None:
    """Items of each cell; None for all that there are."""
    if n is None or np.ndim(n) == 0:
        number = 1 if n is None else whole(n, "n", -1)
        return None if number == -1 else np.full(part.count, number)
    counts = np.asarray(n)
    if counts.shape != part.shape or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise InputError(f"n= of shape {counts.shape} and dtype {counts.dtype} are no counts of shape {part.shape}")
    return counts.reshape(-1).astype(np.int64)


def _viewed(rows: np.ndarray, item: np.dtype) -> np.ndarray:
    """View rows of bytes as items: those that lie apart are moved as such, many times faster than as bytes."""
    return rows.view(item) if rows.shape[1] and rows.strides[1] == 1 else np.empty((len(rows), 0), item)
