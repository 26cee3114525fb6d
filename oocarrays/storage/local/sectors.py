"""Writing bytes to open files: through the system's cache, or past it where they lie on sectors.

Many bytes are written past the system's cache where the file system lets us. A cache full of dirty pages makes
writers wait: 4 GiB took 1.9 to 5.5 s through it here and 1.8 s past it. Memory that the cache takes anew can be slow
too, on a machine that gives free pages back to its host: 1 GiB took 0.1 to 1.4 s through it and 0.4 s past it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from oocarrays.storage.local.fs import mode_of

SECTOR = 4096
"""Bytes: what a write past the cache must be a multiple of, and lie on."""
MOST_BYTES = 2**30
"""Bytes of one system call; the kernel stops at 2 GiB."""


Piece = tuple[int, memoryview]
"""Bytes of a chunk, and where they begin in it."""


def padded(nbytes: int) -> int:
    """``nbytes`` rounded up to whole sectors."""
    return -(-nbytes // SECTOR) * SECTOR


def open_past_cache(path: str, flags: int) -> tuple[int, bool]:
    """Open a file past the system's cache where its file system takes that; and whether it does."""
    direct = getattr(os, "O_DIRECT", 0)
    try:
        return os.open(path, flags | direct, mode_of(path)), bool(direct)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return os.open(path, flags & ~os.O_EXCL, mode_of(path)), False  # a refused file may have been made all the same


def write_all(file: int, data: memoryview) -> None:
    """Write all of ``data`` at the end of an open file."""
    done = 0
    while done < len(data):
        done += os.write(file, data[done : done + MOST_BYTES])


def write_pieces(file: int, pieces: Iterable[Piece], *, past_cache: bool = False) -> None:
    """Write pieces of an open file, each at its offset; past the system's cache what lies on sectors."""
    pwrite = os.pwrite
    for offset, data in pieces:
        done = _write_sectors(file, offset, data) if past_cache else 0
        while done < len(data):
            done += pwrite(file, data[done : done + MOST_BYTES], offset + done)


def _write_sectors(file: int, offset: int, data: memoryview) -> int:
    """Write the whole sectors of a piece past the cache, where it lies on them: bytes that are written."""
    whole = len(data) // SECTOR * SECTOR if offset % SECTOR == 0 and on_sectors(data) else 0
    if not whole:
        return 0
    try:
        with directly([file]) as allowed:
            return os.pwrite(file, data[: min(whole, MOST_BYTES)], offset) if allowed else 0
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return 0  # sectors of this device are larger


@contextmanager
def directly(files: Iterable[int]) -> Iterator[bool]:
    """Have open files read and written past the system's cache; whether they all are."""
    flags: dict[int, int] = {}
    allowed = hasattr(os, "O_DIRECT")
    try:
        for file in files if allowed else ():
            flags[file] = fcntl.fcntl(file, fcntl.F_GETFL)
            fcntl.fcntl(file, fcntl.F_SETFL, flags[file] | os.O_DIRECT)
    except OSError:  # not in this file system
        allowed = False
    try:
        yield allowed
    finally:
        for file, before in flags.items():
            fcntl.fcntl(file, fcntl.F_SETFL, before)


def on_sectors(data: memoryview) -> bool:
    """Return whether bytes begin where a device can write them from."""
    return len(data) > 0 and np.frombuffer(data, np.uint8).ctypes.data % SECTOR == 0
