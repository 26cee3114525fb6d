"""NumPy arrays as sources: read where they are in memory, by everything that reads a stored array."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster

import oocarrays as ooc
from oocarrays.errors import InputError, PlacementError, TargetError, UnsupportedError

FIELD = np.arange(7 * 300_000, dtype="i4").reshape(7, -1)
"""More than one chunk: the last one is cut."""


@pytest.mark.parametrize(
    "array",
    [
        FIELD,
        np.asfortranarray(FIELD[:, :90_000]),
        FIELD[::-2, 5:90_000:3],
        FIELD[:3, :200_000].astype(">i4"),
        np.arange(6).reshape(1, 2, 3).transpose(2, 0, 1),
        np.array(5.0),
        np.zeros((0, 3)),
        np.arange("2000-01-01", "2000-01-09", dtype="datetime64[D]"),
        np.array([3, -1], "timedelta64[s]"),
        np.array(["é", "abc"]),
        np.array([b"a", b"bc"]),
        np.array([True, False]),
        np.array([1 + 2j], "c8"),
        np.array([0.5], "f2"),
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
@pytest.mark.filterwarnings("ignore:The data type")  # of bytes, in format 3
def test_it_is_read_as_it_is(array: np.ndarray) -> None:
    opened = ooc.open_array(array)
    assert (opened.shape, opened.dtype.newbyteorder("=")) == (array.shape, array.dtype.newbyteorder("="))
    np.testing.assert_array_equal(opened[...], array)
    np.testing.assert_array_equal(opened.to_dask().compute(scheduler="threads"), array)


def test_every_function_of_a_source_takes_it(tmp_path: Path) -> None:
    made = ooc.rechunk(FIELD, tmp_path / "a.zarr", chunks=(2, 100_000), scheduler="threads").run()
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a.zarr")[...], FIELD)
    assert made.zarr.metadata.zarr_format == 3
    np.testing.assert_array_equal(ooc.reduce(FIELD, "sum", axis=1, scheduler="threads"), FIELD.sum(axis=1))
    ooc.map_slabs(np.negative, FIELD, tmp_path / "b.zarr", memory="64MiB", scheduler="threads").run()
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "b.zarr")[...], -FIELD)
    read = ooc.ranks.read_sections(FIELD, "(*, block)", ranks=2, scheduler="threads")
    np.testing.assert_array_equal(read.compute(), FIELD)
    assert ooc.compare(FIELD, tmp_path / "a.zarr")


def test_what_is_computed_of_a_mapped_file_is_taken_too(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", FIELD)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    for array in (mapped + 1, mapped[:, ::2], mapped[1]):
        np.testing.assert_array_equal(ooc.open_array(array)[...], array)


@pytest.mark.parametrize(
    ("array", "line"),
    [
        (np.array([1, "x", None], object), "dtype object cannot be a source: Zarr has no elements of this type"),
        (np.zeros(2, "f4,i2"), "cannot be a source"),
        (np.zeros(2, np.longdouble), "cannot be a source"),
        (np.ma.array([1, 2], mask=[True, False]), r"a masked array has no mask in Zarr: pass x\.filled\(value\)"),
    ],
    ids=["objects", "records", "longdouble", "masked"],
)
def test_what_zarr_has_no_type_for_is_refused(array: np.ndarray, line: str) -> None:
    with pytest.raises(UnsupportedError, match=line):
        ooc.open_array(array)


def test_it_is_not_written_to(tmp_path: Path) -> None:
    array, there = np.zeros((4, 6)), zarr.create_array(tmp_path / "a.zarr", data=np.ones((4, 6)), chunks=(2, 6))
    with pytest.raises(InputError, match="open for reading"):
        ooc.open_array(array)[0, 0] = 1
    with pytest.raises(InputError, match=r"numpy\.ndarray .* is read-only"):
        ooc.open_array(array, mode="r+")
    with pytest.raises(TargetError, match=r"numpy\.ndarray .* read-only"):
        ooc.rechunk(there, array, chunks=(4, 3))
    assert not array.any()


def test_workers_do_not_see_it(tmp_path: Path) -> None:
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="") as cluster,
        Client(cluster) as client,
        pytest.raises(PlacementError, match=r"numpy\.ndarray .* is in this process's memory"),
    ):
        ooc.rechunk(FIELD, tmp_path / "a.zarr", chunks=(2, 100_000), scheduler=client).run()


def test_what_is_no_place_is_refused_by_its_type(tmp_path: Path) -> None:
    wanted = "cannot hold an array: pass a path, a URL, a Zarr store or array, or a NumPy array"
    for each in (["é" * 200, "g.zarr"], 5, object()):
        for call in (ooc.rechunk, lambda x, _, chunks: ooc.open_array(x), lambda x, _, chunks: ooc.reduce(x, "sum")):
            with pytest.raises(InputError, match=wanted):
                call(each, tmp_path / "t.zarr", chunks=(1, 1))
