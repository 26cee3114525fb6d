"""Clusters that are not there: how many tasks a plan has for them, and what a real scheduler makes of these.

    python benchmarks/thousand.py                            plans, their graphs, and a scheduler with simulated workers
    python benchmarks/thousand.py --cases 1.1TB,era5         some of them
    python benchmarks/thousand.py --simulate 7.3TB           with a scheduler, and workers lost on the way

The scheduler is Dask's, in a process of its own, with our plugins. Workers are simulated, all in this process: a task
is over as soon as it begins and data never travel, so the scheduler is asked as much as it can be. Its processor
seconds, over the seconds that the plan predicts, are the share of time in which it would be busy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import pickle
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import machine
import zarr
from distributed import Client
from distributed.utils import LoopRunner
from simulated import Simulated

import oocarrays as ooc
from oocarrays.graphs.cluster.pins import pin
from oocarrays.graphs.rechunk.graph import build_graph
from oocarrays.mapping.layouts.local import spread

QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.logging.distributed": "error",
    "distributed.scheduler.worker-ttl": None,
    "distributed.comm.timeouts.connect": "120s",
    "oocarrays.patience": "2s",
}
"""What measures workers has nothing to see here."""


FAILED = re.compile(r"ERROR|CRITICAL|^[\w.]*(Error|Exception|Impossible\w*)\b")
"""What a scheduler's log says where something went wrong: its own lines, and the last one of each traceback."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A rechunk that is too large for any machine of ours."""

    shape: tuple[int, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]
    workers: int
    memory: str = "8GiB"


CASES = {
    "1.1TB": Case(shape=(2**18, 2**10, 2**10), source=(8, 2**10, 2**10), target=(2**18, 4, 8), workers=64),
    "7.3TB": Case(shape=(1760 * 2**10, 2**10, 2**10), source=(8, 2**10, 2**10), target=(2**16, 16, 16), workers=256),
    "65TB": Case(
        shape=(15625 * 2**10, 2**10, 2**10),
        source=(8, 2**10, 2**10),
        target=(2**16, 16, 16),
        workers=1000,
        memory="64GiB",
    ),
    "7.3TB in 64GiB": Case(
        shape=(1760 * 2**10, 2**10, 2**10),
        source=(8, 2**10, 2**10),
        target=(2**16, 16, 16),
        workers=256,
        memory="64GiB",
    ),
    "era5": Case(shape=(96432, 721, 1440), source=(1, 721, 1440), target=(8760, 72, 144), workers=64),
    "14M chunks": Case(shape=(14_000_000, 512, 512), source=(1, 512, 512), target=(512, 32, 32), workers=64),
}
"""Float32, plain chunks; era5 is dask#11162, the last one as many chunks of 1 MB as rechunker#147 has."""


@contextmanager
def planned(case: Case, method: str) -> Iterator[tuple[Any, float]]:
    """A job that cannot be run, and the seconds of planning it; only metadata is written."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/source.zarr"
        zarr.create_array(path, shape=case.shape, chunks=case.source, dtype="f4", compressors=None)
        begun = time.perf_counter()
        cluster = ooc.Cluster(workers=case.workers, memory=case.memory, threads=2, storage="50GB")
        job = ooc.rechunk(path, f"{folder}/target.zarr", chunks=case.target, scheduler=cluster, method=method)
        yield job, time.perf_counter() - begun


def plan_row(name: str, method: str) -> dict[str, Any]:
    """Tasks of a plan, the seconds of making plan and graph, and the graph's bytes on its way to a scheduler."""
    case = CASES[name]
    with planned(case, method) as (job, planning):
        plan, begun = job.plan, time.perf_counter()
        graph, _ = build_graph(job._run, spread(plan.ranks, [f"tcp://host-{n}:1" for n in range(case.workers)]))
        building = time.perf_counter() - begun
        nbytes = len(pickle.dumps(graph, protocol=5))
        rounds = sum(-(-step.units // (1 if step.whole or step.packed else step.ranks)) for step in plan.passes)
        return {
            "case": name, "workers": case.workers, "asked": method, "strategy": plan.strategy, "ranks": plan.ranks,
            "tasks": len(graph), "tasks/(ranks x rounds)": len(graph) / (plan.ranks * rounds), "plan, s": planning,
            "graph, s": building, "graph, MB": nbytes / 1e6, "predicted, s": plan.seconds,
        }  # fmt: skip


@contextmanager
def scheduler() -> Iterator[tuple[str, Path]]:
    """A scheduler in a process of its own: its address, and what it says."""
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder, "scheduler.json"), Path(folder, "log")
        command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
        with log.open("w") as out:
            process = subprocess.Popen([*command, "--scheduler-file", str(file)], stdout=out, stderr=out)
        try:
            while not file.exists() or not file.read_text():
                time.sleep(0.1)
            yield json.loads(file.read_text())["address"], log
        finally:
            process.terminate()
            process.wait()


async def begin(address: str, count: int) -> list[Simulated]:
    """Begin workers, some at a time."""
    made: list[Simulated] = []
    while len(made) < count:
        some = [Simulated(address, f"w{len(made) + n}") for n in range(min(50, count - len(made)))]
        made += await asyncio.gather(*(each.begin() for each in some))
    return made


def simulate(name: str, method: str, lost: int) -> dict[str, Any]:
    """Run a plan's graph on a real scheduler with simulated workers, of which some are lost half-way."""
    case = CASES[name]
    with dask.config.set(QUIET), scheduler() as (address, log), planned(case, method) as (job, _):
        runner = LoopRunner()
        runner.start()
        workers = runner.run_sync(begin, address, case.workers)
        print(f"{case.workers} workers have begun", flush=True)
        with Client(address) as client:
            row = driven(client, job, workers, lost, runner)
        runner.run_sync(vanish, workers)
        said = [line for line in log.read_text().splitlines() if FAILED.search(line)]
        print(*dict.fromkeys(re.sub(r"[\d.:]+", "#", line)[:160] for line in said), sep="\n")
        return {"case": name, "workers": case.workers, "lost": lost, "errors": len(said), **row}


def driven(client: Client, job: Any, workers: list[Simulated], lost: int, runner: LoopRunner) -> dict[str, Any]:
    """Send a plan's graph, lose workers half-way, and wait for the end; returns what it took."""
    put = spread(job.plan.ranks, [worker.address for worker in workers])
    graph, last = build_graph(job._run, put)
    begun, before = time.perf_counter(), client.run_on_scheduler(time.process_time)
    pin(client, last[0].rpartition("-")[2], put, job._run.topic)
    pinned = time.perf_counter() - begun
    future = client.get({**graph}, last, sync=False)
    while not (done := sum(worker.done for worker in workers)) and not future.done():
        time.sleep(0.05)
    sent = time.perf_counter() - begun - pinned
    while lost and done < len(graph) // 2 and not future.done():
        time.sleep(0.1)
        done = sum(worker.done for worker in workers)
    runner.run_sync(vanish, workers[1 : lost + 1])
    while not future.done():
        time.sleep(0.2)
    busy = client.run_on_scheduler(time.process_time) - before
    return {
        "tasks": len(graph), "pinned, s": pinned, "sent, s": sent, "ended": future.status,
        "done": sum(worker.done for worker in workers), "seconds": time.perf_counter() - begun, "scheduler, s": busy,
        "ms/task": 1e3 * busy / len(graph), "predicted, s": job.plan.seconds, "busy": busy / job.plan.seconds,
    }  # fmt: skip


async def vanish(workers: list[Simulated]) -> None:
    """Have workers vanish."""
    for worker in workers:
        worker.vanish()


def table(rows: list[dict[str, Any]]) -> str:
    """Rows, one below the other."""
    lines = [list(rows[0])] + [[f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(word.rjust(width) for word, width in zip(line, widths, strict=True)) for line in lines)


def main() -> None:
    """Run the benchmark as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES), help="whose plans are counted (default: all)")
    parser.add_argument("--methods", default="auto,two-phase", help="(default: %(default)s)")
    parser.add_argument("--simulate", default="", help="whose graphs a scheduler gets, such as 7.3TB,65TB")
    parser.add_argument("--lost", type=int, default=0, help="workers that are lost half-way (default: %(default)s)")
    options = parser.parse_args()
    logging.getLogger("distributed").setLevel(logging.ERROR)
    print(machine.facts(None))
    rows = [
        plan_row(name, how) for name in filter(None, options.cases.split(",")) for how in options.methods.split(",")
    ]
    if rows:
        print(table(rows), flush=True)
        print(
            "most tasks:",
            max(row["tasks"] for row in rows),
            "median MB:",
            statistics.median(r["graph, MB"] for r in rows),
        )
    for name in filter(None, options.simulate.split(",")):
        print(table([simulate(name, options.methods.split(",")[0], options.lost)]), flush=True)


if __name__ == "__main__":
    main()
