"""Dask's own rechunk between Zarr arrays, on single-thread worker processes: as the job says, or one a core.

The workers' limits add up to the budget; a budget of 0 sets none. A worker beyond its limit is killed by its
nanny: a result too. The cluster is watched, so that it can be told what befell each worker.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

import dask
import dask.array as da
from cases import Job
from distributed import Client, LocalCluster

from peers import WATCHED, stores
from peers.watch import Watch

MODULES = ("zarr", "dask.array", "distributed.shuffle")
"""What every worker imports before the clock starts."""


@contextmanager
def workers(job: Job, *modules: str) -> Iterator[Client]:
    """A client of a watched cluster whose workers have imported what they need."""
    number = job.workers or job.cores
    with (
        LocalCluster(
            n_workers=number,
            threads_per_worker=1,
            processes=True,
            memory_limit=job.memory // number,
            local_directory=job.scratch,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        for name in (*MODULES, *modules):
            client.run(importlib.import_module, name)
        client.register_plugin(Watch(os.path.join(os.path.dirname(job.target), WATCHED)))
        yield client


def rechunk(job: Job, method: str) -> dict:
    """Source → rechunk → target on the current client."""
    target = stores.target(job)
    with dask.config.set({"array.rechunk.method": method}):
        array = da.from_zarr(job.source).rechunk(job.target_chunks)
        stored = da.store(array, target, lock=False, compute=False)
        (stored,) = dask.optimize(stored)
        tasks = len(dict(stored.__dask_graph__()))
        stored.compute()
    return {"tasks": tasks}
