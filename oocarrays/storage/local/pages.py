"""Local files as memory pages: a large coded chunk in the system's cache, decoded in place.

Smaller chunks are not mapped: threads map files one at a time, and on a virtual machine that hides its pages a
fault takes up to 70 µs. A rechunk of 128 MiB in chunks of 1 MiB took 1.9 s from pages in four threads, and 0.3 s by
``pread`` in one.

``MADV_POPULATE_READ`` loads pages before they are touched. It waits for the device without the interpreter's lock,
and an unreadable page is an error instead of a signal that ends the process.
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

HUGE_BYTES = 2**22
"""Minimum size of memory in huge pages, as in numpy: 16 MiB of new pages took 1.7 ms to fill here, not 9."""


def allocate(nbytes: int) -> np.ndarray:
    """Return ``nbytes`` of page-aligned memory, which is unmapped when its last view is deleted."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(_anonymous(nbytes), np.uint8)


def empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return an array like ``numpy.empty``, in memory that is unmapped when its last view is deleted.

    Memory that numpy frees is retained, more than 32 MiB of it per thread, which no budget includes.
    """
    return allocate(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def _anonymous(nbytes: int) -> mmap.mmap:
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if nbytes >= HUGE_BYTES:
        with suppress(OSError, AttributeError):  # unsupported by this system
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


@functools.cache
def keep_freed(nbytes: int) -> None:
    """Make the allocator retain ``nbytes`` of freed memory for later allocations.

    glibc returns blocks larger than any freed before; if the environment sets its threshold, as in Dask's workers, all
    above 128 KiB. For many small blocks, page faults can then cost more than the work.
    """
    np.empty(nbytes, np.uint8)
    if "MALLOC_TRIM_THRESHOLD_" in os.environ and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        with suppress(AttributeError):  # not glibc
            trim_threshold, mmap_threshold = -1, -3
            libc().mallopt(mmap_threshold, nbytes)
            libc().mallopt(trim_threshold, 2 * nbytes)


@functools.cache
def can_map() -> bool:
    """Return whether this system supports populating pages on demand."""
    try:
        populate(np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.uint8))
    except (OSError, AttributeError):
        return False
    return True


def mapped(file: int, path: str, offset: int, nbytes: int) -> np.ndarray:
    """Return bytes of an open file as read-only pages already in memory."""
    if nbytes <= 0:
        return np.empty(0, np.uint8)
    before = offset % mmap.ALLOCATIONGRANULARITY
    with translated("read", path):
        page_map = mmap.mmap(file, before + nbytes, prot=mmap.PROT_READ, offset=offset - before)
        pages = np.frombuffer(page_map, np.uint8)
        populate(pages)
    return pages[before:]


@functools.cache
def libc() -> ctypes.CDLL:
    """Return the C library, cached because loading it costs as much as mapping a page."""
    return ctypes.CDLL(None, use_errno=True)


def give_back() -> None:
    """Return the allocator's retained memory to the system, with glibc."""
    with suppress(AttributeError):  # not glibc
        libc().malloc_trim(0)


def populate(pages: np.ndarray) -> None:
    # Linux 5.14 and later; `mmap` does not name it, and its ``madvise`` keeps the interpreter's lock
    populate_read = 22
    length = ctypes.c_size_t(len(pages))
    if libc().madvise(ctypes.c_void_p(pages.ctypes.data), length, populate_read):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def fetch_ahead(paths: Sequence[str]) -> None:
    """Ask the system, from a thread, to prefetch whole files, up to 256 MiB.

    The request itself blocks while the device is saturated: three quarters of the device's time here.
    """
    if paths:
        threading.Thread(target=_fetch, args=(paths,), daemon=True).start()


def _fetch(paths: Sequence[str]) -> None:
    left = 2**28
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
    """Ask the system to prefetch bytes of an open file, in requests within its read-ahead limit of 128 KiB or more."""
    if hasattr(os, "posix_fadvise"):
        most = 2**19
        for start in range(offset, offset + nbytes, most):
            os.posix_fadvise(file, start, min(most, offset + nbytes - start), os.POSIX_FADV_WILLNEED)
