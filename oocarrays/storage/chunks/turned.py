"""Chunks with elements stored in another axis order, read and written with the array's own axes.

    array    0 1 2      chunk in its file   0 3 1 4 2 5       order (1, 0): column by column
             3 4 5

Axes are permuted here on input and output. The byte readers and writers see an array with chunks in C order; callers
see the array, in views of the same memory. Thakur 1995, section 5.4.1 (storage order).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from oocarrays.mapping.grid import Index
from oocarrays.mapping.orientation import inverse, turned, turned_back
from oocarrays.mapping.section import Section
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.chunks.writer import ChunkWriter
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.journal.receipts import UNKEPT, Unkept
from oocarrays.storage.meter import Meter
from oocarrays.storage.pool import copy, shaped

Part = tuple[Section, np.ndarray | None]


def turned_section(section: Section, order: tuple[int, ...] | None) -> Section:
    return Section(turned(section.lower, order), turned(section.upper, order))


def chunk_major(
    memory: np.ndarray,
    counts: tuple[int, ...],
    lengths: tuple[int, ...],
    dtype: np.dtype,
    order: tuple[int, ...] | None,
) -> np.ndarray:
    """View memory as a box of chunks stored one after another; ``result.shape == counts + lengths``."""
    lying = shaped(memory, counts + turned(lengths, order), dtype)
    return (
        lying if order is None else lying.transpose([*range(len(counts)), *(len(counts) + a for a in inverse(order))])
    )


class TurnedReader:
    """Reader of an array file's chunks, like `ChunkReader`, in views with the array's own axes."""

    def __init__(self, file: ArrayFile, meter: Meter, **how: Any) -> None:
        assert file.stored.order is not None, "axes are turned where elements lie in another order"
        self.file, self.meter, self.grid, self.dtype = file, meter, file.stored.grid, file.dtype
        self._order, self._back = file.stored.order, inverse(file.stored.order)
        self._reader = ChunkReader(file.lying, meter, **how)

    def announce(self, indices: Iterable[Index]) -> None:
        """Ask the system to prefetch these chunks."""
        self._reader.announce(self._turned(indices))

    def tiles(self, indices: Iterable[Index], within: Section, tile: tuple[int, ...]) -> Iterator[Part]:
        """Yield the elements of plain chunks inside ``within``, tile by tile."""
        return self._back_in(
            self._reader.tiles(self._turned(indices), turned_section(within, self._order), turned(tile, self._order))
        )

    def sieved(self, indices: Iterable[Index], within: Section) -> Iterator[Part]:
        """Yield the elements of plain chunks inside ``within``, read with one byte range per chunk."""
        return self._back_in(self._reader.sieved(self._turned(indices), turned_section(within, self._order)))

    def whole(
        self, indices: Iterable[Index], chunks: Iterable[np.ndarray]
    ) -> Iterator[tuple[Index, np.ndarray | None]]:
        """Yield whole chunks, each read into the next of ``chunks``, which must be contiguous."""
        shape = turned(self.grid.chunks, self._order)
        rooms = (chunk.reshape(-1).reshape(shape) for chunk in chunks)
        for index, data in self._reader.whole(self._turned(indices), rooms):
            yield turned_back(index, self._order), None if data is None else data.transpose(self._back)

    def _turned(self, indices: Iterable[Index]) -> Iterator[Index]:
        return (turned(index, self._order) for index in indices)

    def _back_in(self, parts: Iterator[Part]) -> Iterator[Part]:
        for section, data in parts:
            yield turned_section(section, self._back), None if data is None else data.transpose(self._back)


class TurnedWriter:
    """Writer of an array file's whole chunks, like `ChunkWriter`, from arrays with the array's own axes."""

    def __init__(self, file: ArrayFile, meter: Meter, **how: Any) -> None:
        assert file.stored.order is not None, "axes are turned where elements lie in another order"
        self.file, self._order = file, file.stored.order
        self._writer = ChunkWriter(file.lying, meter, **how)

    def write_all(self, chunks: Iterable[tuple[Index, np.ndarray]], receipts: Unkept = UNKEPT) -> None:
        """Store whole chunks, each padded to its full length; a chunk already in storage order is not copied."""
        self._writer.write_all(((turned(i, self._order), self._lying(chunk)) for i, chunk in chunks), receipts)

    def _lying(self, chunk: np.ndarray) -> np.ndarray:
        lying = chunk.transpose(self._order)
        if lying.flags.c_contiguous:
            return lying
        out = np.empty(lying.shape, lying.dtype)
        copy(out, lying)
        return out


Reader = ChunkReader | TurnedReader
Writer = ChunkWriter | TurnedWriter


def chunk_reader(file: ArrayFile, meter: Meter, **how: Any) -> Reader:
    """Return the reader of an array file's chunks; see `ChunkReader`."""
    return (ChunkReader if file.stored.order is None else TurnedReader)(file, meter, **how)


def chunk_writer(file: ArrayFile, meter: Meter, **how: Any) -> Writer:
    """Return the writer of an array file's chunks; see `ChunkWriter`."""
    return (ChunkWriter if file.stored.order is None else TurnedWriter)(file, meter, **how)
