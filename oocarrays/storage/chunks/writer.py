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
from oocarrays.storage.chunks.places import ThroughZarr, through_zarr
from oocarrays.storage.codecs.codec import encode, most_shard_bytes
from oocarrays.storage.codecs.shards import pack_shard
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.journal.receipts import UNKEPT, Unkept
from oocarrays.storage.local.blobs import LocalBlobs, byte_view
from oocarrays.storage.local.fs import make_folders, mode_of, open_regular, size_of, translated, write_at
from oocarrays.storage.local.syncing import written
from oocarrays.storage.meter import Meter
from oocarrays.storage.pool import Pool, copy
from oocarrays.storage.stores.store_blobs import StoreBlobs, blobs_of


class PieceWriter:
    """Writer of sections of one plain local array file."""

    def __init__(self, file: ArrayFile, meter: Meter) -> None:
        assert not file.stored.coded, "pieces are bytes of plain chunks"
        assert file.stored.order is None, "scratch lies in C order"
        assert file.folder, "scratch is in local files"
        self.file = file
        self.meter = meter
        self._folder: str = file.folder

    def write(self, section: Section, data: np.ndarray) -> None:
        """Write the elements of ``section``: ``data.shape == section.shape``."""
        grid = self.file.stored.grid
        for index in grid.indices(section) if section.size else ():
            chunk = grid.section(index)
            part = section.intersection(chunk)
            assert part is not None, "a touched chunk shares an element with the section"
            piece = np.ascontiguousarray(data[part.relative_to(section.lower).slices], self.file.dtype)
            self._put(os.path.join(self._folder, self.file.chunk_key(index)), part.relative_to(chunk.lower), piece)
            self.meter.add(write_requests=1, written_bytes=piece.nbytes)

    def _put(self, path: str, part: Section, piece: np.ndarray) -> None:
        starts, elements = element_runs(part, self.file.stored.grid.chunks)
        data, length = byte_view(piece), elements * piece.itemsize
        with translated("write", path):
            file = self._opened(path)
            try:
                for at, start in zip(range(0, len(data), length), starts.tolist(), strict=True):
                    write_at(file, start * piece.itemsize, data[at : at + length])
                written(path)
            finally:
                os.close(file)

    def _opened(self, path: str) -> int:
        if not os.path.isdir(self._folder):
            raise RunError(
                f"{self._folder} does not exist on this worker: scratch must be on a shared disk, or it has been "
                "removed"
            )
        make_folders(os.path.dirname(path))
        file = open_regular(path, os.O_WRONLY | os.O_CREAT, mode_of(path))
        os.truncate(file, self.file.stored.chunk_bytes)  # every writer sets the same length, so no data is lost
        return file


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
        self._through = through_zarr(file, meter)

    def _turn(self) -> AbstractContextManager[Any]:
        """Return the device lock if chunks are written uncoded and past the cache: one rank writes while others read.

        Without the lock, ranks fall into step: all read, then all write, and processors and device wait for each other.
        """
        return self._device if self._past_cache and not self._file.stored.coded else nullcontext()

    def write_all(self, chunks: Iterable[tuple[Index, np.ndarray]], receipts: Unkept = UNKEPT) -> None:
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
                    self._skip(index, receipts)
                elif self._codec is None and self._shard is None:
                    self._put(index, chunk, receipts)
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

    def _skip(self, index: Index, receipts: Unkept) -> None:
        """Store no file for a chunk that holds only the fill value."""
        if not self._fresh:
            self._blobs.remove(self._file.chunk_key(index))
        receipts.absent(self._file.chunk_key(index))
        self.meter.add(skipped_chunks=1)

    def replace(self, index: Index, chunk: np.ndarray, receipts: Unkept = UNKEPT) -> None:
        """Store one chunk in storage order synchronously, or delete its file if it holds only the fill value."""
        if self._is_fill(chunk):
            self._skip(index, receipts)
        elif self._codec is None:
            self._put(index, chunk, receipts)
        else:
            self._put_bytes(index, self._encode(chunk), chunk.nbytes, receipts)

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
        self, index: Index, data: memoryview, encoded_bytes: int, out: np.ndarray | None, receipts: Unkept
    ) -> None:
        """Store encoded bytes, and return a shard's buffer to the pool."""
        try:
            self._put_bytes(index, data, encoded_bytes, receipts)
        finally:
            if out is not None:
                self._pool.give(out)

    def _send_all(self, chunks: Iterable[tuple[Index, np.ndarray]], receipts: Unkept) -> None:
        """Store chunks over a network: encode the next ones while earlier transfers are in progress."""
        assert isinstance(self._blobs, StoreBlobs), "what travels is in a store"
        with self._blobs.putting() as under_way:
            for index, chunk in chunks:
                if self._is_fill(chunk):
                    self._skip(index, receipts)
                    continue
                data, coded = self._made(chunk, self._room(chunk))
                under_way.put(self._file.chunk_key(index), data)
                receipts.put(self._file.chunk_key(index), data)
                self.meter.add(write_requests=1, written_bytes=len(data), encoded_bytes=coded)

    def _encode(self, chunk: np.ndarray) -> memoryview:
        return byte_view(chunk) if self._codec is None else encode(self._codec, chunk)

    def _put(self, index: Index, chunk: np.ndarray, receipts: Unkept) -> None:
        if self._through is None:
            self._put_bytes(index, byte_view(chunk), 0, receipts)
            return
        self._through_zarr(self._through, index, chunk)
        self._look(index, chunk, receipts)
        self.meter.add(encoded_bytes=chunk.nbytes)

    def _look(self, index: Index, chunk: np.ndarray, receipts: Unkept) -> None:
        """Record the stored size of a chunk written by Zarr, which omits more chunks, such as zeros of either sign."""
        key, folder = self._file.chunk_key(index), self._file.folder
        if folder is None:
            is_skipped = default_buffer_prototype().nd_buffer.from_numpy_array(chunk).all_equal(self._file.fill_value)
            receipts.absent(key) if is_skipped else receipts.stored(key)
            return
        nbytes = size_of(os.path.join(folder, key))
        receipts.absent(key) if nbytes is None else receipts.stored(key, nbytes)

    def _put_bytes(self, index: Index, data: memoryview, encoded_bytes: int, receipts: Unkept) -> None:
        key = self._file.chunk_key(index)
        self._blobs.put(key, data)
        receipts.put(key, data)
        self.meter.add(write_requests=1, written_bytes=len(data), encoded_bytes=encoded_bytes)

    def _through_zarr(self, through: ThroughZarr, index: Index, chunk: np.ndarray) -> None:
        section = self._file.stored.grid.section(index)
        if isinstance(self._blobs, LocalBlobs):
            self._blobs.check()
        key = self._file.chunk_key(index)
        with translated("write", f"{key} of {self._file.name}", full=True):
            data = chunk[section.relative_to(section.lower).slices]
            local = self._file.folder is not None
            kept = data if local else data.copy()  # a store in memory keeps a reference
            through.write(section.slices, key, kept)
            if self._file.folder is not None:
                written(os.path.join(self._file.folder, key))

    def _is_fill(self, chunk: np.ndarray) -> bool:
        return is_fill(chunk, self._fill)


def _contiguous(chunk: np.ndarray) -> np.ndarray:
    if chunk.flags.c_contiguous:
        return chunk
    out = np.empty(chunk.shape, chunk.dtype)
    copy(out, chunk)
    return out
