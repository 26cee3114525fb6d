"""Reading the chunks of one array file, whole or in byte ranges.

    ChunkReader.tiles(indices, section)   byte ranges of plain chunks, a tile at a time
    ChunkReader.whole(indices, chunks)    whole chunks, decoded: from an open local file, from fetched bytes, or by Zarr

    array    0 1 2      chunk in its file   0 3 1 4 2 5       order (1, 0): column by column
             3 4 5

The tile inverts PASSION's sieving (Thakur 1995, section 5.5.1): each read is cut so that it stays in a core's cache
until it is copied. Storage order: section 5.4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, Literal, NamedTuple

import numpy as np
from zarr.abc.store import RangeByteRequest

from oocarrays.errors import CorruptChunkError, RunError, StoreFailure
from oocarrays.mapping.grid import Index, inverse, turned, turned_back
from oocarrays.mapping.section import Section
from oocarrays.storage.chunks.elements import byte_span, cut, element_runs, fill_bits, is_fill, strided, turned_section
from oocarrays.storage.chunks.places import ShardedBlobs, ThroughZarr
from oocarrays.storage.codecs.codec import decode_into
from oocarrays.storage.files.array_file import ArrayFile, blobs_of
from oocarrays.storage.files.presence import Missing
from oocarrays.storage.local.blobs import LocalBlob, byte_view, odd_size, open_ahead
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.underway import StoreBlobs

Part = tuple[Section, np.ndarray | None]
"""Section of an array, and its elements; None if they are not stored."""
Came = LocalBlob | np.ndarray | Literal["by Zarr"]
"""Stored chunk: an open file, its bytes, or one that Zarr reads."""


class ChunkName(NamedTuple):
    """Name of a chunk for messages, formatted on demand."""

    file: ArrayFile
    """Array file, with its axes in storage order."""
    chunk: Index
    """Index of the chunk."""

    def __str__(self) -> str:
        key = self.file.place_of(self.chunk)
        return f"chunk {key if isinstance(key, str) else f'{key.number} in {key.shard}'} of {self.file.name}"


class ChunkReader:
    """Reader of the chunks of one array file, in views with the array's own axes.

    Inside, axes are in storage order, in which a chunk is in C order: they are permuted on input and output.
    """

    def __init__(self, file: ArrayFile, meter: Meter, *, read_ahead: bool = False, requests: int = 1) -> None:
        self.file, self.meter = file, meter
        self.grid, self.dtype, self._order = file.stored.grid, file.dtype, file.stored.order
        self._file = file = file.lying
        self._grid, self._codec = file.stored.grid, file.chain.compressor
        self._read_ahead = read_ahead
        self._blobs: Any = blobs_of(file.zarr, requests=requests)
        self._fetches = isinstance(self._blobs, StoreBlobs)
        if file.chain.shard:
            self._blobs = ShardedBlobs(self._blobs, file.chain.shard, meter)
        self._through = ThroughZarr(file, meter) if file.chain.by_zarr else None

    def announce(self, indices: Iterable[Index]) -> None:
        """Ask the system to prefetch these chunks in the background, if read-ahead is on."""
        if self._read_ahead:
            self._blobs.announce(map(self._file.place_of, self._turned(indices)))

    def _turned(self, indices: Iterable[Index]) -> Iterable[Index]:
        return indices if self._order is None else (turned(index, self._order) for index in indices)

    def _own(self, parts: Iterator[Part]) -> Iterator[Part]:
        if self._order is None:
            return parts
        back = inverse(self._order)
        return ((turned_section(part, back), None if data is None else data.transpose(back)) for part, data in parts)

    def tiles(self, indices: Iterable[Index], within: Section, tile: tuple[int, ...]) -> Iterator[Part]:
        """Yield the elements of plain chunks inside ``within``, tile by tile; None for a missing chunk.

        The next tile overwrites the array.
        """
        tile, within = turned(tile, self._order), turned_section(within, self._order)
        return self._own(self._tiles(list(self._turned(indices)), within, np.empty(tile, self.dtype)))

    def _tiles(self, indices: list[Index], within: Section, bounce: np.ndarray) -> Iterator[Part]:
        opened: Iterator[LocalBlob | None] = repeat(None) if self._fetches else self._opened(indices)
        with self._batch() as missing:
            for index, blob in zip(indices, opened, strict=False):
                origin, piece = self._piece(index, within)
                if blob is not None:
                    self._check_bytes(blob.name, blob.size)
                for part in cut(piece, bounce.shape):
                    data = self._read_tile(index, blob, part.relative_to(origin), bounce)
                    if data is None:
                        missing.add(index)
                        yield piece, None
                        break
                    yield part, data

    def _read_tile(self, index: Index, blob: LocalBlob | None, part: Section, bounce: np.ndarray) -> np.ndarray | None:
        """Read a tile of a chunk, in one range per run; return None if the chunk is missing."""
        data = bounce.reshape(-1)[: part.size].reshape(part.shape)
        starts, length = element_runs(part, self._grid.chunks)
        starts, nbytes = starts * self.dtype.itemsize, length * self.dtype.itemsize
        runs = data.reshape(-1).view(np.uint8).reshape(len(starts), nbytes)
        if blob is not None:
            blob.read_runs(starts, runs)
        elif not self._fetches or not self._fetch_runs(index, starts.tolist(), runs):
            return None
        self.meter.add(read_requests=len(runs), read_bytes=data.nbytes)
        return data

    def _fetch_runs(self, index: Index, starts: list[int], runs: np.ndarray) -> bool:
        """Fill rows from byte ranges of a chunk in a store; return False if it is missing."""
        key, nbytes = self._file.place_of(index), runs.shape[1]
        came = self._blobs.fetched((key, RangeByteRequest(start, start + nbytes)) for start in starts)
        for start, row, data in zip(starts, runs, came, strict=True):
            if data is None:
                return False
            row[...] = self._complete(data, start, nbytes)
        return True

    def sieved(self, indices: Iterable[Index], within: Section) -> Iterator[Part]:
        """Yield the elements of plain chunks inside ``within``, one byte range per chunk; None for a missing chunk.

        The range extends from the chunk's first such element to its last; elements between them are skipped.
        """
        return self._own(self._sieved(list(self._turned(indices)), turned_section(within, self._order)))

    def _sieved(self, indices: list[Index], within: Section) -> Iterator[Part]:
        assert self._fetches, "local files are planned to be read in ranges"
        spans = []
        for index in indices:
            origin, piece = self._piece(index, within)
            spans.append((piece, *byte_span(piece.relative_to(origin), self._grid.chunks, self.dtype.itemsize)))
        ranges = (RangeByteRequest(start, stop) for _, start, stop in spans)
        came = self._blobs.fetched(zip(map(self._file.place_of, indices), ranges, strict=True))
        with self._batch() as missing:
            for index, (piece, start, stop), data in zip(indices, spans, came, strict=True):
                if data is None:
                    missing.add(index)
                    yield piece, None
                    continue
                data = self._complete(data, start, stop - start)
                self.meter.add(read_requests=1, read_bytes=len(data))
                yield piece, strided(data.view(self.dtype), piece.shape, self._grid.chunks)

    def _complete(self, data: np.ndarray, start: int, nbytes: int) -> np.ndarray:
        """Return the bytes of a requested range; raise if there are fewer."""
        if len(data) != nbytes:
            raise CorruptChunkError(f"a chunk of {self._file.name} is truncated: {len(data)} bytes at {start}")
        return data

    def _piece(self, index: Index, within: Section) -> tuple[Index, Section]:
        """Return a chunk's first element, and its intersection with ``within``."""
        section = self._grid.section(index)
        piece = section.intersection(within)
        assert piece is not None, "a touched chunk shares an element with the region"
        return section.lower, piece

    def whole(
        self, indices: Iterable[Index], chunks: Iterable[np.ndarray]
    ) -> Iterator[tuple[Index, np.ndarray | None]]:
        """Yield whole chunks, each read into the next of ``chunks``, which are contiguous, and clipped to the array.

        A missing chunk is None.
        """
        order = self._order
        with self._batch() as missing:
            if order is None:
                yield from self.whole_or(missing, indices, chunks)
                return
            back = inverse(order)
            rooms = (chunk.reshape(-1).reshape(self._grid.chunks) for chunk in chunks)
            for index, data in self.whole_or(missing, self._turned(indices), rooms):
                yield turned_back(index, order), None if data is None else data.transpose(back)

    def whole_or(
        self, missing: Missing, indices: Iterable[Index], chunks: Iterable[np.ndarray]
    ) -> Iterator[tuple[Index, np.ndarray | None]]:
        """Yield whole chunks with axes in storage order, and add missing ones to those of a batch."""
        indices = list(indices)
        for index, came, out in zip(indices, self._came(indices), chunks, strict=False):
            section = self._grid.section(index)
            chunk = out[section.relative_to(section.lower).slices]
            if came is None or not self._load(came, index, out, chunk):
                missing.add(index)
                yield index, None
            else:
                yield index, chunk

    def _came(self, indices: list[Index]) -> Iterator[Came | None]:
        """Return the stored chunks in order, opened or requested ahead; None for a missing one."""
        if self._through:
            return repeat("by Zarr", len(indices))
        if self._fetches:
            fetched: Iterator[np.ndarray | None] = self._blobs.fetched((self._file.place_of(i), None) for i in indices)
            return fetched
        return self._opened(indices)

    def _load(self, came: Came, index: Index, out: np.ndarray, chunk: np.ndarray) -> bool:
        """Decode a stored chunk into ``out``, of which ``chunk`` lies in the array; return False if it is missing."""
        if isinstance(came, str):
            assert self._through is not None, "these are read by Zarr"
            return self._load_by_zarr(self._through, index, chunk)
        if self._codec is not None:
            data = came.load() if isinstance(came, LocalBlob) else came
            self.meter.add(read_requests=1, read_bytes=len(data), decoded_bytes=out.nbytes)
            decode_into(self._codec, data, out, ChunkName(self._file, index))
        elif isinstance(came, LocalBlob):
            self._check_bytes(came.name, came.size)
            came.read_into(0, byte_view(out))
            self.meter.add(read_requests=1, read_bytes=out.nbytes)
        else:
            self._check_bytes(ChunkName(self._file, index), len(came))
            byte_view(out)[:] = came.data
            self.meter.add(read_requests=1, read_bytes=out.nbytes)
        return True

    def _load_by_zarr(self, through: ThroughZarr, index: Index, out: np.ndarray) -> bool:
        """Copy a chunk decoded by Zarr, to hold only the planned memory; return False if it is missing."""
        key = self._file.chunk_key(index)
        try:
            data = through.read(self._grid.section(index).slices, key)
        except RunError:
            raise
        except OSError as error:
            raise StoreFailure(f"cannot read chunk {key} of {self._file.name}: {error}") from error
        except Exception as error:  # codecs raise various errors
            raise CorruptChunkError(f"chunk {key} of {self._file.name} cannot be decoded: {error}") from error
        if is_fill(data, fill_bits(self._file)) and not self._blobs.exists(key):
            return False
        out[...] = data
        self.meter.add(decoded_bytes=self._file.stored.chunk_bytes)
        return True

    def _batch(self) -> Missing:
        return Missing(self._file.presence, self.meter, self._file.axes)

    def _opened(self, indices: list[Index]) -> Iterator[LocalBlob | None]:
        return open_ahead(self._blobs, map(self._file.place_of, indices), read_ahead=self._read_ahead)

    def _check_bytes(self, name: object, nbytes: int) -> None:
        if nbytes != self._file.stored.chunk_bytes:
            raise odd_size(name, nbytes, self._file.stored.chunk_bytes)
