from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocarrays.errors import ChunksError
from oocarrays.mapping.grid import ChunkGrid, ceil_div, unravel
from oocarrays.mapping.section import Section
from tests.strategies import grids


@given(st.integers(0, 1000), st.integers(1, 50))
def test_ceil_div_is_the_ceiling(a: int, b: int) -> None:
    assert ceil_div(a, b) == int(np.ceil(a / b))


@given(st.lists(st.integers(1, 6), max_size=4).map(tuple))
def test_unravel_is_numpys(counts: tuple[int, ...]) -> None:
    size = int(np.prod(counts, dtype=int))
    table = [tuple(map(int, np.unravel_index(i, counts))) for i in range(size)] if counts else [()]
    assert [unravel(i, counts) for i in range(size)] == table


@given(grids())
def test_chunks_tile_the_array(grid: ChunkGrid) -> None:
    seen = np.zeros(grid.shape, int)
    for index in np.ndindex(grid.counts):
        seen[grid.section(index).slices] += 1
    assert (seen == 1).all()
    assert grid.count == len(list(np.ndindex(grid.counts)))


@given(grids(), st.data())
def test_touched_chunks_are_those_that_share_an_element(grid: ChunkGrid, data: st.DataObject) -> None:
    bounds = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in grid.shape]
    section = Section(tuple(l for l, _ in bounds), tuple(u for _, u in bounds))
    if section.size:
        table = {i for i in np.ndindex(grid.counts) if grid.section(i).intersection(section)}
        assert set(grid.indices(section)) == table


@pytest.mark.parametrize(
    ("chunks", "says"),
    [((3,), "1 axes; the array has 2"), ((3, 0), "at least 1"), ((-2, 3), "at least 1")],
    ids=["length", "zero", "negative"],
)
def test_wrong_chunks_are_refused(chunks: tuple[int, ...], says: str) -> None:
    with pytest.raises(ChunksError, match=says):
        ChunkGrid.of((10, 6), chunks)
