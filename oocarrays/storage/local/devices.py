"""Devices: putting a file, the names in a folder, or all of a file system on one; and the start of the system."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from contextlib import suppress

from oocarrays.storage.local.pages import libc

SYNCED_WHOLE = {
    0xEF53: "ext4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0xF2F52010: "f2fs",
    0x2FC12FC1: "zfs",
    0x794C7630: "overlay",
    0x01021994: "tmpfs",
}
"""File systems, by the number that Linux knows them by, of which ``syncfs`` puts all that it holds on the device."""
START_WRITING = ctypes.c_uint(2)
"""Linux: ``SYNC_FILE_RANGE_WRITE``, ..."""
WHOLE = ctypes.c_int64(0), ctypes.c_int64(0)
"""... of a whole file."""


@functools.cache
def boot() -> str:
    """Return the name of this start of the system, after which the cache holds nothing; empty where none has one."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return ""


def is_synced_whole(folder: str) -> bool:
    """Return whether one request puts all of a folder's file system on its device."""
    if sys.platform != "linux":
        return False
    room = ctypes.create_string_buffer(256)
    if libc().statfs(os.fsencode(folder), room):
        return False
    return ctypes.c_long.from_buffer(room).value & 0xFFFFFFFF in SYNCED_WHOLE


def sync_path(path: str) -> None:
    """Put a file, or the names in a folder, on the device; fine where it has gone."""
    with suppress(FileNotFoundError, NotADirectoryError):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def sync_file_system(folder: str) -> None:
    """Put all of a folder's file system on its device."""
    file = os.open(folder, os.O_RDONLY)
    try:
        if libc().syncfs(file):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)
    finally:
        os.close(file)


def begin_writing(file: int) -> None:
    """Have the system begin to write out what an open file holds, and do not wait."""
    if sys.platform == "linux":
        libc().sync_file_range(file, *WHOLE, START_WRITING)
