"""Laying out pieces of chunks as they are stored, and placing them in unfinished chunks.

    source chunks ─► stage: some rows of a piece, in the target's order and on sectors ─► its runs in the chunk's file

A piece of nothing but the fill value is not placed: a chunk of which nothing is placed is not stored at all. Where
others place something in that chunk, the fill value is placed before it gets its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from oocarrays.mapping.section import Section
from oocarrays.storage.chunks.access import element_runs, fill_bits, is_fill
from oocarrays.storage.chunks.unfinished import UnfinishedChunks
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.meter import Meter
from oocarrays.storage.pool import shaped
from oocarrays.storage.stores.blobs import LocalBlobs, byte_view

Index = tuple[int, ...]
Take = Callable[[Section, np.ndarray], None]
"""Fills an array with some elements of the source, of which the section is given."""


class Assembler:
    """Places pieces in the chunks of one plain array file.

    Parameters
    ----------
    mark : str
        What is in the names of unfinished chunks.
    past_cache : bool
        Whether to write past the system's cache; all runs of all pieces lie on sectors then.
    """

    def __init__(self, file: ArrayFile, meter: Meter, mark: str, *, past_cache: bool) -> None:
        assert file.folder is not None, "what is assembled is in local files"
        self.file, self.meter = file, meter
        self.grid = file.stored.grid
        self.chunks = UnfinishedChunks(file.folder, mark, file.stored.chunk_bytes, past_cache=past_cache)
        self._blobs = LocalBlobs(file.folder)
        self._fill = fill_bits(file)
        self.fill_is_zeros = not any(self._fill)
        """Whether what nobody has placed is the fill value."""

    def place(self, index: Index, piece: Section, stage: np.ndarray, tile: Index, take: Take) -> bool:
        """Place a piece of a chunk, unless it holds nothing but the fill value.

        Parameters
        ----------
        piece : Section
            As it lies in the chunk, with what is beyond the array's edge.
        stage : numpy.ndarray
            Memory for ``tile`` elements.
        tile : tuple of int
            How much of a piece is laid out at a time.

        Returns
        -------
        bool
            Whether it was placed.
        """
        before: list[Section] = []
        placed = False
        for part in _tiles(piece, tile):
            laid = self._laid(index, part, stage, take)
            if not placed and is_fill(laid, self._fill):
                before.append(part)
                continue
            if before:  # for which the stage is used
                self._put_fill(index, before, stage)
                before, laid = [], self._laid(index, part, stage, take)
            self._put(index, part, laid)
            placed = True
        return placed

    def place_fill(self, index: Index, piece: Section, stage: np.ndarray, tile: Index) -> None:
        """Place the fill value, whether or not anything else is in the chunk."""
        self._put_fill(index, _tiles(piece, tile), stage)

    def _put_fill(self, index: Index, parts: Iterable[Section], stage: np.ndarray) -> None:
        for part in parts:
            laid = shaped(stage, part.shape, self.file.dtype)
            laid[...] = self.file.fill_value
            self._put(index, part, laid)

    def _laid(self, index: Index, part: Section, stage: np.ndarray, take: Take) -> np.ndarray:
        """Some rows of a piece as the chunk has them; the fill value beyond the array's edge."""
        laid = shaped(stage, part.shape, self.file.dtype)
        origin = tuple(i * c for i, c in zip(index, self.grid.chunks, strict=True))
        lower = tuple(o + l for o, l in zip(origin, part.lower, strict=True))
        upper = tuple(min(o + u, n) for o, u, n in zip(origin, part.upper, self.grid.shape, strict=True))
        there = tuple(u - l for l, u in zip(lower, upper, strict=True))
        if there != part.shape:
            laid[...] = self.file.fill_value
        if min(there, default=1) > 0:
            take(Section(lower, upper), laid[(*map(slice, there), ...)])
        return laid

    def _put(self, index: Index, part: Section, laid: np.ndarray) -> None:
        starts, _ = element_runs(part, self.grid.chunks)
        self.chunks.write_runs(self.file.chunk_key(index), (starts * laid.itemsize).tolist(), byte_view(laid))

    def finish(self, index: Index) -> bool:
        """Give a chunk its name; whether it is stored: nothing is, where nothing was placed."""
        if not self.chunks.finish(self.file.chunk_key(index)):
            return False
        self.meter.add(write_requests=1, written_bytes=self.file.stored.chunk_bytes)
        return True

    def skip(self, index: Index, *, fresh: bool) -> None:
        """Store nothing of a chunk: it holds nothing but the fill value."""
        if not fresh:
            self._blobs.remove(self.file.chunk_key(index))
        self.meter.add(skipped_chunks=1)


def _tiles(piece: Section, tile: Index) -> Iterator[Section]:
    """A piece in rows of its first long axis."""
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
