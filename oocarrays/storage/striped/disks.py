"""Disks: folders with parts of striped files, and folders or other Zarr stores with parts of a striped store."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from zarr.abc.store import Store
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.storage import LocalStore

from oocarrays.errors import InputError, NotFoundError
from oocarrays.storage.local.blobs import LocalBlobs
from oocarrays.storage.local.fs import (
    PARTIAL_END,
    failure,
    files_below,
    make_folders,
    open_regular,
    read_file,
    remove_file,
    translated,
)
from oocarrays.storage.local.ranges import NOWAIT
from oocarrays.storage.local.syncing import replace_file, replacing_file
from oocarrays.storage.stores.remote import Details, Patience, RemoteStore
from oocarrays.storage.stores.urls import Ways, check_path, store_of
from oocarrays.storage.striped.layout import turn_of

D = TypeVar("D")
PROTOTYPE = default_buffer_prototype()
DOCUMENT = ".striped.json"
"""Key of the descriptor on each disk."""
RECORD = ".striped-values.json"
"""Key of the record of all values, on the first disk."""
HIDDEN = (DOCUMENT, RECORD)
"""Keys of the store itself, hidden from listings."""


class FolderPart:
    """Open part of a striped file on one disk."""

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
    left = []
    for view in views:
        if done < len(view):
            left.append(view[done:])
        done = max(done - len(view), 0)
    return left


class FolderDisk:
    """Folder of parts of striped files, one file a part."""

    joined_bytes = 2**20
    """Maximum bytes of a request of several blocks, as each request has a fixed cost; 0 if each block is a request."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        folder = check_path(folder, "the disk")
        if not os.path.isdir(folder):
            raise NotFoundError(f"no such disk: {folder} is not a folder")
        self.folder = self.label = os.path.abspath(folder)

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


def _disk_of(given: Any) -> FolderDisk:
    if isinstance(given, FolderDisk) or hasattr(given, "as_disk"):
        return given if isinstance(given, FolderDisk) else given.as_disk()
    place = store_of(given) if isinstance(given, str | os.PathLike) else given
    folder = str(place.root) if isinstance(place, LocalStore) else place
    if not isinstance(folder, str | os.PathLike):
        raise InputError(f"disk {given!r} is no folder: parts of a striped file are kept in folders")
    return FolderDisk(folder)


def disks_of(given: Any) -> list[FolderDisk]:
    return distinct(given, "folders", _disk_of, lambda disk: disk.label)


def distinct(given: Any, kinds: str, opened: Callable[[Any], D], label: Callable[[D], str]) -> list[D]:
    """Open the given disks; raise if they are no list, or one is given twice."""
    if isinstance(given, str | os.PathLike) or not isinstance(given, Sequence) or not given:
        raise InputError(f"disks={given!r}: give a list of {kinds}, one per disk, such as ['/mnt/a', '/mnt/b']")
    disks, seen = [opened(each) for each in given], set()
    for disk in disks:
        place = os.path.realpath(label(disk))
        if place in seen:
            raise InputError(f"disk {label(disk)} is named twice")
        seen.add(place)
    return disks


class FolderStore(LocalStore):
    """Folder as a disk of a striped store: chunks are replaced atomically; documents are also synced to the device."""

    def __init__(self, root: str, *, base: str | None = None, read_only: bool = False) -> None:
        super().__init__(root, read_only=read_only)
        self.base = os.path.dirname(root) if base is None else base
        """Parent folder that must exist: the mount of the disk."""
        self._blobs = LocalBlobs(str(root))

    async def _open(self, *, mode: str | None = None) -> None:
        """Open the store without creating its folder; the first write creates it."""
        if self._is_open:
            raise ValueError("store is already open")
        self._is_open = True

    async def _ensure_open(self) -> None:
        self._is_open = True

    def _ensure_open_sync(self) -> None:
        self._is_open = True

    async def details(self, prefix: str) -> Details:
        """Return keys with a prefix, their sizes and versions."""
        return await asyncio.to_thread(_details, str(self.root), prefix)

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        await asyncio.to_thread(self._put, key, value)

    def _put(self, key: str, value: Buffer) -> None:
        self._make()
        if turn_of(key) is None:
            replace_file(os.path.join(str(self.root), key), value.to_bytes())
        else:
            self._blobs.put(key, memoryview(value.as_buffer_like()).cast("B"))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        self._check_writable()
        self._make()
        await super().set_if_not_exists(key, value)

    def _make(self) -> None:
        """Create the folder; raise if the disk is not mounted."""
        root = str(self.root)
        if not os.path.isdir(root):
            self.check_disk()
            make_folders(root)

    def check_disk(self) -> None:
        if not os.path.isdir(self.base):
            raise NotFoundError(f"no such disk: {self.base} is not a folder")

    def __reduce__(self) -> Any:
        return partial(FolderStore, base=self.base, read_only=self.read_only), (str(self.root),)


def clear_folders(part: Store) -> None:
    """Remove the empty folders of a store on a disk, including its own."""
    for folder, *_ in os.walk(str(part.root), topdown=False) if isinstance(part, FolderStore) else ():
        with suppress(OSError):
            os.rmdir(folder)


def part_of(given: Any, options: Any = None, ways: Ways | None = None) -> Store:
    if isinstance(given, FolderStore):
        return given
    place = store_of(given, options, ways or Ways())
    if isinstance(place, LocalStore):
        place = str(place.root)
    if isinstance(place, str | os.PathLike):
        return FolderStore(os.path.abspath(os.fsdecode(place)))
    if not isinstance(place, Store):
        raise InputError(f"disk {given!r} is neither a folder, nor a URL, nor a Zarr store")
    return place


def label_of(part: Store) -> str:
    return str(part.root) if isinstance(part, LocalStore) else str(part)


def part_below(part: Store, folder: str) -> Store:
    if isinstance(part, LocalStore):
        base = part.base if isinstance(part, FolderStore) else None
        return FolderStore(os.path.join(str(part.root), folder), base=base, read_only=part.read_only)
    place = part if isinstance(part, RemoteStore) else RemoteStore(part, str(part), Patience())
    return place.below(folder)


def parts_of(given: Any, options: Any, ways: Ways | None) -> list[Store]:
    return distinct(given, "folders, URLs or stores", lambda each: part_of(each, options, ways), label_of)


def _details(root: str, prefix: str) -> Details:
    found = []
    above = prefix.rpartition("/")[0]
    for name in files_below(os.path.join(root, above)):
        key = os.path.join(above, name)
        if key.startswith(prefix) and not key.endswith(PARTIAL_END):
            with suppress(FileNotFoundError):
                status = os.stat(os.path.join(root, key))
                found.append((key, status.st_size, f"{status.st_mtime_ns}-{status.st_ino}"))
    return found
