"""Values that become items of streams, as NumPy would have them; those that do not fit are refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocarrays as ooc
from oocarrays.errors import InputError, SelectionError

pytestmark = pytest.mark.usefixtures("quick")

NESTED = np.dtype([("a", "u1"), ("b", [("c", "f8", (2,)), ("d", "i2")])])
ALIGNED = np.dtype([("a", "i1"), ("b", "f8")], align=True)

WRONG: dict[str, tuple[str, Any, str]] = {
    "an integer array out of range": ("i4", np.array([2**40, 1, 2]), "1099511627776 does not fit items of dtype int32"),
    "an integer out of range": ("i1", np.array([1, 130, 2]), "130 does not fit"),
    "a list out of range": ("i1", [130, 1, 2], "130 does not fit"),
    "a negative one": ("u4", [-1, 2, 3], "-1 does not fit"),
    "a number for all cells": ("u1", 300, "300 does not fit"),
    "ragged lists": ("u1", [[1, 2], [300], []], "300 does not fit"),
    "ragged fractions": ("i4", [[1.5], [2, 3], []], "1.5 is no whole number"),
    "counts and a list": ("u1", (np.array([1, 0, 1]), [1, 256]), "256 does not fit"),
    "ragged": ("i2", ooc.streams.Ragged([1, 0, 1], [1, 2**20]), "1048576 does not fit"),
    "a large float": ("f4", np.array([1e300, 1, 2]), r"1e\+300 does not fit"),
    "a large half": ("f2", [70000.0, 1, 2], "70000.0 does not fit"),
    "long text": ("S3", np.array([b"hello", b"a", b"b"]), "b'hello' does not fit"),
    "masked": ("i4", np.ma.array([1, 2, 3], mask=[0, 1, 0]), "1 value is masked"),
    "floats": ("i4", np.array([1.0, 2, 3]), "no items of dtype int32"),
    "signed": ("u4", np.array([1, 2, 3]), "no items of dtype uint32"),
    "fractions": ("i4", [1.5, 2, 3], "1.5 is no whole number"),
    "nan": ("i4", [1, float("nan"), 3], "no items of dtype int32"),
    "complex": ("f8", [1 + 2j, 2, 3], "does not fit"),
    "text": ("f8", ["1", "2", "3"], "no items of dtype float64"),
    "digits": ("i4", ["1", "2", "3"], "'1' is no whole number"),
    "a field": ("i1,f4", np.array([(1, 1e300)] * 3, "i1,f8"), r"1e\+300 does not fit"),
}


@pytest.mark.parametrize(("dtype", "values", "words"), WRONG.values(), ids=WRONG)
def test_values_that_do_not_fit_are_refused(place: Path, dtype: str, values: Any, words: str) -> None:
    with ooc.streams.open_streams(place, "w", shape=3, dtype=dtype) as s:
        with pytest.raises(InputError, match=words) as error:
            s.write(values)
        assert "\n" not in str(error.value)
        assert not s.lengths.any()
        s.write(np.zeros(3, dtype))
        assert s.mode == "NB"


FITS: dict[str, tuple[Any, Any]] = {
    "bytes": ("u1", [1, 2, 255]),
    "whole numbers": ("i4", [1.0, -2, True]),
    "large numbers": ("u8", [2**63, 2**64 - 1, 0]),
    "floats": ("f4", np.array([0.1, np.inf, np.nan])),
    "integers as floats": ("f4", np.array([1, 2, 3])),
    "smaller integers": ("i2", np.array([1, -32768, 3])),
    "text": ("S3", np.array([b"ab", b"abc", b""], "S5")),
    "times": ("M8[s]", np.array(["2020-01-01", "NaT", "1999-12-31"], "M8[D]")),
    "long doubles": (np.longdouble, np.array([1, 2, 3], np.longdouble) / 3),
    "nested fields": (NESTED, np.array([(k, ([k, 2], 3)) for k in range(3)], NESTED)),
    "aligned fields": (ALIGNED, np.array([(k, 2.5) for k in range(3)], ALIGNED)),
    "aligned fields into packed ones": ("i1,f8", np.array([(k, 2.5) for k in range(3)], ALIGNED)),
    "a mask of nothing": ("i4", np.ma.array([1, 2, 3], mask=False)),
}


@pytest.mark.parametrize(("dtype", "values"), FITS.values(), ids=FITS)
def test_values_that_fit_are_read_back(place: Path, dtype: Any, values: Any) -> None:
    item = np.dtype(dtype)
    want = np.asarray(values).astype(item) if isinstance(values, np.ndarray) else np.array(values, item)
    with ooc.streams.open_streams(place, "w", shape=3, dtype=item) as s:
        s.write(values)
        s.write(values, where=[True, False, True])
    for mode in ("r", "a"):
        with ooc.streams.open_streams(place, mode, dtype=item) as s:  # type: ignore[arg-type]
            assert s.dtype == item
            got = s.to_ragged()
            for cell, times in enumerate((2, 1, 2)):
                np.testing.assert_array_equal(got[cell], np.repeat(want[cell : cell + 1], times))


@pytest.mark.parametrize("mode", ["r", "a", "r+"])
@pytest.mark.parametrize("dtype", ["i8", "f4", ">i4", "M8[s]", "i4,i4"])
def test_a_file_is_not_opened_as_another_type(place: Path, mode: Any, dtype: str) -> None:
    ooc.streams.streams_from_ragged(place, [1, 2], np.arange(3, dtype="<i4"))
    with pytest.raises(InputError, match="has items of dtype int32"):
        ooc.streams.open_streams(place, mode, dtype=dtype)
    with pytest.raises(InputError, match=r"is no type of numpy"):
        ooc.streams.open_streams(place, mode, dtype={0: -5})
    with ooc.streams.open_streams(place) as s, pytest.raises(InputError, match="has items of dtype int32"):
        s.read(dtype=dtype)
    assert ooc.streams.open_streams(place, dtype="u1")[1].view("<i4").tolist() == [1, 2]
    if mode != "r":
        with pytest.raises(InputError, match="is written as items of dtype int32"):
            ooc.streams.open_streams(place, mode, dtype="u1")


@pytest.mark.parametrize("fill", [float("nan"), 1.5, 2**40, "x", None, [1, 2]])
def test_what_fills_up_shorter_streams_is_an_item(place: Path, tmp_path: Path, fill: Any) -> None:
    ragged = ooc.streams.Ragged([1, 2], np.arange(3, dtype="i4"))
    ooc.streams.streams_from_ragged(place, ragged)
    with pytest.raises(InputError, match="fill="):
        ooc.streams.open_streams(place).to_zarr(tmp_path / "z.zarr", fill=fill)
    assert not (tmp_path / "z.zarr").exists()
    with pytest.raises(InputError, match="fill="):
        ragged.padded(fill)


@pytest.mark.parametrize(
    "given", [([[1, 2], [3]],), ([2, 1], [[1, 2], [3]]), ([2, 1], [[1], [2], [3]]), ([[2], [1, 2]], [1])]
)
def test_nested_lists_are_no_counts_and_values(place: Path, given: Any) -> None:
    with pytest.raises(InputError, match=r"lists of different lengths|values of shape"):
        ooc.streams.streams_from_ragged(place, *given)
    assert not place.exists()


def test_lists_become_items_of_the_type_that_is_asked_for(place: Path) -> None:
    ooc.streams.streams_from_ragged(place, [2, 0, 1], [1, 2, 3], dtype="u1")
    assert ooc.streams.open_streams(place).to_ragged().to_list() == [[1, 2], [], [3]]


@pytest.mark.parametrize("cell", [2, -3, 1.5, "a", (0, 0), True, None, slice(0, 1), ()])
def test_ragged_arrays_have_no_other_cells(cell: Any) -> None:
    ragged = ooc.streams.Ragged([1, 2], [1, 2, 3])
    assert [ragged[k].tolist() for k in (0, 1, -1, -2, np.int8(1), (1,))] == [[1], [2, 3], [2, 3], [1], [2, 3], [2, 3]]
    with pytest.raises(SelectionError, match="no cell of shape"):
        ragged[cell]
