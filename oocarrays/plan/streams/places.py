"""Places of bytes: which chunk of which segment holds some bytes of some streams, and where in it.

    cell 5, bytes 60 … 70 of NB, b = 8   ──►  row 7 from byte 4, 4 bytes;  row 8 from byte 0, 6 bytes

A row is one block of every cell. Chunks hold some rows of some cells, so that every piece is a run of bytes of a chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from oocarrays.plan.streams.units import before, spread


class Pieces(NamedTuple):
    """Runs of bytes in chunks, and where they go in a result."""

    chunk: np.ndarray
    """Number of the chunk."""
    place: np.ndarray
    """Bytes of the chunk before it."""
    into: np.ndarray
    """Bytes of the result before it."""
    count: np.ndarray  # type: ignore[assignment]
    """Bytes of it."""

    def by_chunk(self) -> list[tuple[int, Pieces]]:
        """Gather pieces by the chunk that they are in."""
        if len(self.chunk) == 1:
            return [(int(self.chunk[0]), self)]
        order = np.argsort(self.chunk, kind="stable")
        ordered = Pieces(*(each[order] for each in self))
        ends = np.flatnonzero(np.diff(ordered.chunk, append=-1)) + 1 if len(order) else np.empty(0, np.int64)
        starts = [0, *ends[:-1].tolist()]
        cuts = [slice(a, b) for a, b in zip(starts, ends.tolist(), strict=False)]
        return [(int(ordered.chunk[c.start]), Pieces(*(each[c] for each in ordered))) for c in cuts]


class Chunking(NamedTuple):
    """The cells and rows of one chunk of a segment of NB or CB."""

    block: int
    """Bytes of a block."""
    rows: int
    """Rows of a chunk."""
    width: int
    """Cells of a chunk."""
    columns: int
    """Chunks beside each other, for all cells."""

    @property
    def nbytes(self) -> int:
        """Bytes of a chunk."""
        return self.rows * self.width * self.block

    def number(self, row: int, column: int) -> int:
        """Number of the chunk that holds a row of a column of chunks."""
        return row // self.rows * self.columns + column

    def pieces(self, cells: np.ndarray, offsets: np.ndarray, counts: np.ndarray, into: np.ndarray) -> Pieces:
        """Return where bytes of some cells lie.

        Examples
        --------
        >>> one, zero = np.array([5]), np.array([0])
        >>> [e.tolist() for e in Chunking(8, 2, 10, 1).pieces(one, np.array([60]), np.array([10]), zero)]
        [[3, 4], [124, 40], [0, 4], [4, 6]]
        """
        some = np.flatnonzero(counts)
        cells, offsets, counts, into = cells[some], offsets[some], counts[some], into[some]
        ends = offsets + counts
        rows = (ends - 1) // self.block - offsets // self.block + 1
        of = np.repeat(np.arange(len(cells)), rows)
        row = spread(offsets // self.block, rows)
        lower = np.maximum(row * self.block, offsets[of])
        upper = np.minimum((row + 1) * self.block, ends[of])
        chunk = row // self.rows * self.columns + cells[of] // self.width
        place = ((row % self.rows) * self.width + cells[of] % self.width) * self.block + lower - row * self.block
        return Pieces(chunk, place, into[of] + lower - offsets[of], upper - lower)


class Segments(NamedTuple):
    """The parts of bytes of some cells in each segment, and beyond what is there."""

    nb: tuple[np.ndarray, np.ndarray, np.ndarray]
    """Of each cell the first byte in the segment, the bytes, and where they are in a result."""
    cb: tuple[np.ndarray, np.ndarray, np.ndarray]
    ib: tuple[np.ndarray, np.ndarray, np.ndarray]
    beyond: tuple[np.ndarray, np.ndarray, np.ndarray]
    """The first byte beyond the end of the stream, counted from there."""


def segments(offsets: np.ndarray, counts: np.ndarray, nb_end: int, cb_end: int, ends: np.ndarray) -> Segments:
    """Divide bytes of some cells over the segments of a file.

    Examples
    --------
    >>> found = segments(np.array([6]), np.array([10]), 8, 12, np.array([14]))
    >>> [[part.tolist() for part in each] for each in found]
    [[[6], [2], [0]], [[0], [4], [2]], [[0], [2], [6]], [[0], [2], [8]]]
    """
    into, upper = before(counts), offsets + counts
    bounds = (np.zeros_like(ends), np.full_like(ends, nb_end), np.full_like(ends, cb_end), ends)
    parts = []
    for lower, limit in zip(bounds, (*bounds[1:], upper), strict=True):
        first = np.maximum(offsets, lower)
        count = np.maximum(np.minimum(upper, limit) - first, 0)
        parts.append((np.where(count > 0, first - lower, 0), count, into + np.where(count > 0, first - offsets, 0)))
    return Segments(*parts)
