"""Locks on local folders, by which the operating system tracks living processes.

    the run's first process    claim   alone ──► shared ─────────────────┐
    its other processes        share             shared ────────┐        │     a lock is free when the last
    another run                claim   refused … refused …  refused …  alone   of these is closed, or dead

A lock is an ``flock`` on a small file. It belongs to one open file: two open files in one process act as two processes.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from oocarrays.storage.local.fs import make_folders


class Busy(Exception):
    """Error: another process holds the lock."""


def try_lock(path: str, how: int, *, make: bool = False) -> int | None:
    """Return the lock file, open and locked; None without a lock file, or on a file system without such locks."""
    while True:
        try:
            file = _open(path, make)
        except FileNotFoundError:
            if not make:
                return None
            make_folders(os.path.dirname(path))
            continue
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise Busy(path) from None
        except OSError:
            os.close(file)
            return None
        if is_at(file, path):
            return file
        os.close(file)  # its previous holder removed the file, so this lock protects nothing


def is_locked(path: str) -> bool | None:
    """Return whether a living process holds a lock; None if there is no lock file, or it cannot be read."""
    with suppress(OSError):
        try:
            with alone(path) as is_there:
                return False if is_there else None
        except Busy:
            return True
    return None


@contextmanager
def alone(path: str) -> Iterator[bool]:
    """Hold a lock alone; the context yields False without a lock file, or on a file system without such locks."""
    file = try_lock(path, fcntl.LOCK_EX)
    try:
        yield file is not None
    finally:
        if file is not None:
            let_go(file)


def _open(path: str, make: bool) -> int:
    """Open the lock file for writing, as network file systems need; for reading if writing is not permitted."""
    try:
        return os.open(path, os.O_RDWR | (os.O_CREAT if make else 0), 0o600)
    except PermissionError:
        return os.open(path, os.O_RDONLY)


def is_at(file: int, path: str) -> bool:
    """Return whether an open file is still the file at ``path``."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def let_go(file: int) -> None:
    """Close a lock file and ignore errors of network file systems: closing releases the lock anyway."""
    with suppress(OSError):
        os.close(file)


class Hold:
    """Hold on a folder through a lock file; the operating system releases it when the process dies.

    It also ends when this object is collected, so keep a reference. It is thread-safe. Two of these objects in one
    process act as two processes.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = -1
        self._close: weakref.finalize | None = None
        self._mutex = threading.Lock()

    def share(self, *, make: bool) -> bool:
        """Share the lock with other holders; return False without a lock file, or without lock support."""
        return self._held(lambda: try_lock(self.path, fcntl.LOCK_SH, make=make), 5.0)  # another process checks it

    def claim(self, wait: float) -> bool:
        """Take the lock exclusively, then share it; return False where locks are unavailable."""
        return self._held(self._alone_then_shared, wait)

    def _alone_then_shared(self) -> int | None:
        file = try_lock(self.path, fcntl.LOCK_EX, make=True)
        if file is None:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise Busy(self.path) from None
        return file

    def _held(self, take: Callable[[], int | None], wait: float) -> bool:
        """Take the lock unless this object holds it, and retry for ``wait`` seconds."""
        deadline = time.monotonic() + wait
        with self._mutex:
            while not self._has():
                try:
                    file = take()
                except Busy:
                    if time.monotonic() >= deadline:
                        raise
                    time.sleep(0.05)
                    continue
                if file is None:
                    return False
                self._file, self._close = file, weakref.finalize(self, let_go, file)
            return True

    @property
    def is_held(self) -> bool:
        with self._mutex:
            return self._has()

    def _has(self) -> bool:
        """Return whether the lock is held; release it if its file was removed."""
        if self._close is not None and not is_at(self._file, self.path):
            self._let_go()
        return self._close is not None

    def _let_go(self) -> bool:
        close, self._close = self._close, None
        if close is not None:
            close()
        return close is not None

    def close(self) -> bool:
        """Release the lock; return whether it was held."""
        with self._mutex:
            return self._let_go()
