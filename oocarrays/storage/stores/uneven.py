"""Arrays of unequal chunk lengths (Zarr's rectilinear grids), presented as arrays of regular chunks.

as stored        |  a  |     b     |      c      |        ◄── decoded, encoded and replaced by zarr-python
as presented     |        0        |      1      |        plain elements, each from the stored chunks it overlaps

A lock in this process serializes changes of stored chunks that two presented chunks overlap; no other process may
write. All work is awaited in Zarr's event loop: a thread of its pool that waited for zarr-python would wait for that
pool.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.api import asynchronous
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import MemoryStore, StorePath

from oocarrays.errors import TargetError, UnsupportedError
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.plan.documents import Document, Settings
from oocarrays.storage.local.fs import METADATA, chunk_index, chunk_keys
from oocarrays.storage.stores.joined import DraftStore, Joined, innermost, part_of, with_drafts, without_drafts
from oocarrays.storage.stores.remote import Patience, RemoteStore

SETTING = "array.rectilinear_chunks"
"""Zarr's setting for such grids; absent in versions that do not support them."""
GRID = "rectilinear"


def says_uneven(document: Any) -> bool:
    grid = document.get("chunk_grid") if isinstance(document, dict) else None
    return isinstance(grid, dict) and grid.get("name") == GRID


def as_regular(array: zarr.Array, name: str) -> zarr.Array:
    store = RemoteStore(UnevenStore(array, name), name, Patience())
    return zarr.open_array(store, mode="r" if array.read_only else "r+")


def as_stored(array: zarr.Array) -> zarr.Array:
    found = innermost(array.store_path.store)
    return found._array if isinstance(found, UnevenStore) else array


def allowing() -> AbstractContextManager[Any]:
    return zarr.config.set({SETTING: True})


def check_known(name: str) -> None:
    if zarr.config.get(SETTING, None) is None:
        raise UnsupportedError(
            f"{name} has chunks of unequal lengths, which zarr {zarr.__version__} does not know: "
            "zarr-python 3.3 and Python 3.12 or later read and write them"
        )


async def draft_uneven(store: Store, settings: Settings) -> zarr.Array:
    """Write the draft of an array by arguments of ``zarr.create_array``, replacing an existing one, and return it."""
    made: dict[str, Buffer] = {}
    try:
        with allowing():
            await asynchronous.create_array(MemoryStore(made), **settings)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise UnsupportedError(f"Zarr does not accept these settings for the target: {error}") from error
    await DraftStore(store).set(METADATA, made[METADATA])
    with allowing():
        return without_drafts(zarr.Array(await asynchronous.open_array(store=DraftStore(store), mode="r+")))


class UnevenStore(Joined):
    """An array of uneven chunks as a store of regular chunks, with the longest length of each axis."""

    one_writer = "has chunks of unequal lengths, which one process writes, not several workers: scheduler='threads'"
    whole_keys = True
    """Reading a range of a chunk costs as much as the whole chunk."""

    def __init__(self, array: zarr.Array, url: str) -> None:
        super().__init__(url, read_only=array.read_only)
        self._array = array
        sizes: Any = array.read_chunk_sizes  # type: ignore[attr-defined]
        self.grid = ChunkGrid.of(tuple(array.shape), tuple(max((*each, 1)) for each in sizes))
        self._changing = asyncio.Lock()

    def __reduce__(self) -> Any:
        if not self.read_only:
            raise TargetError(f"{self} {self.one_writer}")
        return _again, (self._array.store_path, self.url)

    def with_read_only(self, read_only: bool = False) -> Any:
        made = UnevenStore(self._array, self.url)
        made._changing, made._read_only = self._changing, read_only or self._array.read_only
        return made

    def _identity(self) -> Any:
        return self._array.store_path

    def below(self, folder: str) -> Joined:
        """Return the store itself, because nothing is below an array."""
        return self

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        index = chunk_index(key, self.grid.counts)
        if key == METADATA:
            found = prototype.buffer.from_bytes(json.dumps(await self._document()).encode())
        elif index is not None:
            found = prototype.buffer.from_array_like(await self._made(index))
        else:
            return None
        return part_of(found, byte_range)

    async def exists(self, key: str) -> bool:
        return key == METADATA or chunk_index(key, self.grid.counts) is not None

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        if key == METADATA:
            attributes = json.loads(value.to_bytes()).get("attributes", {})
            text = json.dumps(await self._stored() | {"attributes": attributes}).encode()
            await (self._array.store_path / METADATA).set(default_buffer_prototype().buffer.from_bytes(text))
            return
        index = chunk_index(key, self.grid.counts)
        if index is None:
            raise TargetError(f"{key} is not a chunk of {self}")
        await self._put(index, np.frombuffer(value.to_bytes(), self._dtype))

    async def delete(self, key: str) -> None:
        index = chunk_index(key, self.grid.counts)
        if index is not None:
            filled = np.full(self.grid.chunks, self._array.fill_value, self._dtype)
            await self._put(index, filled.reshape(-1))

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for key in chain((METADATA,), chunk_keys(self.grid.counts)):
            if key.startswith(prefix):
                yield key

    @property
    def _dtype(self) -> np.dtype:
        return self._array.dtype.newbyteorder("<")

    async def _stored(self) -> Document:
        found = await (with_drafts(self._array.store_path) / METADATA).get(default_buffer_prototype())
        return {} if found is None else json.loads(found.to_bytes())

    async def _document(self) -> Document:
        regular = {"name": "regular", "configuration": {"chunk_shape": list(self.grid.chunks)}}
        keys = {"name": "default", "configuration": {"separator": "/"}}
        plain = [{"name": "bytes", "configuration": {"endian": "little"}}]
        return await self._stored() | {"chunk_grid": regular, "chunk_key_encoding": keys, "codecs": plain}

    async def _made(self, index: tuple[int, ...]) -> np.ndarray:
        """Return a whole chunk as plain elements, zero beyond the end of the array."""
        part, whole = self.grid.section(index), np.zeros(self.grid.chunks, self._dtype)
        whole[tuple(map(slice, part.shape))] = await self._array.async_array.getitem(part.slices)
        return whole.reshape(-1).view(np.uint8)

    async def _put(self, index: tuple[int, ...], data: np.ndarray) -> None:
        part = self.grid.section(index)
        elements = data.reshape(self.grid.chunks)[tuple(map(slice, part.shape))]
        async with self._changing:
            await self._array.async_array.setitem(part.slices, elements)


def _again(place: StorePath, url: str) -> UnevenStore:
    with allowing():
        return UnevenStore(zarr.open_array(place.store, path=place.path, mode="r"), url)
