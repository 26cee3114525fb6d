"""Files of runs beside the elements of an array: drafts of its metadata, and notes.

    target/.oocarrays/draft.zarr.json   ─►   target/zarr.json        format 3
    target/.oocarrays/draft.zarray      ─►   target/.zarray          format 2, after .zattrs

The metadata of a target is a draft while it is written, and no other Zarr reader looks for that. The document itself
comes last, when all chunks are stored. Where there is one, it is valid and the draft is not.

    c/0/1, zarr.json        ─►  the store       stores that take an array's own keys only
    .oocarrays/plan.json    ─►  memory
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import MemoryStore, StorePath

from oocarrays.storage.local.names import ARRAY_2, ATTRIBUTES_2, GROUP_2, OURS, draft_key, is_document
from oocarrays.storage.stores.joined import Wrapped, layers

T = TypeVar("T", bound=Store)
N = TypeVar("N", zarr.Array, zarr.Group)


class DraftStore(Wrapped[Store]):
    """A store whose metadata documents are written as drafts; of a document that is not there, its draft is read."""

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Get a value, or the draft of a document."""
        found = await self._store.get(key, prototype, byte_range)
        if is_document(key) and (found is None or await self._is_early(key)):
            return await self._store.get(draft_key(key), prototype, byte_range) or found
        return found

    async def _is_early(self, key: str) -> bool:
        """Return whether attributes of format 2 have been put, and the document that comes after them has not."""
        path, slash, name = key.rpartition("/")
        nodes = (ARRAY_2, GROUP_2) if name == ATTRIBUTES_2 else ()
        return bool(nodes) and not any([await self._store.exists(f"{path}{slash}{each}") for each in nodes])

    async def exists(self, key: str) -> bool:
        """Return whether there is a value, or the draft of a document."""
        return await self._store.exists(key) or (is_document(key) and await self._store.exists(draft_key(key)))

    async def set(self, key: str, value: Buffer) -> None:
        """Put a value, or the draft of a document."""
        await self._store.set(draft_key(key) if is_document(key) else key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if not await self.exists(key):
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        """Remove a value; of a document its draft, too."""
        await self._store.delete(key)
        if is_document(key):
            await self._store.delete(draft_key(key))

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """All names right below a prefix, but that of the drafts' folder."""
        async for name in self._store.list_dir(prefix):
            if name != OURS:
                yield name


def clear_tracebacks(error: BaseException) -> None:
    """Free the frames that an error and its causes hold: Zarr's form a cycle, which keeps the callers' buffers."""
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__, seen = None, seen.__cause__ or seen.__context__


def with_drafts(place: StorePath) -> StorePath:
    """Return a place whose metadata documents are drafts."""
    return StorePath(DraftStore(place.store), place.path)


def keeps_drafts(place: StorePath) -> bool:
    """Return whether a store takes drafts: one that takes chunks only of arrays that are there does not."""
    return not any(getattr(each, "documents_first", False) for each in layers(place.store))


def open_draft_array(place: StorePath, mode: Any) -> zarr.Array:
    """Open an array by its draft; its chunks are those of the store itself. Raises as ``zarr.open_array``."""
    return without_drafts(zarr.open_array(with_drafts(place), mode=mode))


def open_draft_group(place: StorePath, mode: Any) -> zarr.Group:
    return without_drafts(zarr.open_group(with_drafts(place), mode=mode, use_consolidated=False))


def without_drafts(node: N) -> N:
    """Return an array or a group that was opened by its draft, in the store itself."""
    path, made = node.store_path, node._async_array if isinstance(node, zarr.Array) else node._async_group
    if not isinstance(path.store, DraftStore):
        return node
    itself = StorePath(path.store._store, path.path)
    return type(node)(type(made)(metadata=made.metadata, store_path=itself))


# ---------------------------------------------------------------------- notes


class AsideStore(Wrapped[T]):
    """A store that is given some keys only; all others are kept in memory."""

    one_writer = ""
    """What is said where several workers are to write to it; nothing where they may."""

    def __init__(self, store: T) -> None:
        super().__init__(store)
        self._aside = MemoryStore()

    def _with_store(self, store: T) -> Any:
        made = type(self)(store)
        made._aside = self._aside
        return made

    def __str__(self) -> str:
        return str(self._store)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._store == other._store

    __hash__ = None  # type: ignore[assignment]

    def _is_aside(self, key: str) -> bool:
        return any(part.startswith(OURS) for part in key.split("/"))

    def _of(self, key: str) -> Store:
        return self._aside if self._is_aside(key) else self._store

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        return await self._of(key).get(key, prototype, byte_range)

    async def exists(self, key: str) -> bool:
        return await self._of(key).exists(key)

    async def set(self, key: str, value: Buffer) -> None:
        await self._of(key).set(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Put a value under a key if nothing is there."""
        if not await self.exists(key):
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        await self._of(key).delete(key)

    async def delete_dir(self, prefix: str) -> None:
        """Remove all below a prefix, notes too."""
        await self._aside.delete_dir(prefix)
        if not self._is_aside(prefix):
            await self._store.delete_dir(prefix)

    async def list(self) -> AsyncIterator[str]:
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        async for key in self._aside.list_prefix(prefix):
            yield key
        if not self._is_aside(prefix):
            async for key in self._store.list_prefix(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """All names right below a prefix, once each."""
        names = {name async for name in self._aside.list_dir(prefix)}
        if not self._is_aside(prefix):
            names |= {name async for name in self._store.list_dir(prefix)}
        for name in sorted(names):
            yield name
