"""Targets and intermediate arrays for peers that write through zarr-python 3."""

from __future__ import annotations

import zarr
from cases import Job
from data import create


def source(job: Job) -> zarr.Array:
    """Return the array to read."""
    return zarr.open_array(job.source, mode="r")


def target(job: Job) -> zarr.Array:
    """Return the empty array to fill, with the job's chunks and codec."""
    return create(job.target, job, job.target_chunks)
