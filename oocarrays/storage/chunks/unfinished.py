"""Unfinished chunks: files into which pieces are written in their places, by many writers, in any order.

    c/0/3.4f1c….partial     ██··██····██        a piece touches no byte that is not its own, so nothing is lost
    c/0/3                   ████████████        the name that it gets when all are in it: readers see all of it

The name tells one plan of one run from all others: who goes on with it finds what was placed, and who does not takes
the file for what a dead run has left. Room for a whole chunk is taken when the first piece comes, so that a full device
is seen soon, and what nobody has placed is zeros.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import threading
import weakref
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import numpy as np

from oocarrays.storage.local.blobs import LocalBlobs
from oocarrays.storage.local.direct_io import open_past_cache
from oocarrays.storage.local.fs import (
    failure,
    make_below,
    mode_of,
    open_regular,
    translated,
    write_at,
)
from oocarrays.storage.local.names import partial_name
from oocarrays.storage.local.pages import libc
from oocarrays.storage.local.syncing import before_naming, written

MOST_FILES = 4096
"""Files that a process has open at one time, at most; and no more than half of what the system allows it."""


@dataclass(slots=True)
class _Open:
    """An open file."""

    file: int
    """Its number."""
    users: int = 0
    """Writers that are at it."""


class UnfinishedChunks:
    """The unfinished chunks of one plain array in a local folder. Threads may share it."""

    def __init__(
        self, folder: str | LocalBlobs, mark: str, nbytes: int, *, past_cache: bool = False, most: int | None = None
    ) -> None:
        self._blobs = LocalBlobs(folder) if isinstance(folder, str) else folder
        self.mark, self.nbytes = mark, nbytes
        self._past_cache = past_cache
        self._most = allowed_files() if most is None else most
        self._files: OrderedDict[str, _Open] = OrderedDict()
        self._lock = threading.Lock()
        self._close_all = weakref.finalize(self, _close, self._files)

    def path(self, key: str) -> str:
        """Where a chunk is while it is unfinished."""
        return self._blobs.path(partial_name(key, self.mark))

    def final(self, key: str) -> str:
        """Where a chunk is when it has its name."""
        return self._blobs.path(key)

    def is_there(self, key: str) -> bool:
        """Return whether anything has been placed in a chunk that has not got its name."""
        return os.path.exists(self.path(key))

    def write(self, key: str, offset: int, data: memoryview) -> None:
        """Place bytes in a chunk."""
        self.write_runs(key, [offset], data)

    def write_runs(self, key: str, offsets: list[int], data: memoryview) -> None:
        """Place runs of equal length, which lie one behind the other in ``data``."""
        length = len(data) // max(len(offsets), 1)
        there: _Open | None = None
        try:
            there = self._taken(key)
            for number, offset in enumerate(offsets):
                write_at(there.file, offset, data[number * length : (number + 1) * length])
        except OSError as error:
            raise failure("write", self.path(key), error) from error
        finally:
            if there is not None:
                with self._lock:
                    there.users -= 1

    def _taken(self, key: str) -> _Open:
        """A chunk's file with one writer more; it stays open for whoever comes next."""
        with self._lock:
            there = self._files.get(key)
            if there is None:
                there = self._files[key] = _Open(self._open(key))
                self._close_some()
            self._files.move_to_end(key)
            there.users += 1
            return there

    def _close_some(self) -> None:
        """Close the files that were used longest ago, where more than the most are open; the newest stays."""
        more, newest = max(len(self._files) - self._most, 0), next(reversed(self._files))
        idle = (key for key, each in self._files.items() if not each.users and key != newest)
        for key in list(islice(idle, more)):
            os.close(self._files.pop(key).file)

    def _open(self, key: str) -> int:
        path, flags = self.path(key), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            file = self._create(path, flags)
        except FileNotFoundError:
            make_below(self._blobs.root_of(key), os.path.dirname(path))
            file = self._create(path, flags)
        try:
            if os.fstat(file).st_size != self.nbytes:
                take_room(file, self.nbytes)
        except BaseException:
            os.close(file)
            raise
        return file

    def _create(self, path: str, flags: int) -> int:
        if self._past_cache:
            file, self._past_cache = open_past_cache(path, flags)
            return file
        return open_regular(path, flags, mode_of(path))

    def finish(self, key: str) -> bool:
        """Give a chunk its name: nothing of it is missing. Return whether anything was placed in it."""
        with self._lock:
            there = self._files.pop(key, None)
        path, final = self.path(key), self.final(key)
        with suppress(FileNotFoundError), translated("write", final, but=(FileNotFoundError,)):
            if there is not None:
                os.close(there.file)
            before_naming(path)
            os.replace(path, final)
            written(final)
            return True
        return False

    def reopen(self, key: str) -> None:
        """Take the name of a chunk away again: something has to be placed in it once more."""
        final = self.final(key)
        if not self.is_there(key):
            with suppress(FileNotFoundError):
                os.replace(final, self.path(key))
                written(final)

    def discard(self, key: str) -> None:
        """Remove a chunk, whether or not it has its name."""
        self._blobs.remove(key)
        self._blobs.remove(partial_name(key, self.mark))

    def read(self, key: str) -> np.ndarray | None:
        """The bytes of a chunk, whether or not it has its name; None where it is not there as a whole."""
        for path in (self.final(key), self.path(key)):
            with suppress(FileNotFoundError):
                data = np.fromfile(path, np.uint8)
                return data if len(data) == self.nbytes else None
        return None

    def placed(self, key: str) -> None:
        """Say that something has been placed in a chunk, which has to be on the device before that is relied on."""
        written(self.path(key))

    def close(self) -> None:
        with self._lock:
            _close(self._files)


def allowed_files() -> int:
    """Files that may be open at one time: half of what the system allows this process, which has others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_FILES if soft == resource.RLIM_INFINITY else max(min(soft // 2, MOST_FILES), 1)


def take_room(file: int, nbytes: int) -> None:
    """Make an open file so long, and take the room for it where the file system does that without writing."""
    fallocate = getattr(libc(), "fallocate", None)
    if fallocate is not None and nbytes:
        if not fallocate(file, 0, ctypes.c_int64(0), ctypes.c_int64(nbytes)):
            return
        number = ctypes.get_errno()
        if number not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EINTR):
            raise OSError(number, os.strerror(number))
    os.ftruncate(file, nbytes)


def _close(files: OrderedDict[str, _Open]) -> None:
    while files:
        with suppress(OSError):
            os.close(files.popitem()[1].file)
