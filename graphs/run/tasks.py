"""Runs in one process, which can be cancelled there, and values on their way to it."""

from __future__ import annotations

import asyncio
import pickle
import threading
import weakref
from collections.abc import Collection
from typing import Any, Generic, TypeVar

import cloudpickle

from oocarrays.errors import RunError
from oocarrays.graphs.events import this_worker

SETTLE_SECONDS = 60
"""Seconds that a failed run waits for its running tasks."""
LIVE: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""Runs in this process, `oocarrays.graphs.run.run.Run`, by names that begin with their ids."""
GIVEN_UP: set[str] = set()
"""Key suffixes of the graphs that this worker must no longer run."""


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
