"""Raw chunks of a segment: stored bytes, read whole or in part, gathered until they are whole, replaced whole.

    write ──► a whole chunk       ──► put, without a copy
          ──► a part of a chunk   ──► held until it ends ──► put        settle: put what is held, and keep it
    read  ──► held, or cached, or mapped, or read

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
from oocarrays.limits import COPIED_BYTES
from oocarrays.plan.streams.buffers import Pieces
from oocarrays.plan.streams.units import copy_runs
from oocarrays.storage.local.blobs import LocalBlobs, MissingBlob, byte_view
from oocarrays.storage.local.cache import Cache
from oocarrays.storage.local.pages import can_map
from oocarrays.storage.meter import Meter

ChunkCache = Cache[tuple[int, int], np.ndarray]
"""Cache of chunks, by the identity of their array and their number."""


def chunk_cache(nbytes: int) -> ChunkCache:
    return Cache(nbytes, attrgetter("nbytes"))


class RawChunks:
    """Uncompressed chunks by number, in ``blobs``, which have ``read_into`` and ``put`` by key."""

    def __init__(
        self, blobs: Any, key: Callable[[int], Any], nbytes: int, meter: Meter, *, name: str,
        cache: ChunkCache | None = None, fill: int | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.key = key
        self.nbytes = nbytes
        self.fill = fill
        self._blobs = blobs
        self._meter = meter
        self.is_local = isinstance(blobs, LocalBlobs)
        """Whether each chunk is a local file."""
        self._maps = self.is_local and nbytes >= COPIED_BYTES and can_map()
        # of files: the system reclaims their pages as needed
        self._cache = chunk_cache(2**26) if self._maps else cache or chunk_cache(0)
        self._held: dict[int, np.ndarray] = {}
        self._changed: set[int] = set()

    def write(self, number: int, place: int, data: np.ndarray, *, ends: bool) -> None:
        """Write bytes of a chunk from ``place`` on; they are held until some bytes end it, or it is settled."""
        if ends and len(data) == self.nbytes:
            self.put(number, data)
            return
        held = self._held.get(number)
        if held is None:
            held = self.get(number).copy() if place else np.full(self.nbytes, self.fill or 0, np.uint8)
            self._held[number] = held
        held[place : place + len(data)] = data
        self._changed.add(number)
        if ends:
            self.put(number, held)

    def put(self, number: int, data: np.ndarray) -> None:
        self._store(number, data)
        self._held.pop(number, None)
        self._changed.discard(number)

    def _store(self, number: int, data: np.ndarray) -> None:
        self._blobs.put(self.key(number), byte_view(data))
        self._meter.add(write_requests=1, written_bytes=data.nbytes)
        self._cache.drop((id(self), number))

    def settle(self) -> None:
        for number in sorted(self._changed):
            self._store(number, self._held[number])
        self._changed.clear()

    def change(self, pieces: Pieces, data: np.ndarray) -> None:
        """Change pieces of existing chunks: each is read, changed and replaced, unless it is held."""
        for number, here in pieces.by_chunk():
            held = self._held.get(number)
            chunk = self.get(number).copy() if held is None else held
            copy_runs(chunk, here.place, data, here.into, here.count)
            if held is None:
                self.put(number, chunk)
            else:
                self._changed.add(number)

    def get(self, number: int) -> np.ndarray:
        """Return a chunk for reading: the pages of a large local file, otherwise a copy in memory."""
        found = self._held.get(number)
        if found is None:
            found = self._cache.get((id(self), number))
        if found is None:
            found = self._mapped(number) if self._maps else self._loaded(number)
            self._cache.keep((id(self), number), found)
        return found

    def _loaded(self, number: int) -> np.ndarray:
        data = np.empty(self.nbytes, np.uint8)
        self.read_into(number, 0, data)
        return data

    def _mapped(self, number: int) -> np.ndarray:
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

    def read_into(self, number: int, place: int, out: np.ndarray) -> None:
        """Fill ``out`` with bytes of a chunk from ``place``, in one request."""
        held = self._held.get(number)
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
            into, count = int(here.into[0]), int(here.count[0])
            if len(here.count) == 1 and count * 8 < self.nbytes and self._cache.get((id(self), number)) is None:
                self.read_into(number, int(here.place[0]), out[into : into + count])  # few bytes, without their chunk
            else:
                copy_runs(out, here.into, self.get(number), here.place, here.count)


class ArraySteps:
    """Steps of any Zarr array along an axis, as blobs by number; the steps of one read are cached."""

    def __init__(self, array: zarr.Array, axis: int, budget: int) -> None:
        self.nbytes = array.nbytes // max(array.shape[axis], 1)
        self._array, self._axis = array, axis
        self._at_once = max(min(array.chunks[axis], budget // 4 // max(self.nbytes, 1)), 1)
        self._first, self._rows = -1, np.empty((0, 0), np.uint8)

    def read_into(self, number: int, place: int, out: memoryview) -> bool:
        first = number // self._at_once * self._at_once
        if first != self._first:
            steps = slice(first, first + self._at_once)
            block = np.moveaxis(np.asarray(self._array[(slice(None),) * self._axis + (steps,)]), self._axis, 0)
            self._rows = np.ascontiguousarray(block).reshape(-1).view(np.uint8).reshape(len(block), self.nbytes)
            self._first = first
        out[:] = self._rows[number - first, place : place + len(out)].data
        return True
