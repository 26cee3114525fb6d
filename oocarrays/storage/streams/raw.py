"""Raw chunks of a segment: stored bytes, read whole or in part, replaced whole.

Each chunk is replaced atomically: after a crash it is the old one or the new one. Plain binary files are written in
place.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from operator import attrgetter
from typing import Any

import numpy as np
import zarr

from oocarrays.errors import CorruptChunkError
from oocarrays.mapping.grid import COPIED_BYTES
from oocarrays.plan.streams.buffers import Pieces
from oocarrays.plan.streams.units import copy_runs
from oocarrays.storage.local.blobs import LocalBlobs, MissingBlob, byte_view
from oocarrays.storage.local.cache import Cache
from oocarrays.storage.local.pages import can_map
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.store_blobs import Chunks, blobs_of

ChunkCache = Cache[tuple[int, int], np.ndarray]
"""Cache of chunks, by the identity of their array and their number."""


def chunk_cache(nbytes: int) -> ChunkCache:
    """Return a cache of chunks with a limit in bytes."""
    return Cache(nbytes, attrgetter("nbytes"))


class RawChunks:
    """Uncompressed chunks by number."""

    def __init__(
        self, blobs: Chunks[Any], key: Callable[[int], Any], nbytes: int, meter: Meter, *, name: str,
        cache: ChunkCache | None = None, fill: int | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.key = key
        self.nbytes = nbytes
        self.fill = fill
        self._blobs = blobs
        self._meter = meter
        self._cache = cache or chunk_cache(0)
        self._pages = chunk_cache(2**26)  # of files: the system reclaims their pages as needed
        self._maps = self.is_local and nbytes >= COPIED_BYTES and can_map()
        self._tails: dict[int, np.ndarray] = {}

    @classmethod
    def of_array(
        cls, array: zarr.Array, index: Callable[[int], tuple[int, ...]], nbytes: int, meter: Meter,
        cache: ChunkCache | None = None, fill: int | None = None,
    ) -> RawChunks:  # fmt: skip
        """Return the chunks of an array; ``index`` maps a number to a chunk index."""

        def key(number: int) -> str:
            return array.metadata.encode_chunk_key(index(number))

        return cls(blobs_of(array), key, nbytes, meter, name=str(array.store_path), cache=cache, fill=fill)

    def hold(self, number: int, data: np.ndarray) -> None:
        """Serve reads of a chunk from memory until it is written."""
        self._tails[number] = data

    def put(self, number: int, data: np.ndarray, *, held: bool = False) -> None:
        self._blobs.put(self.key(number), byte_view(data))
        self._meter.add(write_requests=1, written_bytes=data.nbytes)
        self._cache.drop((id(self), number))
        self._pages.drop((id(self), number))
        if not held:
            self._tails.pop(number, None)

    def get(self, number: int) -> np.ndarray:
        """Return a chunk for reading: the pages of a large local file, otherwise a copy in memory."""
        found = self._tails.get(number)
        if found is None:
            cache = self._pages if self._maps else self._cache
            found = cache.get((id(self), number))
            if found is None:
                found = self._mapped(number) if self._maps else self._loaded(number)
                cache.keep((id(self), number), found)
        return found

    def _loaded(self, number: int) -> np.ndarray:
        data = np.empty(self.nbytes, np.uint8)
        self.read_into(number, 0, data)
        return data

    def _mapped(self, number: int) -> np.ndarray:
        assert isinstance(self._blobs, LocalBlobs), "only local files have pages"
        try:
            blob = self._blobs.open(self.key(number))
        except MissingBlob:
            return self._loaded(number)
        with closing(blob):
            pages: np.ndarray = blob.pages()[: self.nbytes]
        if len(pages) < self.nbytes:
            raise CorruptChunkError(f"chunk {self.key(number)} of {self.name} is truncated")
        self._meter.add(read_requests=1, read_bytes=self.nbytes)
        return pages

    @property
    def is_local(self) -> bool:
        """Whether each chunk is a local file."""
        return isinstance(self._blobs, LocalBlobs)

    def read_into(self, number: int, place: int, out: np.ndarray) -> None:
        """Fill ``out`` with bytes of a chunk from ``place``, in one request."""
        held = self._tails.get(number)
        if held is not None:
            out[:] = held[place : place + len(out)]
            return
        if not self._blobs.read_into(self.key(number), place, out.data):
            if self.fill is None:
                raise CorruptChunkError(f"chunk {self.key(number)} of {self.name} is missing")
            out[:] = self.fill
        self._meter.add(read_requests=1, read_bytes=len(out))

    def read(self, pieces: Pieces, out: np.ndarray) -> None:
        """Copy pieces of chunks into a result, reading each chunk at most once."""
        for number, here in pieces.by_chunk():
            if len(here.count) == 1 and int(here.count[0]) * 8 < self.nbytes and not self._is_kept(number):
                into, count = int(here.into[0]), int(here.count[0])
                self.read_into(number, int(here.place[0]), out[into : into + count])
            else:
                copy_runs(out, here.into, self.get(number), here.place, here.count)

    def _is_kept(self, number: int) -> bool:
        return (self._pages if self._maps else self._cache).get((id(self), number)) is not None

    def change(self, pieces: Pieces, data: np.ndarray) -> None:
        """Change pieces of existing chunks: each is read, changed and replaced."""
        for number, here in pieces.by_chunk():
            held = number in self._tails
            chunk = self._tails[number] if held else self.get(number).copy()
            copy_runs(chunk, here.place, data, here.into, here.count)
            if not held:
                self.put(number, chunk)


class Steps(RawChunks):
    """Steps of any Zarr array, as chunks; the steps of one read are cached."""

    def __init__(self, array: zarr.Array, axis: int, meter: Meter, budget: int) -> None:
        nbytes = array.nbytes // max(array.shape[axis], 1)
        super().__init__(blobs_of(array), str, nbytes, meter, name=str(array.store_path))
        self._array = array
        self._axis = axis
        self._at_once = max(min(array.chunks[axis], budget // 4 // max(nbytes, 1)), 1)
        self._first, self._rows = -1, np.empty((0, 0), np.uint8)

    def get(self, number: int) -> np.ndarray:
        self.read_into(number, 0, np.empty(0, np.uint8))
        step: np.ndarray = self._rows[number - self._first]
        return step

    def read_into(self, number: int, place: int, out: np.ndarray) -> None:
        first = number // self._at_once * self._at_once
        if first != self._first:
            steps = slice(first, first + self._at_once)
            block = np.moveaxis(np.asarray(self._array[(slice(None),) * self._axis + (steps,)]), self._axis, 0)
            self._rows = np.ascontiguousarray(block).reshape(-1).view(np.uint8).reshape(len(block), self.nbytes)
            self._first = first
            self._meter.add(read_requests=1, read_bytes=self._rows.nbytes)
        out[:] = self._rows[number - first, place : place + len(out)]
