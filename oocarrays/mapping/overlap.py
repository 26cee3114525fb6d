"""Overlap of regions and chunks: counted for one axis, multiplied for many.

    chunks    │    0    │    1    │    2    │         chunk = 4
    regions   │      0      │      1      │           region = 6
    pieces    │    a    │ b │  c  │   d   │           cut wherever either ends

A piece is the intersection of one region with one chunk. Its contiguous runs follow from the last axis in which it
does not span the chunk: with that *run axis* k, a run is one element of every axis before k, and the whole of those
after. So the pieces' requests are sums over k of products of one-axis sums, and no piece is ever listed.
(del Rosario, Bordawekar, Choudhary 1993, section 3, counts requests this way for its distributions.)

Blocks of any lengths are read in groups:

    chunks    ├───0───┼───1───┼───2───┼───3───┤
    blocks    ├──0──┼──1──┼─2─┼──3──┼──4──┼─5─┤     each by itself: 8 visits, two of each chunk
    groups    ├───────0───────┼───────1───────┤     2 + 2: a group that ends where a chunk does shares none

The number of chunks that N-d groups touch is the product of the counts along each axis.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product

import numpy as np

from oocarrays.mapping.along import Line
from oocarrays.mapping.grid import ceil_div
from oocarrays.mapping.section import floor_sum

LISTED = 2**14
"""Maximum number of enumerated cuts of one axis; of more, those that leave pieces of some length are counted."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AxisOverlap:
    """Overlap of regions and chunks along one axis."""

    pieces: int
    """Number of pairs of a region and a chunk that share an element."""
    line: Line
    """Elements, tiles of all pieces, and tiles of those that span their stored chunk."""
    touched: Counter[int]
    """Number of regions, by the number of chunks that they touch."""


@lru_cache(maxsize=8192)
def axis_overlap(extent: int, chunk: int, region: int, tile: int) -> AxisOverlap:
    """Count one axis of ``extent`` elements, cut in chunks and in regions; pieces are read in tiles."""
    fine, coarse = sorted((chunk, region))
    whole, tail = divmod(extent, fine)
    cuts = _multiples(whole * fine, coarse)
    alike = _multiples(whole * fine, math.lcm(chunk, region))
    uncut = whole - cuts + alike
    place = (extent - 1) // coarse * coarse - whole * fine
    ends = () if not tail else (place, tail - place) if 0 < place < tail else (tail,)
    tiles = uncut * ceil_div(fine, tile) + _cut_tiles(fine, coarse, cuts, tile) + sum(ceil_div(n, tile) for n in ends)
    spanning = uncut if chunk <= region else 0
    return AxisOverlap(
        pieces=_pieces(extent, chunk, region),
        line=Line(extent, tiles, spanning * ceil_div(chunk, tile)),
        touched=_touched(extent, chunk, region),
    )


def _multiples(end: int, length: int) -> int:
    """Return the number of multiples of a length strictly between 0 and ``end``."""
    return max(end - 1, 0) // length


def _pieces(extent: int, chunk: int, region: int) -> int:
    """Return the number of positions where a chunk, a region or both begin."""
    return ceil_div(extent, chunk) + ceil_div(extent, region) - ceil_div(extent, math.lcm(chunk, region))


def _touched(extent: int, chunk: int, region: int) -> Counter[int]:
    """Return the number of regions by touched chunks: the minimum or, if regions are not aligned, one more."""
    whole = extent // region
    least = ceil_div(region, chunk)
    more = _pieces(whole * region, chunk, region) - whole * least
    touched = Counter({least: whole - more, least + 1: more})
    if extent % region:
        touched[ceil_div(extent, chunk) - whole * region // chunk] += 1
    return +touched


def _cut_tiles(fine: int, coarse: int, cuts: int, tile: int) -> int:
    """Return the tiles of the two pieces at each of the first multiples of ``coarse`` within a cell of ``fine``.

    Cuts repeat in each period. A whole period cuts each multiple of the common divisor once.
    """
    common = math.gcd(fine, coarse)
    period = fine // common
    times, rest = divmod(cuts, period)
    inside = floor_sum(period, common, tile - 1, tile)  # the first pieces of a period, and turned round the second ones
    return 2 * times * inside + _first_tiles(fine, coarse, rest, tile)


def _first_tiles(fine: int, coarse: int, cuts: int, tile: int) -> int:
    """Return the tiles of fewer cuts than in a period, all within a cell."""
    if tile >= fine:
        return 2 * cuts
    if tile == 1:
        return cuts * fine
    if cuts <= LISTED:
        places = np.arange(1, cuts + 1) * (coarse % fine) % fine
        return int((-(-places // tile) - (places - fine) // tile).sum())
    total = 0
    for first in range(0, fine, tile * LISTED):
        starts = np.arange(first, min(first + tile * LISTED, fine), tile).astype(np.uint64)
        before, behind = (floor_sum(cuts + 1, coarse % fine, at, fine) for at in (fine - 1 - starts, starts))
        total += cuts * len(starts) + int((before - behind).astype(np.int64).sum())  # pieces that have a tile there
    return total


def span_elements(extents: Sequence[int], pieces: Sequence[int], chunks: Sequence[int]) -> int:
    """Return the stored elements from the first to the last of each piece, summed over all pieces, as sieving reads
    them: a piece of lengths l in a chunk of strides s spans Σ (l − 1) s + 1."""
    count, stride = math.prod(pieces), 1
    total = count
    for extent, along, chunk in zip(reversed(extents), reversed(pieces), reversed(chunks), strict=True):
        total += stride * (extent - along) * count // max(along, 1)
        stride *= chunk
    return total


def touched_by_region(axes: Sequence[AxisOverlap]) -> Counter[int]:
    """Return the number of regions, by the number of chunks that they touch."""
    counts = Counter({1: 1})
    for axis in axes:
        wider: Counter[int] = Counter()
        for (chunks, regions), (along, times) in product(counts.items(), axis.touched.items()):
            wider[chunks * along] += regions * times
        counts = wider
    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Groups of blocks read together along one axis, with the chunks they touch."""

    groups: tuple[tuple[int, int], ...]
    """First block of each group, and one past its last."""
    longest: int
    """Elements of the longest group."""
    line: Line
    """Elements, contiguous pieces and whole chunks of all groups; a piece in each chunk that a group touches."""
    visits: int
    """Chunks that groups touch; a chunk shared by two groups counts twice."""


def grouping(taken: range, lengths: Sequence[int], chunk: int, groups: tuple[tuple[int, int], ...]) -> Grouping:
    return _grouping(taken, np.cumsum([0, *lengths], dtype=np.int64), chunk, groups)


def cut_line(each: Grouping, taken: range, lengths: Sequence[int], chunk: int, tile: int) -> Line:
    """Return the counts of an axis for groups that are read tile by tile, where tiles may be shorter than chunks."""
    if tile >= chunk or taken.step > 1:
        return each.line

    def visits(length: int) -> int:
        return grouping(taken, lengths, length, each.groups).visits

    runs = each.visits + visits(tile) - visits(math.lcm(chunk, tile))  # where both end, a piece ends once
    return Line(elements=len(taken), runs=runs, wholes=0)


def _grouping(taken: range, edges: np.ndarray, chunk: int, groups: tuple[tuple[int, int], ...]) -> Grouping:
    lower, upper = edges[np.array(groups, np.int64).reshape(-1, 2)].T
    some = upper > lower
    first, last = (taken.start + taken.step * edge[some] for edge in (lower, upper - 1))
    visits = _sum(np.minimum(last // chunk - first // chunk + 1, (upper - lower)[some]))
    whole = 0 if taken.step > 1 else _sum(np.maximum((last + 1) // chunk - -(-first // chunk), 0))
    line = Line(elements=len(taken), runs=visits if taken.step == 1 else len(taken), wholes=whole)
    return Grouping(groups=groups, longest=int((upper - lower).max(initial=0)), line=line, visits=visits)


def _sum(counts: np.ndarray) -> int:
    """Return a sum of unbounded size."""
    return sum(counts.tolist())


def singly(count: int) -> tuple[tuple[int, int], ...]:
    return tuple((i, i + 1) for i in range(count))


def groupings(taken: range, lengths: Sequence[int], chunk: int) -> Iterator[Grouping]:
    """Yield ways to group the blocks of an axis, smallest groups first; each touches fewer chunks than those before."""
    edges = np.cumsum([0, *lengths], dtype=np.int64)
    aligned = _aligned(taken, edges, chunk)
    ways = {groups for marks in (range(len(lengths) + 1), aligned) for groups in _in_runs(marks)}
    fewest: int | None = None
    found = (_grouping(taken, edges, chunk, groups) for groups in ways)
    for each in sorted(found, key=lambda each: (each.longest, each.visits, len(each.groups))):
        if fewest is None or each.visits < fewest:
            fewest = each.visits
            yield each


def _in_runs(marks: Sequence[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield groups from each mark to the next, to the second next, the fourth …"""
    step, count = 1, len(marks) - 1
    while step < 2 * count:
        ends = [*marks[:count:step], marks[-1]]
        yield tuple(pairwise(ends))
        step *= 2


def _aligned(taken: range, edges: np.ndarray, chunk: int) -> list[int]:
    """Return the indices of block edges that do not cut a chunk."""
    inside = (edges > 0) & (edges < len(taken))
    before, after = (np.where(inside, taken.start + taken.step * each, 0) // chunk for each in (edges - 1, edges))
    return np.flatnonzero(~inside | (before != after)).tolist()


BlockLengths = tuple[tuple[int, ...], ...]
"""Lengths of the blocks along each axis, in elements, in Dask's format."""


def largest_block(blocks: BlockLengths) -> int:
    return math.prod(max((*lengths, 0)) for lengths in blocks)
