"""Several files as one source: the axis that is guessed, new axes, the option of the command line, and the table."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile
import xarray as xr
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import InputError, UnsupportedError

pytestmark = pytest.mark.long

HERE: Any = {"memory": "64MiB", "scheduler": "threads"}


def month(number: int, **changed: Any) -> xr.Dataset:
    coords: dict[str, Any] = {"time": np.arange(4) + 4 * number, "lat": np.linspace(-1, 1, 3), "lon": np.arange(5.0)}
    values = np.random.default_rng(number).normal(size=(4, 3, 5))
    return xr.Dataset({"air": (("time", "lat", "lon"), values)}, coords | changed)


def months(folder: Path, engine: str = "h5netcdf", **changed: Any) -> str:
    for number in range(3):
        here = {name: values[number] for name, values in changed.items()}
        month(number, **here).to_netcdf(folder / f"era5_{number}.nc", engine=engine)  # type: ignore[call-overload]
    return f"{folder}/era5_*.nc"


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_the_axis_of_the_only_coordinate_that_differs_is_taken(tmp_path: Path, engine: str) -> None:
    wild = months(tmp_path, engine)
    made = ooc.rechunk(wild, tmp_path / "a.zarr", chunks={"air": (12, 1, 5)}, **HERE).run()
    with xr.open_mfdataset(wild, combine="by_coords", engine=engine) as expected:
        np.testing.assert_array_equal(made["air"][...], expected.air)
        np.testing.assert_array_equal(made["time"][...], expected.time)
        np.testing.assert_array_equal(made["lat"][...], expected.lat)


def test_an_axis_that_is_not_the_first_is_taken(tmp_path: Path) -> None:
    wild = months(tmp_path, time=[np.arange(4)] * 3, lat=[np.arange(3.0) + 3 * n for n in range(3)])
    with xr.open_mfdataset(wild, combine="by_coords", engine="h5netcdf") as expected:
        np.testing.assert_array_equal(ooc.open_array(f"{wild}:/air")[...], expected.air)


def test_where_none_or_two_differ_the_axis_is_asked_for(tmp_path: Path) -> None:
    wild = months(tmp_path, time=[np.arange(4)] * 3)
    with pytest.raises(InputError, match=r"3 files.*era5_0\.nc.*no single axis .* joined; name .*--concat-dim time"):
        ooc.open_group(wild)
    wild = months(tmp_path, lon=[np.arange(5.0) + n for n in range(3)])
    with pytest.raises(InputError, match=r"joined \(lon, time differ\); name one of theirs"):
        ooc.open_group(wild)


@pytest.mark.parametrize(
    "how", [{}, {"compression": "zlib", "tile": (16, 16)}, {"compression": "lzma"}, {"predictor": 2}]
)
def test_images_are_stacked_along_a_new_axis(tmp_path: Path, how: dict[str, Any]) -> None:
    how = {"compression": "zlib"} | how if "predictor" in how else how
    paths = [tmp_path / f"z{n}.tif" for n in range(3)]
    for n, path in enumerate(paths):
        image = np.random.default_rng(n).integers(0, 999, (40, 48)).astype("u2")
        tifffile.imwrite(path, image, byteorder=">" if n == 2 else "<", **how)
    expected = np.stack([tifffile.imread(path) for path in paths])
    stack = ooc.open_files(tmp_path / "z*.tif", concat_dim="z")
    array = ooc.open_array(stack)
    assert array.zarr.metadata.dimension_names == ("z", "y", "x")
    np.testing.assert_array_equal(array[...], expected)
    np.testing.assert_array_equal(zarr.open_array(pickle.loads(pickle.dumps(stack)), mode="r")[1:, 3], expected[1:, 3])
    made = ooc.rechunk(stack, tmp_path / "a.zarr", chunks=(3, 10, 12), **HERE).run()
    np.testing.assert_array_equal(made[...], expected)


def test_images_that_have_the_axis_are_joined_along_it(tmp_path: Path) -> None:
    for n in range(2):
        tifffile.imwrite(tmp_path / f"z{n}.tif", np.full((2, 8, 8), n, "u1"), metadata={"axes": "ZYX"}, ome=False)
    expected = np.concatenate([tifffile.imread(tmp_path / f"z{n}.tif") for n in range(2)])
    np.testing.assert_array_equal(ooc.open_array(ooc.open_files(tmp_path / "z*.tif", concat_dim="z"))[...], expected)


def test_images_of_two_shapes_are_refused_by_name(tmp_path: Path) -> None:
    for n in range(2):
        tifffile.imwrite(tmp_path / f"z{n}.tif", np.zeros((8, 8 + n), "u1"))
    with pytest.raises(UnsupportedError, match=r"the array has shape \(1, 8, 8\) in .*z0\.tif and \(1, 8, 9\) in"):
        ooc.open_array(ooc.open_files(tmp_path / "z*.tif", concat_dim="z"))


def test_scalars_become_the_coordinate_of_a_new_axis(tmp_path: Path) -> None:
    for n in range(3):
        data = month(n, time=np.arange(4)).rename(time="step").assign_coords(time=7 + n)
        how = {"air": {"chunksizes": (2, 3, 5), "zlib": True}}
        data.to_netcdf(tmp_path / f"{n}.nc", engine="h5netcdf", encoding=how)
    wild = f"{tmp_path}/*.nc"
    nested: Any = {"combine": "nested", "concat_dim": "time", "engine": "h5netcdf"}
    with xr.open_mfdataset(wild, **nested) as expected:
        source = ooc.open_files(wild, concat_dim="time")
        found = xr.open_dataset(source, engine="oocarrays", chunks=None)
        xr.testing.assert_equal(found.load(), expected.load())


@pytest.mark.parametrize("order", ["C", "F"])
def test_files_of_numpy_and_hdf5_are_stacked(tmp_path: Path, order: Any) -> None:
    arrays = [np.asarray(np.arange(12.0).reshape(3, 4) + n, order=order) for n in range(3)]
    for n, each in enumerate(arrays):
        np.save(tmp_path / f"{n}.npy", each)
        with h5py.File(tmp_path / f"{n}.h5", "w") as file:
            file["deep/x"] = each
    stack = np.stack([np.load(tmp_path / f"{n}.npy") for n in range(3)])
    np.testing.assert_array_equal(ooc.open_array(ooc.open_files(tmp_path / "*.npy", concat_dim="run"))[...], stack)
    np.testing.assert_array_equal(
        ooc.open_group(ooc.open_files(tmp_path / "*.h5", concat_dim="run"))["deep/x"][...], stack
    )


@pytest.mark.parametrize("number", [2, -1, "-1"])
def test_numbers_that_are_no_axis_are_refused(tmp_path: Path, number: Any) -> None:
    for n in range(2):
        np.save(tmp_path / f"{n}.npy", np.full((3, 4), n))
    np.testing.assert_array_equal(
        ooc.open_array(ooc.open_files(tmp_path / "*.npy", concat_dim=1))[0], [0, 0, 0, 0, 1, 1, 1, 1]
    )
    for name in ("*.npy", "0.npy"):
        with pytest.raises(InputError, match=f"concat_dim={number} is not among the 2 axes of .*0.npy.*'run', stacks"):
            ooc.open_files(tmp_path / name, concat_dim=number)
    with pytest.raises(InputError, match=r"concat_dim=1\.5 must be a whole number"):
        ooc.open_files(tmp_path / "*.npy", concat_dim=1.5)  # type: ignore[arg-type]


def test_the_table_of_files(tmp_path: Path) -> None:
    shown = repr(ooc.open_files(months(tmp_path))).splitlines()
    assert shown[0].split() == ["3", "files", f"{tmp_path}/era5_0.nc", "to", f"{tmp_path}/era5_2.nc"]
    assert shown[1].split() == ["joined", "along", "time"]
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in shown[2:]}
    assert rows == {"air": "(12, 3, 5) float64", "time": "(12,) int64", "lat": "(3,) float64", "lon": "(5,) float64"}
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((8, 9), "u1"))
    image = ooc.open_files(tmp_path / "a.tif")
    ooc.open_array(image)
    assert repr(image).split() == [
        "1",
        "file",
        f"{tmp_path}/a.tif",
        "array",
        "(8,",
        "9)",
        "uint8",
    ]
    assert "z, a new axis" in repr(ooc.open_files(tmp_path / "*.tif", concat_dim="z"))


COMMANDS = {
    "info": (["info"], []),
    "read": (["read"], ["0"]),
    "rechunk": (["rechunk"], ["t.zarr", "--chunks=1,3,5", "--memory=64MiB"]),
    "plan": (["plan"], ["t.zarr", "--chunks=1,3,5", "--sweep=workers=2", "--worker-memory=1GiB"]),
    "pyramid": (["pyramid"], ["t.zarr", "--memory=64MiB", "--levels=1"]),
    "compare": (["compare"], ["whole.zarr"]),
    "stripe": (["stripe"], ["disk-a", "disk-b", "--name=t.zarr"]),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_option_of_the_command_line(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("disk-a").mkdir()
    Path("disk-b").mkdir()
    months(tmp_path, time=[np.arange(4)] * 3)
    whole = np.concatenate([month(n).air.values for n in range(3)], axis=1)
    zarr.create_array("whole.zarr", data=whole, dimension_names=("time", "lat", "lon"))
    before, after = COMMANDS[command]
    lat_differs = [*before, "era5_*.nc:/air", *after]
    assert main(lat_differs) == 2
    assert "--concat-dim time" in capsys.readouterr().err
    assert main([*lat_differs, "--concat-dim", "lat"]) == 0, capsys.readouterr().err
    if command == "rechunk":
        np.testing.assert_array_equal(zarr.open_array("t.zarr", mode="r")[...], whole)
    if command == "stripe":
        np.testing.assert_array_equal(ooc.open_array("striped://disk-a,disk-b!t.zarr")[...], whole)
    if command == "info":
        assert "4 9 5" in " ".join(capsys.readouterr().out.replace("×", " ").replace(",", " ").split())


def test_one_file_has_no_axis_to_be_joined_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", f"{tmp_path}/a.nc", "--concat-dim", "time"]) == 2
    assert "has no wildcard" in capsys.readouterr().err


@pytest.mark.parametrize("block", [[], ["--block", "32"]])
@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_a_group_of_joined_files_is_laid_out_on_disks(tmp_path: Path, engine: str, block: list[str]) -> None:
    """All variables of the files, as xarray joins them, and chunks of both disks that are plain files."""
    disks = [tmp_path / name for name in ("disk-a", "disk-b")]
    for disk in disks:
        disk.mkdir()
    wild = months(tmp_path, engine, time=[np.arange(4)] * 3, lat=[np.arange(3.0) + 3 * n for n in range(3)])
    words = ["stripe", wild, *map(str, disks), "--name", "era5.zarr", "--concat-dim", "lat", *block]
    assert main(words) == 0
    made = ooc.open_group(f"striped://{disks[0]},{disks[1]}!era5.zarr")
    with xr.open_mfdataset(wild, combine="nested", concat_dim="lat", data_vars="minimal", engine=engine) as expected:  # type: ignore[arg-type]
        assert set(made) == set(expected.variables)
        for name, array in made.items():
            np.testing.assert_array_equal(array[...], expected[name])
    assert all(any((disk / "era5.zarr" / "air" / "c").rglob("*")) for disk in disks)


def test_chunks_of_hdf5_files_are_laid_out_as_they_are_stored(tmp_path: Path) -> None:
    data = np.arange(48, dtype="f4").reshape(2, 4, 6)
    disks = [tmp_path / name for name in ("disk-a", "disk-b")]
    for n, disk in enumerate(disks):
        disk.mkdir()
        with h5py.File(tmp_path / f"day{n}.h5", "w") as file:
            file.create_dataset("deep/x", data=data[n], chunks=(2, 6), compression="gzip", shuffle=True)
    words = ["stripe", f"{tmp_path}/day*.h5:/deep/x", *map(str, disks), "--name", "x.zarr", "--concat-dim", "run"]
    assert main(words) == 0
    np.testing.assert_array_equal(ooc.open_array(f"striped://{disks[0]},{disks[1]}!x.zarr")[...], data)
    with h5py.File(tmp_path / "day1.h5") as file:
        _, stored = file["deep/x"].id.read_direct_chunk((2, 0))
    copies = [path.read_bytes() for disk in disks for path in (disk / "x.zarr").rglob("c/1/1/0")]
    assert copies == [stored]


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["day*.nc", "disk"], "cannot be named 'day*.nc': give it a --name"),
        (["a.nc", "disk", "--concat-dim", "time"], "--concat-dim time: a.nc has no wildcard"),
        (["day*.nc", "disk", "--name", "a.zarr"], "no single axis along which they are joined"),
        (["--verify", "striped://disk!a.zarr", "--concat-dim", "time"], "takes a striped STORE alone"),
        (["--explain", "disk", "--concat-dim", "time"], "--explain measures disks"),
    ],
)
def test_what_stripe_cannot_join_is_said_in_a_line(
    tmp_path: Path, words: list[str], match: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("disk").mkdir()
    for name in ("a", "day1", "day2"):
        month(0).to_netcdf(f"{name}.nc", engine="h5netcdf")
    assert main(["stripe", *words]) == 2
    said = capsys.readouterr().err
    assert match in said
    assert said.count("\n") == 1
    assert list(Path("disk").iterdir()) == []
