"""State common to all tasks, of jobs and of arrays: they are counted and reported, and can be cancelled.

    builder ─► Task(do, run, verb, args, …) ─► Tasks.task ─► run._do(verb, args, …)    one object for all of a graph

Threads share that object; on a cluster it travels once to each worker, and counts the work done there.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Generic, TypeVar

import cloudpickle

from oocarrays.errors import RunError
from oocarrays.graphs.cluster.shared import Rooms
from oocarrays.graphs.events import tell, this_worker, topic_of
from oocarrays.storage.meter import Meter

SETTLE_SECONDS = 60
"""Seconds that a failed run waits for its running tasks."""
LIVE: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""Runs in this process, by id: `Tasks` of the old ladder, and `oocarrays.graphs.run.run.Run`."""
BARRIERS = ("ready", "written")
"""Verbs of tasks that only wait for others."""
GIVEN_UP: set[str] = set()
"""Key suffixes of the graphs that this worker must no longer run."""


class Tasks(ABC):
    """State shared by the tasks of one graph; each task is a method, named by its verb."""

    unsent: ClassVar[tuple[str, ...]] = ()
    """Names of attributes that do not travel, besides those that `_here` sets."""
    id: str
    """Id in the name of the topic, and in the keys of the graph if it has only one."""
    of_topic: str | None = None
    """Topic of another run, with which this one shares its listeners."""

    def _arrive(self) -> None:
        """Set the state of this process with `_here`; that state does not travel."""
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
        """Whether ranks are workers, which report their work to the cluster."""

    @property
    def topic(self) -> str:
        """Name of the cluster topic for the events of this run."""
        return self.of_topic or topic_of(self.id)

    @staticmethod
    def task(run: Tasks, verb: str, args: tuple[int, ...], buffers: int, *inputs: Any) -> Any:
        """Run one task: ``verb`` with its plain arguments and its first ``buffers`` inputs."""
        with run._counted():
            if GIVEN_UP and is_given_up():
                raise RunError(f"run {run.id} has been given up")
            with run._during(verb, args):
                result = run._do(verb, args, inputs[:buffers])
        if run.on_workers:
            tell(run.topic, verb, args, run.meter)  # if the tasks run on threads, the counts stay in the meter
        return result

    def _do(self, verb: str, args: tuple[int, ...], inputs: tuple[Any, ...]) -> Any:
        if verb in BARRIERS:
            return None
        return getattr(self, f"_{verb}")(*args, *inputs)

    def _during(self, verb: str, args: tuple[int, ...]) -> AbstractContextManager[None]:
        """Measure a task while it runs."""
        return self.meter.phase(verb, args)

    @property
    def running(self) -> int:
        """Number of tasks running in this process."""
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

    def stop(self, failure: BaseException) -> None:
        """Record a failure outside the tasks of this process: later tasks raise it, and the run's locks are released.

        They are released by the last running task, or now if none is running.
        """
        self.failure = self.failure or failure
        self._let_go()

    def _let_go(self) -> None:  # noqa: B027  most keep nothing
        """Release, after a task, the resources that a failed run withholds from other runs."""


def is_given_up(key: Any = None) -> bool:
    """Return whether this task belongs to a graph that was cancelled while the task was on its way to the worker.

    A coroutine names its ``key``: a worker knows that of a thread only.
    """
    if key is None:
        worker = this_worker()
        key = worker.get_current_task() if worker else ""
    return any(suffix in str(key) for suffix in GIVEN_UP)


async def settled(ids: Collection[str], suffixes: Collection[str], *, for_good: bool = True) -> None:
    """Cancel graphs on this worker: wait for running tasks and refuse late ones, permanently if ``for_good``.

    A run that is cancelled for good releases its locks here: the worker may keep its object long after the last task.
    """
    GIVEN_UP.update(suffixes)
    mine = [run for name, run in LIVE.items() if name.startswith(tuple(ids))]
    for run in mine if for_good else ():
        run.stop(RunError(f"run {run.id} has been given up"))
    for _ in range(SETTLE_SECONDS * 20):
        if not any(run.running for run in mine):
            break
        await asyncio.sleep(0.05)
    if not for_good:
        GIVEN_UP.difference_update(suffixes)


# ---------------------------------------------------------------------- values on their way to a process


Value = TypeVar("Value")


class Sealed(Generic[Value]):
    """Value that is unpickled only where it is used: the scheduler, which forwards it, may not see its store."""

    def __init__(self, value: Value) -> None:
        self._value: Value = value
        self._closed: bytes | None = None
        self._opening = threading.Lock()

    def __reduce__(self) -> Any:
        return _come, (cloudpickle.dumps(self._value) if self._closed is None else self._closed,)

    @property
    def value(self) -> Value:
        with self._opening:
            if self._closed is not None:
                self._value, self._closed = pickle.loads(self._closed), None  # bytes that this class has pickled
            return self._value


def _come(closed: bytes) -> Sealed[Any]:
    """Return a value still pickled; a module-level function, as cloudpickle would send a class's code along."""
    there: Sealed[Any] = Sealed(None)
    there._closed = closed
    return there
