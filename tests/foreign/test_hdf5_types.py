"""HDF5 types that numpy does not have: integers of a few bits, other floats, padded texts; h5py is the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import MemoryStore

import oocarrays as ooc

VALUES = np.arange(-5, 7).reshape(3, 4)
HERE: dict[str, Any] = {"scheduler": "threads", "memory": "64MiB"}


def integer(base: str, precision: int, offset: int) -> Any:
    made = getattr(h5py.h5t, base).copy()
    made.set_precision(precision)
    made.set_offset(offset)
    return made


def narrow_float() -> Any:
    made = h5py.h5t.IEEE_F32LE.copy()
    made.set_fields(26, 20, 6, 0, 20)
    made.set_precision(27)
    made.set_ebias(31)
    return made


def text(padding: int) -> Any:
    made = h5py.h5t.C_S1.copy()
    made.set_size(5)
    made.set_strpad(padding)
    return made


TYPES = {
    "precision 20, offset 4": (lambda: integer("STD_I32LE", 20, 4), VALUES.astype("i4")),
    "precision 20": (lambda: integer("STD_I32LE", 20, 0), VALUES.astype("i4")),
    "big-endian": (lambda: integer("STD_I32BE", 20, 4), VALUES.astype(">i4")),
    "unsigned": (lambda: integer("STD_U16LE", 12, 3), np.abs(VALUES).astype("u2")),
    "whole": (lambda: h5py.h5t.STD_I32LE, VALUES.astype("i4")),
    "float of 27 bits": (narrow_float, VALUES.astype("f4")),
    "padded with spaces": (lambda: text(h5py.h5t.STR_SPACEPAD), np.array([b"abc  ", b"d    "])),
    "ends with zero": (lambda: text(h5py.h5t.STR_NULLTERM), np.array([b"abcd", b"d"], "S5")),
}


@pytest.mark.filterwarnings("ignore:The data type")
@pytest.mark.parametrize("how", ["contiguous", "chunks", "deflated", "n-bit"])
@pytest.mark.parametrize("name", TYPES)
def test_elements_are_read_as_h5py_reads_them(tmp_path: Path, name: str, how: str) -> None:
    made, data = TYPES[name]
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if how != "contiguous":
        created.set_chunk((2,) * data.ndim)
    if how == "deflated":
        created.set_shuffle()
        created.set_deflate(1)
    if how == "n-bit" and data.dtype.kind == "i":
        created.set_filter(h5py.h5z.FILTER_NBIT, 0, ())
    with h5py.File(tmp_path / "a.h5", "w") as file:
        space = h5py.h5s.create_simple(data.shape)
        stored = h5py.h5d.create(file.id, b"x", made(), space, created)
        stored.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(data))
    with h5py.File(tmp_path / "a.h5") as file:
        wanted = file["x"][...]
    np.testing.assert_array_equal(ooc.open_array(f"{tmp_path}/a.h5:/x")[...], wanted)
    target = MemoryStore()
    ooc.rechunk(f"{tmp_path}/a.h5:/x", target, chunks=data.shape, **HERE).run()
    np.testing.assert_array_equal(zarr.open_array(target, mode="r")[...], wanted)


@pytest.mark.parametrize(("dtype", "wide"), [("i4", "i8"), ("i2", "i8"), ("f4", "f8")])
def test_times_that_are_moved_to_the_first_epoch_do_not_leave_their_type(tmp_path: Path, dtype: str, wide: str) -> None:
    for number, since in enumerate(["seconds since 1970-01-01", "hours since 2100-01-01"]):
        with h5py.File(tmp_path / f"{number}.nc", "w") as file:
            time = file.create_dataset("time", data=np.arange(4, dtype=dtype), chunks=(4,), maxshape=(None,))
            time.attrs["units"] = since
            time.make_scale("time")
            air = file.create_dataset("air", data=np.arange(4.0), chunks=(4,), maxshape=(None,))
            air.dims[0].attach_scale(time)
    series = ooc.open_array(f"{tmp_path}/*.nc:/time")
    assert series.dtype == wide
    found = np.datetime64(0, "s") + series[...].astype("m8[s]")
    theirs = [xr.open_dataset(tmp_path / f"{n}.nc", engine="h5netcdf")["time"].values for n in range(2)]
    np.testing.assert_array_equal(found, np.concatenate(theirs).astype("M8[s]"))
