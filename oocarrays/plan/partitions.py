"""Partitions of a global array: boxes of whole chunks, in file order, each of which fits in memory.

    chunks 4 × 4, room for 5        0 0 0 0        room for 2        0 0 1 1
                                    1 1 1 1                          2 2 3 3
                                    2 2 2 2                          …
Thakur 1995, section 5.3.2: the partitioned in-core model.
"""

from __future__ import annotations

from itertools import product

from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.orientation import chunks_along
from oocarrays.mapping.section import Section


def partitions(grid: ChunkGrid, room: int) -> tuple[Section, ...]:
    """Boxes of at most ``room`` chunks each, one chunk at least.

    >>> partitions(ChunkGrid.of((5, 8), (2, 4)), 4)
    (Section(lower=(0, 0), upper=(4, 8)), Section(lower=(4, 0), upper=(5, 8)))
    """
    counts = grid.counts
    box = ChunkGrid.of(counts, chunks_along(range(len(counts)), counts, room))
    indices = map(box.section, product(*map(range, box.counts)))
    return tuple(grid.block(chunks.lower, chunks.upper) for chunks in indices)
