"""Dask's own rechunk between Zarr arrays, on as many single-thread worker processes as there are cores.

The workers' limits add up to the budget. A worker beyond its limit is killed by its nanny: a result too.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

import dask
import dask.array as da
from cases import Job
from distributed import Client, LocalCluster

from peers import stores


@contextmanager
def workers(job: Job) -> Iterator[Client]:
    """A client of a cluster whose workers have imported what they need."""
    with (
        LocalCluster(
            n_workers=job.cores,
            threads_per_worker=1,
            processes=True,
            memory_limit=job.memory // job.cores,
            local_directory=job.scratch,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        for name in ("zarr", "dask.array", "distributed.shuffle"):
            client.run(importlib.import_module, name)
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
