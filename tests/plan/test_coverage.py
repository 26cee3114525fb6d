"""The elements that ranks cover together, and whose stay, against masks of every element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.collective.wanted import Coverage
from tests.strategies import chunks_for, requests_of, shapes
from tests.work import CALLS_A_SECOND, counted

pytestmark = pytest.mark.once


@st.composite
def coverages(draw: st.DrawFn) -> Coverage:
    shape = draw(shapes(3, most=1500))
    stored = Stored(grid=ChunkGrid.of(shape, draw(chunks_for(shape))), itemsize=1, local=True)
    return Coverage(stored=stored, requests=tuple(draw(requests_of(shape, max_ranks=4))))


def owners_of(coverage: Coverage) -> np.ndarray:
    """The rank whose element stays, -1 for nobody's: rank after rank."""
    owners = np.full(coverage.grid.shape, -1)
    for rank, axes in enumerate(coverage.requests):
        owners[np.ix_(*axes) if axes else ...] = rank
    return owners


@given(coverages())
def test_a_chunk_is_read_first_where_somebody_writes_it_and_nobody_some_of_it(coverage: Coverage) -> None:
    owners, grid = owners_of(coverage), coverage.grid
    wanted = [index for index in np.ndindex(grid.counts) if (owners[grid.section(index).slices] >= 0).any()]
    left = [index for index in wanted if (owners[grid.section(index).slices] < 0).any()]
    assert coverage.wanted.count == len(wanted)
    assert [index for index in wanted if coverage.needs(index)] == left
    assert coverage.reads == len(left)


@given(coverages())
def test_what_stands_laid_lowest_first_is_what_stays(coverage: Coverage) -> None:
    owners, grid = owners_of(coverage), coverage.grid
    for index in np.ndindex(grid.counts):
        box = grid.section(index)
        laid = np.full(grid.shape, -1)
        for rank, axes in coverage.standing(box):
            laid[np.ix_(*axes) if axes else ...] = rank
        np.testing.assert_array_equal(laid[box.slices], owners[box.slices])
        assert (laid >= 0).sum() == (laid[box.slices] >= 0).sum()


def test_interleaved_ranks_cover_a_large_array_at_once() -> None:
    requests = tuple((range(rank, 2**20, 64), range(2**20)) for rank in range(64))
    with counted() as work:
        stored = Stored(grid=ChunkGrid.of((2**20, 2**20), (100, 1000)), itemsize=1, local=True)
        coverage = Coverage(stored=stored, requests=requests)
        assert (coverage.reads, coverage.wanted.count) == (0, 10486 * 1049)
    assert work.calls < CALLS_A_SECOND
