"""Reading the chunks of one array file, whole or in byte ranges.

    ChunkReader.tiles(indices, section)   byte ranges of plain chunks, a tile at a time
    ChunkReader.whole(indices, chunks)    whole chunks, decoded

    array    0 1 2      chunk in its file   0 3 1 4 2 5       order (1, 0): column by column
             3 4 5

The tile inverts PASSION's sieving (Thakur 1995, section 5.5.1): each read is cut so that it stays in a core's cache
until it is copied. Storage order: section 5.4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from zarr.abc.store import RangeByteRequest

from oocarrays.errors import CorruptChunkError, RunError, StoreFailure
from oocarrays.mapping.grid import Index, inverse, turned, turned_back
from oocarrays.mapping.section import Section
from oocarrays.storage.chunks.elements import byte_span, cut, element_runs, fill_bits, is_fill, strided, turned_section
from oocarrays.storage.chunks.places import ThroughZarr, through_zarr
from oocarrays.storage.codecs.codec import decode_into
from oocarrays.storage.codecs.shards import ShardedBlobs
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.presence import Missing
from oocarrays.storage.local.blobs import LocalBlob, MissingBlob, byte_view, odd_size
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.store_blobs import PartBlob, StoreBlob, StoreBlobs, all_bytes, blobs_of, open_ahead

Blob = LocalBlob | StoreBlob | PartBlob
Part = tuple[Section, np.ndarray | None]
"""Section of an array, and its elements; None if they are not stored."""


class ChunkReader:
    """Reader of the chunks of one array file, in views with the array's own axes.

    Inside, axes are in storage order, in which a chunk is in C order: they are permuted on input and output.
    """

    def __init__(self, file: ArrayFile, meter: Meter, *, read_ahead: bool = False, requests: int = 1) -> None:
        self.file, self.meter = file, meter
        self.grid, self.dtype, self._order = file.stored.grid, file.dtype, file.stored.order
        self._file = file = file.lying
        self._grid = file.stored.grid
        self._read_ahead = read_ahead
        self._codec = file.chain.compressor
        self._blobs: Any = blobs_of(file.zarr, requests=requests)
        self._fetches = isinstance(self._blobs, StoreBlobs)
        self._stored = self._blobs
        if file.chain.shard:
            self._blobs = ShardedBlobs(self._blobs, file.chain.shard, meter)
        self._through = through_zarr(file, meter)

    def announce(self, indices: Iterable[Index]) -> None:
        """Ask the system to prefetch these chunks in the background, if read-ahead is on."""
        if self._read_ahead:
            self._blobs.announce(map(self._file.place_of, self._turned(indices)))

    def _turned(self, indices: Iterable[Index]) -> Iterable[Index]:
        """Return indices of chunks with axes in storage order."""
        return indices if self._order is None else (turned(index, self._order) for index in indices)

    def _turned_back(self, parts: Iterator[Part]) -> Iterator[Part]:
        """Yield parts with the array's own axes."""
        assert self._order is not None, "else axes are in storage order"
        back = inverse(self._order)
        for section, data in parts:
            yield turned_section(section, back), None if data is None else data.transpose(back)

    def tiles(self, indices: Iterable[Index], within: Section, tile: tuple[int, ...]) -> Iterator[Part]:
        """Yield the elements of plain chunks inside ``within``, tile by tile; None for a missing chunk.

        The next tile overwrites the array.
        """
        order = self._order
        if order is None:
            return self._tiles(indices, within, tile)
        return self._turned_back(self._tiles(self._turned(indices), turned_section(within, order), turned(tile, order)))

    def _tiles(self, indices: Iterable[Index], within: Section, tile: tuple[int, ...]) -> Iterator[Part]:
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

    def sieved(self, indices: Iterable[Index], within: Section) -> Iterator[Part]:
        """Yield the elements of plain chunks inside ``within``, one byte range per chunk; None for a missing chunk.

        The range extends from the chunk's first such element to its last; elements between them are skipped.
        """
        order = self._order
        if order is None:
            return self._sieved(indices, within)
        return self._turned_back(self._sieved(self._turned(indices), turned_section(within, order)))

    def _sieved(self, indices: Iterable[Index], within: Section) -> Iterator[Part]:
        wanted, spans = list(indices), []
        for index in wanted:
            origin, piece = self._piece(index, within)
            spans.append((piece, *byte_span(piece.relative_to(origin), self._grid.chunks, self.dtype.itemsize)))
        assert self._fetches, "local files are planned to be read in ranges"
        keys = map(self._file.place_of, wanted)
        ranges = (RangeByteRequest(start, stop) for _, start, stop in spans)
        come = self._blobs.fetched(zip(keys, ranges, strict=True))
        with self._batch() as missing:
            for index, (piece, start, stop), data in zip(wanted, spans, come, strict=True):
                if data is None:
                    missing.add(index)
                    yield piece, None
                    continue
                if len(data) != stop - start:
                    raise CorruptChunkError(f"a chunk of {self._file.name} is truncated: {len(data)} bytes at {start}")
                self.meter.add(read_requests=1, read_bytes=len(data))
                yield piece, strided(data.view(self.dtype), piece.shape, self._grid.chunks)

    def _batch(self) -> Missing:
        """Return a collector that reports missing chunks after a batch is read."""
        return Missing(self._file.presence, self.meter, self._file.axes)

    def _piece(self, index: Index, within: Section) -> tuple[Index, Section]:
        """Return a chunk's first element, and its intersection with ``within``."""
        section = self._grid.section(index)
        piece = section.intersection(within)
        assert piece is not None, "a touched chunk shares an element with the region"
        return section.lower, piece

    def _opened(self, indices: Iterable[Index]) -> Iterator[tuple[Index, Blob | None]]:
        wanted = list(indices)
        keys = map(self._file.place_of, wanted)
        return zip(wanted, open_ahead(self._blobs, keys, read_ahead=self._read_ahead), strict=True)

    def _read_tile(self, blob: Blob | None, part: Section, bounce: np.ndarray) -> np.ndarray:
        if blob is None:
            raise MissingBlob
        data = bounce.reshape(-1)[: part.size].reshape(part.shape)
        starts, length = element_runs(part, self._grid.chunks)
        runs = data.reshape(-1).view(np.uint8).reshape(len(starts), length * self.dtype.itemsize)
        blob.read_runs(starts * self.dtype.itemsize, runs)
        self.meter.add(read_requests=len(runs), read_bytes=data.nbytes)
        return data

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
        for index, chunk in self._each_whole(indices, chunks):
            if chunk is None:
                missing.add(index)
            yield index, chunk

    def _each_whole(
        self, indices: Iterable[Index], chunks: Iterable[np.ndarray]
    ) -> Iterator[tuple[Index, np.ndarray | None]]:
        if self._through:
            yield from self._whole_through(self._through, indices, chunks)
            return
        if self._fetches:
            yield from self._whole_fetched(list(indices), chunks)
            return
        for (index, blob), out in zip(self._opened(indices), chunks, strict=False):
            section = self._grid.section(index)
            try:
                self._fill(blob, index, out)
                yield index, out[section.relative_to(section.lower).slices]
            except MissingBlob:
                yield index, None

    def _whole_through(
        self, through: ThroughZarr, indices: Iterable[Index], chunks: Iterable[np.ndarray]
    ) -> Iterator[tuple[Index, np.ndarray | None]]:
        """Copy chunks decoded by Zarr, so that a caller that keeps several holds only the planned memory."""
        for index, out in zip(indices, chunks, strict=False):
            section = self._grid.section(index)
            chunk = out[section.relative_to(section.lower).slices]
            yield index, chunk if self._through_zarr(through, index, chunk) else None

    def _whole_fetched(
        self, indices: list[Index], chunks: Iterable[np.ndarray]
    ) -> Iterator[tuple[Index, np.ndarray | None]]:
        keys = ((self._file.place_of(index), None) for index in indices)
        for index, data, out in zip(indices, self._blobs.fetched(keys), chunks, strict=False):
            section = self._grid.section(index)
            if data is not None:
                self._take(data, f"chunk {self._name(index)} of {self._file.name}", out)
            yield index, None if data is None else out[section.relative_to(section.lower).slices]

    def _take(self, data: np.ndarray, name: str, out: np.ndarray) -> None:
        """Decode a stored chunk into ``out``."""
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
        name = f"chunk {self._name(index)} of {self._file.name}"
        if self._codec is None:
            self._check_bytes(blob.name, blob.size)
            blob.read_into(0, byte_view(out))
            self.meter.add(read_requests=1, read_bytes=out.nbytes)
            return
        self._take(all_bytes(blob), name, out)

    def _name(self, index: Index) -> str:
        """Return a chunk's key, with its number if it is in a shard."""
        key = self._file.place_of(index)
        return key if isinstance(key, str) else f"{key.number} in {key.shard}"

    def _check_bytes(self, name: str, nbytes: int) -> None:
        if nbytes != self._file.stored.chunk_bytes:
            raise odd_size(name, nbytes, self._file.stored.chunk_bytes)

    def _through_zarr(self, through: ThroughZarr, index: Index, out: np.ndarray) -> bool:
        """Read a chunk through Zarr; return False if it is missing, which Zarr reads as fill values."""
        try:
            data = through.read(self._grid.section(index).slices, self._file.chunk_key(index))
        except RunError:
            raise
        except OSError as error:
            raise StoreFailure(
                f"cannot read chunk {self._file.chunk_key(index)} of {self._file.name}: {error}"
            ) from error
        except Exception as error:  # codecs raise various errors
            raise CorruptChunkError(
                f"chunk {self._file.chunk_key(index)} of {self._file.name} cannot be decoded: {error}"
            ) from error
        if is_fill(data, fill_bits(self._file)) and not self._stored.exists(self._file.chunk_key(index)):
            return False
        out[...] = data
        self.meter.add(decoded_bytes=self._file.stored.chunk_bytes)
        return True
