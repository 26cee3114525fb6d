"""cubed: a `map_overlap` a sweep in one plan, on its local threads.

Its `map_overlap` adds a constant beyond the edges, so that the kernel puts the border back. Each task has its share of
the budget, or what cubed demands: the note says how much that was. Intermediate arrays are not compressed.
"""

from __future__ import annotations

from functools import reduce

import cubed
import numpy as np
import slab_kernels as kernels
from cases import MIB
from slab_cases import Job, create

__all__ = ["Job", "run"]


def run(job: Job) -> dict:
    """Plan, with more memory if the plan asks for it, then run."""
    target, allowed = create(job.target, job.case, job.chunks), job.memory // job.cores
    while True:
        try:
            _attempt(job, target, allowed)
            return {"note": f"{job.cores} × {allowed // MIB} MiB, chunks {job.chunks}"}
        except ValueError as refusal:
            if "mem" not in str(refusal):
                raise
            allowed += allowed // 2


def _attempt(job: Job, target, allowed: int) -> None:
    spec = cubed.Spec(
        work_dir=job.scratch,
        allowed_mem=allowed,
        executor_name="threads",
        executor_options={"max_workers": job.cores},
        zarr_compressor=None,
    )
    x = reduce(lambda grid, _: _sweep(grid), range(job.case.times), cubed.from_zarr(job.source, spec=spec))
    cubed.store([x], [target])


def _sweep(x):
    last = x.numblocks[0] - 1

    def kernel(block: np.ndarray, block_id: tuple[int, ...]) -> np.ndarray:
        result = kernels.sweep(block)[1:-1]
        if block_id[0] == 0:
            result[0] = block[1]
        if block_id[0] == last:
            result[-1] = block[-2]
        return result

    return cubed.map_overlap(kernel, x, dtype=x.dtype, chunks=x.chunks, depth={0: 1, 1: 0}, boundary={0: 0.0, 1: 0.0})
