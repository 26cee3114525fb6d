"""Functions over the parts of distributed arrays, and arithmetic of them."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from distributed import Client, futures_of, wait
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import InputError, KernelError, LayoutError
from tests.profiles import examples

LAYOUTS = ["(block, *)", "(cyclic(2), *)", "(block, cyclic)", "(cyclic, cyclic(3))"]


@examples(40)
@given(
    shape=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    layout=st.sampled_from(LAYOUTS),
    ranks=st.integers(1, 6),
)
def test_arithmetic_is_numpys(shape: tuple[int, int], layout: str, ranks: int) -> None:
    grid = (ranks, 1) if layout.endswith("*)") else (ranks, 2)
    a, b = (np.random.default_rng(seed).normal(size=shape) for seed in range(2))
    x, y = (ooc.ranks.distribute(each, layout, grid=grid, scheduler="threads") for each in (a, b))
    made = -(2 * x + y / 4 - 1) * (3 - y) ** 2 + 1 / (x * x + 1)
    assert made.layout == x.layout
    np.testing.assert_allclose(made.compute(), -(2 * a + b / 4 - 1) * (3 - b) ** 2 + 1 / (a * a + 1))


def test_dtypes_are_numpys() -> None:
    a = np.arange(6, dtype="i2")
    x = ooc.ranks.distribute(a, "block", ranks=2, scheduler="threads")
    pairs = [(x + 1, a + 1), (x / 2, a / 2), (x * 1.5, a * 1.5), (x + 1j, a + 1j), (x.map_local(np.sqrt), np.sqrt(a))]
    for made, expected in pairs:
        assert made.dtype == made.compute().dtype == expected.dtype
    assert x.map_local(lambda part: part > 2, dtype=bool).compute().tolist() == [False] * 3 + [True] * 3


def test_on_workers_each_part_is_made_where_it_is(two: Client) -> None:
    data = np.arange(48.0).reshape(8, 6)
    x = ooc.ranks.distribute(data, "(cyclic, *)", ranks=4, scheduler=two)
    made = (x + x.map_local(np.negative) * 0.5).persist()
    wait(futures_of(made))
    where = two.who_has()
    assert [tuple(where[key]) for key in made.tasks.keys] == [(home,) for home in made.placement.values()]
    np.testing.assert_array_equal(made.compute(), data / 2)
    np.testing.assert_array_equal(made.redistribute("(*, block)").compute(), data / 2)


def test_parts_cannot_be_changed_and_faults_are_told() -> None:
    x = ooc.ranks.distribute(np.arange(6.0), "block", ranks=2, scheduler="threads")

    def spoil(part: np.ndarray) -> np.ndarray:
        part[...] = 0
        return part

    with pytest.raises(KernelError, match="read-only"):
        x.map_local(spoil, dtype="f8").compute()
    np.testing.assert_array_equal(x.compute(), np.arange(6.0))
    with pytest.raises(KernelError, match=r"returned an array of shape \(\) for a part of \(3,\)"):
        x.map_local(np.sum).compute()
    with pytest.raises(InputError, match="pass dtype="):
        x.map_local(lambda part: part[0])
    y = ooc.ranks.distribute(np.arange(6.0), "cyclic", ranks=2, scheduler="threads")
    with pytest.raises(LayoutError, match="redistribute it first"):
        x + y
    with pytest.raises(LayoutError, match="is not a DistributedArray"):
        x + np.arange(6)


def test_slices_on_workers_stay_where_they_are(two: Client) -> None:
    data = np.arange(48.0).reshape(8, 6)
    x = ooc.ranks.distribute(data, "(block, *)", ranks=4, scheduler=two)
    made = x[1::2, ::-1].persist()
    wait(futures_of(made))
    where = two.who_has()
    assert [tuple(where[key]) for key in made.tasks.keys] == [(home,) for home in made.placement.values()]
    np.testing.assert_array_equal(made.compute(), data[1::2, ::-1])
    np.testing.assert_array_equal(x.redistribute("(cyclic, *)")[2:, 1:].compute(), data[2:, 1:])


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_are_of_elements_as_in_numpy(name: str) -> None:
    data, compared = np.arange(10).reshape(5, 2) % 4, getattr(operator, name)
    x = ooc.ranks.distribute(data, "(cyclic, *)", ranks=2, scheduler="threads")
    for other in (1, np.float32(2.5)):
        found = compared(x, other)
        assert (found.layout, found.dtype) == (x.layout, np.dtype(bool))
        np.testing.assert_array_equal(found.compute(), compared(data, other))
    np.testing.assert_array_equal(compared(3, x).compute(), compared(3, data))
    np.testing.assert_array_equal(compared(x, x - 1).compute(), compared(data, data - 1))
    for other in ([1, 2], x.redistribute("(block, *)")):
        with pytest.raises(LayoutError):
            compared(x, other)


def test_a_comparison_is_no_answer_by_itself() -> None:
    x = ooc.ranks.distribute(np.arange(4), "block", ranks=2, scheduler="threads")
    with pytest.raises(InputError, match=r"4 elements has no single truth value: use x\.compute\(\)\.any\(\) or \.all"):
        bool(x == 1)
    assert x[2:3] == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
