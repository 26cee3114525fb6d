"""Stored chunks as blobs: bytes under keys, in any Zarr store; and ranges of larger blobs, wherever these are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np
from zarr.abc.store import ByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from oocarrays.errors import CorruptChunkError
from oocarrays.mapping.grid import COPIED_BYTES
from oocarrays.storage.local.blobs import LocalBlob, MissingBlob
from oocarrays.storage.local.fs import translated
from oocarrays.storage.local.pages import can_map
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
        """Fill ``out`` from ``offset`` on, in one request."""
        self._fill(out, self._get(RangeByteRequest(offset, offset + len(out))))

    def _fill(self, out: memoryview, data: np.ndarray) -> None:
        if len(data) != len(out):
            raise CorruptChunkError(f"{self.key} of {self.store} is cut short: {len(data)} bytes, not {len(out)}")
        out[:] = data.data

    def read_runs(self, offsets: np.ndarray, out: np.ndarray) -> None:
        """Fill each row of bytes from its offset on, a request each, many of them under way together."""
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
        """Return the first bytes, or all where there are fewer."""
        return self._get(RangeByteRequest(0, nbytes)).tobytes()

    def read_tail(self, nbytes: int) -> bytes:
        """Return the last bytes, or all where there are fewer."""
        return self._get(SuffixByteRequest(nbytes)).tobytes()

    def close(self) -> None:
        """Nothing to release."""


class PartBlob:
    """A chunk that is a range of bytes of a larger blob: of a shard, or of a file of another format."""

    def __init__(self, blob: LocalBlob | StoreBlob, offset: int, nbytes: int) -> None:
        self._blob = blob
        self._offset = offset
        self.size = nbytes
        self.name = blob.name
        self.local = blob.local

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill ``out`` from ``offset`` on, in one request."""
        self._blob.read_into(self._offset + offset, out)

    def read_runs(self, offsets: np.ndarray, out: np.ndarray) -> None:
        """Fill each row of bytes from its offset on, a request each."""
        self._blob.read_runs(self._offset + offsets, out)

    def read_all(self) -> np.ndarray:
        """All bytes, in one request."""
        data = np.empty(self.size, np.uint8)
        if self.size:
            self.read_into(0, data.data)
        return data

    def pages(self) -> np.ndarray:
        """All bytes, in place; of local files only."""
        assert isinstance(self._blob, LocalBlob), "only local files have pages"
        return self._blob.pages(self._offset, self.size)

    def close(self) -> None:
        self._blob.close()


def all_bytes(blob: LocalBlob | PartBlob) -> np.ndarray:
    """All bytes of a blob: in place where there are many, and the system can.

    Threads map files one after the other, at 70 µs a file where a virtual machine hides its pages; 256 KiB of the
    cache are read in as long, by all threads at one time.
    """
    return blob.pages() if blob.size >= COPIED_BYTES and can_map() else blob.read_all()


class StoreBlobs:
    """The chunks of one array in any Zarr store."""

    def __init__(self, store: Store, prefix: str, requests: int = 1) -> None:
        self.store = store
        self.prefix = prefix
        self.requests = requests

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def open(self, key: str, read_ahead: bool = False) -> StoreBlob:
        """Return the chunk under ``key``; whether it is there shows at the first read."""
        return StoreBlob(self.store, self._key(key), self.requests)

    def exists(self, key: str) -> bool:
        with translated("read", f"{self._key(key)} of {self.store}", full=True):
            return sync(self.store.exists(self._key(key)))

    def fetched(self, wanted: Iterable[Fetch | None]) -> Iterator[np.ndarray | None]:
        """Return the bytes under keys, in their order, the next ones asked for before they are taken; None for None."""
        asked = (None if each is None else (self._key(each[0]), each[1]) for each in wanted)
        return fetched(self.store, asked, self.requests)

    def putting(self) -> Putting:
        """Return a context in which chunks are put, and are there when it is left."""
        return Putting(self.store, self.prefix, self.requests)

    def announce(self, keys: Iterable[str]) -> None:
        """Nothing: a store fetches what it is asked for."""

    def put(self, key: str, data: memoryview) -> None:
        """Replace the chunk under ``key`` by a copy of ``data``."""
        with translated("write", f"{self._key(key)} of {self.store}"):
            buffer = default_buffer_prototype().buffer.from_bytes(bytes(data))
            sync(self.store.set(self._key(key), buffer))

    def remove(self, key: str) -> None:
        """Take the chunk under ``key`` away, if there is one: it holds the fill value from now on."""
        gone = (FileNotFoundError,)
        with suppress(*gone), translated("write", f"{self._key(key)} of {self.store}", but=gone):
            sync(self.store.delete(self._key(key)))
