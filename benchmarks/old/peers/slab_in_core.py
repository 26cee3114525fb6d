"""The whole array in memory: read by Zarr, computed in numpy, numba, OpenCV or scipy, written by Zarr.

Variants: `numpy` (two buffers, `out=`, some rows at a time), `numpy-threads` (the same, a share of the rows a core),
`numba`, `numba-parallel`; `opencv` (a share of the rows a core), `scipy` (one core: its median keeps Python's lock).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import slab_kernels as kernels
import zarr
from slab_cases import Job, create

__all__ = ["Job", "run"]


def run(job: Job) -> dict:
    """Read, compute, write."""
    array = zarr.open_array(job.source, mode="r")
    target = create(job.target, job.case, job.chunks)
    with zarr.config.set({"threading.max_workers": job.cores}):
        target[...] = WAYS[job.variant](array[...], job.case.times, job.cores)
    return {"note": f"chunks {job.chunks}"}


def _scipy(image: np.ndarray, size: int, cores: int) -> np.ndarray:
    from scipy.ndimage import median_filter

    return median_filter(image, size=size, mode="nearest")


WAYS: dict[str, Callable[[np.ndarray, int, int], np.ndarray]] = {
    "numpy": lambda grid, sweeps, cores: kernels.swept(grid, sweeps),
    "numpy-threads": kernels.swept_by_threads,
    "numba": lambda grid, sweeps, cores: kernels.swept(grid, sweeps, kernels.by_numba(False)),
    "numba-parallel": lambda grid, sweeps, cores: kernels.swept(grid, sweeps, kernels.by_numba(True)),
    "opencv": kernels.opencv_by_threads,
    "scipy": _scipy,
}
