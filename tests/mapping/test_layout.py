"""Layouts against a table of owners made by hand, their text, their grids, and what they refuse."""

from __future__ import annotations

import math
import pickle
from itertools import product
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask.array.core import slices_from_chunks
from hypothesis import given, strategies as st

from oocarrays import Block, Collapsed, Cyclic, GenBlock, Layout
from oocarrays.errors import LayoutError
from oocarrays.mapping.layouts.distribution import Distribution
from tests.mapping.dealing import laid_out, owners

pytestmark = pytest.mark.once


@st.composite
def axes(draw: st.DrawFn) -> tuple[int, int, Distribution]:
    """An extent, ranks, and a distribution of one over the other."""
    extent, ranks = draw(st.integers(0, 9)), draw(st.integers(1, 4))
    cuts = sorted(draw(st.lists(st.integers(0, extent), min_size=ranks - 1, max_size=ranks - 1)))
    sizes = tuple(b - a for a, b in zip([0, *cuts], [*cuts, extent], strict=True))
    blocks = st.integers(max(-(-extent // ranks), 1), extent + 2).map(Block)
    distributions = st.one_of(st.just(Block()), blocks, st.builds(Cyclic, st.integers(1, 5)), st.just(GenBlock(sizes)))
    return draw(st.tuples(st.just(extent), st.just(ranks), distributions) | st.just((extent, 1, Collapsed())))


@st.composite
def layouts(draw: st.DrawFn, most: int = 3) -> Layout:
    """Layouts of no axes to three."""
    drawn = draw(st.lists(axes(), max_size=most))
    return Layout.of([n for n, _, _ in drawn], [d for _, _, d in drawn], grid=[p for _, p, _ in drawn])


def owner_table(layout: Layout) -> np.ndarray:
    """The rank that holds each element, from tables dealt out by hand, numbered along the grid by numpy."""
    along = [
        np.array(owners(laid_out(*axis)), np.int64)
        for axis in zip(layout.distributions, layout.shape, layout.grid, strict=True)
    ]
    if not along:
        return np.zeros((), np.int64)
    return np.ravel_multi_index(np.meshgrid(*along, indexing="ij"), layout.grid)


@given(layouts())
def test_owners_places_and_parts_are_those_of_the_table(layout: Layout) -> None:
    table = owner_table(layout)
    index = list(np.indices(layout.shape))
    assert np.array_equal(layout.owner(index), table)
    elements = np.arange(table.size).reshape(table.shape)
    place = layout.place(index)
    for rank in range(layout.ranks):
        local = elements[table == rank].reshape(layout.local_shape(rank))
        assert layout.local_size(rank) == local.size
        mine = table == rank
        found = local[tuple(axis[mine] for axis in place)] if place else local.reshape(1)
        assert np.array_equal(found, elements[mine]), "global to local"
        held = layout.index(rank, list(np.indices(local.shape)))
        assert np.array_equal(elements[tuple(held)] if held else elements, local), "local to global"
        seen = np.zeros(table.shape, int)
        for part in layout.parts(rank):
            seen[part.slices] += 1
        assert np.array_equal(seen, mine), "every element in one part"


@given(layouts(), st.data())
def test_one_element_is_as_many_are(layout: Layout, data: st.DataObject) -> None:
    table = owner_table(layout)
    if table.size:
        index = tuple(data.draw(st.integers(0, n - 1)) for n in layout.shape)
        rank, place = layout.owner(index), layout.place(index)
        assert rank == table[index]
        assert layout.index(rank, place) == index
        assert all(type(number) is int for number in (rank, *place))


@given(layouts())
def test_a_layouts_text_gives_it_back(layout: Layout) -> None:
    assert Layout.of(layout.shape, str(layout)) == layout
    assert Layout.of(layout.shape, str(layout).upper().replace("×", "x").replace(",", " , ")) == layout
    assert eval(repr(layout)) == layout == pickle.loads(pickle.dumps(layout))
    assert hash(Layout.of(layout.shape, str(layout))) == hash(layout)


@given(layouts())
def test_a_grid_of_the_distributed_axes_is_enough(layout: Layout) -> None:
    kept = [p for p, d in zip(layout.grid, layout.distributions, strict=True) if not isinstance(d, Collapsed)]
    assert Layout.of(layout.shape, layout.distributions, grid=kept, ranks=layout.ranks) == layout


@pytest.mark.parametrize("chunks", [(4, 3), (9, 7), ((1, 0, 8), (7,)), (1, 1)], ids=str)
def test_every_block_of_a_dask_array_is_a_rank(chunks: tuple[int, ...]) -> None:
    x = da.zeros((9, 7), chunks=chunks)
    layout = Layout.from_chunks(x.chunks)
    assert (layout.shape, layout.grid) == (x.shape, x.numblocks)
    dealt = [[part.slices for part in layout.parts(rank)] for rank in range(layout.ranks)]
    blocks = [[(*block, ...)] if x[block].size else [] for block in slices_from_chunks(x.chunks)]
    assert dealt == blocks


def divisions(ranks: int, axes: int) -> list[tuple[int, ...]]:
    """Every way to deal ranks out over axes, descending."""
    numbers = [n for n in range(1, ranks + 1) if ranks % n == 0]
    return [
        grid for grid in product(numbers, repeat=axes) if math.prod(grid) == ranks and list(grid) == sorted(grid)[::-1]
    ]


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_default_grids_are_the_most_even_ones(axes: int) -> None:
    """MPI's rule is descending numbers as close to each other as can be."""
    for ranks in [*range(1, 65), 72, 96, 120, 144, 180, 210]:
        ways = divisions(ranks, axes)
        grid = Layout.of((ranks,) * axes, ["block"] * axes, ranks=ranks).grid
        assert grid in ways
        assert max(grid) == min(map(max, ways))
        assert grid == min(ways)
        assert sum(grid) == min(map(sum, ways)) or axes > 2


@pytest.mark.parametrize(
    ("ranks", "axes", "grid"),
    [(4, 2, (2, 2)), (6, 2, (3, 2)), (7, 2, (7, 1)), (6, 3, (3, 2, 1)), (4096, 2, (64, 64)), (4096, 3, (16, 16, 16))],
)
def test_grids_that_mpi_prints(ranks: int, axes: int, grid: tuple[int, ...]) -> None:
    """The examples of MPI_Dims_create in the standard, and two large ones."""
    assert Layout.of((ranks,) * axes, ["block"] * axes, ranks=ranks).grid == grid


def test_a_gen_block_brings_its_ranks_and_the_others_share_the_rest() -> None:
    layout = Layout.of((3, 8, 5, 8), "(gen_block(1, 2), block, *, cyclic)", ranks=24)
    assert layout.grid == (2, 4, 1, 3)
    assert Layout.of((3, 5), [(1, 2), "*"]).grid == (2, 1)
    assert Layout.of((), "()") == Layout.of([], []) == Layout.of((), (), ranks=1)


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        (" ( BLOCK ,Cyclic( 3 ),* ) ", (Block(), Cyclic(3), Collapsed())),
        ("block(4), cyclic(1), GEN_BLOCK(0, 2)", (Block(4), Cyclic(), GenBlock((0, 2)))),
        (["*", Cyclic(2), [1, 1]], (Collapsed(), Cyclic(2), GenBlock((1, 1)))),
    ],
    ids=["spaces and case", "bare", "a sequence"],
)
def test_hpfs_words_are_read(asked: Any, read: tuple[Any, ...]) -> None:
    assert Layout.of((2, 2, 2), asked, ranks=2).distributions == read


REFUSED: dict[str, tuple[tuple[int, ...], object, dict[str, object], str]] = {
    "a block too short": ((10,), "block(2)", {"ranks": 4}, "block(2) over 4 ranks holds 8 elements of 10: .* least 3"),
    "cyclic(0)": ((10,), "cyclic(0)", {"ranks": 4}, "cyclic(0): the length of a block must be a whole .* least 1"),
    "cyclic(-1)": ((10,), "cyclic(-1)", {"ranks": 4}, "cyclic(-1): the length of a block"),
    "half an element": ((10,), Cyclic(2.5), {"ranks": 4}, "cyclic(2.5): the length of a block"),  # type: ignore[arg-type]
    "a word": ((10, 3), "(blok, *)", {"ranks": 4}, "'blok' in '(blok, *)' is not a distribution such as 'block'"),
    "no word": ((10, 3), "(block,, *)", {"ranks": 4}, "'' in '(block,, *)' is not a distribution"),
    "blocks of *": ((10,), "*(3)", {}, "'*(3)' is not a distribution"),
    "half a gen_block": ((10,), [(2.5, 7.5)], {}, "(2.5, 7.5) is not a distribution"),
    "no object": ((10,), [None], {}, "None is not a distribution"),
    "more axes": ((10,), "(block, *)", {"ranks": 4}, "(block, *) has 2 axes; the array has 1: shape (10,)"),
    "a negative extent": ((-1,), "block", {"ranks": 4}, "shape=(-1,): every extent"),
    "no ranks": ((10, 3), "(block, *)", {}, "(block, *) works for any number of ranks: pass ranks= or grid="),
    "0 ranks": ((10, 3), "(block, *)", {"ranks": 0}, "ranks=0 must be a whole number, at least 1"),
    "ranks and grid": ((8, 8), "(block, block)", {"grid": (2, 2), "ranks": 5}, "grid=(2, 2) has 4 ranks, but ranks=5"),
    "ranks and its grid": ((8, 8), "(block, *) on 4 x 1", {"ranks": 5}, "grid=(4, 1) has 4 ranks, but ranks=5"),
    "two grids": ((8, 8), "(block, *) on 4 x 1", {"grid": (2, 1)}, "names a grid, but grid=(2, 1) is another"),
    "a grid too long": ((8, 8), "(block, *)", {"grid": (2, 1, 1)}, "grid=(2, 1, 1) must have .* for each of 2 axes"),
    "a grid of 0": ((8, 8), "(block, *)", {"grid": (0, 1)}, "grid=(0, 1) must have a whole number, at least 1"),
    "ranks along *": ((8, 8), "(block, *)", {"grid": (2, 2)}, "not distributed (*) takes 1 rank of the grid, not 2"),
    "ranks of no axis": ((8, 8), "(*, *)", {"ranks": 4}, "ranks=4 does not fit (*, *), which takes 1"),
    "ranks of a gen_block": ((10,), [(5, 5)], {"ranks": 3}, "ranks=3 .* (gen_block(5,5)), which takes 2"),
    "what a gen_block leaves": ((9, 3), ["block", (1, 2)], {"ranks": 5}, "ranks=5 .* takes a multiple of 2"),
    "a gen_block too long": ((10,), [(5, 6)], {}, "gen_block(5,6) has 2 blocks of 11 elements in all: an axis of 10"),
    "a negative gen_block": ((10,), [(11, -1)], {}, "gen_block(11,-1): every block must have"),
    "a long gen_block": ((9,), [(1,) * 99], {}, "gen_block(1,1,1,1,1,1,…) has 99 blocks of 99 elements"),
}


@pytest.mark.parametrize(("shape", "asked", "over", "says"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(shape: tuple[int, ...], asked: object, over: dict, says: str) -> None:
    escaped = says.translate({ord(c): f"\\{c}" for c in "()*+[]"}).replace(".\\*", ".*")
    with pytest.raises(LayoutError, match=escaped) as refused:
        Layout.of(shape, asked, **over)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 160


LAYOUT = Layout.of((8, 6), "(block, cyclic)", ranks=4)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: LAYOUT.owner((8, 0)), "index 8 is out of range for axis 0 with 8 elements"),
        (
            lambda: LAYOUT.place((np.array([0, 1]), np.array([5, -1]))),
            "index -1 is out of range for axis 1 with 6 elements",
        ),
        (lambda: LAYOUT.owner((2.5, 1)), "index 2.5 is out of range"),
        (lambda: LAYOUT.owner((2,)), "an index of 1 axis is not of an array of shape"),
        (lambda: LAYOUT.index(1, (4, 0)), "index 4 is out of range for axis 0 with 4 elements"),
        (lambda: LAYOUT.local_shape(4), "rank 4 is out of range for the 4 ranks of"),
        (lambda: Layout.from_chunks(((np.nan,),)), "unknown length"),
    ],
    ids=["past the end", "before the start", "half", "axes", "place", "rank", "chunks"],
)
def test_what_there_is_not_has_no_owner(ask: object, says: str) -> None:
    with pytest.raises(LayoutError, match=says):
        ask()  # type: ignore[operator]
