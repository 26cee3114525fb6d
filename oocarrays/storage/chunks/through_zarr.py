"""Chunks that Zarr codes itself, counted as they are stored.

zarr-python   asks a store for bytes         the store counts them as they pass
zarrs         reads and writes files itself  a chunk counts as many bytes as are stored of it
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import StorePath

from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.local.regular import check_regular
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.joined import Wrapped, span

Slices = tuple[slice, ...]


class CountingStore(Wrapped[Store]):
    """A store that counts what is read from it and written to it: requests, and stored bytes.

    A shard of which Zarr asks for its index and then for chunks, as at the edge of an array, is read whole, once.
    """

    def __init__(self, store: Store, meter: Meter) -> None:
        super().__init__(store)
        self._meter = meter
        self._shards: dict[str, Buffer | None] = {}

    def _with_store(self, store: Store) -> CountingStore:
        return type(self)(store, self._meter)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Get what is under a key, or some of its bytes; what is missing counts as nothing."""
        if byte_range is None:
            return await self._whole(key, prototype)
        if key not in self._shards:
            self._shards[key] = await self._whole(key, prototype)
        shard = self._shards[key]
        return None if shard is None else shard[slice(*span(byte_range, len(shard)))]

    async def _whole(self, key: str, prototype: BufferPrototype) -> Buffer | None:
        found = await super().get(key, prototype)
        if found is not None:
            self._meter.add(read_requests=1, read_bytes=len(found))
        return found

    def forget(self, key: str) -> None:
        """Let go of the shard under a key, of which nothing more is asked for."""
        self._shards.pop(key, None)

    async def set(self, key: str, value: Buffer) -> None:
        """Put bytes under a key."""
        await super().set(key, value)
        self._meter.add(write_requests=1, written_bytes=len(value))


class ThroughZarr:
    """An array whose chunks Zarr decodes and encodes, with a meter of what that reads and writes."""

    def __init__(self, file: ArrayFile, meter: Meter) -> None:
        array = file.zarr
        counts = isinstance(array.async_array.codec_pipeline, BatchedCodecPipeline)
        self._store = CountingStore(array.store_path.store, meter) if counts else None
        self._array = _in_store(array, self._store) if self._store else array
        self._place, self._folder, self._meter = array.store_path, file.presence.place, meter

    def read(self, section: Slices, key: str) -> np.ndarray:
        """Read a chunk: the elements of ``section``, stored under ``key``."""
        if isinstance(self._folder, str):
            check_regular(f"{self._folder}/{key}")
        data = np.asarray(self._array[section])
        if self._store:
            self._store.forget((self._place / key).path)
        else:
            nbytes = self._stored_bytes(key)
            self._meter.add(read_requests=int(nbytes is not None), read_bytes=nbytes or 0)
        return data

    def write(self, section: Slices, key: str, data: np.ndarray) -> None:
        """Write a chunk: the elements of ``section``, stored under ``key``."""
        self._array[section] = data
        if not self._store:
            nbytes = self._stored_bytes(key)
            self._meter.add(write_requests=int(nbytes is not None), written_bytes=nbytes or 0)

    def _stored_bytes(self, key: str) -> int | None:
        """Bytes under ``key``; None where there is nothing."""
        assert isinstance(self._folder, str), "what zarrs reads and writes is in files"
        try:
            return os.stat(f"{self._folder}/{key}").st_size
        except FileNotFoundError:
            return None


def through_zarr(file: ArrayFile, meter: Meter) -> ThroughZarr | None:
    """Where Zarr codes the chunks of a file, what reads and writes them; None where we code them."""
    return ThroughZarr(file, meter) if file.chain.pipeline in ("zarr", "zarrs") else None


def _in_store(array: zarr.Array, store: Store) -> zarr.Array:
    """Return the same array, by way of another store."""
    opened = array.async_array
    again: Any = type(opened)(
        metadata=opened.metadata, store_path=StorePath(store, array.store_path.path), config=opened.config
    )
    return zarr.Array(again)
