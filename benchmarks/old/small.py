"""Seconds of small things that pages tell of: fifty series of small maps, as stored and as advised, and calibration.

    python benchmarks/small.py --rounds 3                     # prints the table
    python benchmarks/small.py --rounds 3 --store small       # keeps it as results/small.json

The maps are those of `examples/guide/chunks.md`, read through xarray, from the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median

import numpy as np
import results
import xarray as xr

import oocarrays as ooc

TIMES = 50
PLACE = {"lat": 43.7, "lon": 280.6}


def main() -> None:
    """Measure, print, and keep what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", help="name of the result to keep")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), options.rounds)
    print(results.table(found["tables"]["seconds"]), end="")
    if options.store:
        text = json.dumps(found, ensure_ascii=False, indent=1)
        (results.STORED / f"{options.store}.json").write_text(f"{text}\n", encoding="utf-8")


def measured(folder: Path, rounds: int) -> dict:
    """Return a result as `results/` keeps them."""
    today, advised = maps(folder)
    things: dict[str, Callable[[], object]] = {
        "50 series of 240 maps of 36 × 48, chunks of one map": lambda: series(today),
        "the same, in the chunks that are advised": lambda: series(advised),
        "`oocarrays calibrate`": lambda: calibrate(folder),
        "`oocarrays calibrate --scheduler` on a LocalCluster of 2 workers": lambda: calibrate_cluster(folder),
    }
    rows = []
    for name, thing in things.items():
        seconds = [timed(thing) for _ in range(rounds)]
        each = ", ".join(f"{second:.2g}" for second in seconds)
        rows.append([name, f"{median(seconds):.2g} s", each])
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    table = {"entered": date.today().isoformat(), "columns": ["what", "median", "each round, s"], "rows": rows}
    return {
        "how": "written by the run itself",
        "machine": f"{machine}; load {os.getloadavg()[0]:.1f} at the end",
        "commands": [f".venv/bin/python benchmarks/small.py --rounds {rounds} --store small"],
        "tables": {"seconds": table},
        "stated": [],
    }


def maps(folder: Path) -> tuple[Path, Path]:
    """Store small maps as they come and as is advised, and return where."""
    axes = {"time": np.arange(240), "lat": np.linspace(-88, 88, 36), "lon": np.arange(0, 360, 7.5)}
    air = np.random.default_rng(0).normal(280, 10, (240, 36, 48)).astype("f4")
    today, advised = folder / "maps.zarr", folder / "series.zarr"
    data = xr.Dataset({"air": (tuple(axes), air)}, axes)
    data.to_zarr(today, encoding={"air": {"chunks": (1, 36, 48)}}, consolidated=False)
    read = xr.open_zarr(today, consolidated=False, chunks=None).air
    trace = ooc.trace(maps=read, series=read.sel(PLACE, method="nearest"), weights=[1, TIMES])
    chunks = trace.advise(memory="64MiB").apply(folder / "air.zarr").run().chunks
    data.to_zarr(advised, encoding={"air": {"chunks": chunks}}, consolidated=False)
    return today, advised


def series(place: Path) -> None:
    """Read the series of one place, fifty times."""
    air = xr.open_zarr(place, consolidated=False, chunks=None).air
    for _ in range(TIMES):
        air.sel(PLACE, method="nearest").load()


def calibrate(folder: Path, *more: str) -> None:
    """Measure this machine, and keep the constants in the folder."""
    env = os.environ | {"DASK_CONFIG": str(folder)}
    subprocess.run([sys.executable, "-m", "oocarrays", "calibrate", *more], env=env, check=True, capture_output=True)


def calibrate_cluster(folder: Path) -> None:
    """Measure a cluster of two workers."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        calibrate(folder, "--scheduler", cluster.scheduler_address)


def timed(thing: Callable[[], object]) -> float:
    """Seconds that something takes."""
    start = time.perf_counter()
    thing()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
