"""One run of one peer in a fresh process, watched from outside."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field

import machine
from cases import Job
from peers import WATCHED, Entry
from processes import Session

HERE = os.path.dirname(os.path.abspath(__file__))
HEARTBEAT = 1
"""Seconds in which every worker has told its scheduler of the last of its work."""
SAMPLE = 0.005
"""Seconds between two looks at memory."""
LOOK = 0.1
"""Seconds between two searches for new processes."""
START = 120
"""Seconds that a peer may take to import, start its workers and warm up."""


@dataclass(slots=True)
class Run:
    """The figures of one run; `verdict` is `ok` unless something is to be said instead of figures."""

    verdict: str
    """`ok`, `not installed…`, `skipped…`, `killed…`, `failed…`, or what is wrong with the output."""
    seconds: float = 0.0
    """Wall time from the call that plans to the end of the last write."""
    sync: float = 0.0
    """Seconds of an `os.sync()` right after."""
    peak: int = 0
    """Bytes resident and not backed by files, summed over processes, at most at any time, above idle."""
    budget: int = 0
    """Bytes that the peer was given."""
    idle: int = 0
    """The same bytes with libraries imported and nothing to do."""
    mapped: int = 0
    """Bytes resident and mapped from files, above idle, at most at any time."""
    busy: float = 0.0
    """CPU seconds / (wall seconds × cores)."""
    others: float = 0.0
    """Share of the cores' time that other processes took meanwhile, the kernel's own threads included."""
    moved: dict[str, float] = field(default_factory=dict)
    """Bytes: rchar, wchar through calls; read_bytes, write_bytes at the disk."""
    told: dict = field(default_factory=dict)
    """What the peer says of itself."""
    workers: list[dict] = field(default_factory=list)
    """What befell each worker of the peer's cluster, by the names of `peers.watch`, with `rss`: its most resident
    bytes, and `own`: its most bytes not backed by files, above the same when idle."""
    spilled: int = 0
    """Bytes that its workers put on disk for want of memory, over the whole run."""


class Child:
    """A peer's process, in a session of its own so that all its processes can be found and ended."""

    def __init__(self, python: str, entry: Entry, job: Job, tiny: Job) -> None:
        command = [
            python,
            os.path.join(HERE, "child.py"),
            entry.module,
            job.to_json(),
            tiny.to_json(),
        ]
        with open(os.path.join(os.path.dirname(job.scratch), "log"), "w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        self.session = Session(self.process.pid)

    def go(self) -> None:
        """Let it start its work."""
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def answered(self, seconds: float) -> bool:
        """Return whether a line, or the end, comes within `seconds`."""
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def answer(self) -> dict:
        """Its next line; `killed` where it ended without one."""
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"killed": "the process ended"}

    def end(self) -> None:
        """Let it finish; end what is left of its session."""
        with suppress(subprocess.TimeoutExpired, BrokenPipeError):
            self.process.stdin.close()
            self.process.wait(20)
        self.session.look()
        for pid in self.session.members:
            _kill(pid)
        self.process.wait()
        self.process.stdout.close()


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def measure(python: str, entry: Entry, job: Job, tiny: Job, timeout: float) -> Run:
    """Run `entry` on `job` and watch it; the output is not checked here."""
    child = Child(python, entry, job, tiny)
    try:
        ready = child.answer() if child.answered(START) else {"killed": f"not ready after {START} s"}
        if "ready" not in ready:
            return Run(_verdict(ready))
        return _watched(child, job, timeout)
    finally:
        child.end()


def _watched(child: Child, job: Job, timeout: float) -> Run:
    session = child.session
    os.sync()
    time.sleep(0.2)
    session.look()
    others = machine.busy_seconds()
    before, (idle, idle_mapped) = session.totals(), session.memory()
    child.go()
    peak, mapped, answer = _followed(child, timeout)
    others = machine.busy_seconds() - others
    start = time.perf_counter()
    os.sync()
    sync = time.perf_counter() - start
    session.look()
    moved = {name: value - before[name] for name, value in session.totals().items()}
    watched = _workers(session, job)
    answer["over_limit"] = sum(worker["over_limit"] for worker in watched.get("workers", ()))
    seconds = answer.pop("seconds", 0.0)
    own, room = moved.pop("cpu"), (seconds or timeout) * job.cores
    return Run(
        verdict=_verdict(answer),
        seconds=seconds,
        sync=sync,
        peak=max(0, peak - idle),
        budget=job.memory,
        idle=idle,
        mapped=max(0, mapped - idle_mapped),
        busy=own / room,
        others=max(0.0, others - own) / room,
        moved=moved,
        told=answer,
        **watched,
    )


def _workers(session: Session, job: Job) -> dict:
    """Read what the watch on the peer's cluster wrote, if it has one, and the memory of each worker's processes."""
    path = os.path.join(os.path.dirname(job.target), WATCHED)
    if not os.path.exists(path):
        return {}
    time.sleep(HEARTBEAT)
    with open(path) as file:
        found = json.load(file)
    for worker in found["workers"]:
        seen = [session.peaks[pid] for pid in worker["pids"] if pid in session.peaks]
        worker["rss"] = max((peak for peak, _ in seen), default=0)
        worker["own"] = max((own for _, own in seen), default=0) - session.first.get(worker["pids"][0], 0)
    return found


def interrupted(python: str, entry: Entry, job: Job, tiny: Job, share: float) -> None:
    """Start `entry` on `job`, and kill all its processes at once when `share` of the target is written."""
    child = Child(python, entry, job, tiny)
    try:
        if child.answered(START) and "ready" in child.answer():
            child.go()
            while job.written() < share and not child.answered(SAMPLE):
                pass
            os.killpg(child.process.pid, signal.SIGKILL)
    finally:
        child.end()


def _followed(child: Child, timeout: float) -> tuple[int, int, dict]:
    """Watch until it answers or time is up: (most own bytes, most mapped bytes, the answer)."""
    peak = mapped = 0
    start = looked = time.monotonic()
    while not child.answered(SAMPLE):
        own, files = child.session.memory()
        peak, mapped, now = max(peak, own), max(mapped, files), time.monotonic()
        if now - looked > LOOK:
            child.session.look()
            looked = now
        if now - start > timeout:
            return peak, mapped, {"killed": f"after {timeout:.0f} s"}
    return peak, mapped, child.answer()


def _verdict(answer: dict) -> str:
    if "absent" in answer:
        return f"not installed: {answer['absent']}"
    reason = answer.get("failed") or answer.get("killed")
    if answer.get("over_limit") and reason:
        return f"killed: its workers passed their memory limit ({reason.partition(':')[0]})"
    if "failed" in answer and "Killed" in answer["failed"]:
        return "killed: its workers passed their memory limit"
    for word in ("killed", "failed", "skipped"):
        if word in answer:
            return f"{word}: {answer[word]}"
    return "ok"
