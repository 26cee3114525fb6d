"""Files in one piece: numpy's, raw ones, and mapped arrays, in rows and in columns."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import ZipStore

import oocarrays as ooc
from oocarrays.errors import InputError, NotFoundError, RunError
from tests.seams import set_constants

DATA = np.random.default_rng(3).integers(0, 1000, (37, 11, 23)).astype("i4")
HERE: dict[str, Any] = {"scheduler": "threads", "memory": "64MiB"}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few rows, so that there are many of them, the last one cut short."""
    set_constants(monkeypatch, foreign_row_bytes=5000)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["i4", ">i4", "f8", "u1", "?", "c16"])
def test_a_file_of_numpy_is_mapped_in_place(tmp_path: Path, dtype: str, order: Any) -> None:
    data = np.asarray(DATA % 200, dtype, order=order)
    np.save(tmp_path / "a.npy", data)
    a = ooc.open_array(tmp_path / "a.npy")
    assert np.prod(a._file.stored.grid.counts) > 1
    np.testing.assert_array_equal(a[...], data)
    np.testing.assert_array_equal(a[36], data[36])
    np.testing.assert_array_equal(a[::5, 3, 2:20:3], data[::5, 3, 2:20:3])
    np.testing.assert_array_equal(a.to_dask().compute(scheduler="threads"), data)
    for method in ("independent", "two-phase"):
        job = ooc.rechunk(tmp_path / "a.npy", tmp_path / method, chunks=(37, 5, 5), method=method, **HERE)
        np.testing.assert_array_equal(job.run()[...], data)


def test_requests_are_as_planned(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", DATA)
    job = ooc.rechunk(tmp_path / "a.npy", tmp_path / "b.zarr", chunks=(37, 5, 5), **HERE)
    job.run()
    assert job.meter.read_requests == job.plan.traffic.read_requests


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_mapped_array_is_its_file(tmp_path: Path, order: Any) -> None:
    made: np.memmap = np.memmap(tmp_path / "a.raw", "f4", "w+", 12, DATA.shape, order)
    made[...] = DATA
    np.testing.assert_array_equal(ooc.open_array(made)[...], DATA)
    whole: Any = slice(5, 20) if order == "C" else (..., slice(5, 20))
    np.testing.assert_array_equal(ooc.open_array(made[whole])[...], DATA[whole])
    np.testing.assert_array_equal(ooc.rechunk(made, tmp_path / "b.zarr", chunks=(37, 5, 5), **HERE).run()[...], DATA)
    np.testing.assert_array_equal(ooc.open_array(made[::2, ::2])[...], DATA[::2, ::2])


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_raw_file_has_a_shape_and_a_type(tmp_path: Path, order: Any) -> None:
    (tmp_path / "a.raw").write_bytes(bytes(7) + DATA.astype(">i4").tobytes(order))
    place = ooc.open_files(tmp_path / "a.raw", shape=DATA.shape, dtype=">i4", offset=7, order=order)
    np.testing.assert_array_equal(ooc.open_array(place)[...], DATA)
    by_url = f"files://{tmp_path}/a.raw?shape=37,11,23&dtype=>i4&offset=7&order={order}"
    np.testing.assert_array_equal(ooc.open_array(by_url)[3:9], DATA[3:9])
    job = ooc.rechunk(place, tmp_path / "b.zarr", chunks=(37, 5, 5), **HERE)
    np.testing.assert_array_equal(job.run()[...], DATA)


def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.raw").write_bytes(bytes(100))
    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY\1\0")
    np.save(tmp_path / "pairs.npy", np.zeros(3, [("a", "i4")]))
    np.save(tmp_path / "short.npy", DATA)
    os.truncate(tmp_path / "short.npy", 10_000)
    refused: list[tuple[Any, str]] = [
        (
            lambda: ooc.open_files(tmp_path / "a.raw", shape=(5, 6), dtype="f4"),
            r"100 bytes; shape \(5, 6\) of float32 needs 120",
        ),
        (lambda: ooc.open_files(tmp_path / "a.raw", shape=(5, 6)), "both shape= and dtype="),
        (lambda: ooc.open_files(tmp_path / "a.raw", shape=(5,), dtype="f4", order="K"), "neither 'C' nor 'F'"),
        (lambda: ooc.open_files(f"{tmp_path}/a.raw?size=3"), "files:// takes concat_dim, shape"),
        (lambda: ooc.open_files(tmp_path / "a.raw"), "give shape= and dtype="),
        (lambda: ooc.open_files(tmp_path / "?.raw", shape=(5,), dtype="f4"), "2 files match .*describe one raw file"),
        (
            lambda: ooc.open_files(tmp_path / "a.raw", shape=(5,), dtype="f4", concat_dim="run"),
            "concat_dim='run': raw files are not joined",
        ),
        (lambda: ooc.open_files(tmp_path / "none.raw", shape=(5,), dtype="f4"), "no file is named"),
        (lambda: ooc.open_array(tmp_path / "cut.npy")[...], "cannot be opened as a file of numpy"),
        (lambda: ooc.open_array(tmp_path / "pairs.npy"), "elements of type"),
        (lambda: ooc.open_array(tmp_path / "short.npy"), "is truncated: it has 10000 bytes, and its header says"),
    ]
    for call, says in refused:
        with pytest.raises(InputError, match=says) as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(NotFoundError):
        ooc.open_array(tmp_path / "none.npy")


def test_a_file_that_is_cut_short_or_written_again_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", DATA)
    a = ooc.open_array(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", DATA + 1)
    for read in (lambda: a[...], lambda: a[3], lambda: a.to_dask().compute(scheduler="threads")):
        with pytest.raises(RunError, match="has changed since it was opened"):
            read()


def test_a_zip_file_is_named_by_its_path(tmp_path: Path) -> None:
    with ZipStore(tmp_path / "a.zip", mode="w") as store:
        zarr.create_array(store, data=DATA, chunks=(5, 11, 23), name="deep/x")
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "a.zip/deep/x")[...], DATA)
    job = ooc.rechunk(f"{tmp_path}/a.zip:/deep/x", tmp_path / "b.zarr", chunks=(37, 5, 5), **HERE)
    np.testing.assert_array_equal(job.run()[...], DATA)
    with pytest.raises(InputError, match="write to a new one"):
        ooc.rechunk(tmp_path / "b.zarr", tmp_path / "a.zip", chunks=(5, 11, 23), overwrite=True, **HERE)
