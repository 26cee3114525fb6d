"""One run of one way in a fresh process, watched from outside."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import machine
from case import Job

HERE = os.path.dirname(os.path.abspath(__file__))
WATCHED = "workers.json"
"""File beside the target in which a cluster keeps what befalls its workers, see `peers.watch`."""
HEARTBEAT = 1
"""Seconds in which every worker has told its scheduler of the last of its work."""
SAMPLE = 0.005
"""Seconds between two looks at memory."""
LOOK = 0.1
"""Seconds between two searches for new processes."""
START = 120
"""Seconds that a way may take to import, start its workers and warm up."""
TICK = os.sysconf("SC_CLK_TCK")
COUNTERS = ("rchar", "wchar", "read_bytes", "write_bytes")

Run = dict[str, Any]
"""Figures of one run.

verdict
    `ok`, `not installed…`, `skipped…`, `killed…`, `failed…`, or what is wrong with the output.
seconds, sync
    Wall time of the call, from planning to the last write; seconds of an `os.sync()` right after.
peak, idle, budget, mapped
    Bytes resident and not backed by files, summed over processes, at most at any time, above idle; the same when idle;
    what the way may use; bytes resident and mapped from files, above idle.
busy, busy_elsewhere
    Cores kept busy by the run, and by all other processes meanwhile, the kernel's own threads included.
moved
    Bytes: rchar, wchar through calls; read_bytes, write_bytes at the disk.
told
    What the way says of itself.
workers, spilled
    What befell each worker of a cluster, by the names of `peers.watch`, with `rss`, its most resident bytes, and
    `own`, its most bytes not backed by files, above idle; bytes that they put on disk for want of memory.
"""


@dataclass(slots=True)
class Session:
    """The processes of one session: a child that was started in a new one, and all that it started."""

    leader: int
    """Process id of the child."""
    members: list[int] = field(default_factory=list)
    """Process ids at the last look."""
    seen: dict[int, dict[str, float]] = field(default_factory=dict)
    """Last counters of every process that ever was a member, the dead included."""
    first: dict[int, int] = field(default_factory=dict)
    """Own resident bytes of each process when `memory` first looked at it."""
    peaks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Most resident bytes of each process that `memory` has seen: (all, own)."""

    def look(self) -> None:
        """Find the members anew and read their counters."""
        found = (int(name) for name in os.listdir("/proc") if name.isdigit())
        self.members = [pid for pid in found if self._counted(pid)]

    def _counted(self, pid: int) -> bool:
        try:
            fields = _read(pid, "stat").rpartition(")")[2].split()
            if int(fields[3]) != self.leader:
                return False
            counters = dict(line.split(": ") for line in _read(pid, "io").splitlines())
        except OSError:
            return False
        self.seen[pid] = {name: float(counters[name]) for name in COUNTERS}
        self.seen[pid]["cpu"] = (int(fields[11]) + int(fields[12])) / TICK
        return True

    def totals(self) -> dict[str, float]:
        """Bytes by kind and CPU seconds, summed over members, dead or alive, up to the last look."""
        return {name: sum(counters[name] for counters in self.seen.values()) for name in (*COUNTERS, "cpu")}

    def memory(self) -> tuple[int, int]:
        """Resident bytes now, summed over members: (not backed by files, mapped from files)."""
        own = mapped = 0
        for pid in self.members:
            try:
                lines = (line.split() for line in _read(pid, "status").splitlines() if line.startswith("Rss"))
                pages = {line[0].rstrip(":"): int(line[1]) * 1024 for line in lines}
            except OSError:
                continue
            here, files = pages.get("RssAnon", 0) + pages.get("RssShmem", 0), pages.get("RssFile", 0)
            self.first.setdefault(pid, here)
            most, most_own = self.peaks.get(pid, (0, 0))
            self.peaks[pid] = max(most, here + files), max(most_own, here)
            own, mapped = own + here, mapped + files
        return own, mapped


def _read(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/{name}") as file:
        return file.read()


class Child:
    """A way's process, in a session of its own so that all its processes can be found and ended."""

    def __init__(self, python: str, run: str, job: Job, tiny: Job) -> None:
        command = [python, "-W", "ignore", os.path.join(HERE, "child.py"), run, job.to_json(), tiny.to_json()]
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
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def measure(python: str, run: str, job: Job, tiny: Job, timeout: float, ready: Callable[[], object] = int) -> Run:
    """Run a way on `job` and watch it, once `ready` was called; the output is not checked here."""
    child = Child(python, run, job, tiny)
    try:
        told = child.answer() if child.answered(START) else {"killed": f"not ready after {START} s"}
        if "ready" not in told:
            return {"verdict": verdict(told)}
        ready()
        return _watched(child, job, timeout)
    finally:
        child.end()


def _watched(child: Child, job: Job, timeout: float) -> Run:
    session = child.session
    os.sync()
    time.sleep(0.2)
    session.look()
    everyone, begun = machine.busy_seconds(), time.perf_counter()
    before, (idle, idle_mapped) = session.totals(), session.memory()
    child.go()
    peak, mapped, answer = _followed(child, timeout)
    everyone, passed = machine.busy_seconds() - everyone, time.perf_counter() - begun
    start = time.perf_counter()
    os.sync()
    sync = time.perf_counter() - start
    session.look()
    moved = {name: value - before[name] for name, value in session.totals().items()}
    watched = _workers(session, job)
    answer["over_limit"] = sum(worker["over_limit"] for worker in watched.get("workers", ()))
    own = moved.pop("cpu")
    return {
        "verdict": verdict(answer),
        "seconds": answer.pop("seconds", 0.0),
        "sync": sync,
        "peak": max(0, peak - idle),
        "budget": job.memory,
        "idle": idle,
        "mapped": max(0, mapped - idle_mapped),
        "busy": own / passed,
        "busy_elsewhere": max(0.0, everyone - own) / passed,
        "moved": moved,
        "told": answer,
        **watched,
    }


def _workers(session: Session, job: Job) -> dict:
    """Read what the watch on a way's cluster wrote, if it has one, and the memory of each worker's processes."""
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


def interrupted(python: str, run: str, job: Job, tiny: Job, share: float) -> None:
    """Start a way on `job`, and kill all its processes at once when `share` of the target is written."""
    child = Child(python, run, job, tiny)
    try:
        if child.answered(START) and "ready" in child.answer():
            child.go()
            while job.written() < share and not child.answered(SAMPLE):
                pass
            os.killpg(child.process.pid, signal.SIGKILL)
    finally:
        child.end()


def verdict(answer: dict) -> str:
    """Say in a few words how a run ended."""
    if "absent" in answer:
        return f"not installed: {answer['absent']}"
    reason = answer.get("failed") or answer.get("killed")
    if reason and (answer.get("over_limit") or "Killed" in answer.get("failed", "")):
        return f"killed: its workers passed their memory limit ({reason.partition(':')[0]})"
    for word in ("killed", "failed", "skipped"):
        if word in answer:
            return f"{word}: {answer[word]}"
    return "ok"
