"""NetCDF-3 files, written by scipy (and one of 64-bit data by netCDF4), against xarray's own reader of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import NotFoundError, OocError

xr = pytest.importorskip("xarray")
pytest.importorskip("scipy")
import oocarrays.xarray  # noqa: E402
from tests.pairs import pairs  # noqa: E402
from tests.seams import set_constants  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
    pytest.mark.filterwarnings("ignore:The data type"),
]
HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}
FORMATS = ["NETCDF3_CLASSIC", "NETCDF3_64BIT"]


def weather(times: int, first: int = 0, lat: int = 5, lon: int = 7) -> Any:
    rng = np.random.default_rng(first)
    air = (rng.random((times, lat, lon)) * 40 + 250).round(2)
    air[0, 1, 1] = np.nan
    return xr.Dataset(
        {
            "air": (("time", "lat", "lon"), air, {"units": "K"}),
            "wind": (("time", "lat"), rng.random((times, lat)).astype("f4")),
            "flag": (("time",), rng.integers(0, 9, times).astype("i1")),
            "land": (("lat", "lon"), np.arange(lat * lon, dtype="i4").reshape(lat, lon)),
            "level": ((), 7.5),
            "name": (("lat",), np.array([f"n{i}" for i in range(lat)])),
        },
        {"time": np.arange(first, first + times).astype("M8[D]").astype("M8[ns]"), "lat": np.arange(float(lat))},
        {"title": "a test", "numbers": np.array([1.5, 2.5])},
    )


PACKED = {
    "air": {"dtype": "i2", "scale_factor": np.float32(0.01), "add_offset": 273.15, "_FillValue": np.int16(-32768)}
}


def written(path: Path, ds: Any, format: str = FORMATS[0], endless: bool = True) -> Path:
    how = {"unlimited_dims": ["time"]} if endless else {}
    ds.to_netcdf(path, engine="scipy", format=format, encoding=PACKED, **how)
    return path


@pytest.mark.parametrize(*pairs(format=FORMATS, times=[1, 12], endless=[True, False]))
def test_values_types_and_names_are_those_of_scipy(tmp_path: Path, format: str, endless: bool, times: int) -> None:
    path = written(tmp_path / "a.nc", weather(times), format, endless)
    expected, found = (xr.open_dataset(path, engine=engine) for engine in ("scipy", "oocarrays"))
    xr.testing.assert_identical(found.load(), expected.load())
    for name in expected.variables:
        assert found[name].dtype == expected[name].dtype
    assert found.encoding.get("unlimited_dims", set()) == expected.encoding["unlimited_dims"]
    raw = xr.open_dataset(path, engine="scipy", decode_cf=False).load()
    for name in ("air", "wind", "flag", "land", "time"):
        array = ooc.open_array(f"{path}/{name}")
        np.testing.assert_array_equal(array[...], raw[name].values)
        assert array.dtype == raw[name].dtype
        if array.ndim == 3:
            for key in (np.s_[3:9:2, 1:, ::-1], np.s_[-1], np.s_[:, 2, 3], np.s_[0:0]):
                np.testing.assert_array_equal(array[key], raw[name].values[key])


@pytest.mark.parametrize("row", [1, 10**9], ids=["mapped", "made"])
def test_records_are_read_as_bytes_of_the_file_or_taken_out_of_it(
    tmp_path: Path, row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "a.nc", weather(30))
    set_constants(monkeypatch, record_row_bytes=row, record_read_bytes=700)
    expected = xr.open_dataset(path, engine="scipy", decode_cf=False)
    for name in ("air", "wind", "flag"):
        np.testing.assert_array_equal(ooc.open_array(f"{path}/{name}")[...], expected[name].values)


def test_one_record_variable_alone_is_not_padded(tmp_path: Path) -> None:
    """The format says so: records of three bytes follow one another without a gap."""
    ds = xr.Dataset({"a": (("time", "x"), np.arange(21, dtype="i1").reshape(7, 3))})
    ds.to_netcdf(tmp_path / "a.nc", engine="scipy", unlimited_dims=["time"])
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "a.nc/a")[...], ds.a.values)


def test_files_of_64_bit_data(tmp_path: Path) -> None:
    path = Path(__file__).parents[1] / "data" / "netcdf3_64bit_data.nc"
    with xr.open_dataset(path, engine="oocarrays", decode_times=False) as found:
        np.testing.assert_array_equal(found.air.values, np.arange(12).reshape(4, 3) * 3.0)
        assert found.air.dtype == "f4"
        assert found.byte.values.tolist() == [1, 200, 255]
        assert found.attrs == {"title": "cdf5"}
    times = ooc.open_array(f"{path}/time")
    assert times.dtype == "i8"
    assert times[...].tolist() == [2**40 + i for i in range(4)]


def test_files_are_joined_along_their_records_and_rechunked(tmp_path: Path) -> None:
    paths = [written(tmp_path / f"day-{first:02}.nc", weather(12, first)) for first in (0, 12, 24)]
    each = [xr.open_dataset(path, engine="scipy") for path in paths]  # whose writer puts a scalar over a record
    expected = xr.concat(each, "time", data_vars="minimal")
    ooc.rechunk(f"{tmp_path}/day-*.nc/wind", tmp_path / "wind.zarr", chunks=(36, 2), **HERE).run()
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "wind.zarr")[...], expected.wind.values)
    found = xr.open_dataset(ooc.open_files(f"{tmp_path}/day-*.nc"), engine="oocarrays", drop_variables=["land"])
    xr.testing.assert_equal(found.air.load(), expected.air.load())


def test_the_command_line_reads_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a.nc", weather(12))
    assert main(["info", str(path)]) == 0
    assert "12 × 5 × 7" in capsys.readouterr().out
    target = tmp_path / "air.zarr"
    assert main(["rechunk", f"{path}/air", str(target), "--chunks", "12,2,2", "--memory", "64MiB"]) == 0
    expected = xr.open_dataset(path, engine="scipy", decode_cf=False).air.values
    np.testing.assert_array_equal(zarr.open_array(target)[...], expected)


@pytest.mark.parametrize("cut", [2, 7, 40, 200, -1, -100])
def test_a_file_that_is_cut_short_is_an_error_in_one_line(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path / "a.nc", weather(12).drop_vars("name"))
    data = path.read_bytes()
    path.write_bytes(data[:cut])
    with pytest.raises(OocError) as told:
        ooc.open_group(path)["air"][...]
    assert "\n" not in str(told.value)


def test_damaged_headers_are_one_line_or_another_header(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nc", weather(3).drop_vars("name"))
    data = path.read_bytes()
    for place in range(4, 400, 7):
        path.write_bytes(data[:place] + b"\xee" + data[place + 1 :])
        try:
            found = ooc.open_array(f"{path}/wind")[...]
        except OocError as error:
            lines = str(error).count("\n")
        else:
            lines = int(found.nbytes > len(data))
        assert not lines, place


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nc", weather(30))
    array = ooc.open_array(f"{path}/flag")
    shutil.copy(path, tmp_path / "copy.nc")
    path.write_bytes((tmp_path / "copy.nc").read_bytes()[:-2000])
    with pytest.raises(OocError):
        array[...]


def test_an_array_that_is_not_there(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nc", weather(3))
    with pytest.raises(NotFoundError, match=r"no Zarr array in .*a\.nc/none"):
        ooc.open_array(f"{path}/none")
