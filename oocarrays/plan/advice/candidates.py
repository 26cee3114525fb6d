"""Chunk shapes that are worth a look: made from the sections that are read and written, and from what is stored.

    sections    365 × 10 × 10        split    365 × 5 × 10 …   into chunks of which a section takes all
                1 × 180 × 360        grown    365 × 20 × 20 …  where sections are short
    both        1 × 10 × 10          between  19 × 42 × 60     what both lose the same by
    stored      30 × 180 × 360

Every chunk is between the least size that is worth a file and the most that memory and codecs take.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np

from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div
from oocarrays.plan.advice.counting import Footprint
from oocarrays.plan.advice.price import Use

SIZES = (2**21, 2**23, 2**19, 2**25)
"""Bytes of chunks that are tried, the likeliest first."""
SMALL = (2**17, 2**18, 2**16)
"""Bytes of smaller chunks that are tried after them: for sections that are small."""
LEAST_BYTES = 2**16
"""Bytes of a chunk that is worth a file."""
MOST_BYTES = 2**28
"""Bytes of a chunk, at most: codecs end at 2 GiB, and whoever reads holds several."""
MOST_CHUNKS = 2**20
"""Chunks of an array, at most: each is an object that a store lists, copies and deletes."""
MOST_SHAPES = 96
"""Shapes that are looked at."""
MOST_USES = 6
"""Unlike sections of which shapes are made; the largest of more."""
Shape = tuple[int, ...]


def candidates(stored: Stored, uses: Iterable[Use], most_bytes: int = MOST_BYTES) -> np.ndarray:
    """Return chunk shapes, a row each; what is stored is the first.

    Examples
    --------
    >>> from oocarrays.mapping.grid import ChunkGrid
    >>> from oocarrays.plan.advice.counting import Footprint
    >>> stored = Stored(grid=ChunkGrid.of((4096, 4096), (64, 4096)), itemsize=8, local=True)
    >>> columns = Footprint.of([[range(4096)], [range(i, i + 512) for i in range(0, 4096, 512)]], (4096, 4096))
    >>> shapes = candidates(stored, [Use(footprints=(columns,))])
    >>> shapes[0].tolist(), [4096, 512] in shapes.tolist(), [4096, 64] in shapes.tolist()
    ([64, 4096], True, True)
    """
    found = _allowed(stored.grid, stored.itemsize, tuple(_sections(uses)), min(most_bytes, MOST_BYTES))
    return np.array(found, np.int64).reshape(len(found), len(stored.grid.chunks))


@lru_cache(maxsize=1024)
def _allowed(grid: ChunkGrid, itemsize: int, wanted: tuple[Shape, ...], most: int) -> tuple[Shape, ...]:
    """Return today's chunks, and what is worth a look beside them: arrays that are alike are looked at once."""
    found, nbytes = dict.fromkeys([grid.chunks]), math.prod(grid.shape) * itemsize
    if not nbytes:
        return tuple(found)
    least, chunks = min(LEAST_BYTES, grid.chunk_size * itemsize, nbytes), max(MOST_CHUNKS, grid.count)
    for shape in _shapes(grid, itemsize, wanted):
        if shape in found or not least <= math.prod(shape) * itemsize <= most:
            continue
        if math.prod(map(ceil_div, grid.shape, shape)) <= chunks:
            found[shape] = None
        if len(found) >= MOST_SHAPES:
            break
    return tuple(found)


def _shapes(grid: ChunkGrid, itemsize: int, wanted: Sequence[Shape]) -> Iterator[Shape]:
    """Every shape that is worth a look, the likeliest first; some more than once."""
    extents = grid.shape
    starts = [*wanted, *_between(wanted)]
    starts += [_nearly_whole(each, extents) for each in wanted]
    yield from starts
    for nbytes in (*SIZES, *SMALL):
        for start in starts:
            yield from _sized(start, extents, nbytes // itemsize)
    for nbytes in (*SMALL, *SIZES):
        yield from _sized(grid.chunks, extents, nbytes // itemsize)


def _nearly_whole(shape: Shape, extents: Shape) -> Shape:
    """Lengthen the axes of which a shape has more than half.

    >>> _nearly_whole((1, 300), (4, 365))
    (1, 365)
    """
    return tuple(n if 2 * length > n else length for length, n in zip(shape, extents, strict=True))


def _sections(uses: Iterable[Use]) -> list[Shape]:
    """The shapes of the sections that are used, those of which most is used first."""
    seen: Counter[Shape] = Counter()
    for use in uses:
        for each in use.footprints:
            for shape in _shapes_of(each) if all(each.largest) else ():
                seen[shape] += each.elements
    return [shape for shape, _ in seen.most_common(MOST_USES)]


def _shapes_of(each: Footprint) -> Iterator[Shape]:
    """The shapes of a section: its elements; with strides what they span, and one element of each strided axis."""
    yield each.largest
    if each.span != each.largest:
        yield each.span
        yield tuple(1 if n < s else n for n, s in zip(each.largest, each.span, strict=True))


def _between(sections: Sequence[Shape]) -> Iterator[Shape]:
    """Shapes of which two unlike sections each take a part: what both have, and the mean of their proportions."""
    for one, other in combinations(sections, 2):
        yield tuple(map(min, one, other))
        yield tuple(max(round(math.sqrt(a * b)), 1) for a, b in zip(one, other, strict=True))


def _sized(shape: Shape, extents: Shape, elements: int) -> Iterator[Shape]:
    """A shape split, or grown along each axis, to about a number of elements."""
    parts = ceil_div(math.prod(shape), max(elements, 1))
    if parts > 1:
        yield _split(shape, parts, range(len(shape)))
        yield _split(shape, parts, reversed(range(len(shape))))
        yield _even(shape, elements)
        return
    yield _grown(shape, extents, elements)
    for axis, extent in enumerate(extents):
        times = max(elements // max(math.prod(shape), 1), 1)
        grown = min(shape[axis] * times, extent)
        if grown > shape[axis]:
            yield (*shape[:axis], grown, *shape[axis + 1 :])


def _grown(shape: Shape, extents: Shape, elements: int) -> Shape:
    """Double each axis in turn, up to a number of elements: a section then takes as large a share along each.

    >>> _grown((365, 1, 1), (365, 100, 6), 365 * 64)
    (365, 16, 4)
    """
    lengths = list(shape)
    while True:
        more = [a for a, n in enumerate(extents) if 2 * lengths[a] <= n and 2 * math.prod(lengths) <= elements]
        if not more:
            return tuple(lengths)
        axis = min(more, key=lambda a: lengths[a] / shape[a])
        lengths[axis] *= 2


def _split(shape: Shape, parts: int, order: Iterable[int]) -> Shape:
    """Cut a shape into at least so many parts, along one axis as far as it goes, then along the next.

    >>> _split((365, 10, 10), 4, (1, 2, 0)), _split((2, 8), 8, (0, 1))
    ((365, 2, 10), (1, 2))
    """
    lengths = list(shape)
    for axis in order:
        length = _divided(lengths[axis], parts)
        parts = ceil_div(parts, ceil_div(lengths[axis], length))
        lengths[axis] = length
    return tuple(lengths)


def _divided(length: int, parts: int) -> int:
    """The length of at least so many equal parts, where there are such within twice as many; else of about so many.

    >>> _divided(100, 3), _divided(365, 4), _divided(7, 9)
    (25, 73, 1)
    """
    for count in range(parts, min(2 * parts, length) + 1):
        if length % count == 0:
            return length // count
    return max(ceil_div(length, parts), 1) if parts < length else 1


def _even(shape: Shape, elements: int) -> Shape:
    """Scale all axes alike, as far as equal parts can.

    >>> _even((1000, 1000), 20000)
    (125, 125)
    """
    scale = (elements / math.prod(shape)) ** (1 / max(sum(n > 1 for n in shape), 1))
    scaled = tuple(max(math.floor(n * scale), 1) for n in shape)
    return tuple(_divided(n, ceil_div(n, s)) for n, s in zip(shape, scaled, strict=True))
