"""A scheduler plugin that keeps a file of what befalls the workers of a cluster.

The file outlives a driver that hangs or is killed. Workers are known by name: one that its nanny starts again
keeps it. Pauses, deaths and passed limits come from the scheduler's events, so that none is missed; what is
spilled comes with the heartbeats, twice a second.
"""

from __future__ import annotations

import json
import os

from distributed import Scheduler, SchedulerPlugin
from tornado.ioloop import PeriodicCallback

LOOK = 100
"""Milliseconds between two looks at the heartbeats' figures."""


class Watch(SchedulerPlugin):
    """Writes `{"workers": [facts of each], "spilled": bytes}` to `path` whenever it changes."""

    name = "watch"

    def __init__(self, path: str) -> None:
        self.path = path
        self.workers: dict[str, dict] = {}
        self.names: dict[str, str] = {}
        self.last = ""

    async def start(self, scheduler: Scheduler) -> None:
        """Begin with the workers that are there."""
        self.scheduler = scheduler
        for address in scheduler.workers:
            self.add_worker(scheduler, address)
        self.looks = PeriodicCallback(self.look, LOOK)
        self.looks.start()

    async def close(self) -> None:
        """Write no more."""
        self.looks.stop()

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """A new process, of a new name or a known one."""
        state = scheduler.workers[worker]
        self.names[worker] = str(state.name)
        facts = self.workers.setdefault(str(state.name), _fresh(state))
        facts["pids"].append(state.pid)

    def remove_worker(self, scheduler: Scheduler, worker: str, **more: object) -> None:
        """A process that is gone."""
        self.count(worker, "lost")

    def log_event(self, topic: str, msg: object) -> None:
        """A pause, or a process that its nanny ends for its memory."""
        if not isinstance(msg, dict):
            return
        if msg.get("action") == "worker-status-change" and msg["status"] == "paused":
            self.count(topic, "paused")
        if topic == "worker-restart-memory":
            self.count(msg["worker"], "over_limit")

    def count(self, worker: str, fact: str) -> None:
        """One more of `fact` at the address `worker`."""
        if worker in self.names:
            self.workers[self.names[worker]][fact] += 1
            self.write()

    def look(self) -> None:
        """Take what the last heartbeats said of bytes spilled."""
        for address, state in self.scheduler.workers.items():
            facts = self.workers[self.names[address]]
            for kind, found in state.metrics.get("spilled_bytes", {}).items():
                facts[f"spilled_{kind}"] = max(facts[f"spilled_{kind}"], found)
        self.write()

    def spilled(self) -> int:
        """Bytes spilled over the whole run; what P2P keeps on disk by design is not counted."""
        digests = self.scheduler.cumulative_worker_metrics.items()
        return int(sum(value for key, value in digests if key[-2:] == ("disk-write", "bytes") and "p2p" not in key))

    def write(self) -> None:
        """Replace the file where something changed."""
        text = json.dumps({"workers": list(self.workers.values()), "spilled": self.spilled()})
        if text != self.last:
            with open(self.path + ".new", "w") as file:
                file.write(text)
            os.replace(self.path + ".new", self.path)
            self.last = text


def _fresh(state) -> dict:
    counts = ("paused", "lost", "over_limit", "spilled_memory", "spilled_disk")
    return {"name": str(state.name), "limit": state.memory_limit, "pids": [], **dict.fromkeys(counts, 0)}
