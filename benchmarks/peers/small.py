"""Small things that pages tell of: fifty series of small maps, and calibration."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from case import Job

TIMES = 50
PLACE = {"lat": 43.7, "lon": 280.6}


def maps(path: str) -> None:
    """Store the maps of `examples/guide/chunks.md` as they come, and in the chunks that are advised."""
    import numpy as np
    import xarray as xr

    import oocarrays as ooc

    folder = Path(path)
    folder.mkdir(parents=True)
    axes = {"time": np.arange(240), "lat": np.linspace(-88, 88, 36), "lon": np.arange(0, 360, 7.5)}
    air = np.random.default_rng(0).normal(280, 10, (240, 36, 48)).astype("f4")
    data = xr.Dataset({"air": (tuple(axes), air)}, axes)
    data.to_zarr(folder / "maps.zarr", encoding={"air": {"chunks": (1, 36, 48)}}, consolidated=False)
    read = xr.open_zarr(folder / "maps.zarr", consolidated=False, chunks=None).air
    trace = ooc.advise.trace(maps=read, series=read.sel(PLACE, method="nearest"), weights=[1, TIMES])
    chunks = trace.advise(memory="64MiB").apply(folder / "air.zarr").run().chunks
    data.to_zarr(folder / "series.zarr", encoding={"air": {"chunks": chunks}}, consolidated=False)


def series(job: Job) -> dict:
    """Read the series of one place through xarray, fifty times, by way of both."""
    import numpy as np
    import xarray as xr

    figures, found = {}, []
    for name, place in (("as stored", "maps.zarr"), ("in the chunks that are advised", "series.zarr")):
        air = xr.open_zarr(os.path.join(job.source, place), consolidated=False, chunks=None).air
        begun = time.perf_counter()
        for _ in range(job.items):
            found.append(air.sel(PLACE, method="nearest").load().values)
        figures[f"{job.items} series of 240 maps, {name}"] = [time.perf_counter() - begun]
    if not all(np.array_equal(each, found[0]) for each in found):
        raise ValueError("series differ")
    return {"figures": figures}


def calibration(job: Job) -> dict:
    """`oocarrays calibrate`, and the same of a cluster of two workers, each in a process of its own."""
    from distributed import LocalCluster

    if not job.params.get("measured", True):
        return {}
    figures = {"`oocarrays calibrate`": [_calibrate(job)]}
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        seconds = _calibrate(job, "--scheduler", cluster.scheduler_address)
    return {"figures": figures | {"`oocarrays calibrate --scheduler`, 2 workers": [seconds]}}


def _calibrate(job: Job, *more: str) -> float:
    begun = time.perf_counter()
    command = [sys.executable, "-m", "oocarrays", "calibrate", "--store", job.scratch, *more]
    subprocess.run(command, env=os.environ | {"DASK_CONFIG": job.scratch}, check=True, capture_output=True)
    return time.perf_counter() - begun
