"""Small sections of plain chunks in local files that are one run of each chunk: read without a plan.

    a[5, :]     ┌───────┬───────┐       a file is opened, looked at, read from and closed in a few microseconds: as long
                │███████│███████│       as no arithmetic of arrays stands between, it is not worth keeping it open, and
                └───────┴───────┘       whoever replaces it is seen by the next read

Thakur 1995, section 5.5.1: the direct method, where nothing is to be sieved.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from oocarrays.errors import CorruptChunkError, StoreFailure
from oocarrays.mapping.orientation import inverse, turned
from oocarrays.mapping.selection import Axes
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.presence import Missing
from oocarrays.storage.local.blobs import LocalBlobs, MissingBlob, byte_view
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.opening import blobs_of
from oocarrays.storage.watched import watched

MOST_CHUNKS = 4
"""Of more chunks a plan is made: the device is asked for all of them before any is waited for."""
MOST_BYTES = 2**18
"""The same of more bytes: several threads may read them."""


class Run(NamedTuple):
    """Bytes that are taken of a chunk."""

    chunk: tuple[int, ...]
    """Its index, with the array's own axes."""
    start: int
    """Where it begins in the chunk."""
    nbytes: int
    """How long it is."""
    place: int
    """Where it goes in the result."""


@watched(writes=False)
def read_runs(file: ArrayFile, axes: Axes, meter: Meter) -> np.ndarray | None:
    """Read a section that is one run of each of a few chunks; None of any other.

    Returns
    -------
    numpy.ndarray
        Of the lengths of ``axes``: it lies as the chunks do.

    Raises
    ------
    StoreFailure
        Where a chunk cannot be read.
    CorruptChunkError
        Where a chunk has another length than it must have.
    """
    stored = file.stored
    if not stored.local or stored.made or stored.shards:
        return None
    own = turned(range(len(axes)), stored.order)
    found = _runs(file, turned(axes, stored.order), own)
    if found is None:
        return None
    shape, runs = found
    out = np.empty(shape, file.dtype)
    data, lacking = byte_view(out), Missing(file.presence, meter)
    with lacking:
        for run in runs:
            into = data[run.place : run.place + run.nbytes]
            if _read(file, run, into):
                meter.add(read_requests=1, read_bytes=run.nbytes)
            else:
                lacking.add(run.chunk)
                np.frombuffer(into, file.dtype)[...] = file.fill_value
    return out if stored.order is None else out.transpose(inverse(stored.order))


def _runs(file: ArrayFile, axes: Axes, own: tuple[int, ...]) -> tuple[tuple[int, ...], list[Run]] | None:
    """Lengths of what is taken along each axis, and the runs; None where it is not one run a chunk, or is large."""
    grid, step, start, along = file.stored.grid, file.stored.itemsize, 0, None
    shape, index = [], [0] * len(axes)
    for axis, taken in zip(reversed(own), reversed(axes), strict=True):
        if not isinstance(taken, range) or not taken or (taken.step != 1 and len(taken) > 1):
            return None
        chunk, count = grid.chunks[axis], len(taken)
        shape.append(count)
        index[axis], first = divmod(taken.start, chunk)
        if along is not None and count > 1:
            return None
        if along is None and (count != chunk or first):
            along = axis, taken, step
        elif along is not None:
            start += first * step
        step *= chunk
    if math.prod(shape) * file.stored.itemsize > MOST_BYTES:
        return None
    runs = _cut(along, grid.chunks, index, start, file.stored.itemsize * math.prod(shape))
    return None if runs is None else (tuple(reversed(shape)), runs)


def _cut(
    along: tuple[int, range, int] | None, chunks: tuple[int, ...], index: list[int], start: int, nbytes: int
) -> list[Run] | None:
    """A run of each chunk along the only axis that is cut; None of too many chunks."""
    if along is None:
        return [Run(tuple(index), start, nbytes, 0)]
    axis, taken, _ = along
    chunk, last = chunks[axis], taken[-1]
    if last // chunk - index[axis] >= MOST_CHUNKS:
        return None
    return list(_each(along, chunk, index, start))


def _each(along: tuple[int, range, int], chunk: int, index: list[int], start: int) -> Iterator[Run]:
    axis, taken, step = along
    low, end = taken.start, taken[-1] + 1
    while low < end:
        number = low // chunk
        high = min((number + 1) * chunk, end)
        place = (*index[:axis], number, *index[axis + 1 :])
        yield Run(place, start + (low - number * chunk) * step, (high - low) * step, (low - taken.start) * step)
        low = high


def _opened(file: ArrayFile, key: str) -> tuple[int, int, int | None]:
    """Open the file of a chunk: its number, where the chunk begins in it, and its bytes; None for all of the file.

    Raises
    ------
    FileNotFoundError
        Where it is not stored.
    """
    if file.in_folder:
        return os.open(f"{file.presence.place}/{key}", os.O_RDONLY | os.O_CLOEXEC), 0, None
    blobs = blobs_of(file.zarr)
    assert isinstance(blobs, LocalBlobs), "runs are read from local files"
    try:
        path, offset, nbytes = blobs.range_of(key)
    except MissingBlob:
        raise FileNotFoundError(key) from None
    chunk = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        blobs.check_file(key, chunk)
    except BaseException:
        os.close(chunk)
        raise
    return chunk, offset, nbytes


def _read(file: ArrayFile, run: Run, into: memoryview) -> bool:
    """Read a run of a chunk; whether there is that chunk."""
    key = file.zarr.metadata.encode_chunk_key(run.chunk)
    try:
        chunk, offset, nbytes = _opened(file, key)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreFailure(f"cannot open {key} of {file.name}: {error.strerror}") from error
    try:
        nbytes, due = os.fstat(chunk).st_size if nbytes is None else nbytes, file.stored.chunk_bytes
        if nbytes != due:
            raise CorruptChunkError(f"{key} of {file.name} has {nbytes} bytes; a chunk has {due}")
        at = offset + run.start
        while into:
            got = os.preadv(chunk, [into], at)
            if not got:
                raise CorruptChunkError(f"a chunk of {file.name} is cut short while it is read")
            into, at = into[got:], at + got
    except OSError as error:
        raise StoreFailure(f"cannot read {file.name}: {error.strerror}") from error
    finally:
        os.close(chunk)
    return True
