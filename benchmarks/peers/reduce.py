"""Mean over time and monthly climatology of fields (time, lat, lon): ours, xarray with Dask, cubed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from case import Job, within


def fields(path: str, shape: tuple[int, ...], hours: int, chunks: tuple[int, ...], codec: str = "none") -> None:
    """Write fields that vary along a row, as array `air` of a group."""
    import zarr
    from data import codecs

    cut = tuple(map(min, (hours, *chunks), shape))
    made = zarr.create_group(path).create_array(
        "air", shape=shape, chunks=cut, dtype="f4", dimension_names=("time", "lat", "lon"), compressors=codecs(codec)
    )
    random = np.random.default_rng(1)
    for first in range(0, shape[0], 168):
        part = np.cumsum(random.normal(0, 0.1, (min(168, shape[0] - first), *shape[1:])), axis=2) + 280
        made[first : first + 168] = part.astype("f4").round(2)


def months(count: int) -> np.ndarray:
    """The month of each field, as if each were that of half a day."""
    return (np.datetime64("2001-01-01T00", "h") + 12 * np.arange(count)).astype("M8[M]").astype(int) % 12


def check(job: Job) -> str:
    """`ok`, or how far the output is from the means that numpy makes in double precision."""
    import zarr

    kept = f"{job.source}-{job.operation}.npy"
    if not os.path.exists(kept):
        air = zarr.open_array(os.path.join(job.source, "air"), mode="r")
        by = months(air.shape[0]) if job.operation == "climatology" else np.zeros(air.shape[0], int)
        sums = np.zeros((12, *air.shape[1:]))
        for first in range(0, air.shape[0], 168):
            part, groups = air[first : first + 168], by[first : first + 168]
            for group in set(groups):
                sums[group] += part[groups == group].sum(axis=0, dtype=float)
        counts = np.bincount(by, minlength=12)
        right = sums[counts > 0] / counts[counts > 0, None, None]
        np.save(f"{kept}.partial.npy", right if job.operation == "climatology" else right[0])
        os.rename(f"{kept}.partial.npy", kept)
    made, right = np.load(f"{job.target}.npy"), np.load(kept)
    if made.shape != right.shape:
        return f"WRONG SHAPE {made.shape}"
    return "ok" if np.allclose(made, right, rtol=1e-5) else f"WRONG by {np.abs(made - right).max():.2g}"


@contextmanager
def workers(job: Job) -> Iterator[Any]:
    """A cluster of the case's workers, which have imported what they need."""
    from peers.dask import cluster

    with cluster(job, "xarray", "flox", "oocarrays") as client:
        yield client


def ours(job: Job, scheduler: Any = "threads") -> dict:
    """`reduce` in the case's memory."""
    import oocarrays as ooc

    air = ooc.open_array(f"{job.source}/air")
    by = months(air.shape[0]) if job.operation == "climatology" else None
    memory = job.budget if scheduler == "threads" else None
    return {"output": ooc.reduce(air, "mean", axis=0, by=by, memory=memory, scheduler=scheduler)}


@within(workers)
def ours_on_workers(job: Job, client: Any) -> dict:
    """The same on a cluster."""
    return ours(job, client)


def xarray(job: Job, scheduler: Any = "threads") -> dict:
    """xarray with Dask in the stored chunks, and flox for groups."""
    import dask
    import flox  # noqa: F401  (used by xarray where it is installed)
    import xarray as xr

    air = xr.open_zarr(job.source, consolidated=False).air
    with dask.config.set(scheduler=scheduler):
        if job.operation == "climatology":
            air = air.assign_coords(month=("time", months(air.sizes["time"]))).groupby("month")
        return {"output": air.mean("time").values}


@within(workers)
def xarray_on_workers(job: Job, client: Any) -> dict:
    """The same on a cluster."""
    return xarray(job, client)


def cubed(job: Job) -> dict:
    """Plan with more memory where its plan asks for that; groups by its own function."""
    import cubed
    import cubed.array_api as xp
    from cubed.core.groupby import groupby_reduction

    allowed = job.memory // job.cores
    while True:
        spec = cubed.Spec(
            allowed_mem=allowed, executor_name="threads", executor_options={"max_workers": job.cores},
            work_dir=job.scratch,
        )  # fmt: skip
        x = cubed.from_zarr(f"{job.source}/air", spec=spec)
        try:
            if job.operation == "mean":
                return {"output": xp.mean(x, axis=0).compute()}
            by = months(x.shape[0])
            groups = cubed.from_array(by, chunks=x.chunksize[:1], spec=spec)
            how = {"func": _grouped, "combine_func": _added, "intermediate_dtype": np.float32, "dtype": np.float32}
            sums = groupby_reduction(x, groups, axis=0, num_groups=12, **how).compute()
            counts = np.bincount(by)
            return {"output": sums[: len(counts)] / counts[:, None, None]}
        except ValueError as refusal:
            if "mem" not in str(refusal):
                raise
            allowed += allowed // 2


def _grouped(a: np.ndarray, by: np.ndarray, *, num_groups: int, **_) -> np.ndarray:
    return np.stack([a[by == group].sum(axis=0) for group in range(num_groups)])


def _added(a: np.ndarray, *, dummy_axis: int, keepdims: bool = True, **_) -> np.ndarray:
    return np.sum(a, axis=dummy_axis, keepdims=keepdims)
