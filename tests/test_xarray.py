"""xarray's door: the engine, ``.ooc`` of datasets and data arrays, packed values."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from scipy.ndimage import uniform_filter

import oocarrays as ooc
from oocarrays.errors import InputError, KernelError, NotFoundError, UnsupportedError

xr = pytest.importorskip("xarray")
from oocarrays.xarray import open_dataset, stored_in  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata")
THREADS = {"scheduler": "threads"}
PACKING = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768}


@pytest.fixture(params=[2, 3])
def stored(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Temperatures that are packed, a mask that is not, names, and times."""
    rng = np.random.default_rng(0)
    air = (rng.random((20, 12, 16)) * 40 + 250).round(2)
    air[3, 4, 5] = np.nan
    made = xr.Dataset(
        {
            "air": (("time", "lat", "lon"), air, {"units": "K"}),
            "land": (("lat", "lon"), rng.integers(0, 2, (12, 16)).astype("i4")),
        }
        | ({"station": (("lat",), np.array([f"s{i}" for i in range(12)]))} if request.param == 2 else {}),
        {"time": np.arange("2000-01-01", "2000-01-21", dtype="M8[D]").astype("M8[ns]"), "lat": np.arange(12.0)},
        {"title": "a test"},
    )
    encoding = {"air": PACKING | {"chunks": (5, 12, 16)}, "land": {"chunks": (5, 8)}}
    made.to_zarr(tmp_path / "maps.zarr", encoding=encoding, zarr_format=request.param, consolidated=False)
    return tmp_path / "maps.zarr"


def test_the_engine_gives_what_xarray_gives(stored: Path) -> None:
    expected = xr.open_zarr(stored, consolidated=False, chunks=None)
    with xr.open_dataset(stored, engine="oocarrays") as found:
        xr.testing.assert_identical(found, expected)
        assert found.air.encoding["scale_factor"] == 0.01
        raw = xr.open_dataset(stored, engine="oocarrays", mask_and_scale=False, decode_times=False)
        assert raw.air.dtype == "i2"


@pytest.mark.parametrize(
    "choose",
    [
        lambda x: x.isel(time=[3, 1], lat=slice(None, None, -3), lon=5),
        lambda x: x.sel(time="2000-01-04", lat=[4.0, 2.0]),
        lambda x: x.isel(time=xr.DataArray([0, 3, 19], dims="p"), lat=xr.DataArray([1, 4, 11], dims="p")),
        lambda x: x.isel(lon=xr.DataArray([[0, 3], [2, 2]], dims=("a", "b"))),
        lambda x: x.isel(time=slice(2, 9)).isel(lat=[1, 2]).isel(lon=slice(3, None, 2)),
        lambda x: x.where(x > 270).mean("time"),
        lambda x: x.transpose("lon", "time", "lat")[2:4],
        lambda x: x.isel(time=slice(0, 0)),
    ],
    ids=range(8),
)
def test_parts_are_those_of_xarray(stored: Path, choose: Any) -> None:
    expected = xr.open_zarr(stored, consolidated=False, chunks=None)
    found = xr.open_dataset(stored, engine="oocarrays")
    xr.testing.assert_identical(choose(found.air).load(), choose(expected.air).load())


def test_only_what_is_chosen_is_read(stored: Path) -> None:
    found = xr.open_dataset(stored, engine="oocarrays")
    with ooc.advise.metered() as meter:
        found.air.isel(time=slice(5, 10)).load()
    assert meter.decoded_bytes == 5 * 12 * 16 * 2


def test_blocks_of_any_shape_are_read_as_planned(stored: Path) -> None:
    found = open_dataset(stored, {"time": -1, "lat": 3}, memory="64MiB")
    assert found.air.chunks == ((20,), (3, 3, 3, 3), (16,))
    expected = xr.open_zarr(stored, consolidated=False, chunks=None)
    raw = open_dataset(stored, {"time": -1, "lat": 3}, memory="64MiB", mask_and_scale=False)
    with dask.config.set(scheduler="threads"):
        np.testing.assert_array_equal(found.air.values, expected.air.values)
        raw.air.compute()
    assert raw.air.data.meter.read_requests == raw.air.data.plan.read_requests


def test_files_that_are_not_zarr(tmp_path: Path) -> None:
    pytest.importorskip("h5netcdf")
    made = xr.Dataset(
        {"air": (("time", "lat"), np.arange(12.0).reshape(3, 4), {"units": "K"})}, {"lat": np.arange(4.0)}
    )
    made.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    xr.testing.assert_identical(xr.open_dataset(tmp_path / "a.nc", engine="oocarrays").load(), made)


def test_datasets_and_arrays_are_rechunked_by_dimension(stored: Path, tmp_path: Path) -> None:
    found = xr.open_dataset(stored, engine="oocarrays")
    found = found.drop_vars("station", errors="ignore")  # texts of a fixed length, of which format 3 says nothing
    target, chunks = tmp_path / "series.zarr", {"time": -1, "lat": 4, "lon": 4}
    made = found.ooc.rechunk(chunks, target, memory="64MiB", **THREADS).run()
    assert zarr.open_array(target / "air", mode="r").chunks == (20, 4, 4)
    xr.testing.assert_equal(made.load(), found.load())
    one = found.land.ooc.rechunk({"lat": 2}, tmp_path / "land.zarr", **THREADS).run()
    np.testing.assert_array_equal(one.values, found.land.values)


def smoothed(block: np.ndarray) -> np.ndarray:
    """A mean of nine neighbours, of each time; nearest beyond the edges."""
    return np.stack([uniform_filter(each, 3, mode="nearest") for each in block])


def test_a_kernel_is_given_decoded_values_and_its_results_are_packed(stored: Path, tmp_path: Path) -> None:
    air = xr.open_dataset(stored, engine="oocarrays").air
    target = tmp_path / "smooth.zarr"
    air.ooc.map_slabs(
        smoothed, target, depth={"lat": 1, "lon": 1}, boundary="nearest", window={"time": "auto"}, **THREADS
    ).run()
    z = zarr.open_array(target, mode="r")
    assert z.dtype == "i2"
    assert z.attrs["scale_factor"] == 0.01
    said = {name: value for name, value in z.attrs.items() if name != "_FillValue"}  # in format 2 it is Zarr's own
    made = xr.decode_cf(xr.Dataset({"air": (air.dims, z[...], said | {"_FillValue": -32768})})).air
    np.testing.assert_allclose(made.values, smoothed(air.values), atol=0.00501)
    assert np.isnan(made.values[3, 4, 5])
    land = xr.open_dataset(stored, engine="oocarrays").land
    land.ooc.map_slabs(np.negative, tmp_path / "sea.zarr", window={"lat": 4}, **THREADS).run()
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "sea.zarr")[:], -land.values)


def test_results_of_other_dimensions(stored: Path, tmp_path: Path) -> None:
    """Axes that go are named; what is packed is packed again; chunks are of dimensions that stay."""
    found = xr.open_dataset(stored, engine="oocarrays")
    how: dict[str, Any] = {"results": ooc.Results(drop_axis="time"), "depth": {"lat": 1}}
    target = ooc.Target(tmp_path / "most.zarr", chunks={"lat": 3})
    found.air.ooc.map_slabs(lambda block: np.nanmax(block, 0), target, **how, **THREADS).run()
    most = zarr.open_array(tmp_path / "most.zarr", mode="r")
    said = {name: value for name, value in most.attrs.items() if name != "_FillValue"}
    made = xr.decode_cf(xr.Dataset({"air": (("lat", "lon"), most[...], said | {"_FillValue": -32768})})).air
    np.testing.assert_allclose(made.values, np.nanmax(found.air.values, 0), atol=0.00501)
    assert most.chunks[0] == 3
    total = found.land.ooc.map_slabs(
        lambda block: block.sum((0, 1))[None],
        tmp_path / "sum.zarr",
        results=ooc.Results(drop_axis=["lat", "lon"], new_axis=0),
        **THREADS,
    ).run()
    np.testing.assert_array_equal(total[:], [found.land.values.sum()])


def test_values_that_cannot_be_packed_are_an_error(stored: Path, tmp_path: Path) -> None:
    air = xr.open_dataset(stored, engine="oocarrays").air
    with pytest.raises(KernelError, match="cannot be packed as int16"):
        air.ooc.map_slabs(lambda block: block * 10, tmp_path / "hot.zarr", **THREADS).run()
    with pytest.warns(UserWarning, match="is packed"):
        air.ooc.map_slabs(lambda block: block + 1, tmp_path / "raw.zarr", decode=False, **THREADS).run()


def test_means_by_dimension_and_by_month(stored: Path) -> None:
    found = xr.open_dataset(stored, engine="oocarrays")
    expected = xr.open_zarr(stored, consolidated=False, chunks=None).load()
    xr.testing.assert_allclose(found.air.ooc.reduce("mean", "time"), expected.air.mean("time"))
    xr.testing.assert_allclose(found.air.ooc.reduce("max", ["lat", "lon"]), expected.air.max(["lat", "lon"]))
    week = (expected.time.dt.day // 8).rename("week")
    weekly = expected.air.groupby(week).mean("time").transpose("week", "lat", "lon")
    xr.testing.assert_allclose(found.air.ooc.reduce("mean", "time", by=week), weekly)
    monthly = expected.air.groupby("time.month").max("time").transpose("month", "lat", "lon")
    xr.testing.assert_allclose(found.air.ooc.reduce("max", "time", by="time.month"), monthly)
    months = found.time.dt.strftime("%Y-%m")  # texts as objects
    by_text = found.air.ooc.reduce("max", "time", by=months)
    assert by_text.strftime.values.tolist() == sorted(set(months.values))
    np.testing.assert_array_equal(by_text.values, expected.air.groupby(months).max("time").values)
    for by in ("1MS", "foo", "time.foo", "foo.month"):
        with pytest.raises(InputError, match=rf"^by='{by}' is no coordinate \(.*time.*\) and no part of a time"):
            found.air.ooc.reduce("max", "time", by=by)
    land = expected.land > 0
    of_land = found.air.ooc.reduce("sum", ["lat", "lon"], where=land)
    xr.testing.assert_allclose(of_land, expected.air.where(land).sum(["lat", "lon"]))
    with pytest.raises(InputError, match="is not a dimension"):
        found.air.ooc.reduce("mean", "x")


def test_sections_by_dimension(stored: Path) -> None:
    land = xr.open_dataset(stored, engine="oocarrays", cache=False).land
    wanted = [{"lat": slice(0, 6)}, {"lat": slice(4, 9), "lon": [1, 3]}, None]
    first, second, third = land.ooc.sections(wanted, **THREADS).compute()
    np.testing.assert_array_equal(first, land.values[:6])
    np.testing.assert_array_equal(second, land.values[4:9][:, [1, 3]])
    assert third.size == 0
    parts = land.ooc.sections("(*, cyclic)", ranks=2, **THREADS)
    np.testing.assert_array_equal(parts.local(1).compute(), land.values[:, 1::2])


def test_wrong_input_is_one_line(stored: Path, tmp_path: Path) -> None:
    found, x = xr.open_dataset(stored, engine="oocarrays"), tmp_path / "x.zarr"
    wrong: list[tuple[Any, type[Exception], str]] = [
        (lambda: found.air.isel(time=0).ooc.stored, UnsupportedError, "is not a stored array"),
        (lambda: (found.air + 1).ooc.map_slabs(smoothed, x), UnsupportedError, "write it first"),
        (
            lambda: found.land.ooc.map_slabs(np.negative, x, depth={"time": 1}),
            InputError,
            "is not a dimension",
        ),
        (lambda: found.land.ooc.map_slabs(np.negative, x, window={"x": "auto"}), InputError, "'x' is not a dimension"),
        (
            lambda: found.land.ooc.map_slabs(np.negative, x, results=ooc.Results(drop_axis=["x"])),
            InputError,
            "'x' is not a dimension",
        ),
        (lambda: found.land.ooc.sections([{"x": 1}]), InputError, "which has lat, lon"),
        (lambda: xr.open_dataset(tmp_path / "none.zarr", engine="oocarrays"), NotFoundError, "none.zarr"),
    ]
    for work, error, words in wrong:
        with pytest.raises(error, match=words) as refused:
            work()
        assert "\n" not in str(refused.value)
    assert not x.exists()


def test_where_xarray_is_missing_it_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xarray", None)
    monkeypatch.delitem(sys.modules, "oocarrays.xarray")
    with pytest.raises(ModuleNotFoundError, match=r"^xarray is not installed: pip install 'oocarrays\[xarray\]'$"):
        importlib.import_module("oocarrays.xarray")


def test_sections_of_a_data_set_are_those_of_its_variables(stored: Path) -> None:
    ds = xr.open_dataset(stored, engine="oocarrays", mask_and_scale=False)
    wanted = [{"time": slice(0, 5)}, None, {"time": slice(3, 20, 4), "lat": slice(2, 4)}]
    found = ds.ooc.sections(wanted, scheduler="threads")
    assert set(found) == {name for name, each in ds.data_vars.items() if each.dtype.kind in "biuf"}
    for name, parts in found.items():
        for part, each in zip(parts.compute(scheduler="threads"), wanted, strict=True):
            known = {dim: key for dim, key in (each or {}).items() if dim in ds[name].dims}
            if each is not None:
                np.testing.assert_array_equal(part, ds[name].isel(known).values)
    with pytest.raises(InputError, match="'level' is not a dimension of the dataset, which has"):
        ds.ooc.sections([{"level": 1}])


def test_what_was_read_in_blocks_is_written_without_drop_encoding(stored: Path, tmp_path: Path) -> None:
    found = open_dataset(stored, {"time": 7, "lat": 5}, memory="64MiB")
    with dask.config.set(scheduler="threads"):
        kind = zarr.open_group(stored).metadata.zarr_format
        found.to_zarr(tmp_path / "again.zarr", consolidated=False, zarr_format=kind)
    again = xr.open_zarr(tmp_path / "again.zarr", consolidated=False)
    xr.testing.assert_identical(again.load(), xr.open_zarr(stored, consolidated=False).load())


def test_what_is_no_place_says_who_takes_it(tmp_path: Path) -> None:
    ds = xr.Dataset({"a": ("x", np.arange(4))})
    for each in (ds, ds.a):
        with pytest.raises(InputError, match=r"cannot hold an array: rechunk and \.ooc\.rechunk"):
            ooc.open_array(each)
    with pytest.raises(InputError, match="rechunk takes it as it is"):
        ooc.open_array(ds.chunk().a.data)
    (tmp_path / "a.grib").write_bytes(b"GRIB0000")
    with pytest.raises(
        NotFoundError, match=r"a\.grib has a format that is not read: GRIB; .*what xarray opens by rechunk"
    ):
        ooc.open_array(tmp_path / "a.grib")


def test_a_kernel_has_arguments_of_its_own_and_boundaries_by_dimension(tmp_path: Path) -> None:
    values = np.arange(12.0).reshape(3, 4)
    packed = {"air": {"scale_factor": 0.5, "dtype": "i2", "_FillValue": -1}}
    xr.Dataset({"air": (("time", "x"), values)}).to_zarr(tmp_path / "a.zarr", encoding=packed, consolidated=False)

    def moved(block: np.ndarray, by: int, block_info: Any) -> np.ndarray:
        assert block_info.shape == (3, 4)
        return np.roll(block, by, axis=1)

    air = xr.open_dataset(tmp_path / "a.zarr", engine="oocarrays").air
    how: dict[str, Any] = {"depth": {"x": 1}, "boundary": {"x": "periodic"}, "memory": "64MiB"}
    made = air.ooc.map_slabs(partial(moved, by=1), tmp_path / "b.zarr", scheduler="threads", **how).run()
    np.testing.assert_array_equal(0.5 * made[...], np.roll(values, 1, axis=1))


def test_planning_a_rechunk_loads_nothing(stored: Path, tmp_path: Path) -> None:
    found = xr.open_dataset(stored, engine="oocarrays", drop_variables="station")
    found.ooc.rechunk({"time": -1, "lat": 4, "lon": 4}, tmp_path / "series.zarr", memory="64MiB", **THREADS)
    assert not found.air.variable._in_memory
    assert stored_in(found.air.variable) is not None
