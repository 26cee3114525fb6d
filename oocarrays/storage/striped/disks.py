"""Disks of a striped file: the protocol, and its implementation for folders."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from zarr.storage import LocalStore

from oocarrays.errors import InputError, NotFoundError
from oocarrays.storage.local.fs import failure, open_regular, read_file, remove_file, translated
from oocarrays.storage.local.ranges import NOWAIT
from oocarrays.storage.local.syncing import replacing_file
from oocarrays.storage.stores.urls import check_path, store_of


class DiskPart(Protocol):
    """Open part of a striped file on one disk."""

    def read(self, views: Sequence[memoryview], offset: int) -> int:
        """Fill views from ``offset`` in one request; return the bytes read, fewer at the end of the part."""

    def read_at_once(self, views: Sequence[memoryview], offset: int) -> bool:
        """Fill views without waiting; return whether all bytes were read."""

    def write_at_once(self, views: Sequence[memoryview], offset: int) -> bool:
        """Write views if no wait is expected; return whether they were written."""

    def write(self, views: Sequence[memoryview], offset: int) -> None:
        """Write views at ``offset`` in one request."""

    def size(self) -> int:
        """Return the size in bytes."""

    def truncate(self, nbytes: int) -> None:
        """Set the size in bytes."""

    def sync(self) -> None:
        """Flush the part to the device."""

    def close(self) -> None:
        """Close the part."""


@runtime_checkable
class Disk(Protocol):
    """Place that stores parts of striped files: a folder or an equivalent."""

    label: str
    """Label for messages."""
    identity: Any
    """Value that is equal for equal disks only."""
    joined_bytes: int
    """Maximum bytes of a request of several blocks; 0 if each block is a request."""

    def open_part(self, name: str, flags: int) -> DiskPart:
        """Open the part of a file with the flags of ``os.open``."""

    def get_document(self, name: str) -> bytes | None:
        """Read a small file; None if it does not exist."""

    def put_document(self, name: str, data: bytes) -> None:
        """Replace a small file atomically."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""


class FolderPart:
    """Part in a local file."""

    def __init__(self, path: str, flags: int) -> None:
        self.path, self._waits_until = path, 0.0
        try:
            with translated("open", path, but=(FileNotFoundError,)):
                self._file = open_regular(path, flags)
        except FileNotFoundError:
            raise NotFoundError(f"no such part of a striped file: {path}") from None

    def read(self, views: Sequence[memoryview], offset: int) -> int:
        """Fill views from ``offset``; return the bytes read, fewer at the end of the part."""
        wanted = sum(map(len, views))
        try:
            done = got = os.preadv(self._file, views, offset)
            while got and done < wanted:
                got = os.preadv(self._file, rest(views, done), offset + done)
                done += got
        except OSError as error:
            raise failure("read", self.path, error) from error
        return done

    def read_at_once(self, views: Sequence[memoryview], offset: int) -> bool:
        """Fill views from the page cache; return whether all bytes were there."""
        try:
            return bool(NOWAIT) and os.preadv(self._file, views, offset, NOWAIT) == sum(map(len, views))
        except OSError:
            return False

    def write_at_once(self, views: Sequence[memoryview], offset: int) -> bool:
        """Write views unless a recent write waited for the device; return whether they were written."""
        if time.monotonic() < self._waits_until:
            return False
        begun = time.monotonic()
        self.write(views, offset)
        seconds = time.monotonic() - begun
        if seconds > 0.005 + sum(map(len, views)) / 2e8:  # slower than the page cache: it waited for the device
            self._waits_until = begun + seconds + 1.0
        return True

    def write(self, views: Sequence[memoryview], offset: int) -> None:
        wanted = sum(map(len, views))
        try:
            done = os.pwritev(self._file, views, offset)
            while done < wanted:
                done += os.pwritev(self._file, rest(views, done), offset + done)
        except OSError as error:
            raise failure("write", self.path, error) from error

    def size(self) -> int:
        return os.fstat(self._file).st_size

    def truncate(self, nbytes: int) -> None:
        with translated("write", self.path):
            os.ftruncate(self._file, nbytes)

    def sync(self) -> None:
        with translated("write", self.path):
            os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def rest(views: Sequence[memoryview], done: int) -> list[memoryview]:
    """Return the remainder of views after ``done`` bytes."""
    left = []
    for view in views:
        if done < len(view):
            left.append(view[done:])
        done = max(done - len(view), 0)
    return left


class FolderDisk:
    """Folder of parts of striped files, one file a part."""

    joined_bytes = 2**20  # each request has a fixed cost

    def __init__(self, folder: str) -> None:
        self.folder = self.label = folder
        self.identity: Any = os.path.realpath(folder)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def open_part(self, name: str, flags: int) -> FolderPart:
        return FolderPart(self._path(name), flags)

    def get_document(self, name: str) -> bytes | None:
        with translated("read", self._path(name)):
            return read_file(self._path(name))

    def put_document(self, name: str, data: bytes) -> None:
        with replacing_file(self._path(name)) as partial, open(partial, "xb") as file:
            file.write(data)

    def remove(self, name: str) -> None:
        with translated("write", self._path(name)):
            remove_file(self._path(name))


def disk_of(given: Any) -> Disk:
    """Return the given disk: a folder, or an object with the protocol `Disk`."""
    if isinstance(given, Disk):
        return given
    place = store_of(given) if isinstance(given, str | os.PathLike) else given
    folder = str(place.root) if isinstance(place, LocalStore) else place
    if not isinstance(folder, str | os.PathLike):
        raise InputError(f"disk {given!r} is no folder: parts of a striped file are kept in folders")
    folder = check_path(folder, "the disk")
    if not os.path.isdir(folder):
        raise NotFoundError(f"no such disk: {os.fsdecode(folder)} is not a folder")
    return FolderDisk(os.path.abspath(os.fsdecode(folder)))


def disks_of(given: Any) -> list[Disk]:
    """Return the given disks; raise if one is given twice."""
    if isinstance(given, str | os.PathLike) or not isinstance(given, Sequence) or not given:
        raise InputError(f"disks={given!r}: give a list of folders, one a disk, such as ['/mnt/a', '/mnt/b']")
    disks, seen = [disk_of(each) for each in given], {}
    for disk in disks:
        if disk.identity in seen:
            raise InputError(f"disk {disk.label} is given twice")
        seen[disk.identity] = disk
    return disks
