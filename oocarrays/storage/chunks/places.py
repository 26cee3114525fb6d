"""Locations of chunks in local files, one file per chunk or many chunks per shard, and access to chunks through Zarr.

box of chunks     ┌ shard ┬ shard ┐       an index is read once, and locates all chunks of the box in its shard
                  │ ▪ ▪ ▪ │ ▪ ▪   │

zarr-python   requests bytes from a store    the store counts transferred bytes
zarrs         reads and writes files itself  a chunk counts with its stored size
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from itertools import product
from typing import NamedTuple

import numpy as np
from zarr.abc.store import ByteRequest, RangeByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import StorePath

from oocarrays.mapping.grid import Index
from oocarrays.storage.codecs.shards import NOT_STORED, ShardKey, ShardLayout, most_indices
from oocarrays.storage.files.array_file import ArrayFile, blobs_of
from oocarrays.storage.local.blobs import LocalBlob, LocalBlobs, MissingBlob, odd_size
from oocarrays.storage.local.cache import Cache
from oocarrays.storage.local.fs import check_regular, size_of
from oocarrays.storage.local.pages import want
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.joined import Wrapped, at_place, span
from oocarrays.storage.stores.underway import Blobs, Fetch, StoreBlobs

Slices = tuple[slice, ...]


class CountingStore(Wrapped[Store]):
    """Store that counts requests and transferred bytes.

    If Zarr requests parts of a shard, its index and then chunks, the shard is read whole, once.
    """

    def __init__(self, store: Store, meter: Meter) -> None:
        super().__init__(store)
        self._meter = meter
        self._shards: dict[str, Buffer | None] = {}

    def _with_store(self, store: Store) -> CountingStore:
        return type(self)(store, self._meter)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return the contents of a key, or a byte range of them; a missing key is not counted."""
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
        """Release the cached shard under a key after its last use."""
        self._shards.pop(key, None)

    async def set(self, key: str, value: Buffer) -> None:
        await super().set(key, value)
        self._meter.add(write_requests=1, written_bytes=len(value))


class ThroughZarr:
    """Array with chunks decoded and encoded by Zarr, and a meter of its transfers."""

    def __init__(self, file: ArrayFile, meter: Meter) -> None:
        array = file.zarr
        counts = isinstance(array.async_array.codec_pipeline, BatchedCodecPipeline)
        self._store = CountingStore(array.store_path.store, meter) if counts else None
        self._array = at_place(array, StorePath(self._store, array.store_path.path)) if self._store else array
        self._place, self._folder, self._meter = array.store_path, file.presence.place, meter

    def read(self, section: Slices, key: str) -> np.ndarray:
        """Return a chunk: the elements of ``section``, stored under ``key``."""
        if isinstance(self._folder, str):
            check_regular(f"{self._folder}/{key}")
        data = np.asarray(self._array[section])
        if self._store:
            self._store.forget((self._place / key).path)
        else:
            nbytes = size_of(f"{self._folder}/{key}")
            self._meter.add(read_requests=int(nbytes is not None), read_bytes=nbytes or 0)
        return data

    def write(self, section: Slices, key: str, data: np.ndarray) -> None:
        """Write a chunk: the elements of ``section``, stored under ``key``."""
        self._array[section] = data
        if not self._store:
            nbytes = size_of(f"{self._folder}/{key}")
            self._meter.add(write_requests=int(nbytes is not None), written_bytes=nbytes or 0)


class FoundChunks(NamedTuple):
    """Stored chunks of a box, in order."""

    numbers: np.ndarray
    """Number of each among the requested chunks."""
    files: np.ndarray
    """Open file of each."""
    offsets: np.ndarray
    """Offset of each in its file, in bytes."""
    nbytes: np.ndarray
    """Size of each in bytes."""


class Places:
    """Locations of an array file's chunks in local files."""

    def __init__(self, file: ArrayFile, meter: Meter, *, scattered: bool = False) -> None:
        self._file = file
        self._scattered = scattered and hasattr(os, "posix_fadvise")
        blobs = blobs_of(file.zarr)
        assert isinstance(blobs, LocalBlobs), "what is in other stores is fetched"
        self._blobs = blobs
        self._expected = None if file.stored.coded else file.stored.chunk_bytes
        self._shard = file.chain.shard
        self._indices = ShardedBlobs(blobs, self._shard, meter) if self._shard else None

    def find(self, chunks: tuple[range, ...], files: dict[str, int]) -> FoundChunks:
        if self._shard and self._indices:
            return self._in_shards(chunks, files, self._shard, self._indices)
        found = []
        for number, index in enumerate(product(*chunks)):
            key = self._file.chunk_key(index)
            blob = self._open(key, files)
            if blob is not None:
                found.append((number, blob.number, blob.offset, blob.size))
                if self._expected not in (None, blob.size):
                    raise odd_size(blob.name, blob.size, self._expected)
        return FoundChunks(*np.array(found, np.int64).reshape(-1, 4).T)

    def _in_shards(
        self, chunks: tuple[range, ...], files: dict[str, int], layout: ShardLayout, indices: ShardedBlobs
    ) -> FoundChunks:
        """Return the stored chunks of a box, shard by shard, from one read of each index."""
        numbers, boxes = _cut(chunks, layout)
        opened, places = np.empty(numbers.shape, np.int64), np.empty((*numbers.shape, 2), np.int64)
        keys = [self._file.chunk_key(shard) for shard, _ in boxes]
        sizes = []
        for key in keys:
            shard = self._open(key, files)
            sizes.append(0 if shard is None else shard.size)
            if shard is not None:  # the device reads it while other shards are opened
                want(files[key], max(sizes[-1] - layout.index_bytes, 0) if layout.at_end else 0, layout.index_bytes)
        for key, size, (_, here) in zip(keys, sizes, boxes, strict=True):
            opened[here] = files[key]
            entries = indices.index(key)[numbers[here]]
            places[here] = entries.view(np.int64)
            layout.check(entries.reshape(-1, 2), size, self._blobs.path(key), self._expected)
        places = places.reshape(-1, 2)
        stored = np.flatnonzero(places[:, 0] != -1)  # `NOT_STORED`, signed
        return FoundChunks(stored, opened.reshape(-1)[stored], places[stored, 0], places[stored, 1])

    def _open(self, key: str, files: dict[str, int]) -> LocalBlob | None:
        """Open the file of a chunk or shard and note its descriptor, -1 if it is not stored."""
        try:
            blob = self._blobs.open(key)
        except MissingBlob:
            files[key] = -1
            return None
        files[key] = blob.number
        if self._scattered:
            os.posix_fadvise(blob.number, 0, 0, os.POSIX_FADV_RANDOM)
        return blob


def _cut(chunks: tuple[range, ...], layout: ShardLayout) -> tuple[np.ndarray, list[tuple[Index, tuple[slice, ...]]]]:
    """Return the number of each chunk of a box in its shard, and each shard with its part of the box."""
    number = np.zeros((1,) * len(chunks), np.int64)
    along = []
    for axis, (indices, count, step) in enumerate(zip(chunks, layout.counts, layout.steps, strict=True)):
        inside = np.arange(indices.start, indices.stop, indices.step) % count
        number = number + (inside * step).reshape(-1, *(1,) * (len(chunks) - axis - 1))
        along.append(list(_shards(indices, count)))
    return number, [tuple(zip(*each, strict=True)) if each else ((), ()) for each in product(*along)]


def _shards(indices: range, count: int) -> Iterator[tuple[int, slice]]:
    """Yield each shard along one axis, with the slice of the ascending chunk indices in it."""
    low = 0
    while low < len(indices):
        shard = indices[low] // count
        high = len(range(indices.start, min((shard + 1) * count, indices.stop), indices.step))
        yield shard, slice(low, high)
        low = high


class ShardedBlobs:
    """The chunks in the shards of one array, as blobs."""

    def __init__(self, blobs: Blobs, layout: ShardLayout, meter: Meter) -> None:
        self._blobs = blobs
        self._layout = layout
        self._meter = meter
        self._indices: Cache[str, Future[np.ndarray]] = Cache(most_indices(layout))

    def open(self, key: ShardKey, read_ahead: bool = False) -> LocalBlob:
        """Return the chunk under ``key`` in a local file, open for reading."""
        assert isinstance(self._blobs, LocalBlobs), "what is in other stores is fetched"
        place = self.place(key)
        if place is None:
            raise MissingBlob(key.shard)
        blob = self._blobs.open(key.shard)
        blob.narrow(*place)
        if read_ahead:
            blob.want()
        return blob

    def place(self, key: ShardKey) -> tuple[int, int] | None:
        """Return the offset and size of a chunk in its shard, in bytes; None if it is not stored."""
        offset, nbytes = map(int, self.index(key.shard)[key.number])
        return None if offset == nbytes == NOT_STORED else (offset, nbytes)

    def fetched(self, wanted: Iterable[tuple[ShardKey, RangeByteRequest | None]]) -> Iterator[np.ndarray | None]:
        """Yield the bytes of chunks in a store, or ranges of them, in order; None for a missing chunk."""
        assert isinstance(self._blobs, StoreBlobs), "local files are opened"
        return self._blobs.fetched(self._in_shard(key, part) for key, part in wanted)

    def _in_shard(self, key: ShardKey, part: RangeByteRequest | None) -> Fetch | None:
        place = self.place(key)
        if place is None:
            return None
        start, nbytes = place
        low, high = (0, nbytes) if part is None else (part.start, part.end)
        return key.shard, RangeByteRequest(start + low, start + high)

    def announce(self, keys: Iterable[ShardKey]) -> None:
        """Ask the system to prefetch the shards of these chunks in the background."""
        self._blobs.announce(dict.fromkeys(key.shard for key in keys))

    def index(self, shard: str) -> np.ndarray:
        """Return the offset and length of every chunk of a shard; concurrent callers share one request."""
        known = self._indices.get(shard)
        if known is None:
            wanted: Future[np.ndarray] = Future()
            known = self._indices.first(shard, wanted)
            if known is wanted:
                try:
                    wanted.set_result(self._read_index(shard))
                except BaseException as error:  # noqa: BLE001  every waiting thread receives the error
                    wanted.set_exception(error)
        return known.result()

    def _read_index(self, shard: str) -> np.ndarray:
        layout = self._layout
        part = slice(-layout.index_bytes, None) if layout.at_end else slice(0, layout.index_bytes)
        data = self._blobs.read(shard, part)
        if data is None:
            return np.full((layout.count, 2), NOT_STORED, np.uint64)
        self._meter.add(index_requests=1)
        return layout.read_index(data.tobytes(), self._blobs.path(shard))
