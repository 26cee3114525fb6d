"""Values that do not fit the type of what takes them: an error of every verb, and nothing wrong is written."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import oocarrays as ooc

ROWS = np.arange(60.0).reshape(12, 5)
HOW: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}


def source(values: np.ndarray = ROWS) -> zarr.Array:
    return zarr.create_array({}, data=values, chunks=(2, 5), zarr_format=2 if values.dtype.kind == "S" else 3)


@pytest.mark.parametrize(
    ("kernel", "values", "dtype", "said"),
    [
        (lambda block: 1e300 * block, ROWS, "f4", r"returned \S+e\+30\d \(float64\) for slab .* float32 cannot"),
        (lambda block: 10 * block.astype("i8"), ROWS, "i1", r"returned \d+ \(int64\) for slab .* of dtype int8 cannot"),
        (lambda block: np.cumsum(block, axis=0), np.full((12, 5), 200, "u1"), None, "returned 400 .* of dtype uint8"),
        (lambda block: block.astype("i8") + 2**31, ROWS.astype("i4"), None, r"returned \d+ \(int64\).*dtype='int64'"),
        (lambda block: np.full(block.shape, b"abcde"), ROWS.astype("S3"), None, "returned b'abcde'"),
    ],
)  # fmt: skip
def test_a_result_that_does_not_fit_its_target_is_refused(
    tmp_path: Path, kernel: Any, values: np.ndarray, dtype: str | None, said: str
) -> None:
    with pytest.raises(ooc.errors.KernelError, match=said):
        ooc.map_slabs(
            kernel,
            source(values),
            ooc.Target(tmp_path / "t.zarr", dtype=dtype),
            window=2,
            resources=ooc.Resources(ranks=2),
            **HOW,
        ).run()
    with pytest.raises(FileNotFoundError):  # no reader opens what is not finished
        zarr.open_array(tmp_path / "t.zarr", mode="r")


def test_what_is_rounded_or_fits_is_written_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = ooc.map_slabs(lambda block: block / 3, source(), ooc.Target(MemoryStore(), dtype="f4"), **HOW).run()
        summed = ooc.map_slabs(lambda block: np.cumsum(block, axis=1), source(ROWS.astype("u2")), MemoryStore(), **HOW)
        small = summed.run()
    np.testing.assert_array_equal(zarr.open_array(made.zarr.store)[...], (ROWS / 3).astype("f4"))
    np.testing.assert_array_equal(zarr.open_array(small.zarr.store)[...], np.cumsum(ROWS.astype("u2"), axis=1))


WRITERS = {
    "assignment": lambda a, values: a.__setitem__(slice(0, 2), values),
    "write": lambda a, values: a.write(np.s_[0:2], values),
    "oindex": lambda a, values: a.oindex.__setitem__(([0, 1],), values),
    "points": lambda a, values: a.vindex.__setitem__(([0, 1], [1, 1]), values[:, 1]),
}


@pytest.mark.parametrize("how", WRITERS)
@pytest.mark.parametrize(
    ("values", "lost"),
    [(np.full((2, 5), 300), "300"), (np.full((2, 5), -1, "i1"), "-1"), (np.full((2, 5), 1.5), "1.5"),
     (np.full((2, 5), np.nan), "nan"), (np.full((2, 5), 2j), "2j")],
)  # fmt: skip
def test_values_that_do_not_fit_are_not_assigned(how: str, values: np.ndarray, lost: str) -> None:
    stored = source(ROWS.astype("u1"))
    with pytest.raises(ooc.errors.SelectionError, match=f"{lost}.* cannot be stored as uint8"):
        WRITERS[how](ooc.open_array(stored, mode="r+"), values)
    np.testing.assert_array_equal(stored[...], ROWS)


@pytest.mark.parametrize("values", [np.full((2, 5), 7), [7, 7, 7, 7, 7], 7.0, np.full((2, 5), 7.0), np.int8(7)])
def test_values_that_fit_are_assigned_whatever_their_type(values: Any) -> None:
    stored = source(ROWS.astype("u1"))
    ooc.open_array(stored, mode="r+")[:2] = values
    np.testing.assert_array_equal(stored[...], np.concatenate([np.full((2, 5), 7), ROWS[2:]]))


@pytest.mark.parametrize("value", [300, 1.5, [1.5] * 5, 1e300, "12345"])
def test_python_values_that_do_not_fit_are_not_assigned(value: Any) -> None:
    dtype = "S3" if isinstance(value, str) else "f4" if value == 1e300 else "u1"
    with pytest.raises(ooc.errors.SelectionError, match=f"cannot be stored as {np.dtype(dtype)}"):
        ooc.open_array(source(np.zeros((12, 5), dtype)), mode="r+")[0] = value


def test_local_array_files_take_what_fits_only(tmp_path: Path) -> None:
    a = ooc.create_array(tmp_path / "l", shape=8, dtype="u1", layout="(block)", ranks=2, placement="local")
    a[:] = np.arange(8)
    with pytest.raises(ooc.errors.SelectionError, match="the value 300 "):
        a[:] = np.arange(293, 301) - 45 * (np.arange(8) < 7)
    np.testing.assert_array_equal(a[...], np.arange(8))


def test_parts_of_ranks_take_what_fits_only() -> None:
    stored = source(ROWS.astype("i2"))
    a = ooc.open_array(stored, mode="r+")
    with pytest.raises(ooc.errors.RunError, match=r"part of rank 1 has 65536 \(int64\); the array has dtype int16"):
        ooc.ranks.write_sections(
            a, "(block, *)", [np.zeros((6, 5), "i8"), np.full((6, 5), 2**16)], scheduler="threads"
        ).run()
    np.testing.assert_array_equal(stored[...], ROWS)


@pytest.mark.parametrize("blocks", [(2, 5), (3, 5)])
def test_lazy_arrays_are_stored_where_they_fit_only(blocks: tuple[int, int]) -> None:
    stored = source(ROWS.astype("i2"))
    with pytest.raises(ooc.errors.RunError, match=r"65536 \(int64\) does not fit .* of dtype int16"):
        ooc.store(da.full((12, 5), 2**16, chunks=blocks), stored).compute(scheduler="threads")
    np.testing.assert_array_equal(stored[...], ROWS)


def test_blocks_that_are_not_of_their_arrays_type_are_refused(tmp_path: Path) -> None:
    x = da.zeros((12, 5), chunks=(2, 5), dtype="i2").map_blocks(lambda block: block + np.int64(2**16), dtype="i2")
    with pytest.raises(ooc.errors.RunError, match="65536"):
        ooc.rechunk(x, tmp_path / "t.zarr", scheduler="threads").run()


def test_parts_of_distributed_arrays_are_of_the_type_that_is_said() -> None:
    x = ooc.ranks.distribute(np.arange(6) + 300, "block", ranks=2, scheduler="threads")
    with pytest.raises(ooc.errors.KernelError, match=r"returned 30\d \(int64\), which dtype int8 cannot hold"):
        x.map_local(lambda part: part, dtype="i1").compute()
    with pytest.raises(ooc.errors.KernelError, match="returned dtype float64, which dtype int64 cannot hold"):
        x.map_local(lambda part: part / 2, dtype="i8").compute()


def test_what_is_read_must_fit_what_is_filled() -> None:
    a = ooc.open_array(source(ROWS.astype("i4") + 250))
    with pytest.raises(ooc.errors.SelectionError, match=r"\d+ \(int32\) does not fit out= of dtype int8"):
        a.read(np.s_[...], out=np.empty((12, 5), "i1"))
    out = np.empty((12, 5), "i2")
    np.testing.assert_array_equal(a.read(np.s_[...], out=out), ROWS + 250)
    with pytest.raises(ooc.errors.SelectionError, match="dtype float64 does not fit"):
        ooc.open_array(source(ROWS / 2)).read(np.s_[...], out=out)


def test_functions_of_a_reduction_give_the_type_that_they_gave_for_zeros() -> None:
    how = (np.sum, np.add, lambda total: total if not np.any(total) else total / 2)
    with pytest.raises(ooc.errors.KernelError, match=r"returned dtype float64, but int64 for zeros"):
        ooc.reduce(source(ROWS.astype("i8")), (lambda block, axes: np.sum(block, axis=axes), *how[1:]), axis=0)


@pytest.mark.parametrize(("dtype", "fill"), [("u1", 1.5), ("u1", 300), ("u1", -1), ("u1", np.nan), ("f4", 1e300)])
def test_fill_values_that_do_not_fit_are_refused(tmp_path: Path, dtype: str, fill: float) -> None:
    with pytest.raises(ooc.errors.UnsupportedError, match=r"fill_value=|Zarr does not accept"):
        ooc.create_array(ooc.Target(tmp_path / "a", fill_value=fill), shape=4, dtype=dtype)
    with pytest.raises(ooc.errors.UnsupportedError, match=r"fill_value=|Zarr does not accept"):
        ooc.rechunk(da.zeros(4, dtype=dtype), ooc.Target(tmp_path / "b", fill_value=fill))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fill", [1.5, 300, -1, np.nan])
def test_constants_beyond_edges_that_do_not_fit_are_refused(tmp_path: Path, fill: float) -> None:
    for call in (ooc.map_slabs, ooc.iterate):
        how = {"depth": 1, "boundary": fill} | ({"sweeps": 1} if call is ooc.iterate else {})
        with pytest.raises(ooc.errors.InputError, match=f"boundary={fill} is not a value of an array of uint8"):
            call(lambda block: block, source(ROWS.astype("u1")), tmp_path / "t", **how)
    with pytest.raises(ooc.errors.InputError, match=f"boundary={fill} is not a value"):
        ooc.ranks.shift(
            ooc.ranks.distribute(np.zeros(6, "u1"), "block", ranks=2, scheduler="threads"), 1, boundary=fill
        )


DAY, SECOND = np.datetime64("2020-01-01"), np.datetime64("2020-01-01T00:00:01")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (DAY, "i1"), (SECOND, "f2"), (np.datetime64("NaT", "s"), "i8"), (np.timedelta64("NaT", "s"), "f8"),
        (1.5, "M8[D]"), (np.inf, "m8[s]"), (2**64 - 1, "M8[ns]"),
        (1 + 2j, "m8[s]"), (2**70, "f2"), (DAY, "S3"), (SECOND, "U3"), (12345, "S3"),
        (np.nan, [("a", "i4"), ("b", "f8")]), (2**31, [("a", "i4"), ("b", "f8")]),
    ],
)  # fmt: skip
def test_times_and_fields_take_what_fits_only(value: Any, dtype: Any) -> None:
    stored = zarr.create_array({}, shape=(3,), dtype=np.dtype(dtype), chunks=(2,), zarr_format=2)
    before = stored[...]
    with pytest.raises(ooc.errors.SelectionError, match="cannot be stored as"):
        ooc.open_array(stored, mode="r+")[1:] = value
    assert stored[...].tobytes() == before.tobytes()


@pytest.mark.parametrize(("value", "dtype"), [(DAY, "i4"), (3, "m8[s]"), (7.0, "M8[D]"), (np.nan, "m8[s]"), (1.0, "a")])
def test_times_and_fields_take_numbers_that_fit(value: Any, dtype: str) -> None:
    kind = np.dtype([("a", "i4"), ("b", "f8")] if dtype == "a" else dtype)
    stored = zarr.create_array({}, shape=(3,), dtype=kind, chunks=(2,), zarr_format=2)
    ooc.open_array(stored, mode="r+")[1:] = value
    wanted = np.zeros(3, kind) if kind.kind not in "mM" else np.full(3, stored[0], kind)
    wanted[1:] = np.array([value]).astype(kind)
    assert stored[...].tobytes() == wanted.tobytes()


def test_masked_elements_have_no_value(tmp_path: Path) -> None:
    masked = np.ma.masked_equal(ROWS, 3)
    stored = source(ROWS.copy())
    with pytest.raises(ooc.errors.SelectionError, match=r"a masked array has no mask .* x\.filled\(value\)"):
        ooc.open_array(stored, mode="r+")[...] = masked
    with pytest.raises(ooc.errors.InputError, match="masked array"):
        ooc.rechunk(masked, tmp_path / "t.zarr", **HOW)
    with pytest.raises(ooc.errors.KernelError, match="masked array"):
        ooc.map_slabs(lambda block: np.ma.masked_equal(block, 3), stored, tmp_path / "t.zarr", **HOW).run()
    np.testing.assert_array_equal(stored[...], ROWS)
    ooc.open_array(stored, mode="r+")[...] = np.ma.masked_equal(ROWS + 1, -1)  # nothing is masked
    np.testing.assert_array_equal(stored[...], ROWS + 1)
