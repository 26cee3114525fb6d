"""File domains: the part of a file that one rank reads or writes for all.

    requests of ranks     · · 0 0 1 1 · · 2 2 · ·
    static                A A A B B B C C C D D D      the whole array is dealt out: A reads 1, B 3, C 2, D nothing
    dynamic               · · A A B B C C D D · ·      the bounding section of all requests is dealt out

Domains are cut on chunk boundaries, so that each chunk has one owner. Thakur 1995, sections 6.3.1 and 6.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from oocarrays.mapping.grid import ChunkGrid, boxes, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, hull

Partition = Literal["dynamic", "static"]
"""Whether the bounding section of all requests is dealt out, or the whole array."""
Deal = Literal["block", "cyclic"]
"""Whether a rank's part is contiguous in the file, or dealt out in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """What one aggregator reads or writes for all."""

    rank: int
    """The rank that does it."""
    boxes: tuple[Section, ...]
    """In file order; each made of whole chunks, but for the array's edge."""


def file_domains(
    grid: ChunkGrid, requests: Sequence[Axes], aggregators: Sequence[int], *, partition: Partition = "dynamic"
) -> tuple[Domain, ...]:
    """The domains of ranks: chunks in file order, as many each as can be.

    >>> grid = ChunkGrid.of((12, 4), (1, 4))
    >>> [d.boxes for d in file_domains(grid, [(range(4, 8), range(4))], [0, 1])]
    [(Section(lower=(4, 0), upper=(6, 4)),), (Section(lower=(6, 0), upper=(8, 4)),)]
    """
    ndim = len(grid.shape)
    bounding = hull(requests, ndim) if partition == "dynamic" else Section((0,) * ndim, grid.shape)
    touched = grid.touched(bounding)
    counts = tuple(map(len, touched))
    first = tuple(chunks.start for chunks in touched)
    count = 1
    for n in counts:
        count *= n
    share = ceil_div(count, len(aggregators))
    return tuple(
        Domain(rank=rank, boxes=tuple(_box(grid, first, *ends) for ends in boxes(numbers, counts)))
        for rank, numbers in (
            (rank, range(min(i * share, count), min((i + 1) * share, count))) for i, rank in enumerate(aggregators)
        )
    )


def _box(grid: ChunkGrid, first: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...]) -> Section:
    """A box of chunks, counted from ``first``, as a section."""
    return grid.block(
        tuple(f + i for f, i in zip(first, low, strict=True)), tuple(f + i for f, i in zip(first, high, strict=True))
    )
