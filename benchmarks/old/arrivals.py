"""Redistributions over many ranks on four workers: one task a rank that takes what is there, or tasks for each step.

    python benchmarks/arrivals.py                                # 16 and 512 MiB over 8, 16 and 32 ranks
    python benchmarks/arrivals.py --mib 16 --ranks 64 --rounds 2
    python benchmarks/arrivals.py --figures                      # 3.7 and 3.10 to 3.14 of the thesis

Row slabs that are with ranks become column slabs, which stay with them: what `persist` takes. The first round warms up.
"""

from __future__ import annotations

import argparse
import statistics
import time

import machine
import numpy as np
from distributed import Client, LocalCluster, wait

import oocarrays as ooc

WAYS = {
    "arrivals": ("asynchronous", "auto"),
    "steps, auto": ("synchronous", "auto"),
    "steps, pex": ("synchronous", "pex"),
}
"""The assembly and the schedule of each way."""
FIGURES = (
    ("3.7", "cyclic", "block", tuple((ranks, 2**20) for ranks in (8, 16, 32))),
    ("3.10, 3.11", "cyclic(4)", "cyclic(2)", ((8, 2**20), (16, 2**20), (32, 2**20), (32, 2**16), (32, 2**24))),
    ("3.13, 3.14", "cyclic(2)", "cyclic(4)", ((8, 2**20), (16, 2**20), (32, 2**20), (32, 2**16), (32, 2**24))),
)
"""Layouts of 4-byte integers, and the ranks and elements of each measurement; the thesis went to 128 ranks."""


def main() -> None:
    """Run the benchmark as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, nargs="+", default=[16, 512])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--figures", action="store_true", help="the thesis's layouts, both assemblies")
    options = parser.parse_args()
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        print(machine.facts(None), flush=True)
        for number, before, after, points in FIGURES if options.figures else ():
            for ranks, n in points:
                said = assemblies(client, (before, after), ranks, n, options.rounds)
                print(f"{number}: {before} → {after}, {ranks} ranks, {n} elements: {said}", flush=True)
        for mib in () if options.figures else options.mib:
            for ranks in options.ranks:
                print(
                    f"{mib} MiB, {ranks} ranks: {', '.join(measured(client, mib, ranks, options.rounds))}", flush=True
                )


def measured(client: Client, mib: int, ranks: int, rounds: int) -> list[str]:
    """Return seconds and tasks of each way, medians of rounds in which they take turns."""
    n = int((mib * 2**20 / 8) ** 0.5)
    x = np.random.default_rng(0).random((n, n))
    held = ooc.distribute(x, "(block, *)", ranks=ranks, scheduler=client).persist()
    wait(list(held.__dask_graph__().values()))
    took = [{name: seconds(held, *how) for name, how in WAYS.items()} for _ in range(rounds + 1)][1:]
    return [
        f"{name} {statistics.median(each[name][0] for each in took):.2f} s in {took[0][name][1]} tasks" for name in WAYS
    ]


def assemblies(client: Client, layouts: tuple[str, str], ranks: int, n: int, rounds: int) -> str:
    """Return seconds with what comes taken as it comes, and step by step; medians of rounds in turn."""
    held = ooc.distribute(np.arange(n, dtype="i4"), layouts[0], ranks=ranks, scheduler=client).persist()
    wait(list(held.__dask_graph__().values()))
    took: dict[str, list[float]] = {"asynchronous": [], "synchronous": []}
    for turn in range(rounds + 1):
        for assembly in took if turn % 2 else reversed(took):
            start = time.perf_counter()
            there = held.redistribute(layouts[1], assembly=assembly).persist()
            wait(list(there.__dask_graph__().values()))
            took[assembly] += [time.perf_counter() - start] if turn else []
    return ", ".join(f"{assembly} {statistics.median(each):.3f} s" for assembly, each in took.items())


def seconds(held: ooc.DistributedArray, assembly: str, schedule: str) -> tuple[float, int]:
    """Return what it takes until every rank has its column slab, and tasks."""
    asked = held.redistribute("(*, block)", schedule=schedule, assembly=assembly)
    tasks = len(asked.tasks.graph) - len(held.tasks.graph)
    start = time.perf_counter()
    there = asked.persist()
    wait(list(there.__dask_graph__().values()))
    return time.perf_counter() - start, tasks


if __name__ == "__main__":
    main()
