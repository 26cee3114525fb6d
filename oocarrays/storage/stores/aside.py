"""Files of a run beside an array's elements: drafts of its metadata, and notes.

    target/.oocarrays/draft.zarr.json   ─►   target/zarr.json        format 3
    target/.oocarrays/draft.zarray      ─►   target/.zarray          format 2, after .zattrs

The metadata of a target is a draft during the run, which other Zarr readers ignore. The final document is written last,
after all chunks are stored. If it exists, it is valid and supersedes the draft.

    c/0/1, zarr.json        ─►  the store       stores that accept only an array's own keys
    .oocarrays/plan.json    ─►  memory
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import MemoryStore, StorePath

from oocarrays.storage.local.fs import ARRAY_2, ATTRIBUTES_2, GROUP_2, OURS, draft_key, is_document
from oocarrays.storage.stores.joined import Wrapped, layers

T = TypeVar("T", bound=Store)
N = TypeVar("N", zarr.Array, zarr.Group)


class DraftStore(Wrapped[Store]):
    """Store that writes metadata documents as drafts, and reads a draft if its document is absent."""

    set_if_not_exists = Store.set_if_not_exists

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return a value, or the draft of a document."""
        found = await self._store.get(key, prototype, byte_range)
        if is_document(key) and (found is None or await self._is_early(key)):
            return await self._store.get(draft_key(key), prototype, byte_range) or found
        return found

    async def _is_early(self, key: str) -> bool:
        """Return whether format-2 attributes were written before their array or group document."""
        path, slash, name = key.rpartition("/")
        nodes = (ARRAY_2, GROUP_2) if name == ATTRIBUTES_2 else ()
        return bool(nodes) and not any([await self._store.exists(f"{path}{slash}{each}") for each in nodes])

    async def exists(self, key: str) -> bool:
        """Return whether a value exists, or the draft of a document."""
        return await self._store.exists(key) or (is_document(key) and await self._store.exists(draft_key(key)))

    async def set(self, key: str, value: Buffer) -> None:
        """Store a value, or the draft of a document."""
        await self._store.set(draft_key(key) if is_document(key) else key, value)

    async def delete(self, key: str) -> None:
        """Delete a value, and a document's draft."""
        await self._store.delete(key)
        if is_document(key):
            await self._store.delete(draft_key(key))

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Iterate over the names directly below a prefix, except the drafts' folder."""
        async for name in self._store.list_dir(prefix):
            if name != OURS:
                yield name


def clear_tracebacks(error: BaseException) -> None:
    """Release the frames held by an error and its causes; Zarr's form a cycle that keeps the callers' buffers."""
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__, seen = None, seen.__cause__ or seen.__context__


def with_drafts(place: StorePath) -> StorePath:
    """Return the location in a store that writes metadata documents as drafts."""
    return StorePath(DraftStore(place.store), place.path)


def keeps_drafts(place: StorePath) -> bool:
    """Return whether a store accepts drafts; a store that requires documents before chunks does not."""
    return not any(getattr(each, "documents_first", False) for each in layers(place.store))


def without_drafts(node: N) -> N:
    """Return an array or group opened by its draft as one of the store itself."""
    path, made = node.store_path, node._async_array if isinstance(node, zarr.Array) else node._async_group
    if not isinstance(path.store, DraftStore):
        return node
    itself = StorePath(path.store._store, path.path)
    return type(node)(type(made)(metadata=made.metadata, store_path=itself))


# ---------------------------------------------------------------------- notes


class AsideStore(Wrapped[T]):
    """Store that receives some keys only; all others stay in memory."""

    one_writer = ""
    """Error text for several concurrent workers; empty if they are allowed."""
    set_if_not_exists = Store.set_if_not_exists

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

    async def delete(self, key: str) -> None:
        await self._of(key).delete(key)

    async def delete_dir(self, prefix: str) -> None:
        """Delete all keys below a prefix, including notes."""
        await self._aside.delete_dir(prefix)
        if not self._is_aside(prefix):
            await self._store.delete_dir(prefix)

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        async for key in self._aside.list_prefix(prefix):
            yield key
        if not self._is_aside(prefix):
            async for key in self._store.list_prefix(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Iterate over the names directly below a prefix, each once."""
        names = {name async for name in self._aside.list_dir(prefix)}
        if not self._is_aside(prefix):
            names |= {name async for name in self._store.list_dir(prefix)}
        for name in sorted(names):
            yield name
