"""Slabs of a local array: they tile it in the order in which it is stored, and fit the budget with their halos."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.plan.files.partitions import Slabs, partitions
from tests.profiles import examples
from tests.strategies import grids

pytestmark = pytest.mark.once


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3)), min_size=1, max_size=3), st.randoms(), st.integers(1, 900)
)
def test_slabs_tile_the_array_in_file_order(axes: list[tuple[int, int]], random: object, budget: int) -> None:
    shape, depth = (tuple(each) for each in zip(*axes, strict=True))
    order = list(range(len(shape)))
    random.shuffle(order)  # type: ignore[attr-defined]
    least = math.prod(1 + 2 * d for d in depth) * 2
    if budget < least:
        with pytest.raises(BudgetError, match=f"at least .*{least} bytes"):
            Slabs.of(shape, depth=depth, order=order, itemsize=2, budget=budget)
        return
    slabs = Slabs.of(shape, depth=depth, order=order, itemsize=2, budget=budget)
    visited = np.zeros(shape, int)
    firsts = []
    for slab in slabs:
        visited[slab.own.slices] += 1
        firsts.append(tuple(slab.own.lower[axis] for axis in order))
        assert slab.outer.size * 2 <= budget
        assert slab.outer.lower == tuple(l - d for l, d in zip(slab.own.lower, depth, strict=True))
        assert slab.outer.upper == tuple(u + d for u, d in zip(slab.own.upper, depth, strict=True))
    assert (visited == 1).all()
    assert firsts == sorted(firsts)


@examples(60)
@given(grids(), st.integers(1, 60))
def test_partitions_are_boxes_of_whole_chunks(grid: ChunkGrid, room: int) -> None:
    visited = np.zeros(grid.shape, int)
    for box in partitions(grid, room):
        visited[box.slices] += 1
        assert math.prod(map(len, grid.touched(box))) <= room
        ends = zip(box.upper, grid.chunks, grid.shape, strict=True)
        assert all(l % c == 0 for l, c in zip(box.lower, grid.chunks, strict=True))
        assert all(u % c == 0 or u == n for u, c, n in ends)
    assert (visited == 1).all()
