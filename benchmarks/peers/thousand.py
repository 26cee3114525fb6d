"""Plans for clusters that are too large to test on: seconds of plan and graph, tasks, bytes of the graph."""

from __future__ import annotations

import os
import pickle
import time

import zarr
from case import Job

import oocarrays as ooc
from oocarrays.plan.machine import spread

TASKS = 10
"""Most tasks for each rank and round."""

PROBLEMS = {
    "1.1 TB, 64 workers": ((2**18, 2**10, 2**10), (8, 2**10, 2**10), (2**18, 4, 8), 64, "8GiB"),
    "7.3 TB, 256 workers": ((1760 * 2**10, 2**10, 2**10), (8, 2**10, 2**10), (2**16, 16, 16), 256, "8GiB"),
    "65 TB, 1000 workers": ((15625 * 2**10, 2**10, 2**10), (8, 2**10, 2**10), (2**16, 16, 16), 1000, "64GiB"),
    "ERA5 (dask#11162), 64 workers": ((96432, 721, 1440), (1, 721, 1440), (8760, 72, 144), 64, "8GiB"),
    "14 million chunks (rechunker#147), 64 workers": ((14_000_000, 512, 512), (1, 512, 512), (512, 32, 32), 64, "8GiB"),
}
"""Name: shape, source and target chunks of float32, workers, and the memory of each."""


def plans(job: Job) -> dict:
    """Plan by `method` and make the graph; only metadata is written."""
    figures, numbers = {}, {}
    for name, (shape, source, target, workers, memory) in list(PROBLEMS.items())[: job.items]:
        path = os.path.join(job.scratch, "source")
        zarr.create_array(path, shape=shape, chunks=source, dtype="f4", compressors=None, overwrite=True)
        cluster = ooc.networks.planned_cluster(workers=workers, memory=memory, threads=2, storage="50GB")
        begun = time.perf_counter()
        work = ooc.rechunk(path, f"{path}.target", chunks=target, scheduler=cluster, method=job.method)
        planned, plan = time.perf_counter(), work.plan
        graph, _ = work._run.graph(spread(plan.ranks, [f"tcp://host-{n}:1" for n in range(workers)]))
        figures[f"{name}: plan"] = [planned - begun]
        figures[f"{name}: graph"] = [time.perf_counter() - planned]
        if not len(graph) <= TASKS * plan.ranks * _rounds(plan):
            raise ValueError(f"{len(graph)} tasks for {plan.ranks} ranks and {_rounds(plan)} rounds")
        numbers[f"{name}: tasks"] = len(graph)
        numbers[f"{name}: MB pickled"] = len(pickle.dumps(graph, protocol=5)) / 1e6
        numbers[f"{name}: predicted hours"] = plan.seconds / 3600
    return {"figures": figures, "numbers": numbers}


def _rounds(plan) -> int:
    return sum(-(-step.units // (1 if step.packed else step.ranks)) for step in plan.passes)
