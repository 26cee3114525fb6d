"""Runs on a cluster and what they leave there: threads, chosen workers, steps, and nothing after them."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import BudgetError, CorruptChunkError, PlacementError
from tests.flat import flat
from tests.graphs.clusters import FIELD, cluster, events, home_of, tight_cluster, until, within
from tests.seams import PROCESS, known_workers, set_constants
from tests.small import CODECS, make

METHODS = ("independent", "two-phase", "assembled", "staged")
BLOSC = zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle")


@pytest.fixture(scope="module")
def three() -> Iterator[Client]:
    """Three workers of two threads each."""
    with cluster(3, threads_per_worker=2) as client:
        yield client


@pytest.fixture
def field(tmp_path: Path) -> Path:
    make(tmp_path / "field.zarr", FIELD, chunks=(50, 768), compressors=CODECS["zstd"])
    return tmp_path / "field.zarr"


def job_of(source: Path, method: str = "two-phase", **options: Any) -> ooc.Job:
    given = {"chunks": (1024, 64), "compressors": (), "memory": "48MiB"} | options
    return flat(ooc.rechunk, source, source.parent / "target.zarr", method=method, **given)


def on_scheduler(client: Client) -> tuple[int, list[str]]:
    """Tasks that the scheduler knows, and plugins of ours."""

    def ours(dask_scheduler: Any) -> tuple[int, list[str]]:
        return len(dask_scheduler.tasks), [name for name in dask_scheduler.plugins if "oocarrays" in name]

    return client.run_on_scheduler(ours)


# ---------------------------------------------------------------------- where, and in which order


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("formats", [(3, 3), (2, 3), (3, 2)], ids=str)
def test_shards_and_formats_on_workers(three: Client, tmp_path: Path, method: str, formats: tuple[int, int]) -> None:
    given, wanted = ({"shards": (150, 768)} if number == 3 else {} for number in formats)
    values = FIELD.astype(">f4") if formats[0] == 2 else FIELD
    make(tmp_path / "field.zarr", values, chunks=(50, 384), zarr_format=formats[0], **given)
    wanted = wanted and {"shards": (1024, 128)}
    job = job_of(tmp_path / "field.zarr", method, zarr_format=formats[1], chunks=(512, 64), memory="64MiB", **wanted)
    np.testing.assert_array_equal(within(job.run), FIELD)
    assert zarr.open_array(tmp_path / "target.zarr").shards == wanted.get("shards")
    assert job.meter.read_requests == job.plan.read_requests
    assert job.meter.index_requests <= job.plan.traffic.index_requests


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ranks", [None, 2, 7], ids=["any ranks", "2 ranks", "7 ranks"])
@pytest.mark.parametrize("method", METHODS)
def test_workers_of_several_threads(three: Client, tmp_path: Path, method: str, ranks: int | None) -> None:
    make(tmp_path / "field.zarr", FIELD, chunks=(50, 768), compressors=BLOSC)
    job = job_of(tmp_path / "field.zarr", method, ranks=ranks, compressors=None)
    np.testing.assert_array_equal(within(job.run), FIELD)
    assert all(event["worker"] == home_of(job, event) for event in events(three, job))
    t, meter = job.plan.traffic, job.meter
    assert (meter.read_requests, meter.decoded_bytes) == (t.read_requests, t.decoded_bytes)
    assert (meter.write_requests, meter.encoded_bytes) == (t.write_requests, t.encoded_bytes)


def test_only_chosen_workers_do_anything(three: Client, field: Path) -> None:
    there = sorted(known_workers(three))
    job = job_of(field, workers=[there[2], there[0]], ranks=4)
    np.testing.assert_array_equal(within(job.run), FIELD)
    assert list(job.placement.values()) == [there[2], there[2], there[0], there[0]]
    assert {event["worker"] for event in events(three, job)} == {there[0], there[2]}


@pytest.mark.parametrize("method", METHODS)
def test_dask_may_drop_whatever_two_workers_hold(three: Client, field: Path, method: str) -> None:
    """Its memory manager does so every few seconds: here all the time."""
    until(lambda: len(known_workers(three)) == 3)
    job, over = job_of(field, method, chunks=(1024, 32), memory="29MiB"), threading.Event()

    def drop() -> None:
        while not over.wait(0.01):
            three.amm.run_once()

    thread = threading.Thread(target=drop)
    thread.start()
    try:
        np.testing.assert_array_equal(within(job.run), FIELD)
    finally:
        over.set()
        thread.join()
    assert (job.meter.read_requests, job.moves) == (job.plan.read_requests, [])


# ---------------------------------------------------------------------- what has changed since it was planned


@pytest.mark.parametrize("run", [lambda job: job.run(), lambda job: dask.compute(job)[0]], ids=["run", "compute"])
def test_a_worker_is_another_one_when_the_run_begins(three: Client, field: Path, run: Any) -> None:
    until(lambda: len(known_workers(three)) == 3)
    job = job_of(field)
    gone = job.placement[2]
    os.kill(three.run(os.getpid)[gone], signal.SIGKILL)
    until(lambda: gone not in (there := known_workers(three)) and len(there) == 3)
    np.testing.assert_array_equal(within(lambda: run(job)), FIELD)
    assert gone not in {event["worker"] for event in events(three, job)}


def test_a_worker_that_dies_after_the_run_has_nothing_done_again(three: Client, field: Path) -> None:
    """Whoever held on to the last task would have the target written once more."""
    until(lambda: len(known_workers(three)) == 3)
    job = job_of(field, overwrite=True)
    within(job.run)
    (last,) = (event["worker"] for event in events(three, job) if event["verb"] == "finish")
    told = len(events(three, job))
    until(lambda: on_scheduler(three) == (0, []))
    os.kill(three.run(os.getpid)[last], signal.SIGKILL)
    until(lambda: last not in (there := known_workers(three)) and len(there) == 3)
    assert on_scheduler(three) == (0, [])
    assert len(events(three, job)) == told


# ---------------------------------------------------------------------- what it leaves


def fails(job: ooc.Job) -> None:
    with pytest.raises(CorruptChunkError) as caught:
        within(job.run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("corrupt", [False, True], ids=["well", "ill"])
@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_left_on_the_cluster(three: Client, field: Path, method: str, corrupt: bool) -> None:
    job = job_of(field, method)
    if corrupt:
        (field / "c" / "11" / "0").write_bytes(b"no chunk")
    fails(job) if corrupt else within(job.run)
    until(lambda: on_scheduler(three) == (0, []))
    if not (corrupt and method == "assembled"):  # what was placed is gone on with
        assert not list(field.parent.rglob("*.partial"))
    assert {path.name for path in field.parent.iterdir()} == {"field.zarr", "target.zarr"}
    run, job = weakref.ref(job._run), None
    until(lambda: gc.collect() >= 0 and run() is None)


def test_a_scheduler_keeps_the_events_of_few_runs(three: Client, field: Path) -> None:
    def kept(dask_scheduler: Any) -> list[str]:
        return [name for name in dask_scheduler._broker._topics if name.startswith("oocarrays-")]

    three.run_on_scheduler(lambda: set_constants(PROCESS, told_runs=2))
    try:
        jobs = [job_of(field, overwrite=True) for _ in range(5)]
        for job in jobs:
            within(job.run)
        told = three.run_on_scheduler(kept)
    finally:
        three.run_on_scheduler(lambda: PROCESS.undo())
    assert [job._run.topic for job in jobs[-2:]] == told[-2:]
    assert len(told) <= 3


def test_a_failed_job_can_be_run_again(three: Client, field: Path) -> None:
    chunk = field / "c" / "11" / "0"
    good = chunk.read_bytes()
    job = job_of(field, overwrite=True)
    chunk.write_bytes(b"no chunk")
    fails(job)
    chunk.write_bytes(good)
    np.testing.assert_array_equal(within(job.run), FIELD)


def test_looking_at_a_graph_starts_nothing(three: Client, field: Path) -> None:
    job = job_of(field)
    assert all([job.__dask_graph__(), repr(job), job.explain(), job._repr_html_(), dask.base.tokenize(job)])
    assert on_scheduler(three)[0] == 0
    assert list(field.parent.iterdir()) == [field]
    np.testing.assert_array_equal(within(job.run), FIELD)


# ---------------------------------------------------------------------- what is refused


def refused(call: Any, says: str) -> None:
    with pytest.raises(PlacementError, match=says) as caught:
        within(call)
    assert "\n" not in str(caught.value)


def test_no_workers_are_one_clear_line(three: Client, field: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    until(lambda: len(known_workers(three)) == 3)
    set_constants(monkeypatch, worker_arrival_seconds=0.2)
    refused(lambda: job_of(field, workers=[]), "is empty")
    with cluster(0) as client:
        refused(lambda: job_of(field, scheduler=client), "has no workers")
        job = job_of(field, scheduler=three)
    closed = Client(three.scheduler.address, set_as_default=False)
    late = job_of(field, scheduler=closed)
    closed.close()
    refused(lambda: job_of(field, scheduler=closed), "client is closed")
    refused(late.run, "client is closed")
    np.testing.assert_array_equal(within(job.run), FIELD)


def test_a_limit_that_leaves_nothing_is_refused_before_anything_runs(field: Path) -> None:
    with tight_cluster(1, "130MB") as client:
        with pytest.raises(BudgetError, match="a worker needs at least") as caught:
            job_of(field, memory=None, scheduler=client)
        assert "\n" not in str(caught.value)
        assert on_scheduler(client) == (0, [])
    assert list(field.parent.iterdir()) == [field]
