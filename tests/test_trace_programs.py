"""Programs of xarray and Dask: the sections found in their graphs are those that a run asks for, each as often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import oocarrays as ooc
from tests.seams import constant, set_constants

T, Y, X = 48, 18, 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Store a data set as models write it, packed, and two plain arrays."""
    made = tmp_path_factory.mktemp("programs")
    rng = np.random.default_rng(1)
    time = xr.date_range("2001-01-01", periods=T, freq="10D")
    coords = {"time": time, "lat": np.linspace(-85, 85, Y), "lon": np.arange(X) * 12.0}
    air = xr.DataArray(rng.random((T, Y, X)) * 40, dims=("time", "lat", "lon"), coords=coords, name="air")
    rain = (air * 0 + rng.random((T, Y, X))).rename("rain")
    packed = {"air": {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -9999, "chunks": (8, 9, 30)}}
    data = xr.Dataset({"air": air, "rain": rain, "mask": air.isel(time=0, drop=True) > 20})
    data.to_zarr(made / "model.zarr", encoding={**packed, "rain": {"chunks": (16, 6, 15)}}, zarr_format=2)
    zarr.create_array(made / "image.zarr", data=rng.random((64, 40)), chunks=(16, 16))
    zarr.create_array(made / "stack.zarr", data=rng.random((12, 20, 20)), chunks=(1, 20, 20))
    return made


def model(folder: Path) -> xr.Dataset:
    return xr.open_zarr(folder / "model.zarr")


def image(folder: Path, **how: Any) -> da.Array:
    return da.from_zarr(zarr.open_array(folder / "image.zarr", mode="r"), **how)


def stack(folder: Path) -> da.Array:
    return da.from_array(zarr.open_array(folder / "stack.zarr", mode="r"), chunks=(3, 20, 10))


def overlapped(folder: Path) -> Any:
    return image(folder).map_overlap(lambda block: block * 2, depth=3, boundary="reflect")


def anomalies(folder: Path) -> Any:
    months = model(folder).air.groupby("time.month")
    return months - months.mean("time")


def applied(folder: Path) -> Any:
    return xr.apply_ufunc(
        lambda block: np.sort(block, axis=-1)[..., -3:],
        model(folder).air.chunk(time=-1),
        input_core_dims=[["time"]],
        output_core_dims=[["top"]],
        dask="parallelized",
        dask_gufunc_kwargs={"output_sizes": {"top": 3}},
        output_dtypes=[float],
    )


def delayed(folder: Path) -> Any:
    return dask.delayed(np.linalg.norm)(image(folder)[:10, :10])


def bounded(folder: Path) -> Any:
    air = model(folder).air
    return air.sel(lat=slice(-40, 40), time="2001").weighted(np.cos(np.deg2rad(air.lat))).mean(("lat", "lon"))


PROGRAMS: dict[str, Callable[[Path], Any]] = {
    "the whole of it": lambda f: image(f),
    "elementwise": lambda f: (image(f) + 1) * image(f) ** 2,
    "a slice": lambda f: image(f)[5:30, 3:9],
    "each third": lambda f: image(f)[::3, 1::5],
    "backwards": lambda f: image(f)[::-1, 3],
    "a slice of a slice": lambda f: image(f)[4:50][3:20, ::2][1:],
    "a list of rows": lambda f: image(f)[[50, 2, 17, 3]],
    "a mean": lambda f: image(f).mean(axis=0),
    "a sum of both halves": lambda f: image(f)[:32] + image(f)[32:],
    "transposed products": lambda f: image(f).T @ image(f),
    "einsum": lambda f: da.einsum("ij,kj->ik", image(f), image(f)[:9]),
    "tensordot": lambda f: da.tensordot(stack(f), stack(f), axes=((1, 2), (1, 2))),
    "map_overlap": overlapped,
    "coarsened": lambda f: da.coarsen(np.mean, image(f), {0: 2, 1: 2}),
    "rechunked": lambda f: image(f).rechunk((64, 5)).std(axis=0),
    "stacked": lambda f: da.stack([image(f)[:20], image(f, inline_array=True)[20:40]]).max(axis=0),
    "concatenated": lambda f: da.concatenate([image(f), image(f) * 2], axis=1).sum(),
    "reshaped": lambda f: stack(f).reshape(12, 400).var(axis=1),
    "other blocks": lambda f: da.from_zarr(zarr.open_array(f / "image.zarr", mode="r"), chunks=(20, 40)).sum(),
    "map_blocks": lambda f: stack(f).map_blocks(lambda block: block[:1], chunks=((1,) * 4, (20,), (10, 10))),
    "svd": lambda f: da.linalg.svd(image(f).rechunk((16, 40)))[1],
    "cumulated": lambda f: image(f).cumsum(axis=1)[:, -1],
    "percentiles": lambda f: da.percentile(image(f).ravel(), [5, 95]),
    "histogram": lambda f: da.histogram(stack(f), bins=5, range=(0, 1))[0],
    "delayed": delayed,
    "xarray: mean": lambda f: model(f).air.mean("time"),
    "xarray: isel": lambda f: model(f).rain.isel(time=slice(3, 40, 4), lat=7),
    "xarray: nearest": lambda f: model(f).air.sel(lat=31.0, lon=100.0, method="nearest"),
    "xarray: points": lambda f: model(f).air.isel(lat=xr.DataArray([1, 5, 9]), lon=xr.DataArray([3, 3, 8])),
    "xarray: groupby": lambda f: model(f).air.groupby("time.month").mean(),
    "xarray: anomalies": anomalies,
    "xarray: resample": lambda f: model(f).rain.resample(time="QS").sum(),
    "xarray: rolling": lambda f: model(f).air.rolling(time=5, center=True).mean(),
    "xarray: coarsen": lambda f: model(f).air.coarsen(lat=3, lon=5).max(),
    "xarray: weighted region": bounded,
    "xarray: apply_ufunc": applied,
    "xarray: where": lambda f: model(f).air.where(model(f).mask).mean(),
    "xarray: data set": lambda f: model(f).isel(time=slice(0, 9)).mean("lon"),
    "xarray: correlation": lambda f: xr.corr(model(f).air, model(f).rain, dim="time"),
    "xarray: quantile": lambda f: model(f).air.chunk(time=-1).quantile(0.9, "time"),
    "xarray: diff": lambda f: model(f).rain.diff("time").sum(("lat", "lon")),
    "xarray: interp": lambda f: model(f).air.chunk(lat=-1, lon=-1).interp(lat=[10.0, 20.0], lon=[7.0, 100.0]),
    "ours: lazy": lambda f: ooc.open_array(f / "image.zarr").to_dask(chunks=(8, 40))[3:60].mean(axis=0),
    "ours: in groups": lambda f: ooc.open_array(f / "stack.zarr").to_dask(chunks=(12, 5, 5)).max(axis=0),
}


def sections(trace: ooc.advise.Trace) -> dict[str, Counter[Any]]:
    """Return each array's sections, and how often each is read."""
    found: dict[str, Counter[Any]] = {}
    for access in trace.accesses:
        assert not access.writes
        found.setdefault(access.dataset, Counter()).update(access.sections())
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("most", [constant("traced_tasks"), 0], ids=["by Dask", "by layers"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_sections_in_the_graph_are_those_of_a_run(
    folder: Path, program: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constants(monkeypatch, traced_tasks=most)
    with dask.config.set(scheduler="synchronous"):
        asked = PROGRAMS[program](folder)
        found = ooc.advise.trace(asked)
        with ooc.advise.trace() as seen:
            dask.compute(asked)
    assert sections(found) == sections(seen.trace)
