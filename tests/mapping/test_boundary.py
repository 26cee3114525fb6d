"""Boundaries against numpy's pad, and constants that elements cannot have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.errors import InputError
from oocarrays.mapping.layouts.halo import checked_boundary, standing

pytestmark = pytest.mark.once

PADS = {"reflect": "symmetric", "nearest": "edge", "periodic": "wrap"}


@given(st.sampled_from([*PADS]), st.integers(1, 9), st.integers(0, 30), st.integers(0, 30))
def test_what_stands_beyond_edges_is_what_numpy_pads(boundary, extent: int, before: int, after: int) -> None:
    padded = np.pad(np.arange(extent), (before, after), mode=PADS[boundary])
    assert np.array_equal(standing(boundary, extent, -before, extent + after), padded)


REFUSED = "is not a value of an array of"
NEITHER = "is not 'none', 'reflect', 'nearest', 'periodic' or a number"
TAKEN: list[tuple[object, str]] = [
    ("none", "u1"), (255, "u1"), (-1.5, "f4"), (np.nan, "f2"), (1j, "c8"), (np.float64(2), "i2"), (1, "?"),
]  # fmt: skip
BY_AXIS: list[tuple[object, object]] = [
    ({0: "periodic", -1: 0}, ("periodic", "none", 0)), ({}, "none"), (["nearest"] * 3, "nearest"),
    ((0, 1, 0), (0, 1, 0)), ({np.int64(1): "reflect"}, ("none", "reflect", "none")),
]  # fmt: skip
WRONG: list[tuple[object, int, str, str]] = [
    *((constant, 2, dtype, REFUSED) for constant, dtype in [
        (256, "u1"), (-1, "u8"), (np.nan, "i4"), (np.inf, "i8"), (1j, "f8"), (2, "?"), (0, "M8[s]"), (1.5, "u1"),
        (1e300, "f4"), (2**70, "f8"),
    ]),
    *((boundary, 2, "c16", NEITHER) for boundary in ["wrap", None, True, [0, None], {0: "wrap"}, ("none", True), "3"]),
    ({3: 0}, 3, "u1", "3 is not one of the 3 axes"),
    ({"x": 0}, 3, "u1", "boundary={'x': 0}: 'x' is not one of the 3 axes, 0 to 2"),
    ({True: 0}, 3, "u1", "True is not one of the 3 axes"),
    ({2: 0, -1: 0}, 3, "u1", "names an axis twice"),
    ([0, 1], 3, "u1", "has 2 entries"),
    ({1: 300}, 3, "u1", "boundary=300 is not a value of an array of uint8"),
]  # fmt: skip


def test_boundaries_that_elements_can_have_are_taken_for_all_axes_or_by_axis() -> None:
    for boundary, dtype in TAKEN:
        assert checked_boundary(boundary, 2, np.dtype(dtype)) is boundary
    for boundary, each in BY_AXIS:
        assert checked_boundary(boundary, 3, np.dtype("f8")) == each


@pytest.mark.parametrize(("boundary", "axes", "dtype", "said"), WRONG, ids=str)
def test_what_is_no_boundary_is_refused(boundary: object, axes: int, dtype: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        checked_boundary(boundary, axes, np.dtype("c16"), np.dtype(dtype))
