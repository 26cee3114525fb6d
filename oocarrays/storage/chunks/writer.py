"""Writers of the chunks of one array file: whole chunks or shards, each replaced atomically, and pieces of scratch.

chunk file   ··████··············     a piece: the byte runs of its own elements
                     ········███·███·····     its neighbour's, at the same time or in another process

A piece writes only its own bytes, so it reads nothing and overwrites no other piece. Each writer first sets a file's
full length; unwritten bytes are holes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from zarr.core.buffer import default_buffer_prototype

from oocarrays.errors import RunError
from oocarrays.mapping.grid import Index, turned
from oocarrays.mapping.section import Section
from oocarrays.storage.chunks.elements import element_runs, fill_bits, is_fill
from oocarrays.storage.chunks.places import ThroughZarr
from oocarrays.storage.codecs.codec import encode, most_shard_bytes
from oocarrays.storage.codecs.shards import pack_shard
from oocarrays.storage.files.array_file import ArrayFile, blobs_of
from oocarrays.storage.journal.texts import UNKEPT, Receipts
from oocarrays.storage.local.blobs import LocalBlobs, MissingBlob, byte_view
from oocarrays.storage.local.fs import size_of, translated
from oocarrays.storage.local.pages import Pool, copy, pieces_of
from oocarrays.storage.local.syncing import written
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.underway import Putting, StoreBlobs


class PieceWriter:
    """Writer of sections of one plain local array file."""

    def __init__(self, file: ArrayFile, meter: Meter) -> None:
        assert not file.stored.coded, "pieces are bytes of plain chunks"
        assert file.stored.order is None, "scratch lies in C order"
        blobs = blobs_of(file.zarr)
        assert isinstance(blobs, LocalBlobs), "scratch is in local files"
        self.file, self.meter, self._blobs = file, meter, blobs

    def write(self, section: Section, data: np.ndarray) -> None:
        """Write the elements of ``section``: ``data.shape == section.shape``."""
        stored = self.file.stored
        for index in stored.grid.indices(section) if section.size else ():
            chunk = stored.grid.section(index)
            part = section.intersection(chunk)
            assert part is not None, "a touched chunk shares an element with the section"
            piece = np.ascontiguousarray(data[part.relative_to(section.lower).slices], self.file.dtype)
            starts, length = element_runs(part.relative_to(chunk.lower), stored.grid.chunks)
            runs = pieces_of(byte_view(piece), (starts * stored.itemsize).tolist(), length * stored.itemsize)
            try:
                self._blobs.change(self.file.chunk_key(index), runs, nbytes=stored.chunk_bytes)
            except MissingBlob:
                raise RunError(
                    f"{self._blobs.root} does not exist on this worker: scratch must be on a shared disk, or it has "
                    "been removed"
                ) from None
            self.meter.add(write_requests=1, written_bytes=piece.nbytes)


class ChunkWriter:
    """Writer of whole chunks or shards of one array file; those that hold only the fill value are not stored."""

    def __init__(
        self,
        file: ArrayFile,
        meter: Meter,
        *,
        past_cache: bool = False,
        behind: bool = True,
        requests: int = 1,
        fresh: bool = True,
    ) -> None:
        self.file, self.meter, self._order = file, meter, file.stored.order
        self._file = file = file.lying
        self._past_cache = past_cache
        self._behind, self._fresh = behind, fresh
        self._device = threading.Lock()
        self._pool = Pool()
        """Memory for the bytes of shards."""
        self._blobs = blobs_of(file.zarr, past_cache=past_cache, requests=requests)
        self._codec, self._shard = file.chain.compressor, file.chain.shard
        self._fill = fill_bits(file)
        self._through = ThroughZarr(file, meter) if file.chain.by_zarr else None

    def _turn(self) -> AbstractContextManager[Any]:
        """Return the device lock if chunks are written uncoded and past the cache: one rank writes while others read.

        Without the lock, ranks fall into step: all read, then all write, and processors and device wait for each other.
        """
        return self._device if self._past_cache and not self._file.stored.coded else nullcontext()

    def write_all(self, chunks: Iterable[tuple[Index, np.ndarray]], receipts: Receipts = UNKEPT) -> None:
        """Store whole chunks, each padded to its full length; a chunk in storage order is not copied."""
        order = self._order
        if order is not None:
            chunks = ((turned(index, order), _contiguous(chunk.transpose(order))) for index, chunk in chunks)
        if self._file.stored.travel_bytes:
            self._send_all(chunks, receipts)
            return
        with self._turn(), ThreadPoolExecutor(1, "write") as behind:
            written: Future[None] | None = None
            for index, chunk in chunks:
                if self._is_fill(chunk):
                    self.skip(index, receipts)
                elif self._codec is None and self._shard is None:
                    self._store(index, chunk, receipts)
                else:
                    out = self._room(chunk)
                    data, coded = self._made(chunk, out)
                    if written:
                        written.result()
                    written = behind.submit(self._put_made, index, data, coded, out, receipts)
                    del data
                    if not self._behind:
                        written.result()
            if written:
                written.result()

    def skip(self, index: Index, receipts: Receipts) -> None:
        """Store no file for a chunk that holds only the fill value."""
        if not self._fresh:
            self._blobs.remove(self._file.chunk_key(index))
        receipts.absent(self._file.chunk_key(index))
        self.meter.add(skipped_chunks=1)

    def replace(self, index: Index, chunk: np.ndarray, receipts: Receipts = UNKEPT) -> None:
        """Store one chunk in storage order synchronously, or delete its file if it holds only the fill value."""
        if self._is_fill(chunk):
            self.skip(index, receipts)
        else:
            self._store(index, chunk, receipts)

    def _store(self, index: Index, chunk: np.ndarray, receipts: Receipts) -> None:
        if self._through is not None:
            self._store_by_zarr(self._through, index, chunk, receipts)
        elif self._codec is None:
            self.put(index, byte_view(chunk), 0, receipts)
        else:
            self.put(index, encode(self._codec, chunk), chunk.nbytes, receipts)

    def _room(self, chunk: np.ndarray) -> np.ndarray | None:
        """Return a buffer for the bytes of a shard; None for an array without shards."""
        return None if self._shard is None else self._pool.take(most_shard_bytes(self._file.chain, chunk.itemsize))

    def _made(self, chunk: np.ndarray, out: np.ndarray | None) -> tuple[memoryview, int]:
        """Return the stored bytes of a chunk, or of a shard packed in ``out``, and the number of bytes encoded."""
        if self._shard is None or out is None:
            return self._encode(chunk), chunk.nbytes if self._codec else 0
        nbytes, elements = pack_shard(self._shard, chunk, self._encode, self._is_fill, out)
        return out[:nbytes].data, elements * chunk.itemsize if self._codec else 0

    def _put_made(
        self, index: Index, data: memoryview, encoded_bytes: int, out: np.ndarray | None, receipts: Receipts
    ) -> None:
        """Store encoded bytes, and return a shard's buffer to the pool."""
        self.put(index, data, encoded_bytes, receipts)
        if out is not None:
            self._pool.give(out)

    def _send_all(self, chunks: Iterable[tuple[Index, np.ndarray]], receipts: Receipts) -> None:
        """Store chunks over a network: encode the next ones while earlier transfers are in progress."""
        assert isinstance(self._blobs, StoreBlobs), "what travels is in a store"
        under_way = Putting(self._blobs)
        try:
            with under_way:
                for index, chunk in chunks:
                    if self._is_fill(chunk):
                        self.skip(index, receipts)
                        continue
                    (data, coded), key = self._made(chunk, self._room(chunk)), self._file.chunk_key(index)
                    under_way.put(key, data)
                    receipts.put(key, data)
                    self.meter.add(write_requests=1, written_bytes=len(data), encoded_bytes=coded)
        except BaseException:
            receipts.withdraw(under_way.lost())
            raise

    def _encode(self, chunk: np.ndarray) -> memoryview:
        return byte_view(chunk) if self._codec is None else encode(self._codec, chunk)

    def put(self, index: Index, data: memoryview, encoded_bytes: int, receipts: Receipts) -> None:
        key = self._file.chunk_key(index)
        self._blobs.put(key, data)
        receipts.put(key, data)
        self.meter.add(write_requests=1, written_bytes=len(data), encoded_bytes=encoded_bytes)

    def _store_by_zarr(self, through: ThroughZarr, index: Index, chunk: np.ndarray, receipts: Receipts) -> None:
        """Store a chunk by Zarr, which omits more chunks, such as zeros of either sign; record its stored size."""
        section, key, folder = self._file.stored.grid.section(index), self._file.chunk_key(index), self._file.folder
        if isinstance(self._blobs, LocalBlobs):
            self._blobs.check()
        with translated("write", f"{key} of {self._file.name}", full=True):
            data = chunk[section.relative_to(section.lower).slices]
            through.write(section.slices, key, data if folder else data.copy())  # a store in memory keeps a reference
            if folder is not None:
                written(os.path.join(folder, key))
        self.meter.add(encoded_bytes=chunk.nbytes)
        if folder is None:
            is_skipped = default_buffer_prototype().nd_buffer.from_numpy_array(chunk).all_equal(self._file.fill_value)
            receipts.absent(key) if is_skipped else receipts.stored(key)
            return
        nbytes = size_of(os.path.join(folder, key))
        receipts.absent(key) if nbytes is None else receipts.stored(key, nbytes)

    def _is_fill(self, chunk: np.ndarray) -> bool:
        return is_fill(chunk, self._fill)


def _contiguous(chunk: np.ndarray) -> np.ndarray:
    if chunk.flags.c_contiguous:
        return chunk
    out = np.empty(chunk.shape, chunk.dtype)
    copy(out, chunk)
    return out
