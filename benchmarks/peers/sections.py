"""Sections of stored arrays: each read is timed by itself, warm and cold, and compared with the field."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import machine
import numpy as np
from case import Job
from data import field, values

WARM, COLD = 7, 3
"""How often each section is read; the first warm read does not count."""
SLOW = 1.0
"""Seconds of a read that is not repeated."""
DENSE = ("rows", "rows in zstd")
"""Layouts of which dense sections are read, too."""
Read = Callable[[Any], np.ndarray]


def layouts(edge: int) -> dict[str, dict[str, Any]]:
    """Return how the array is stored, by name."""
    part, shard = max(edge // 64, 1), max(edge // 128, 1)
    return {
        "rows": {"chunks": (part, edge)},
        "columns": {"chunks": (edge, part)},
        "shards": {"chunks": (shard, shard), "per_shard": (16, 16)},
        "rows in zstd": {"chunks": (part, edge), "codec": "zstd"},
    }


def store(path: str, edge: int) -> None:
    """Write the field in every layout, and as one contiguous data set of HDF5."""
    import h5py

    os.makedirs(path)
    for name, how in layouts(edge).items():
        field(os.path.join(path, name), (edge, edge), **how)
    with h5py.File(os.path.join(path, "contiguous.h5"), "w") as file:
        made, rows = file.create_dataset("a", (edge, edge), "f4"), max(edge // 16, 1)
        for low in range(0, edge, rows):
            part = slice(low, min(low + rows, edge))
            made[part] = values((part, slice(0, edge)))


def keys(edge: int, layout: str) -> dict[str, tuple[slice, slice]]:
    """Return the sections of a layout by name."""
    sparse = {"[::64, ::64]": np.s_[0:edge:64, 0:edge:64], "[:, 5]": np.s_[0:edge, 5:6]}
    dense = {
        "[::4, ::4]": np.s_[0:edge:4, 0:edge:4],
        "a block of 4 %": np.s_[edge // 16 : edge // 4, edge // 5 : edge * 2 // 5],
    }
    return sparse | dense if layout in DENSE else sparse


def ours(job: Job) -> dict:
    """`a[key]` of an array of oocarrays."""
    import oocarrays as ooc

    return _timed(job, lambda path: ooc.open_array(path).__getitem__)


def zarr_python(job: Job) -> dict:
    """`a[key]` of an array of zarr-python."""
    import zarr

    return _timed(job, lambda path: zarr.open_array(path, mode="r").__getitem__)


def tensorstore(job: Job) -> dict:
    """TensorStore's view, read."""
    import tensorstore as ts

    def opened(path: str) -> Read:
        array = ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"}}).result()
        return lambda key: array[key].read().result()

    return _timed(job, opened)


def h5py(job: Job) -> dict:
    """h5py, of the contiguous data set, beside every layout."""
    import h5py

    data = h5py.File(os.path.join(job.source, "contiguous.h5"))["a"]
    return _timed(job, lambda path: data.__getitem__)


def _timed(job: Job, opened: Callable[[str], Read]) -> dict:
    figures: dict[str, list[float]] = {}
    for layout in layouts(job.edge):
        read = opened(os.path.join(job.source, layout))
        for name, key in keys(job.edge, layout).items():
            expected = values(key)
            first = _once(read, key, expected)
            figures[f"{name} of {layout}"] = [
                _once(read, key, expected) for _ in range(1 if first > SLOW else WARM - 1)
            ]
            if layout == "rows":
                cold = figures[f"{name} of {layout}, cold"] = []
                for _ in range(COLD):
                    machine.make_cold(job.source)
                    cold.append(_once(read, key, expected))
    return {"figures": figures}


def _once(read: Read, key: Any, expected: np.ndarray) -> float:
    begun = time.perf_counter()
    found = read(key)
    seconds = time.perf_counter() - begun
    if not np.array_equal(found, expected):
        raise ValueError(f"a section {key} was read wrongly")
    return seconds
