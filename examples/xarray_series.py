"""A dataset of xarray, from maps to time series, and back in xarray.

xarray writes a group with one Zarr array for each variable. Here its largest variable is written again in chunks that
hold whole time series, in a budget of memory, beside the coordinates; xarray opens the result as it opens any other.
"""

import tempfile
from pathlib import Path

import numpy as np
import xarray as xr

import oocarrays as ooc

DATA = Path(__file__).parent / "data" / "air_temperature.npz"

if __name__ == "__main__":
    data = np.load(DATA)
    axes = ("time", "latitude", "longitude")
    air = xr.DataArray(data["air_temperature"], {axis: data[axis] for axis in axes}, axes, attrs={"units": "K"})
    dataset = xr.Dataset({"air": air}, attrs={"title": "yearly surface air temperature"})
    options = {"zarr_format": 3, "consolidated": False}
    with tempfile.TemporaryDirectory() as folder:
        maps, series = f"{folder}/maps.zarr", f"{folder}/series.zarr"
        dataset.to_zarr(maps, encoding={"air": {"chunks": (1, 37, 49)}}, **options)

        dataset.drop_vars("air").to_zarr(series, **options)  # coordinates and attributes
        job = ooc.rechunk(f"{maps}/air", f"{series}/air", chunks=(-1, 1, 1), memory="64MiB")
        print(job)
        job.run(progress=True)

        with xr.open_zarr(series, consolidated=False) as opened:
            print(opened)
            xr.testing.assert_identical(opened.load(), dataset)
            here = opened["air"].sel(latitude=43.7, longitude=280.6, method="nearest")
            print(f"Toronto: {float(here[-30:].mean() - here[:30].mean()):+.2f} K in {len(here)} years")
