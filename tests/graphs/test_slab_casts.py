"""Casts of kernels' results that lose values: said once, and never where none is lost."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.graphs.slabs.casting import lost_value

TYPES = ["i1", "i8", "u1", "u8", "f2", "f4", "f8", "c8", "c16", "?"]
ROWS = np.arange(60.0).reshape(12, 5)


@given(st.data(), st.sampled_from(TYPES))
def test_what_is_lost_is_what_numpy_casts_to_another_number(data: st.DataObject, wanted: str) -> None:
    given_type = data.draw(st.sampled_from([each for each in TYPES if np.can_cast(each, wanted, "same_kind")]))
    values = data.draw(arrays.arrays(given_type, st.integers(0, 5)))
    with np.errstate(all="ignore"):
        cast = values.astype(wanted)
        if np.dtype(wanted).kind in "iu":
            lost = [int(a) != int(b) for a, b in zip(values, cast, strict=True)]
        else:
            lost = np.isfinite(values) & ~np.isfinite(cast)
    assert (lost_value(values, np.dtype(wanted)) is not None) == bool(np.any(lost))


def test_pieces_of_strided_arrays_are_all_looked_at() -> None:
    values = np.zeros((400, 400)).T
    values[399, 398] = -1e300
    assert lost_value(values, np.dtype("f4")) == -1e300
    assert lost_value(values[:, ::2], np.dtype("f4")) == -1e300


@pytest.mark.parametrize(
    ("kernel", "dtype", "said"),
    [
        (lambda block: 1e300 * block, "f4", r"gave \S+e\+30\d \(float64\).*is inf \\(float32\\) in .*give dtype="),
        (lambda block: 10 * block.astype("i8"), "i1", r"gave \d+ \(int64\).*is -?\d+ \(int8\) in"),
    ],
)  # fmt: skip
def test_a_cast_that_loses_values_is_said_once(kernel: Any, dtype: str, said: str) -> None:
    source = zarr.create_array({}, data=ROWS, chunks=(2, 5))
    how: dict[str, Any] = {"dtype": dtype, "height": 2, "ranks": 2, "memory": "64MiB", "scheduler": "threads"}
    with pytest.warns(RuntimeWarning) as told:
        ooc.map_slabs(kernel, source, MemoryStore(), **how).run()
    ours = [str(each.message) for each in told if "the kernel gave" in str(each.message)]
    assert len(ours) == 1
    with pytest.warns(RuntimeWarning, match="the kernel gave"):
        ooc.map_slabs(kernel, source, MemoryStore(), **how).run()


def test_nothing_is_said_of_what_is_rounded() -> None:
    source = zarr.create_array({}, data=ROWS, chunks=(2, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = ooc.map_slabs(
            lambda block: block / 3, source, MemoryStore(), dtype="f4", memory="64MiB", scheduler="threads"
        ).run()
    np.testing.assert_array_equal(made[...], (ROWS / 3).astype("f4"))
