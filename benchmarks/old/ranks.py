"""One rechunk over more and more workers on one machine: ours by two phases, as the plan chooses, and Dask's two ways.

    python benchmarks/ranks.py                                        # 256 MiB over 4, 16, 32, 64 workers in a process
    python benchmarks/ranks.py --size 1GiB --workers 4,64 --rounds 3
    python benchmarks/ranks.py --processes --workers 4,8              # workers that are processes
    python benchmarks/ranks.py --shape 1506,721,1440 --source 1,721,1440 --target 1506,72,144 --workers 4   # dask#11162

Rows become columns, Zarr to Zarr, float32, no codec, in 64 chunks each; or what is asked for. Workers have one thread.
Each number of workers has one cluster, on which every way has been run once before; then all run in turn, and every
element of every run is checked. Tasks are what the scheduler gets.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import machine
import numpy as np
import zarr
from dask.utils import parse_bytes
from distributed import Client, KilledWorker, LocalCluster

import oocarrays as ooc

WAYS = ("two-phase", "auto", "p2p", "tasks")
QUIET = {
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.worker.profile.enabled": False,
    "distributed.comm.timeouts.connect": "60s",
}
"""What measures workers is no question here, and there would be as many of it as workers in one process."""


@dataclass(frozen=True, kw_only=True)
class Array:
    """What is rechunked."""

    shape: tuple[int, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of it."""
        return 4 * math.prod(self.shape)

    @property
    def rows(self) -> int:
        """Rows that are made, and looked at, at one time: 512 MiB of them."""
        return max(2**29 * self.shape[0] // self.nbytes, 1)


def square(nbytes: int) -> Array:
    """Return rows that become columns, 64 of each."""
    edge = int((nbytes / 4) ** 0.5) // 64 * 64
    return Array(shape=(edge, edge), source=(edge // 64, edge), target=(edge, edge // 64))


def numbers(array: Array, first: int, last: int) -> np.ndarray:
    """Return what is in some rows of the source: the numbers from 0 on."""
    row = math.prod(array.shape[1:])
    return np.arange(first * row, last * row, dtype="u4").reshape(-1, *array.shape[1:])


def make(array: Array, path: Path) -> None:
    """Make the source."""
    made = zarr.create_array(path, shape=array.shape, chunks=array.source, dtype="u4", compressors=None)
    for first in range(0, array.shape[0], array.rows):
        last = min(first + array.rows, array.shape[0])
        made[first:last] = numbers(array, first, last)


def check(array: Array, path: Path) -> None:
    """Compare every element."""
    made = zarr.open_array(path, mode="r")
    for first in range(0, array.shape[0], array.rows):
        last = min(first + array.rows, array.shape[0])
        assert np.array_equal(made[first:last], numbers(array, first, last)), f"{path}: rows from {first} on are wrong"


def ours(client: Client, array: Array, folder: Path, method: str) -> dict[str, Any]:
    """Rechunk by us; returns what it took and what was done."""
    start = time.perf_counter()
    job = ooc.rechunk(
        folder / "source.zarr", folder / "target.zarr", chunks=array.target, method=method, scheduler=client
    )
    job.run()
    seconds, plan = time.perf_counter() - start, job.plan
    how = f"{plan.strategy}, {plan.ranks} ranks, {sum(step.units for step in plan.passes)} partitions"
    return {"seconds": seconds, "tasks": plan.tasks, "how": how, "predicted": plan.seconds}


def dasks(client: Client, array: Array, folder: Path, method: str) -> dict[str, Any]:
    """Rechunk by Dask; the same."""
    start = time.perf_counter()
    target = zarr.create_array(
        folder / "target.zarr", shape=array.shape, chunks=array.target, dtype="u4", compressors=None
    )
    with dask.config.set({"array.rechunk.method": method}):
        asked = da.from_zarr(str(folder / "source.zarr")).rechunk(array.target)
        (stored,) = dask.optimize(da.store(asked, target, lock=False, compute=False))
        tasks = len(dict(stored.__dask_graph__()))
        stored.compute(scheduler=client)
    return {"seconds": time.perf_counter() - start, "tasks": tasks, "how": "", "predicted": None}


def run(way: str, client: Client, array: Array, folder: Path) -> dict[str, Any]:
    """Do one run, and check it."""
    shutil.rmtree(folder / "target.zarr", ignore_errors=True)
    move: Callable[..., dict[str, Any]] = dasks if way in ("p2p", "tasks") else ours
    try:
        found = {"way": way, **move(client, array, folder, way)}
    except (RuntimeError, OSError, KilledWorker) as error:  # it, too, is what came of it
        print(f"{way} failed: {type(error).__name__}: {error}"[:200], flush=True)
        return {"way": way, "seconds": math.nan, "tasks": 0, "how": "failed", "predicted": None}
    check(array, folder / "target.zarr")
    return found


def measured(workers: int, array: Array, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all ways in turn on one cluster; returns what each took."""
    with tempfile.TemporaryDirectory(dir=options.folder) as name, dask.config.set(QUIET):
        folder = Path(name)
        make(array, folder / "source.zarr")
        limit: Any = options.memory or 0
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=options.processes, memory_limit=limit,
                dashboard_address=None, local_directory=name,
            ) as cluster,
            Client(cluster) as client,
        ):  # fmt: skip
            client.wait_for_workers(workers)
            if options.calibrate:
                calibrate(client)
            for way in options.ways if options.warm else ():
                run(way, client, array, folder)
            found = []
            for number in range(options.rounds):
                turn = number % len(options.ways)
                found += [run(w, client, array, folder) for w in options.ways[turn:] + options.ways[:turn]]
    return [summed([each for each in found if each["way"] == way], workers) for way in options.ways]


def calibrate(client: Client) -> None:
    """Have plans know these workers."""
    from oocarrays.graphs.calibrate.machine import calibrate as calibrate_machine
    from oocarrays.graphs.calibrate.workers import calibrate_workers

    start = time.perf_counter()
    measured = calibrate_machine() | calibrate_workers(client)
    dask.config.set({f"oocarrays.cost.{name}": value for name, value in measured.items()})
    print(f"calibrated in {time.perf_counter() - start:.0f} s", flush=True)


def summed(runs: list[dict[str, Any]], workers: int) -> dict[str, Any]:
    """Return the median of some runs."""
    seconds = sorted(each["seconds"] for each in runs)
    return {**runs[0], "workers": workers, "seconds": statistics.median(seconds), "all": seconds}


def main() -> None:
    """Run the benchmark as the command line asks."""
    options = _parser().parse_args()
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    print(machine.facts(None), "load", *(f"{each:.1f}" for each in os.getloadavg()), flush=True)
    array = square(parse_bytes(options.size))
    if options.shape:
        array = Array(shape=options.shape, source=options.source, target=options.target)
    found = []
    for workers in options.workers:
        rows = measured(workers, array, options)
        found += rows
        for row in rows:
            times = ", ".join(f"{each:.2f}" for each in row["all"])
            said = f", predicted {row['predicted']:.2f} s; {row['how']}" if row["predicted"] else ""
            print(f"{workers:3} {row['way']:9} {row['seconds']:6.2f} s ({times}) {row['tasks']:6} tasks{said}")
        print(flush=True)
    print("load", *(f"{each:.1f}" for each in os.getloadavg()))
    if options.json:
        options.json.write_text(json.dumps({"machine": machine.facts(None), "found": found}, indent=1))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--size", default="256MiB", help="bytes of the array (default: %(default)s)")
    add("--shape", type=_numbers, help="of another array, with its chunks --source and --target")
    add("--source", type=_numbers)
    add("--target", type=_numbers)
    add("--workers", type=_numbers, default=(4, 16, 32, 64))
    add("--processes", action="store_true", help="workers are processes (default: all in this one)")
    add("--ways", type=lambda text: text.split(","), default=list(WAYS), help=f"default: {','.join(WAYS)}")
    add("--memory", help="limit of each worker (default: none)")
    add("--rounds", type=int, default=3)
    add("--cold", dest="warm", action="store_false", help="run nothing before")
    add("--calibrate", action="store_true", help="measure workers first")
    add("--folder", help="where arrays are (default: the system's for temporary files)")
    add("--json", type=Path, metavar="OUT", help="write every run to this file")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    main()
