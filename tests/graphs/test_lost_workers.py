"""Workers that die, pause and come; schedulers that are gone; and what each worker holds meanwhile."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client
from distributed.core import Status

import oocarrays as ooc
from oocarrays.errors import RunError
from oocarrays.graphs.run.live import GIVEN_UP, LIVE
from tests.flat import flat
from tests.graphs.clusters import FIELD, cluster, kill_when, most_held, tight, until, within
from tests.seams import JOURNAL_FOLDER, PROCESS, Journal, replace_step, set_constants, step
from tests.small import CODECS, make

pytestmark = pytest.mark.long

PHASES = {
    "independent": ("probe", "copy"),
    "two-phase": ("probe", "read", "send", "receive", "write", "free"),
    "assembled": ("probe", "assemble"),
    "staged": ("copy", "start"),
}


@pytest.fixture
def field(tmp_path: Path) -> Path:
    make(tmp_path / "field.zarr", FIELD, chunks=(50, 768), compressors=CODECS["zstd"])
    return tmp_path / "field.zarr"


@pytest.fixture
def long_field(tmp_path: Path) -> Path:
    """A field that takes a second or two to rewrite."""
    data = np.random.default_rng(2).random((2048, 2048), dtype="f4")
    make(tmp_path / "field.zarr", data, chunks=(100, 2048), compressors=CODECS["zstd"])
    return tmp_path / "field.zarr"


def long_job_of(source: Path, **options: Any) -> ooc.Job:
    given = {"chunks": (2048, 64), "compressors": None} | options
    return tight(lambda **memory: job_of(source, **given, **memory))


def assert_equal(array: Any, source: Path) -> None:
    np.testing.assert_array_equal(array, ooc.open_array(source))


def job_of(source: Path, method: str = "two-phase", **options: Any) -> ooc.Job:
    target = source.parent / "target.zarr"
    return flat(
        ooc.rechunk,
        source,
        target,
        **({"chunks": (1024, 20), "method": method, "memory": "31MiB", "compressors": ()} | options),
    )


def phase_begun(job: ooc.Job, verb: str) -> Callable[[], bool]:
    """Whether the workers have told that a task of this kind is done."""
    counted = {"copy": "write", "assemble": "write", "start": "start", "probe": "probe"}.get(verb, verb)
    return lambda: counted in job.meter.seconds


@pytest.mark.sampled
@pytest.mark.parametrize(("method", "verb"), [(m, verb) for m, verbs in PHASES.items() for verb in verbs])
def test_a_worker_dies_in_each_phase(three: Client, field: Path, method: str, verb: str) -> None:
    three.wait_for_workers(3, timeout=60)
    job = job_of(field, method)
    victim = job.placement[job.plan.ranks - 1]
    kill_when(three, job, victim, phase_begun(job, verb))
    np.testing.assert_array_equal(within(job.run), FIELD)
    held = [rank for rank, home in job.placement.items() if home == victim]
    assert all(move.lost != victim or list(move.ranks) == held for move in job.moves)
    again = job.meter.decoded_bytes - job.plan.traffic.decoded_bytes
    assert again <= job.plan.peak_bytes, "no more is read again than the worker held"
    assert not list(field.parent.rglob("*.partial"))
    assert sorted(path.name for path in field.parent.iterdir()) == ["field.zarr", "target.zarr"]


def test_without_another_worker_the_ranks_share_one_that_is_left(long_field: Path) -> None:
    with (
        dask.config.set({"oocarrays.patience": "100ms"}),
        OwnCluster(long_field.parent, workers=2) as (client, workers, _),
    ):
        job = long_job_of(long_field, ranks=4, scheduler=client)
        places = {pid: address for address, pid in client.run(os.getpid).items()}
        when(phase_begun(job, "read"), workers[0].kill)
        assert_equal(within(job.run), long_field)
    (move,) = job.moves
    assert move.lost == places[workers[0].pid]
    assert len(move.ranks) == 2
    assert "budget now holds 4 ranks" in job.explain()


def when(ready: Callable[[], bool], act: Callable[[], Any]) -> None:
    """Do something as soon as something has happened."""
    threading.Thread(target=lambda: (wait_for(ready), act()), daemon=True).start()


def wait_for(there: Callable[[], bool]) -> None:
    while not there():
        time.sleep(0.002)


def test_the_scheduler_is_gone(long_field: Path) -> None:
    with OwnCluster(long_field.parent, workers=2) as (client, _, scheduler):
        job = long_job_of(long_field, scheduler=client)
        when(phase_begun(job, "write"), scheduler.kill)
        with pytest.raises(RunError, match=r"scheduler .* is gone.*resume") as caught:
            within(job.run)
    assert len(str(caught.value).splitlines()) == 1
    with cluster(2):
        rest = ooc.resume(long_field.parent / "target.zarr")
        assert rest.left < 1
        assert_equal(within(rest.run), long_field)


def serve(kind: str, folder: Path, args: list[str]) -> None:
    """Do what `dask scheduler` or `dask worker` does, in a process and a session of its own."""
    os.setsid()
    os.chdir(folder)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    importlib.import_module(f"distributed.cli.dask_{kind}").main(args)


class OwnCluster:
    """A scheduler and workers without nannies, each a process of its own."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.file, self.count = folder / "scheduler.json", workers
        self.folder = folder

    def start(self, kind: str, *options: str) -> ForkServerProcess:
        args = ["--scheduler-file", str(self.file), *options]
        process = multiprocessing.get_context("forkserver").Process(target=serve, args=(kind, self.folder, args))
        process.start()
        return process

    def __enter__(self) -> tuple[Client, list[ForkServerProcess], ForkServerProcess]:
        self.scheduler = self.start("scheduler", "--port", "0", "--no-dashboard")
        wait_for(self.file.exists)
        options = ("--no-nanny", "--nthreads", "1", "--no-dashboard", "--local-directory", str(self.folder / "spill"))
        self.workers = [self.start("worker", *options) for _ in range(self.count)]
        self.client = Client(scheduler_file=str(self.file), timeout="60s")
        self.client.wait_for_workers(self.count, timeout=60)
        return self.client, self.workers, self.scheduler

    def __exit__(self, *error: object) -> None:
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.join()
        self.client.close(timeout=1)


def test_a_worker_that_comes_changes_nothing(long_field: Path) -> None:
    with cluster(2) as client:
        job = long_job_of(long_field)
        when(phase_begun(job, "read"), lambda: client.cluster.scale(3))
        assert_equal(within(job.run), long_field)
        assert job.moves == []


def test_a_paused_worker_is_waited_for_and_one_that_stays_paused_is_named(
    field: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constants(monkeypatch, worker_look_seconds=0.5)

    def pause(seconds: float, dask_worker: Any) -> None:
        dask_worker.status = Status.paused
        dask_worker.loop.call_later(seconds, lambda: setattr(dask_worker, "status", Status.running))

    with cluster(2, memory_limit=0) as client:
        job = job_of(field)
        address = job.placement[1]
        client.run(pause, 1.5, workers=[address])
        np.testing.assert_array_equal(within(job.run), FIELD)
        client.run(pause, 30, workers=[address])
        with (
            dask.config.set({"oocarrays.give-up": "1s"}),
            pytest.raises(RunError, match=f"worker {address} has been paused"),
        ):
            within(job_of(field, overwrite=True).run)


# ---------------------------------------------------------------------- what each worker holds


@pytest.fixture(scope="module")
def two_unlimited() -> Iterator[Client]:
    with cluster(2, memory_limit=0) as client:
        yield client


@pytest.fixture(scope="module", params=["plain", "zstd"])
def sources(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small array to warm up with and a large one, coded alike."""
    folder = tmp_path_factory.mktemp(request.param)
    make(folder / "warm.zarr", FIELD, chunks=(50, 768), compressors=CODECS[request.param])
    data = np.random.default_rng(2).random((4096, 4096), dtype="f4")
    make(folder / "data.zarr", data, chunks=(256, 4096), compressors=CODECS[request.param])
    return folder


@pytest.mark.sampled(2)
@pytest.mark.parametrize("method", PHASES)
def test_every_worker_keeps_its_budget(two_unlimited: Client, sources: Path, tmp_path: Path, method: str) -> None:
    budget = 72 * 2**20
    where: dict[str, Any] = {"method": method, "scheduler": two_unlimited}
    within(flat(ooc.rechunk, sources / "warm.zarr", tmp_path / "w.zarr", chunks=(1024, 20), **where).run)
    where |= {"chunks": (4096, 256), "memory": budget, "overwrite": True}
    job = flat(ooc.rechunk, sources / "data.zarr", tmp_path / "target.zarr", **where)
    assert job.plan.peak_bytes <= budget
    for peak in most_held(two_unlimited, job.run, 2**21):
        assert 2**21 < peak <= budget, f"{peak / 2**20:.1f} MiB of {budget / 2**20:.1f}"


KEPT: list[Any] = []
"""Runs that a worker keeps, as it keeps those that its garbage collector has not found yet."""


def hold_at_entries() -> None:
    """Have tasks of this worker wait when a part is recorded, until the worker is told to give up their run."""
    publish, before = step("publish entry"), len(GIVEN_UP)  # of earlier runs here

    def publish_and_wait(self: Journal, *entry: Any) -> None:
        publish(self, *entry)
        KEPT.extend(LIVE.values())
        until(lambda: len(GIVEN_UP) > before)

    replace_step(PROCESS, "publish entry", publish_and_wait)


def test_the_client_is_interrupted_and_the_run_resumed(field: Path) -> None:
    """Locks of the interrupted run are released at once, and a chunk that is lost meanwhile is written again."""
    target = field.parent / "target.zarr"
    with cluster(2) as client:
        client.run(hold_at_entries)  # a rank's second part may be its last: the run could end before it is interrupted
        job = long_job_of(field, chunks=(1024, 20), method="independent", scheduler=client)
        assert job.plan.processes == 2
        when(
            lambda: len(list(target.glob(f"{JOURNAL_FOLDER}/done/*"))) >= 2,
            lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT),
        )
        with pytest.raises(KeyboardInterrupt):
            job.run()
        stored = Journal(target).stored()
        lost = min(key for receipts in stored.values() for key in (receipts or {})[""])
        target.joinpath(lost).unlink()
        with pytest.warns(RuntimeWarning, match=r"1 of \d+ chunks that had been written are not as they were"):
            rest = ooc.resume(target)
        assert rest.left < 1
        assert_equal(within(rest.run), field)
        assert rest.meter.write_requests < job.plan.traffic.write_requests
