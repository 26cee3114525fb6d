"""Local files as pages of memory: a chunk in the system's cache, read in place.

Short runs cost a call each to read, and every call hands the interpreter's lock to and fro: two threads gathered
7 KiB runs from the cache at 1.9 GiB/s by ``pread`` here, and at 3.4 GiB/s from pages.

Pages are asked for by ``MADV_POPULATE_READ`` before they are touched. It waits for the device without the
interpreter's lock, and what cannot be read is an error instead of a signal that ends the process.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os

import numpy as np

from oocarrays.errors import StoreFailure

MADV_POPULATE_READ = 22
"""Linux 5.14 and later; `mmap` has no name for it, and its ``madvise`` keeps the interpreter's lock."""


@functools.cache
def can_map() -> bool:
    """Whether this system fills pages on demand."""
    try:
        _populate(np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.uint8))
    except (OSError, AttributeError):
        return False
    return True


def mapped(file: int, path: str) -> np.ndarray:
    """All bytes of an open file, read only, in memory when this returns.

    Raises
    ------
    StoreFailure
        Where the device does not give them.
    """
    size = os.fstat(file).st_size
    if size == 0:
        return np.empty(0, np.uint8)
    try:
        pages = np.frombuffer(mmap.mmap(file, size, prot=mmap.PROT_READ), np.uint8)
        _populate(pages)
    except OSError as error:
        raise StoreFailure(f"cannot read {path}: {error.strerror}") from error
    return pages


def _populate(pages: np.ndarray) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    length = ctypes.c_size_t(len(pages))
    if libc.madvise(ctypes.c_void_p(pages.ctypes.data), length, MADV_POPULATE_READ):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
