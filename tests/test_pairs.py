"""Cases by pairs, beside the product of all values."""

from __future__ import annotations

import math
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pairs import pairs
from tests.profiles import examples

pytestmark = pytest.mark.once


@examples(100)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=6))
def test_each_pair_of_values_occurs(lengths: list[int]) -> None:
    values = {f"axis_{number}": range(length) for number, length in enumerate(lengths)}
    names, cases = pairs(**values)
    assert names == tuple(values)
    assert set(cases) <= set(product(*values.values()))
    assert len(set(cases)) == len(cases) <= math.prod(lengths)
    for a, b in combinations(range(len(lengths)), 2):
        assert {(case[a], case[b]) for case in cases} == set(product(range(lengths[a]), range(lengths[b])))


def test_two_parameters_give_their_product() -> None:
    assert pairs(kind=["a", "b"], at=(1, 2, 3)) == (("kind", "at"), list(product("ab", (1, 2, 3))))


def test_cases_are_few_and_the_same_each_time() -> None:
    values = {name: range(3) for name in "abcd"}
    assert len(pairs(**values)[1]) <= 12, "of 81; none are fewer than 9"
    assert pairs(**values) == pairs(**values)
    assert len(pairs(**{name: range(2) for name in "abcdefgh"})[1]) <= 9, "of 256"
