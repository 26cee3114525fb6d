"""A group on the workers of a cluster: ranks of every array where they belong, and a lost worker is no loss."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import CorruptChunkError, PlacementError
from tests.flat import flat
from tests.graphs.clusters import FIELD, events, kill_when, until, within
from tests.seams import KEPT_REQUEST, KEPT_SOURCE
from tests.small import CODECS

pytestmark = pytest.mark.long

NAMES = ["one", "deep/two", "three"]
CHUNKS: dict[str, Any] = {"one": (1024, 64), "deep/two": (1024, 20), "three": (512, 128)}


@pytest.fixture
def group(tmp_path: Path) -> Path:
    root = zarr.create_group(tmp_path / "group")
    for number, name in enumerate(NAMES):
        root.create_array(name, data=FIELD + number, chunks=(50, 768), compressors=CODECS["zstd"])
    root.create_array("axis", data=np.arange(1000), chunks=(10,))
    return tmp_path / "group"


def job_of(group: Path, **options: Any) -> ooc.Job:
    given = {"chunks": CHUNKS, "memory": "40MiB", "method": "two-phase", "compressors": ()} | options
    job = flat(ooc.rechunk, group, group.parent / "target", **given)
    assert isinstance(job, ooc.Job)
    return job


def check(group: Path, target: ooc.OutOfCoreGroup) -> None:
    for number, name in enumerate(NAMES):
        np.testing.assert_array_equal(target[name], FIELD + number)
        assert target[name].chunks == CHUNKS[name]
    np.testing.assert_array_equal(target["axis"], np.arange(1000))
    assert sorted(path.name for path in group.parent.iterdir()) == ["group", "target"]
    assert {path.name for path in group.parent.rglob(".*")} == {KEPT_REQUEST, KEPT_SOURCE}


def plugins(client: Client) -> list[str]:
    def ours(dask_scheduler: Any) -> list[str]:
        return [name for name in dask_scheduler.plugins if "oocarrays" in name]

    return client.run_on_scheduler(ours)


def test_every_rank_runs_where_it_was_put(three: Client, group: Path) -> None:
    job = job_of(group)
    assert job.plan.tasks == len(job._graph)
    check(group, within(job.run))
    told = events(three, job)
    workers = list(dict.fromkeys(job.placement.values()))
    assert len(workers) == 3
    for event in told:
        if event["verb"] in ("read", "write"):
            (ranks,) = {plan.ranks for _, plan in job.plan.members}
            assert event["worker"] == workers[event["args"][-1] * 3 // ranks], "each has as many, in order"
    counts = Counter(event["verb"] for event in told)
    assert counts["finish"] == counts["create"] == 1 + len(NAMES)
    assert counts["copy"] == len(job.plan.copies.batches) == 1
    traffic = job.plan.traffic
    assert (job.meter.read_requests, job.meter.write_requests) == (traffic.read_requests, traffic.write_requests)
    assert job.meter.copied_objects == 101
    until(lambda: plugins(three) == [])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("verb", "member"), [("copy", 0), ("write", 0), ("round", 1), ("finish", 1)])
def test_a_lost_worker_is_no_loss(three: Client, group: Path, verb: str, member: int) -> None:
    """What is finished is not written again, though tasks of it may run again."""
    three.wait_for_workers(3, timeout=60)
    job = job_of(group)

    def ready() -> bool:
        told = Counter(event["verb"] for event in events(three, job))
        return bool(told[verb] and told["finish"] >= member)

    kill_when(three, job, job.placement[0], ready)
    check(group, within(job.run))
    assert job.meter.write_requests < 2 * job.plan.traffic.write_requests


def test_a_run_that_failed_is_gone_on_with(three: Client, group: Path) -> None:
    three.wait_for_workers(3, timeout=60)
    chunk = group / "deep" / "two" / "c" / "3" / "0"
    kept = chunk.read_bytes()
    chunk.write_bytes(b"?")
    with pytest.raises(CorruptChunkError):
        within(job_of(group).run)
    assert ooc.open_array(group.parent / "target" / "one").chunks == CHUNKS["one"]
    chunk.write_bytes(kept)
    job = ooc.resume(group.parent / "target", as_is=True)  # a chunk was mended
    assert isinstance(job, ooc.Job)
    assert [name for name, _ in job.plan.members] == NAMES[1:]
    check(group, within(job.run))


def test_a_store_in_memory_is_refused(three: Client, group: Path) -> None:
    with pytest.raises(PlacementError, match="in this process's memory"):
        ooc.rechunk(group, MemoryStore(), chunks=CHUNKS, memory="40MiB")
