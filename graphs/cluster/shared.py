"""Shared memory for messages between processes of one machine: packed data is sent without a copy.

    worker a                                         worker b
    pack ─► segment ─┐ an unnamed file ─ address ─► /proc/PROCESS/fd/FILE ─► its pages ─► unpack
                     └─ reused when no view here refers to it, and no other process has a lock on it

    forwarded         worker b ─ address ─► /proc/PROCESS of b/fd/FILE ─► the same pages ─► worker c

This exposes no process further: only processes that may inspect it anyway can open its files, and these files contain
only data packed for sending. The files have no name and exist while a process has them open, so a killed worker leaves
no file and no lock. Their pages are allocated before use and sealed against shrinking. If memory is short, plain memory
is used instead, so a missing page never ends a process with a signal.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
import secrets
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from oocarrays.storage.local.pages import allocate

LEAST_BYTES = 2**16
"""Minimum bytes of a message in shared memory; smaller ones use the socket anyway."""
TOKEN_BYTES = 16
HEAD_BYTES = mmap.PAGESIZE
"""Bytes before the data in a file: the tokens of its owner and of its current use."""
LINK = "/memfd:oocarrays (deleted)"
"""Link target that the system reports for an unnamed file of ours."""
POPULATE_READ, POPULATE_WRITE = 22, 23
"""Advice of Linux 5.14 and later; not in Python's `mmap`."""
_OWNER = secrets.token_bytes(TOKEN_BYTES)
"""Token that identifies this process's memory, in case another process has the same number."""
_on = False
"""Whether other workers have been observed to map this process's memory."""


class RoomAddress(NamedTuple):
    """Address of a segment for other processes."""

    process: int
    file: int
    """File number in that process."""
    owner: bytes
    """Token of the process."""
    use: bytes
    """Token of the segment's current use."""


class Segment(mmap.mmap):
    """Mapped pages of an unnamed file of this process."""

    file: int
    start: int
    use: bytes

    @classmethod
    def of(cls, nbytes: int) -> Segment:
        file = _memory_file(HEAD_BYTES + nbytes)
        try:
            segment = cls(file, HEAD_BYTES + nbytes)
        except BaseException:
            os.close(file)
            raise
        weakref.finalize(segment, os.close, file).atexit = False
        _populate(segment, POPULATE_WRITE)
        segment.file = file
        segment.start = np.frombuffer(segment, np.uint8).ctypes.data
        _segments.add(segment)
        segment.renew()
        return segment

    def renew(self) -> bool:
        """Mark the segment for a new use; return False if another process still maps its former use."""
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        self.use = secrets.token_bytes(TOKEN_BYTES)
        self[: 2 * TOKEN_BYTES] = _OWNER + self.use
        fcntl.flock(self.file, fcntl.LOCK_UN)
        return True

    @property
    def where(self) -> RoomAddress:
        return RoomAddress(os.getpid(), self.file, _OWNER, self.use)


class Look(mmap.mmap):
    """Private mapping of another process's segment: writes stay in this process."""

    file: int
    start: int
    whose: RoomAddress

    @property
    def where(self) -> RoomAddress:
        """Address for third processes: this process's file."""
        return self.whose._replace(process=os.getpid(), file=self.file)


class Passed(Look):
    """Read-only mapping of another process's segment, for forwarding."""


_segments: weakref.WeakSet[Segment] = weakref.WeakSet()
_looks: weakref.WeakSet[Look] = weakref.WeakSet()


def _memory_file(nbytes: int) -> int:
    if not hasattr(os, "memfd_create"):
        raise OSError("this system does not support unnamed files")
    file = os.memfd_create("oocarrays", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(file, 0o600)
        os.posix_fallocate(file, 0, nbytes)
        add_seals, seal, shrink, grow = 1033, 0x1, 0x2, 0x4  # not in every Python's `fcntl`
        fcntl.fcntl(file, add_seals, seal | shrink | grow)
    except BaseException:
        os.close(file)
        raise
    return file


def _populate(pages: mmap.mmap, how: int) -> None:
    """Map all pages in one call, which costs less than a fault for each; older systems fault."""
    with suppress(OSError):
        pages.madvise(how)


@cache
def most_files() -> int:
    """Return the maximum number of segments, and of mappings: a sixteenth of the limit of open files, at most 1024."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**10 if soft == resource.RLIM_INFINITY else min(soft // 16, 2**10)


def use(on: bool) -> None:
    """Enable or disable shared memory for messages."""
    global _on
    _on = on


def is_on() -> bool:
    return _on


class Rooms:
    """Pool of memory for packing; reused pages cost a tenth of new ones."""

    def __init__(self) -> None:
        self._all: list[tuple[np.ndarray | Segment, weakref.ref[np.ndarray]]] = []
        """Memory, and the array that every view of it refers to."""
        self._most = 0
        """Maximum bytes in use at one time."""
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> np.ndarray:
        """Return ``nbytes`` of uninitialised memory, in use while any process has views of it."""
        if not nbytes:
            return np.empty(0, np.uint8)
        deadline = time.monotonic() + 0.003  # seconds in which other processes may release a segment
        while True:
            with self._lock:
                free = (memory for memory, view in self._all if view() is None and _size(memory) >= nbytes)
                fitting = sorted(free, key=_size)
                memory = next((memory for memory in fitting if not isinstance(memory, Segment) or memory.renew()), None)
                if memory is not None or not fitting or time.monotonic() > deadline:
                    return self._lent(self._new(nbytes) if memory is None else memory, nbytes)
            time.sleep(0.0002)

    def _new(self, nbytes: int) -> np.ndarray | Segment:
        """Allocate memory; discard unused memory so that the total stays within the maximum in use at one time."""
        used = sum(_size(memory) for memory, view in self._all if view() is not None)
        self._most = max(self._most, used + nbytes)
        spare, kept = self._most - used - nbytes, []
        for memory, view in self._all:
            if view() is None:
                if _size(memory) > spare:
                    continue
                spare -= _size(memory)
            kept.append((memory, view))
        self._all = kept
        return _memory(nbytes)

    def _lent(self, memory: np.ndarray | Segment, nbytes: int) -> np.ndarray:
        """Return a view of memory; all other views of it will refer to this one."""
        shared = isinstance(memory, Segment)
        data: Any = memory.data if isinstance(memory, np.ndarray) else memory
        room = np.frombuffer(data, np.uint8, nbytes, HEAD_BYTES if shared else 0)
        self._all = [each for each in self._all if each[0] is not memory] + [(memory, weakref.ref(room))]
        return room

    def packed(self, data: np.ndarray) -> np.ndarray:
        """Return a contiguous copy, or the array itself if it is contiguous and already shared or sharing is off."""
        return data if data.flags.c_contiguous and (not _on or found(data)) else self.copy(data)

    def copy(self, data: np.ndarray) -> np.ndarray:
        copy = self.take(data.nbytes).view(data.dtype).reshape(data.shape)
        copy[...] = data
        return copy

    def forwarded(self, data: np.ndarray) -> np.ndarray:
        """Prepare received data for forwarding: a further mapping if it is mapped, else a contiguous copy."""
        seen = passed_on(data) if _on else None
        return self.copy(data) if seen is None else seen

    def joined(self, pieces: Sequence[np.ndarray]) -> np.ndarray:
        """Return the concatenated bytes of contiguous arrays; for a single array, its packed bytes."""
        if len(pieces) == 1:
            return self.packed(pieces[0]).reshape(-1).view(np.uint8)
        room = self.take(sum(piece.nbytes for piece in pieces))
        return np.concatenate([piece.reshape(-1).view(np.uint8) for piece in pieces], out=room)

    def __reduce__(self) -> Any:
        return Rooms, ()


def _size(memory: np.ndarray | Segment) -> int:
    return len(memory) - (HEAD_BYTES if isinstance(memory, Segment) else 0)


def _memory(nbytes: int) -> np.ndarray | Segment:
    """Allocate shared memory if it is enabled, useful and available; else plain memory."""
    if _on and nbytes >= LEAST_BYTES and len(_segments) < most_files():
        with suppress(OSError):  # no memory or no file: messages are sent another way
            return Segment.of(nbytes)
    return allocate(nbytes) if nbytes >= LEAST_BYTES else np.empty(nbytes, np.uint8)


def found(array: np.ndarray) -> tuple[RoomAddress, int] | None:
    """Return the address of an array for other processes, and its byte offset; None if they cannot map it."""
    memory = _owner_of(array)
    return (memory.where, array.ctypes.data - memory.start) if isinstance(memory, Segment | Passed) else None


def _owner_of(array: np.ndarray) -> Any:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base.obj if isinstance(base, memoryview) else base


def look(where: RoomAddress, start: int, stop: int) -> np.ndarray:
    """Return some bytes of another process's segment; they stay unchanged while views of them exist."""
    path = f"/proc/{where.process}/fd/{where.file}"
    try:
        if os.readlink(path) != LINK:  # never open what might be a device
            raise OSError("it is a different file")
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(file, where)
            seen = _mapped(Look, file, where, start, stop)
        finally:
            os.close(file)
    except PermissionError:
        raise
    except (OSError, ValueError) as error:
        raise ConnectionError(f"memory of process {where.process} cannot be read: {error}") from error
    return seen if len(_looks) <= most_files() else seen.copy()


def _check(file: int, where: RoomAddress) -> None:
    """Lock a segment for reading; raise if it has another owner or another use now."""
    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    tokens = os.pread(file, 2 * TOKEN_BYTES, 0)
    if tokens[:TOKEN_BYTES] != where.owner:
        raise PermissionError(f"process {where.process} is a different process here")
    if tokens[TOKEN_BYTES:] != where.use:
        raise ConnectionError("it has been reused")


def _mapped(kind: type[Look], file: int, where: RoomAddress, start: int, stop: int) -> np.ndarray:
    """Return some bytes of a locked file; the file stays open, and locked, until the last view is gone."""
    before = start % mmap.ALLOCATIONGRANULARITY
    access = mmap.PROT_READ if kind is Passed else mmap.PROT_READ | mmap.PROT_WRITE
    pages = kind(file, stop - start + before, mmap.MAP_PRIVATE, access, offset=start - before)
    _populate(pages, POPULATE_READ)
    pages.file, pages.whose = os.dup(file), where
    weakref.finalize(pages, os.close, pages.file).atexit = False
    _looks.add(pages)
    seen = np.frombuffer(pages, np.uint8, stop - start, before)
    pages.start = seen.ctypes.data - start
    return seen


def passed_on(array: np.ndarray) -> np.ndarray | None:
    """Return a further mapping of mapped data, for third processes, without a copy.

    None if the data are not mapped, not contiguous, or the limit of open files is reached.
    """
    memory = _owner_of(array)
    if not isinstance(memory, Look) or not array.flags.c_contiguous or len(_looks) >= most_files():
        return None
    start = array.ctypes.data - memory.start
    try:
        seen = _mapped(Passed, memory.file, memory.whose, start, start + array.nbytes)
    except OSError:  # no more files, or mappings
        return None
    return seen.view(array.dtype).reshape(array.shape)


@cache
def probe() -> Segment:
    """Return the segment by which other processes test whether they can map this process's memory."""
    return Segment.of(1)
