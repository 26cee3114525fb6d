"""A kernel of `oocarrays.kernels` brings its own depth: against scipy, and against sweeps of the whole array."""

from __future__ import annotations

from functools import partial
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from scipy import ndimage

import oocarrays as ooc
from oocarrays.kernels import median, sweep, sweeps
from tests.flat import flat

HOW: dict[str, Any] = {"memory": "64MiB", "axis": 0, "height": 8, "ranks": 2, "scheduler": "threads"}
"""Slabs of eight rows, so that most rows are near a cut."""


def passed(kernel: Any, data: np.ndarray, **more: Any) -> np.ndarray:
    """What a pass over slabs makes of data."""
    source = zarr.create_array({}, data=data, chunks=(8, 16))
    return np.asarray(flat(ooc.map_slabs, kernel, source, zarr.storage.MemoryStore(), **HOW, **more).run()[...])


@pytest.mark.parametrize("size", [3, 5, (5, 3), (1, 7)])
def test_a_median_of_any_size_is_that_of_the_whole_array(size: Any) -> None:
    data = np.random.default_rng(0).integers(0, 255, (40, 32), dtype="u1")
    assert np.array_equal(passed(partial(median, size=size), data), ndimage.median_filter(data, size, mode="reflect"))


@pytest.mark.parametrize(("kernel", "times"), [(sweep, 1), (partial(sweeps, count=3), 3)])
def test_sweeps_are_those_of_the_whole_array(kernel: Any, times: int) -> None:
    data = np.random.default_rng(1).random((40, 32))
    expected = data.copy()
    for _ in range(times):
        inner = expected[:-2, 1:-1] + expected[2:, 1:-1] + expected[1:-1, :-2] + expected[1:-1, 2:]
        expected[1:-1, 1:-1] = inner / 4
    assert np.allclose(passed(kernel, data), expected, rtol=1e-12)


def test_a_depth_that_is_given_is_taken() -> None:
    source = zarr.create_array({}, data=np.zeros((40, 32)), chunks=(8, 16))
    job = flat(ooc.map_slabs, median, source, zarr.storage.MemoryStore(), depth=(2, 0), **HOW)
    assert job.plan.depth == (2, 0)


@pytest.mark.parametrize(("kernel", "asked", "ranks"), [(median, None, 1), (median, 2, 2), (np.sqrt, None, 2)])
def test_kernels_of_ours_take_one_rank_unless_more_are_asked_for(kernel: Any, asked: int | None, ranks: int) -> None:
    source = zarr.create_array({}, data=np.zeros((400, 32)), chunks=(8, 32))
    how = HOW | {"ranks": asked}
    with dask.config.set(num_workers=2):
        job = flat(ooc.map_slabs, kernel, source, zarr.storage.MemoryStore(), **how)
    assert job.plan.ranks == ranks
