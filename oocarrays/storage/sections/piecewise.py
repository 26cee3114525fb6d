"""Many sections of one array file, one after the other, each looked at while it is in a processor's cache.

    chunks asked for      1 ─ 2 ─ 3 ─ 4 …        as many under way as for one section
    pieces                1 │ 2 3 │ 4 …          each in memory that may be used again

Thakur 1995, section 6.3.1: what an aggregator reads of its domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import numpy as np

from oocarrays.mapping.orientation import inverse, turned
from oocarrays.mapping.selection import Axes
from oocarrays.plan.machine import Costs
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections.read import pieces, read_section, section_plan


def read_pieces(
    file: ArrayFile,
    sections: Sequence[Axes],
    rooms: Iterable[np.ndarray],
    *,
    meter: Meter,
    requests: int = 16,
    costs: Costs | None = None,
) -> Iterator[np.ndarray]:
    """Read sections of an array file one after the other, by this thread alone: each into the next of ``rooms``."""
    if file.chain.pipeline == "plain":
        for axes, out in zip(sections, rooms, strict=True):
            yield read_section(file, axes, out, meter=meter, requests=requests, threads=1, costs=costs)
    elif sections:
        order, file = file.stored.order, file.lying
        sections = [turned(axes, order) for axes in sections]
        requests = section_plan(file, sections[0], costs=costs).under_way(requests)
        if order is None:
            yield from _decoded(ChunkReader(file, meter, requests=requests), sections, rooms)
            return
        lying = (room.transpose(order) for room in rooms)
        for piece in _decoded(ChunkReader(file, meter, requests=requests), sections, lying):
            yield piece.transpose(inverse(order))


def _decoded(reader: ChunkReader, sections: Sequence[Axes], rooms: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Sections of coded chunks: a chunk that is a whole section is decoded in its place."""
    each = [list(pieces(reader.grid, axes)) for axes in sections]
    shape, out = reader.grid.chunks, np.empty(0, reader.dtype)
    buffer, alone = out, False

    def decoded() -> Iterator[np.ndarray]:
        nonlocal buffer
        while True:
            if not alone and buffer.shape != shape:
                buffer = np.empty(shape, reader.dtype)
            yield out if alone else buffer

    with closing(reader.whole([index for chunks in each for index, *_ in chunks], decoded())) as come:  # type: ignore[type-var]
        for chunks, out in zip(each, rooms, strict=True):
            alone = len(chunks) == 1 and out.shape == shape and out.flags.c_contiguous
            for _, there, inside in chunks:
                _, chunk = next(come)
                if chunk is None:
                    out[there] = reader.file.fill_value
                elif not alone or chunk.ctypes.data != out.ctypes.data:
                    out[there] = chunk[inside]
            yield out
