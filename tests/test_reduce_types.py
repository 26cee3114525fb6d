"""Reductions of integers and times as numpy has them: nothing leaves its type on the way."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from tests.flat import flat
from tests.profiles import examples
from tests.seams import set_constants

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:The data type")]
HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}
BEGIN = 1_577_836_800 * 10**9
"""Nanoseconds from 1970 to 2020."""


@pytest.fixture(autouse=True)
def small_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several boxes of small arrays."""
    set_constants(monkeypatch, box_bytes=200)


def stored(values: np.ndarray) -> zarr.Array:
    return zarr.create_array({}, data=values, chunks=tuple(max(n // 3, 1) for n in values.shape))


@st.composite
def integers(draw: st.DrawFn) -> np.ndarray:
    dtype = np.dtype(draw(st.sampled_from(["i1", "u1", "i4", "u4", "i8", "u8"])))
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    low = draw(st.sampled_from([least, 0, most - 100, most // 2]))
    shape = draw(st.sampled_from([(40,), (12, 7), (5, 6, 4)]))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    return random.integers(low, most, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("how", ["mean", "var", "std"])
@examples(30)
@given(data=st.data(), values=integers())
def test_means_and_deviations_of_integers_are_numpys(how: str, data: st.DataObject, values: np.ndarray) -> None:
    axes = tuple(data.draw(st.sets(st.integers(0, values.ndim - 1), min_size=1)))
    found = ooc.reduce(stored(values), how, axes, memory="64MiB")
    right = getattr(np, how)(values, axis=axes)
    scale = np.abs(values.astype("f8")).max() * (np.abs(values.astype("f8")).max() if how == "var" else 1)
    np.testing.assert_allclose(found, right, rtol=1e-9, atol=scale * (1e-15 if how == "mean" else 1e-14))
    by = np.arange(values.shape[0]) % 3
    groups = ooc.reduce(stored(values), how, 0, by=by, memory="64MiB")
    for group in range(3):
        right = getattr(np, how)(values[by == group], axis=0)
        np.testing.assert_allclose(groups[group], right, rtol=1e-9, atol=scale * (1e-15 if how == "mean" else 1e-14))


@pytest.mark.parametrize("ranks", [None, 3])
def test_a_month_of_nanoseconds_has_a_mean(ranks: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    values = BEGIN + np.arange(0, 31 * 86400, 600) * 10**9
    z = stored(values.reshape(31, 144))
    assert np.isclose(ooc.reduce(z, "mean"), values.mean(), rtol=1e-15)
    assert np.isclose(ooc.reduce(z, "std"), values.std(), rtol=1e-9)
    assert np.isclose(ooc.reduce(z, ("var", {"ddof": 1})), values.var(ddof=1), rtol=1e-9)
    for how in ("mean", "var", "std"):
        made = ooc.reduce(z, how, axis=1, target=MemoryStore(), **HERE).run()
        right = getattr(values.reshape(31, 144), how)(axis=1)
        np.testing.assert_allclose(zarr.open_array(made.zarr.store)[...], right, rtol=1e-9)
    np.testing.assert_allclose(ooc.reduce(stored(np.full(64, 2**60, "u8")), "mean"), 2.0**60)
    np.testing.assert_allclose(ooc.reduce(stored(np.full(64, 2**64 - 1, "u8")), "mean"), 2.0**64)


@pytest.mark.parametrize(("dtype", "value"), [("i8", 2**60), ("i8", -(2**61)), ("u8", 2**62), ("m8[s]", 2**60)])
def test_sums_that_leave_their_type_are_refused(dtype: str, value: int) -> None:
    values = np.full((8, 4), value, "u8" if dtype == "u8" else "i8").view(dtype)
    with pytest.raises(ooc.errors.RunError, match=r"a sum is about \S+, which \S+ cannot hold: pass functions"):
        ooc.reduce(stored(values), "sum", 0)
    np.testing.assert_array_equal(ooc.reduce(stored(values[:2]), "sum", 0), values[:2].sum(axis=0))


@pytest.mark.parametrize("skipna", [True, False])
@pytest.mark.parametrize("how", ["sum", "mean", "count", "min", "max"])
def test_durations_are_reduced_as_xarray_and_numpy_do(how: str, skipna: bool) -> None:
    values = (np.arange(60) * 7_777_777_777_777 - 10**14).view("m8[ns]").reshape(12, 5).copy()
    values[3, 2] = values[:, 4] = "NaT"
    found = ooc.reduce(stored(values), how, 0, skipna=skipna)
    if how == "count":
        np.testing.assert_array_equal(found, (~np.isnat(values)).sum(axis=0) if skipna else [12] * 5)
        return
    numpys = getattr(values, how)(axis=0)
    if skipna:
        numpys[2] = getattr(np.delete(values[:, 2], 3), how)()
        numpys[4] = np.timedelta64(0, "ns") if how == "sum" else np.timedelta64("NaT", "ns")
    np.testing.assert_array_equal(found, numpys)
    assert found.dtype == values.dtype
    theirs = getattr(xr.DataArray(values[:, :2], dims=("t", "x")), how)("t", skipna=skipna)
    apart = found[:2].astype("i8") - theirs.values.astype("i8")  # xarray rounds means, and numpy cuts them
    assert (np.abs(apart) <= (how == "mean")).all()


def test_a_mean_of_durations_whose_sum_does_not_fit_is_right() -> None:
    values = np.array([2**62, 2**62, 2**62 + 3072, 2**62], "i8").view("m8[ns]")
    assert ooc.reduce(stored(values), "mean").view("i8") == pytest.approx(2**62, rel=1e-15)


@pytest.mark.parametrize("skipna", [True, False])
def test_times_are_counted(skipna: bool) -> None:
    values = np.arange("2001-01-01", "2001-02-01", dtype="M8[D]").astype("M8[ns]")
    values[[0, 7]] = "NaT"
    assert ooc.reduce(stored(values), "count", skipna=skipna) == (29 if skipna else 31)
    assert ooc.reduce(stored(values), "count", skipna=skipna, where=np.arange(31) < 8) == (6 if skipna else 8)
    made = ooc.reduce(stored(values), "count", axis=0, by=np.arange(31) % 2, target=MemoryStore(), **HERE).run()
    np.testing.assert_array_equal(made.zarr[...], [15, 14])


@pytest.mark.parametrize("dtype", ["i2", "u8", "?"])
@pytest.mark.parametrize("how", ["min", "max"])
def test_extremes_of_integers_are_nan_where_nothing_counts(how: str, dtype: str) -> None:
    values = np.random.default_rng(0).integers(0, 2, (12, 5)).astype(dtype)
    where = np.ones((12, 5), bool)
    where[:, 3] = False
    where[::3, 1] = False
    floats = np.where(where, values.astype("f8"), np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right = getattr(np, f"nan{how}")(floats, axis=0)
        by = np.arange(12) % 3
        groups = np.stack([getattr(np, f"nan{how}")(floats[by == group], axis=0) for group in range(3)])
    np.testing.assert_array_equal(ooc.reduce(stored(values), how, 0, where=where), right)
    np.testing.assert_array_equal(ooc.reduce(stored(values), how, 0, where=where, by=by), groups)
    made = ooc.reduce(stored(values), how, 0, where=where, by=by, target=MemoryStore(), **HERE).run()
    np.testing.assert_array_equal(made.zarr[...], groups)
    for whole in ({}, {"where": np.arange(5) < 9}, {"where": np.arange(12)[:, None] > 3}):
        found = flat(ooc.reduce, stored(values), how, 0, **whole)
        assert found.dtype == dtype
    assert np.isnan(ooc.reduce(zarr.create_array({}, shape=(0, 3), chunks=(1, 3), dtype=dtype), how, 0)).all()


def test_extremes_of_times_are_nat_where_nothing_counts() -> None:
    values = np.arange(12).astype("M8[s]").reshape(4, 3)
    found = ooc.reduce(stored(values), "max", 0, where=np.array([True, False, True]))
    np.testing.assert_array_equal(found, np.where([True, False, True], values[3], np.datetime64("NaT", "s")))


@pytest.mark.parametrize("dtype", ["u8", "i8", "u4", "i1"])
def test_means_of_pyramid_levels_do_not_leave_their_type(dtype: str) -> None:
    most = np.iinfo(dtype).max
    values = np.full((8, 8), most, dtype)
    values[::2] = most - 3
    group = ooc.pyramid(stored(values), MemoryStore(), levels=2, **HERE).run()
    np.testing.assert_array_equal(group["1"].zarr[...], np.full((4, 4), most - 1))


@pytest.mark.parametrize("how", ["count", "min", "max", "mean", "sum"])
def test_times_of_xarray_are_reduced_as_xarray_shows_them(tmp_path: Path, how: str) -> None:
    times = np.array(["2001-01-01", "NaT", "2003-01-01"], "M8[ns]")
    durations = np.array([1, 3, 5], "m8[h]").astype("m8[ns]")
    xr.Dataset({"t": ("x", times), "d": ("x", durations)}).to_zarr(tmp_path / "a", consolidated=False)
    stored = xr.open_dataset(tmp_path / "a", engine="oocarrays", decode_timedelta=True)
    found = stored["d"].ooc.reduce(how, "x").values
    assert found == (3 if how == "count" else getattr(durations, how)())
    if how in ("mean", "sum"):
        with pytest.raises(ooc.errors.UnsupportedError, match=r"datetime64.* have no"):
            stored["t"].ooc.reduce(how, "x")
    else:
        right = {"count": 2, "min": times[0], "max": times[2]}
        assert stored["t"].ooc.reduce(how, "x").values == right[how]
