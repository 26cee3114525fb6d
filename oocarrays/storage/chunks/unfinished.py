"""Unfinished chunks: files that receive pieces at their offsets, from many writers, in any order.

    c/0/3.4f1c….partial     ██··██····██        a piece writes only its own bytes, so none are lost
    c/0/3                   ████████████        its final name, once complete: readers see the whole chunk

The name is unique to one plan of one run. A resumed run finds the placed pieces; for other runs the file is the
leftover of a dead run. Space for a whole chunk is allocated with the first piece, so that a full device is detected
early, and unwritten bytes are zeros.
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
from oocarrays.storage.local.fs import failure, make_below, mode_of, open_regular, translated, write_at
from oocarrays.storage.local.names import partial_name
from oocarrays.storage.local.pages import libc
from oocarrays.storage.local.syncing import before_naming, written

MOST_FILES = 4096
"""Maximum number of files that a process has open at one time, and at most half of the system's limit."""


@dataclass(slots=True)
class _Open:
    file: int
    """File descriptor."""
    users: int = 0
    """Number of writers that use it."""


class UnfinishedChunks:
    """The unfinished chunks of one plain array in a local folder; thread-safe."""

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
        """Return the path of an unfinished chunk."""
        return self._blobs.path(partial_name(key, self.mark))

    def final(self, key: str) -> str:
        """Return the path of a finished chunk."""
        return self._blobs.path(key)

    def is_there(self, key: str) -> bool:
        """Return whether a chunk has an unfinished file."""
        return os.path.exists(self.path(key))

    def write(self, key: str, offset: int, data: memoryview) -> None:
        """Write bytes of a chunk at an offset."""
        self.write_runs(key, [offset], data)

    def write_runs(self, key: str, offsets: list[int], data: memoryview) -> None:
        """Write runs of equal length, which are consecutive in ``data``, at their offsets."""
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
        """Return a chunk's open file and count one more user; it stays open for later writers."""
        with self._lock:
            there = self._files.get(key)
            if there is None:
                there = self._files[key] = _Open(self._open(key))
                self._close_some()
            self._files.move_to_end(key)
            there.users += 1
            return there

    def _close_some(self) -> None:
        """Close the least recently used idle files beyond the maximum, except the newest."""
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
        """Rename a complete chunk to its final name; return False if it has no unfinished file."""
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
        """Rename a finished chunk back to its unfinished name, to write another piece."""
        final = self.final(key)
        if not self.is_there(key):
            with suppress(FileNotFoundError):
                os.replace(final, self.path(key))
                written(final)

    def discard(self, key: str) -> None:
        """Delete a chunk, finished or unfinished."""
        self._blobs.remove(key)
        self._blobs.remove(partial_name(key, self.mark))

    def read(self, key: str) -> np.ndarray | None:
        """Return the bytes of a finished or unfinished chunk; None if it is missing or has a wrong size."""
        for path in (self.final(key), self.path(key)):
            with suppress(FileNotFoundError):
                data = np.fromfile(path, np.uint8)
                return data if len(data) == self.nbytes else None
        return None

    def placed(self, key: str) -> None:
        """Register a chunk's unfinished file for syncing, after pieces were written."""
        written(self.path(key))

    def close(self) -> None:
        with self._lock:
            _close(self._files)


def allowed_files() -> int:
    """Return the maximum number of open files: half of the system's limit, as the process needs others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_FILES if soft == resource.RLIM_INFINITY else max(min(soft // 2, MOST_FILES), 1)


def take_room(file: int, nbytes: int) -> None:
    """Set an open file's length, and allocate its space if the file system can do so without writing."""
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
