"""The engine on files of NetCDF-4 and on groups, held against xarray's own engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocarrays as ooc
from oocarrays.errors import InputError, NotFoundError

xr = pytest.importorskip("xarray")
h5py = pytest.importorskip("h5py")
pytest.importorskip("h5netcdf")
from oocarrays.xarray import open_dataset  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
    pytest.mark.filterwarnings("ignore:The data type .NullTerminatedBytes"),
]
KEPT = ("zlib", "complevel", "shuffle", "fletcher32", "contiguous", "chunksizes", "preferred_chunks", "dtype")
KEPT += ("_FillValue", "missing_value", "scale_factor", "add_offset", "units", "calendar")


def packed(scale: Any, offset: Any) -> dict[str, Any]:
    how = {
        "dtype": "i2",
        "scale_factor": scale,
        "_FillValue": np.int16(-1),
        "zlib": True,
        "complevel": 4,
        "shuffle": True,
    }
    return how | ({} if offset is None else {"add_offset": offset}) | {"chunksizes": (10, 4)}


@pytest.fixture
def weather(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    air = rng.random((30, 4)).round(2)
    air[3, 1] = np.nan
    ds = xr.Dataset(
        {
            "single": (("time", "x"), air, {"units": "K"}),
            "double": (("time", "x"), air),
            "offset": (("time", "x"), air),
            "plain": (("time", "x"), air.astype("f4")),
            "station": ("x", np.array(["a", "bb", "", "d"], dtype=object)),
            "code": ("x", np.array([b"a", b"bb", b"ccc", b"d"])),
        },
        {"time": np.arange("2000-01-01", "2000-01-31", dtype="M8[D]").astype("M8[ns]"), "x": np.arange(4.0)},
        {"title": "a test"},
    )
    encoding = {
        "single": packed(np.float32(0.01), None),
        "double": packed(np.float64(0.01), None),
        "offset": packed(np.float32(0.01), np.float32(1.5)),
        "station": {"dtype": str, "_FillValue": ""},
        "plain": {"fletcher32": True, "chunksizes": (30, 2)},
    }
    ds.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=encoding, unlimited_dims=["time"])
    return tmp_path / "a.nc"


def test_values_types_and_encodings_are_those_of_h5netcdf(weather: Path) -> None:
    expected, found = (xr.open_dataset(weather, engine=engine) for engine in ("h5netcdf", "oocarrays"))
    xr.testing.assert_identical(found.load(), expected.load())
    assert found.encoding["unlimited_dims"] == {"time"}
    for name in expected.variables:
        if name in ("station", "code"):
            continue
        assert found[name].dtype == expected[name].dtype, name
        for key in expected[name].encoding.keys() & KEPT:  # older versions of xarray tell less
            assert str(found[name].encoding.get(key)) == str(expected[name].encoding.get(key)), (name, key)
    raw, other = (xr.open_dataset(weather, engine=e, decode_cf=False) for e in ("h5netcdf", "oocarrays"))
    xr.testing.assert_equal(raw.single.load(), other.single.load())


def test_what_was_opened_is_written_as_it_was(weather: Path, tmp_path: Path) -> None:
    found = xr.open_dataset(weather, engine="oocarrays").drop_vars(["station", "code"])
    found.to_netcdf(tmp_path / "again.nc", engine="h5netcdf")
    with h5py.File(tmp_path / "again.nc") as again, h5py.File(weather) as before:
        for name in ("single", "offset", "plain"):
            assert again[name].dtype == before[name].dtype
            assert (again[name].chunks, again[name].compression) == (before[name].chunks, before[name].compression)
            np.testing.assert_array_equal(again[name][:], before[name][:])
        assert again["single"].maxshape == (None, 4)
    found.to_zarr(tmp_path / "found.zarr", consolidated=False)
    expected = xr.open_dataset(weather, engine="h5netcdf").drop_vars(["station", "code"])
    expected.to_zarr(tmp_path / "expected.zarr", consolidated=False)
    one, other = (xr.open_zarr(tmp_path / name, consolidated=False) for name in ("found.zarr", "expected.zarr"))
    xr.testing.assert_identical(one.load(), other.load())


def test_a_variable_called_as_an_axis_that_is_not_its_coordinate(tmp_path: Path) -> None:
    """h5netcdf keeps it under another name: an axis `x` has no coordinate `x`, which is of two other axes."""
    import h5netcdf

    with h5netcdf.File(tmp_path / "a.nc", "w") as file:
        file.dimensions = {"x": 3, "y": 2}
        file.create_variable("x", ("y", "x"), "f4", data=np.arange(6).reshape(2, 3))
        file.create_variable("z", ("x",), "f4", data=np.arange(3))
    with xr.open_dataset(tmp_path / "a.nc", engine="oocarrays", decode_coords=False, drop_variables="x") as found:
        assert list(found) == ["z"]
    group = ooc.open_group(tmp_path / "a.nc")
    assert sorted(group) == ["x", "z"]
    np.testing.assert_array_equal(group["x"][:], np.arange(6).reshape(2, 3))


def test_hdf5_without_names_of_axes_opens(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"], file["b"], file["c"] = np.arange(6.0).reshape(2, 3), np.arange(3.0), np.arange(9.0).reshape(3, 3)
    found = xr.open_dataset(tmp_path / "a.h5", engine="oocarrays")
    with h5py.File(tmp_path / "a.h5") as file:
        for name in "abc":
            np.testing.assert_array_equal(found[name].values, file[name][...])
    assert found.a.dims[1] == found.b.dims[0]


# ---------------------------------------------------------------------------------------------------- groups


@pytest.fixture(params=["h5netcdf", "zarr 2", "zarr 3"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made = xr.DataTree.from_dict(
        {
            "/": xr.Dataset({"b": ("y", np.arange(5))}, attrs={"title": "root"}),
            "/fine": xr.Dataset({"a": (("t", "x"), np.arange(12.0).reshape(3, 4))}, {"x": np.arange(4.0)}),
            "/fine/deep": xr.Dataset({"c": ("z", np.arange(2))}),
            "/none": xr.Dataset(),
        }
    )
    if request.param == "h5netcdf":
        made.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
        return tmp_path / "a.nc"
    made.to_zarr(tmp_path / "a.zarr", zarr_format=int(request.param[-1]), consolidated=False)
    return tmp_path / "a.zarr"


def own(tree: Path) -> str:
    return "h5netcdf" if tree.suffix == ".nc" else "zarr"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("group", [None, "", "/", "fine", "/fine", "fine/deep", "/fine/deep/", "none"])
def test_a_group_is_the_one_that_is_named(tree: Path, group: str | None) -> None:
    how: dict[str, Any] = {"consolidated": False} if own(tree) == "zarr" else {}
    named = group and group.strip("/")
    expected = xr.open_dataset(tree, engine=own(tree), group=named or None, **how)
    xr.testing.assert_identical(xr.open_dataset(tree, engine="oocarrays", group=group).load(), expected.load())
    lazy = open_dataset(tree, {"x": 2}, group=group)
    xr.testing.assert_equal(lazy.load(), expected.load())


@pytest.mark.parametrize("group", ["coarse", "fine/a", "fine/deep/c", "deep"])
def test_a_group_that_is_not_there_is_an_error_that_lists_those_that_are(tree: Path, group: str) -> None:
    with pytest.raises(NotFoundError, match=rf"no group '{group}' in .*; its groups: .*'fine', 'fine/deep'"):
        xr.open_dataset(tree, engine="oocarrays", group=group)
    with pytest.raises(NotFoundError, match="no group"):
        open_dataset(tree, {}, group=group)


@pytest.mark.parametrize(("group", "names"), [(None, {"/", "/fine", "/fine/deep", "/none"}), ("fine", {".", "deep"})])
def test_trees_are_those_of_xarray(tree: Path, group: str | None, names: set[str]) -> None:
    how: dict[str, Any] = {"consolidated": False} if own(tree) == "zarr" else {}
    expected = xr.open_datatree(tree, engine=own(tree), **how)
    found = xr.open_datatree(tree, engine="oocarrays", group=group)
    below = expected[group] if group else expected
    assert len(list(found.subtree)) == len(names)
    for node in below.subtree:
        path = node.path.removeprefix(below.path).strip("/")
        one, other = (each.to_dataset(inherit=False).load() for each in (found[path] if path else found, node))
        xr.testing.assert_identical(one, other)
    assert xr.open_groups(tree, engine="oocarrays", group=group).keys() == names


@pytest.mark.parametrize("option", ["consolidated", "mode", "store", "phony_dims", "backend_arg"])
def test_options_that_are_not_used_are_refused(tree: Path, option: str) -> None:
    with pytest.raises(InputError, match=f"{option}= is not an option of engine='oocarrays'"):
        xr.open_dataset(tree, engine="oocarrays", **{option: True})
    with pytest.raises(InputError, match=f"{option}= is not an option"):
        open_dataset(tree, {}, **{option: True})
