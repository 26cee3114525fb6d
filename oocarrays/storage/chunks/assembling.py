"""Assembly of chunk pieces in storage order, and their placement in unfinished chunks.

    source chunks ─► stage: pieces of many chunks, or rows of a long one, in target order ─► their runs in files

A piece that holds only the fill value is not placed, and a chunk without placed pieces is not stored. If other pieces
of that chunk are placed, the fill value is placed before the chunk gets its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from oocarrays.mapping.grid import Index, turned
from oocarrays.mapping.section import Section
from oocarrays.storage.chunks.elements import chunk_major, element_runs, fill_bits, is_fill, turned_section
from oocarrays.storage.chunks.unfinished import UnfinishedChunks
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.local.blobs import LocalBlobs, byte_view, checksum
from oocarrays.storage.meter import Meter
from oocarrays.storage.pool import shaped
from oocarrays.storage.stores.store_blobs import blobs_of

Take = Callable[[Section, np.ndarray], None]
"""Function that copies the elements of a source section into a buffer of ``counts + pieces``, as `scatter` does."""


class Assembler:
    """Assembler that places pieces in the chunks of one plain array file."""

    def __init__(self, file: ArrayFile, meter: Meter, mark: str, *, past_cache: bool) -> None:
        blobs = blobs_of(file.zarr)
        assert isinstance(blobs, LocalBlobs), "what is assembled is in local files"
        self.file, self.meter = file, meter
        self.grid, self.dtype, self._order = file.stored.grid, file.dtype, file.stored.order
        self.chunks = UnfinishedChunks(blobs, mark, file.stored.chunk_bytes, past_cache=past_cache)
        self.key = lru_cache(2**13)(file.chunk_key)
        """Key of a chunk, cached because each box requests keys of the same chunks: a MiB of them."""
        self._fill = fill_bits(file)
        self.fill_is_zeros = not any(self._fill)
        """Whether unwritten bytes equal the fill value."""

    def place(
        self,
        first: Index,
        counts: Index,
        piece: Section,
        stage: np.ndarray,
        tile: Index,
        take: Take,
        kept: Collection[str] = (),
    ) -> Iterator[tuple[Index, str, int | None]]:
        """Place the same piece of adjacent chunks, unless it holds only the fill value.

        Yields
        ------
        tuple
            Index and key of each chunk, and the checksum of its placed piece, as in `sum_of`; None if none was placed.
        """
        parts = list(_tiles(piece, tile)) if set(counts) <= {1} else [piece]
        if len(parts) > 1:
            key = self.key(first)
            yield first, key, None if key in kept else self._place_long(first, key, parts, stage, take)
            return
        laid, starts = self._laid(first, counts, piece, stage, take), self._starts(piece)
        for number in product(*map(range, counts)):
            index = tuple(f + i for f, i in zip(first, number, strict=True))
            here: Any = (*number, ...)
            key, data = self.key(index), laid[here]
            if key in kept or is_fill(data, self._fill):
                yield index, key, None
                continue
            elements = byte_view(data)
            self.chunks.write_runs(key, starts, elements)
            yield index, key, checksum(elements)

    def _place_long(self, index: Index, key: str, parts: list[Section], stage: np.ndarray, take: Take) -> int | None:
        """Place a long piece a few rows at a time; place rows of the fill value only if other rows differ."""
        before: list[Section] = []
        placed: int | None = None
        for part in parts:
            laid = self._laid(index, (1,) * len(index), part, stage, take)
            if placed is None and is_fill(laid, self._fill):
                before.append(part)
                continue
            if before:  # the fill value overwrites the stage, so it is refilled
                self._put_fill(key, before, stage)
                before, laid = [], self._laid(index, (1,) * len(index), part, stage, take)
            self.chunks.write_runs(key, self._starts(part), byte_view(laid))
            placed = (placed or 0) + self._sum(laid)
        return placed

    def place_fill(self, index: Index, piece: Section, stage: np.ndarray, tile: Index) -> None:
        """Place the fill value, whether or not the chunk holds other pieces."""
        self._put_fill(self.key(index), _tiles(piece, tile), stage)

    def _put_fill(self, key: str, parts: Iterable[Section], stage: np.ndarray) -> None:
        for part in parts:
            laid = shaped(stage, part.shape, self.dtype)
            laid[...] = self.file.fill_value
            self.chunks.write_runs(key, self._starts(part), byte_view(laid))

    def _starts(self, part: Section) -> list[int]:
        """Return the byte offsets at which the runs of a part start in a chunk's file."""
        starts: list[int] = (
            element_runs(turned_section(part, self._order), turned(self.grid.chunks, self._order))[0]
            * self.dtype.itemsize
        ).tolist()
        return starts

    def _laid(self, first: Index, counts: Index, part: Section, stage: np.ndarray, take: Take) -> np.ndarray:
        """Return a part of several chunks in chunk-major storage order, with the fill value beyond the array's edge."""
        laid = chunk_major(stage, counts, part.shape, self.dtype, self._order)
        lower = tuple(i * c + l for i, c, l in zip(first, self.grid.chunks, part.lower, strict=True))
        ends = [l + k * m for l, k, m in zip(lower, counts, part.shape, strict=True)]
        upper = tuple(map(min, ends, self.grid.shape))
        if list(upper) != ends:
            laid[...] = self.file.fill_value
        if all(l < u for l, u in zip(lower, upper, strict=True)):
            take(Section(lower, upper), laid)
        return self._lying(laid)

    def _lying(self, laid: np.ndarray) -> np.ndarray:
        """Return the same elements with each chunk's axes in storage order."""
        others = laid.ndim - len(self.grid.chunks)
        return laid.transpose([*range(others), *turned(range(others, laid.ndim), self._order)])

    # ------------------------------------------------------------------ stored chunks

    def _sum(self, laid: np.ndarray) -> int:
        """Return a checksum of elements, 0 for the fill value, so that it is equal whether or not that was placed."""
        return 0 if is_fill(laid, self._fill) else checksum(byte_view(laid))

    def sum_of(self, chunk: np.ndarray, piece: Section, tile: Index) -> int:
        """Return the checksum of a piece of a stored chunk, comparable with that from `place`."""
        return sum(self._sum(np.ascontiguousarray(self._lying(chunk[part.slices]))) for part in _tiles(piece, tile))

    def read(self, index: Index) -> np.ndarray | None:
        """Return a finished or unfinished chunk; None if no such file exists, or if it is incomplete."""
        data = self.chunks.read(self.key(index))
        return None if data is None else chunk_major(data, (), self.grid.chunks, self.dtype, self._order)

    # ------------------------------------------------------------------ finishing

    def finish(self, index: Index) -> bool:
        """Rename an unfinished chunk to its final name; return False if it has no unfinished file."""
        if not self.chunks.finish(self.key(index)):
            return False
        self.meter.add(write_requests=1, written_bytes=self.file.stored.chunk_bytes)
        return True

    def skip(self, index: Index, *, fresh: bool) -> None:
        """Store no file for a chunk that holds only the fill value; delete an old one unless the array is ``fresh``."""
        if not fresh:
            self.chunks.discard(self.key(index))
        self.meter.add(skipped_chunks=1)


def _tiles(piece: Section, tile: Index) -> Iterator[Section]:
    """Yield a piece in blocks of rows along its first axis longer than the tile."""
    lengths: list[Any] = list(zip(piece.lower, piece.upper, tile, strict=True))
    long = [axis for axis, (l, u, t) in enumerate(lengths) if u - l > t]
    if not long:
        yield piece
        return
    axis, step = long[0], tile[long[0]]
    for start in range(piece.lower[axis], piece.upper[axis], step):
        lower, upper = list(piece.lower), list(piece.upper)
        lower[axis], upper[axis] = start, min(start + step, piece.upper[axis])
        yield Section(tuple(lower), tuple(upper))
