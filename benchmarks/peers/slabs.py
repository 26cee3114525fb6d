"""Medians and sweeps: ours, Dask's, cubed's, and the whole array in memory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
from case import MIB, Job, within

from peers import kernels

FUSED = 20
"""Sweeps of one pass, at most, that are fused by hand: 10 to 40 take the same time a sweep, and 40 more memory."""


def source(job: Job) -> str:
    """Return the path of the array."""
    return os.path.join(job.source, "a")


# ---------------------------------------------------------------------- ours


def ours(job: Job) -> dict:
    """`map_slabs` or `iterate` in the case's memory, on threads; `kernel` names who computes."""
    import oocarrays as ooc
    from peers.ours import told

    means: dict[str, Any] = {"memory": job.budget, "scheduler": "threads"}
    if job.operation == "median":
        opencv = job.params.get("kernel") == "opencv"
        kernel = partial(kernels.opencv, size=job.times)
        kernel = kernel if opencv else partial(ooc.kernels.median, size=job.times, mode="nearest")
        means |= {"depth": job.times // 2, "boundary": "nearest"}
        kernel_needs = ooc.Resources(workspace="6MiB" if opencv else "5.5MiB")
        work = ooc.map_slabs(kernel, source(job), job.target, resources=kernel_needs, **means)
    else:
        compiled = job.params.get("kernel") == "numba"
        kernel = kernels.numba_in_place() if compiled else kernels.sweep_in_place
        work = ooc.iterate(kernel, source(job), job.target, sweeps=job.times, depth=1, **means)
    work.run()
    return told(work) | {"note": _note(work.plan)}


def _note(plan: Any) -> str:
    passes = getattr(plan, "passes", None)
    slabs = passes[0] if passes else plan
    fused = f"{len(passes)} passes of {plan.fuse} sweeps, " if passes else ""
    return f"{fused}slabs of {' × '.join(map(str, slabs.heights))}, {plan.ranks} ranks"


# ---------------------------------------------------------------------- Dask


@contextmanager
def workers(job: Job) -> Iterator[Any]:
    """A cluster whose workers have no limit of memory."""
    from peers.dask import cluster

    with cluster(replace(job, memory=0), "peers.kernels") as client:
        yield client


def dask_each(job: Job) -> dict:
    """A `map_overlap` a sweep, each written and read again, on threads."""
    return _on_threads(job, lambda: _passes(job, [1] * job.times))


@within(workers)
def dask_cluster(job: Job, client: Any) -> dict:
    """The same on workers of one thread."""
    _passes(job, [1] * job.times)
    return {}


def dask_fused(job: Job) -> dict:
    """Fused by hand: as many sweeps in one `map_overlap`, of as deep an overlap, as are fastest."""
    count = math.ceil(job.times / FUSED)
    sweeps = [len(part) for part in np.array_split(np.arange(job.times), count)]
    return _on_threads(job, lambda: _passes(job, sweeps)) | {"note": f"{count} passes"}


def dask_image(job: Job) -> dict:
    """dask-image's median."""
    import dask.array as da
    from dask_image.ndfilters import median_filter

    image = partial(median_filter, size=job.times, mode="nearest")
    return _on_threads(job, lambda: _written(image(da.from_zarr(source(job))), job.target, job))


def dask_opencv(job: Job) -> dict:
    """OpenCV's median in `map_overlap`."""
    import dask.array as da

    def written() -> None:
        x = _overlapped(da.from_zarr(source(job)), lambda block: kernels.opencv(block, job.times), job.times // 2)
        _written(x, job.target, job)

    return _on_threads(job, written)


def _on_threads(job: Job, work: Callable[[], None]) -> dict:
    import dask

    with dask.config.set(scheduler="threads", num_workers=job.cores):
        work()
    return {}


def _overlapped(x: Any, kernel: Callable[[np.ndarray], np.ndarray], depth: int) -> Any:
    """Blocks with their neighbours' rows, and columns where they do not have them all; nothing beyond the edges."""
    import dask.array as da

    depths = {axis: depth if count > 1 else 0 for axis, count in enumerate(x.numblocks)}
    return da.map_overlap(kernel, x, depth=depths, boundary="none", dtype=x.dtype, meta=x._meta)


def _written(x: Any, store: str, job: Job) -> None:
    import dask.array as da

    da.store(x, kernels.created(job, store), lock=False, compute=True, return_stored=False)


def _passes(job: Job, sweeps: list[int]) -> None:
    """Passes of some sweeps each, by way of arrays in scratch."""
    import dask.array as da

    before = source(job)
    for number, count in enumerate(sweeps):
        after = job.target if number == len(sweeps) - 1 else os.path.join(job.scratch, f"pass-{number}")
        kernel = kernels.sweep if count == 1 else _several(count)
        _written(_overlapped(da.from_zarr(before), kernel, count), after, job)
        before = after


def _several(count: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda block: kernels.swept(block.copy(), count)


# ---------------------------------------------------------------------- cubed


def cubed(job: Job) -> dict:
    """A `map_overlap` a sweep in one plan, on its local threads, each in its share of the budget or what it demands.

    Its `map_overlap` adds a constant beyond the edges, so that the kernel puts the border back.
    """
    import cubed

    made, allowed = kernels.created(job), job.memory // job.cores
    while True:
        how = {"executor_name": "threads", "executor_options": {"max_workers": job.cores}, "zarr_compressor": None}
        spec = cubed.Spec(work_dir=job.scratch, allowed_mem=allowed, **how)
        try:
            x = reduce(lambda grid, _: _cubed_sweep(grid), range(job.times), cubed.from_zarr(source(job), spec=spec))
            cubed.store([x], [made])
            return {"note": f"{job.cores} × {allowed // MIB} MiB"}
        except ValueError as refusal:
            if "mem" not in str(refusal):
                raise
            allowed += allowed // 2


def _cubed_sweep(x: Any) -> Any:
    import cubed

    last = x.numblocks[0] - 1

    def kernel(block: np.ndarray, block_id: tuple[int, ...]) -> np.ndarray:
        result = kernels.sweep(block)[1:-1]
        if block_id[0] == 0:
            result[0] = block[1]
        if block_id[0] == last:
            result[-1] = block[-2]
        return result

    return cubed.map_overlap(kernel, x, dtype=x.dtype, chunks=x.chunks, depth={0: 1, 1: 0}, boundary={0: 0.0, 1: 0.0})


# ---------------------------------------------------------------------- in memory


def in_memory(job: Job) -> dict:
    """Read the whole array by Zarr, compute by `kernel`, write by Zarr."""
    import zarr

    compute = {
        "numpy": lambda grid: kernels.swept_by_threads(grid, job.times, job.cores),
        "numba": lambda grid: kernels.swept(grid, job.times, kernels.by_numba()),
        "opencv": lambda grid: kernels.opencv_by_threads(grid, job.times, job.cores),
    }[job.kernel]
    with zarr.config.set({"threading.max_workers": job.cores}):
        kernels.created(job)[...] = compute(zarr.open_array(source(job), mode="r")[...])
    return {}
