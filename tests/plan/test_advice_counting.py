"""What sections take of chunks, against a table of every element."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.plan.advice.patterns import Pattern, counted

pytestmark = pytest.mark.once

pieces = st.tuples(st.integers(0, 11), st.integers(1, 5), st.integers(1, 12)).map(
    lambda t: range(t[0], 12, t[1])[: t[2]]
)
axis = st.lists(pieces, min_size=1, max_size=3)


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[range]], tuple[int, ...]]:
    axes = draw(st.lists(axis, min_size=1, max_size=3))
    shape = tuple(12 for _ in axes)
    return shape, axes, tuple(draw(st.integers(1, 13)) for _ in axes)


def contiguous_runs(taken: set[int]) -> int:
    """Runs of places, counted one by one."""
    return sum(place - 1 not in taken for place in taken)


@given(cases())
def test_counts_are_those_of_a_table_of_every_element(case: tuple) -> None:
    shape, axes, chunks = case
    visits, distinct, whole, runs, most = 0, set(), 0, 0, 0
    for section in product(*axes):
        touched: dict[tuple[int, ...], set[int]] = {}
        for place in product(*section):
            index = tuple(p // c for p, c in zip(place, chunks, strict=True))
            inside = tuple(p % c for p, c in zip(place, chunks, strict=True))
            flat = 0
            for p, i, c, n in zip(inside, index, chunks, shape, strict=True):
                flat = flat * min(c, n - i * c) + p  # as if a chunk at the edge were stored cut
            touched.setdefault(index, set()).add(flat)
        visits += len(touched)
        most = max(most, len(touched))
        distinct |= touched.keys()
        for index, taken in touched.items():
            size = math.prod(min(c, n - i * c) for i, c, n in zip(index, chunks, shape, strict=True))
            whole += len(taken) == size
            runs += contiguous_runs(taken)
    pattern = Pattern.of(axes)
    found = counted(pattern, shape, np.array([chunks, (12,) * len(shape), chunks]))
    for place in (0, 2):
        assert found.visits[place] == visits
        assert found.distinct[place] == len(distinct)
        assert found.most[place] == most
        assert found.whole[place] == whole
        assert found.runs[place] >= runs, "runs that meet at the end of a line are read apart"
    assert pattern.count == math.prod(map(len, axes))
    assert pattern.elements == sum(math.prod(map(len, section)) for section in product(*axes))


@pytest.mark.long
def test_many_intervals_are_counted_as_few_are() -> None:
    """A million rows, of which some chunk lengths at a time are counted."""
    rows, chunks = 10**6, np.array([[1], [3], [1000], [10**6], [2 * 10**6]])
    found = counted(Pattern.of([[range(i, i + 1) for i in range(rows)]]), (rows,), chunks)
    assert found.visits.tolist() == found.runs.tolist() == [rows] * 5
    assert found.distinct.tolist() == [rows, 333334, 1000, 1, 1]
    assert found.whole.tolist() == [rows, 1, 0, 0, 0]
    assert found.most.tolist() == [1] * 5
