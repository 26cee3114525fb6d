"""Cases by pairs, beside the product of all values."""

from __future__ import annotations

import math
from itertools import combinations, product

import pytest
from hypothesis import given, strategies as st

from tests.pairs import is_table, pairs, sample
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


def test_few_cases_have_each_value() -> None:
    sizes = {"kind": 5, "zarr_format": 2, "codec": 3}
    cases = [dict(zip(sizes, case, strict=True)) for case in product(*map(range, sizes.values()))]
    chosen = sample(cases, 5, most=5)
    assert len(chosen) == 5
    for name, size in sizes.items():
        assert {cases[number][name] for number in chosen} == set(range(size))


def test_few_cases_of_a_table_are_far_apart() -> None:
    assert sample([{"row": row} for row in range(1000, 1020)], 4) == [0, 5, 10, 15]
    assert sample([{"row": row} for row in range(1000, 1003)], 4) == [0, 1, 2]
    assert sample([{}], 4) == [0]


@pytest.mark.parametrize("least", [4, 10, 15, 30])
def test_a_sample_has_every_value_that_several_cases_have(least: int) -> None:
    cases = [{"kind": kind, "at": (point, number)} for kind in range(5) for point in "ab" for number in range(3)]
    chosen = sample(cases, least)
    assert len(chosen) == max(least, 6)  # each of six points; kinds come with them
    assert {cases[number]["kind"] for number in chosen} == set(range(5))
    assert {cases[number]["at"] for number in chosen} == {(point, number) for point in "ab" for number in range(3)}


def test_a_table_is_no_product() -> None:
    assert is_table([{"row": row, "codec": row % 2} for row in range(6)])
    assert not is_table([{"row": row, "codec": codec} for row in range(3) for codec in range(2)])
