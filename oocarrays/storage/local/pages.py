"""Memory pages: of local files, of direct I/O past the system's cache, and reused for buffers.

A large coded chunk in the cache is decoded in place. Smaller chunks are not mapped: threads map files one at a time,
and on a virtual machine that hides its pages a fault takes up to 70 µs. A rechunk of 128 MiB in chunks of 1 MiB took
1.9 s from pages in four threads, and 0.3 s by ``pread`` in one.

``MADV_POPULATE_READ`` loads pages before they are touched. It waits for the device without the interpreter's lock,
and an unreadable page is an error instead of a signal that ends the process.

Arrays too large to stay in the cache are transferred past it, in whole sectors, where the file system supports that. A
cache full of dirty pages makes writers wait: 4 GiB took 1.9 to 5.5 s through it here and 1.8 s past it. Memory newly
allocated to the cache can also be slow, on a machine that returns free pages to its host: 1 GiB took 0.1 to 1.4 s
through it and 0.4 s past it.

    through it     device ─► cache ─► memory      a processor frees space in the cache, and copies
    past it        device ─► memory               processors are free for other work

16 MiB from a cold disk took 9 to 15 ms and 6.5 ms of a processor here through the cache, and 6.6 ms and 1.3 ms past it.

Buffers are reused: resident pages cost a tenth of new ones.

    take ─► a buffer of arbitrary content ─► give          by the owner, after its last use
    lend ─► an array ─► its last view is released          automatic, for arrays with shared views

    from  ▒▒▒▒░░░░        a block is copied in its own order, then transposed within the cache:
          ▒▒▒▒░░░░        rows a power of two apart would evict each other before they are used
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import math
import mmap
import os
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import product

import numpy as np

from oocarrays.storage.local.fs import MOST_BYTES, mode_of, open_regular, translated, write_at
from oocarrays.storage.local.ranges import room_for, submitted

HUGE_BYTES = 2**22
"""Minimum size of memory in huge pages, as in numpy: 16 MiB of new pages took 1.7 ms to fill here, not 9."""


def allocate(nbytes: int) -> np.ndarray:
    """Return ``nbytes`` of page-aligned memory, which is unmapped when its last view is deleted."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if nbytes >= HUGE_BYTES:
        with suppress(OSError, AttributeError):  # unsupported by this system
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return an array like ``numpy.empty``, in memory that is unmapped when its last view is deleted.

    Memory that numpy frees is retained, more than 32 MiB of it per thread, which no budget includes.
    """
    return allocate(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


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


# ---------------------------------------------------------------------- direct I/O


LONG_BYTES = 2**20
"""Minimum size in bytes of a range that is read by a separate device request."""


def cold_ranges(files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return a mask of the ranges to read past the cache: long ones, mostly not cached.

    If the system does not report that, return none: a trial read would make it fetch them.
    """
    cold = lengths >= LONG_BYTES
    for n in np.flatnonzero(cold).tolist():
        nbytes = int(lengths[n])
        there = cached_bytes(int(files[n]), int(offsets[n]), nbytes)
        cold[n] = there is not None and 2 * there < nbytes
    return cold


def cached_bytes(file: int, offset: int, nbytes: int) -> int | None:
    """Return the number of a range's bytes in the system's cache, in whole pages; None if it does not report that."""
    span, found = (ctypes.c_uint64 * 2)(offset, nbytes), (ctypes.c_uint64 * 5)()
    cachestat = ctypes.c_long(451)  # of Linux 6.5 and later, on all machines
    failed = libc().syscall(cachestat, ctypes.c_int(file), span, found, ctypes.c_uint(0))
    return None if failed else int(found[0]) * mmap.PAGESIZE


def read_past_cache(
    files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, into: np.ndarray, places: np.ndarray
) -> np.ndarray:
    """Read ranges as `read_ranges` does, past the cache and concurrently, each up to its last whole sector.

    Return the bytes read of each: 0 where the file system does not support this, or without sector alignment.
    """
    with room_for() as room, directly(np.unique(files).tolist()) as allowed:
        if room is None or not allowed:
            return np.zeros(len(offsets), np.int64)
        whole, address = lengths // SECTOR * SECTOR, into.ctypes.data + places
        return submitted(room, files, offsets, whole, address, 0).clip(0)


SECTOR = 4096
"""Alignment in bytes of a write past the cache, in memory, offset and length."""
Piece = tuple[int, memoryview]
"""Offset in a chunk, and the bytes that start there."""


def padded(nbytes: int) -> int:
    """Return ``nbytes`` rounded up to whole sectors."""
    return -(-nbytes // SECTOR) * SECTOR


def open_past_cache(path: str, flags: int) -> tuple[int, bool]:
    """Open a file past the system's cache if its file system supports that; return whether it does."""
    direct = getattr(os, "O_DIRECT", 0)
    try:
        return os.open(path, flags | direct, mode_of(path)), bool(direct)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return os.open(path, flags & ~os.O_EXCL, mode_of(path)), False  # a refused file may have been created all the same


STAGING_BYTES = 2**21
"""Bytes that a thread copies to sector-aligned memory at a time."""
_MEMORY = threading.local()


def _staged(data: memoryview) -> memoryview:
    """Copy bytes to this thread's sector-aligned memory."""
    if not hasattr(_MEMORY, "staging"):
        _MEMORY.staging = allocate(STAGING_BYTES).data
    staging: memoryview = _MEMORY.staging
    staging[: len(data)] = data
    return staging[: len(data)]


def pieces_of(data: memoryview, offsets: Iterable[int], length: int) -> Iterator[Piece]:
    """Yield consecutive pieces of one length, each with its offset."""
    return ((offset, data[n * length : (n + 1) * length]) for n, offset in enumerate(offsets))


def write_pieces(file: int, pieces: Iterable[Piece], *, past_cache: bool = False) -> None:
    """Write pieces of an open file, each at its offset; whole sectors past the system's cache."""
    for offset, data in pieces:
        write_at(file, offset, data, _write_sectors(file, offset, data) if past_cache else 0)


def _write_sectors(file: int, offset: int, data: memoryview) -> int:
    """Write the whole sectors of a piece past the cache, copied if not aligned; return the bytes written."""
    done, whole, aligned = 0, len(data) // SECTOR * SECTOR if offset % SECTOR == 0 else 0, on_sectors(data)
    try:
        with directly([file] if whole else ()) as allowed:
            while allowed and done < whole:
                part = data[done : min(done + (MOST_BYTES if aligned else STAGING_BYTES), whole)]
                done += os.pwrite(file, part if aligned else _staged(part), offset + done)
    except OSError as error:
        if error.errno != errno.EINVAL:  # this device has larger sectors
            raise
    return done


@contextmanager
def directly(files: Iterable[int]) -> Iterator[bool]:
    """Enable direct I/O on open files inside the context, which yields whether all of them support it."""
    flags: dict[int, int] = {}
    allowed = hasattr(os, "O_DIRECT")
    try:
        for file in files if allowed else ():
            flags[file] = fcntl.fcntl(file, fcntl.F_GETFL)
            fcntl.fcntl(file, fcntl.F_SETFL, flags[file] | os.O_DIRECT)
    except OSError:  # unsupported by this file system
        allowed = False
    try:
        yield allowed
    finally:
        for file, before in flags.items():
            fcntl.fcntl(file, fcntl.F_SETFL, before)


def on_sectors(data: memoryview) -> bool:
    """Return whether memory starts at a sector boundary, as direct I/O requires."""
    return len(data) > 0 and np.frombuffer(data, np.uint8).ctypes.data % SECTOR == 0


# ---------------------------------------------------------------------- reused buffers


def copy(into: np.ndarray, data: np.ndarray) -> None:
    """Copy ``data`` into ``into`` of the same shape, as ``into[...] = data``."""
    most = 2**15  # elements of a block: smaller arrays are copied directly
    if into.size <= most or into.shape != data.shape or data.itemsize >= 64:  # a cache line
        into[...] = data
        return
    there, here = _fastest(into), _fastest(data)
    if there == here:
        into, data = _as_runs(into, data, here)
        into[...] = data
        return
    lengths, room = [1] * into.ndim, most
    for axis, length in ((here, 128), (there, 256)):
        lengths[axis] = min(into.shape[axis], length)
        room //= lengths[axis]
    for axis in sorted(range(into.ndim), key=lambda axis: abs(data.strides[axis])):
        if axis not in (here, there):
            lengths[axis] = max(min(into.shape[axis], room), 1)
            room //= lengths[axis]
    firsts = (range(0, n, length) for n, length in zip(into.shape, lengths, strict=True))
    for lower in product(*firsts):
        block = tuple(slice(l, l + length) for l, length in zip(lower, lengths, strict=True))
        into[block] = data[block].copy(order="K")


def _as_runs(into: np.ndarray, data: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return both arrays with each short run along an axis viewed as one element; unchanged if that is impossible.

    Copying 96 bytes takes NumPy less time than its overhead for each run.
    """
    step = data.itemsize
    nbytes, alike = step * data.shape[axis], data.dtype == into.dtype and not data.dtype.hasobject
    if nbytes > 96 or not alike or not data.strides[axis] == into.strides[axis] == step:
        return into, data
    run = np.dtype((np.void, nbytes))
    return np.moveaxis(into, axis, -1).view(run)[..., 0], np.moveaxis(data, axis, -1).view(run)[..., 0]


def _fastest(data: np.ndarray) -> int:
    """Return the axis with the smallest stride."""
    strides = [(abs(step), axis) for axis, (step, n) in enumerate(zip(data.strides, data.shape, strict=True)) if n > 1]
    return min(strides, default=(0, 0))[1]


def shaped(buffer: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return a view of the first bytes of ``buffer`` as an array."""
    return buffer[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


class Pool:
    """Thread-safe pool of buffers by size."""

    def __init__(self, make: Callable[[int], np.ndarray] = allocate) -> None:
        self._make = make
        self._free: defaultdict[int, list[np.ndarray]] = defaultdict(list)

    def take(self, nbytes: int) -> np.ndarray:
        """Return an unshared buffer of ``nbytes`` with arbitrary content."""
        try:
            return self._free[nbytes].pop()
        except IndexError:
            return self._make(nbytes)

    def give(self, buffer: np.ndarray) -> None:
        self._free[len(buffer)].append(buffer)

    def lend(self, shape: Sequence[int], dtype: np.dtype, *, elements: int) -> np.ndarray:
        """Return an array; its memory returns to the pool with its last view, unless `forget` was called."""
        count = math.prod(shape)
        if not count * dtype.itemsize > 0 or count > elements:
            return empty(shape, dtype)
        nbytes = elements * dtype.itemsize
        memory = self.take(nbytes)
        lent = np.frombuffer(memory.data, dtype, count)  # the base of all its views
        weakref.finalize(lent, self._free[nbytes].append, memory).atexit = False
        return lent.reshape(shape)

    def forget(self) -> None:
        """Release the free buffers, and lent ones when they are returned."""
        self._free = defaultdict(list)


def numpy_bytes(nbytes: int) -> np.ndarray:
    """Allocate a buffer with NumPy, which reuses memory for small sizes."""
    return np.empty(nbytes, np.uint8)
