"""Stored chunks by key, in local files or in any Zarr store.

LocalBlobs    open ─► a file, and the range of it: read at any place, or mapped
StoreBlobs    fetched ─► bytes in order, several requests in flight
both          exists, read, read_into, put, remove
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np
from zarr.abc.store import ByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from oocarrays.errors import CorruptChunkError
from oocarrays.storage.local.blobs import LocalBlobs
from oocarrays.storage.local.fs import translated
from oocarrays.storage.stores.underway import Fetch, Putting, fetched, got


class StoreBlobs:
    """Chunks of one array in any Zarr store."""

    def __init__(self, store: Store, prefix: str, requests: int = 1) -> None:
        self.store = store
        self.prefix = prefix
        self.requests = requests

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def path(self, key: str) -> str:
        """Return the name of the chunk under ``key`` for messages."""
        return f"{self._key(key)} of {self.store}"

    def read(self, key: str, part: slice | None = None) -> np.ndarray | None:
        """Return the bytes under ``key``, or the first or last of them, or a range; None if it is missing."""
        wanted: ByteRequest | None = None
        if part is not None:
            wanted = SuffixByteRequest(-part.start) if part.start < 0 else RangeByteRequest(part.start, part.stop)
        return sync(got(self.store, self._key(key), wanted))

    def read_into(self, key: str, offset: int, out: memoryview) -> bool:
        """Fill ``out`` with bytes under ``key`` from ``offset`` on, in one request; return False if it is missing."""
        data = self.read(key, slice(offset, offset + len(out)))
        if data is not None:
            if len(data) != len(out):
                raise CorruptChunkError(f"{self.path(key)} is truncated: {len(data)} bytes, not {len(out)}")
            out[:] = data.data
        return data is not None

    def exists(self, key: str) -> bool:
        with translated("read", self.path(key), full=True):
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
        with translated("write", self.path(key)):
            buffer = default_buffer_prototype().buffer.from_bytes(bytes(data))
            sync(self.store.set(self._key(key), buffer))

    def remove(self, key: str) -> None:
        """Delete the chunk under ``key`` if it exists; it then holds the fill value."""
        gone = (FileNotFoundError,)
        with suppress(*gone), translated("write", self.path(key), but=gone):
            sync(self.store.delete(self._key(key)))


Blobs = LocalBlobs | StoreBlobs
