"""Drafts: the metadata documents of a target that is being written, where no other Zarr reader looks for them.

    target/.oocarrays/draft.zarr.json   ─►   target/zarr.json        format 3
    target/.oocarrays/draft.zarray      ─►   target/.zarray          format 2, after .zattrs

The document itself comes last, when all chunks are stored. Where there is one, it is valid and the draft is not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import StorePath

from oocarrays.storage.local.private import OURS
from oocarrays.storage.stores.joined import SAYING, Wrapped, layers

DRAFT = "draft."
"""How names of drafts begin."""
N = TypeVar("N", zarr.Array, zarr.Group)


def draft_key(key: str) -> str:
    """Return the key of the draft of a document.

    >>> draft_key("zarr.json"), draft_key("deep/temp/.zarray")
    ('.oocarrays/draft.zarr.json', 'deep/temp/.oocarrays/draft.zarray')
    """
    path, slash, name = key.rpartition("/")
    return f"{path}{slash}{OURS}/{DRAFT}{name.removeprefix('.')}"


def is_draft(key: str) -> bool:
    """Return whether a key is that of a draft.

    >>> is_draft(draft_key("deep/temp/.zarray")), is_draft("draft.zarr.json")
    (True, False)
    """
    return f"{OURS}/{DRAFT}" in key


def _is_document(key: str) -> bool:
    return key.rpartition("/")[2] in SAYING


class DraftStore(Wrapped[Store]):
    """A store whose metadata documents are written as drafts; of a document that is not there, its draft is read."""

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Get a value, or the draft of a document."""
        found = await self._store.get(key, prototype, byte_range)
        if _is_document(key) and (found is None or await self._is_early(key)):
            return await self._store.get(draft_key(key), prototype, byte_range) or found
        return found

    async def _is_early(self, key: str) -> bool:
        """Return whether attributes of format 2 have been put, and the document that comes after them has not."""
        path, slash, name = key.rpartition("/")
        nodes = (".zarray", ".zgroup") if name == ".zattrs" else ()
        return bool(nodes) and not any([await self._store.exists(f"{path}{slash}{each}") for each in nodes])

    async def exists(self, key: str) -> bool:
        """Return whether there is a value, or the draft of a document."""
        return await self._store.exists(key) or (_is_document(key) and await self._store.exists(draft_key(key)))

    async def set(self, key: str, value: Buffer) -> None:
        """Put a value, or the draft of a document."""
        await self._store.set(draft_key(key) if _is_document(key) else key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Put a value if there is none."""
        if not await self.exists(key):
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        """Remove a value; of a document its draft, too."""
        await self._store.delete(key)
        if _is_document(key):
            await self._store.delete(draft_key(key))

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """All names right below a prefix, but that of the drafts' folder."""
        async for name in self._store.list_dir(prefix):
            if name != OURS:
                yield name


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
    """Open a group by its draft. Raises as ``zarr.open_group``."""
    return without_drafts(zarr.open_group(with_drafts(place), mode=mode, use_consolidated=False))


def without_drafts(node: N) -> N:
    """Return an array or a group that was opened by its draft, in the store itself."""
    path, made = node.store_path, node._async_array if isinstance(node, zarr.Array) else node._async_group
    if not isinstance(path.store, DraftStore):
        return node
    itself = StorePath(path.store._store, path.path)
    return type(node)(type(made)(metadata=made.metadata, store_path=itself))
