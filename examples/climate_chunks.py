"""Which chunks should a climate data set have? Maps come in; series, a climatology and regional means go out.

A model writes maps. Of the programs that read them some want maps, others series of a few places. Each is run once and
traced; the advice weighs what they take; the data set is rewritten, and the same programs read it again.
"""

import tempfile
from pathlib import Path

import numpy as np
import xarray as xr

import oocarrays as ooc

DATA = Path(__file__).parent / "data" / "air_temperature.npz"
FINER = 6  # times as many latitudes and longitudes as there are
PROGRAMS = {
    "series": lambda air: air.sel(latitude=[43.7, 45.5], longitude=280.6, method="nearest").load(),
    "region": lambda air: air.isel(latitude=slice(60, 90), longitude=slice(150, 200)).mean(("latitude", "longitude")),
    "climatology": lambda air: air[-30:].mean("time"),
}
WEIGHTS = {"series": 50, "region": 10, "climatology": 1}  # how often each program is run


def made(path):
    """Write maps as the model has them, one a chunk."""
    data = np.load(DATA)
    air = data["air_temperature"].repeat(FINER, axis=1).repeat(FINER, axis=2)
    along = {"latitude": air.shape[1], "longitude": air.shape[2]}
    fine = {name: np.linspace(data[name][0], data[name][-1], n) for name, n in along.items()}
    maps = xr.Dataset({"air": (("time", *along), air)}, coords={"time": data["time"], **fine})
    maps.to_zarr(path, encoding={"air": {"chunks": (1, *along.values())}}, zarr_format=2)


def run(path):
    """Run every program once; returns what they find, a trace, and the chunks that all runs together ask for."""
    found, trace, chunks = {}, ooc.advise.Trace(), 0
    for name, program in PROGRAMS.items():
        store = ooc.advise.traced(path)
        with ooc.advise.trace(block=name, weight=WEIGHTS[name]) as seen:
            found[name] = program(xr.open_zarr(store, chunks=None).air)
        trace += seen
        chunks += WEIGHTS[name] * sum(each.tasks for each in store.trace().accesses if each.dataset.endswith("air"))
    return found, trace, chunks


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made(f"{folder}/maps.zarr")
        before, trace, asked = run(f"{folder}/maps.zarr")
        advice = trace.advise(memory="256MiB")
        print(str(advice).replace(f"{folder}/", ""))
        (advised,) = [each for each in advice.arrays if not each.kept]
        ooc.rechunk(f"{folder}/maps.zarr", f"{folder}/advised.zarr", chunks={"air": advised.chunks}).run()
        after, _, now = run(f"{folder}/advised.zarr")
        same = all(np.allclose(before[name], after[name]) for name in PROGRAMS)
        print(f"chunks read: {asked} before, {now} after; the same is found: {same}")
