"""Ours, on the workers of a cluster; a fault may befall the run.

`method` is a strategy; `schedule` an order of its exchange, with `!` where its steps do not wait for one another.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import dask
from case import MIB, Job, within
from distributed import Client

import oocarrays as ooc
from peers.dask import cluster
from peers.ours import told

LOOK = 0.01
"""Seconds between two looks at how much is written."""


@contextmanager
def workers(job: Job) -> Iterator[Client]:
    """A client of a cluster whose workers have imported what they need."""
    with cluster(job, "oocarrays.jobs.rechunking") as client:
        yield client


@within(workers)
def rechunk(job: Job, client: Client) -> dict:
    """Rechunk on the active client, undisturbed or not."""
    if job.fault.startswith("resume"):
        return _resumed(job)
    work = _planned(job, job.target)
    if not job.fault:
        work.run()
        return told(work)
    with _killing(job, client) as note:
        work.run()
    return _noted(work, work.plan, *note)


def _planned(job: Job, target: str):
    order = job.params.get("schedule", "")
    resources = ooc.Resources(schedule=order.rstrip("!") or None)
    with dask.config.set({"oocarrays.assembly": "asynchronous"} if order.endswith("!") else {}):
        method = job.params.get("method", "auto")
        return ooc.rechunk(job.source, target, chunks=job.target_chunks, method=method, resources=resources)


def _resumed(job: Job) -> dict:
    """Finish what a killed run began; the plan told is that of a whole run."""
    there = job.written()
    work = ooc.resume(job.target)
    work.run()
    whole = _planned(job, job.target + ".whole").plan
    again = work.meter.read_bytes / whole.read_bytes
    return _noted(work, whole, f"{there:.0%} was there", f"read {again:.2f} of what a whole run reads")


def _noted(work, plan, *more: str) -> dict:
    """Return the figures of plan and meter, and what the fault cost."""
    extra = work.meter.read_bytes - plan.read_bytes
    facts = told(work)
    facts["plan"]["read_bytes"] = plan.read_bytes
    facts["note"] = "; ".join([facts["note"], *more, f"read {extra / MIB:+.0f} MiB beside the plan"])
    return facts


@contextmanager
def _killing(job: Job, client: Client) -> Iterator[list[str]]:
    """Kill one worker when the fault's share of the target is written; yields a list that then tells of it."""
    note, over = [], Event()
    victim = min(client.run(os.getpid).values())
    watcher = Thread(target=_kill, args=(job, victim, over, note))
    watcher.start()
    try:
        yield note
    finally:
        over.set()
        watcher.join()


def _kill(job: Job, victim: int, over: Event, note: list[str]) -> None:
    start = time.perf_counter()
    while not over.wait(LOOK):
        if (written := job.written()) >= job.fault_share:
            os.kill(victim, signal.SIGKILL)
            note.append(f"a worker was killed after {time.perf_counter() - start:.1f} s at {written:.0%}")
            return
    note.append("no worker was killed: it was too quick")
