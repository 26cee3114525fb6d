"""Lazy arrays on the workers of a cluster: read in groups or out of scratch, and stored in unaligned chunks."""

from __future__ import annotations

import os
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import PlacementError
from tests.graphs.clusters import FIELD, within
from tests.profiles import some
from tests.small import CODECS

pytestmark = pytest.mark.long
SLOW = {"oocarrays.cost.decode_bandwidth": {"zstd": 1e6, "other": 1e6}, "oocarrays.cost.cores": 1}


@pytest.fixture
def slabs(tmp_path: Path) -> ooc.OutOfCoreArray:
    zarr.create_array(tmp_path / "a.zarr", data=FIELD, chunks=(64, 768), compressors=CODECS["zstd"])
    return ooc.open_array(tmp_path / "a.zarr")


@pytest.mark.parametrize(("memory", "method"), [("64MiB", "groups"), ("1.6MiB", "scratch")])
def test_workers_read_what_is_stored(two: Client, slabs: ooc.OutOfCoreArray, memory: str, method: str) -> None:
    with dask.config.set(SLOW):
        x = slabs.to_dask((1024, 96), memory=memory)
    assert x.plan.method == method
    np.testing.assert_array_equal(within(x.compute), FIELD)
    kept = within(x.persist)
    del x
    np.testing.assert_array_equal(within(kept[3].compute), FIELD[3])
    del kept
    assert os.listdir(os.path.dirname(slabs.store)) == ["a.zarr"]


def test_nothing_is_lost_in_many_writes_of_workers(two: Client, tmp_path: Path) -> None:
    made = zarr.create_array(tmp_path / "a.zarr", shape=(30, 30), chunks=(8, 8), shards=(16, 8), dtype="i4")
    for turn in some(range(50), 4):
        data = np.arange(900).reshape(30, 30) + turn
        within(lambda data=data: ooc.store(da.from_array(data, chunks=(11, 13)), made))
        np.testing.assert_array_equal(made[...], data)


def test_workers_do_not_write_into_the_memory_of_this_process(two: Client) -> None:
    with pytest.raises(PlacementError, match="in this process's memory"):
        ooc.store(da.zeros((8,), dtype="i4"), zarr.zeros((8,), chunks=(3,), dtype="i4"))


def test_what_workers_are_asked_for_is_what_the_graph_says(two: Client, tmp_path: Path) -> None:
    stored = zarr.create_array(tmp_path / "a.zarr", data=FIELD, chunks=(128, 256))
    x = da.from_zarr(stored)[100:700, ::2].sum(axis=0)
    found = ooc.advise.trace(x)
    with ooc.advise.trace(scheduler=two) as seen:
        within(x.compute)
    (expected,), (access,) = found.accesses, seen.accesses
    assert access.patterns == expected.patterns
    assert access.threads is not None
    assert 1 <= access.threads <= 2
