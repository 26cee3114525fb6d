"""The main job over S3's own interface, by obstore and by s3fs."""

from __future__ import annotations

import pickle
import signal
import time
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import oocarrays as ooc
from tests.dying import Server
from tests.flat import flat
from tests.profiles import examples
from tests.seams import (
    KEPT_REQUEST,
    KEPT_SOURCE,
    Journal,
    replace_step,
    step,
    store_at,
    unfinished_run,
)
from tests.small import DATA
from tests.stores.servers import BUCKET, S3
from tests.strategies import chunks_for
from tests.test_rechunk import assert_moved_as_planned

pytestmark = [pytest.mark.long, pytest.mark.sampled(2)]


def make(s3: S3, url: str, data: np.ndarray = DATA, **options: Any) -> str:
    store = store_at(url, s3.direct)
    zarr.create_array(
        store, data=data, **({"chunks": (8, data.shape[1]), "compressors": None, "overwrite": True} | options)
    )
    return url


def plan(s3: S3, source: Any, target: Any, **options: Any) -> ooc.Job:
    asked = {"chunks": (96, 10), "memory": "128MiB", "storage_options": s3.options} | options
    return flat(ooc.rechunk, source, target, **asked)


LIBRARIES = ("obstore", "fsspec")


@examples(12)
@given(st.data())
def test_any_chunks_are_sieved_or_read_in_ranges(servers: S3, data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 12)))
    values = np.arange(1, np.prod(shape) + 1, dtype="i4").reshape(shape)
    source = make(servers, servers.url("any"), values, chunks=data.draw(chunks_for(shape)))
    job = plan(servers, source, servers.url("any-target"), chunks=data.draw(chunks_for(shape)), overwrite=True)
    np.testing.assert_array_equal(job.run()[...], values)
    assert_moved_as_planned(job)


def test_looking_makes_nothing_and_reads_no_chunk(s3: S3, library: str) -> None:
    source = make(s3, s3.url("looked"))
    s3.tell()
    job = plan(s3, source, s3.url("nothing-there"))
    assert "s3://cubes/nothing-there" in repr(job)
    assert s3.counts().get("PUT", 0) == 0
    assert s3.keys("nothing-there") == []


def test_requests_wait_together_and_no_more_than_were_asked_for(s3: S3, library: str) -> None:
    source = make(s3, s3.url("far"), chunks=(2, 80))
    s3.tell(latency=0.1)
    with dask.config.set({"oocarrays.requests": 24}):
        job = plan(s3, source, s3.url(f"far-{library}"), chunks=(96, 2))
        job.run()
    assert 8 <= s3.counts()["most"] <= 24
    assert job.plan.ranks * max(step.requests for step in job.plan.passes) <= 24


def test_a_plan_counts_what_is_under_way(s3: S3) -> None:
    source = make(s3, s3.url("counted"))
    with dask.config.set({"oocarrays.requests": 1}):
        one = plan(s3, source, s3.url("counted-target"), ranks=1).plan.passes[0]
    many = plan(s3, source, s3.url("counted-target"), ranks=1).plan.passes[0]
    assert (one.requests, many.requests > 4) == (1, True)
    assert many.peak_bytes - one.peak_bytes >= (many.requests - 1) * DATA.nbytes // 12


@pytest.mark.parametrize("fault", ["503", "429", "400 RequestTimeout", "drop"])
def test_what_fails_in_passing_is_asked_again(s3: S3, library: str, fault: str) -> None:
    source = make(s3, s3.url("faulty"))
    job = plan(s3, source, s3.url(f"faulty-{library}"), overwrite=True)
    s3.tell(fault=fault, times=3, match="GET .*/faulty/c/" if fault == "drop" else "(GET|PUT) .*/c/")
    np.testing.assert_array_equal(job.run()[...], DATA)
    assert s3.counts()["faults"] == 3


def test_silence_is_not_waited_for_for_ever(s3: S3, library: str) -> None:
    source = make(s3, s3.url("silent"))
    with dask.config.set({"oocarrays.request-timeout": "1s"}):
        job = plan(s3, source, s3.url(f"silent-{library}"), overwrite=True)
        s3.tell(fault="hang", times=1, match="/silent/c/3")
        np.testing.assert_array_equal(job.run()[...], DATA)


@pytest.mark.parametrize("match", ["GET .*/hopeless/c/5", "PUT .*/c/0/7"], ids=["read", "write"])
def test_a_store_that_fails_on_and_on_is_one_line_and_the_run_can_be_resumed(s3: S3, library: str, match: str) -> None:
    source, target = make(s3, s3.url("hopeless")), s3.url(f"hopeless-{library}")
    with dask.config.set({"oocarrays.retries": 1}):
        job = plan(s3, source, target, overwrite=True, chunks=(48, 10))
        s3.tell(fault="503", times=1000, match=match)
        with pytest.raises(ooc.errors.StoreFailure) as failed:
            job.run()
    line = str(failed.value)
    assert "\n" not in line
    assert "503" in line
    assert ("c/5/0 of s3://cubes/hopeless" in line) or (f"c/0/7 of {target}" in line)
    s3.tell()
    with pytest.raises(ooc.errors.UnfinishedError):
        ooc.open_array(target, storage_options=s3.options)
    again = ooc.resume(target, storage_options=s3.options)
    np.testing.assert_array_equal(again.run()[...], DATA)


def test_refused_credentials_are_one_line_before_work_starts(s3: S3, library: str) -> None:
    source = make(s3, s3.url("secret"))
    s3.tell(fault="403", times=1000, match="/secret/")
    with pytest.raises(ooc.errors.StoreFailure, match="credentials were refused") as refused:
        plan(s3, source, s3.url("secret-target"))
    assert "s3://cubes/secret" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert s3.counts()["faults"] <= 3, "a refusal is not asked again"


def test_a_bucket_that_is_not_there_is_one_line(s3: S3, library: str) -> None:
    source = make(s3, s3.url("here"))
    with pytest.raises(ooc.errors.StoreFailure, match=r"s3://nowhere/t: there is no such bucket"):
        plan(s3, source, "s3://nowhere/t")
    with pytest.raises(ooc.errors.NotFoundError, match="s3://nowhere/s"):
        plan(s3, "s3://nowhere/s", s3.url("t"))


def test_what_is_there_is_not_overwritten_unless_asked_for(s3: S3, library: str) -> None:
    source, target = make(s3, s3.url("mine")), make(s3, s3.url("yours"))
    with pytest.raises(ooc.errors.TargetError, match="exists; pass overwrite=True"):
        plan(s3, source, target)
    with pytest.raises(ooc.errors.TargetError, match="is the source itself"):
        plan(s3, source, source, overwrite=True)
    with pytest.raises(ooc.errors.TargetError, match="one inside the other"):
        plan(s3, source, f"{source}/inside")
    plan(s3, source, target, overwrite=True, chunks=(48, 40)).run()
    assert ooc.open_array(target, storage_options=s3.options).chunks == (48, 40)


def test_a_killed_run_is_resumed_from_its_journal(s3: S3, library: str, runs: Server) -> None:
    source, target = make(s3, s3.url("long")), s3.url(f"long-{library}")
    s3.tell(latency=0.05)
    options = {"source": source, "target": target, "chunks": [16, 16], "memory": "64MiB", "storage_options": s3.options}
    settings = {"oocarrays.store-library": library, "oocarrays.requests": 4}
    run = runs.start("rechunk", method="two-phase", config=settings, **options)
    while len(s3.keys(f"long-{library}/c/")) < 8 and not run.ended:
        time.sleep(0.02)
    assert run.kill() == -signal.SIGKILL, run.err
    s3.tell()
    job = ooc.resume(target, storage_options=s3.options)
    np.testing.assert_array_equal(job.run()[...], DATA)
    assert s3.keys(f"long-{library}/.oocarrays") == [f"long-{library}/{KEPT_REQUEST}", f"long-{library}/{KEPT_SOURCE}"]


@pytest.mark.parametrize("good", [True, False], ids=["well", "badly"])
def test_scratch_on_a_store_is_gone_however_the_run_ends(s3: S3, library: str, good: bool) -> None:
    source, scratch = make(s3, s3.url("staged")), s3.url(f"scratch-{library}")
    job = plan(s3, source, s3.url(f"staged-{library}"), method="staged", scratch=scratch, overwrite=True)
    assert all(stored.remote for stored in job.plan.scratch)
    if good:
        np.testing.assert_array_equal(job.run()[...], DATA)
        assert_moved_as_planned(job)
    else:
        s3.tell(fault="400", times=1, match=f"PUT .*/staged-{library}/c/")
        with pytest.raises(ooc.errors.StoreFailure):
            job.run()
        s3.tell()
    assert s3.keys(f"scratch-{library}") == []


def test_the_local_way_to_and_from_a_store(s3: S3, library: str, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a", data=DATA, chunks=(8, 80))
    up = plan(s3, f"file://{tmp_path}/a", s3.url(f"up-{library}"), overwrite=True)
    assert up.plan.source.local
    assert up.plan.target.remote
    np.testing.assert_array_equal(up.run()[...], DATA)
    down = plan(s3, s3.url(f"up-{library}"), f"file://{tmp_path}/b", chunks=(8, 80))
    assert down.plan.target.local
    down.run()
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "b", mode="r")[...], DATA)


def test_stores_of_a_users_own_and_arrays_in_them(s3: S3, library: str) -> None:
    url = make(s3, s3.url("own"))
    own = store_at(url, s3.options)._store
    array = zarr.open_array(own, mode="r")
    for source in (own, array, ooc.open_array(own)):
        job = plan(s3, source, s3.url("own-target"), overwrite=True)
        assert job.plan.source.remote
        np.testing.assert_array_equal(job.run()[...], DATA)


def test_a_store_travels_to_another_process(s3: S3, library: str) -> None:
    store = store_at(make(s3, s3.url("travels")), s3.options)
    again = pickle.loads(pickle.dumps(store))
    assert (str(again), again) == ("s3://cubes/travels", store)
    np.testing.assert_array_equal(zarr.open_array(again, mode="r")[...], DATA)


def test_workers_of_a_cluster_read_and_write_s3(s3: S3) -> None:
    from distributed import Client, LocalCluster

    source = make(s3, s3.url("shared"))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for method in ("independent", "two-phase"):
            job = plan(s3, source, s3.url(f"shared-{method}"), scheduler=client, method=method, overwrite=True)
            np.testing.assert_array_equal(job.run()[...], DATA)
            assert job.plan.processes == 2
    assert unfinished_run(store_at(s3.url("shared-two-phase"), s3.options)) is None


def test_the_command_line_takes_urls(s3: S3, capsys: pytest.CaptureFixture[str]) -> None:
    from oocarrays.cli.main import main

    make(s3, s3.url("cli"))
    words = [f"--storage-option={name}={s3.options[name]}" for name in ("endpoint_url", "key", "secret")]
    words.append("--storage-option=region_name=us-east-1")
    assert main(["rechunk", s3.url("cli"), s3.url("cli-target"), "--chunks", "96,10", *words]) == 0
    assert "wrote s3://cubes/cli-target" in capsys.readouterr().out
    assert main(["info", s3.url("cli-target"), *words]) == 0
    assert "96 × 10" in capsys.readouterr().out
    assert main(["info", f"s3://{BUCKET}/none", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def recorded_chunk(journal: Journal) -> str:
    """The key of a chunk that was stored."""
    (receipts,) = (each for each in journal.stored().values() if each)
    return min(receipts[""])


def spoil(store: Any, key: str, fault: str) -> None:
    """Do something to an object."""
    buffer = sync(store.get(key, default_buffer_prototype()))
    data = bytearray(buffer.to_bytes())
    data[len(data) // 3] ^= 1
    if fault == "removed":
        sync(store.delete(key))
    else:
        sync(store.set(key, type(buffer).from_bytes(bytes(data[:-1] if fault == "truncated" else data))))


def test_a_journal_that_cannot_be_removed_is_told_of_and_swept_later(s3: S3, library: str) -> None:
    source, target = make(s3, s3.url("unswept-source")), s3.url(f"unswept-{library}")
    with dask.config.set({"oocarrays.retries": 1}):
        job = plan(s3, source, target, overwrite=True)
        s3.tell(fault="503", times=1000, match="DELETE |POST .*delete")
        with pytest.warns(RuntimeWarning, match=rf"unswept-{library} is finished, and .oocarrays in it is left"):
            job.run()
    s3.tell()
    np.testing.assert_array_equal(ooc.open_array(target, storage_options=s3.options)[...], DATA)
    assert s3.keys(f"unswept-{library}/.oocarrays/")
    with pytest.raises(ooc.errors.NotFoundError, match="nothing to resume"):
        ooc.resume(target, storage_options=s3.options)
    assert not s3.keys(f"unswept-{library}/.oocarrays/")


@pytest.mark.parametrize("fault", ["source", "removed", "truncated", "flipped"])
def test_a_run_that_goes_on_looks_at_its_source_and_at_its_chunks(s3: S3, library: str, fault: str) -> None:
    name = f"looked-{library}-{fault.replace(' ', '-')}"
    source, target = make(s3, s3.url(f"{name}-source")), s3.url(name)
    job = plan(s3, source, target, method="independent", ranks=1)
    publish = step("publish entry")

    def stop(self: Journal, *done: Any) -> None:
        publish(self, *done)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        job._run.live.syncer.patience = 0.0
        replace_step(patch, "publish entry", stop)
        with pytest.raises(KeyboardInterrupt):
            job.run()
    if fault == "source":
        make(s3, source, DATA + 1)
        with pytest.raises(ooc.errors.JournalError, match=r"of the chunks of .* have changed since"):
            ooc.resume(target, storage_options=s3.options)
        again = ooc.resume(target, storage_options=s3.options, again=True)
    else:
        spoil(store_at(target, s3.direct), recorded_chunk(Journal(store_at(target, s3.direct))), fault)
        with pytest.warns(RuntimeWarning, match="they are written again"):
            again = ooc.resume(target, storage_options=s3.options, verify=fault == "flipped")
    np.testing.assert_array_equal(again.run()[...], DATA + (fault == "source"))
