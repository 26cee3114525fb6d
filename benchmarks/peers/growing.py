"""Arrays that grow, and groups: an update beside a rechunk of all, a group of arrays beside the same one by one."""

from __future__ import annotations

import os
import shutil
import time
from typing import Any

import numpy as np
import zarr
from case import Job
from data import codecs, field

import oocarrays as ooc
from peers.ours import told

ARRAYS = 20
"""Arrays of a group."""


# ---------------------------------------------------------------------- an update


def update(job: Job) -> dict:
    """Rechunk maps, append a hundredth, update the target, and rechunk all again; every element is compared."""
    source, target, again = (os.path.join(job.scratch, name) for name in ("source", "target", "again"))
    figures: dict[str, list[float]] = {}
    maps = zarr.create_array(
        source, shape=(0, job.edge, job.edge), chunks=(1, job.edge, job.edge), dtype="f4", compressors=codecs(job.codec)
    )
    plane = np.random.default_rng(1).normal(280, 9, (job.edge, job.edge)).astype("f4").round(1)

    def append(until: int) -> None:
        for first in range(maps.shape[0], until, 16):
            maps.append(plane + np.arange(first, min(first + 16, until), dtype="f4")[:, None, None])
        os.sync()

    def timed(name: str, make: Any) -> Any:
        begun = time.perf_counter()
        work = make()
        work.run()
        figures[name] = [time.perf_counter() - begun]
        return work

    def rechunk(into: str) -> Any:
        return ooc.rechunk(source, into, chunks=job.target_chunks, memory=job.budget, scheduler="threads")

    append(job.items)
    rechunk(target).run()
    append(job.items + max(job.items // 100, 1))
    work = timed("update", lambda: ooc.update(target, memory=job.budget, scheduler="threads"))
    timed("rechunk", lambda: rechunk(again))
    made = zarr.open_array(target, mode="r")
    for first in range(0, made.shape[0], job.target_chunks[0]):
        part = made[first : first + job.target_chunks[0]]
        if not np.array_equal(part, plane + np.arange(first, first + len(part), dtype="f4")[:, None, None]):
            raise ValueError("the target differs from the source")
    for place in (source, target, again):
        shutil.rmtree(place)
    numbers = {
        "update ÷ rechunk": figures["update"][0] / figures["rechunk"][0],
        "share of the source that is read": work.plan.source_share,
        "share of the target that is replaced": work.plan.target_share,
    }
    return {"figures": figures, "numbers": numbers}


# ---------------------------------------------------------------------- groups


def arrays(path: str, shape: tuple[int, ...], chunks: tuple[int, ...], codec: str) -> None:
    """Write a group of equal arrays, and a coordinate that is copied."""
    group = zarr.create_group(path)
    group.create_array("axis", shape=shape[:1], chunks=shape[:1], dtype="f8")[...] = 1
    field(f"{path}/v0", shape, chunks, codec)
    for number in range(1, ARRAYS):
        shutil.copytree(f"{path}/v0", f"{path}/v{number}")


def group(job: Job) -> dict:
    """All arrays in one job."""
    wanted = {f"v{number}": job.target_chunks for number in range(ARRAYS)}
    work = ooc.rechunk(job.source, job.target, chunks=wanted, memory=job.budget, scheduler="threads")
    work.run()
    return told(work)


def one_by_one(job: Job) -> dict:
    """A job for each array."""
    os.makedirs(job.target)
    for number in range(ARRAYS):
        places = (f"{place}/v{number}" for place in (job.source, job.target))
        ooc.rechunk(*places, chunks=job.target_chunks, memory=job.budget, scheduler="threads").run()
    return {}


def check_group(job: Job) -> str:
    """Compare the first and the last array with the field."""
    from data import rechunked

    found = (rechunked(job, f"{job.target}/v{number}") for number in (0, ARRAYS - 1))
    return next((verdict for verdict in found if verdict != "ok"), "ok")
