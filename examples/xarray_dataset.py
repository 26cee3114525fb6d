"""From a lazy xarray dataset to time series: how much warmer has each place become?

What is written is what xarray would write: coordinates, attributes, encodings. Only the chunks are others,
each block is computed once, and what is held beside the blocks stays in a budget.
"""

import tempfile
from pathlib import Path

import numpy as np
import xarray as xr

import oocarrays as ooc

DATA = Path(__file__).parent / "data" / "air_temperature.npz"

if __name__ == "__main__":
    data = np.load(DATA)
    years = (1970 + data["time"] / (360 * 24)).astype(
        int
    )  # hours since 1970, in the model's calendar of 360 days a year
    maps = xr.Dataset(
        {"air": (("year", "latitude", "longitude"), data["air_temperature"], {"units": "K"})},
        coords={"year": years, "latitude": data["latitude"], "longitude": data["longitude"]},
    ).chunk(year=7)
    warmer = maps - maps.isel(year=slice(30)).mean("year")  # nothing is computed yet
    warmer.air.encoding = {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -9999}  # written in two bytes each
    with tempfile.TemporaryDirectory() as folder:
        job = ooc.rechunk(warmer, f"{folder}/series.zarr", chunks={"year": -1, "latitude": 1}, memory="64MiB")
        print(job)
        series = job.run(progress=True)
        print(series)
        last = series.air.isel(year=slice(-30, None)).mean("year").compute()
        print(f"{float(last.mean()):+.2f} K on average, {float(last.max()):+.2f} K at most")
