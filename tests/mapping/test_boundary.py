"""Boundaries against numpy's pad, and constants that elements cannot have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocarrays.errors import InputError
from oocarrays.mapping.layouts.boundary import checked_boundary, standing

PADS = {"reflect": "symmetric", "nearest": "edge", "periodic": "wrap"}


@given(st.sampled_from([*PADS]), st.integers(1, 9), st.integers(0, 30), st.integers(0, 30))
def test_what_stands_beyond_edges_is_what_numpy_pads(boundary, extent: int, before: int, after: int) -> None:
    padded = np.pad(np.arange(extent), (before, after), mode=PADS[boundary])
    assert np.array_equal(standing(boundary, extent, -before, extent + after), padded)


@pytest.mark.parametrize(
    ("boundary", "dtype"),
    [("none", "u1"), (255, "u1"), (-1.5, "f4"), (np.nan, "f2"), (1j, "c8"), (np.float64(2), "i2"), (1, "?")],
)
def test_constants_that_elements_can_have(boundary: object, dtype: str) -> None:
    assert checked_boundary(boundary, np.dtype(dtype)) is boundary


@pytest.mark.parametrize(
    ("boundary", "dtype"), [(256, "u1"), (-1, "u8"), (np.nan, "i4"), (np.inf, "i8"), (1j, "f8"), (2, "?"), (0, "M8[s]")]
)
def test_constants_that_they_cannot_have(boundary: object, dtype: str) -> None:
    with pytest.raises(InputError, match="is no value that an array of"):
        checked_boundary(boundary, np.dtype("c16"), np.dtype(dtype))


@pytest.mark.parametrize("boundary", ["wrap", None, True, [0], {0: "none"}, "3"])
def test_what_is_no_boundary(boundary: object) -> None:
    with pytest.raises(InputError, match="is not 'none', 'reflect', 'nearest', 'periodic' or a number"):
        checked_boundary(boundary)
