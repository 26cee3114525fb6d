"""Ours, on the workers of a cluster. A variant is a strategy, such as `two-phase`; a fault may befall the run.

A strategy may be followed by a schedule, as in `two-phase/rex`, and by `!` where steps do not wait for one another.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from threading import Event, Thread

import dask
from cases import MIB, Job
from distributed import Client, Worker

import oocarrays as ooc
from peers import dask_cluster
from peers.oocarrays import told

LOOK = 0.01
"""Seconds between two looks at how much is written."""


@contextmanager
def workers(job: Job) -> Iterator[Client]:
    """A client of a cluster whose workers have imported what they need."""
    with dask_cluster.workers(job, "oocarrays.jobs.rechunking") as client:
        yield client


def run(job: Job, client: Client) -> dict:
    """Rechunk on the active client, undisturbed or not."""
    if job.fault.startswith("resume"):
        return _resumed(job)
    work = _planned(job, job.target)
    if not job.fault:
        work.run()
        facts = told(work)
        if "/" in job.variant:
            facts["note"] += f", {_worst_queue(client)} messages under way to a worker at most"
        return facts
    with _killing(job, client) as note:
        work.run()
    return _noted(work, work.plan, *note)


def _planned(job: Job, target: str):
    method, _, order = job.variant.partition("/")
    options = {"schedule": order.rstrip("!")} if order else {}
    with dask.config.set({"oocarrays.assembly": "asynchronous"} if order.endswith("!") else {}):
        return ooc.rechunk(job.source, target, chunks=job.target_chunks, method=method or "auto", **options)


def _worst_queue(client: Client) -> int:
    """Return the most messages that one worker had asked for and not yet got, as it wrote down itself."""
    worst = 0
    for entries in client.run(_received).values():
        turns = sorted((time, step) for start, stop in entries for time, step in ((start, 1), (stop, -1)))
        worst = max(worst, max(accumulate(step for _, step in turns), default=0))
    return worst


def _received(dask_worker: Worker) -> list[tuple[float, float]]:
    """When each transfer of messages began and ended."""
    log = dask_worker.transfer_incoming_log
    return [(each["start"], each["stop"]) for each in log if any("send" in str(key) for key in each["keys"])]


def _resumed(job: Job) -> dict:
    """Finish what a killed run began; the plan told is that of a whole run."""
    if not hasattr(ooc, "resume"):
        return {"skipped": "no resume here"}
    there = job.written()
    work = ooc.resume(job.target)
    work.run()
    whole = _planned(job, job.target + ".whole").plan
    again = work.meter.read_bytes / whole.read_bytes
    facts = _noted(work, whole, f"{there:.0%} was there", f"read {again:.2f} of what a whole run reads")
    return {**facts, "read_share": again}


def _noted(work, plan, *more: str) -> dict:
    """Return the figures of plan and meter, and what the fault cost."""
    extra = work.meter.read_bytes - plan.read_bytes
    facts = told(work)
    facts["plan"]["read_bytes"], facts["extra_read_bytes"] = plan.read_bytes, extra
    held = f"a worker may hold {plan.peak_bytes / MIB:.0f} MiB"
    facts["note"] = "; ".join([facts["note"], *more, f"read {extra / MIB:+.0f} MiB beside the plan", held])
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
