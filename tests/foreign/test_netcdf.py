"""NetCDF-4 and HDF5 files, written by other libraries, against what those libraries read."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import oocarrays as ooc
from oocarrays.errors import InputError, JournalError, NotFoundError, RunError, UnsupportedError
from tests.flat import flat
from tests.unfinished import FIELD, fail, options_of

RNG = np.random.default_rng(7)
AIR = RNG.normal(280, 10, (24, 20, 30)).astype("f4")
NEW: dict[str, Any] = {"compat": "override", "coords": "minimal", "join": "exact"}
HERE: dict[str, Any] = {"scheduler": "threads", "memory": "64MiB"}


def dataset(day: int = 0, **attributes: Any) -> xr.Dataset:
    return xr.Dataset(
        {"air": (("time", "lat", "lon"), AIR + day, attributes), "height": ((), np.float32(2.0))},
        coords={"time": np.arange(24) + 24 * day, "lat": np.linspace(80, -80, 20), "lon": np.arange(30.0)},
        attrs={"title": "days"},
    )


def write(file: Path, data: xr.Dataset, **encoding: Any) -> Path:
    how = {"zlib": True, "shuffle": True, "chunksizes": (6, 20, 10)} | encoding
    data.to_netcdf(file, engine="h5netcdf", encoding={"air": how}, unlimited_dims=["time"])
    return file


@pytest.fixture
def day(tmp_path: Path) -> Path:
    return write(tmp_path / "a.nc", dataset())


@pytest.fixture
def days(tmp_path: Path) -> Path:
    for n in range(5):
        write(tmp_path / f"{n}.nc", dataset(n))
    return tmp_path / "*.nc"


READS: dict[str, Callable[[Any, Path], Any]] = {
    "open": lambda place, _: ooc.open_array(place)[...],
    "strided": lambda place, _: ooc.open_array(place)[:][...],
    "lazy": lambda place, _: ooc.open_array(place).to_dask().compute(scheduler="threads"),
    "sections": lambda place, _: ooc.ranks.read_sections(place, [...], **HERE).compute()[0],
    "rechunk": lambda place, to: ooc.rechunk(place, to / "b.zarr", chunks=(24, 5, 5), **HERE).run()[...],
    "slabs": lambda place, to: ooc.map_slabs(np.negative, place, to / "b.zarr", **HERE).run()[...] * -1,
    "iterate": lambda place, to: ooc.iterate(np.negative, place, to / "b.zarr", sweeps=2, **HERE).run()[...],
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("inner", [":/air", "/air"])
def test_an_array_of_a_file_is_a_source_everywhere(day: Path, tmp_path: Path, read: str, inner: str) -> None:
    np.testing.assert_array_equal(READS[read](f"{day}{inner}", tmp_path), AIR)


CODINGS: dict[str, dict[str, Any]] = {
    "contiguous": {"chunks": None},
    "plain chunks": {"chunks": (5, 7, 11)},
    "deflated": {"chunks": (5, 7, 11), "compression": "gzip"},
    "shuffled": {"chunks": (5, 7, 11), "compression": "gzip", "shuffle": True},
    "checked": {"chunks": (5, 7, 11), "compression": "gzip", "shuffle": True, "fletcher32": True},
    "checked only": {"chunks": (5, 7, 11), "fletcher32": True},
    "by h5py: lzf": {"chunks": (5, 7, 11), "compression": "lzf"},
    "by h5py: scale and offset": {"chunks": (5, 7, 11), "scaleoffset": 2},
}


@pytest.mark.parametrize("dtype", ["f4", ">f8", "i2", "u1", "c8", "?"])
@pytest.mark.parametrize("coding", CODINGS)
def test_every_coding_is_read_as_h5py_reads_it(tmp_path: Path, coding: str, dtype: str) -> None:
    if "scale" in coding and dtype in ("c8", "?"):
        pytest.skip("HDF5 has none such")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("deep/x", data=(AIR % 100).astype(dtype), **CODINGS[coding])
    with h5py.File(tmp_path / "a.h5") as file:
        expected = file["deep/x"][...]
    a = ooc.open_array(tmp_path / "a.h5/deep/x", missing="error")
    np.testing.assert_array_equal(a[...], expected)
    np.testing.assert_array_equal(a[3:20:4, 5, ::7], expected[3:20:4, 5, ::7])
    assert a.dtype == expected.dtype.newbyteorder("=")
    told = ooc.rechunk(f"{tmp_path}/a.h5:/deep/x", tmp_path / "b.zarr", chunks=(24, 5, 5), **HERE)
    np.testing.assert_array_equal(told.run()[...], expected)


def test_what_is_read_by_its_bytes_takes_no_library_and_what_is_not_says_so(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("mapped", data=AIR, chunks=(6, 20, 30), shuffle=True, compression="gzip")
        file.create_dataset("made", data=AIR, chunks=(6, 20, 30), compression="lzf")
    mapped, made = (ooc.open_array(f"{tmp_path}/a.h5:/{name}") for name in ("mapped", "made"))
    assert (mapped._file.stored.codec, mapped._file.stored.local) == ("shuffle+zlib", True)
    assert made._file.stored.codec == "h5py"


def test_requests_are_as_planned_and_every_byte_is_read_once(day: Path, tmp_path: Path) -> None:
    job = ooc.rechunk(f"{day}:/air", tmp_path / "b.zarr", chunks=(24, 5, 5), resources=ooc.Resources(ranks=1), **HERE)
    job.run()
    with h5py.File(day) as file:
        stored = file["air"].id.get_storage_size()
    meter = job.meter
    assert (meter.read_requests, meter.read_bytes, meter.decoded_bytes) == (12, stored, AIR.nbytes)


def test_a_target_is_read_by_any_zarr(day: Path, tmp_path: Path) -> None:
    ooc.rechunk(f"{day}:/air", tmp_path / "b.zarr", chunks=(24, 5, 5), **HERE).run()
    made: Any = zarr.open_array(tmp_path / "b.zarr", mode="r")
    assert type(made.compressors[0]).__name__ == "BloscCodec"
    assert made.metadata.dimension_names == ("time", "lat", "lon")


def test_a_file_is_a_group_and_what_comes_of_it_is_identical_in_xarray(day: Path, tmp_path: Path) -> None:
    assert sorted(ooc.open_group(day)) == ["air", "height", "lat", "lon", "time"]
    ooc.rechunk(day, tmp_path / "b.zarr", chunks={"air": (24, 5, 5)}, **HERE).run()
    with xr.open_dataset(day) as expected:
        xr.testing.assert_identical(xr.open_zarr(tmp_path / "b.zarr").load(), expected.load())


def test_odd_encodings_are_identical_in_xarray(tmp_path: Path) -> None:
    data = xr.Dataset(
        {
            "scaled": ("x", np.array([1.5, np.nan, 3.0, 4.5])),
            "filled": ("x", np.array([1, 2, 3, 4], "i4")),
            "names": ("x", np.array(["a", "bö", "", "dddd"])),
            "when": ("x", np.array(["2000-01-01", "2001-02-03", "NaT", "2020-12-31"], "M8[ns]")),
            "scalar": ((), 3.5),
            "empty": ("y", np.zeros(0, "f4")),
            "flag": ("x", np.array([True, False, True, True])),
        },
        attrs={"n": 3, "list": [1, 2], "text": "ö"},
    )
    encoding = {"scaled": {"dtype": "i2", "scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -1}}
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=encoding)
    ooc.rechunk(tmp_path / "a.nc", tmp_path / "b.zarr", chunks={"scaled": (2,)}, **HERE).run()
    with xr.open_dataset(tmp_path / "a.nc") as expected:
        found = xr.open_zarr(tmp_path / "b.zarr", consolidated=False).load()
        xr.testing.assert_identical(found, expected.load())


def test_what_is_linked_from_elsewhere_or_lies_behind_other_bytes_is_read_all_the_same(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=1024) as file:
        file.create_dataset("x", data=AIR, chunks=(6, 20, 30), compression="gzip")
        file["plain"] = AIR
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["padding"] = np.arange(999)
        file["linked"] = h5py.ExternalLink("c.h5", "x")
        file["soft"] = h5py.SoftLink("/padding")
        layout = h5py.VirtualLayout(shape=AIR.shape, dtype="f4")
        layout[...] = h5py.VirtualSource("c.h5", "x", shape=AIR.shape)
        file.create_virtual_dataset("virtual", layout)
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file.create_dataset("x", data=AIR, chunks=(6, 20, 30), compression="gzip")
    for place in ("a.h5/x", "a.h5/plain", "b.h5/linked", "b.h5/virtual", "c.h5/x"):
        np.testing.assert_array_equal(ooc.open_array(tmp_path / place)[...], AIR, place)
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "b.h5/soft")[...], np.arange(999))


def test_an_open_dataset_of_h5py_is_a_source(day: Path) -> None:
    with h5py.File(day) as file:
        np.testing.assert_array_equal(ooc.open_array(file["air"])[...], AIR)


def test_what_was_never_written_is_the_fill_value_or_missing(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        x = file.create_dataset("x", (8, 8), "i4", chunks=(2, 8), fillvalue=-9, compression="gzip")
        x[2:4] = 1
        expected = x[...]
    place = tmp_path / "a.h5/x"
    np.testing.assert_array_equal(ooc.open_array(place)[...], expected)
    with pytest.raises(RunError, match="lacks 3 chunks"):
        ooc.open_array(place, missing="error")[...]
    job = ooc.rechunk(place, tmp_path / "b.zarr", chunks=(8, 2), resources=ooc.Resources(missing="warn"), **HERE)
    with pytest.warns(UserWarning, match="3 chunks"):
        np.testing.assert_array_equal(job.run()[...], expected)


# ---------------------------------------------------------------------- several files


@pytest.mark.parametrize("read", READS)
def test_files_along_a_dimension_are_one_source(days: Path, tmp_path: Path, read: str) -> None:
    expected = np.concatenate([AIR + day for day in range(5)])
    to = tmp_path / "to"
    to.mkdir()
    calls = READS | {"rechunk": lambda place, to: ooc.rechunk(place, to / "b", chunks=(120, 5, 5), **HERE).run()[...]}
    np.testing.assert_array_equal(calls[read](f"{days}:/air", to), expected)


def test_series_are_identical_to_those_of_xarray(days: Path, tmp_path: Path) -> None:
    source = ooc.open_files(days, concat_dim="time")
    ooc.rechunk(source, tmp_path / "b.zarr", chunks={"air": (120, 5, 5)}, **HERE).run()
    with xr.open_mfdataset(str(days), combine="nested", concat_dim="time", data_vars="minimal", **NEW) as expected:
        found = xr.open_zarr(tmp_path / "b.zarr", consolidated=False).load()
        xr.testing.assert_identical(found, expected.load())


def test_files_are_joined_as_they_are_listed(days: Path) -> None:
    listed = [days.parent / f"{n}.nc" for n in (3, 1)]
    place = ooc.open_files(listed, concat_dim="time")
    found = ooc.open_group(place)["air"][...]
    np.testing.assert_array_equal(found, np.concatenate([AIR + 3, AIR + 1]))
    assert pickle.loads(pickle.dumps(ooc.open_group(place)["air"]))[30, 2, 3] == (AIR + 1)[6, 2, 3]


def packed(tmp_path: Path) -> None:
    for n, offset in enumerate((270.0, 280.0, 300.0)):
        data = dataset(n)
        data["time"].attrs["units"] = "hours since 2000-01-01"
        encoding = {"dtype": "i2", "scale_factor": 0.01, "add_offset": offset, "_FillValue": -32767}
        data["air"][0, 0, n] = np.nan
        write(tmp_path / f"{n}.nc", data, **encoding)


def test_files_that_are_packed_otherwise_are_each_decoded_by_their_own_attributes(tmp_path: Path) -> None:
    packed(tmp_path)
    how: Any = {"combine": "nested", "concat_dim": "time", "data_vars": "minimal", **NEW}
    with xr.open_mfdataset(f"{tmp_path}/*.nc", decode_times=False, **how) as data:
        expected = data.air.values
    a = ooc.open_array(f"{tmp_path}/*.nc:/air")
    np.testing.assert_array_equal(a[...], expected)
    assert a.dtype == expected.dtype
    assert not {"scale_factor", "add_offset", "_FillValue"} & set(a.zarr.attrs)
    job = ooc.rechunk(f"{tmp_path}/*.nc:/air", tmp_path / "b.zarr", chunks=(72, 5, 5), **HERE)
    np.testing.assert_array_equal(job.run()[...], expected)
    assert job.plan.source.codec == "unpacked"


def test_times_since_other_days_are_counted_from_the_first(tmp_path: Path) -> None:
    for n in range(3):
        data = dataset(n)
        data["time"] = np.arange(24)
        data["time"].attrs["units"] = f"hours since 2000-01-0{n + 1}"
        write(tmp_path / f"{n}.nc", data)
    ooc.rechunk(f"{tmp_path}/*.nc", tmp_path / "b.zarr", chunks={"air": (72, 5, 5)}, **HERE).run()
    how: Any = {"combine": "nested", "concat_dim": "time", "data_vars": "minimal", **NEW}
    with xr.open_mfdataset(f"{tmp_path}/*.nc", **how) as expected:
        found = xr.open_zarr(tmp_path / "b.zarr", consolidated=False)
        np.testing.assert_array_equal(found.time.values, expected.time.values)


def other(name: str, tmp_path: Path) -> None:
    write(tmp_path / "0.nc", dataset(0, units="K"))
    if name == "units":
        write(tmp_path / "1.nc", dataset(1, units="degC"))
    elif name == "shape":
        write(tmp_path / "1.nc", dataset(1, units="K").isel(lat=slice(10)), chunksizes=(6, 10, 10))
    elif name == "lacking":
        write(tmp_path / "1.nc", dataset(1, units="K"))
        dataset(1).drop_vars("air").to_netcdf(tmp_path / "1.nc", engine="h5netcdf", unlimited_dims=["time"])


@pytest.mark.parametrize(
    ("name", "says"),
    {
        "units": r"air has units 'K' in .*0\.nc and 'degC' in .*1\.nc",
        "shape": r"air has shape \(24, 20, 30\) in .*0\.nc and \(24, 10, 30\) in .*1\.nc",
        "lacking": r"no array air in .*1\.nc",
    }.items(),
)
def test_files_that_cannot_be_joined_are_refused_by_name(tmp_path: Path, name: str, says: str) -> None:
    other(name, tmp_path)
    with pytest.raises(InputError, match=says):
        ooc.open_array(f"{tmp_path}/*.nc:/air")


OTHERWISE: dict[str, dict[str, Any]] = {
    "other chunks": {"chunksizes": (24, 10, 30)},
    "other codecs": {"zlib": False, "shuffle": False},
    "another type": {"dtype": "f8"},
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_files_that_are_stored_otherwise_are_joined_all_the_same(tmp_path: Path, name: str) -> None:
    write(tmp_path / "0.nc", dataset(0))
    write(tmp_path / "1.nc", dataset(1), **OTHERWISE[name])
    expected = np.concatenate([AIR, AIR + 1])
    np.testing.assert_array_equal(ooc.open_array(f"{tmp_path}/*.nc:/air")[...], expected)


def test_files_of_unequal_length_are_joined_all_the_same(tmp_path: Path) -> None:
    whole = dataset()
    for n, part in enumerate((slice(7), slice(7, 11), slice(11, 24))):
        write(tmp_path / f"{n}.nc", whole.isel(time=part), chunksizes=(3, 20, 10))
    a = ooc.open_array(f"{tmp_path}/*.nc:/air")
    np.testing.assert_array_equal(a[...], AIR)
    np.testing.assert_array_equal(a[6:12, 3], AIR[6:12, 3])
    made = ooc.rechunk(f"{tmp_path}/*.nc:/air", tmp_path / "b.zarr", chunks=(24, 5, 5), **HERE).run()
    np.testing.assert_array_equal(made[...], AIR)


def test_files_without_an_endless_axis_or_a_coordinate_that_differs_need_a_word(tmp_path: Path) -> None:
    for n in range(2):
        dataset(n).assign_coords(time=np.arange(24)).to_netcdf(tmp_path / f"{n}.nc", engine="h5netcdf")
    with pytest.raises(InputError, match=r"2 files.*concat_dim='time'"):
        ooc.open_group(f"{tmp_path}/*.nc")
    assert ooc.open_group(ooc.open_files(f"{tmp_path}/*.nc", concat_dim="time"))["air"].shape == (48, 20, 30)


# ---------------------------------------------------------------------- what goes wrong


def test_a_file_that_changes_is_no_silent_wrong_answer(day: Path) -> None:
    a = ooc.open_array(f"{day}:/air")
    assert a[0, 0, 0] == AIR[0, 0, 0]
    write(day, dataset(3))
    with pytest.raises(RunError, match=r"a\.nc has changed since it was opened"):
        a[...]
    os.remove(day)
    with pytest.raises(RunError, match=r"a\.nc"):
        a[...]


def test_a_run_goes_on_with_the_file_that_it_began_with_and_with_no_other(tmp_path: Path) -> None:
    data = xr.Dataset({"x": (("row", "column"), FIELD)})
    options: Any = options_of("auto") | {"memory": "32MiB", "scheduler": "threads"}
    encoding = {"x": {"zlib": True, "shuffle": True, "chunksizes": (64, 1024)}}
    for name in ("a", "b"):
        data.to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf", encoding=encoding)
        job = flat(ooc.rechunk, f"{tmp_path}/{name}.nc:/x", tmp_path / f"{name}.zarr", **options)
        fail(job, 19)
    (data + 1).to_netcdf(tmp_path / "b.nc", engine="h5netcdf", encoding=encoding)
    again = ooc.resume(tmp_path / "a.zarr", scheduler="threads")
    np.testing.assert_array_equal(again.run()[...], FIELD)
    with pytest.raises(JournalError, match="have changed since the run"):
        ooc.resume(tmp_path / "b.zarr", scheduler="threads")


@pytest.mark.filterwarnings("ignore")
def test_texts_of_a_fixed_length_are_read(tmp_path: Path) -> None:
    data = np.array([b"a", b"bc", b"", b"d"], "S2")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = data
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "a.h5/x")[...], data)


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.nc").write_text("no such file")
    (tmp_path / "three.nc").write_bytes(b"CDF\1" + b"\xff" * 100)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("lists", (3,), h5py.vlen_dtype("i4"))
        file["x"] = np.zeros(3)
    for place, says, error in (
        ("text.nc", "text.nc", NotFoundError),
        ("three.nc", "three.nc is a damaged NetCDF-3 file", NotFoundError),
        ("a.h5:/y", "no array y|no Zarr array in .*a.h5/y", NotFoundError),
        ("a.h5:/lists", "lists .*lists of unequal lengths", UnsupportedError),
        ("none-*.nc:/x", "no file is named", NotFoundError),
    ):
        with pytest.raises(error, match=says):
            ooc.open_array(f"{tmp_path}/{place}")


def test_nothing_is_written_into_a_file(day: Path) -> None:
    before = day.read_bytes()
    with pytest.raises(InputError):
        ooc.open_array(f"{day}:/air", mode="r+")[0] = 1
    with pytest.raises(InputError):
        ooc.rechunk(f"{day}:/air", f"{day}/new", chunks=(24, 5, 5), **HERE)
    with pytest.raises(InputError):
        ooc.rechunk(f"{day}:/air", day, chunks=(24, 5, 5), overwrite=True, **HERE)
    assert day.read_bytes() == before


@pytest.mark.parametrize("change", ["values", "packing", "nothing"])
def test_what_is_not_joined_must_be_the_same_in_all_files(tmp_path: Path, change: str) -> None:
    for day in range(3):
        lat = np.array([1.0, np.nan, 3.0])
        encoding: dict[str, Any] = {"area": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}}
        if day == 2 and change == "values":
            lat[2] = 4.0
        if day == 2 and change == "packing":
            encoding["area"]["scale_factor"] = 0.25
        parts = {"air": (("time", "lat"), np.ones((2, 3))), "area": ("lat", np.array([1.0, 2.0, 3.0]))}
        made = xr.Dataset(parts, {"time": [2 * day, 2 * day + 1], "height": ("lat", lat)})
        made.to_netcdf(tmp_path / f"{day}.nc", engine="h5netcdf", encoding=encoding)
    paths = sorted(tmp_path.glob("*.nc"))
    if change == "nothing":
        store = ooc.open_files(paths, concat_dim="time")
        np.testing.assert_array_equal(ooc.open_group(store)["height"][:], [1.0, np.nan, 3.0])
        return
    with pytest.raises(UnsupportedError, match=r"(height|area) has other values in .*2.nc than in .*0.nc"):
        ooc.open_group(ooc.open_files(paths, concat_dim="time"))["area"][:]
