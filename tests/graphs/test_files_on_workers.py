"""Array files on a cluster: ranks stay, messages go as planned, a lost worker costs nothing but time, own disks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import BudgetError, DescriptorError, PlacementError
from tests.graphs.clusters import cluster, events, home_of, kill_when, within
from tests.mapping.local_parts import expected

pytestmark = pytest.mark.long

FIELD = np.random.default_rng(3).integers(1, 99, (240, 96), dtype="i4")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    zarr.create_array(tmp_path / "a", data=FIELD, chunks=(16, 96), compressors=None, fill_value=-1)
    return tmp_path / "a"


def tight(plan: Callable[..., ooc.Job]) -> ooc.Job:
    """A job in the least memory that it needs: of many rounds."""
    try:
        return plan(memory=1)
    except BudgetError as error:
        return plan(memory=error.least)


@pytest.mark.parametrize(("layout", "depth"), [("(block, *)", (3, 1)), ("(cyclic(5), block)", (0, 2))])
def test_scattered_and_gathered(two: Client, source: Path, tmp_path: Path, layout: str, depth: Any) -> None:
    job = tight(
        lambda memory: ooc.ranks.scatter_files(source, layout, tmp_path / "l", ranks=4, depth=depth, memory=memory)
    )
    a = within(job.run)
    assert len(job.plan.rounds) > 5
    for rank in range(4):
        np.testing.assert_array_equal(a.local(rank)[...], expected(FIELD, a.layout, rank, depth, -1))
    back = tight(lambda memory: ooc.ranks.gather_files(a, ooc.Target(tmp_path / "g", chunks=(50, 20)), memory=memory))
    np.testing.assert_array_equal(within(back.run)[...], FIELD)
    for each in (job, back):
        planned = each.plan.traffic
        counts = ("read_requests", "read_bytes", "write_requests", "written_bytes", "messages")
        assert [getattr(each.meter, n) for n in counts] == [getattr(planned, n) for n in counts]
        assert all(event["worker"] == home_of(each, event) for event in events(two, each))


def test_a_worker_killed_in_the_middle(source: Path, tmp_path: Path) -> None:
    with cluster(2) as client:
        job = tight(
            lambda memory: ooc.ranks.scatter_files(source, "(block, *)", tmp_path / "l", ranks=4, memory=memory)
        )
        address = job.placement[3]
        killer = kill_when(client, job, address, lambda: job.meter.write_requests > 6)
        a = within(job.run)
        killer.join()
        np.testing.assert_array_equal(a[...], FIELD)


def test_files_on_workers_own_disks(two: Client, source: Path, tmp_path: Path) -> None:
    folders = str(tmp_path / "disk-{rank}" / "f.zarr")
    a = within(
        ooc.ranks.scatter_files(source, "(block, *)", ooc.Target(tmp_path / "l", folders=folders), ranks=3, depth=1).run
    )
    assert [path.name for path in (tmp_path / "l").iterdir()] == ["zarr.json"]
    homes = a.disks.addresses()
    opened = two.run(lambda: [os.getpid()])
    assert set(homes) == set(opened)
    for rank in range(3):
        there = zarr.open_array(tmp_path / f"disk-{rank}" / "f.zarr", mode="r")[...]
        np.testing.assert_array_equal(there, expected(FIELD, a.layout, rank, (1, 1), -1))
    np.testing.assert_array_equal(a[::-7, 3:], FIELD[::-7, 3:])
    made = ooc.create_array(
        ooc.Target(tmp_path / "m", folders=folders + "-2"),
        shape=(9,),
        dtype="i4",
        layout="block",
        ranks=3,
        placement="local",
    )
    made[2:7] = 5
    np.testing.assert_array_equal(made[...], [0, 0, 5, 5, 5, 5, 5, 0, 0])
    assert "on worker 1" in repr(made)
    job = ooc.ranks.gather_files(a, tmp_path / "g")
    assert list(job.placement.values()) == homes
    np.testing.assert_array_equal(within(job.run)[...], FIELD)
    with pytest.raises(PlacementError, match="workers' own disks"):
        ooc.open_array(tmp_path / "l", scheduler="threads")
    (tmp_path / "disk-1").rename(tmp_path / "away")
    with pytest.raises(DescriptorError, match="rank 1 is missing, on worker 0's own disk"):
        ooc.open_array(tmp_path / "l")


def test_partitions_on_workers(two: Client, tmp_path: Path) -> None:
    field = np.random.default_rng(4).random((4096, 2048), dtype="f4")
    zarr.create_array(tmp_path / "a", data=field, chunks=(256, 2048), compressors=None)
    parts = list(ooc.ranks.partitions(tmp_path / "a", "(block, *)", ranks=4, memory="20MiB"))
    assert len(parts) > 1
    assert sum(part.section.size for part in parts) == field.size
    for part in parts:
        np.testing.assert_array_equal(within(part.compute), field[part.section.slices])
