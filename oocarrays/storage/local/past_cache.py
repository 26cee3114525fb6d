"""Reading past the system's cache: long ranges of local files that are not in it, of arrays too large to stay there.

    through it     device ─► cache ─► memory      a processor makes room in the cache, and copies
    past it        device ─► memory               processors do something else

16 MiB from a cold disk took 9 to 15 ms and 6.5 ms of a processor here through the cache, and 6.6 ms and 1.3 ms past it.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from oocarrays.storage.local.pages import libc
from oocarrays.storage.local.ranges import room_for, submitted
from oocarrays.storage.local.sectors import SECTOR, directly

CACHESTAT = 451
"""The number of that call, of Linux 6.5 and later, on all machines."""
LONG_BYTES = 2**20
"""Ranges of no less are worth a request of their own to the device."""
CACHED = 0.5
"""Share of a range that is in the cache, from which on it is read through it."""


def cold_ranges(files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Which of some ranges are worth reading past the cache: the long ones that it has little of.

    Where the system does not tell, none is: to try would make it fetch them.
    """
    cold = lengths >= LONG_BYTES
    for n in np.flatnonzero(cold).tolist():
        nbytes = int(lengths[n])
        there = cached_bytes(int(files[n]), int(offsets[n]), nbytes)
        cold[n] = there is not None and there < CACHED * nbytes
    return cold


def cached_bytes(file: int, offset: int, nbytes: int) -> int | None:
    """How many of some bytes of an open file are in the system's cache, in whole pages; None where it does not tell."""
    span, found = (ctypes.c_uint64 * 2)(offset, nbytes), (ctypes.c_uint64 * 5)()
    failed = libc().syscall(ctypes.c_long(CACHESTAT), ctypes.c_int(file), span, found, ctypes.c_uint(0))
    return None if failed else int(found[0]) * mmap.PAGESIZE


def read_past_cache(
    files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, into: np.ndarray, places: np.ndarray
) -> np.ndarray:
    """As `read_ranges`, past the cache, all at one time, each up to its last sector: bytes of each.

    None come where the file system does not do that, or a range or its place is not on sectors.
    """
    with room_for() as room, directly(np.unique(files).tolist()) as allowed:
        if room is None or not allowed:
            return np.zeros(len(offsets), np.int64)
        whole, address = lengths // SECTOR * SECTOR, into.ctypes.data + places
        return submitted(room, files, offsets, whole, address, 0).clip(0)
