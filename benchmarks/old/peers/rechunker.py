"""rechunker, in an environment of its own (zarr < 3), on Dask's threads; its memory is for one task."""

from __future__ import annotations

import os

import dask
import numcodecs
import zarr
from cases import Job
from rechunker import rechunk

CODECS = {
    "none": None,
    "zstd": numcodecs.Zstd(level=0),
    "blosc": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE),
}


def run(job: Job) -> dict:
    """Plan and run; the intermediate array is not compressed, for that is faster on a local disk."""
    executor = job.variant or "dask"
    plan = rechunk(
        zarr.open(job.source, mode="r"),
        job.target_chunks,
        job.memory // job.cores,
        job.target,
        temp_store=os.path.join(job.scratch, "intermediate"),
        target_options={"compressor": CODECS[job.codec]},
        temp_options={"compressor": None},
        executor=executor,
    )
    with dask.config.set(scheduler="threads", num_workers=job.cores):
        plan.execute()
    return {"note": executor}
