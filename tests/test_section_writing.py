"""``a[key] = values`` and ``a.write`` beside numpy's own assignment, and what is refused in one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.codecs import ZstdCodec

import oocarrays as ooc
from oocarrays.errors import BudgetError, InputError, SelectionError, UnsupportedError
from tests.profiles import examples
from tests.strategies import shapes

KINDS = ["i4", "u1", "f4", "f8", "c8", "bool", "S3", "M8[s]"]


def arrays(shape: tuple[int, ...], dtype: str = "i4", **how: Any) -> tuple[ooc.OutOfCoreArray, np.ndarray]:
    """An array, and numpy's."""
    chunks = tuple(min(n, 3) or 1 for n in shape)
    stored = zarr.create_array({}, shape=shape, dtype=dtype, **({"chunks": chunks, "compressors": None} | how))
    return ooc.open_array(stored), np.full(shape, stored.fill_value, dtype)


@st.composite
def basic(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Numpy's basic indexing."""
    key: list[Any] = []
    for extent in shape[: draw(st.integers(0, len(shape)))]:
        bound, step = (
            st.none() | st.integers(-extent - 1, extent + 1),
            st.none() | st.integers(1, 4) | st.integers(-4, -1),
        )
        slices = st.builds(slice, bound, bound, step)
        key.append(draw(slices | st.integers(-extent, extent - 1) if extent else slices))
    for added in draw(st.lists(st.sampled_from([None, ...]), max_size=2, unique=True)):
        key.insert(draw(st.integers(0, len(key))), added) if added is None else key.append(added)
    return key[0] if len(key) == 1 and draw(st.booleans()) else tuple(key)


@examples(120)
@given(st.data(), st.sampled_from(KINDS), st.sampled_from(["i2", "f8"]))
def test_assignment_is_numpys(data: st.DataObject, dtype: str, given_type: str) -> None:
    shape = data.draw(shapes(4, 400))
    array, model = arrays(shape, dtype, zarr_format=2 if dtype in ("S3", "M8[s]") else 3)
    key = data.draw(basic(shape))
    part = model[key].shape
    cut = part[data.draw(st.integers(0, len(part))) :]
    values = np.arange(np.prod(cut, dtype=int), dtype=given_type).reshape(cut)
    values = values.astype(dtype) if dtype in ("S3", "M8[s]") else values
    values = data.draw(st.sampled_from([values, values[None] if part else values, values[..., :1] if cut else values]))
    if (values.astype(dtype) == values).all():
        array[key] = values
        model[key] = values
    else:
        with pytest.raises(SelectionError, match="cannot be stored as"):
            array[key] = values
    np.testing.assert_array_equal(array[...], model)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (np.s_[[1, 1, 5, 1]], [1, 2, 3, 4]),
        (np.s_[[5, 0]], 7),
        (np.s_[[True, False] * 4], [1, 2, 3, 4]),
        (np.s_[[]], 3),
        (np.s_[::-1], range(8)),
        (np.s_[:2], [True, False]),
    ],
)
def test_lists_of_indices_are_written_in_order_and_the_last_wins(key: Any, values: Any) -> None:
    array, model = arrays((8,))
    array[key] = values
    model[key] = values
    np.testing.assert_array_equal(array[...], model)


def test_lists_along_several_axes_take_their_product() -> None:
    array, model = arrays((6, 7))
    array.write(([4, 0, 4], [1, 6]), np.arange(6).reshape(3, 2))
    model[np.ix_([4, 0, 4], [1, 6])] = np.arange(6).reshape(3, 2)
    np.testing.assert_array_equal(array[...], model)


def test_an_array_is_moved_over_itself() -> None:
    array, model = arrays((12,))
    array[...] = model[...] = np.arange(12)
    array[1:] = array[:-1]
    model[1:] = model[:-1].copy()
    array[...] = array  # what is no numpy array, and can be one
    np.testing.assert_array_equal(array[...], model)


def test_values_that_fit_are_cast_as_numpy_casts_them() -> None:
    array, model = arrays((4,), "u1")
    for values in (np.array([200, 1, 2, 3]), np.float32(2), True, [1.0, 2, 3, 4]):
        array[...] = values
        model[...] = values
        np.testing.assert_array_equal(array[...], model)
    for lost in (np.array([300, -1, 2, 3]), np.float32(2.9), [1, 2, 3, 4.5]):
        with pytest.raises(SelectionError, match=r"the value \S+ \(\w+\) cannot be stored as uint8"):
            array[...] = lost
    np.testing.assert_array_equal(array[...], model)


def test_a_section_is_written_as_its_slices(tmp_path: Path) -> None:
    array, model = arrays((9, 9))
    section = ooc.Section((1, 0), (9, 8), (3, 2))
    array.write(section, 5)
    model[section.slices] = 5
    np.testing.assert_array_equal(array[...], model)


def test_less_memory_writes_the_same(tmp_path: Path) -> None:
    stored = zarr.create_array(tmp_path, data=np.zeros((64, 64)), chunks=(32, 64), compressors=None)
    array = ooc.open_array(stored)
    array.write(np.s_[::3, 5:50], 1, memory="1KiB")
    expected = np.zeros((64, 64))
    expected[::3, 5:50] = 1
    np.testing.assert_array_equal(array[...], expected)


REFUSED = {
    "out of range": (np.s_[9], 1, {}, SelectionError, r"index 9 is out of range for axis 0 with 8 elements"),
    "too many axes": (np.s_[1, 2, 3], 1, {}, SelectionError, "too many indices: 3 for an array of 2 axes"),
    "no broadcast": (np.s_[:3], np.ones(5), {}, SelectionError, r"values of shape \(5,\) do not broadcast.*\(3, 8\)"),
    "no number": (np.s_[0], "abc", {}, SelectionError, "values of type str cannot be stored as int32"),
    "no integer": (np.s_[0], float("nan"), {}, SelectionError, r"value nan \(float64\) cannot be stored as int32"),
    "too large": (np.s_[0], 2**40, {}, SelectionError, "the value 1099511627776 .* cannot be stored as int32"),
    "not a section": (ooc.Section((0,), (9,)), 1, {}, SelectionError, r"not a section of an array of shape \(8, 8\)"),
    "no index": (np.s_["x"], 1, {}, SelectionError, "'x' is not an index"),
    "no method": (
        np.s_[0],
        1,
        {"method": "quick"},
        UnsupportedError,
        "method='quick' is not one of 'auto', 'direct', 'sieve'",
    ),
    "coded": (np.s_[0], 1, {"method": "direct"}, UnsupportedError, "these are coded by zstd: use 'auto'"),
    "no memory": (np.s_[0], 1, {"memory": 10}, BudgetError, r"memory=0.0 MiB \(10 bytes\) is too small"),
}


@pytest.mark.parametrize(("key", "values", "how", "kind", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_written_is_refused(key: Any, values: Any, how: Any, kind: type, says: str) -> None:
    array, _ = arrays((8, 8), compressors=ZstdCodec())
    with pytest.raises(kind, match=says) as caught:
        array.write(key, values, **how)
    assert isinstance(caught.value, InputError)
    assert "\n" not in str(caught.value)
    assert not array[...].any()


def test_an_array_open_for_reading_is_not_written_to(tmp_path: Path) -> None:
    zarr.create_array(tmp_path, shape=(4,), chunks=(2,), dtype="i4")
    array = ooc.open_array(tmp_path)
    says = f"{re.escape(str(tmp_path))} is open for reading only: open it with mode='r\\+' to write to it"
    with pytest.raises(InputError, match=says):
        array[0] = 1
