"""Memory of which other processes of this machine may have a look: what is packed in it is copied nowhere to be sent.

    worker a                                         worker b
    pack ─► room ─┐ a file without a name ─ where ─► /proc/PROCESS/fd/FILE ─► its pages ─► unpack
                  └─ used again when nobody here refers to it, and nobody elsewhere has a lock on it

    forwarded         worker b ─ where ─► /proc/PROCESS of b/fd/FILE ─► the same pages ─► worker c

No process is made more open than it was: the system lets those open its files who may look at the process anyway, and
in these files lies nothing but what was packed to be sent. They have no name and belong to whoever has them open, so a
killed worker leaves none, and its locks go with it. Their pages are there before they are used and cannot be taken
away: where memory is short, plain memory is used instead, and nobody is ended by a signal.
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
"""Of a message: less goes over the socket anyway."""
TOKEN_BYTES = 16
HEAD_BYTES = mmap.PAGESIZE
"""Before the room in a file: whose it is, and for what it is used now."""
PATIENCE = 0.003
"""Seconds to wait for others to have done with a room, before there is one more."""
NAME, LINK = "oocarrays", "/memfd:oocarrays (deleted)"
"""Of a file without a name, in lists of a process's files; and what the system says of it."""
_OWNER = secrets.token_bytes(TOKEN_BYTES)
"""By which others know that they look into this process's memory, and no other's that has its number elsewhere."""
SEALS = 0x1 | 0x2 | 0x4
"""``F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW``: `fcntl` of Python has them only where its own system had."""
F_ADD_SEALS = 1033
_on = False
"""Whether other workers have been seen to look into this process's memory."""


class RoomAddress(NamedTuple):
    """Where other processes find a room."""

    process: int
    """Its number."""
    file: int
    """The file's number in it."""
    owner: bytes
    """The process's token."""
    use: bytes
    """The token of what the room is used for now."""


class Segment(mmap.mmap):
    """Pages of a file without a name, of this process."""

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
        segment.file = file
        segment.start = np.frombuffer(segment, np.uint8).ctypes.data
        _segments.add(segment)
        segment.renew()
        return segment

    def renew(self) -> bool:
        """Use it for something new; False where somebody still looks at what it was used for."""
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
        """Where others find it."""
        return RoomAddress(os.getpid(), self.file, _OWNER, self.use)


class Look(mmap.mmap):
    """Pages of another process's segment: what is written there stays here."""

    file: int
    start: int
    whose: RoomAddress

    @property
    def where(self) -> RoomAddress:
        """Where third processes find it: here, whoever has made it."""
        return self.whose._replace(process=os.getpid(), file=self.file)


class Passed(Look):
    """Pages of another process's segment that are only passed on: nothing can be written there."""


_segments: weakref.WeakSet[Segment] = weakref.WeakSet()
_looks: weakref.WeakSet[Look] = weakref.WeakSet()


def _memory_file(nbytes: int) -> int:
    if not hasattr(os, "memfd_create"):
        raise OSError("this system has no files without names")
    file = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(file, 0o600)
        os.posix_fallocate(file, 0, nbytes)
        fcntl.fcntl(file, F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(file)
        raise
    return file


@cache
def most_files() -> int:
    """How many segments, and looks at others', this process has open before it makes do without: an eighth of what it
    may have each, and each takes two."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**10 if soft == resource.RLIM_INFINITY else min(soft // 16, 2**10)


def use(on: bool) -> None:
    """Let rooms be such from now on that others may look into them, or no more."""
    global _on
    _on = on


# ---------------------------------------------------------------------- packing


class Rooms:
    """Memory to pack in, used again when nobody looks at it any more: pages that are there cost a tenth of new ones."""

    def __init__(self) -> None:
        self._all: list[tuple[np.ndarray | Segment, weakref.ref[np.ndarray]]] = []
        """Memory, and what every view of it refers to."""
        self._most = 0
        """Bytes that have been in use at one time."""
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> np.ndarray:
        """A room of ``nbytes``, whatever is in it; it is in use as long as there are views of it, here or elsewhere."""
        if not nbytes:
            return np.empty(0, np.uint8)
        deadline = time.monotonic() + PATIENCE
        while True:
            with self._lock:
                fitting = self._fitting(nbytes)
                memory = next((memory for memory in fitting if _renewed(memory)), None)
                if memory is not None or not fitting or time.monotonic() > deadline:
                    return self._lent(self._new(nbytes) if memory is None else memory, nbytes)
            time.sleep(0.0002)

    def _fitting(self, nbytes: int) -> list[np.ndarray | Segment]:
        """Return the memory that nobody here refers to and that is large enough, the smallest first."""
        free = [memory for memory, view in self._all if view() is None and _size(memory) >= nbytes]
        return sorted(free, key=_size)

    def _new(self, nbytes: int) -> np.ndarray | Segment:
        """One more; as many others go that together they are no more than were in use at one time."""
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
        """Return a view of memory to which all views of it will refer."""
        shared = isinstance(memory, Segment)
        data: Any = memory.data if isinstance(memory, np.ndarray) else memory
        room = np.frombuffer(data, np.uint8, nbytes, HEAD_BYTES if shared else 0)
        self._all = [each for each in self._all if each[0] is not memory] + [(memory, weakref.ref(room))]
        return room

    def packed(self, data: np.ndarray) -> np.ndarray:
        """Return a contiguous copy; the array itself, where that is one in a room already."""
        return data if data.flags.c_contiguous and (not _on or found(data)) else self.copy(data)

    def copy(self, data: np.ndarray) -> np.ndarray:
        """Return a contiguous copy in a room of its own."""
        copy = self.take(data.nbytes).view(data.dtype).reshape(data.shape)
        copy[...] = data
        return copy

    def forwarded(self, data: np.ndarray) -> np.ndarray:
        """Pass on data that has come: another look at it, where it came by one; else a contiguous copy."""
        seen = passed_on(data) if _on else None
        return self.copy(data) if seen is None else seen

    def joined(self, pieces: Sequence[np.ndarray]) -> np.ndarray:
        """Return the bytes of contiguous arrays, one behind the other; of one, where it is."""
        if len(pieces) == 1:
            return self.packed(pieces[0]).reshape(-1).view(np.uint8)
        room = self.take(sum(piece.nbytes for piece in pieces))
        return np.concatenate([piece.reshape(-1).view(np.uint8) for piece in pieces], out=room)

    def __reduce__(self) -> Any:
        return Rooms, ()


def _size(memory: np.ndarray | Segment) -> int:
    return len(memory) - (HEAD_BYTES if isinstance(memory, Segment) else 0)


def _renewed(memory: np.ndarray | Segment) -> bool:
    return memory.renew() if isinstance(memory, Segment) else True


def _memory(nbytes: int) -> np.ndarray | Segment:
    """Memory of which others may have a look, where that is of use and there is some."""
    if _on and nbytes >= LEAST_BYTES and len(_segments) < most_files():
        with suppress(OSError):  # no memory for it, or no file: messages go another way
            return Segment.of(nbytes)
    return allocate(nbytes) if nbytes >= LEAST_BYTES else np.empty(nbytes, np.uint8)


# ---------------------------------------------------------------------- who else looks at it


def found(array: np.ndarray) -> tuple[RoomAddress, int] | None:
    """Where others find an array, and at which byte; None where they do not."""
    memory = _owner_of(array)
    return (memory.where, array.ctypes.data - memory.start) if isinstance(memory, Segment | Passed) else None


def _owner_of(array: np.ndarray) -> Any:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base.obj if isinstance(base, memoryview) else base


def look(where: RoomAddress, start: int, stop: int) -> np.ndarray:
    """Some bytes of another process's segment, which stay what they are while there are views of this."""
    path = f"/proc/{where.process}/fd/{where.file}"
    try:
        if os.readlink(path) != LINK:  # never open what might be a device
            raise OSError("it is another file")
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
    """Lock what is looked at; an error where it is something else by now."""
    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    tokens = os.pread(file, 2 * TOKEN_BYTES, 0)
    if tokens[:TOKEN_BYTES] != where.owner:
        raise PermissionError(f"process {where.process} is another one here")
    if tokens[TOKEN_BYTES:] != where.use:
        raise ConnectionError("it is used for something else")


def _mapped(kind: type[Look], file: int, where: RoomAddress, start: int, stop: int) -> np.ndarray:
    """Some bytes of a file that is locked: it stays open, and so the lock, until nobody has a view of them."""
    before = start % mmap.ALLOCATIONGRANULARITY
    access = mmap.PROT_READ if kind is Passed else mmap.PROT_READ | mmap.PROT_WRITE
    pages = kind(file, stop - start + before, mmap.MAP_PRIVATE, access, offset=start - before)
    pages.file, pages.whose = os.dup(file), where
    weakref.finalize(pages, os.close, pages.file).atexit = False
    _looks.add(pages)
    seen = np.frombuffer(pages, np.uint8, stop - start, before)
    pages.start = seen.ctypes.data - start
    return seen


def passed_on(array: np.ndarray) -> np.ndarray | None:
    """Return a look at what is seen in another, for third processes: no bytes are copied, and no others are kept.

    None where it is not in a look, or no more files can be open.
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
    """By which others try whether they can look into this process's memory."""
    return Segment.of(1)
