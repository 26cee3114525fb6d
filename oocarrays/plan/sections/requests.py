"""Number of requests if every rank reads its own part, with one request per contiguous run of a file.

    (block, block) on 2 × 2      the file by columns, and the ranks' runs in it
    ┌───────┬───────┐
    │ 0   0 │ 1   1 │            0 0 2 2  0 0 2 2  1 1 3 3  1 1 3 3      R_dist = 8, S_dist = 2
    │ 0   0 │ 1   1 │            ─── ───  ─── ───  ─── ───  ─── ───
    │ 2   2 │ 3   3 │            0 0 2│2  0 0│2 2  1│1 3 3│ 1 1 3│3      R_trans = 11, in stripes of 3
    │ 2   2 │ 3   3 │            ─── ─ ─  ─── ───  ─ ─ ───  ─── ─ ─
    └───────┴───────┘

The runs of a part are a product over the axes, from the slowest to the fastest. A rank holds some pieces along each
axis; if it holds the whole axis, the next line continues the previous one. As in `Section.runs` and in actual reads,
the end of one line and the beginning of the next are not joined if elements between them belong to another rank. del
Rosario, Bordawekar and Choudhary 1993, section 2.3, Table 1 and equation (1); exact also where their N, P and stripes
do not divide each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from operator import mul
from typing import NamedTuple

import numpy as np

from oocarrays.errors import ChunksError
from oocarrays.mapping.along import Line, product_line
from oocarrays.mapping.given import is_sequence, whole, wholes
from oocarrays.mapping.grid import ChunkGrid, turned, turned_back
from oocarrays.mapping.layouts.distribution import Axis, BlockCyclicAxis
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.section import axis_order, floor_sum


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Numbers of requests if each rank reads its part of one file directly."""

    layout: Layout
    """Distribution of the array over ranks."""
    orientation: tuple[int, ...]
    """Axes of the file from the slowest to the fastest."""
    chunk: int | tuple[int, ...] | None
    """Elements of a stripe, or of a chunk along each axis; None if the file is uncut."""
    distribution_requests: int
    """R_dist: contiguous runs of all ranks' parts in the uncut file."""
    distribution_elements: int
    """S_dist: elements of the longest of them."""
    rank_requests: tuple[int, ...]
    """Requests of each rank in the cut file: those of R_trans."""

    @property
    def transaction_requests(self) -> int:
        """R_trans: requests of all ranks if runs also end at the edges of stripes or chunks."""
        return sum(self.rank_requests)

    def __repr__(self) -> str:
        named = f"in {'stripes' if isinstance(self.chunk, int) else 'chunks'} of {self.chunk}"
        return (
            f"<oocarrays.RequestCounts {self.layout}: R_dist {self.distribution_requests}, "
            f"S_dist {self.distribution_elements}, R_trans {self.transaction_requests} "
            f"{'uncut' if self.chunk is None else named}, at most {max(self.rank_requests)} a rank>"
        )


def requests_of(
    layout: Layout, *, orientation: str | Sequence[int] = "row", chunk: int | Sequence[int] | None = None
) -> RequestCounts:
    order = axis_order(orientation, len(layout.shape))
    if is_sequence(chunk):
        chunk = ChunkGrid.of(layout.shape, wholes(chunk, "chunk", error=ChunksError)).chunks
    elif chunk is not None:
        chunk = whole(chunk, "chunk", error=ChunksError)
        if chunk < 1:
            raise ChunksError(f"chunk={chunk!r}: a stripe has at least one element")
    uncut = _parts(layout, order, tuple(max(n, 1) for n in layout.shape))
    runs = np.array([product_line(lines).runs for lines in uncut])
    if isinstance(chunk, tuple):
        cut = np.array([product_line(lines).runs for lines in _parts(layout, order, chunk)])
    else:
        cut = runs if chunk is None else runs + _crossed(layout, order, uncut, chunk)
    return RequestCounts(
        layout=layout,
        orientation=order,
        chunk=chunk,
        distribution_requests=int(runs.sum()),
        distribution_elements=max(map(_longest, uncut)),
        rank_requests=tuple(cut.tolist()),
    )


class Blocks(NamedTuple):
    """Equidistant blocks of one length."""

    first: int
    length: int
    """Elements of each block."""
    period: int
    """Elements from the start of one block to the start of the next."""
    times: int

    def runs(self, chunk: int) -> int:
        ends = floor_sum(self.times, self.period, self.first + self.length - 1, chunk)
        return ends - floor_sum(self.times, self.period, self.first, chunk) + self.times

    def wholes(self, chunk: int) -> int:
        if self.length < chunk:
            return 0
        ends = floor_sum(self.times, self.period, self.first + self.length, chunk)
        return ends - floor_sum(self.times, self.period, self.first + chunk - 1, chunk)


def _line(blocks: Sequence[Blocks], chunk: int) -> Line:
    """Return the line of blocks that do not touch each other, cut every ``chunk`` elements."""
    return Line(
        elements=sum(each.times * each.length for each in blocks),
        runs=sum(each.runs(chunk) for each in blocks),
        wholes=sum(each.wholes(chunk) for each in blocks),
        longest=max([each.length for each in blocks if each.times], default=0),
    )


def _parts(layout: Layout, order: tuple[int, ...], chunks: tuple[int, ...]) -> list[list[Line]]:
    """Return each rank's part of a file in chunks, axis by axis from the slowest to the fastest."""
    along = [
        [_line(_held(axis, coordinate), chunk) for coordinate in range(axis.ranks)]
        for axis, chunk in zip(layout.axes, chunks, strict=True)
    ]
    return [[lines[axis] for axis in order] for lines in product(*along)]


def _held(axis: Axis, coordinate: int) -> list[Blocks]:
    if not isinstance(axis, BlockCyclicAxis) or axis.ranks == 1:
        return [Blocks(each.start, len(each), max(axis.extent, 1), 1) for each in axis.sections(coordinate) if each]
    first, period = coordinate * axis.block, axis.ranks * axis.block
    count = max(axis.extent - first - axis.block + period, 0) // period
    rest = axis.extent - first - count * period
    return [
        Blocks(first, axis.block, period, count),
        Blocks(first + count * period, max(rest, 0), period, int(rest > 0)),
    ]


def _longest(lines: Sequence[Line]) -> int:
    """Return the elements of the longest run: whole lines of the fastest axes, and one piece of the next."""
    if not all(line.elements for line in lines):
        return 0
    length = 1
    for line in reversed(lines):
        length *= line.longest
        if not line.wholes:
            break
    return length


def _crossed(layout: Layout, order: tuple[int, ...], parts: Sequence[Sequence[Line]], stripe: int) -> np.ndarray:
    crossed = np.zeros(layout.ranks, np.int64)
    whole = np.array([list(accumulate((1, *(bool(line.wholes) for line in reversed(lines))), mul)) for lines in parts])
    extents = turned(layout.shape, order)
    most = 2**26  # the owners on both sides of each edge are compared
    if math.prod(extents) // stripe > most:
        raise ChunksError(
            f"chunk={stripe} makes more than {most} stripes, the maximum: pass the chunk lengths along each axis"
        )
    for first in range(stripe, math.prod(extents), stripe * 2**20):  # in batches of some tens of MiB
        edges = np.arange(first, min(first + stripe * 2**20, math.prod(extents)), stripe)
        before, after = (
            layout.owner(turned_back(np.unravel_index(places, extents), order)) for places in (edges - 1, edges)
        )
        begun = sum(edges % math.prod(extents[axis:]) == 0 for axis in range(len(extents)))
        crossed += np.bincount(after[(before == after) & (whole[after, begun] > 0)], minlength=layout.ranks)
    return crossed
