"""A pass as one process has it open: what it reads from and writes to, and regions of target chunks in memory.

source chunks ─► parts ─► region: its chunks one behind the other ─► chunks, as they are written
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import product, repeat
from typing import Any

import numpy as np

from oocarrays.graphs.rechunk.assembly import Assembly
from oocarrays.mapping.grid import Index
from oocarrays.mapping.section import Section
from oocarrays.plan.rechunk.passes import ChunkBox, Pass
from oocarrays.storage.chunks.elements import common
from oocarrays.storage.chunks.turned import Reader, Writer, chunk_major
from oocarrays.storage.pool import shaped


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPass:
    """The files that one pass reads from and writes to, in this process."""

    step: Pass
    """The pass."""
    reader: Reader
    """Reads what it reads."""
    writer: Writer
    """Writes what it writes."""
    assembly: Assembly | None
    """Chunks that are assembled, where any are."""
    fill_value: Any
    """The value of what is not stored."""

    def parts(
        self, indices: Iterable[Index], section: Section, chunk: np.ndarray
    ) -> Iterator[tuple[Section, np.ndarray | None]]:
        """Yield what some source chunks have of ``section``, as the pass reads it; None for a chunk that is missing."""
        step, reader = self.step, self.reader
        if step.access == "sieved":
            yield from reader.sieved(indices, section)
        elif step.access == "ranges":
            yield from reader.tiles(indices, section, step.tile)
        else:
            for index, data in reader.whole(indices, repeat(self.chunk_view(chunk))):
                yield from common(step.source.grid.section(index), section, data)

    def chunk_view(self, buffer: np.ndarray) -> np.ndarray:
        """View a buffer as one chunk of what the pass reads."""
        return shaped(buffer, self.reader.grid.chunks, self.reader.dtype)

    def region(self, box: ChunkBox, buffer: np.ndarray, blank: bool = True) -> np.ndarray:
        """View the chunks of a box in a buffer, one contiguous chunk after the other."""
        grid, file = self.step.target.grid, self.writer.file
        counts = tuple(b - a for a, b in zip(*box, strict=True))
        region = chunk_major(buffer, counts, grid.chunks, file.dtype, file.stored.order)
        if blank:
            for axis, (last, n, c) in enumerate(zip(box[1], grid.shape, grid.chunks, strict=True)):
                if last * c > n:
                    padding: list[Any] = [slice(None)] * region.ndim
                    padding[axis], padding[len(counts) + axis] = -1, slice(n - (last - 1) * c, None)
                    region[tuple(padding)] = self.fill_value
        return region

    def chunks(
        self, box: ChunkBox, region: np.ndarray, stored: Container[str] = ()
    ) -> Iterator[tuple[Index, np.ndarray]]:
        """Yield the chunks of a region, but for those that are ``stored`` under their keys."""
        key = self.writer.file.chunk_key
        for index in product(*map(range, *box)):
            if not (stored and key(index) in stored):
                place: Any = (*(i - a for i, a in zip(index, box[0], strict=True)), ...)
                yield index, region[place]
