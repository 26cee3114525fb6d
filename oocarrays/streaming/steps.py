"""All streams as one Zarr array of steps × cells, as a file of NB alone has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr

from oocarrays.storage.streams.part import RanksPart
from oocarrays.streaming.ragged import Ragged

SHARE = 8
"""The part of the budget in which steps are gathered is one of so many."""


def steps_of(part: RanksPart, item: np.dtype) -> int:
    """Items of the longest stream."""
    return int((part.ends() // item.itemsize).max(initial=0))


def fill_steps(array: zarr.Array, part: RanksPart, item: np.dtype, fill: Any) -> None:
    """Write all streams to an array of steps × cells, and after the end of shorter ones ``fill``."""
    ends, everyone = part.ends() // item.itemsize, np.arange(part.count) + part.lower
    at_once = max(part.budget // SHARE // max(part.count * item.itemsize, 1), 1)
    for start in range(0, array.shape[0], at_once):
        counts = np.clip(ends - start, 0, at_once)
        offsets = np.minimum(start, ends) * item.itemsize
        data = part.read(everyone, offsets, counts * item.itemsize).view(item)
        block = Ragged(counts, data).padded(fill)
        array[start : start + block.shape[1]] = block.T.reshape(-1, *array.shape[1:])
