"""Zip files as targets: one process appends chunks, then their metadata documents.

c/0/1         ─►  the file, once each
.oocarrays/   ─►  memory: drafts, and the journal
zarr.json     ─►  memory, until no draft remains; then the file, and its index

An interrupted run leaves no file, one without an index, or one without an array, but no file that looks complete.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import StorePath, ZipStore

from oocarrays.errors import TargetError
from oocarrays.storage.local.fs import ATTRIBUTES_2, SAYING, is_draft
from oocarrays.storage.stores.aside import AsideStore
from oocarrays.storage.stores.joined import Wrapped
from oocarrays.storage.stores.urls import opened


class ZipTarget(AsideStore[ZipStore]):
    """Zip file written once, each key once."""

    one_writer = "is a zip file, which one process can write to, not several workers: scheduler='threads', or a folder"
    once = True
    """Keys are written once; none is replaced or removed."""
    supports_deletes = True
    is_empty = Store.is_empty

    def __init__(self, store: ZipStore, *, mine: bool = False) -> None:
        super().__init__(store)
        self._mine = mine
        self._changed = False
        self._held = [store]
        if mine:
            weakref.finalize(self, _close, self._held)

    def __reduce__(self) -> Any:
        if self._changed or not self._store.path.exists():
            raise TargetError(f"{self} {self.one_writer}")
        return _reopened, (self._store.path,)

    def with_read_only(self, read_only: bool = False) -> Any:
        """Return the same file, as a read-only view if requested."""
        return ZipView(self) if read_only else self

    async def _open(self) -> None:
        """Do nothing: the file is opened at the first read or write, so that inspection creates no file."""

    async def _ensure_open(self) -> None:
        """Do nothing."""

    @property  # type: ignore[misc]
    def _is_open(self) -> bool:  # type: ignore[override]
        return True

    def _is_aside(self, key: str) -> bool:
        return super()._is_aside(key) or not self._is_there()

    def _is_there(self) -> bool:
        """Return whether the file exists, after opening it."""
        if not self._store._is_open and self._store._zmode == "a" and self._store.path.exists():
            self._store._sync_open()
        return self._store._is_open

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        found = await self._aside.get(key, prototype, byte_range)
        if found is not None or self._is_aside(key):
            return found
        return await self._store.get(key, prototype, byte_range)

    async def exists(self, key: str) -> bool:
        return await self._aside.exists(key) or (not self._is_aside(key) and await self._store.exists(key))

    async def set(self, key: str, value: Buffer) -> None:
        """Store a value under a key; hold documents back until their arrays are complete."""
        name = key.rpartition("/")[2]
        if super()._is_aside(key) or name in SAYING:
            await self._aside.set(key, value)
            if name != ATTRIBUTES_2 and not super()._is_aside(key):
                await self._publish()
            return
        await self._append(key, value)

    async def _append(self, key: str, value: Buffer) -> None:
        if not self._store._is_open:
            self._store._sync_open()
        self._changed = True
        await self._store.set(key, value)

    async def _publish(self) -> None:
        """Append the documents and the index to the file, unless a draft remains."""
        keys = [key async for key in self._aside.list()]
        if any(map(is_draft, keys)):
            return
        for key in keys:
            if not super()._is_aside(key) and (value := await self._aside.get(key, default_buffer_prototype())):
                await self._append(key, value)
                await self._aside.delete(key)
        self.settle()

    def settle(self) -> None:
        """Write the index of a file that we created, so that others can read it."""
        if not self._mine or not self._changed:
            return
        self._store.close()
        self._store, self._changed = ZipStore(self._store.path, mode="a"), False
        self._held[:] = [self._store]

    async def delete(self, key: str) -> None:
        """Delete a key; raise if it is in the file."""
        await self._aside.delete(key)
        if is_draft(key):
            await self._publish()
        if not self._is_aside(key) and await self._store.exists(key):
            raise TargetError(f"{key} in {self} cannot be removed: a zip file does not support it")

    async def delete_dir(self, prefix: str) -> None:
        """Delete all keys below a prefix; raise if one is in the file."""
        await self._aside.delete_dir(prefix)
        if not await self.is_empty(prefix):
            raise TargetError(f"{prefix or 'what is'} in {self} cannot be removed: a zip file does not support it")


def _reopened(path: Path) -> ZipStore:
    store: ZipStore = opened(ZipStore(path, mode="r"))
    return store


def _close(stores: list[ZipStore]) -> None:
    for store in stores:
        if store._is_open:
            store.close()


class ZipView(Wrapped[ZipTarget]):
    """Read-only view of a zip target."""

    read_only = True
    once = True

    def with_read_only(self, read_only: bool = False) -> Any:
        """Return the target itself for writing."""
        return self if read_only else self._store

    def _check_writable(self) -> None:
        raise ValueError(f"{self} is opened for reading")

    def __str__(self) -> str:
        return str(self._store)


def settled(store: Any) -> None:
    """Write the index of a zip target that we created; do nothing for other stores."""
    if isinstance(store, ZipTarget):
        store.settle()


def is_zip(place: Any) -> bool:
    return isinstance(place.store if isinstance(place, StorePath) else place, ZipTarget | ZipView | ZipStore)


def zip_target(store: Any) -> ZipTarget | None:
    """Return a writable zip file as a target; None for other objects."""
    if not isinstance(store, ZipStore) or store.read_only:
        return None
    if not store._is_open:
        store.path = store.path.absolute()
    return ZipTarget(store)
