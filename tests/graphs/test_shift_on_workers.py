"""Halos and multicasts on a cluster: only borders travel, in the order of a schedule, each rank where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client, wait

import oocarrays as ooc
from tests.graphs.clusters import events, home_of, within
from tests.padding import seen
from tests.test_local_slabs import corners
from tests.whole import expected

FIELD = np.random.default_rng(5).integers(1, 99, (23, 18), dtype="i4")


@pytest.mark.parametrize(
    ("boundary", "schedule", "ranks"),
    [("none", "auto", 5), ("reflect", "pex", 4), ("periodic", "gen", 6), (-7, "rex", 4)],
)
def test_halos_between_workers(two: Client, boundary: Any, schedule: str, ranks: int) -> None:
    x = ooc.ranks.distribute(FIELD, "(block, block)", ranks=ranks)
    shifted = ooc.ranks.shift(x, (5, 2), boundary=boundary, resources=ooc.Resources(schedule=schedule))
    for rank, block in enumerate(within(shifted.compute)):
        np.testing.assert_array_equal(block, seen(FIELD, x.layout, rank, (5, 2), boundary))
    assert shifted.placement == x.placement


def test_windows_stay_with_their_ranks(two: Client) -> None:
    x = ooc.ranks.distribute(FIELD, "(block, *)", ranks=4).persist()
    shifted = within(ooc.ranks.shift(x, 1, boundary="nearest").persist)
    wait(two.futures_of(shifted))
    where = two.who_has(two.futures_of(shifted))
    for (*_, rank), held in where.items():
        assert held == (shifted.placement[rank],)
    assert len(where) == 4
    np.testing.assert_array_equal(within(x.compute), FIELD)


def test_a_section_to_all_workers(two: Client) -> None:
    x = ooc.ranks.distribute(FIELD, "(cyclic(3), block)", ranks=6)
    cast = ooc.ranks.multicast(x, np.s_[2:9, ::-4], root=4)
    for block in within(cast.compute):
        np.testing.assert_array_equal(block, FIELD[2:9, ::-4])


@pytest.mark.parametrize("own", [False, True], ids=["shared", "own disks"])
def test_halos_of_files(two: Client, tmp_path: Path, own: bool) -> None:
    """Borders are read by their ranks alone, sent as planned, and written where their files are."""
    a = ooc.create_array(
        ooc.Target(tmp_path / "a", compressors=(), folders=str(tmp_path / "disk-{rank}" / "f") if own else None),
        shape=FIELD.shape,
        dtype="i4",
        layout="(block, block)",
        grid=(2, 2),
        placement="local",
        depth=(5, 2),
        chunks=(8, 8),
    )
    for rank in range(4):
        zarr.open_array(a.files.place(rank), mode="r+")[...] = -9
    a[...] = FIELD
    job = ooc.ranks.shift(a, boundary="reflect")
    assert within(job.run) is a
    for rank in range(4):
        block = zarr.open_array(a.files.place(rank), mode="r")[...]
        np.testing.assert_array_equal(block, seen(FIELD, a.layout, rank, (5, 2), "reflect"))
    planned = job.plan.traffic
    for name in ("read_requests", "read_bytes", "write_requests", "written_bytes", "messages"):
        assert getattr(job.meter, name) == getattr(planned, name), name
    assert job.meter.sent_bytes == planned.exchanged_bytes
    assert all(event["worker"] == home_of(job, event) for event in events(two, job) if event["verb"] != "probe")
    cast = ooc.ranks.multicast(a, np.s_[10:13, 4:])
    for block in within(cast.compute):
        np.testing.assert_array_equal(block, FIELD[10:13, 4:])
    assert cast.meter.read_requests > 0


@pytest.mark.parametrize("own", [False, True], ids=["shared", "own disks"])
def test_a_pass_over_files(two: Client, tmp_path: Path, own: bool) -> None:
    """Each rank reads and writes where its files are, and neighbours hand each other what their windows reach into."""
    folders = str(tmp_path / "disk-{rank}" / "f") if own else None
    a = ooc.create_array(
        ooc.Target(tmp_path / "a", folders=folders),
        shape=FIELD.shape,
        dtype="i4",
        layout="(block, block)",
        grid=(2, 2),
        placement="local",
        chunks=(4, 8),
    )
    a[...] = FIELD
    kernel = corners((5, 2))
    job = ooc.map_slabs(
        kernel,
        a,
        ooc.Target(tmp_path / "b", folders=folders and f"{folders}-2"),
        depth=(5, 2),
        boundary="periodic",
        memory="100MiB",
        window=4,
    )
    b = within(job.run)
    np.testing.assert_array_equal(b[...], expected(kernel, [FIELD], (5, 2), "periodic")[0])
    assert bool(b.disks.workers) == own
    moved = {"probe", "create", "barrier", "finish"}
    assert all(event["worker"] == home_of(job, event) for event in events(two, job) if event["verb"] not in moved)
