"""A lazy array of column blocks over row slabs, summed: ours, and `da.from_zarr(chunks=…)`."""

from __future__ import annotations

import numpy as np
from case import Job


def ours(job: Job) -> dict:
    """`to_dask` in the case's memory."""
    import oocarrays as ooc

    x = ooc.open_array(job.source).to_dask((job.shape[0], job.width), memory=job.budget)
    return {"output": _sum(x), "note": x.plan.method, "plan": {"peak_bytes": x.plan.peak_bytes}}


def dask(job: Job) -> dict:
    """`da.from_zarr` in the same blocks."""
    import dask.array as da

    return {"output": _sum(da.from_zarr(job.source, chunks=(job.shape[0], job.width)))}


def _sum(x) -> np.ndarray:
    return x.sum(axis=0, dtype="f8").compute(scheduler="threads")


def check(job: Job) -> str:
    """Compare the sums of columns with those of the field."""
    from data import values

    wanted, step = np.zeros(job.shape[1]), max(job.shape[0] // 16, 1)
    for low in range(0, job.shape[0], step):
        part = slice(low, min(low + step, job.shape[0])), slice(0, job.shape[1])
        wanted += values(part).sum(axis=0, dtype="f8")
    made = np.load(f"{job.target}.npy")
    return "ok" if np.allclose(made, wanted, rtol=1e-6) else "WRONG VALUES"
