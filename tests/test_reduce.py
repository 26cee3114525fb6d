"""Reductions out of core, against numpy and xarray."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import BudgetError, CorruptChunkError, InputError, KernelError, RunError, UnsupportedError
from tests.profiles import examples
from tests.seams import replace_step, set_constants
from tests.small import CODECS

pytestmark = pytest.mark.once

NAMES = ("sum", "mean", "var", "std", "min", "max", "count")
IN_NUMPY = {
    (name, skipna): getattr(np, f"nan{name}" if skipna else name)
    for name in NAMES
    if name != "count"
    for skipna in (0, 1)
}


@pytest.fixture(autouse=True)
def small_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several boxes of small arrays."""
    set_constants(monkeypatch, box_bytes=200)


def expected(data: np.ndarray, how: str, axes: tuple[int, ...], where: np.ndarray | None, skipna: bool) -> Any:
    shown = np.ones(data.shape, bool) if where is None else np.broadcast_to(where, data.shape)
    if how == "count":
        return (shown & ~(np.isnan(data) & skipna)).sum(axis=axes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        wide = data.astype("f8") if data.dtype.kind == "f" else data
        more = (
            {"initial": np.inf if how == "min" else -np.inf} if how in ("min", "max") and data.dtype.kind == "f" else {}
        )
        function = IN_NUMPY[how, bool(skipna and data.dtype.kind == "f")]
        return function(wide, axis=axes, **({} if where is None else {"where": shown} | more))


@st.composite
def arrays(draw: st.DrawFn, dtypes: list[str]) -> tuple[np.ndarray, tuple[int, ...]]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    chunks = tuple(draw(st.integers(1, n)) for n in shape)
    data = np.random.default_rng(draw(st.integers(0, 2**16))).normal(1000, 3, shape) * 10
    data = data.astype(draw(st.sampled_from(dtypes)))
    if data.dtype.kind == "f" and draw(st.booleans()):
        data.reshape(-1)[:: draw(st.integers(1, 5))] = np.nan
    return data, chunks


@pytest.mark.parametrize("how", NAMES)
@examples(25)
@given(data=st.data())
def test_as_numpy_has_it(how: str, data: st.DataObject) -> None:
    values, chunks = data.draw(arrays(["f4", "f8", "i2", "u8"]))
    axes = tuple(data.draw(st.sets(st.integers(0, values.ndim - 1), min_size=1)))
    skipna = data.draw(st.booleans())
    z = zarr.create_array({}, data=values, chunks=chunks)
    wanted = expected(values, how, axes, None, skipna)
    found = ooc.reduce(z, how, axes, skipna=skipna)
    assert np.shape(found) == np.shape(wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-9)


@examples(60)
@given(data=st.data(), how=st.sampled_from(["sum", "mean", "count", "std"]))
def test_of_what_counts(data: st.DataObject, how: str) -> None:
    values, chunks = data.draw(arrays(["f4", "i4"]))
    where = (
        np.random.default_rng(data.draw(st.integers(0, 99))).random(values.shape[data.draw(st.integers(0, 1)) :]) < 0.6
    )
    if where.ndim == 0:
        where = where.reshape(())
    z = zarr.create_array({}, data=values, chunks=chunks)
    axes = tuple(data.draw(st.sets(st.integers(0, values.ndim - 1), min_size=1)))
    found = ooc.reduce(z, how, axes, where=where)
    np.testing.assert_allclose(found, expected(values, how, axes, where, True), rtol=1e-12, atol=1e-9)


@examples(60)
@given(data=st.data(), how=st.sampled_from(["sum", "mean", "max", "count", "var"]))
def test_groups_as_xarray_has_them(data: st.DataObject, how: str) -> None:
    xr = pytest.importorskip("xarray")
    values, chunks = data.draw(arrays(["f4", "f8"]))
    axis = data.draw(st.integers(0, values.ndim - 1))
    labels = np.array(data.draw(st.lists(st.integers(0, 3), min_size=values.shape[axis], max_size=values.shape[axis])))
    dims = [f"d{number}" for number in range(values.ndim)]
    z = zarr.create_array({}, data=values, chunks=chunks)
    found = ooc.reduce(z, how, axis, by=labels)
    grouped = xr.DataArray(values.astype("f8"), dims=dims, coords={"g": (dims[axis], labels)}).groupby("g")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        wanted = getattr(grouped, how)(dims[axis])
    order = ["g" if number == axis else dim for number, dim in enumerate(dims)]
    np.testing.assert_allclose(found, wanted.transpose(*order).values, rtol=1e-12, atol=1e-9)


def test_a_monthly_climatology(tmp_path: Path) -> None:
    times = np.arange("2000-01-01", "2004-01-01", dtype="M8[D]")
    months = times.astype("M8[M]").astype(int) % 12
    data = np.random.default_rng(0).random((len(times), 4, 5), dtype="f4")
    zarr.create_array(tmp_path / "a.zarr", data=data, chunks=(31, 4, 5))
    found = ooc.reduce(tmp_path / "a.zarr", "mean", axis=0, by=months)
    np.testing.assert_allclose(found, [data[months == m].mean(axis=0, dtype="f8") for m in range(12)], rtol=1e-13)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("how", ["mean", "std", "max"])
def test_the_same_bits_whatever_the_memory(
    tmp_path: Path, how: str, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = np.random.default_rng(0).normal(1e6, 1, (60, 70, 8)).astype("f4")
    z = zarr.create_array(tmp_path / "a.zarr", data=data, chunks=(7, 70, 3), compressors=CODECS[codec])
    found = []
    for memory, cores in [("1GiB", 4), ("1GiB", 1), ("12MiB", 3)]:
        replace_step(monkeypatch, "count cores", lambda cores=cores: cores)
        with ooc.advise.metered() as meter:
            found.append(ooc.reduce(z, how, axis=(0, 2), memory=memory))
        assert meter.read_requests == z.nchunks, "each chunk is read once"
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def test_deviations_from_a_large_mean_are_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_constants(monkeypatch, box_bytes=2**18)
    data = np.random.default_rng(0).normal(1e6, 1, 2**21).astype("f4")
    z = zarr.create_array(tmp_path / "a.zarr", data=data, chunks=(10_000,))
    mean = math.fsum(data.tolist()) / len(data)
    std = math.sqrt(math.fsum(((data.astype("f8") - mean) ** 2).tolist()) / len(data))
    assert float(ooc.reduce(z, "mean")) == pytest.approx(mean, rel=1e-15)
    assert float(ooc.reduce(z, "std")) == pytest.approx(std, rel=1e-12)
    set_constants(monkeypatch, box_bytes=1)
    assert float(ooc.reduce(zarr.create_array({}, data=np.array([1e16, 1.0, -1e16] * 9), chunks=(1,)), "sum")) == 9


def test_functions_of_ones_own() -> None:
    data = np.random.default_rng(0).random((20, 30))
    z = zarr.create_array({}, data=data, chunks=(3, 30))
    how = (lambda block, axes: (block**2).sum(axis=axes), lambda a, b: a + b, np.sqrt)
    np.testing.assert_allclose(ooc.reduce(z, how, axis=0), np.sqrt((data**2).sum(axis=0)), rtol=1e-12)
    with pytest.raises(KernelError, match="the reduction failed: ZeroDivisionError"):
        ooc.reduce(z, (lambda block, axes: 1 // 0, lambda a, b: a, lambda a: a), axis=0)


def test_labels_are_texts_as_xarray_and_pandas_hold_them() -> None:
    labels = np.array(["2000-02", "2000-01", "2000-02"], dtype=object)
    assert ooc.reduce(np.arange(3.0), "sum", 0, by=labels).tolist() == [1, 2]
    with pytest.raises(InputError, match="labels of several types"):
        ooc.reduce(np.arange(3.0), "sum", 0, by=np.array(["a", 1, "a"], dtype=object))


def test_times_have_extremes() -> None:
    data = np.arange("2000-01-01", "2000-03-01", dtype="M8[s]").astype("M8[s]")[:60]
    data[5] = "NaT"
    z = zarr.create_array({}, data=data, chunks=(7,))
    assert ooc.reduce(z, "max") == data[-1]
    assert ooc.reduce(z, "min") == data[0]
    with pytest.raises(UnsupportedError, match="have no mean"):
        ooc.reduce(z, "mean")


def test_edges() -> None:
    assert ooc.reduce(zarr.create_array({}, shape=(), dtype="f4", fill_value=3), "sum") == 3
    empty = zarr.create_array({}, shape=(0, 3), chunks=(1, 3), dtype="f4")
    assert ooc.reduce(empty, "sum", 0).tolist() == [0, 0, 0]
    assert np.isnan(ooc.reduce(empty, "mean", 0)).all()
    assert ooc.reduce(empty, "count", 1).shape == (0,)
    none = zarr.create_array({}, data=np.full((4, 2), np.nan), chunks=(1, 2))
    assert np.isnan(ooc.reduce(none, "max", 0)).all()
    assert ooc.reduce(none, "count") == 0
    labels = [0.0, np.nan, 1.0, 0.0]
    data = zarr.create_array({}, data=np.arange(4.0), chunks=(1,))
    assert ooc.reduce(data, "sum", 0, by=labels).tolist() == [3, 2]


def test_faults_and_wrong_input_are_one_line(tmp_path: Path) -> None:
    data = np.arange(64.0).reshape(8, 8)
    z = zarr.create_array(tmp_path / "a.zarr", data=data, chunks=(4, 4), compressors=CODECS["zstd"])
    many = zarr.create_array({}, shape=(4096, 4096), chunks=(4096, 4096), dtype="f8")
    wrong: list[tuple[Any, type[Exception], str]] = [
        (lambda: ooc.reduce(z, "median"), InputError, "is not one of sum, mean"),
        (lambda: ooc.reduce(z, "sum", axis=2), InputError, "axis=2 is not one of the 2 axes"),
        (lambda: ooc.reduce(z, "sum", axis=(0, -2)), InputError, "names an axis twice"),
        (lambda: ooc.reduce(z, "sum", by=[1] * 8), InputError, "by= takes one axis"),
        (lambda: ooc.reduce(z, "sum", 0, by=[1] * 7), InputError, "one label for each"),
        (lambda: ooc.reduce(z, "sum", 0, by=[None] * 8), InputError, "pass numbers"),
        (lambda: ooc.reduce(z, "sum", 0, by=[np.nan] * 8), InputError, "no label"),
        (lambda: ooc.reduce(z, "sum", where=np.ones(3, bool)), InputError, "does not broadcast"),
        (lambda: ooc.reduce(z, "sum", where=1), InputError, "not bool"),
        (lambda: ooc.reduce(z, ("std", {"ddof": -1})), InputError, "ddof=-1"),
        (lambda: ooc.reduce(z, (1, 2)), InputError, "nor three functions"),
        (lambda: ooc.reduce(many, "sum", memory="64MiB"), BudgetError, "this reduction needs at least"),
        (lambda: ooc.reduce(tmp_path / "none.zarr", "sum"), InputError, "no such store"),
    ]
    for work, error, words in wrong:
        with pytest.raises(error, match=words) as refused:
            work()
        assert "\n" not in str(refused.value)
    with pytest.warns(UserWarning, match="are used as stored, without unpacking$"):
        ooc.reduce(zarr.create_array({}, data=np.arange(4, dtype="i2"), attributes={"scale_factor": 0.1}), "sum")
    lacking = {"scale_factor": 0.1, "_FillValue": -1, "missing_value": -2}
    with pytest.warns(UserWarning, match=r"; missing values \(_FillValue=-1, missing_value=-2\) count as data$"):
        ooc.reduce(zarr.create_array({}, data=np.arange(4, dtype="i2"), attributes=lacking), "sum")
    (tmp_path / "a.zarr/c/1/0").write_bytes(b"no")
    with pytest.raises(CorruptChunkError, match="c/1/0"):
        ooc.reduce(z, "sum")
    (tmp_path / "a.zarr/c/1/0").unlink()
    with pytest.raises(RunError, match="lacks 1 chunk"):
        ooc.reduce(ooc.open_array(tmp_path / "a.zarr", missing="error"), "sum")
