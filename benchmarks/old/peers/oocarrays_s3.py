"""Ours on S3; the variant is a setting of `oocarrays.requests`."""

from __future__ import annotations

import dask
from cases import MIB, Job

import oocarrays as ooc
from peers.oocarrays import told


def run(job: Job) -> dict:
    """Plan and run."""
    settings = {"oocarrays.requests": int(job.variant)} if job.variant else {}
    with dask.config.set(settings):
        work = ooc.rechunk(job.source, job.target, chunks=job.target_chunks, memory=f"{job.memory // MIB}MiB")
        work.run()
    return told(work)
