"""Passes over slabs whose memory is measured, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import zarr

import oocarrays as ooc
from oocarrays.errors import BudgetError
from tests.flat import flat
from tests.seams import MemoryWatch

CODECS: dict[str, dict[str, Any]] = {
    "plain": {"compressors": None},
    "zstd": {"compressors": zarr.codecs.ZstdCodec(level=1)},
    "tiles": {"compressors": None, "chunks": (512, 512)},
    "coded tiles": {"compressors": zarr.codecs.ZstdCodec(level=1), "chunks": (512, 512)},
    "shards": {"compressors": zarr.codecs.ZstdCodec(level=1), "shards": (256, 2048)},
}
KERNELS: dict[str, Callable[..., Any]] = {
    "new": lambda x, *more: x + 1,
    "in place": lambda x, *more: np.add(x, 1, out=x),
    "view": lambda x, *more: x,
    "three": lambda x, *more: x + (x + (x + 1)),
    "two": lambda x, y: (x + y, x - y),
    "most": lambda x: x.max(0),
    "pair": lambda x: np.stack([x, x + 1]),
    "half": lambda x: x[::2] + x[1::2],
    "waves": lambda x: np.abs(np.fft.rfft(x, axis=0)),
}
SWEEPS: dict[str, Callable[..., Any]] = {
    "swept": lambda x: x / 2 + 1,
    "swept, and one beside": lambda x, y: x / 2 + y,
    "swept together": lambda x, y: (x / 2 + y, y / 3 - x),
    "moved on": lambda x, y: (x / 2 + y, x),
}

TWO = {"two", *SWEEPS} - {"swept"}


def measure(folder: str, kernel: str, storing: str, options: dict[str, Any]) -> dict[str, int]:
    """What a pass holds above what its process held before, in bytes, beside its plan."""
    sources = [f"{folder}/{storing}-{n}.zarr" for n in range(1 if kernel not in TWO else 2)]
    targets = [f"{folder}/t{os.getpid()}-{n}.zarr" for n in range(len(sources) - ("beside" in kernel))]
    budget = options.pop("memory", None)
    dask.config.set({"oocarrays.past-cache-above": options.pop("above", "1GiB")})
    for path in Path(sources[0]).rglob("c/*/*"):
        os.posix_fadvise(file := os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)

    def planned(memory: Any) -> Any:
        if kernel == "pyramid":
            return flat(ooc.pyramid, sources[0], targets[0], memory=memory, scheduler="threads", **options)
        if kernel in SWEEPS:
            return flat(ooc.iterate, SWEEPS[kernel], sources, targets, memory=memory, scheduler="threads", **options)
        return flat(ooc.map_slabs, KERNELS[kernel], sources, targets, memory=memory, scheduler="threads", **options)

    if budget is None:
        try:
            planned(1)
        except BudgetError as error:
            budget = error.least
    job = planned(budget)
    small = zarr.create_array({}, data=np.ones(8), chunks=(4,))
    ooc.map_slabs(np.negative, small, zarr.storage.MemoryStore(), memory="16MiB", scheduler="threads").run()
    with MemoryWatch(0.002) as watch:
        job.run()
    return {"held": watch.peak_bytes, "peak": job.plan.peak_bytes, "budget": job.plan.budget}


def make(folder: str, storing: str) -> None:
    """Make the two arrays that are passed over, stored as asked."""
    for n in range(2):
        data = np.random.default_rng(n).integers(0, 2**21, (4096, 2048)).astype("f4")
        zarr.create_array(f"{folder}/{storing}-{n}.zarr", data=data, **{"chunks": (64, 2048)} | CODECS[storing])
