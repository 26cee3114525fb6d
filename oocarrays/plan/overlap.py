"""How regions lie over chunks: counted for one axis, multiplied for many.

    chunks    │    0    │    1    │    2    │         chunk = 4
    regions   │      0      │      1      │           region = 6
    pieces    │    a    │ b │  c  │   d   │           cut wherever either ends

A piece is what one region needs of one chunk. Its contiguous runs follow from the last axis in which it does not
span the chunk: with that *run axis* k, a run is one element of every axis before k, and the whole of those after.
So the pieces' requests are sums over k of products of one-axis sums, and no piece is ever listed.
(del Rosario, Bordawekar, Choudhary 1993, section 3, counts requests so for its distributions.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from oocarrays.mapping.grid import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AxisOverlap:
    """One axis: regions over chunks."""

    extent: int
    """Elements of the axis."""
    pieces: int
    """Pairs of a region and a chunk that share an element."""
    spanning: int
    """Pieces that span their stored chunk."""
    cut_tiles: int
    """Tiles of the other pieces."""
    whole_tiles: int
    """Tiles of the pieces that span."""
    touched: np.ndarray
    """Chunks that each region touches."""


@lru_cache(maxsize=8192)
def axis_overlap(extent: int, chunk: int, region: int, tile: int) -> AxisOverlap:
    """Count one axis of ``extent`` elements, cut in chunks and in regions; pieces are read in tiles.

    >>> a = axis_overlap(12, 4, 6, 4)
    >>> a.pieces, a.spanning, a.touched.tolist()
    (4, 2, [2, 2])
    """
    lengths, in_region = _pieces(extent, chunk, region)
    spans = lengths == chunk
    tiles = -(-lengths // tile)
    return AxisOverlap(
        extent=extent,
        pieces=len(lengths),
        spanning=int(spans.sum()),
        cut_tiles=int(tiles[~spans].sum()),
        whole_tiles=int(tiles[spans].sum()),
        touched=np.bincount(in_region, minlength=ceil_div(extent, region)),
    )


def _pieces(extent: int, chunk: int, region: int) -> tuple[np.ndarray, np.ndarray]:
    cuts = np.sort(np.concatenate([np.arange(0, extent, chunk), np.arange(0, extent, region), [extent]]))
    lengths = np.diff(cuts)
    return lengths[lengths > 0], cuts[:-1][lengths > 0] // region


def range_requests(axes: Sequence[AxisOverlap]) -> int:
    """Contiguous runs, cut in tiles, that all regions read of all chunks.

    >>> rows = axis_overlap(8, 2, 8, 2)      # one region takes all rows of 4 chunks ...
    >>> half = axis_overlap(6, 6, 3, 3)      # ... and half of every row: a run a row
    >>> range_requests([rows, half])
    16
    """
    if not axes:
        return 1
    total = 0
    for k, axis in enumerate(axes):
        tiles = axis.cut_tiles + (axis.whole_tiles if k == 0 else 0)
        total += math.prod(a.extent for a in axes[:k]) * tiles * math.prod(a.whole_tiles for a in axes[k + 1 :])
    return total


def chunk_visits(axes: Sequence[AxisOverlap]) -> int:
    """Pairs of a region and a chunk that it touches."""
    return math.prod(a.pieces for a in axes)


def span_elements(axes: Sequence[AxisOverlap], chunks: Sequence[int]) -> int:
    """Stored elements from the first to the last of each piece, of all pieces together: what is sieved.

    >>> rows = axis_overlap(8, 2, 8, 2)      # one region takes all rows of 4 chunks ...
    >>> half = axis_overlap(6, 6, 3, 3)      # ... and half of every row: 3 + 3 + 3 of a chunk of 2 rows
    >>> span_elements([rows, half], (2, 6))
    72
    """
    visits, stride, total = chunk_visits(axes), 1, chunk_visits(axes)
    for axis, chunk in zip(reversed(axes), reversed(chunks), strict=True):
        total += stride * (axis.extent - axis.pieces) * (visits // axis.pieces if axis.pieces else 0)
        stride *= chunk
    return total


def touched_by_region(axes: Sequence[AxisOverlap]) -> np.ndarray:
    """Chunks touched by each region, the regions' last axis running fastest."""
    counts = np.ones(1, dtype=np.int64)
    for axis in axes:
        counts = np.multiply.outer(counts, axis.touched).reshape(-1)
    return counts


def tile_shape(piece: Sequence[int], itemsize: int, limit: int) -> tuple[int, ...]:
    """The longest tile of at most ``limit`` bytes whose runs stay contiguous: whole later axes, single earlier ones.

    >>> tile_shape((256, 1024), 4, 65536)
    (16, 1024)
    >>> tile_shape((256, 1024), 4, 1024)
    (1, 256)
    """
    room = max(limit // itemsize, 1)
    tile: list[int] = []
    for extent in reversed(piece):
        tile.append(max(min(extent, room), 1))
        room = room // extent if extent and room >= extent else 1
    return tuple(reversed(tile))
