"""The elements of local array files, one by one, of distributions that are dealt out by hand."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from hypothesis import strategies as st

from oocarrays import Block, Collapsed, Cyclic, GenBlock, Layout
from oocarrays.mapping.layouts.distribution import Distribution
from tests.mapping.dealing import laid_out

NOTHING = -1


@st.composite
def distributions(draw: st.DrawFn, extent: int, ranks: int) -> Distribution:
    """Any distribution of an axis over so many ranks."""
    cuts = sorted(draw(st.lists(st.integers(0, extent), min_size=ranks - 1, max_size=ranks - 1)))
    sizes = tuple(b - a for a, b in zip([0, *cuts], [*cuts, extent], strict=True))
    return draw(st.sampled_from([Block(), Cyclic(), Cyclic(2), Cyclic(3), GenBlock(sizes), Collapsed()]))


@st.composite
def local_files(draw: st.DrawFn, max_axes: int = 3, most: int = 12) -> tuple[Layout, tuple[int, ...]]:
    """A layout with empty ranks and more ranks than elements among others, and a depth, larger than parts too.

    It has no more than ``most`` ranks.
    """
    shape = draw(st.lists(st.integers(0, 9), min_size=1, max_size=max_axes).map(tuple))
    grid: list[int] = []
    for _ in shape:
        grid.append(draw(st.integers(1, min(4, most // math.prod(grid)))))
    dealt = [draw(distributions(n, p)) for n, p in zip(shape, grid, strict=True)]
    grid = [1 if isinstance(d, Collapsed) else p for d, p in zip(dealt, grid, strict=True)]
    layout = Layout.of(shape, dealt, grid=grid)
    deep = tuple(0 if isinstance(d, Cyclic) else draw(st.integers(0, 4)) for d in dealt)
    return layout, deep


def hand(layout: Layout, rank: int, depth: tuple[int, ...]) -> list[list[int]]:
    """The element at each place of a rank's file along each axis, by hand; NOTHING where there is none."""
    found = []
    sides = zip(layout.distributions, layout.shape, layout.grid, layout.coordinates(rank), depth, strict=True)
    for distribution, extent, ranks, coordinate, d in sides:
        own = laid_out(distribution, extent, ranks)[coordinate]
        before = [own[0] - d + i for i in range(d)] if own else [NOTHING] * d
        after = [own[-1] + 1 + i for i in range(d)] if own else [NOTHING] * d
        found.append([i if 0 <= i < extent else NOTHING for i in [*before, *own, *after]])
    return found


def expected(data: np.ndarray, layout: Layout, rank: int, depth: tuple[int, ...], fill: int) -> np.ndarray:
    """A rank's file, element by element."""
    along = hand(layout, rank, depth)
    file = np.full([len(places) for places in along], fill, data.dtype)
    for place in product(*(range(len(places)) for places in along)):
        index = tuple(places[i] for places, i in zip(along, place, strict=True))
        if NOTHING not in index:
            file[place] = data[index]
    return file
