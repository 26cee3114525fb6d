"""Slices of distributed arrays, against numpy's of the whole array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import LayoutError, OocError, SelectionError
from tests.owners import numbered, part
from tests.profiles import examples

GEN = "(gen_block(0,4,5), *)"
TEXTS = ["(block, *)", "(cyclic(2), *)", "(block, cyclic)", "(cyclic, cyclic(3))", "(*, block)", GEN]
ENDS = st.one_of(st.none(), st.integers(-11, 11))


def of_grid(text: str) -> tuple[int, int]:
    return {"(*, block)": (1, 4), GEN: (3, 1)}.get(text, (4, 1) if text.endswith("*)") else (2, 3))


@examples(80)
@given(
    text=st.sampled_from(TEXTS),
    rows=st.builds(slice, ENDS, ENDS, st.one_of(st.none(), st.integers(1, 5))),
    columns=st.builds(slice, ENDS, ENDS, st.one_of(st.none(), st.integers(1, 5))),
)
def test_a_slice_is_numpys(text: str, rows: slice, columns: slice) -> None:
    array = numbered((9, 8))
    x = ooc.ranks.distribute(array, text, grid=of_grid(text), scheduler="threads")
    made, right = x[rows, columns], array[rows, columns]
    assert made.shape == right.shape
    assert made.ranks == x.ranks
    np.testing.assert_array_equal(made.compute(), right, strict=True)
    for rank in range(made.ranks):
        np.testing.assert_array_equal(made.local(rank).compute(), part(right, made.layout, rank))


def test_ranks_keep_what_they_hold() -> None:
    x = ooc.ranks.distribute(np.arange(40).reshape(10, 4), "(block, *)", ranks=3, scheduler="threads")
    made = x[1::3]
    assert str(made.layout) == "(gen_block(1,2,0), *) on 3 × 1"
    assert made.plan is None, "nothing moves"
    np.testing.assert_array_equal(x[..., ::-1].compute(), np.arange(40).reshape(10, 4)[:, ::-1])
    whole = ooc.ranks.distribute(np.arange(12), "cyclic(2)", ranks=3, scheduler="threads")
    assert str(whole[:].layout) == str(whole.layout)
    np.testing.assert_array_equal((whole[:6] + whole[:6]).compute(), 2 * np.arange(6))
    np.testing.assert_array_equal(x[2:].redistribute("(*, cyclic)").compute(), np.arange(8, 40).reshape(8, 4))
    np.testing.assert_array_equal(x[2:5].to_dask().sum(axis=0).compute(), np.arange(40).reshape(10, 4)[2:5].sum(axis=0))


@pytest.mark.parametrize(
    ("key", "kind", "message"),
    [
        (3, LayoutError, r"3 is not a slice: x\[5:6\] keeps the axis"),
        (np.s_[::-1], LayoutError, "has a negative step along axis 0"),
        (np.s_[:, :, :], SelectionError, "too many indices: 3"),
        ([0, 2], LayoutError, "not a slice"),
        (np.s_[None, :2], LayoutError, "None is not a slice"),
        (np.s_["a":], LayoutError, "not a slice of whole numbers"),
        (np.s_[::0], LayoutError, "not a slice of whole numbers"),
    ],
)  # fmt: skip
def test_what_slices_refuse(key: Any, kind: type[OocError], message: str) -> None:
    x = ooc.ranks.distribute(np.arange(12).reshape(4, 3), "(block, *)", ranks=2, scheduler="threads")
    with pytest.raises(kind, match=message):
        x[key]
