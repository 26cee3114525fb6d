"""Files that are not Zarr: NetCDF-4 to time series, a median of a TIFF, and the opening of many files."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from case import Job

HOURS = 24
"""Steps of one file of `days`."""
NEW = {"compat": "override", "coords": "minimal", "join": "override"}
"""What xarray is going to do by default."""


def _file(path: Path, first: int, air: np.ndarray, chunk: tuple[int, ...]) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        hours = file.create_dataset("time", data=np.arange(len(air)) + first, maxshape=(None,), chunks=(len(air),))
        hours.make_scale("time")
        data = file.create_dataset(
            "air", data=air, maxshape=(None, *air.shape[1:]), chunks=chunk, compression="gzip", shuffle=True
        )
        data.dims[0].attach_scale(hours)
        for axis, name in ((1, "lat"), (2, "lon")):
            file.create_dataset(name, data=np.arange(float(air.shape[axis]))).make_scale(name)
            data.dims[axis].attach_scale(file[name])


def days(path: str, items: int, shape: tuple[int, ...], hours: int) -> None:
    """Write files of NetCDF-4, zlib and shuffle, a day each, and the same chunks and codecs as Zarr."""
    import numcodecs
    import zarr

    folder, random = Path(path), np.random.default_rng(1)
    folder.mkdir(parents=True)
    copy = zarr.create_array(
        folder / "copy.zarr", shape=(items * HOURS, *shape), chunks=(hours, *shape), dtype="f4", zarr_format=2,
        filters=[numcodecs.Shuffle(4)], compressors=[numcodecs.Zlib(4)],
    )  # fmt: skip
    for day in range(items):
        air = np.cumsum(random.normal(0, 0.1, (HOURS, *shape)), axis=2).astype("f4").round(2) + 280
        _file(folder / f"{day:05d}.nc", HOURS * day, air, (hours, *shape))
        copy[day * HOURS : (day + 1) * HOURS] = air


def many(path: str, items: int) -> None:
    """Write many small files of NetCDF-4."""
    Path(path).mkdir(parents=True)
    for day in range(items):
        _file(Path(path, f"{day:05d}.nc"), 4 * day, np.full((4, 8, 9), day, "f4"), (4, 8, 9))


def image(path: str, edge: int) -> None:
    """Write a tiled, deflated TIFF."""
    import tifffile

    ramp = np.add.outer(np.arange(edge) // 8, np.arange(edge) // 8)
    noise = np.random.default_rng(2).integers(0, 64, (edge, edge))
    os.makedirs(path)
    tifffile.imwrite(f"{path}/a.tif", (ramp + noise).astype("u2"), tile=(256, 256), compression="zlib")


# ---------------------------------------------------------------------- series


def _files(job: Job) -> list[str]:
    return sorted(map(str, Path(job.source).glob("*.nc")))


def _chunks(job: Job) -> tuple[int, ...]:
    return (job.items * HOURS, *(min(20, n) for n in job.shape))


def _codec() -> Any:
    from zarr.codecs import BloscCodec

    return BloscCodec(cname="zstd", clevel=1, shuffle="shuffle", typesize=4)


def ours(job: Job) -> dict:
    """`rechunk` of the files as one array."""
    import oocarrays as ooc

    return _ours(job, ooc.open_group(ooc.open_files(_files(job), concat_dim="time"))["air"])


def ours_from_zarr(job: Job) -> dict:
    """The same of a Zarr copy of the same bytes and codecs."""
    return _ours(job, f"{job.source}/copy.zarr")


def _ours(job: Job, source: Any) -> dict:
    import oocarrays as ooc
    from peers.ours import told

    work = ooc.rechunk(
        source,
        ooc.Target(job.target, compressors=[_codec()], filters=[], zarr_format=3),
        chunks=_chunks(job),
        memory=job.budget,
        scheduler="threads",
    )
    work.run()
    return told(work)


def xarray(job: Job) -> dict:
    """`open_mfdataset`, `chunk`, `to_zarr` on Dask's threads."""
    import xarray as xr

    given = {"combine": "nested", "concat_dim": "time", "data_vars": "minimal", "chunks": {}, **NEW}
    return _to_zarr(job, xr.open_mfdataset(_files(job), engine="h5netcdf", **given))


def virtualizarr(job: Job) -> dict:
    """VirtualiZarr's manifests of all files, as one dataset."""
    import xarray as xr

    return _to_zarr(job, xr.concat([_virtual(file) for file in _files(job)], "time", data_vars="minimal", **NEW))


def _virtual(file: str) -> Any:
    import xarray as xr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser

    store = HDFParser()(url=f"file://{file}", registry=ObjectStoreRegistry({"file:///": LocalStore()}))
    return xr.open_zarr(store, consolidated=False, zarr_format=3)


def _to_zarr(job: Job, data: Any) -> dict:
    import dask

    encoding = {"air": {"compressors": [_codec()], "chunks": _chunks(job)}}
    with dask.config.set({"array.chunk-size": job.memory // 16, "scheduler": "threads"}):
        made = data[["air"]].chunk(dict(zip(("time", "lat", "lon"), _chunks(job), strict=True)))
        made.to_zarr(job.target, consolidated=False, encoding=encoding)
    return {}


def check_series(job: Job) -> str:
    """Compare the first, the middle and the last day with the copy."""
    import zarr

    group, copy = zarr.open(job.target, mode="r"), zarr.open_array(f"{job.source}/copy.zarr", mode="r")
    made = group if isinstance(group, zarr.Array) else group["air"]
    if made.shape != copy.shape or made.chunks != _chunks(job):
        return f"WRONG LAYOUT {made.shape} {made.chunks}"
    parts = (slice(day * HOURS, (day + 1) * HOURS) for day in (0, job.items // 2, job.items - 1))
    return "ok" if all(np.array_equal(made[part], copy[part]) for part in parts) else "WRONG VALUES"


# ---------------------------------------------------------------------- images


def median(job: Job) -> dict:
    """`map_slabs` of the TIFF."""
    import oocarrays as ooc
    from peers.ours import told

    how = {"depth": 1, "boundary": "reflect", "memory": job.budget, "scheduler": "threads"}
    work = ooc.map_slabs(ooc.kernels.median, f"{job.source}/a.tif", job.target, **how)
    work.run()
    return told(work)


def median_dask_image(job: Job) -> dict:
    """dask-image on tifffile's store."""
    import dask.array as da
    import tifffile
    import zarr
    from dask_image.ndfilters import median_filter

    with tifffile.imread(f"{job.source}/a.tif", aszarr=True) as store:
        data = da.from_array(zarr.open_array(store, mode="r"), chunks=(1024, 1024))
        chunks = tuple(min(1024, n) for n in data.shape)
        made = zarr.create_array(job.target, shape=data.shape, chunks=chunks, dtype="u2")
        da.store(median_filter(data, size=3, mode="reflect"), made, lock=False, scheduler="threads")
    return {}


def check_median(job: Job) -> str:
    """Compare a corner with scipy's."""
    import scipy.ndimage
    import tifffile
    import zarr

    whole = tifffile.imread(f"{job.source}/a.tif")
    size = min(600, len(whole) - 2)
    right = scipy.ndimage.median_filter(whole[: size + 2, : size + 2], 3, mode="reflect")[:size, :size]
    return "ok" if np.array_equal(zarr.open_array(job.target, mode="r")[:size, :size], right) else "WRONG VALUES"


# ---------------------------------------------------------------------- opening


def opened(job: Job) -> dict:
    """`open_group` of all files as one, then the plan of a rechunk."""
    import oocarrays as ooc

    begun = time.perf_counter()
    group = ooc.open_group(f"{job.source}/*.nc")
    found = time.perf_counter()
    steps = group["air"].shape[0]
    ooc.rechunk(group.zarr, job.target, chunks={"air": (steps, 4, 3)}, memory=job.budget, scheduler="threads")
    if steps != 4 * job.items:
        raise ValueError(f"{steps} steps")
    return {"figures": {"open": [found - begun], "plan": [time.perf_counter() - found]}}


def opened_by_xarray(job: Job) -> dict:
    """`open_mfdataset`."""
    import xarray as xr

    begun = time.perf_counter()
    given = {"combine": "nested", "concat_dim": "time", "data_vars": "minimal", "chunks": {}, **NEW}
    with xr.open_mfdataset(_files(job), engine="h5netcdf", **given) as data:
        seconds = time.perf_counter() - begun
        if data.sizes["time"] != 4 * job.items:
            raise ValueError(f"{data.sizes}")
    return {"figures": {"open": [seconds]}}


def opened_by_virtualizarr(job: Job) -> dict:
    """VirtualiZarr's manifests, as one dataset."""
    import xarray as xr

    begun = time.perf_counter()
    data = xr.concat([_virtual(file) for file in _files(job)], "time", data_vars="minimal", **NEW)
    if data.sizes["time"] != 4 * job.items:
        raise ValueError(f"{data.sizes}")
    return {"figures": {"open": [time.perf_counter() - begun]}}
