"""What all tasks have in common, of jobs and of arrays: they are counted, told of, and can be given up.

    builder ─► Task(do, run, verb, args, …) ─► Tasks.task ─► run._do(verb, args, …)    one object for all of a graph

Between threads they share it; on a cluster it travels once to each worker, and counts there what is done there.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

from oocarrays.errors import RunError
from oocarrays.graphs.cluster.shared import Rooms
from oocarrays.graphs.run.telling import tell, this_worker, topic_of
from oocarrays.storage.meter import Meter

SETTLE_SECONDS = 60
"""Seconds that a failed run waits for what its other tasks are in the middle of."""
LIVE: weakref.WeakValueDictionary[str, Tasks] = weakref.WeakValueDictionary()
"""What does tasks in this process, by its id."""
GIVEN_UP: set[str] = set()
"""Suffixes of the keys of graphs that this worker has been told to do no more of."""


class Tasks(ABC):
    """State that the tasks of one graph share: each of them is a method, named by its verb."""

    unsent: ClassVar[tuple[str, ...]] = ()
    """Names of what does not travel beside all that `_here` makes."""
    id: str
    """What its topic is called by, and what is in the keys of its graph where it has only one."""

    def _arrive(self) -> None:
        """Begin in this process: what `_here` makes belongs to it, and does not travel."""
        travels = frozenset(self.__dict__)
        self._here()
        self._stays = frozenset(self.__dict__) - travels

    def _here(self) -> None:
        self.meter = Meter()
        self.rooms = Rooms()
        self.failure: BaseException | None = None
        self._running = 0
        self._idle = threading.Condition()
        LIVE[self.id] = self

    def __getstate__(self) -> dict[str, Any]:
        stays = {"_stays", *self._stays, *self.unsent}
        return {name: value for name, value in self.__dict__.items() if name not in stays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._arrive()

    @property
    @abstractmethod
    def on_workers(self) -> bool:
        """Whether ranks are workers, which tell a cluster what they did."""

    @property
    def topic(self) -> str:
        """The name under which a cluster tells what happens in this run."""
        return topic_of(self.id)

    @staticmethod
    def task(run: Tasks, verb: str, args: tuple[int, ...], buffers: int, *inputs: Any) -> Any:
        """Run one task: ``verb`` with its plain arguments and its first ``buffers`` inputs."""
        with run._counted():
            if GIVEN_UP and is_given_up():
                raise RunError(f"run {run.id} has been given up")
            with run._during(verb, args):
                result = run._do(verb, args, inputs[:buffers])
        if run.on_workers:
            tell(run.topic, verb, args, run.meter)  # stays in the meter where these tasks run on threads after all
        return result

    def _do(self, verb: str, args: tuple[int, ...], inputs: tuple[Any, ...]) -> Any:
        return getattr(self, f"_{verb}")(*args, *inputs)

    def _during(self, verb: str, args: tuple[int, ...]) -> AbstractContextManager[None]:
        """Measure a task while it runs."""
        return self.meter.phase(verb, args)

    @property
    def running(self) -> int:
        """Tasks that this process is in the middle of."""
        return self._running

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count a task while it runs."""
        with self._idle:
            self._running += 1
        try:
            yield
        finally:
            with self._idle:
                self._running -= 1
                self._let_go()
                self._idle.notify_all()

    def _let_go(self) -> None:  # noqa: B027  most keep nothing
        """Let go, after a task, of what a run that has failed keeps from others."""


def is_given_up() -> bool:
    """Whether this task is of a graph that has been given up: it was on its way when its worker was told."""
    worker = this_worker()
    key = str(worker.get_current_task()) if worker else ""
    return any(suffix in key for suffix in GIVEN_UP)


async def settled(ids: Collection[str], suffixes: Collection[str], *, for_good: bool = True) -> None:
    """Give up graphs on this worker: wait for tasks that have begun, and refuse those that come late."""
    GIVEN_UP.update(suffixes)
    mine = [run for name, run in LIVE.items() if name.startswith(tuple(ids))]
    for _ in range(SETTLE_SECONDS * 20):
        if not any(run.running for run in mine):
            break
        await asyncio.sleep(0.05)
    if not for_good:
        GIVEN_UP.difference_update(suffixes)
