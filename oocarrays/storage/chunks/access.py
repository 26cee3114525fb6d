"""Reading and writing the chunks of one array file, whole or in byte ranges.

    ChunkReader.tiles(index, section)     byte ranges of a plain chunk, a tile at a time
    ChunkReader.whole(index, out)         a whole chunk, decoded
    ChunkWriter.write_all(chunks)         whole chunks, or whole shards, each replaced at once
    scatter(buffer, …)                    elements to where their chunks lie, one chunk after the other

The tile is PASSION's way to sieve turned round (Thakur 1995, section 5.5.1): what is read is cut so that it stays in
a core's cache until it is copied.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import Any

import numpy as np
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype

from oocarrays.errors import CorruptChunkError, RunError, StoreFailure
from oocarrays.mapping.grid import ceil_div, chunk_runs
from oocarrays.mapping.section import Section
from oocarrays.storage.chunks.blocked import copy
from oocarrays.storage.chunks.through_zarr import ThroughZarr, through_zarr
from oocarrays.storage.codecs.codec import decode_into, encode, most_shard_bytes
from oocarrays.storage.codecs.shards import ShardedBlobs, pack_shard
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.presence import Missing
from oocarrays.storage.journal.receipts import UNKEPT, Unkept
from oocarrays.storage.meter import Meter
from oocarrays.storage.pool import Pool
from oocarrays.storage.stores.blobs import LocalBlob, LocalBlobs, MissingBlob, byte_view
from oocarrays.storage.stores.durable import written
from oocarrays.storage.stores.opening import blobs_of, open_ahead
from oocarrays.storage.stores.pages import can_map
from oocarrays.storage.stores.store_blobs import PartBlob, StoreBlob, StoreBlobs

Index = tuple[int, ...]
Blob = LocalBlob | StoreBlob | PartBlob


class ChunkReader:
    """Reads the chunks of one array file.

    Parameters
    ----------
    file : ArrayFile
        The array.
    read_ahead : bool
        Whether the system is asked to fetch the next chunks whole.
    requests : int
        Requests that each rank has under way at one time, in stores that are not on this machine.
    """

    def __init__(self, file: ArrayFile, meter: Meter, *, read_ahead: bool = False, requests: int = 1) -> None:
        assert file.stored.order is None, "elements that lie in another order are read by a TurnedReader"
        self.file = file
        self.meter = meter
        self.grid = file.stored.grid
        self.dtype = file.dtype
        self._read_ahead = read_ahead
        self._codec = file.chain.compressor
        self._blobs: Any = blobs_of(file.zarr, requests=requests)
        self._fetches = isinstance(self._blobs, StoreBlobs)
        self._stored = self._blobs
        if file.chain.shard:
            self._blobs = ShardedBlobs(self._blobs, file.chain.shard, meter)
        self._through = through_zarr(file, meter)

    def announce(self, indices: Iterable[Index]) -> None:
        """Let the system fetch what will be read next, while something else is done."""
        if self._read_ahead:
            self._blobs.announce(map(self.file.place_of, indices))

    def tiles(
        self, indices: Iterable[Index], within: Section, tile: tuple[int, ...]
    ) -> Iterator[tuple[Section, np.ndarray | None]]:
        """The elements of plain chunks that lie in ``within``, tile by tile; None for a chunk that is missing.

        The array is overwritten by the next tile.
        """
        bounce = np.empty(tile, self.dtype)
        with self._batch() as missing:
            for index, blob in self._opened(indices):
                origin, piece = self._piece(index, within)
                try:
                    if blob is not None and not isinstance(blob, StoreBlob):
                        self._check_bytes(blob.name, blob.size)
                    for part in cut(piece, tile):
                        yield part, self._read_tile(blob, part.relative_to(origin), bounce)
                except MissingBlob:
                    missing.add(index)
                    yield piece, None

    def sieved(self, indices: Iterable[Index], within: Section) -> Iterator[tuple[Section, np.ndarray | None]]:
        """The elements of plain chunks that lie in ``within``, each chunk's by one byte range from the first to the
        last of them, what lies between left out; None for a missing chunk."""
        wanted, spans = list(indices), []
        for index in wanted:
            origin, piece = self._piece(index, within)
            spans.append((piece, *_span(piece.relative_to(origin), self.grid.chunks, self.dtype.itemsize)))
        assert self._fetches, "local files are planned to be mapped, or read in ranges"
        keys = map(self.file.place_of, wanted)
        ranges = (RangeByteRequest(start, stop) for _, start, stop in spans)
        come = self._blobs.fetched(zip(keys, ranges, strict=True))
        with self._batch() as missing:
            for index, (piece, start, stop), data in zip(wanted, spans, come, strict=True):
                if data is None:
                    missing.add(index)
                    yield piece, None
                    continue
                if len(data) != stop - start:
                    raise CorruptChunkError(f"a chunk of {self.file.name} is cut short: {len(data)} bytes at {start}")
                self.meter.add(read_requests=1, read_bytes=len(data))
                yield piece, _strided(data.view(self.dtype), piece.shape, self.grid.chunks)

    def mapped(self, indices: Iterable[Index], within: Section) -> Iterator[tuple[Section, np.ndarray | None]]:
        """The elements of plain chunks in local files that lie in ``within``, in place; None for a missing chunk."""
        with self._batch() as missing:
            for index, blob in self._opened(indices):
                origin, piece = self._piece(index, within)
                if blob is None:
                    missing.add(index)
                yield piece, None if blob is None else self._in_place(blob, piece.relative_to(origin))

    def _batch(self) -> Missing:
        """Tell of what is missing of some chunks when they have been read."""
        return Missing(self.file.presence, self.meter, self.file.axes)

    def _piece(self, index: Index, within: Section) -> tuple[Index, Section]:
        """Return a chunk's first element, and what it has of ``within``."""
        section = self.grid.section(index)
        piece = section.intersection(within)
        assert piece is not None, "a touched chunk shares an element with the region"
        return section.lower, piece

    def _in_place(self, blob: Blob, part: Section) -> np.ndarray:
        assert not isinstance(blob, StoreBlob), "only local files are planned to be mapped"
        self._check_bytes(blob.name, blob.size)
        chunk: np.ndarray = blob.pages().view(self.dtype).reshape(self.grid.chunks)[part.slices]
        self.meter.add(read_requests=1, read_bytes=chunk.nbytes)
        return chunk

    def _opened(self, indices: Iterable[Index]) -> Iterator[tuple[Index, Blob | None]]:
        wanted = list(indices)
        keys = map(self.file.place_of, wanted)
        return zip(wanted, open_ahead(self._blobs, keys, read_ahead=self._read_ahead), strict=True)

    def _read_tile(self, blob: Blob | None, part: Section, bounce: np.ndarray) -> np.ndarray:
        if blob is None:
            raise MissingBlob
        data = bounce.reshape(-1)[: part.size].reshape(part.shape)
        starts, length = element_runs(part, self.grid.chunks)
        flat = byte_view(data)
        nbytes = length * self.dtype.itemsize
        rows = [flat[at : at + nbytes] for at in range(0, len(flat), nbytes)]
        blob.read_runs((starts * self.dtype.itemsize).tolist(), rows)
        self.meter.add(read_requests=len(rows), read_bytes=data.nbytes)
        return data

    def whole(
        self, indices: Iterable[Index], chunks: Iterable[np.ndarray]
    ) -> Iterator[tuple[Index, np.ndarray | None]]:
        """Whole chunks, each in the next of ``chunks`` and cut to the array; None for one that is missing."""
        with self._batch() as missing:
            yield from self.whole_or(missing, indices, chunks)

    def whole_or(
        self, missing: Missing, indices: Iterable[Index], chunks: Iterable[np.ndarray]
    ) -> Iterator[tuple[Index, np.ndarray | None]]:
        """The same of a larger batch: what is missing is added to what that lacks."""
        for index, chunk in self._each_whole(indices, chunks):
            if chunk is None:
                missing.add(index)
            yield index, chunk

    def _each_whole(
        self, indices: Iterable[Index], chunks: Iterable[np.ndarray]
    ) -> Iterator[tuple[Index, np.ndarray | None]]:
        if self._through:
            yield from ((index, self._through_zarr(self._through, index)) for index in indices)
            return
        if self._fetches:
            yield from self._whole_fetched(list(indices), chunks)
            return
        for (index, blob), out in zip(self._opened(indices), chunks, strict=False):
            section = self.grid.section(index)
            try:
                self._fill(blob, index, out)
                yield index, out[section.relative_to(section.lower).slices]
            except MissingBlob:
                yield index, None

    def _whole_fetched(
        self, indices: list[Index], chunks: Iterable[np.ndarray]
    ) -> Iterator[tuple[Index, np.ndarray | None]]:
        keys = ((self.file.place_of(index), None) for index in indices)
        for index, data, out in zip(indices, self._blobs.fetched(keys), chunks, strict=False):
            section = self.grid.section(index)
            if data is not None:
                self._take(data, f"chunk {self._name(index)} of {self.file.name}", out)
            yield index, None if data is None else out[section.relative_to(section.lower).slices]

    def _take(self, data: np.ndarray, name: str, out: np.ndarray) -> None:
        """Fill ``out`` with the elements of a stored chunk."""
        if self._codec is None:
            self._check_bytes(name, len(data))
            byte_view(out)[:] = data.data
            self.meter.add(read_requests=1, read_bytes=out.nbytes)
            return
        self.meter.add(read_requests=1, read_bytes=len(data), decoded_bytes=out.nbytes)
        decode_into(self._codec, data, out, name)

    def _fill(self, blob: Blob | None, index: Index, out: np.ndarray) -> None:
        if blob is None:
            raise MissingBlob
        assert not isinstance(blob, StoreBlob), "what is in other stores is fetched"
        name = f"chunk {self._name(index)} of {self.file.name}"
        if self._codec is None:
            self._check_bytes(blob.name, blob.size)
            blob.read_into(0, byte_view(out))
            self.meter.add(read_requests=1, read_bytes=out.nbytes)
            return
        self._take(blob.pages() if can_map() else blob.read_all(), name, out)

    def _name(self, index: Index) -> str:
        """Return a chunk's key, and its number where it is in a shard."""
        key = self.file.place_of(index)
        return key if isinstance(key, str) else f"{key.number} in {key.shard}"

    def _check_bytes(self, name: str, nbytes: int) -> None:
        if nbytes != self.file.stored.chunk_bytes:
            raise CorruptChunkError(f"{name} has {nbytes} bytes; a chunk has {self.file.stored.chunk_bytes}")

    def _through_zarr(self, through: ThroughZarr, index: Index) -> np.ndarray | None:
        """A chunk as Zarr has it; None for one that is missing, which Zarr does not tell from one of fill values."""
        try:
            data = through.read(self.grid.section(index).slices, self.file.chunk_key(index))
        except RunError:
            raise
        except OSError as error:
            raise StoreFailure(
                f"cannot read chunk {self.file.chunk_key(index)} of {self.file.name}: {error}"
            ) from error
        except Exception as error:  # codecs of any kind raise what they like
            raise CorruptChunkError(
                f"chunk {self.file.chunk_key(index)} of {self.file.name} cannot be decoded: {error}"
            ) from error
        if is_fill(data, fill_bits(self.file)) and not self._stored.exists(self.file.chunk_key(index)):
            return None
        self.meter.add(decoded_bytes=self.file.stored.chunk_bytes)
        return data


class ChunkWriter:
    """Writes whole chunks of one array file, or whole shards. What holds nothing but the fill value is not stored.

    Parameters
    ----------
    past_cache : bool
        Whether to write past the system's cache: local files only.
    behind : bool
        Whether a coded chunk is written while the next is encoded.
    requests : int
        Chunks of each rank that are under way at one time, to stores that are not on this machine.
    fresh : bool
        Whether there is nothing yet where it writes; where there may be, what is not stored is removed.
    """

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
        assert file.stored.order is None, "elements that lie in another order are written by a TurnedWriter"
        self.file = file
        self.meter = meter
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
        """Wait for the device, where chunks go to it uncoded and past the cache: one rank writes, the others read.

        Without turns ranks fall into step: all read, then all write, and processors and device wait for each other.
        """
        return self._device if self._past_cache and not self.file.stored.coded else nullcontext()

    def write_all(self, chunks: Iterable[tuple[Index, np.ndarray]], receipts: Unkept = UNKEPT) -> None:
        """Store whole chunks, each padded to its full length."""
        if self.file.stored.travel_bytes:
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
        """Store nothing: a chunk holds nothing but the fill value."""
        if not self._fresh:
            self._blobs.remove(self.file.chunk_key(index))
        receipts.absent(self.file.chunk_key(index))
        self.meter.add(skipped_chunks=1)

    def replace(self, index: Index, chunk: np.ndarray, receipts: Unkept = UNKEPT) -> None:
        """Store one whole chunk, or remove what is there where it holds nothing but the fill value, and then return."""
        if self._is_fill(chunk):
            self._blobs.remove(self.file.chunk_key(index))
            receipts.absent(self.file.chunk_key(index))
            self.meter.add(skipped_chunks=1)
        elif self._codec is None:
            self._put(index, chunk, receipts)
        else:
            self._put_bytes(index, self._encode(chunk), chunk.nbytes, receipts)

    def _room(self, chunk: np.ndarray) -> np.ndarray | None:
        """Memory for the bytes of a shard; None where chunks stand alone."""
        return None if self._shard is None else self._pool.take(most_shard_bytes(self.file.chain, chunk.itemsize))

    def _made(self, chunk: np.ndarray, out: np.ndarray | None) -> tuple[memoryview, int]:
        """Return the stored bytes of a chunk, or of a shard packed in ``out``; and how many bytes went into a codec."""
        if self._shard is None or out is None:
            return self._encode(chunk), chunk.nbytes if self._codec else 0
        nbytes, elements = pack_shard(self._shard, chunk, self._encode, self._is_fill, out)
        return out[:nbytes].data, elements * chunk.itemsize if self._codec else 0

    def _put_made(
        self, index: Index, data: memoryview, encoded_bytes: int, out: np.ndarray | None, receipts: Unkept
    ) -> None:
        """Store what was made, and let others have the memory of a shard."""
        try:
            self._put_bytes(index, data, encoded_bytes, receipts)
        finally:
            if out is not None:
                self._pool.give(out)

    def _send_all(self, chunks: Iterable[tuple[Index, np.ndarray]], receipts: Unkept) -> None:
        """The same over a network: each chunk is on its way while the next is encoded, or waits for its answer."""
        assert isinstance(self._blobs, StoreBlobs), "what travels is in a store"
        with self._blobs.putting() as under_way:
            for index, chunk in chunks:
                if self._is_fill(chunk):
                    self._skip(index, receipts)
                    continue
                data, coded = self._made(chunk, self._room(chunk))
                under_way.put(self.file.chunk_key(index), data)
                receipts.put(self.file.chunk_key(index), data)
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
        """Keep what Zarr has stored of a chunk; it skips more than we do, as zeros of either sign."""
        key, folder = self.file.chunk_key(index), self.file.folder
        if folder is None:
            is_skipped = default_buffer_prototype().nd_buffer.from_numpy_array(chunk).all_equal(self.file.fill_value)
            receipts.absent(key) if is_skipped else receipts.stored(key)
            return
        try:
            receipts.stored(key, os.stat(os.path.join(folder, key)).st_size)
        except FileNotFoundError:
            receipts.absent(key)

    def _put_bytes(self, index: Index, data: memoryview, encoded_bytes: int, receipts: Unkept) -> None:
        key = self.file.chunk_key(index)
        self._blobs.put(key, data)
        receipts.put(key, data)
        self.meter.add(write_requests=1, written_bytes=len(data), encoded_bytes=encoded_bytes)

    def _through_zarr(self, through: ThroughZarr, index: Index, chunk: np.ndarray) -> None:
        section = self.file.stored.grid.section(index)
        if isinstance(self._blobs, LocalBlobs):
            self._blobs.check()
        try:
            data = chunk[section.relative_to(section.lower).slices]
            local = self.file.folder is not None
            kept = data if local else data.copy()  # a store in memory keeps what it is given
            through.write(section.slices, self.file.chunk_key(index), kept)
            if self.file.folder is not None:
                written(os.path.join(self.file.folder, self.file.chunk_key(index)))
        except OSError as error:
            raise StoreFailure(f"cannot write {self.file.chunk_key(index)} of {self.file.name}: {error}") from error

    def _is_fill(self, chunk: np.ndarray) -> bool:
        return is_fill(chunk, self._fill)


def fill_bits(file: ArrayFile) -> bytes:
    """Return the bytes of an element that is not stored."""
    return np.full(1, file.fill_value, file.dtype).tobytes()


def is_fill(chunk: np.ndarray, fill: bytes) -> bool:
    """Return whether every element has the very bits of the fill value."""
    elements = chunk.reshape(-1)
    if elements[:1].tobytes() != fill or elements[-1:].tobytes() != fill:
        return False
    bits = elements.view(np.uint8).reshape(len(elements), -1)
    return bool((bits == np.frombuffer(fill, np.uint8)).all())


def cut(piece: Section, tile: tuple[int, ...]) -> Iterator[Section]:
    """The tiles of a piece, the last axis running fastest."""
    counts = [ceil_div(n, t) for n, t in zip(piece.shape, tile, strict=True)]
    for index in product(*map(range, counts)):
        lower = tuple(l + i * t for l, i, t in zip(piece.lower, index, tile, strict=True))
        yield Section(lower, tuple(min(l + t, u) for l, t, u in zip(lower, tile, piece.upper, strict=True)))


def _steps(chunks: tuple[int, ...], itemsize: int) -> list[int]:
    """Bytes from an element of a chunk to the next one along each axis."""
    return [math.prod(chunks[axis + 1 :]) * itemsize for axis in range(len(chunks))]


def _span(part: Section, chunks: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Where the first element of ``part`` begins in a chunk, and where the last one ends, in bytes.

    >>> _span(Section((1, 2), (3, 4)), (4, 8), 4)
    (40, 80)
    """
    steps = _steps(chunks, itemsize)
    start = sum(l * step for l, step in zip(part.lower, steps, strict=True))
    return start, sum((u - 1) * step for u, step in zip(part.upper, steps, strict=True)) + itemsize


def _strided(elements: np.ndarray, shape: tuple[int, ...], chunks: tuple[int, ...]) -> np.ndarray:
    """Return the piece of ``shape`` whose first element begins ``elements``, which lie as in a chunk."""
    return np.lib.stride_tricks.as_strided(elements, shape, _steps(chunks, elements.itemsize), writeable=False)


def element_runs(part: Section, chunks: tuple[int, ...]) -> tuple[np.ndarray, int]:
    """Where the contiguous runs of ``part`` start in a chunk, and how long each is, in elements.

    >>> element_runs(Section((1, 2), (3, 4)), (4, 8))
    (array([10, 18]), 2)
    >>> element_runs(Section((1, 0), (3, 8)), (4, 8))
    (array([8]), 16)
    """
    axis = len(chunks)
    length = 1
    while axis and (axis == len(chunks) or part.shape[axis] == chunks[axis]):
        axis -= 1
        length *= part.shape[axis]
    starts = np.zeros(1, np.int64)
    stride = np.cumprod((1, *chunks[:0:-1]))[::-1] if chunks else ()
    for a in range(len(chunks)):
        steps = np.arange(part.shape[a]) if a < axis else np.zeros(1, np.int64)
        starts = ((part.lower[a] + steps) * stride[a] + starts[:, None]).reshape(-1)
    return starts, length


def scatter(buffer: np.ndarray, origin: Index, section: Section, data: np.ndarray | object) -> None:
    """Copy ``data``, the elements of ``section``, to where they lie in a chunk-major buffer.

    Parameters
    ----------
    buffer : numpy.ndarray
        Of shape ``counts + chunks``: the chunks of a region, each one contiguous.
    origin : tuple of int
        The first element of the region in each axis.
    data : numpy.ndarray or scalar
        Of shape ``section.shape``, or one value for all.

    Examples
    --------
    >>> buffer = np.zeros((2, 3), int)
    >>> scatter(buffer, (10,), Section((11,), (15,)), np.arange(4))
    >>> buffer
    array([[0, 0, 1],
           [2, 3, 0]])
    """
    ndim = buffer.ndim // 2
    here = section.relative_to(origin)
    axes = [list(_chunk_runs(l, u, c)) for l, u, c in zip(here.lower, here.upper, buffer.shape[ndim:], strict=True)]
    for parts in product(*axes):
        chunks, inside, source = zip(*parts, strict=True) if parts else ((), (), ())
        view = buffer[(*chunks, *inside, ...)]
        if isinstance(data, np.ndarray):
            copy(view, _chunk_major(data[(*source, ...)], view.shape, ndim))
        else:
            view[...] = data


def _chunk_major(data: np.ndarray, shape: tuple[int, ...], ndim: int) -> np.ndarray:
    """Return the same elements with every axis cut in chunks, and the chunks' axes first."""
    cut = data.reshape([n for axis in zip(shape[:ndim], shape[ndim:], strict=True) for n in axis])
    return cut.transpose([*range(0, 2 * ndim, 2), *range(1, 2 * ndim, 2)])


def _chunk_runs(lower: int, upper: int, chunk: int) -> Iterator[tuple[slice, slice, slice]]:
    """Each run of alike chunks in an interval, as slices of the chunks, of the elements in each, and of the interval.

    >>> for run in _chunk_runs(1, 9, 3): print(run)
    (slice(0, 1, None), slice(1, 3, None), slice(0, 2, None))
    (slice(1, 3, None), slice(0, 3, None), slice(2, 8, None))
    """
    for start, stop in chunk_runs(lower, upper, chunk):
        first, inside = divmod(start, chunk)
        last = ceil_div(stop, chunk)
        length = chunk if last - first > 1 else stop - start
        yield slice(first, last), slice(inside, inside + length), slice(start - lower, stop - lower)


def common(there: Section, here: Section, data: np.ndarray | None) -> Iterator[tuple[Section, np.ndarray | None]]:
    """Yield the part of ``here`` that lies in the chunk at ``there``: nothing, or one part."""
    part = there.intersection(here)
    if part is not None:
        yield part, None if data is None else data[part.relative_to(there.lower).slices]
