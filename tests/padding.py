"""The windows of ranks, by numpy's pad of the whole array: what halos are tested against."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

import oocarrays as ooc
from tests import whole

BOUNDARIES = ["none", "reflect", "nearest", "periodic", -7]


def padded(array: np.ndarray, depth: tuple[int, ...], boundary: Any) -> np.ndarray:
    """All of an array with a halo, also where nothing is to stand beyond the edges."""
    each = whole.of_axes(boundary, array.ndim)
    return whole.padded(array, depth, tuple(0 if one == "none" else one for one in each))


def seen(array: np.ndarray, layout: ooc.Layout, rank: int, depth: tuple[int, ...], boundary: Any) -> np.ndarray:
    """What a rank sees: its own element by element, and what stands around it in the padded array."""
    held = np.meshgrid(*(np.arange(n) for n in array.shape), indexing="ij", sparse=True)
    own = np.argwhere(np.broadcast_to(np.asarray(layout.owner(held)) == rank, array.shape))
    if not len(own):
        return array[:0].reshape(layout.local_shape(rank))
    lower, upper = own.min(axis=0), own.max(axis=0) + 1
    wide = padded(array, depth, boundary)
    ends = [(l, u + 2 * d) for l, u, d in zip(lower, upper, depth, strict=True)]
    named = zip(ends, array.shape, depth, whole.of_axes(boundary, array.ndim), strict=True)
    ends = [(max(l, d), min(u, n + d)) if one == "none" else (l, u) for (l, u), n, d, one in named]
    return wide[tuple(slice(*each) for each in ends)]


@st.composite
def blocks(draw: st.DrawFn, max_axes: int = 3, most: int = 12) -> tuple[ooc.Layout, tuple[int, ...]]:
    """A layout in blocks of one to a few axes on ``most`` ranks, some of them empty, and a depth in each axis."""
    distributions, grid, shape = [], [], []
    for _ in range(draw(st.integers(1, max_axes))):
        lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=min(4, most // math.prod(grid))))
        kind = draw(st.sampled_from(["block", "gen_block", "*"]))
        shape.append(max(sum(lengths), 1))
        given = ooc.GenBlock((*lengths[:-1], shape[-1] - sum(lengths[:-1])))
        distributions.append(given if kind == "gen_block" else kind)
        grid.append(1 if kind == "*" else len(lengths))
    layout = ooc.Layout.of(shape, distributions, grid=grid)
    return layout, tuple(draw(st.integers(0, 5)) for _ in shape)
