"""Unions of products against masks that hold every element."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.union import Union, product_of, runs_of, touched
from tests.strategies import requests_of, shapes

pytestmark = pytest.mark.once


def mask_of(shape: tuple[int, ...], requests: list) -> np.ndarray:
    mask = np.zeros(shape, bool)
    for axes in requests:
        mask[np.ix_(*axes) if axes else ...] = True
    return mask


@st.composite
def asked(draw: st.DrawFn) -> tuple[tuple[int, ...], list]:
    shape = draw(shapes(3, most=2000))
    return shape, draw(requests_of(shape))


@given(asked())
def test_a_union_holds_what_a_mask_holds_in_its_order_and_its_complement_the_rest(case: tuple) -> None:
    shape, requests = case
    union, mask = Union.of(map(product_of, requests)), mask_of(shape, requests)
    numbered = [tuple(index) for index in np.argwhere(mask).tolist()]
    assert union.count == len(numbered)
    assert [index for index in np.ndindex(shape) if index in union] == numbered
    for start in range(0, union.count, 7):
        inside = np.zeros(shape, int)
        for first, last in union.boxes(range(start, start + 7)):
            inside[tuple(map(slice, first, last))] += 1
        assert [tuple(i) for i in np.argwhere(inside).tolist()] == numbered[start : start + 7]
        assert inside.max() == 1
    others = Union.of(union.complement(shape))
    assert union.count + others.count == math.prod(shape)
    assert not any(index in union and index in others for index in np.ndindex(shape))
    assert list(pickle.loads(pickle.dumps(union)).boxes()) == list(union.boxes())


@given(asked(), st.data())
def test_what_lies_within_a_box_and_the_chunks_it_touches_are_those_of_the_mask(
    case: tuple, data: st.DataObject
) -> None:
    shape, requests = case
    box = tuple(range(*sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n))))) for n in shape)
    there = tuple(slice(each.start, each.stop) for each in box)
    found, mask = np.zeros(shape, int), np.zeros(shape, bool)
    mask[there] = mask_of(shape, requests)[there]
    for first, last in Union.of(map(product_of, requests)).within(box).boxes():
        found[tuple(map(slice, first, last))] += 1
    np.testing.assert_array_equal(found, mask)
    grid = ChunkGrid.of(shape, tuple(data.draw(st.integers(1, n + 2)) for n in shape))
    mask = mask_of(shape, requests)
    wanted = [index for index in np.ndindex(grid.counts) if mask[grid.section(index).slices].any()]
    straight = Union.of(product_of(axes, grid.chunks) for axes in requests)
    by_runs = Union.of(touched(grid, map(product_of, requests)))
    for union in (straight, by_runs):
        assert [index for index in np.ndindex(grid.counts) if index in union] == wanted


def test_alike_rows_are_described_once_however_many_ranks_want_them() -> None:
    requests = [(range(rank, 10**5, 4), range(0, 10**5, 2)) for rank in range(4)]
    union = Union.of(map(product_of, requests))
    assert union.runs.tolist() == [[0, 10**5]]
    assert (union.count, runs_of(range(0, 8, 3)).tolist()) == (10**10 // 2, [[0, 1], [3, 4], [6, 7]])
