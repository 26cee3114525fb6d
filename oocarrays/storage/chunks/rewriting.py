"""Partial writes: a chunk or shard is locked, read, changed and replaced atomically.

    Whole      decoded, changed and encoded again, with any codecs, in any store
    Sharded    unchanged chunks of a shard are copied in their stored form, neither decoded nor encoded

stored     ┌─────────┬─────────┬─────────┬───────┐
           │ chunk 0 │ chunk 2 │ chunk 1 │ index │      one request
           └─────────┴─────────┴─────────┴───────┘
written    ┌─────────┬───────────┬─────────┬───────┐
           │ chunk 0 │ chunk 1 ░ │ chunk 2 │ index │    the shard is replaced atomically
           └─────────┴───────────┴─────────┴───────┘

threads of a process       a lock of `BUCKETS`, by the chunk's location          any store
    processes, local files     a byte of the array's metadata file, by its key       held by the operating system

The byte is locked, not read or written. The metadata file (``zarr.json``, ``.zarray``) already exists, so no lock files
appear to other readers, copies of groups or `clean`. A dead process's locks end with it. An ``flock`` on the chunk
needs a stored chunk; one on its folder excludes concurrent writes of other chunks. Replacing the metadata during
section writes (to resize the array, to set attributes) ends this protection for writes in progress.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from oocarrays.mapping.section import Section
from oocarrays.storage.chunks.elements import Written, fill_bits, is_fill
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.chunks.writer import ChunkWriter
from oocarrays.storage.codecs.codec import decode_into, encode, most_shard_bytes
from oocarrays.storage.codecs.shards import NOT_STORED, lay_out
from oocarrays.storage.files.array_file import ArrayFile, blobs_of
from oocarrays.storage.files.presence import Missing
from oocarrays.storage.journal.lock import is_at, let_go
from oocarrays.storage.journal.texts import UNKEPT, Receipts
from oocarrays.storage.local.blobs import LocalBlobs, byte_view, odd_size
from oocarrays.storage.local.fs import array_document, draft_key, open_sized, translated
from oocarrays.storage.local.pages import Pool, numpy_bytes, shaped
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.underway import in_order

BUCKETS = tuple(threading.Lock() for _ in range(1024))
"""Locks of chunks by hash. Chunks that share one wait for each other; no deadlock, as a thread holds one at a time."""


@contextmanager
def _byte_lock(path: str | None, byte: int) -> Iterator[None]:
    """Lock a byte of a file, which may lie past its end; do nothing where such locks are unavailable."""
    file = _locked(path, byte) if path else None
    try:
        yield
    finally:
        if file is not None:
            _set_lock(file, byte, fcntl.F_UNLCK)  # a child of this process may also have the file open
            let_go(file)


def _locked(path: str, byte: int) -> int | None:
    """Return the file, open, with the byte locked; None where locks are unavailable."""
    while hasattr(fcntl, "F_OFD_SETLKW"):
        try:
            with translated("lock a chunk in", path, but=(PermissionError, FileNotFoundError)):
                file, _ = open_sized(path, os.O_RDWR)
        except (PermissionError, FileNotFoundError):
            return None
        try:
            _set_lock(file, byte, fcntl.F_WRLCK)
            if is_at(file, path):
                return file
        except OSError:
            os.close(file)
            return None
        os.close(file)  # it was replaced during the wait
    return None


def _set_lock(file: int, byte: int, kind: int) -> None:
    """Apply a ``struct flock``: kind, whence, start, length and process, which is 0 for locks of an open file."""
    fcntl.fcntl(file, fcntl.F_OFD_SETLKW, struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, 1, 0))


class UnitWriter:
    """Writer of units of one array file with its axes in storage order; each is locked while it is changed."""

    def __init__(self, file: ArrayFile, meter: Meter, receipts: Receipts = UNKEPT) -> None:
        self.file, self.meter, self._receipts = file, meter, receipts
        self._metadata: str | None = None
        """Path of the metadata document, or of its draft, whose bytes are locked; None for other stores."""
        blobs = blobs_of(file.zarr)
        if isinstance(blobs, LocalBlobs):
            path = blobs.path(array_document(file.zarr.metadata.zarr_format))
            self._metadata = path if os.path.exists(path) else draft_key(path)
        self.missing = Missing(file.presence, meter, file.axes)
        """Chunks to be changed that were missing."""
        self._pool, self._fill = Pool(numpy_bytes), fill_bits(file)

    def __call__(self, unit: Any) -> None:
        key = self.file.chunk_key(unit.index)
        with (
            BUCKETS[zlib.crc32(f"{self.file.name}/{key}".encode()) % len(BUCKETS)],
            _byte_lock(self._metadata, zlib.crc32(key.encode())),
        ):
            self.rewrite(unit)

    def rewrite(self, unit: Any) -> None:
        """Replace a locked chunk or shard."""
        raise NotImplementedError


class Whole(UnitWriter):
    """Writer that decodes, changes and replaces chunks, of any codec in any store."""

    def __init__(self, file: ArrayFile, meter: Meter, receipts: Receipts = UNKEPT) -> None:
        super().__init__(file, meter, receipts)
        self._reader, self._writer = ChunkReader(file, meter), ChunkWriter(file, meter, fresh=False)
        self._box = Section((0,) * len(file.stored.grid.chunks), file.stored.grid.chunks)

    def rewrite(self, unit: Written) -> None:
        memory = self._pool.take(self.file.stored.chunk_bytes)
        buffer = shaped(memory, self._box.shape, self.file.dtype)
        if not unit.covers(self._box):
            buffer[...] = self.file.fill_value
        if not unit.whole:
            ((_, chunk),) = self._reader.whole_or(self.missing, [unit.index], [buffer])
            if chunk is not None:
                buffer[tuple(slice(n) for n in chunk.shape)] = chunk
        unit.put_in(buffer, self._box)
        self._writer.replace(unit.index, buffer, self._receipts)
        self._pool.give(memory)


class Sharded(UnitWriter):
    """Writer that reads, changes and replaces shards."""

    def __init__(self, file: ArrayFile, meter: Meter, receipts: Receipts = UNKEPT) -> None:
        super().__init__(file, meter, receipts)
        assert file.chain.shard is not None, "only shards are written chunk by chunk"
        self._layout, self._codec = file.chain.shard, file.chain.compressor
        self._writer, self._blobs = ChunkWriter(file, meter, fresh=False), blobs_of(file.zarr)
        self._box = Section((0,) * len(self._layout.chunks), self._layout.chunks)
        self._most = most_shard_bytes(file.chain, file.dtype.itemsize)
        self._chunk_bytes = self._box.size * file.dtype.itemsize

    def rewrite(self, unit: Written) -> None:
        key = self.file.chunk_key(unit.index)
        old = None if unit.whole else self._read(key)
        if old is None and not unit.whole:
            self.missing.add(unit.index)
        out, memory = self._pool.take(self._most), self._pool.take(self._chunk_bytes)
        chunk = shaped(memory, self._layout.chunks, self.file.dtype)
        nbytes, stored = lay_out(self._layout, self._stored(unit, old, chunk), out)
        if stored:
            self._writer.put(unit.index, out[:nbytes].data, 0, self._receipts)
        else:
            self._writer.skip(unit.index, self._receipts)
        self._pool.give(out)
        self._pool.give(memory)

    def _read(self, key: str) -> np.ndarray | None:
        """Return a stored shard, read in one request, or None if it does not exist."""
        data = self._blobs.read(key)
        if data is not None:
            self.meter.add(read_requests=1, read_bytes=len(data))
        return data

    def _stored(self, unit: Written, old: np.ndarray | None, chunk: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the stored chunks of the new shard by number; ``chunk`` is a buffer that is reused."""
        changed = {self._layout.place(inner.index)[1]: inner for inner in unit.cut(self._layout.chunks)}
        entries, name = self._entries(old, unit.index)
        for number, (offset, nbytes) in enumerate(entries):
            there = None if old is None or nbytes == NOT_STORED else old[offset : offset + nbytes]
            if number in changed:
                there = self._changed(changed[number], there, chunk, f"chunk {number} of {name}")
            if there is not None:
                yield number, there

    def _entries(self, old: np.ndarray | None, index: tuple[int, ...]) -> tuple[list[list[int]], str]:
        """Return the offset and length of each chunk of a shard, and the shard's name for messages."""
        layout, name = self._layout, f"{self.file.chunk_key(index)} of {self.file.name}"
        if old is None:
            return [[NOT_STORED, NOT_STORED]] * layout.count, name
        data = old[-layout.index_bytes :] if layout.at_end else old[: layout.index_bytes]
        entries = layout.read_index(data.tobytes(), name)
        layout.check(entries, len(old), name)
        listed: list[list[int]] = entries.tolist()
        return listed, name

    def _changed(self, inner: Written, there: np.ndarray | None, chunk: np.ndarray, name: str) -> np.ndarray | None:
        """Return the stored bytes of a changed chunk; None if it holds only the fill value."""
        if inner.whole or there is None:
            chunk[...] = self.file.fill_value
        else:
            self._decode(there, chunk, name)
        inner.put_in(chunk, self._box)
        return None if is_fill(chunk, self._fill) else self._encode(chunk)

    def _decode(self, there: np.ndarray, chunk: np.ndarray, name: str) -> None:
        if self._codec is not None:
            decode_into(self._codec, there, chunk, name)
            self.meter.add(decoded_bytes=chunk.nbytes)
            return
        if len(there) != chunk.nbytes:
            raise odd_size(name, len(there), chunk.nbytes)
        byte_view(chunk)[:] = there.data

    def _encode(self, chunk: np.ndarray) -> np.ndarray:
        if self._codec is None:
            return np.frombuffer(byte_view(chunk), np.uint8)
        self.meter.add(encoded_bytes=chunk.nbytes)
        return np.frombuffer(encode(self._codec, chunk), np.uint8)


def unit_writer(file: ArrayFile, meter: Meter, receipts: Receipts = UNKEPT) -> UnitWriter:
    """Return the writer of units that replaces chunks, or shards if the file has them."""
    return (Whole if file.chain.shard is None else Sharded)(file, meter, receipts)


def each_of(work: UnitWriter, units: Iterable[Any], at_once: int) -> None:
    """Write each unit, ``at_once`` at a time, and report missing chunks that were to be changed."""
    if at_once == 1:
        for unit in units:
            work(unit)
    else:
        with ThreadPoolExecutor(at_once, "write") as pool:
            for _ in in_order(lambda unit: pool.submit(work, unit), units, at_once):
                pass
    work.missing.tell()
