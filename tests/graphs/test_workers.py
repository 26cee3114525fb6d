"""Runs on the workers of real clusters: where ranks run, what goes between them, and how Dask is asked to run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import BudgetError, CorruptChunkError, InputError, PlacementError, TargetError
from tests.flat import flat
from tests.graphs.clusters import FIELD, assert_steps, cluster, events, home_of, tight, tight_cluster, within
from tests.seams import KEPT_REQUEST, KEPT_SOURCE, known_workers, replace_step, set_constants
from tests.small import CODECS, make

MEMORY = "40MiB"
METHODS = ("independent", "two-phase", "assembled", "staged")


@pytest.fixture
def field(tmp_path: Path) -> Path:
    make(tmp_path / "field.zarr", FIELD, chunks=(50, 768))
    return tmp_path / "field.zarr"


def job_of(source: Path, method: str = "two-phase", **options: Any) -> ooc.Job:
    target = options.pop("target", source.parent / "target.zarr")
    return flat(ooc.rechunk, source, target, **({"chunks": (1024, 40), "method": method, "memory": MEMORY} | options))


def run(job: ooc.Job) -> ooc.OutOfCoreArray:
    return within(job.run)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_right_array(three: Client, tmp_path: Path, method: str, codec: str) -> None:
    make(tmp_path / "field.zarr", FIELD, chunks=(50, 768), compressors=CODECS[codec], attributes={"unit": "K"})
    job = job_of(tmp_path / "field.zarr", method)
    assert (job.plan.strategy, job.plan.processes) == (method, 3)
    target = run(job)
    np.testing.assert_array_equal(target, FIELD)
    assert target.attrs == {"unit": "K"}
    assert sorted(path.name for path in Path(target.store).iterdir()) == [KEPT_REQUEST, KEPT_SOURCE, "c", "zarr.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["field.zarr", "target.zarr"]
    t, meter = job.plan.traffic, job.meter
    assert (meter.read_requests, meter.write_requests, meter.decoded_bytes) == (
        t.read_requests,
        t.write_requests,
        t.decoded_bytes,
    )


@pytest.mark.parametrize(
    ("shape", "chunks", "target_chunks"),
    [((7,), (2,), (3,)), ((), (), ()), ((0, 5), (1, 5), (1, 1)), ((9, 11, 13), (2, 11, 13), (9, 4, 5))],
    ids=str,
)
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_odd_shapes_and_more_ranks_than_workers(
    three: Client, tmp_path: Path, shape: tuple, chunks: tuple, target_chunks: tuple, ranks: int
) -> None:
    data = np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)
    zarr.create_array(tmp_path / "field.zarr", data=data, chunks=chunks or "auto", compressors=None)
    job = job_of(tmp_path / "field.zarr", chunks=target_chunks, ranks=ranks)
    np.testing.assert_array_equal(run(job), data)
    assert len(job.placement) == (ranks if job.plan.passes else 1)


@pytest.mark.parametrize(("count", "name"), [(1, "PEX"), (2, "PEX"), (5, "GEN")])
def test_ranks_run_where_they_were_put_and_exchange_in_steps(field: Path, count: int, name: str) -> None:
    with cluster(count) as client:
        job = tight(lambda **memory: job_of(field, ranks=count, schedule=name, **memory))
        np.testing.assert_array_equal(run(job), FIELD)
        told = events(client, job)
    assert len(set(job.placement.values())) == count
    for event in told:
        assert event["worker"] == home_of(job, event), event
    assert_steps(job)
    assert job.plan.passes[0].units > 2


@pytest.mark.parametrize("method", ["independent", "two-phase", "assembled"])
def test_elements_are_stored_in_the_order_that_was_asked_for(three: Client, tmp_path: Path, method: Any) -> None:
    ooc.create_array(
        ooc.Target(tmp_path / "s", orientation="column", compressors=()), shape=(90, 61), dtype="i4", chunks=(90, 7)
    )
    values = np.arange(90 * 61, dtype="i4").reshape(90, 61)
    ooc.open_array(tmp_path / "s", mode="r+")[...] = values
    for orientation, chunks in (("column", (90, 11)), ("row", (13, 61))):
        job = ooc.rechunk(
            tmp_path / "s",
            ooc.Target(tmp_path / "t", orientation=orientation),
            chunks=chunks,
            method=method,
            memory="48MiB",
            overwrite=True,
            scheduler=three,
        )
        np.testing.assert_array_equal(zarr.open_array(job.run().store, mode="r")[...], values)
        first = np.frombuffer((tmp_path / "t/c/0/0").read_bytes(), "i4")
        box = values[: chunks[0], : chunks[1]]
        np.testing.assert_array_equal(first, (box if orientation == "row" else box.T).reshape(-1))


def test_messages_may_come_as_they_come(three: Client, field: Path) -> None:
    with dask.config.set({"oocarrays.assembly": "asynchronous"}):
        np.testing.assert_array_equal(run(job_of(field)), FIELD)


@pytest.mark.parametrize(
    "ask",
    [
        lambda job, client: dask.compute(job)[0],
        lambda job, client: job.persist().compute(),
        lambda job, client: client.compute(job).result(),
        lambda job, client: dask.delayed(lambda a: a)(job).compute(),
        lambda job, client: dask.compute(dask.delayed(sum)([1, 2]), job)[1],
    ],
    ids=["compute", "persist", "client.compute", "in a larger graph", "beside others"],
)
def test_pins_survive_however_it_is_run(three: Client, field: Path, ask: Any) -> None:
    job = job_of(field)
    np.testing.assert_array_equal(within(lambda: ask(job, three)), FIELD)
    told = events(three, job)
    assert {event["worker"] for event in told} == set(job.placement.values())
    assert all(event["worker"] == home_of(job, event) for event in told)


def test_an_earlier_result_that_is_held_does_not_stand_for_a_new_run(three: Client, field: Path) -> None:
    held = within(job_of(field).persist)
    within(held.compute)
    (field.parent / "target.zarr").rename(field.parent / "gone.zarr")
    np.testing.assert_array_equal(run(job_of(field)), FIELD)


def test_a_cluster_that_moves_pinned_tasks_is_refused(
    three: Client, field: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_step(monkeypatch, "pin ranks", lambda *args: None)
    job = job_of(field, ranks=6)
    job._addresses = job._addresses[::-1]  # Dask knows no reason to put them so
    monkeypatch.setattr(job, "_find_workers", lambda cluster: None)
    with pytest.raises(PlacementError, match="pinned") as caught:
        run(job)
    assert len(str(caught.value).splitlines()) == 1
    assert not (field.parent / "target.zarr").exists()


def test_workers_are_chosen_by_name_or_address(three: Client, field: Path) -> None:
    address = sorted(known_workers(three))[1]
    assert set(job_of(field, workers=[address]).placement.values()) == {address}
    assert len(set(job_of(field, workers=["0", "2"]).placement.values())) == 2
    with pytest.raises(PlacementError, match="'nobody'"):
        job_of(field, workers=["nobody"])


def test_threads_are_used_where_they_are_asked_for(three: Client, field: Path) -> None:
    job = job_of(field, scheduler="threads")
    assert (job.plan.processes, job.placement) == (None, {})
    np.testing.assert_array_equal(run(job), FIELD)
    with pytest.raises(PlacementError, match="no cluster"):
        job_of(field, scheduler="threads", workers=["0"], target=field.parent / "other.zarr")


def test_nobody_answers_at_an_address(field: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_constants(monkeypatch, worker_dial_seconds=1)
    with pytest.raises(PlacementError, match=r"127\.0\.0\.1:9"):
        within(lambda: job_of(field, scheduler="tcp://127.0.0.1:9"))


def test_what_only_this_process_has_is_refused(three: Client, field: Path) -> None:
    with pytest.raises(InputError) as caught:
        run(job_of(field, target=zarr.storage.MemoryStore()))
    assert len(str(caught.value).splitlines()) == 1


def test_a_corrupt_chunk_stops_the_run_in_one_line(three: Client, tmp_path: Path) -> None:
    make(tmp_path / "field.zarr", FIELD, chunks=(50, 768), compressors=CODECS["zstd"])
    (tmp_path / "field.zarr" / "c" / "7" / "0").write_bytes(b"no chunk")
    with pytest.raises(CorruptChunkError, match="c/7/0") as caught:
        run(job_of(tmp_path / "field.zarr"))
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.rglob("*.partial"))
    with pytest.raises(TargetError, match="exists"):
        job_of(tmp_path / "field.zarr")


def test_budgets_follow_from_the_limits_of_workers(field: Path) -> None:
    with cluster(2, memory_limit="400MB"):
        job = job_of(field, memory=None)
        assert 100e6 < job.plan.budget < 0.7 * 400e6 - 100e6
    with tight_cluster(1, "150MB"), pytest.raises(BudgetError, match="worker"):
        job_of(field, memory=None, target=field.parent / "other.zarr")
