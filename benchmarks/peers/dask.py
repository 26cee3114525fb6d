"""Dask's own rechunk between Zarr arrays, on single-thread worker processes, as many as the job says or one a core.

The workers' limits add up to the budget; a budget of 0 sets none. A worker beyond its limit is killed by its nanny,
which is a result too. The cluster is watched, so that each worker's fate is known.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

import dask
import dask.array as da
from case import Job, within
from data import target
from distributed import Client, LocalCluster
from measure import WATCHED

from peers.watch import Watch

MODULES = ("zarr", "dask.array", "distributed.shuffle")
"""What every worker imports before the clock starts."""
QUIET = {
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.worker.profile.enabled": False,
    "distributed.comm.timeouts.connect": "60s",
}
"""Settings of workers that are threads of one process, which would otherwise be measured by each of them."""


@contextmanager
def cluster(job: Job, *modules: str) -> Iterator[Client]:
    """A client of a watched cluster whose workers have imported what they need; threads where `processes` is false."""
    number, processes = job.workers or job.cores, job.params.get("processes", True)
    with (
        dask.config.set({} if processes else QUIET),
        LocalCluster(
            n_workers=number,
            threads_per_worker=1,
            processes=processes,
            memory_limit=job.memory // number if processes else 0,
            local_directory=job.scratch,
            dashboard_address=None,
        ) as made,
        Client(made) as client,
    ):
        client.wait_for_workers(number)
        for name in (*MODULES, *modules):
            client.run(importlib.import_module, name)
        if processes:
            client.register_plugin(Watch(os.path.join(os.path.dirname(job.target), WATCHED)))
        yield client


@within(cluster)
def rechunk(job: Job, client: Client) -> dict:
    """Source → rechunk → target by `method`, `tasks` or `p2p`."""
    made = target(job)
    with dask.config.set({"array.rechunk.method": job.method}):
        array = da.from_zarr(job.source).rechunk(job.target_chunks)
        stored = da.store(array, made, lock=False, compute=False)
        (stored,) = dask.optimize(stored)
        tasks = len(dict(stored.__dask_graph__()))
        stored.compute()
    return {"tasks": tasks}
