"""Local files as pages of memory: a large coded chunk in the system's cache, decoded in place.

Pages are not taken for less: threads map files one after the other, and where a virtual machine hides its pages a
fault takes up to 70 µs. A rechunk of 128 MiB in chunks of 1 MiB took 1.9 s from pages in four threads, and 0.3 s by
``pread`` in one.

Pages are asked for by ``MADV_POPULATE_READ`` before they are touched. It waits for the device without the
interpreter's lock, and what cannot be read is an error instead of a signal that ends the process.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import os
import threading
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from oocarrays.storage.local.fs import open_regular, translated

MADV_POPULATE_READ = 22
"""Linux 5.14 and later; `mmap` has no name for it, and its ``madvise`` keeps the interpreter's lock."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""What ``mallopt`` of glibc sets."""
READ_AHEAD_BYTES = 2**19
"""Bytes that the system is asked to fetch at a time; it cuts what is more than its own read-ahead, 128 KiB or more."""
HUGE_BYTES = 2**22
"""Memory of no less is asked for in huge pages, as numpy does: 16 MiB of new pages took 1.7 ms to fill here, not 9."""
ANNOUNCED_BYTES = 2**28
"""Bytes of files that the system is asked to fetch while something else is done."""


def allocate(nbytes: int) -> np.ndarray:
    """``nbytes`` of page-aligned memory that goes back to the system when the last view of it is gone."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(_anonymous(nbytes), np.uint8)


def empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """As ``numpy.empty``, of memory that goes back to the system when the last view of it is gone.

    What numpy frees is kept for later, more than 32 MiB of it in every thread: no budget knows of that.
    """
    return allocate(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def _anonymous(nbytes: int) -> mmap.mmap:
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if nbytes >= HUGE_BYTES:
        with suppress(OSError, AttributeError):  # not this system
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


@functools.cache
def keep_freed(nbytes: int) -> None:
    """Let the allocator keep so many bytes that are freed, for what is asked for next.

    glibc gives back what is larger than anything freed before; where the environment sets its threshold, as in Dask's
    workers, all above 128 KiB. What many small blocks need can then cost more in page faults than in work.
    """
    np.empty(nbytes, np.uint8)
    if "MALLOC_TRIM_THRESHOLD_" in os.environ and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        with suppress(AttributeError):  # not glibc
            libc().mallopt(M_MMAP_THRESHOLD, nbytes)
            libc().mallopt(M_TRIM_THRESHOLD, 2 * nbytes)


@functools.cache
def can_map() -> bool:
    """Return whether this system fills pages on demand."""
    try:
        _populate(np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.uint8))
    except (OSError, AttributeError):
        return False
    return True


def mapped(file: int, path: str, offset: int = 0, nbytes: int | None = None) -> np.ndarray:
    """Bytes of an open file from ``offset`` on, by default all, read only, in memory when this returns."""
    size = os.fstat(file).st_size - offset if nbytes is None else nbytes
    if size <= 0:
        return np.empty(0, np.uint8)
    before = offset % mmap.ALLOCATIONGRANULARITY
    with translated("read", path):
        page_map = mmap.mmap(file, before + size, prot=mmap.PROT_READ, offset=offset - before)
        pages = np.frombuffer(page_map, np.uint8)
        _populate(pages)
    return pages[before:]


@functools.cache
def libc() -> ctypes.CDLL:
    """Return the C library: to load it again would cost as much as to map a page."""
    return ctypes.CDLL(None, use_errno=True)


def give_back() -> None:
    """Give the system back what the allocator keeps for later, where it can."""
    with suppress(AttributeError):  # not glibc
        libc().malloc_trim(0)


def _populate(pages: np.ndarray) -> None:
    length = ctypes.c_size_t(len(pages))
    if libc().madvise(ctypes.c_void_p(pages.ctypes.data), length, MADV_POPULATE_READ):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def fetch_ahead(paths: Sequence[str]) -> None:
    """Ask the system to fetch files whole, `ANNOUNCED_BYTES` of them, from a thread.

    The request itself waits while the device has its fill of others: three quarters of the device's time here.
    """
    if paths:
        threading.Thread(target=_fetch, args=(paths,), daemon=True).start()


def _fetch(paths: Sequence[str]) -> None:
    left = ANNOUNCED_BYTES
    for path in paths:
        with suppress(OSError):
            file = open_regular(path)
            try:
                size = os.fstat(file).st_size
                want(file, 0, size)
                left -= size
            finally:
                os.close(file)
        if left <= 0:
            return


def want(file: int, offset: int, nbytes: int) -> None:
    """Ask the system to fetch bytes of an open file: it takes no more than a read-ahead at a time."""
    if hasattr(os, "posix_fadvise"):
        for start in range(offset, offset + nbytes, READ_AHEAD_BYTES):
            os.posix_fadvise(file, start, min(READ_AHEAD_BYTES, offset + nbytes - start), os.POSIX_FADV_WILLNEED)
