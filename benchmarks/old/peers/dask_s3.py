"""Dask's `from_zarr` → `rechunk` → `to_zarr` on S3, by threads of this process.

Empty variant: as many threads as Dask takes by itself. A number: so many threads, each of which waits for its own
request; that is the one setting that hides a distance.
"""

from __future__ import annotations

import dask
import dask.array as da
import zarr
from cases import Job
from data import create

from peers.s3_stores import open_store


def run(job: Job) -> dict:
    """Rechunk by Dask's tasks."""
    settings = {"num_workers": int(job.variant)} if job.variant else {}
    target = create(open_store(job.target), job, job.target_chunks)
    with dask.config.set(scheduler="threads", **settings):
        array = da.from_zarr(zarr.open_array(open_store(job.source), mode="r"))
        da.to_zarr(array.rechunk(job.target_chunks), target)
    return {"note": f"{job.variant or 'default'} threads"}
