"""What all tasks have in common, of jobs and of arrays: they are counted, told of, and can be given up.

    builder ─► Task(do, run, verb, args, …) ─► Tasks.task ─► run._do(verb, args, …)    one object for all of a graph

Between threads they share it; on a cluster it travels once to each worker, and counts there what is done there.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
import weakref
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import cloudpickle

from oocarrays.errors import RunError, UnsupportedError
from oocarrays.graphs.cluster.shared import Rooms
from oocarrays.graphs.run.telling import tell, this_worker, topic_of
from oocarrays.storage.meter import Meter

SETTLE_SECONDS = 60
"""Seconds that a failed run waits for what its other tasks are in the middle of."""
LIVE: weakref.WeakValueDictionary[str, Tasks] = weakref.WeakValueDictionary()
"""What does tasks in this process, by its id."""
GIVEN_UP: set[str] = set()
"""Suffixes of the keys of graphs that this worker has been told to do no more of."""
ONE_PROCESS = "this job was planned for threads of one process: compute it with scheduler='threads'"
OF_PROCESS = ("meter", "rooms", "failure", "_running", "_idle")
"""What does not travel: another process counts for itself."""


class Tasks:
    """State that the tasks of one graph share: each of them is a method, named by its verb."""

    travels: ClassVar[str] = ""
    """Names of what other processes get of it, with those that the classes above say; all, where none says any."""
    sealed: ClassVar[str] = ""
    """Of those that travel as bytes, for `unsealed`: the scheduler, which cannot use them, may not even see them."""
    stays: ClassVar[bool] = False
    """Whether nothing travels of what was planned for threads of one process."""
    id: str
    """What its topic is called by, and what is in the keys of its graph where it has only one."""

    def _here(self) -> None:
        """Make what belongs to this process."""
        self.meter = Meter()
        self.rooms = Rooms()
        self.failure: BaseException | None = None
        self._running = 0
        self._idle = threading.Condition()
        LIVE[self.id] = self

    def __getstate__(self) -> dict[str, Any]:
        if self.stays and not self.on_workers:
            raise UnsupportedError(ONE_PROCESS)
        names, sealed = self._said("travels"), self._said("sealed")
        if not names:
            return {name: value for name, value in self.__dict__.items() if name not in OF_PROCESS}
        sent = {name: getattr(self, name) for name in (*names, *sealed)}
        return sent | {name: cloudpickle.dumps(sent[name]) for name in sealed if not isinstance(sent[name], bytes)}

    @classmethod
    def _said(cls, what: str) -> list[str]:
        """All names that this class and those above say."""
        return [name for each in cls.__mro__ for name in vars(each).get(what, "").split()]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._here()

    def unsealed(self, name: str) -> Any:
        """Return something that is sealed where it has travelled, opened once in each process."""
        value = getattr(self, name)
        if isinstance(value, bytes):
            value = pickle.loads(value)  # our own bytes
            setattr(self, name, value)
        return value

    @property
    def on_workers(self) -> bool:
        """Whether ranks are workers, which tell a cluster what they did."""
        raise NotImplementedError

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

    def _let_go(self) -> None:
        """Let go, after a task, of what a run that has failed keeps from others."""


def is_given_up() -> bool:
    """Whether this task is of a graph that has been given up: it was on its way when its worker was told."""
    worker = this_worker()
    key = str(worker.get_current_task()) if worker else ""
    return any(suffix in key for suffix in GIVEN_UP)


async def settled(ids: Collection[str], suffixes: Collection[str], *, for_good: bool = True) -> None:
    """Give up graphs on this worker: wait for tasks that have begun, and refuse those that come late.

    Parameters
    ----------
    ids : collection of str
        Of what does the tasks, or what their ids begin with.
    suffixes : collection of str
        What is in the keys of the graphs.
    for_good : bool
        Whether their keys never come again; those of an array do, when it is computed once more.
    """
    GIVEN_UP.update(suffixes)
    mine = [run for name, run in LIVE.items() if name.startswith(tuple(ids))]
    for _ in range(SETTLE_SECONDS * 20):
        if not any(run.running for run in mine):
            break
        await asyncio.sleep(0.05)
    if not for_good:
        GIVEN_UP.difference_update(suffixes)
