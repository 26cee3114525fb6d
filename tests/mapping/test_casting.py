"""Values without a counterpart of another type: numpy's own casts are the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from oocarrays.mapping.casting import lost_value, misfit

pytestmark = pytest.mark.once

TYPES = ["i1", "i8", "u1", "u8", "f2", "f4", "f8", "c8", "c16", "?"]


@given(st.data(), st.sampled_from(TYPES), st.sampled_from(TYPES))
def test_what_is_lost_is_what_numpy_casts_to_another_number(data: st.DataObject, given_type: str, wanted: str) -> None:
    values = data.draw(arrays.arrays(given_type, st.integers(0, 5)))
    with np.errstate(all="ignore"):
        cast = (values if np.dtype(wanted).kind == "c" else values.real).astype(wanted)
        lost = [_differs(a.item(), b.item(), np.dtype(wanted).kind) for a, b in zip(values, cast, strict=True)]
    assert (lost_value(values, np.dtype(wanted)) is not None) == any(lost)
    assert (misfit(values, np.dtype(wanted)) is None) == (
        np.can_cast(given_type, wanted, "same_kind") and not any(lost)
    )


def _differs(before: complex, after: complex, kind: str) -> bool:
    """Whether a number has become another one by a cast; rounding of floating-point numbers is none."""
    if kind in "biu":
        return before != after
    if kind == "f" and complex(before).imag != 0:
        return True
    real = before if kind == "c" else complex(before).real
    return bool(np.isfinite(real) and not np.isfinite(after))


@pytest.mark.parametrize(
    ("values", "dtype", "lost"),
    [
        (np.array([2.0**63]), "i8", 2.0**63),
        (np.array([-np.inf], "f2"), "i8", -np.inf),
        (np.array([np.inf], "f2"), "i8", np.inf),
        (np.array([2**63], "u8"), "i8", 2**63),
        (np.array([np.nan]), "i4", np.nan),
        (np.array([b"ab", b"abcd"]), "S3", b"abcd"),
        (np.array(["abcd"]), "U3", "abcd"),
        (np.array(["NaT", "9999-01-01"], "M8[s]"), "M8[ns]", np.datetime64("9999-01-01", "s")),
        (np.array([2.0, 255.0]), "u1", None),
        (np.array([1, 0]), "?", None),
        (np.array([1e-300, 1 / 3, np.nan, np.inf]), "f4", None),
        (np.array([b"ab"], "S5"), "S3", None),
        (np.array(["2000-01-01", "NaT"], "M8[s]"), "M8[ns]", None),
        (np.array([1234], "m8[ms]"), "m8[s]", None),
        (np.arange(4).astype(">i8"), "<i8", None),
        (np.empty(0), "i1", None),
        (np.array([-65504, 65504], "f2"), "i8", None),
    ],
)  # fmt: skip
def test_the_value_that_is_lost_is_named_and_what_is_rounded_is_not_lost(
    values: np.ndarray, dtype: str, lost: object
) -> None:
    np.testing.assert_equal(lost_value(values, np.dtype(dtype)), lost)


def test_pieces_of_strided_arrays_are_all_compared() -> None:
    values = np.zeros((400, 400)).T
    values[399, 398] = -1e300
    assert lost_value(values, np.dtype("f4")) == -1e300
    assert lost_value(values[:, ::2], np.dtype("f4")) == -1e300
