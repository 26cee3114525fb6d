"""Stored chunks as blobs: bytes under keys in any Zarr store, ranges of larger blobs, and the kind of an array."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Protocol, TypeVar

import numpy as np
import zarr
from zarr.abc.store import ByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore

from oocarrays.errors import CorruptChunkError
from oocarrays.mapping.grid import COPIED_BYTES
from oocarrays.storage.local.blobs import LocalBlob, LocalBlobs, MissingBlob
from oocarrays.storage.local.fs import translated
from oocarrays.storage.local.pages import can_map
from oocarrays.storage.stores.joined import joined_in
from oocarrays.storage.stores.underway import Fetch, Putting, fetched, got


class StoreBlob:
    """A chunk in any Zarr store."""

    local = False

    def __init__(self, store: Store, key: str, requests: int) -> None:
        self.store = store
        self.key = key
        self.name = f"{key} of {store}"
        self.requests = requests

    def _get(self, byte_range: ByteRequest) -> np.ndarray:
        data = sync(got(self.store, self.key, byte_range))
        if data is None:
            raise MissingBlob(self.key)
        return data

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill ``out`` from ``offset``, in one request."""
        self._fill(out, self._get(RangeByteRequest(offset, offset + len(out))))

    def _fill(self, out: memoryview, data: np.ndarray) -> None:
        if len(data) != len(out):
            raise CorruptChunkError(f"{self.key} of {self.store} is truncated: {len(data)} bytes, not {len(out)}")
        out[:] = data.data

    def read_runs(self, offsets: np.ndarray, out: np.ndarray) -> None:
        """Fill each row of bytes from its offset, one request each, up to ``requests`` in flight."""
        if self.requests == 1:
            for offset, row in zip(offsets.tolist(), out, strict=True):
                self.read_into(offset, row.data)
            return
        wanted = ((self.key, RangeByteRequest(offset, offset + out.shape[1])) for offset in offsets.tolist())
        for data, row in zip(fetched(self.store, wanted, self.requests), out, strict=True):
            if data is None:
                raise MissingBlob(self.key)
            self._fill(row.data, data)

    def read_head(self, nbytes: int) -> bytes:
        """Return the first ``nbytes`` bytes, or all if there are fewer."""
        return self._get(RangeByteRequest(0, nbytes)).tobytes()

    def read_tail(self, nbytes: int) -> bytes:
        """Return the last ``nbytes`` bytes, or all if there are fewer."""
        return self._get(SuffixByteRequest(nbytes)).tobytes()

    def close(self) -> None:
        """Do nothing."""


class PartBlob:
    """A chunk stored as a byte range of a larger blob: of a shard, or of a file of another format."""

    def __init__(self, blob: LocalBlob | StoreBlob, offset: int, nbytes: int) -> None:
        self._blob = blob
        self._offset = offset
        self.size = nbytes
        self.name = blob.name
        self.local = blob.local

    def read_into(self, offset: int, out: memoryview) -> None:
        self._blob.read_into(self._offset + offset, out)

    def read_runs(self, offsets: np.ndarray, out: np.ndarray) -> None:
        self._blob.read_runs(self._offset + offsets, out)

    def read_all(self) -> np.ndarray:
        """Read all bytes in one request."""
        data = np.empty(self.size, np.uint8)
        if self.size:
            self.read_into(0, data.data)
        return data

    def pages(self) -> np.ndarray:
        """Return all bytes as a memory map; local files only."""
        assert isinstance(self._blob, LocalBlob), "only local files have pages"
        return self._blob.pages(self._offset, self.size)

    def close(self) -> None:
        self._blob.close()


def all_bytes(blob: LocalBlob | PartBlob) -> np.ndarray:
    """Return all bytes of a blob, mapped if it is large and the system supports it.

    Threads map files one after the other, at 70 µs a file where a virtual machine hides its pages. Reading 256 KiB from
    the cache takes as long, and threads read in parallel.
    """
    return blob.pages() if blob.size >= COPIED_BYTES and can_map() else blob.read_all()


class StoreBlobs:
    """Chunks of one array in any Zarr store."""

    def __init__(self, store: Store, prefix: str, requests: int = 1) -> None:
        self.store = store
        self.prefix = prefix
        self.requests = requests

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def open(self, key: str, read_ahead: bool = False) -> StoreBlob:
        """Return the chunk under ``key``; the first read raises if it is missing."""
        return StoreBlob(self.store, self._key(key), self.requests)

    def exists(self, key: str) -> bool:
        with translated("read", f"{self._key(key)} of {self.store}", full=True):
            return sync(self.store.exists(self._key(key)))

    def fetched(self, wanted: Iterable[Fetch | None]) -> Iterator[np.ndarray | None]:
        """Return an iterator over the bytes under keys in order, requested ahead; None for None and for missing
        keys."""
        asked = (None if each is None else (self._key(each[0]), each[1]) for each in wanted)
        return fetched(self.store, asked, self.requests)

    def putting(self) -> Putting:
        """Return a context for concurrent writes, which are complete when it exits."""
        return Putting(self.store, self.prefix, self.requests)

    def announce(self, keys: Iterable[str]) -> None:
        """Do nothing: a store has no read-ahead."""

    def put(self, key: str, data: memoryview) -> None:
        """Replace the chunk under ``key`` with a copy of ``data``."""
        with translated("write", f"{self._key(key)} of {self.store}"):
            buffer = default_buffer_prototype().buffer.from_bytes(bytes(data))
            sync(self.store.set(self._key(key), buffer))

    def remove(self, key: str) -> None:
        """Delete the chunk under ``key`` if it exists; it then holds the fill value."""
        gone = (FileNotFoundError,)
        with suppress(*gone), translated("write", f"{self._key(key)} of {self.store}", but=gone):
            sync(self.store.delete(self._key(key)))


Blobs = LocalBlobs | StoreBlobs


class Closable(Protocol):
    """Object with a close method."""

    def close(self) -> None:
        """Close it."""


K = TypeVar("K", contravariant=True)
B = TypeVar("B", bound=Closable, covariant=True)


class Openable(Protocol[K, B]):
    """Chunks opened by key."""

    def open(self, key: K, read_ahead: bool = False) -> B:
        """Open the chunk under ``key`` for reading."""


def blobs_of(array: zarr.Array, *, past_cache: bool = False, requests: int = 1) -> Blobs:
    """Return the chunks of ``array``, as local files if possible."""
    store, path = array.store_path.store, array.store_path.path
    if isinstance(store, LocalStore):
        return LocalBlobs(os.path.join(str(store.root), path), past_cache=past_cache)
    if (joined := joined_in(store)) is not None:
        there, prefix = joined
        files: LocalBlobs | None = there.files(prefix + path, past_cache=past_cache)
        if files is not None:
            return files
    return StoreBlobs(store, path, requests)


def open_ahead(blobs: Openable[K, B], keys: Iterable[K], *, read_ahead: bool, ahead: int = 2) -> Iterator[B | None]:
    """Open chunks in order, ``ahead`` of them in advance; yield None for a missing one.

    A rank that waits for a device reads no faster than it requests. With the next chunks requested whole, 1 GiB in
    short ranges came in 1.0 s from a cold disk here instead of 1.4 to 6 s.
    """
    waiting: deque[B | None] = deque()
    try:
        for key in keys:
            try:
                waiting.append(blobs.open(key, read_ahead))
            except MissingBlob:
                waiting.append(None)
            if len(waiting) > ahead:
                yield from _hand_over(waiting)
        while waiting:
            yield from _hand_over(waiting)
    finally:
        for blob in waiting:
            if blob is not None:
                blob.close()


def _hand_over(waiting: deque[B | None]) -> Iterator[B | None]:
    blob = waiting.popleft()
    try:
        yield blob
    finally:
        if blob is not None:
            blob.close()
