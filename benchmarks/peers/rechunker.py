"""rechunker, in an environment of its own (zarr < 3), on Dask's threads; its memory is for one task."""

from __future__ import annotations

import os

import dask
import numcodecs
import zarr
from case import Job
from rechunker import rechunk as planned

CODECS = {
    "none": None,
    "zstd": numcodecs.Zstd(level=0),
    "blosc": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE),
}


def rechunk(job: Job) -> dict:
    """Plan and run; the intermediate array is not compressed, for that is faster on a local disk."""
    plan = planned(
        zarr.open(job.source, mode="r"),
        job.target_chunks,
        job.memory // job.cores,
        job.target,
        temp_store=os.path.join(job.scratch, "intermediate"),
        target_options={"compressor": CODECS[job.codec]},
        temp_options={"compressor": None},
        executor="dask",
    )
    with dask.config.set(scheduler="threads", num_workers=job.cores):
        plan.execute()
    return {}
