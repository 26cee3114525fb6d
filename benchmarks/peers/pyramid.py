"""Pyramids of an image: ours, Dask with ``coarsen``, and ngff-zarr."""

from __future__ import annotations

import os

import numpy as np
import zarr
from case import Job


def image(path: str, edge: int, chunk: int, codec: str) -> None:
    """Write an image that is smooth, with noise in its last bits, as a microscope has it."""
    from data import codecs

    made = zarr.create_array(
        path, shape=(edge, edge), chunks=(chunk, chunk), dtype="u2", dimension_names=("y", "x"),
        compressors=codecs(codec, itemsize=2),
    )  # fmt: skip
    random, columns = np.random.default_rng(1), np.arange(edge)
    for first in range(0, edge, chunk):
        rows = np.arange(first, min(first + chunk, edge))[:, np.newaxis]
        smooth = 2000 + 1500 * np.sin(rows / 900) * np.cos(columns / 700)
        made[first : first + chunk] = (smooth + random.integers(0, 32, (len(rows), edge), "u2")).astype("u2")


def check(job: Job) -> str:
    """Whether a corner of the third level is what numpy makes of the first, to one: rounding is the peers' own."""
    found = next((p for p in (f"{job.target}/2", f"{job.target}/scale2/image") if os.path.exists(p)), None)
    if found is None:
        return "no third level"
    made, size = zarr.open_array(found, mode="r"), min(64, job.edge // 4)
    if made.shape != (job.edge // 4,) * 2:
        return f"WRONG LAYOUT {made.shape}"
    first = zarr.open_array(job.source, mode="r")[: 4 * size, : 4 * size]
    off = np.abs(made[:size, :size] - first.reshape(size, 4, size, 4).mean(axis=(1, 3))).max()
    return "ok" if off <= 1.5 else f"WRONG by {off:.1f}"


def ours(job: Job) -> dict:
    """`pyramid` in the case's memory."""
    import oocarrays as ooc
    from peers.ours import told

    work = ooc.pyramid(job.source, job.target, levels=job.levels, memory=job.budget, scheduler="threads")
    work.run()
    return told(work)


def dask_each(job: Job) -> dict:
    """`coarsen` level by level: each is made of the one below, which is read again."""
    import dask
    import dask.array as da

    below = job.source
    for level in range(job.levels):
        image = da.from_zarr(below)
        image = image if level == 0 else _coarser(image, job)
        below = f"{job.target}/{level}"
        dask.compute(image.to_zarr(below, compressors=_compressors(job), compute=False))
    return {}


def dask_graph(job: Job) -> dict:
    """All levels in one graph."""
    import dask
    import dask.array as da

    image, jobs = da.from_zarr(job.source), []
    for level in range(job.levels):
        image = image if level == 0 else _coarser(image, job)
        jobs.append(image.to_zarr(f"{job.target}/{level}", compressors=_compressors(job), compute=False))
    dask.compute(*jobs)
    return {}


def _coarser(below, job: Job):
    import dask.array as da

    return da.coarsen(_rounded_mean, below, {0: 2, 1: 2}).rechunk((job.chunk, job.chunk))


def _rounded_mean(block: np.ndarray, axis: tuple[int, ...] | None = None, keepdims: bool = False) -> np.ndarray:
    return ((block.sum(axis=axis, dtype=np.uint32, keepdims=keepdims) + 2) // 4).astype(block.dtype)


def _compressors(job: Job):
    return zarr.open_array(job.source, mode="r").compressors or None


def ngff_zarr(job: Job) -> dict:
    """ngff-zarr's means by its method ``DASK_BIN_SHRINK``; it codes as it does by default."""
    import dask.array as da
    import ngff_zarr as nz

    image = nz.to_ngff_image(da.from_zarr(job.source), dims=("y", "x"))
    factors = [2**level for level in range(1, job.levels)]
    scales = nz.to_multiscales(image, scale_factors=factors, method=nz.Methods.DASK_BIN_SHRINK, chunks=job.chunk)
    nz.to_ngff_zarr(job.target, scales, version="0.5")
    return {}
