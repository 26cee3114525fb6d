"""Who wants what of a file, against every element counted one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays import Section
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.selection import Axes, lengths
from oocarrays.plan.collective.wanted import AccessTable, places, requests_of
from tests.owners import layouts, numbered, part
from tests.profiles import examples
from tests.selections import requests
from tests.strategies import chunks_for

pytestmark = pytest.mark.once

SHAPES = st.lists(st.integers(0, 12), max_size=3).map(tuple)


def marked(shape: tuple[int, ...], axes: Axes) -> np.ndarray:
    """Which elements are wanted."""
    marks = np.zeros(shape, bool)
    if all(map(len, axes)):
        marks[np.ix_(*map(np.asarray, axes)) if axes else ()] = True
    return marks


@examples(60)
@given(st.data(), SHAPES)
def test_the_requests_of_a_layout_are_what_its_ranks_hold(data: st.DataObject, shape: tuple[int, ...]) -> None:
    layout, x = data.draw(layouts(shape)), numbered(shape)
    for rank, axes in enumerate(requests_of(layout)):
        np.testing.assert_array_equal(x[np.ix_(*map(np.int64, axes))] if axes else x, part(x, layout, rank))


@examples(30)
@given(st.data(), SHAPES)
def test_a_layout_of_a_section_counts_from_it(data: st.DataObject, shape: tuple[int, ...]) -> None:
    layout = data.draw(layouts(shape))
    lower, steps = [data.draw(st.integers(0, 4)) for _ in shape], [data.draw(st.integers(1, 3)) for _ in shape]
    there = zip(lower, shape, steps, strict=True)
    within = Section.of(range(l, l + n * step, step) for l, n, step in there)
    x = numbered(tuple(l + n * step + 1 for l, n, step in zip(lower, shape, steps, strict=True)))
    for rank, axes in enumerate(requests_of(layout, within)):
        held = x[np.ix_(*map(np.int64, axes))] if axes else x
        np.testing.assert_array_equal(held, part(x[within.slices], layout, rank))


@examples(150)
@given(st.data(), SHAPES)
def test_the_table_has_every_chunk_that_is_wanted_once_and_no_other(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    grid = ChunkGrid.of(shape, data.draw(chunks_for(shape)))
    wants = data.draw(requests(shape))
    marks = [marked(shape, axes) for axes in wants]
    table = AccessTable(grid, wants)
    found = [index for box in table.boxes(table.whole) for index in grid.indices(box)]
    every = list(itertools.product(*map(range, grid.counts)))
    touched = {index: [bool(mark[grid.section(index).slices].any()) for mark in marks] for index in every}
    assert sorted(found) == [index for index in every if any(touched[index])]
    assert table.are_shared == any(sum(by) > 1 for by in touched.values())


@examples(150)
@given(st.data(), SHAPES)
def test_a_box_is_read_from_the_first_to_the_last_that_is_wanted_and_each_finds_its_own(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    wants = data.draw(requests(shape))
    bounds = [sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))) for n in shape]
    box = Section(tuple(b[0] for b in bounds), tuple(b[1] for b in bounds))
    x, table = numbered(shape), AccessTable(ChunkGrid.of(shape, (1,) * len(shape)), wants)
    counts = [int(marked(shape, axes)[box.slices].sum()) for axes in wants]
    assert table.counts(box).tolist() == counts
    if not any(counts):
        return
    read = table.of(box).tight
    of_anybody = np.argwhere(np.logical_or.reduce([marked(shape, axes) for axes in wants])[box.slices])
    for axis, taken in enumerate(read):
        assert int(taken[0]) == box.lower[axis] + of_anybody[:, axis].min()
        assert int(taken[-1]) == box.lower[axis] + of_anybody[:, axis].max()
    there = x[np.ix_(*map(np.int64, read))] if read else x
    for axes, count in zip(wants, counts, strict=True):
        if count:
            mine, inside = places(axes, box, read)
            own = np.full(lengths(axes), -1)
            own[(*mine, ...)] = there[np.ix_(*(np.r_[p] for p in inside))] if inside else there
            whole = x[np.ix_(*map(np.int64, axes))] if axes else x
            np.testing.assert_array_equal(own[own >= 0], whole[own >= 0])
            assert (own >= 0).sum() == count
