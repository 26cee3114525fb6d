"""Indices that numpy pairs, masks, ``oindex`` and ``vindex``: what they take, and what they write."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import BudgetError, CorruptChunkError, InputError, RunError, SelectionError
from tests.profiles import examples

pytestmark = pytest.mark.once

STORED: dict[str, dict[str, Any]] = {
    "plain": {"compressors": None},
    "zstd": {},
    "column": {"compressors": None, "filters": None, "order": "F", "zarr_format": 2},
    "shards": {"shards": "twice"},
}


def made(place: Any, data: np.ndarray, chunks: tuple[int, ...], kind: str) -> ooc.OutOfCoreArray:
    options = dict(STORED[kind])
    if "shards" in options:
        options["shards"] = tuple(2 * c for c in chunks)
    z = zarr.create_array(place, shape=data.shape, chunks=chunks, dtype=data.dtype, fill_value=7, **options)
    z[...] = data
    return ooc.open_array(place, mode="r+")


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """An index as numpy takes it: slices, new axes, integers, masks, and lists that broadcast."""
    grouped = draw(st.sampled_from([(3,), (2, 3), (0,), (1,), ()]))
    entries: list[Any] = []
    axis = 0
    while axis < len(shape):
        n = shape[axis]
        kind = draw(st.sampled_from(["slice", "integer", "list", "list", "new", "mask"]))
        if kind == "new":
            entries.append(None)
            continue
        if kind == "integer":
            entries.append(draw(st.integers(-n, n - 1)))
        elif kind == "list":
            lengths = draw(st.sampled_from([grouped, grouped[-1:], (1,)]))
            numbers = st.integers(-n, n - 1)
            entries.append(
                np.array(
                    draw(st.lists(numbers, min_size=int(np.prod(lengths)), max_size=int(np.prod(lengths)))), int
                ).reshape(lengths)
            )
        elif kind == "mask" and axis + 1 < len(shape) and grouped == (3,):
            mask = np.zeros(shape[axis : axis + 2], bool)
            mask.reshape(-1)[
                draw(st.lists(st.integers(0, mask.size - 1), min_size=3, max_size=3, unique=True))
                if mask.size > 2
                else []
            ] = True
            entries.append(mask)
            axis += 1
        else:
            step = draw(st.sampled_from([1, 2, -1, -3]))
            entries.append(
                slice(draw(st.none() | st.integers(-n - 1, n)), draw(st.none() | st.integers(-n - 1, n)), step)
            )
        axis += 1
    return tuple(entries) if draw(st.booleans()) or len(entries) != 1 else entries[0]


@pytest.mark.parametrize("kind", STORED)
@examples(40)
@given(data=st.data())
def test_any_key_means_what_it_means_to_numpy(kind: str, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    chunks = tuple(data.draw(st.integers(1, n)) for n in shape)
    expected = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    key = data.draw(keys(shape))
    try:
        taken = expected[key]
    except IndexError:
        return
    a = made(MemoryStore(), expected, chunks, kind)
    found = a[key]
    np.testing.assert_array_equal(found, taken)
    assert np.shape(found) == taken.shape
    values = np.arange(taken.size, dtype="f8").reshape(taken.shape) + 1000
    expected[key] = values
    a[key] = values
    np.testing.assert_array_equal(zarr.open_array(a.zarr.store, mode="r")[...], expected)


@pytest.fixture(params=STORED)
def array(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ooc.OutOfCoreArray, np.ndarray]:
    data = np.arange(24 * 30, dtype="f4").reshape(24, 30)
    return made(tmp_path / "a.zarr", data, (5, 8), request.param), data


@pytest.mark.parametrize(
    "key",
    [
        np.s_[:2, [0, -1], ..., 3], np.s_[:, [0, 1], ..., [1, 2]], np.s_[:, [0, 1], [1, 2], ...], np.s_[..., [0, 1], 2],
        np.s_[0, ..., [1, 2], 3], np.s_[[0, 1], ..., [1, 2], 2:4],
    ],
)  # fmt: skip
def test_an_ellipsis_separates_indices_as_in_numpy(key: Any) -> None:
    data = np.arange(60).reshape(3, 4, 5)
    stored = zarr.create_array({}, data=data, chunks=(2, 3, 2))
    a = ooc.open_array(stored, mode="r+")
    np.testing.assert_array_equal(a[key], data[key])
    values = -1 - np.arange(data[key].size).reshape(data[key].shape)
    a[key] = data[key] = values
    np.testing.assert_array_equal(stored[...], data)


def test_products_and_points_by_name(array: tuple[ooc.OutOfCoreArray, np.ndarray]) -> None:
    a, data = array
    np.testing.assert_array_equal(a.oindex[[3, 1], [2, 29, 2]], data[np.ix_([3, 1], [2, 29, 2])])
    np.testing.assert_array_equal(a.vindex[[3, 1], [2, 29]], data[[3, 1], [2, 29]])
    np.testing.assert_array_equal(a.vindex[:, [2, 29]], data[:, [2, 29]].T, "points stand first")
    a.oindex[[3, 1], [2, 29]] = 0
    data[np.ix_([3, 1], [2, 29])] = 0
    a.vindex[:, [4, 5]] = np.arange(24)
    data[:, [4, 5]] = np.arange(24)[:, None]
    np.testing.assert_array_equal(a[...], data)


def test_masks_of_all_axes(array: tuple[ooc.OutOfCoreArray, np.ndarray]) -> None:
    a, data = array
    mask = data % 7 == 3
    np.testing.assert_array_equal(a[mask], data[mask])
    a[mask] = -1
    data[mask] = -1
    np.testing.assert_array_equal(a[...], data)
    nothing = np.zeros(data.shape, bool)
    assert a[nothing].shape == (0,)
    a[nothing] = 5
    np.testing.assert_array_equal(a[...], data)


def test_of_several_values_for_one_element_the_last_stays(array: tuple[ooc.OutOfCoreArray, np.ndarray]) -> None:
    a, _ = array
    a.vindex[[4, 4, 4], [9, 9, 9]] = [1, 2, 3]
    assert a[4, 9] == 3


def test_each_chunk_is_asked_for_once(tmp_path: Path) -> None:
    data = np.random.default_rng(0).random((64, 64))
    a = made(tmp_path / "a.zarr", data, (16, 16), "zstd")
    rows, columns = np.random.default_rng(1).integers(0, 64, (2, 500))
    with ooc.advise.metered() as meter:
        np.testing.assert_array_equal(a.vindex[rows, columns], data[rows, columns])
    assert meter.read_requests == 16


def test_threads_that_write_points_of_one_chunk_lose_nothing(array: tuple[ooc.OutOfCoreArray, np.ndarray]) -> None:
    a, data = array

    def write(number: int) -> None:
        for at in range(number, 24, 4):
            a.vindex[[at, at], [0, 1]] = -number

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    data[:, :2] = -(np.arange(24) % 4)[:, None]
    np.testing.assert_array_equal(a[...], data)


def test_faults_are_told_as_anywhere(tmp_path: Path) -> None:
    data = np.arange(64.0).reshape(8, 8)
    a = made(tmp_path / "a.zarr", data, (4, 4), "zstd")
    (tmp_path / "a.zarr/c/1/1").write_bytes(b"no")
    assert a.vindex[[0, 7], [0, 3]].tolist() == [0, 59]
    with pytest.raises(CorruptChunkError, match=r"c/1/1"):
        _ = a.vindex[[0, 7], [0, 7]]
    (tmp_path / "a.zarr/c/1/1").unlink()
    assert a.vindex[[0, 7], [0, 7]].tolist() == [0, 7], "the fill value"
    with pytest.raises(RunError, match="lacks 1 chunk"):
        _ = ooc.open_array(tmp_path / "a.zarr", missing="error").vindex[[0, 7], [0, 7]]
    with pytest.raises(InputError, match=r"open it with mode='r\+'"):
        ooc.open_array(tmp_path / "a.zarr").vindex[[0], [0]] = 1
    with pytest.raises(SelectionError, match=r"values of shape \(3,\) do not broadcast to .*\(2,\)"):
        a.vindex[[0, 1], [0, 1]] = [1, 2, 3]


def test_what_does_not_fit_the_memory_is_refused_until_it_is_asked_for_again(tmp_path: Path) -> None:
    a = ooc.open_array(zarr.create_array(tmp_path / "a.zarr", shape=(2**17, 1024), chunks=(2**14, 1024), dtype="u1"))
    with dask.config.set({"oocarrays.whole-array-limit": "100MiB"}):
        for read in (lambda: a[:], lambda: np.asarray(a), a.read, lambda: a[np.ones(2**17, bool)]):
            with pytest.raises(BudgetError, match=r"a\.load\(\) reads it all the same") as refused:
                read(...) if read == a.read else read()
            assert "\n" not in str(refused.value)
        assert a[: 2**16].shape == (2**16, 1024)
        assert a.load().nbytes == a.nbytes


def test_names_that_users_know(tmp_path: Path) -> None:
    z = zarr.create_array(tmp_path / "g", name="a", shape=(6, 4), chunks=(2, 2), shards=(2, 4), dtype="i2")
    a = ooc.open_array(z)
    assert (a.T.shape, a.dims, a.shards, a.itemsize, a.path) == ((4, 6), ("dim_0", "dim_1"), (2, 4), 2, "a")
    assert [type(codec).__name__ for codec in a.codecs] == ["ZstdCodec"]


def test_what_is_opened_for_reading_cannot_be_written_through(tmp_path: Path) -> None:
    z = zarr.create_array(tmp_path / "a.zarr", shape=(4,), chunks=(2,), dtype="i4")
    a = ooc.open_array(z, mode="r")
    with pytest.raises(InputError, match=r"open it with mode='r\+'"):
        a[0] = 1
    with pytest.raises(InputError, match="read"):
        ooc.store(da.ones(4, dtype="i4"), a, scheduler="threads")
    ooc.open_array(z, mode="r+")[0] = 1
    ooc.open_array(z)[1] = 2
    assert a[:].tolist() == [1, 2, 0, 0]


def test_an_array_is_stored_where_nothing_is(tmp_path: Path) -> None:
    data = np.arange(35).reshape(5, 7)
    x = da.from_array(data, chunks=(3, 7))
    ooc.store(x, tmp_path / "new.zarr", scheduler="threads")
    z = zarr.open_array(tmp_path / "new.zarr", mode="r")
    assert z.chunks == (3, 7)
    np.testing.assert_array_equal(z[...], data)
    ooc.store(x, tmp_path / "later.zarr", compute=False).compute(scheduler="threads")
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "later.zarr", mode="r")[...], data)
    with pytest.raises(InputError, match="no such store"):
        ooc.store(x, tmp_path / "none.zarr", region=slice(0, 5), scheduler="threads")
    zarr.create_group(tmp_path / "group.zarr")
    with pytest.raises(InputError, match="holds a Zarr group"):
        ooc.store(x, tmp_path / "group.zarr", scheduler="threads")


def test_an_array_on_disk_is_laid_out_over_ranks(tmp_path: Path) -> None:
    data = np.arange(48.0).reshape(8, 6)
    zarr.create_array(tmp_path / "a.zarr", data=data, chunks=(2, 6))
    for named in (tmp_path / "a.zarr", str(tmp_path / "a.zarr"), ooc.open_array(tmp_path / "a.zarr")):
        x = ooc.ranks.distribute(named, "(*, cyclic)", ranks=2, scheduler="threads")
        np.testing.assert_array_equal(x.local(1).compute(scheduler="threads"), data[:, 1::2])
