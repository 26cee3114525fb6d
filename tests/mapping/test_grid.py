from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays import Section
from oocarrays.errors import ChunksError
from oocarrays.mapping.grid import ChunkGrid, boxes, unravel
from tests.strategies import grids

pytestmark = pytest.mark.once


@given(st.lists(st.integers(1, 5), max_size=4).map(tuple), st.data())
def test_boxes_are_those_places_of_the_grid_each_once_and_in_order(
    counts: tuple[int, ...], data: st.DataObject
) -> None:
    size = int(np.prod(counts, dtype=int))
    start, stop = sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size))))
    places = np.arange(size).reshape(counts)
    found = [places[(*map(slice, first, last), ...)].reshape(-1) for first, last in boxes(range(start, stop), counts)]
    assert [int(place) for box in found for place in box] == list(range(start, stop))
    assert all(map(len, found))
    assert len(found) <= max(2 * len(counts) - 1, 1)


@given(grids(), st.data())
def test_chunks_tile_the_array_and_are_touched_where_they_share_an_element(
    grid: ChunkGrid, data: st.DataObject
) -> None:
    seen = np.zeros(grid.shape, int)
    for index in np.ndindex(grid.counts):
        seen[grid.section(index).slices] += 1
    assert (seen == 1).all()
    assert grid.counts == tuple(math.ceil(n / c) for n, c in zip(grid.shape, grid.chunks, strict=True))
    assert grid.count == len(list(np.ndindex(grid.counts)))
    assert [unravel(i, grid.counts) for i in range(grid.count)] == list(np.ndindex(grid.counts))
    bounds = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in grid.shape]
    section = Section(tuple(l for l, _ in bounds), tuple(u for _, u in bounds))
    if section.size:
        table = {i for i in np.ndindex(grid.counts) if grid.section(i).intersection(section)}
        assert set(grid.indices(section)) == table


@pytest.mark.parametrize(
    ("chunks", "says"),
    [((3,), "1 axis; the array has 2"), ((3, 0), "at least 1"), ((-2, 3), "at least 1")],
    ids=["length", "zero", "negative"],
)
def test_wrong_chunks_are_refused(chunks: tuple[int, ...], says: str) -> None:
    with pytest.raises(ChunksError, match=says):
        ChunkGrid.of((10, 6), chunks)
