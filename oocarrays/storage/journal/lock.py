"""Locks on local folders: who is alive, as the operating system knows it.

    the run's first process    claim   alone ──► shared ─────────────────┐
    its other processes        share             shared ────────┐        │     a lock is free when the last
    another run                claim   refused … refused …  refused …  alone   of these is closed, or dead

A lock is an ``flock`` on a small file, which belongs to one open file: two of them in one process are as two processes.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress

from oocarrays.storage.local.fs import make_folders

RETRY_SECONDS = 0.05
SHARE_SECONDS = 5.0
"""How long a process waits for another one that looks at a lock, or is taking it: moments."""


class Busy(Exception):
    """Another process holds this lock."""


def try_lock(path: str, how: int, *, make: bool = False) -> int | None:
    """The lock file, open and locked; None where there is none, or where its file system has no such locks."""
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
        os.close(file)  # whoever had it removed it: that lock is nobody's any more


def is_locked(path: str) -> bool | None:
    """Return whether a living process holds a lock; None if there is no lock file, or it cannot be read."""
    with suppress(OSError):
        try:
            file = try_lock(path, fcntl.LOCK_EX)
        except Busy:
            return True
        if file is not None:
            let_go(file)
            return False
    return None


def _open(path: str, make: bool) -> int:
    """The lock file, open; network file systems want it open for writing, another person's can often only be read."""
    try:
        return os.open(path, os.O_RDWR | (os.O_CREAT if make else 0), 0o600)
    except PermissionError:
        return os.open(path, os.O_RDONLY)


def is_at(file: int, path: str) -> bool:
    """Whether an open file is still the one under ``path``."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def let_go(file: int) -> None:
    """Close a lock file: the lock is free then, whatever a network file system says of it."""
    with suppress(OSError):
        os.close(file)


class Hold:
    """A process's hold on a folder, by a lock file in it; the operating system ends it when the process dies.

    It ends too when this object is collected: keep it. It is safe in threads; two of these in one process are as two
    processes.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = -1
        self._close: weakref.finalize | None = None
        self._mutex = threading.Lock()

    def share(self, *, make: bool) -> bool:
        """Hold it beside others that share it; False where there is no lock file, or none is to be had."""
        return self._held(lambda: try_lock(self.path, fcntl.LOCK_SH, make=make), SHARE_SECONDS)

    def claim(self, wait: float) -> bool:
        """Hold it alone for a moment, then shared; False where locks are not to be had."""
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
        """Take it, again and again for ``wait`` seconds, if this object does not have it already."""
        deadline = time.monotonic() + wait
        with self._mutex:
            while not self._has():
                try:
                    file = take()
                except Busy:
                    if time.monotonic() >= deadline:
                        raise
                    time.sleep(RETRY_SECONDS)
                    continue
                if file is None:
                    return False
                self._file, self._close = file, weakref.finalize(self, let_go, file)
            return True

    @property
    def is_held(self) -> bool:
        """Whether this object holds it."""
        with self._mutex:
            return self._has()

    def _has(self) -> bool:
        """Whether the lock is held; one whose file was removed is given up."""
        if self._close is not None and not is_at(self._file, self.path):
            self._let_go()
        return self._close is not None

    def _let_go(self) -> bool:
        close, self._close = self._close, None
        if close is not None:
            close()
        return close is not None

    def close(self) -> bool:
        """End the hold; whether there was one."""
        with self._mutex:
            return self._let_go()
