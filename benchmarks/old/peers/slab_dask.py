"""Dask's own ways: `map_overlap` from Zarr to Zarr, on as many threads as cores, or on workers of one thread each.

Variants: `image` (dask-image's median), `opencv` (OpenCV's in `map_overlap`); `each` (a `map_overlap` a sweep, each
written and read again), `cluster` (the same on workers), `fused` (fused by hand: as many sweeps in one `map_overlap`,
of as deep an overlap, as are fastest; blocks are swept in two buffers).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import dask
import dask.array as da
import numpy as np
import slab_kernels as kernels
from slab_cases import Job, create

from peers import dask_cluster

__all__ = ["Job", "run", "workers"]

FUSED = 20
"""Sweeps of one pass, at most, that are fused by hand: 10 to 40 take the same time a sweep, and 40 more memory."""


@contextmanager
def workers(job: Job) -> Iterator[Any]:
    """A cluster whose workers have no limit of memory, for the variant that has one."""
    if job.variant != "cluster":
        yield None
        return
    with dask_cluster.workers(replace(job, memory=0), "slab_kernels") as client:
        yield client


def run(job: Job, client: Any = None) -> dict:
    """Source → kernel → target."""
    scheduler = {} if client else {"scheduler": "threads", "num_workers": job.cores}
    with dask.config.set(scheduler):
        passes = WAYS[job.variant](job)
    return {"note": f"{passes} passes, chunks {job.chunks}"}


def _overlapped(x: da.Array, kernel: Callable[[np.ndarray], np.ndarray], depth: int) -> da.Array:
    """Blocks with their neighbours' rows, and columns where they do not have them all; nothing beyond the edges."""
    depths = {axis: depth if count > 1 else 0 for axis, count in enumerate(x.numblocks)}
    return da.map_overlap(kernel, x, depth=depths, boundary="none", dtype=x.dtype, meta=x._meta)


def _written(x: da.Array, store: str, job: Job) -> None:
    da.store(x, create(store, job.case, job.chunks), lock=False, compute=True, return_stored=False)


def _image(job: Job) -> int:
    from dask_image.ndfilters import median_filter

    _written(median_filter(da.from_zarr(job.source), size=job.case.times, mode="nearest"), job.target, job)
    return 1


def _opencv(job: Job) -> int:
    size = job.case.times
    x = _overlapped(da.from_zarr(job.source), lambda block: kernels.opencv(block, size), size // 2)
    _written(x, job.target, job)
    return 1


def _each(job: Job) -> int:
    return _passes(job, [1] * job.case.times)


def _fused(job: Job) -> int:
    count = math.ceil(job.case.times / FUSED)
    return _passes(job, [len(part) for part in np.array_split(np.arange(job.case.times), count)])


def _passes(job: Job, sweeps: list[int]) -> int:
    """Passes of so many sweeps, by way of arrays in scratch."""
    before = job.source
    for number, count in enumerate(sweeps):
        last = number == len(sweeps) - 1
        after = job.target if last else os.path.join(job.scratch, f"pass-{number}")
        kernel = kernels.sweep if count == 1 else _several(count)
        _written(_overlapped(da.from_zarr(before), kernel, count), after, job)
        before = after
    return len(sweeps)


def _several(count: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda block: kernels.swept(block.copy(), count)


WAYS: dict[str, Callable[[Job], int]] = {
    "image": _image,
    "opencv": _opencv,
    "each": _each,
    "cluster": _each,
    "fused": _fused,
}
