"""Lazy arrays on a cluster: their own tasks run where Dask puts them, each once; ours stay where they were put."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import RunError
from oocarrays.graphs.run.live import settled
from tests.graphs.clusters import events, home_of, kill_when, within

pytestmark = pytest.mark.long

FIELD = np.arange(240 * 96, dtype="f8").reshape(240, 96)
BLOCKS = {"aligned": (40, 96), "joined": ((31, 49, 160), (50, 46))}


def counting(folder: Path, block: np.ndarray, block_id: Any = None) -> np.ndarray:
    """The block; a byte more in a file of its own says that it was computed."""
    with open(folder / "-".join(map(str, block_id)), "ab") as file:
        file.write(b"x")
    return block * 2


def counted(folder: Path, blocks: Any) -> da.Array:
    folder.mkdir()
    x = da.from_array(FIELD, chunks=blocks)
    return x.map_blocks(lambda block, block_id=None: counting(folder, block, block_id), meta=np.empty(0))


def times(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.iterdir()]


@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
def test_each_block_is_computed_once_and_ranks_stay(two: Client, tmp_path: Path, blocks: Any) -> None:
    x = counted(tmp_path / "times", blocks)
    job = ooc.rechunk(x, tmp_path / "a.zarr", chunks=(40, 12), memory="64MiB")
    a = within(job.run)
    np.testing.assert_array_equal(a[...], 2 * FIELD)
    assert times(tmp_path / "times") == [1] * x.npartitions
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zarr", "times"]
    pinned = [event for event in events(two, job) if event["verb"] not in ("put", "join")]
    assert pinned
    assert all(event["worker"] == home_of(job, event) for event in pinned)
    assert job.meter.write_requests == job.plan.traffic.write_requests


def test_computed_by_dask_from_a_persisted_array(two: Client, tmp_path: Path) -> None:
    x = counted(tmp_path / "times", BLOCKS["joined"]).persist()
    job = ooc.rechunk(x, tmp_path / "a.zarr", chunks=(240, 12), memory="64MiB")
    (a,) = within(lambda: dask.compute(job))
    np.testing.assert_array_equal(a[...], 2 * FIELD)
    assert times(tmp_path / "times") == [1] * x.npartitions


def slow(block: np.ndarray) -> np.ndarray:
    time.sleep(0.05)
    return block * 2


@pytest.mark.parametrize("chunks", [(8, 96), (240, 12)], ids=["aligned", "joined"])
def test_a_worker_that_dies_costs_time_and_no_data(two: Client, tmp_path: Path, chunks: Any) -> None:
    x = da.from_array(FIELD, chunks=(8, 96)).map_blocks(slow, meta=np.empty(0))
    job = ooc.rechunk(x, tmp_path / "a.zarr", chunks=chunks, memory="64MiB")
    told = lambda: len([event for event in events(two, job) if event["verb"] == "put"]) > 8  # noqa: E731
    kill_when(two, job, job.placement[0], told)
    a = within(job.run)
    assert job.moves
    np.testing.assert_array_equal(a[...], 2 * FIELD)
    assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]
    two.wait_for_workers(2, timeout=60)


def failing(block: np.ndarray, block_id: Any = None) -> np.ndarray:
    if block_id == (2, 1):
        raise ZeroDivisionError("of the user")
    return block


def test_a_task_that_comes_after_its_run_was_given_up_does_nothing(two: Client, tmp_path: Path) -> None:
    """A block of the user can fail before scratch has been made: that task is then on its way to a worker."""
    x = da.from_array(FIELD, chunks=BLOCKS["joined"])
    job = ooc.rechunk(x, tmp_path / "a.zarr", chunks=(240, 12), memory="64MiB")
    graph = job.__dask_graph__()
    (first,) = (key for key in graph if key[0].startswith("make scratch"))
    two.run(settled, (job.run_id,), (first[0].removeprefix("make scratch-"),))
    with pytest.raises(RunError, match="has been given up"):
        within(lambda: two.get(graph, first))
    assert not list(tmp_path.iterdir())


def test_a_block_that_fails_leaves_no_scratch(two: Client, tmp_path: Path) -> None:
    x = da.from_array(FIELD, chunks=BLOCKS["joined"]).map_blocks(failing, meta=np.empty(0))
    job = ooc.rechunk(x, tmp_path / "a.zarr", chunks=(240, 12), memory="64MiB")
    with pytest.raises(ZeroDivisionError, match="of the user"):
        within(job.run)
    assert not list(tmp_path.iterdir())
