"""cubed on its fastest local executor, each task in its share of the budget, or in what cubed demands.

cubed's `allowed_mem` is for one task; there are as many tasks at once as cores. Where it refuses the share,
it gets half as much again until it accepts, and the note says how much that was. Intermediate arrays are
not compressed, as its documentation advises for local storage.
"""

from __future__ import annotations

import cubed
from case import MIB, Job
from data import target


def rechunk(job: Job) -> dict:
    """Plan, with more memory if the plan asks for it, then run."""
    made, allowed = target(job), job.memory // job.cores
    while True:
        try:
            _attempt(job, made, allowed)
            return {"note": f"{job.cores} × {allowed // MIB} MiB"}
        except ValueError as refusal:
            if "mem" not in str(refusal):
                raise
            allowed += allowed // 2


def _attempt(job: Job, made, allowed: int) -> None:
    spec = cubed.Spec(
        work_dir=job.scratch,
        allowed_mem=allowed,
        executor_name="threads",
        executor_options={"max_workers": job.cores},
        zarr_compressor=None,
    )
    array = cubed.from_zarr(job.source, spec=spec)
    cubed.to_zarr(cubed.rechunk(array, job.target_chunks), made)
