"""From maps to time series: how much warmer has one place become?

A climate model writes a map at every time step. Who asks about one place then reads every map. Here the maps are
written again as one series per pixel, in a budget of memory, and a single small chunk holds the answer.
"""

import tempfile
from pathlib import Path

import numpy as np
import zarr

import oocarrays as ooc

DATA = Path(__file__).parent / "data" / "air_temperature.npz"
PLACE, LATITUDE, LONGITUDE = "Toronto", 43.7, 360 - 79.4  # degrees north and east

if __name__ == "__main__":
    data = np.load(DATA)
    years = 1970 + data["time"] / (360 * 24)  # hours since 1970, in the model's calendar of 360 days a year
    with tempfile.TemporaryDirectory() as folder:
        maps = zarr.create_array(
            f"{folder}/maps.zarr",
            data=data["air_temperature"],
            chunks=(1, 37, 49),
            dimension_names=("time", "latitude", "longitude"),
            attributes={"units": "K", "long_name": "yearly surface air temperature"},
        )
        job = ooc.rechunk(maps, f"{folder}/series.zarr", chunks=(-1, 1, 1), memory="64MiB")
        print(job)
        job.run(progress=True)

        series = ooc.open_array(f"{folder}/series.zarr")
        print(series, series.dimension_names)
        row = abs(data["latitude"] - LATITUDE).argmin()
        column = abs(data["longitude"] - LONGITUDE).argmin()
        here = series[:, row, column]
        warming = here[-30:].mean() - here[:30].mean()
        print(
            f"{PLACE}: {warming:+.2f} {series.attrs['units']} from {years[0]:.0f}–{years[29]:.0f} "
            f"to {years[-30]:.0f}–{years[-1]:.0f}"
        )
