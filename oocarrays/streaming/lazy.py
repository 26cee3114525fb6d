"""Ragged items of Dask: lazy reads of blocks of cells, and writes of one block after the other.

to_dask   known counts ──► blocks of cells ──► a task each, which opens the file itself
write     chunks of values ──► computed, as many as fit, one after the other ──► appended
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from oocarrays.errors import BudgetError, CorruptChunkError, InputError
from oocarrays.plan.streams.calls import CellBytes
from oocarrays.plan.streams.meta import check_budget
from oocarrays.plan.streams.units import ValuesCut, cell_chunks, groups, parts_of, value_cuts
from oocarrays.storage.streams.part import RanksPart
from oocarrays.storage.streams.stream_file import StreamFile
from oocarrays.streaming.ragged import DaskRagged, Ragged, checked_counts

SHARE = 8
"""Divisor of the memory for a block to read, at most; chunks to write are gathered to that size."""


class RaggedReader:
    """Reader of blocks in tasks: it opens the file on first use, and again after it was sent."""

    def __init__(self, file: StreamFile, item: np.dtype, budget: int) -> None:
        self._made = file, item, budget
        self._file, self._item, self._budget = self._made
        self._lock = threading.Lock()
        self._part: RanksPart | None = None

    def __reduce__(self) -> Any:
        return RaggedReader, self._made

    def read(self, counts: np.ndarray, cut: ValuesCut) -> np.ndarray:
        cells, first, number = parts_of(counts.reshape(-1), cut.start, cut.stop)
        size, cells = self._item.itemsize, cells + cut.lower  # the part has all cells
        with self._lock:
            if self._part is None:
                file = self._file.latest()
                self._part = RanksPart(file, range(file.meta.cells.ranks), self._budget, writes=False)
            part = self._part
            if not (part.ends()[cells] >= (first + number) * size).all():
                raise CorruptChunkError(f"{self._file.name} has shorter streams than when to_dask() was called")
            return part.fetch(cells, first * size, number * size).view(self._item)


def dask_ragged(file: StreamFile, item: np.dtype, budget: int, ends: np.ndarray) -> DaskRagged:
    """Return all streams of a file as Dask arrays of known chunks, which are read when they are computed."""
    import dask.array as da
    from dask.highlevelgraph import HighLevelGraph

    meta, held = file.meta, _held(budget)
    try:
        check_budget(meta, meta.cells.count, meta.cells.ranks, held, writes=False)
    except BudgetError as error:
        likely = SHARE * error.least // (SHARE - 2)
        least = next(each for each in range(likely - SHARE, likely + 2 * SHARE) if _held(each) >= error.least)
        raise BudgetError(budget, least, f"{error.what} as Dask arrays") from None
    counts, most = (ends // item.itemsize).reshape(meta.cells.shape), max(budget // SHARE // item.itemsize, 1)
    chunks = cell_chunks(counts, max(most // 2, 1))
    cuts, name = value_cuts(counts, chunks, most), f"streams-{uuid.uuid4().hex}"
    reader, flat = RaggedReader(file, item, held), counts.reshape(-1)
    tasks: dict[Any, Any] = {
        (name, k): (partial(reader.read, flat[cut.lower : cut.upper], cut),) for k, cut in enumerate(cuts)
    }
    graph = HighLevelGraph.from_collections(name, tasks)
    values = da.Array(graph, name, (tuple(cut.stop - cut.start for cut in cuts),), dtype=item)
    return DaskRagged(da.from_array(counts, chunks=chunks), values)


def _held(budget: int) -> int:
    """Return the share of a budget for a task's cells, in bytes, beside its buffers."""
    return budget - 2 * (budget // SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenBlocks:
    """Ragged items with values in Dask blocks."""

    counts: np.ndarray
    """Items of each cell."""
    values: Any
    """All items, as a Dask array."""
    items: int
    """Maximum number of items to compute at one time, unless a chunk has more."""
    piece: int
    """Number of items to write at one time."""

    def calls(self, made: Callable[[Any], np.ndarray], lower: int) -> Iterator[CellBytes]:
        """Compute blocks one after the other, and yield the bytes of each."""
        counts, bounds = self.counts.reshape(-1), [0, *itertools.accumulate(self.values.chunks[0])]
        for run in groups(np.array(self.values.chunks[0]), self.items):
            start, stop = bounds[run.start], bounds[run.stop]
            block = np.ascontiguousarray(made(self.values[start:stop].compute()))
            if block.shape != (stop - start,):
                raise InputError(f"a block of values has shape {block.shape}, but its chunks state {(stop - start,)}")
            for begin in range(start, stop, self.piece):
                end = min(begin + self.piece, stop)
                cells, _, number = parts_of(counts, begin, end)
                data = block[begin - start : end - start].view(np.uint8)
                yield CellBytes(cells=cells + lower, counts=number * block.dtype.itemsize, data=data)


def is_dask(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and any(hasattr(each, "dask") for each in given)


def given_blocks(given: tuple[Any, Any], shape: tuple[int, ...] | None, budget: int) -> Ragged | GivenBlocks:
    """Return ragged items of Dask: computed if they fit, otherwise as blocks."""
    counts, values = given
    if shape is not None and np.shape(counts) != shape:
        raise InputError(f"counts of shape {np.shape(counts)} do not fit streams of shape {shape}")
    if not hasattr(values, "dask"):
        return Ragged(counts, values)
    if np.isnan(np.sum([sum(lengths) for lengths in values.chunks])):
        raise InputError("values have chunks of unknown sizes: call their compute_chunk_sizes() first")
    counts, itemsize = checked_counts(counts, values.shape), values.dtype.itemsize
    if counts.sum() * itemsize * SHARE <= budget:
        return Ragged(counts, values.compute())
    largest = max(values.chunks[0], default=0) * itemsize
    if 3 * largest > budget:
        raise BudgetError(budget, 3 * largest, f"a chunk of values of {largest} bytes")
    items, piece = (max(budget // share // itemsize, 1) for share in (SHARE, 32))
    return GivenBlocks(counts=counts, values=values, items=items, piece=piece)
