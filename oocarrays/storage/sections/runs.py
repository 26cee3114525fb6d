"""Small sections of uncompressed chunks in local files, one run of each chunk: read without a plan.

    a[5, :]     ┌───────┬───────┐       a file is opened, checked, read and closed in a few microseconds: without array
                │███████│███████│       arithmetic in between, keeping it open is not worthwhile, and
                └───────┴───────┘       the next read sees a replaced file

Thakur 1995, section 5.5.1: the direct method, for sections without sieving.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from oocarrays.mapping.grid import inverse, turned
from oocarrays.mapping.selection import Axes
from oocarrays.storage.files.array_file import ArrayFile, blobs_of
from oocarrays.storage.files.presence import Missing
from oocarrays.storage.local.blobs import LocalBlobs, byte_view
from oocarrays.storage.meter import Meter, watched


class Run(NamedTuple):
    """Byte range of a chunk, and its place in the result."""

    chunk: tuple[int, ...]
    """Index of the chunk, with the array's own axes."""
    start: int
    """Offset in the chunk, in bytes."""
    nbytes: int
    """Length in bytes."""
    place: int
    """Offset in the result, in bytes."""


class RunReader:
    """Reader of small sections of an array file, with the facts common to all sections precomputed."""

    def __init__(self, file: ArrayFile) -> None:
        stored, grid, step = file.stored, file.stored.grid, file.stored.itemsize
        self.file = file
        self._dtype, self._due = file.dtype, stored.chunk_bytes
        self._key = file.zarr.metadata.encode_chunk_key
        self._fits = stored.in_place and not stored.shards
        self._axes: list[tuple[int, int, int, int]] = []
        """Axis, extent, chunk extent, and byte stride of each axis, fastest first."""
        for axis in reversed(turned(range(len(grid.shape)), stored.order)):
            self._axes.append((axis, grid.shape[axis], grid.chunks[axis], step))
            step *= grid.chunks[axis]

    @cached_property
    def _blobs(self) -> LocalBlobs:
        blobs = blobs_of(self.file.zarr)
        assert isinstance(blobs, LocalBlobs), "runs are read from local files"
        return blobs

    def read(self, taken: Sequence[Any], meter: Meter) -> np.ndarray | None:
        """Read a section that is one run of each of a few chunks; return None for any other."""
        found = self._runs(taken) if self._fits and len(taken) == len(self._axes) else None
        if found is None:
            return None
        kept, shape, runs = found
        out = np.empty(shape, self._dtype)
        data = byte_view(out)
        lacking: list[tuple[int, ...]] = []
        for run in runs:
            into = data[run.place : run.place + run.nbytes]
            if self._blobs.read_into(self._key(run.chunk), run.start, into, self._due):
                meter.add(read_requests=1, read_bytes=run.nbytes)
            else:
                lacking.append(run.chunk)
                np.frombuffer(into, self._dtype)[...] = self.file.fill_value
        if lacking:
            with Missing(self.file.presence, meter) as missing:
                missing.add(*lacking)
        return out if self.file.stored.order is None else out.transpose(inverse(kept))

    def _runs(self, taken: Sequence[Any]) -> tuple[list[int], list[int], list[Run]] | None:
        """Return the kept axes in storage order, the lengths along them, and the runs; None if there are too many."""
        start, nbytes, along = 0, self._dtype.itemsize, None
        kept, shape, index = [], [], [0] * len(taken)
        for axis, extent, chunk, step in self._axes:
            span = _span(taken[axis], extent)
            if span is None or (along is not None and span[1] > 1):
                return None
            low, count = span
            index[axis], first = divmod(low, chunk)
            if along is not None:
                start += first * step
            elif count != chunk or first:
                along = axis, chunk, low, count, step
            nbytes *= count
            if type(taken[axis]) is not int:
                kept.append(axis)
                shape.append(count)
        if nbytes > 2**18:  # several threads may read them
            return None
        runs = [Run(tuple(index), start, nbytes, 0)] if along is None else _cut(along, index, start)
        return None if runs is None else (kept[::-1], shape[::-1], runs)


def _span(taken: Any, extent: int) -> tuple[int, int] | None:
    """Return the first element along an axis and the number of consecutive ones; None if they are not consecutive."""
    if type(taken) is int:
        return (taken % extent, 1) if -extent <= taken < extent else None
    if type(taken) is slice:
        try:
            taken = range(*taken.indices(extent))
        except (TypeError, ValueError):  # not an index: the general path reports it
            return None
    if type(taken) is not range or not taken or (taken.step != 1 and len(taken) > 1):
        return None
    return taken.start, len(taken)


def _cut(along: tuple[int, int, int, int, int], index: list[int], start: int) -> list[Run] | None:
    """Return a run of each chunk along the only cut axis; None for too many chunks."""
    axis, chunk, low, count, step = along
    if (low + count - 1) // chunk - index[axis] >= 4:  # a plan requests all chunks before it waits for one
        return None
    runs, first, end = [], low, low + count
    while low < end:
        number = low // chunk
        high = min((number + 1) * chunk, end)
        place = (*index[:axis], number, *index[axis + 1 :])
        runs.append(Run(place, start + (low - number * chunk) * step, (high - low) * step, (low - first) * step))
        low = high
    return runs


@watched(writes=False)
def read_runs(file: ArrayFile, axes: Axes, meter: Meter, runs: RunReader | None = None) -> np.ndarray | None:
    """Read a section by a `RunReader`, which may have been kept; return None if it cannot."""
    return (runs or RunReader(file)).read(axes, meter)
