"""``a[key]`` and ``a.read``: what numpy means by a key, or a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import InputError, SelectionError
from tests.seams import read_plan

KEYS: list[Any] = [
    np.s_[2:10:2, 3:9:2],
    np.s_[::-1, -2],
    np.s_[...],
    np.s_[..., None, 4],
    np.s_[[4, 0, 4]],
    np.s_[:, [True, False] * 5 + [True]],
    np.s_[[1, 5], 3],
    np.s_[3, [1, 5]],
    np.s_[5:2],
    7,
]


@pytest.fixture(params=[{"compressors": None}, {}, {"shards": (6, 8), "compressors": None}], ids=str)
def array(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ooc.OutOfCoreArray, np.ndarray]:
    """An array of 11 x 11, as in Figure 5.6 of the thesis, and its elements."""
    data = np.arange(121.0).reshape(11, 11)
    zarr.create_array(tmp_path / "a", data=data, chunks=(3, 4), **request.param)
    return ooc.open_array(tmp_path / "a"), data


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_a_key_means_what_it_means_to_numpy(array: tuple[ooc.OutOfCoreArray, np.ndarray], key: Any) -> None:
    a, data = array
    np.testing.assert_array_equal(a[key], data[key])
    for method in ("direct", "sieve"):
        out = np.empty_like(data[key])
        if out.ndim:
            assert a.read(key, method=method, out=out) is out
            np.testing.assert_array_equal(out, data[key])


def test_sequences_along_several_axes_take_their_product_when_it_is_said(
    array: tuple[ooc.OutOfCoreArray, np.ndarray],
) -> None:
    a, data = array
    np.testing.assert_array_equal(a.read(([9, 1, 1], [0, 10])), data[np.ix_([9, 1, 1], [0, 10])])
    np.testing.assert_array_equal(a.read(ooc.Section((1, 2), (11, 9), (3, 2))), data[1:11:3, 2:9:2])


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (np.s_[[1, 2], [3, 4, 5]], r"indices of shapes \(2,\), \(3,\) cannot be paired"),
        (np.s_[[[1, 11]]], "index 11 is out of range for axis 0 with 11 elements"),
        (np.ones((3, 2), bool), r"a mask of shape \(3, 2\) does not fit axes of \(11, 11\) elements"),
        (np.s_[11], "index 11 is out of range for axis 0 with 11 elements"),
        (np.s_[0, 0, 0], "too many indices: 3 for an array of 2 axes"),
    ],
)
def test_what_is_no_index_is_refused_in_one_line(
    array: tuple[ooc.OutOfCoreArray, np.ndarray], key: Any, line: str
) -> None:
    with pytest.raises(SelectionError, match=line) as refused:
        array[0][key]
    assert "\n" not in str(refused.value)


def test_wrong_arguments_are_refused_before_anything_is_read(array: tuple[ooc.OutOfCoreArray, np.ndarray]) -> None:
    a, _ = array
    with pytest.raises(SelectionError, match=r"^out has shape \(3,\); the selection has \(11,\)$"):
        a.read(0, out=np.empty(3))
    with pytest.raises(InputError, match="method='sift' is not one of"):
        a.read(0, method="sift")  # type: ignore[arg-type]
    with dask.config.set({"oocarrays.sieve-buffer": "1 horse"}), pytest.raises(InputError):
        a.read(([0, 3], slice(None, None, 2)))


def test_the_plan_is_what_the_meter_counts(array: tuple[ooc.OutOfCoreArray, np.ndarray]) -> None:
    a, _ = array
    taken = np.s_[::5, 1:9:3]
    with dask.config.set({"oocarrays.sieve-buffer": 40}), ooc.advise.metered() as meter:
        planned = read_plan(a, taken, method="sieve")
        a.read(taken, method="sieve")
    assert (planned.requests, planned.decoded_bytes) == (meter.read_requests, meter.decoded_bytes)
    assert f"{planned.requests} requests" in planned.explain()


REQUEST = "oocarrays.cost.range_seconds"


def test_what_is_kept_of_an_array_is_never_old(tmp_path: Path) -> None:
    """Its description and plans are kept from one read to the next; a resized array and a replaced chunk are seen."""
    zarr.create_array(tmp_path / "a", data=np.arange(24), chunks=(6,), compressors=None)
    a = ooc.open_array(tmp_path / "a", mode="r+")
    np.testing.assert_array_equal(a[::5], np.arange(0, 24, 5))
    a[5:7] = -1
    np.testing.assert_array_equal(a[::5], [0, -1, 10, 15, 20])
    a.zarr.resize((30,))
    a[24:] = 7
    np.testing.assert_array_equal(a[::5], [0, -1, 10, 15, 20, 7])
    for seconds, requests in ((1.0, 1), (0.0, 2)):
        with dask.config.set({REQUEST: seconds}):
            assert read_plan(a, np.s_[:6:5]).requests == requests
