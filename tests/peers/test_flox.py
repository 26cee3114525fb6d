"""flox's cases, through `reduce`: its labels, shapes, chunks, types and functions.

oracle       numpy, group by group; and flox itself, which has the same groups in the same order
carried over sum, mean, var, std, min, max, count and their forms without NaN, which are skipna=True; ddof; labels that
             are numbers, texts, times, NaN, unsorted, or of bins; dates; small variances about a large mean

what does not apply                                        why
prod, any, all, first, last, median, quantile, mode, arg*  `reduce` has not these functions
scans, fills                                               it reduces
several labels at once, labels of several axes             ``by`` takes one label for each index of one axis
expected_groups, fill_value, min_count, dtype, sort        groups are those that there are, in their order
all labels NaN                                             an error, where flox has a result of no groups
method, engine, reindex, cohorts, blocks of a graph        how flox plans; ours are in tests/plan
sparse, cubed and chunked labels                           arrays are stored, labels are in memory
chunks of unequal lengths                                  cut anew at the least length: Zarr has them since 3.3
count with skipna=False                                    of all elements, where flox leaves NaN out: numpy alone
types of sums and means of float32                         float64, as `reduce` says
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import InputError

LABELS = np.array([0, 0, 2, 2, 2, 1, 1, 2, 2, 1, 1, 0])
LETTERS = np.array(["a", "a", "c", "c", "c", "b", "b", "c", "c", "b", "b", "f"])
FUNCTIONS = ("sum", "mean", "var", "std", "min", "max", "count")
RNG = np.random.default_rng(12345)
CLOSE: dict[str, Any] = {"rtol": 1e-13, "atol": 1e-15}


def with_nan(labels: Any, *where: Any) -> np.ndarray:
    """Return labels as floating-point numbers, NaN in some places."""
    made = np.array(labels, float)
    for each in where:
        made[each] = np.nan
    return made


def of_part(part: np.ndarray, how: str, axis: int, skipna: bool, ddof: int) -> np.ndarray:
    """Return numpy's reduction of the elements of one group."""
    if how == "count":
        return np.asarray(
            (~np.isnan(part) if skipna and part.dtype.kind == "f" else np.ones(part.shape, bool)).sum(axis)
        )
    function = getattr(np, f"nan{how}" if skipna and part.dtype.kind == "f" else how)
    return np.asarray(function(part, axis=axis, **({"ddof": ddof} if how in ("var", "std") else {})))


def by_numpy(values: np.ndarray, how: str, by: Any, axis: int, skipna: bool, ddof: int) -> np.ndarray:
    """Return the reduction of each group, in the order of the labels."""
    labels = np.asarray(by)
    groups = np.unique(labels[labels == labels])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # groups of NaN only
        parts = [of_part(np.compress(labels == g, values, axis), how, axis, skipna, ddof) for g in groups]
    return np.stack(parts, axis)


def by_flox(values: np.ndarray, how: str, by: Any, skipna: bool, ddof: int) -> np.ndarray | None:
    """Return flox's result along the last axis; None where it is not installed, or counts otherwise."""
    if how == "count" and not skipna:
        return None
    try:
        import flox
    except ModuleNotFoundError:
        return None
    func = f"nan{how}" if skipna and how != "count" and values.dtype.kind == "f" else how
    kwargs = {"ddof": ddof} if how in ("var", "std") else None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        result, _ = flox.groupby_reduce(
            values, np.asarray(by), func=func, finalize_kwargs=kwargs, engine="numpy", fill_value=None
        )
    return np.asarray(result)


def check(
    values: np.ndarray,
    how: str,
    by: Any,
    chunks: Any,
    axis: int = -1,
    skipna: bool = True,
    ddof: int = 0,
    close: dict[str, Any] = CLOSE,
) -> np.ndarray:
    """Reduce by groups what is stored in chunks, and compare it with numpy and flox."""
    stored = zarr.create_array({}, data=values, chunks=chunks)
    found = np.asarray(ooc.reduce(stored, (how, {"ddof": ddof}), axis=axis, by=by, skipna=skipna, scheduler="threads"))
    expected = [by_numpy(values, how, by, axis % values.ndim, skipna, ddof)]
    if axis % values.ndim == values.ndim - 1:
        theirs = by_flox(values, how, by, skipna, ddof)
        expected += [] if theirs is None else [theirs]
    for each in expected:
        if found.dtype.kind in "mM":
            np.testing.assert_array_equal(found, each)
        else:
            np.testing.assert_allclose(found, each, **close)
    return found


@pytest.mark.parametrize("dtype", [float, int])
@pytest.mark.parametrize("by", [LABELS, with_nan(LABELS, slice(5))], ids=["labels", "some NaN"])
@pytest.mark.parametrize(("shape", "chunks"), [((12,), (3,)), ((2, 12), (1, 3))])
@pytest.mark.parametrize("how", ["sum", "count", "mean"])
def test_ones(how: str, shape: Any, chunks: Any, by: np.ndarray, dtype: Any) -> None:
    found = check(np.ones(shape, dtype), how, by, chunks)
    counts = [1.0] * 3 if how == "mean" else [3, 4, 5] if by is LABELS else [1, 4, 2]
    np.testing.assert_array_equal(found, np.broadcast_to(counts, found.shape))


@pytest.mark.parametrize("length", [12, 4])
@pytest.mark.parametrize("shape", [(6, 12), (12,), (12, 9)])
@pytest.mark.parametrize("by_nan", [True, False])
@pytest.mark.parametrize("skipna", [True, False])
@pytest.mark.parametrize("how", FUNCTIONS)
def test_one_group_and_rows_of_nan(how: str, skipna: bool, by_nan: bool, shape: Any, length: int) -> None:
    values = np.random.default_rng(12345).random(shape)
    values[[1, 4, 5], ...] = np.nan
    by = with_nan(np.ones(shape[-1]), *([slice(3)] if by_nan else []))
    for ddof in (0, 1) if how in ("var", "std") else (0,):
        check(values, how, by, tuple(min(length, each) for each in shape), skipna=skipna, ddof=ddof)


@pytest.mark.parametrize("by", [LABELS, with_nan(LABELS, slice(3), slice(-2, None))], ids=["labels", "blocks of NaN"])
@pytest.mark.parametrize(("shape", "chunks"), [((12,), (3,)), ((12,), (5,)), ((10, 12), (3, 3))])
@pytest.mark.parametrize("how", FUNCTIONS)
def test_random_values(how: str, shape: Any, chunks: Any, by: np.ndarray) -> None:
    check(RNG.random(shape), how, by, chunks)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("how", FUNCTIONS)
def test_each_axis(how: str, axis: int) -> None:
    values = RNG.random((3, 2, 5))
    check(values, how, LABELS[: values.shape[axis]], (3, 2, 3), axis=axis)


@pytest.mark.parametrize("labels", ["f4", "f8", "i4", "i8"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
def test_types_of_values_and_labels(dtype: str, labels: str) -> None:
    by = np.repeat(np.arange(6, dtype=labels), [4, 4, 12, 2, 3, 4])
    np.testing.assert_array_equal(check(by.astype(dtype), "count", by, (4,)), [4, 4, 12, 2, 3, 4])
    np.testing.assert_array_equal(check(by.astype(dtype), "sum", by, (4,)), [0, 4, 24, 6, 12, 20])


@pytest.mark.parametrize("chunk", [*range(1, 13), 360])
def test_months_in_chunks_of_any_length(chunk: int) -> None:
    check(RNG.random(360), "mean", np.tile(np.arange(12), 30), (chunk,))


@pytest.mark.parametrize("chunk", [24, 71, 72])
def test_days_of_years_of_hours(chunk: int) -> None:
    time = pd.Series(pd.date_range("2016-01-01", "2016-12-31 23:59", freq="h"))
    check(np.arange(len(time), dtype="f4"), "sum", np.array(time.dt.day_of_year.values), (chunk,))


@pytest.mark.parametrize("skipna", [True, False])
@pytest.mark.parametrize("some_nan", [True, False])
def test_letters(some_nan: bool, skipna: bool) -> None:
    values = np.ones((4, 4, 12))
    if some_nan:
        values[:, 1] = np.nan
        values[:, [0, 2], [3, 4]] = np.nan
    check(values, "sum", LETTERS, (2, 2, 5), skipna=skipna)
    check(values, "sum", with_nan([1, 2, 2, 1], 0), (2, 2, 5), axis=1, skipna=skipna)


def test_counts_leave_nan_out_and_texts_may_be_empty() -> None:
    values = np.array([0, 0, np.nan, np.nan, np.nan, 1, 1])
    found = check(values, "count", np.array(["a", "b", "b", "b", "c", "c", "c"]), (2,))
    np.testing.assert_array_equal(found, [1, 1, 2])
    check(np.arange(6), "max", np.array(["1", "1", "0", "", "0", ""]), (2,))
    check(np.ones((1, 10)), "sum", np.array([-1, 0, -1, 1, -1, 2, -1, 3, 4, 4]), (1, 2))


@pytest.mark.parametrize("chunk", [1, 2, 6])
def test_bins_are_labels_that_are_cut(chunk: int) -> None:
    by = pd.cut([0.2, 1.5, 1.9, 2, 3, 20], [1, 2, 4, 5], labels=False)
    np.testing.assert_array_equal(check(np.ones(6), "count", by, (chunk,)), [3, 1])


@pytest.mark.parametrize("how", ["sum", "mean", "min", "max", "count"])
def test_booleans(how: str) -> None:
    stored = zarr.create_array({}, data=np.array([True, True, False]), chunks=(2,))
    found = ooc.reduce(stored, how, axis=0, by=[1, 1, 1], scheduler="threads")
    expected = 3 if how == "count" else getattr(np, how)([True, True, False])
    np.testing.assert_array_equal(found, [expected])


@pytest.mark.parametrize("how", ["min", "max"])
def test_dates(how: str) -> None:
    values = np.array(["2000-01-01", "2000-01-02", "2000-01-03"], "M8[ns]")
    found = check(values, how, np.array([0, 0, 1]), (2,))
    np.testing.assert_array_equal(found, values[[0, 2] if how == "min" else [1, 2]])


def test_labels_that_are_times() -> None:
    times = pd.date_range("2000-01-01", "2000-12-31", freq="D")
    days = times.day_of_year.to_numpy().astype("i8")
    np.testing.assert_array_equal(check(days, "mean", times.to_numpy(), (30,)), days.astype(float))
    check(np.tile(days, (2, 3, 1)), "mean", times.month.to_numpy(), (2, 3, 30))


@pytest.mark.parametrize("exponent", [2, 4, 6, 8, 10, 12])
def test_variance_about_a_large_mean(exponent: int) -> None:
    values = np.linspace(-1, 1, 1000) + 10**exponent
    check(values, "var", np.arange(1000) % 2, (300,), close={"rtol": 3e-8, "atol": 1e-9})


def test_means_of_months_of_a_field() -> None:
    months = pd.date_range("1980-09-01", periods=36, freq="MS").month.to_numpy()
    check(np.ones((36, 205, 275), "f4"), "mean", months, (9, 205, 275), axis=0)


def test_what_flox_refuses_too_is_an_error() -> None:
    stored = zarr.create_array({}, data=np.ones(12), chunks=(3,))
    with pytest.raises(InputError, match=r"has shape \(5,\): axis 0 has 12 indices"):
        ooc.reduce(stored, "mean", axis=0, by=np.ones(5))
    with pytest.raises(InputError, match="has no labels"):
        ooc.reduce(stored, "count", axis=0, by=np.full(12, np.nan))
    with pytest.raises(InputError, match="is not one of sum, mean"):
        ooc.reduce(stored, "median", axis=0, by=np.ones(12))
