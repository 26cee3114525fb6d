"""The exactness matrix: odd data sets, by every way in and out, are identical to what xarray makes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

xr = pytest.importorskip("xarray")
pytest.importorskip("h5netcdf")
pytest.importorskip("cftime")

import oocarrays as ooc  # noqa: E402
from oocarrays.errors import UnsupportedError  # noqa: E402
from oocarrays.xarray import open_dataset  # noqa: E402
from tests.odd_datasets import DATASETS  # noqa: E402

HERE: dict[str, Any] = {"scheduler": "threads", "memory": "64MiB"}
CHUNKS = {"time": -1, "lat": 2, "lon": 3}
"""Other chunks than any has."""


def asked(ds: Any) -> dict[str, int]:
    """Chunks along the dimensions that a data set has."""
    return {name: length for name, length in CHUNKS.items() if name in ds.dims}


def zarr_of(path: Path) -> Any:
    return xr.open_zarr(path, consolidated=False).load()


def stored(ds: Any, folder: Path, zarr_format: int = 3) -> Path:
    ds.to_zarr(folder / "a.zarr", zarr_format=zarr_format, consolidated=False)
    return folder / "a.zarr"


def netcdf(ds: Any, folder: Path) -> Path:
    try:
        ds.to_netcdf(folder / "a.nc", engine="h5netcdf")
    except ValueError as error:
        if "unsupported dtype" not in str(error):
            raise
        pytest.skip(f"this version of xarray writes no such file: {error}")  # of texts, with NumPy 2.4
    return folder / "a.nc"


def of_netcdf(path: Path) -> Any:
    return xr.open_dataset(path, engine="h5netcdf").load()


def group(ds: Any, folder: Path, zarr_format: int = 3) -> tuple[Any, Any]:
    source = stored(ds, folder, zarr_format)
    ooc.rechunk(source, folder / "b.zarr", chunks=asked(ds), **HERE).run()
    return zarr_of(folder / "b.zarr"), zarr_of(source)


def engine(ds: Any, folder: Path) -> tuple[Any, Any]:
    source = stored(ds, folder)
    return xr.open_dataset(source, engine="oocarrays").load(), zarr_of(source)


def blocks(ds: Any, folder: Path) -> tuple[Any, Any]:
    source = stored(ds, folder)
    return open_dataset(source, asked(ds)).load(), zarr_of(source)


def lazy(ds: Any, folder: Path) -> tuple[Any, Any]:
    expected = zarr_of(stored(ds, folder))
    ds.chunk().ooc.rechunk(asked(ds), folder / "b.zarr", **HERE).run()
    return zarr_of(folder / "b.zarr"), expected


def memory(ds: Any, folder: Path) -> tuple[Any, Any]:
    expected = zarr_of(stored(ds, folder))
    ds.ooc.rechunk(asked(ds), folder / "b.zarr", **HERE).run()
    return zarr_of(folder / "b.zarr"), expected


def file_by_engine(ds: Any, folder: Path) -> tuple[Any, Any]:
    source = netcdf(ds, folder)
    return xr.open_dataset(source, engine="oocarrays").load(), of_netcdf(source)


def file_rechunked(ds: Any, folder: Path) -> tuple[Any, Any]:
    source = netcdf(ds, folder)
    ooc.rechunk(source, folder / "b.zarr", chunks=asked(ds), **HERE).run()
    return zarr_of(folder / "b.zarr"), of_netcdf(source)


WAYS: dict[str, Callable[[Any, Path], tuple[Any, Any]]] = {
    "a group": group,
    "a group of format 2": lambda ds, folder: group(ds, folder, 2),
    "the engine": engine,
    "blocks": blocks,
    "a lazy data set": lazy,
    "a data set in memory": memory,
    "NetCDF by the engine": file_by_engine,
    "NetCDF, rechunked": file_rechunked,
}


REFUSED = {("texts", "a lazy data set")}
"""Elements of no fixed size, of which Dask knows nothing: one clear line."""


def kind_of(dtype: Any) -> Any:
    """What is compared of a type: texts of any length are stored as such, and read as xarray's version has them."""
    return "text" if dtype.kind in "OUT" else dtype


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning", "ignore::xarray.SerializationWarning")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", DATASETS)
def test_it_is_identical(tmp_path: Path, name: str, way: str) -> None:
    if (name, way) in REFUSED:
        with pytest.raises(UnsupportedError, match="no fixed size"):
            WAYS[way](DATASETS[name](), tmp_path)
        return
    found, expected = WAYS[way](DATASETS[name](), tmp_path)
    xr.testing.assert_identical(found, expected)
    for each in expected.variables:
        assert kind_of(found[each].dtype) == kind_of(expected[each].dtype)
        if expected[each].dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found[each]), np.signbit(expected[each]))


@pytest.mark.parametrize("packed", [False, True])
def test_stored_and_computed_variables_are_loaded_together(tmp_path: Path, packed: bool) -> None:
    source = stored(DATASETS["scaled"]().assign(raw=DATASETS["plain"]().air), tmp_path)
    found = open_dataset(source, CHUNKS, memory="64MiB", mask_and_scale=packed)
    found = found.assign(more=found.raw + 1)
    expected = xr.open_zarr(source, consolidated=False, mask_and_scale=packed)
    xr.testing.assert_identical(found.load(), expected.assign(more=expected.raw + 1).load())
