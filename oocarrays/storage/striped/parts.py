"""Disks of a striped store: folders, which are read and written as plain files, and any other Zarr stores."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from zarr.abc.store import Store
from zarr.core.buffer import Buffer
from zarr.storage import LocalStore

from oocarrays.errors import InputError, NotFoundError
from oocarrays.storage.local.blobs import LocalBlobs
from oocarrays.storage.local.durable import replace
from oocarrays.storage.local.private import make_folders
from oocarrays.storage.stores.remote import Patience, RemoteStore, place_below
from oocarrays.storage.stores.urls import store_of
from oocarrays.storage.striped.layout import turn_of

DOCUMENT = ".striped.json"
"""The key of the descriptor on each disk."""
RECORD = ".striped-values.json"
"""The key of the record of all values, on the first disk."""
HIDDEN = (DOCUMENT, RECORD)
"""Keys of the store itself, which are not listed."""


class FolderStore(LocalStore):
    """A folder as a disk of a striped store: chunks are replaced at once, documents are on their device, too."""

    def __init__(self, root: str, *, base: str | None = None, read_only: bool = False) -> None:
        super().__init__(root, read_only=read_only)
        self.base = os.path.dirname(root) if base is None else base
        """The folder that must be there: where the disk is mounted."""
        self._blobs = LocalBlobs(str(root))

    async def _open(self, *, mode: str | None = None) -> None:
        """Open it as it is: what is not there is made when something is written."""
        if self._is_open:
            raise ValueError("store is already open")
        self._is_open = True

    async def _ensure_open(self) -> None:
        self._is_open = True

    def _ensure_open_sync(self) -> None:
        self._is_open = True

    async def set(self, key: str, value: Buffer) -> None:
        """Replace what is under ``key``."""
        self._check_writable()
        await asyncio.to_thread(self._put, key, value)

    def _put(self, key: str, value: Buffer) -> None:
        self._make()
        if turn_of(key) is None:
            replace(os.path.join(str(self.root), key), value.to_bytes())
        else:
            self._blobs.put(key, memoryview(value.as_buffer_like()).cast("B"))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Put ``value`` under ``key`` if nothing is there."""
        self._check_writable()
        self._make()
        await super().set_if_not_exists(key, value)

    def _make(self) -> None:
        """Make the folder, in one that is there: of a disk that is not mounted none is."""
        root = str(self.root)
        if not os.path.isdir(root):
            self.check_disk()
            make_folders(root)

    def check_disk(self) -> None:
        """Refuse a disk that is not there."""
        if not os.path.isdir(self.base):
            raise NotFoundError(f"no such disk: {self.base} is not a folder")

    def clear_folders(self) -> None:
        """Remove the folders of which all has been removed, and its own."""
        for folder, _, _ in os.walk(str(self.root), topdown=False):
            with suppress(OSError):
                os.rmdir(folder)

    def __reduce__(self) -> Any:
        return partial(FolderStore, base=self.base, read_only=self.read_only), (str(self.root),)


def clear_folders(part: Store) -> None:
    """Remove the folders of a disk from which all has been removed."""
    if isinstance(part, FolderStore):
        part.clear_folders()


def part_of(given: Any, options: Any = None, ways: Any = None) -> Store:
    """Return the disk that a person names: a folder, a URL, or any Zarr store."""
    place = store_of(given, options) if ways is None else store_of(given, options, ways)
    if isinstance(place, LocalStore):
        place = str(place.root)
    if isinstance(place, str | os.PathLike):
        return FolderStore(os.path.abspath(os.fsdecode(place)))
    if not isinstance(place, Store):
        raise InputError(f"disk {given!r} is neither a folder, nor a URL, nor a Zarr store")
    return place


def label_of(part: Store) -> str:
    """Return what a person calls a disk."""
    return str(part.root) if isinstance(part, LocalStore) else str(part)


def part_below(part: Store, folder: str) -> Store:
    """Return what of a disk is below a folder of it."""
    if isinstance(part, LocalStore):
        base = part.base if isinstance(part, FolderStore) else None
        return FolderStore(os.path.join(str(part.root), folder), base=base, read_only=part.read_only)
    place: Any = part if isinstance(part, RemoteStore) else RemoteStore(part, str(part), Patience())
    below: Store = place_below(place, folder)  # type: ignore[assignment]
    return below


def parts_of(given: Any, options: Any = None, ways: Any = None) -> list[Store]:
    """Return the disks that a person names, each once."""
    if isinstance(given, str | os.PathLike) or not isinstance(given, Sequence) or not given:
        raise InputError(f"disks={given!r}: give a list of folders, URLs or stores, one a disk")
    parts, seen = [part_of(each, options, ways) for each in given], set()
    for part in parts:
        name = os.path.realpath(label_of(part)) if isinstance(part, LocalStore) else label_of(part)
        if name in seen and isinstance(part, LocalStore | RemoteStore):
            raise InputError(f"disk {label_of(part)} is given twice")
        seen.add(name)
    return parts


def file_details(root: str, prefix: str) -> list[tuple[str, int, str]]:
    """List names, sizes and versions of the files of a disk."""
    found = []
    for folder, _, names in os.walk(os.path.join(root, prefix.rpartition("/")[0])):
        for name in names:
            path = os.path.join(folder, name)
            key = os.path.relpath(path, root)
            if key.startswith(prefix) and not name.endswith(".partial"):
                try:
                    status = os.stat(path)
                except FileNotFoundError:
                    continue
                found.append((key, status.st_size, f"{status.st_mtime_ns}-{status.st_ino}"))
    return found
