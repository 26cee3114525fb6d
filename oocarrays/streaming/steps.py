"""All streams as one Zarr array of steps × cells, as a file of NB alone has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import zarr

from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.options.chunks import regular_chunks, regular_shards
from oocarrays.plan.documents import Settings
from oocarrays.storage.files.array_file import preview
from oocarrays.storage.files.formats import check_shards, compressors_in
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.streams.part import RanksPart

SHARE = 8
"""The part of the budget in which steps are gathered is one of so many."""


def steps_of(part: RanksPart, item: np.dtype) -> int:
    """Items of the longest stream."""
    return int((part.ends() // item.itemsize).max(initial=0))


def steps_settings(
    store: StoreLike, shape: tuple[int, ...], cells: tuple[int, ...], item: np.dtype, asked: Settings
) -> Settings:
    """Return the settings of an array of steps × cells; a step and some cells in a chunk, unless other are asked for."""
    given, shards, compressors = asked["chunks"], asked["shards"], asked["compressors"]
    chunks = (1, *cells)
    if given is not None:
        chunks = regular_chunks(given, ChunkGrid.of(shape, chunks), item)
    made: Settings = {"shape": shape, "chunks": chunks, "dtype": item, "compressors": None}
    if shards is not None:
        made["shards"] = regular_shards(shards, chunks, shape, item)
        check_shards(chunks, made["shards"], 3)
    if compressors is not None:
        made["compressors"] = compressors_in(3, compressors, item.itemsize)
    if any(each is not None for each in asked.values()):
        preview(made, store)
    return made


def boxes_of(settings: Settings, count: int, budget: int) -> tuple[int, int]:
    """Return the steps, and the rows of cells, that are written together: whole chunks or shards, as many as fit.

    Examples
    --------
    >>> f8 = np.dtype("f8")
    >>> boxes_of({"shape": (100, 50, 4), "chunks": (10, 5, 4), "dtype": f8}, 200, 8 * 40_000)
    (20, 50)
    >>> boxes_of({"shape": (100, 50, 4), "chunks": (10, 5, 4), "dtype": f8}, 200, 8 * 10_000)
    (10, 30)
    """
    shape, itemsize = settings["shape"], settings["dtype"].itemsize
    unit = settings.get("shards") or settings["chunks"]
    rows = shape[1] if len(shape) > 1 else 1
    step = max(count, 1) * itemsize
    together = budget // SHARE // step // unit[0] * unit[0]
    if together:
        return together, max(rows, 1)
    each = step // max(rows, 1) * unit[0]
    fits = budget // SHARE // max(each, 1)
    fits = fits // unit[1] * unit[1] if len(shape) > 1 else 0
    if not fits and unit[0] > 1:
        least = SHARE * each * (unit[1] if len(shape) > 1 else 1)
        raise BudgetError(budget, least, f"an array in units of {unit}")
    return (unit[0], fits) if fits else (1, max(rows, 1))


def fill_steps(array: zarr.Array, part: RanksPart, item: np.dtype, fill: Any, boxes: tuple[int, int]) -> None:
    """Write all streams to an array of steps × cells, and after the end of shorter ones ``fill``."""
    steps, rows = boxes
    inner = math.prod(array.shape[2:])
    for first in range(0, array.shape[1] if array.ndim > 1 else 1, rows):
        last = min(first + rows, array.shape[1]) if array.ndim > 1 else 1
        cells = np.arange(first * inner, last * inner)
        for start in range(0, array.shape[0] if len(cells) else 0, steps):
            stop = min(start + steps, array.shape[0])
            block = _padded(part, cells, (start, stop), item, fill)
            if array.ndim > 1:
                array[start:stop, first:last] = block.T.reshape(stop - start, last - first, *array.shape[2:])
            else:
                array[start:stop] = block[0]


def _padded(part: RanksPart, cells: np.ndarray, steps: tuple[int, int], item: np.dtype, fill: Any) -> np.ndarray:
    """Some items of some cells, and what shorter streams end in: cells × items."""
    start, stop = steps
    ends = part.ends()[cells] // item.itemsize
    counts = np.clip(ends - start, 0, stop - start)
    data = part.read(cells + part.lower, np.minimum(start, ends) * item.itemsize, counts * item.itemsize, ahead=False)
    block = np.full((len(cells), stop - start), fill, item)
    block[np.arange(stop - start) < counts[:, None]] = data.view(item)
    return block
