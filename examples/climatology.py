"""A climatology and what departs from it: normals of thirty years, their spread, and each year's anomaly.

The maps are read once for all means, in a budget of memory; the anomalies are written slab by slab beside them.
Sums are float64 and compensated: the means are those of numpy in float64, whatever the memory and the ranks.
"""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import zarr

import oocarrays as ooc

DATA = Path(__file__).parent / "data" / "air_temperature.npz"
FIRST, NORMAL = 1860, 1950
"""The first year of all, and of the period from which years are said to depart."""


def anomaly(block: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """How far the years of a block depart from a normal."""
    return (block - normal).astype(block.dtype)


def main() -> None:
    """Make the normals and the anomalies out of core, and compare them with numpy's."""
    air = np.load(DATA)["air_temperature"]
    years = FIRST + np.arange(len(air))
    periods = FIRST + (years - FIRST) // 30 * 30  # a label a year
    with tempfile.TemporaryDirectory() as folder:
        maps = f"{folder}/maps.zarr"
        zarr.create_array(maps, data=air, chunks=(12, 37, 49), dimension_names=["year", "lat", "lon"])

        spread = ooc.reduce(maps, "std", axis=0, by=periods, memory="64MiB")
        job = ooc.reduce(maps, "mean", axis=0, by=periods, target=f"{folder}/normals.zarr", memory="64MiB")
        print(job.explain())
        normals = job.run()[...]

        normal = normals[np.unique(periods).tolist().index(NORMAL)]
        departure = partial(anomaly, normal=normal)
        ooc.map_slabs(departure, maps, f"{folder}/anomalies.zarr", memory="64MiB", window={0: "auto"}).run()
        departs = ooc.reduce(f"{folder}/anomalies.zarr", "mean", axis=(1, 2), memory="64MiB")

    for period, normal_map, spread_map in zip(np.unique(periods), normals, spread, strict=True):
        print(f"{period}–{period + 29}: {normal_map.mean():.2f} K, years apart by {spread_map.mean():.2f} K")
    warmest = years[departs.argmax()]
    print(f"the warmest year, {warmest}, is {departs.max():+.2f} K beside {NORMAL}–{NORMAL + 29}")
    wanted = [air[periods == each].mean(axis=0, dtype="f8") for each in np.unique(periods)]
    print(f"as numpy's: {np.allclose(normals, wanted, rtol=1e-12)}")


if __name__ == "__main__":
    main()
