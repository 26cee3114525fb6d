"""Clusters of worker processes for tests, and runs on them that may not hang."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

import oocarrays as ooc
from oocarrays.errors import BudgetError
from oocarrays.graphs.cluster import nearby, shared
from oocarrays.graphs.cluster.nearby import introduce
from oocarrays.storage.local.pages import give_back

FIELD = np.random.default_rng(1).random((1024, 768), dtype="f4")
SECONDS = 120


@contextmanager
def cluster(workers: int, **options: Any) -> Iterator[Client]:
    """A cluster that starts a worker again however often it dies: Dask's forgets one that is away after a time.

    Whoever fetches from a dead worker asks for so long as a connection may take: half a minute is Dask's default.
    """
    given = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "memory_limit": "1GB"}
    with (
        dask.config.set({"oocarrays.patience": "4s", "distributed.deploy.lost-worker-timeout": "1h"}),
        dask.config.set({"distributed.comm.timeouts.connect": "10s"}),
        LocalCluster(n_workers=workers, **(given | options)) as made,
        Client(made) as client,
    ):
        yield client


@contextmanager
def tight_cluster(workers: int, limit: str) -> Iterator[Client]:
    """A cluster whose workers may have a limit below what their imports take: none is killed for that."""
    with (
        dask.config.set({"distributed.worker.memory.terminate": False}),
        cluster(workers, memory_limit=limit) as client,
    ):
        yield client


@contextmanager
def only(client: Client, *, looks: bool) -> Iterator[Client]:
    """The client while its workers get each other's messages in this way alone: shared memory, or sockets."""
    introduce(client)  # once for the same workers: no run does it again
    worked = looks_work()
    if looks and not worked:
        pytest.skip("shared memory does not work on this system")
    client.run(shared.use, looks)
    try:
        yield client
    finally:
        client.run(shared.use, worked)


def they_look(client: Client) -> bool:
    """Whether all workers of a cluster see each other's messages now."""
    (found,) = set(client.run(shared.is_on).values())
    return found


def looks_work() -> bool:
    """Whether this process sees its own messages: a worker's children and siblings are no nearer."""
    return nearby._sees([nearby._probed()])


def tight(plan: Callable[..., ooc.Job]) -> ooc.Job:
    """A job in little more memory than it needs at least: of many partitions."""
    try:
        return plan(memory=1)
    except BudgetError as error:
        return plan(memory=error.least + error.least // 100)


def until(there: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until something is so; an error where it does not come."""
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline, f"not there after {seconds} s"
        time.sleep(0.02)


def within(work: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """What ``work`` returns or raises; an error where it hangs."""
    came: list[Any] = []

    def caught() -> None:
        try:
            came.append((work(), None))
        except BaseException as error:  # noqa: BLE001
            came.append((None, error))

    thread = threading.Thread(target=copy_context().run, args=(caught,), daemon=True)
    thread.start()
    thread.join(seconds)
    assert came, f"still running after {seconds} s"
    value, error = came[0]
    if error is not None:
        raise error
    return value


def events(client: Client, job: ooc.Job) -> list[dict[str, Any]]:
    """What the workers told of a run, in the order in which the scheduler heard it."""
    return [told for _, told in client.get_events(job._run.topic) if "verb" in told]


def home_of(job: ooc.Job, event: dict[str, Any]) -> str:
    """The worker on which a task was to run: beginnings, ends and what waits for all belong to rank 0."""
    rank = 0 if event["verb"] in ("create", "start", "finish", "barrier") else event["args"][-1]
    return job.placement[rank]


def kill_when(client: Client, job: ooc.Job, address: str, ready: Callable[[], bool]) -> threading.Thread:
    """SIGKILL the worker at an address as soon as something has happened."""
    pid = client.run(os.getpid, workers=[address])[address]

    def wait_and_kill() -> None:
        while not ready() and job.measured_seconds is None:
            time.sleep(0.001)
        if job.measured_seconds is None:
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=wait_and_kill, daemon=True)
    thread.start()
    return thread


class Sampler:
    """The most anonymous memory of some processes, above their level at the start."""

    def __init__(self, pids: list[int]) -> None:
        self.idle = {pid: anonymous(pid) for pid in pids}
        self.peak = dict.fromkeys(pids, 0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(0.003):
            for pid, idle in self.idle.items():
                self.peak[pid] = max(self.peak[pid], anonymous(pid) - idle)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def most_held(client: Client, run: Callable[[], Any], least: int) -> list[int]:
    """The most that each worker held in a run; it runs again where a busy machine let the sampler see too little."""
    pids = list(client.run(os.getpid).values())
    most = dict.fromkeys(pids, 0)
    for _ in range(3):
        client.run(give_back)  # what other runs have freed; a run that takes it again would seem to hold less
        with Sampler(pids) as sampler:
            within(run)
        most = {pid: max(held, sampler.peak[pid]) for pid, held in most.items()}
        if min(most.values()) > least:
            break
    return list(most.values())


def anonymous(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon", "RssShmem")))


def assert_steps(job: ooc.Job) -> None:
    """One step after the other, read back from when messages of a pass went and came (DESIGN, promise 4)."""
    (step,) = job.plan.passes
    went = sorted(span.args for span in job.meter.spans if span.phase == "send")
    came = sorted(span.args for span in job.meter.spans if span.phase == "receive")
    stages = [(stage, pair) for stage, each in enumerate(step.schedule, 1) for pair in each.pairs]
    steps = [(unit, *stage) for unit in range(step.units) for stage in stages]
    assert went == sorted((0, unit, stage, source) for unit, stage, (source, _) in steps)
    assert came == sorted((0, unit, stage, destination) for unit, stage, (_, destination) in steps)
    of_rank = defaultdict(list)
    for span in job.meter.spans:
        if span.phase in ("send", "receive"):
            of_rank[span.args[3]].append((span.args[1:3], span.start, span.stop))
    for spans in of_rank.values():
        for now, start, _ in spans:
            assert all(stop <= start for other, _, stop in spans if other < now), "received, and mine was taken"
