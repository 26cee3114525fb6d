"""A limit for every layout and codec: the disk's own time for as many bytes, in as many files.

Threads read all that the source has stored, past the page cache, and write as much in a file for each target chunk,
synced and named at the end, as a target must be. Nothing is decoded or put elsewhere.
"""

from __future__ import annotations

import mmap
import os
import time
from math import prod

import machine
from cases import MIB, Case, cores
from peers.limit_inplace import at_once

PIECE = 8 * MIB
"""Bytes of one request."""


def byte_seconds(case: Case, source: str, folder: str) -> float:
    """Return the seconds of all cores together; ``source`` is what the case reads, ``folder`` is empty."""
    found = (os.path.join(where, name) for where, _, names in os.walk(source) for name in names)
    read, threads = sorted(path for path in found if not path.endswith("zarr.json")), 2 * cores()
    count = prod(-(-n // c) for n, c in zip(case.shape, _stored(case), strict=True))
    stored = sum(map(os.path.getsize, read)) // count
    machine.make_cold(source)
    start = time.perf_counter()
    at_once(threads, lambda rank: _copy(read[rank::threads], folder, range(rank, count, threads), stored))
    os.sync()
    return time.perf_counter() - start


def _stored(case: Case) -> tuple[int, ...]:
    """Extents of what a target file has: a chunk, or a shard of them."""
    per_shard = case.target_per_shard or (1,) * len(case.shape)
    return tuple(chunk * many for chunk, many in zip(case.target_chunks, per_shard, strict=True))


def _copy(read: list[str], folder: str, names: range, nbytes: int) -> None:
    """Read files, and write others of so many bytes meanwhile, in turn."""
    room, made = memoryview(mmap.mmap(-1, PIECE)), len(names)
    for number, path in enumerate(read):
        _read(path, room)
        for name in names[number * made // len(read) : (number + 1) * made // len(read)]:
            _write(os.path.join(folder, str(name)), nbytes, room)


def _read(path: str, room: memoryview) -> None:
    file, at = os.open(path, os.O_RDONLY | os.O_DIRECT), 0
    while os.preadv(file, [room], at) == len(room):
        at += len(room)
    os.close(file)


def _write(path: str, nbytes: int, room: memoryview) -> None:
    """Write a file whole, past the page cache but for what lies on no sector."""
    file = os.open(f"{path}.unfinished", os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o644)
    for at in range(0, nbytes, PIECE):
        os.pwrite(file, room[: -(-min(nbytes - at, PIECE) // mmap.PAGESIZE) * mmap.PAGESIZE], at)
    os.ftruncate(file, nbytes)
    os.close(file)
    os.rename(f"{path}.unfinished", path)
