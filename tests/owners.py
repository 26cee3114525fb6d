"""Who holds what, said again by counting: the definitions of HPF, element by element, and layouts to try them on."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import oocarrays as ooc


def holders(distribution: object, extent: int, ranks: int) -> list[int]:
    """The rank along an axis of each of its elements (HPF 1.0, section 3.3)."""
    match distribution:
        case ooc.Block(length):
            return [i // (length or max(-(-extent // ranks), 1)) for i in range(extent)]
        case ooc.Cyclic(length):
            return [i // length % ranks for i in range(extent)]
        case ooc.GenBlock(sizes):
            return [rank for rank, size in enumerate(sizes) for _ in range(size)]
    return [0] * extent


def part(x: np.ndarray, layout: ooc.Layout, rank: int) -> np.ndarray:
    """What a rank holds of an array, its elements in their order along each axis."""
    places = np.unravel_index(rank, layout.grid) if layout.grid else ()
    axes = zip(layout.distributions, x.shape, layout.grid, strict=True)
    held = [np.flatnonzero(np.array(holders(*axis)) == place) for axis, place in zip(axes, places, strict=True)]
    return x[np.ix_(*held)] if held else x


def numbered(shape: tuple[int, ...], dtype: str = "i4") -> np.ndarray:
    """An array in which every element is another."""
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...]) -> ooc.Layout:
    """Any layout of a shape: more ranks than elements, blocks longer than need be, ranks that hold nothing."""
    grid = [draw(st.integers(1, 4)) for _ in shape]
    distributions = [draw(_distributions(n, p)) for n, p in zip(shape, grid, strict=True)]
    grid = [1 if isinstance(d, ooc.Collapsed) else p for d, p in zip(distributions, grid, strict=True)]
    return ooc.Layout.of(shape, distributions, grid=grid)


def _distributions(extent: int, ranks: int) -> st.SearchStrategy[object]:
    least = max(-(-extent // ranks), 1)
    cuts = st.lists(st.integers(0, extent), min_size=ranks - 1, max_size=ranks - 1).map(sorted)
    return st.one_of(
        st.just(ooc.Block()),
        st.integers(least, least + 2).map(ooc.Block),
        st.integers(1, 5).map(ooc.Cyclic),
        cuts.map(lambda at: ooc.GenBlock(tuple(np.diff([0, *at, extent]).tolist()))),
        st.just(ooc.Collapsed()),
    )
