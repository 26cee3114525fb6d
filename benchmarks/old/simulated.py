"""Workers that are simulated: to a scheduler they are as real ones, but a task is over as soon as it begins.

They register, send heartbeats, answer what clients run on them, say which copies they have fetched and which tasks they
have done, and free what they are told to free. Data never travel, and nothing is computed: a thousand fit in a process.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from contextlib import suppress
from typing import Any

from distributed.batched import BatchedSend
from distributed.comm import Comm, CommClosedError, connect, listen
from distributed.versions import get_versions
from distributed.worker import run

TASK_SECONDS = 0.5
"""Seconds that a task says it took: of none, Dask's work stealing cannot say how long it takes."""
NOTHING = pickle.dumps(type(None))
ENDED = {"type": NOTHING, "typename": "NoneType", "nbytes": 16, "metadata": {}, "thread": 1, "status": "OK"}
METRICS = {
    "bandwidth": {"total": 1e8, "workers": {}, "types": {}},
    "digests_total_since_heartbeat": {},
    "managed_bytes": 0,
    "spilled_bytes": {"memory": 0, "disk": 0},
    "transfer": {"incoming_bytes": 0, "outgoing_bytes": 0},
    "event_loop_interval": 0.02,
    "cpu": 50.0,
    "memory": 2**28,
    "task_counts": {},
}
"""What a heartbeat says of a worker."""


class Simulated:
    """One worker."""

    def __init__(self, scheduler: str, name: str, threads: int = 2) -> None:
        self.scheduler, self.name, self.threads = scheduler, name, threads
        self.has: set[Any] = set()
        self.done = 0

    async def begin(self) -> Simulated:
        """Register, and answer from now on."""
        self._listener = await listen("tcp://127.0.0.1:0", self._serve)
        self.address: str = self._listener.contact_address
        self._comm = await connect(self.scheduler, deserialize=False)
        said = {
            "op": "register-worker", "reply": False, "address": self.address, "status": "running", "name": self.name,
            "server_id": self.name, "nthreads": self.threads, "now": time.time(), "resources": {}, "memory_limit": 0,
            "local_directory": "", "services": {}, "nanny": None, "pid": os.getpid(), "versions": get_versions(),
            "metrics": METRICS, "extra": {}, "stimulus_id": f"{self.name}-begins",
        }  # fmt: skip
        await self._comm.write(said, serializers=["msgpack"])
        answer = await self._comm.read()
        self._says = BatchedSend(interval="2ms")
        self._says.start(self._comm)
        self._tasks = [
            asyncio.ensure_future(self._hear()),
            asyncio.ensure_future(self._beat(answer["heartbeat-interval"])),
        ]
        return self

    def vanish(self) -> None:
        """Be gone, without a word."""
        for task in self._tasks:
            task.cancel()
        self._listener.stop()
        self._comm.abort()

    # ------------------------------------------------------------------ what the scheduler wants

    async def _hear(self) -> None:
        """Do what the scheduler says."""
        with suppress(CommClosedError):
            while True:
                told = await self._comm.read()
                for each in told if isinstance(told, list | tuple) else (told,):
                    self._take(each)

    def _take(self, told: dict[str, Any]) -> None:
        """Do one thing that it says: a task is done in the same moment, what others have of it fetched."""
        match told["op"]:
            case "compute-task":
                fetched = [key for key in told["who_has"] if key not in self.has]
                self.has.update(fetched)
                if fetched:
                    self._say(op="add-keys", keys=fetched)
                self.has.add(told["key"])
                self.done += 1
                now = time.time()
                spent = [{"action": "compute", "start": now - TASK_SECONDS, "stop": now}]
                self._say(op="task-finished", key=told["key"], run_id=told["run_id"], startstops=spent, **ENDED)
            case "free-keys" | "remove-replicas":
                self.has.difference_update(told["keys"])
            case "steal-request":
                self._say(op="steal-response", key=told["key"], state=None)

    def _say(self, **said: Any) -> None:
        """Tell the scheduler something."""
        with suppress(CommClosedError):
            self._says.send({**said, "stimulus_id": f"{self.name}-{self.done}"})

    async def _beat(self, seconds: float) -> None:
        """Send heartbeats."""
        comm = await connect(self.scheduler)
        with suppress(CommClosedError):
            while True:
                await asyncio.sleep(seconds)
                beat = {"op": "heartbeat_worker", "reply": True, "address": self.address, "now": time.time()}
                await comm.write({**beat, "metrics": METRICS, "executing": {}, "extensions": {}})
                answer = await comm.read()
                seconds = answer.get("heartbeat-interval", seconds)

    # ------------------------------------------------------------------ what others want

    async def _serve(self, comm: Comm) -> None:
        """Answer whoever asks."""
        with suppress(CommClosedError):
            while True:
                asked = await comm.read()
                op, replies = asked.pop("op"), asked.pop("reply", True)
                closes, _ = asked.pop("close", False), asked.pop("serializers", None)
                answer = await run(self, comm, **asked) if op == "run" else {"status": "OK"}
                if replies:
                    await comm.write(answer)
                if closes:
                    await comm.close()
                    return
