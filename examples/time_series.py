"""From maps to time series: how much warmer has one place become?

A climate model writes a map at every time step. Who asks about one place then reads every map. Here the maps are
written again in chunks of all years of a few places, in a budget of memory, and a single chunk holds the answer.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import zarr

import oocarrays as ooc

DATA = Path(__file__).parent / "data" / "air_temperature.npz"
PLACE, LATITUDE, LONGITUDE = "Toronto", 43.7, 360 - 79.4  # degrees north and east


def asked(array: ooc.OutOfCoreArray, row: int, column: int) -> tuple[np.ndarray, float]:
    """Return the series of one place, and the milliseconds that it takes, the least of five."""
    took = []
    for _ in range(5):
        start = time.perf_counter()
        here = array[:, row, column]
        took.append(1e3 * (time.perf_counter() - start))
    return here, min(took)


if __name__ == "__main__":
    data = np.load(DATA)
    years = 1970 + data["time"] / (360 * 24)  # hours since 1970, in the model's calendar of 360 days a year
    row = abs(data["latitude"] - LATITUDE).argmin()
    column = abs(data["longitude"] - LONGITUDE).argmin()
    with tempfile.TemporaryDirectory() as folder:
        zarr.create_array(
            f"{folder}/maps.zarr",
            data=data["air_temperature"],
            chunks=(1, 37, 49),
            dimension_names=("time", "latitude", "longitude"),
            attributes={"units": "K", "long_name": "yearly surface air temperature"},
        )
        maps = ooc.open_array(f"{folder}/maps.zarr")
        job = ooc.rechunk(maps, f"{folder}/series.zarr", chunks=(-1, 10, 10), memory="64MiB")  # 94 KiB a chunk
        print(job)
        series = job.run(progress=True)

        print(series, series.dimension_names)
        here, before = asked(maps, row, column)
        same, after = asked(series, row, column)
        print(f"{PLACE} from {before:.1f} ms to {after:.2f} ms; the same: {np.array_equal(here, same)}")
        warming = same[-30:].mean() - same[:30].mean()
        print(
            f"{PLACE}: {warming:+.2f} {series.attrs['units']} from {years[0]:.0f}–{years[29]:.0f} "
            f"to {years[-30]:.0f}–{years[-1]:.0f}"
        )
