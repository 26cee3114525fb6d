"""Live state of a run in one process: its journal, syncer, buffers and open files; never pickled.

Also the runs of this process, which can be cancelled there, and values on their way to it.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar, final

import cloudpickle

from oocarrays.errors import RunError
from oocarrays.graphs.cluster.shared import Rooms
from oocarrays.graphs.events import this_worker
from oocarrays.graphs.run.program import Part, Program
from oocarrays.graphs.run.recovery import NOTHING_LEFT, Recovered
from oocarrays.plan.documents import Document
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import TargetSpec
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.places import StoreLike, folders_of, named
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.leftovers import discard, hold
from oocarrays.storage.journal.lock import Hold
from oocarrays.storage.journal.texts import Notes, Receipt
from oocarrays.storage.journal.versions import Versions
from oocarrays.storage.local import syncing
from oocarrays.storage.local.syncing import Syncer
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.responses import ResponseCheck

P = TypeVar("P", bound=Program)
T = TypeVar("T")

SETTLE_SECONDS = 60
"""Seconds that a failed run waits for its running tasks."""
LIVE: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""Runs in this process, `oocarrays.graphs.run.run.Run`, by names that begin with their ids."""
GIVEN_UP: set[str] = set()
"""Key suffixes of the graphs that this worker must no longer run."""


@dataclass(slots=True, kw_only=True)
class RunState:
    """State of a run that travels to every process; the task that begins the run completes it."""

    id: str
    """Id: in the marks of targets, in the journal, and in the name of the topic."""
    processes: int | None
    """Number of worker processes; None for threads of one process."""
    durable: bool
    """Whether data is synced to its device before it is recorded as written."""
    content: Document = field(default_factory=dict)
    recovered: Recovered = NOTHING_LEFT
    """State recovered from an earlier attempt at this run."""
    topic: str = ""
    """Topic of the events, if it is that of another run of the same job."""
    homes: Sequence[str] = ()
    """Worker of each rank when the graph was built, if ranks exchange whole rounds."""
    versions: Sequence[tuple[ArrayFile, Versions]] = ()
    """Files whose chunks are compared during the run, with their versions when the run began."""
    begun: bool = False
    """Whether a task has begun the run, so that its first failure stops all other tasks."""
    made: bool = False
    """Whether this graph made the targets, so that no chunk in them comes from an earlier attempt."""

    def __reduce__(self) -> Any:
        usual = RunState(id="", processes=None, durable=True)
        others = ("content", "recovered", "topic", "homes", "versions", "begun", "made")
        told = {name: getattr(self, name) for name in others if getattr(self, name) != getattr(usual, name)}
        return _state, (self.id, self.processes, self.durable, told)  # as few bytes as most runs need


def _state(id: str, processes: int | None, durable: bool, others: Mapping[str, Any]) -> RunState:
    return RunState(id=id, processes=processes, durable=durable, **others)


@final
class Live(Generic[P]):
    def __init__(self, program: P, state: RunState) -> None:
        self.program, self.state = program, state
        self._opening = threading.RLock()
        self._opened: dict[Any, Any] = {}
        self.syncer = Syncer(
            lambda: dict.fromkeys(
                folder
                for places in (*((t.store, *t.places) for t in program.targets), program.scratch)
                for place in places
                for folder in folders_of(place)
            ),
            active=state.durable and bool(program.targets or program.scratch),
            patience=0.0 if self.on_workers else syncing.GROUP_SECONDS,
            spare=lambda: [folder for place in program.cached for folder in folders_of(place)],
        )
        self.meter = Meter()
        self.shares_meter = False
        """Whether the meter counts for other runs, too, and stays when this one begins anew."""
        self.parts: Sequence[Live[Any]] = ()
        """State of the other runs of the job, in this process."""
        self._used: dict[tuple[str, int], tuple[Hold | None, weakref.finalize | None]] = {}
        self.copies: Sequence[ArrayFile] = ()
        """Copies of the sources, to be read in their place."""
        self._clear()

    def begin_anew(self) -> None:
        """Discard counts, errors and open files of an earlier attempt in this process."""
        self.state.begun = False
        self._clear()

    def _clear(self) -> None:
        self.failure: BaseException | None = None
        self.ended = False
        """Whether the run has already finished its targets, and its tasks are repeated."""
        self.meter = self.meter if self.shares_meter else Meter()
        self.journal = Journal(self.store, durable=self.state.durable)
        self.syncer.begin_anew()
        self.responses: list[ResponseCheck | None] = []
        self._opened.clear()

    @property
    def id(self) -> str:
        return self.state.id

    @property
    def on_workers(self) -> bool:
        """Whether ranks are workers, which send messages and report to the cluster."""
        return self.state.processes is not None

    @property
    def store(self) -> StoreLike:
        """Location of the journal."""
        return self.program.destination.store

    @property
    def rooms(self) -> Rooms:
        return self.once("rooms", Rooms)

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """Return the object of this key, made at the first call."""
        with self._opening:
            if key not in self._opened:
                self._opened[key] = make()
            return self._opened[key]

    def forget(self, *keys: Any) -> None:
        """Drop the objects of these keys; without any, all objects."""
        with self._opening:
            for key in keys or [*self._opened]:
                self._opened.pop(key, None)

    def use(self, scratch: str | RemoteStore, rank: int = 0) -> None:
        """Mark scratch, of a rank if each has its own, as in use by this process.

        On threads, it is removed with this object unless it was given up before.
        """
        with self._opening:
            if (str(scratch), rank) in self._used:
                return
            held: Hold | None = None
            removal: weakref.finalize | None = None
            if isinstance(scratch, str):
                held = hold(scratch, self.store)
                removal = None if self.on_workers else weakref.finalize(self, discard, scratch, held)
            self._used[str(scratch), rank] = held, removal

    def give_up(self, scratch: str | RemoteStore, rank: int = 0) -> bool:
        """Stop using scratch, which stays there; return whether this process has used it."""
        used = self._used.pop((str(scratch), rank), None)
        held, removal = used or (None, None)
        if removal:
            removal.detach()
        if held:
            held.close()
        return used is not None

    def target(self, number: int = 0) -> Any:
        return self.once(("target", number), partial(self._open, number))

    def _open(self, number: int) -> Any:
        self.journal.join()
        return self.program.targets[number].open()

    def unmade(self) -> dict[int, TargetSpec]:
        """Return the targets that this run has not made, by number: the first one is made last."""
        each = enumerate(self.program.targets)
        return {n: target for n, target in each if not n or unfinished_run(target.store) != self.id}

    def make_targets(self) -> None:
        """Make the targets, marked unfinished, the first one last: its mark shows that all exist."""
        for number, target in reversed(self.unmade().items()):
            made = target.create(self.id, durable=self.state.durable)
            if number and (first := named(self.store)) is not None:
                Notes(target.store).point_to(first)
            if made is not None:
                self.once(("target", number), lambda made=made: made)  # type: ignore[misc]

    def look(self) -> None:
        """Check the sources, as far as they are visible here."""
        for presence in self.program.presences:
            presence.check()

    @contextmanager
    def compared(self) -> Iterator[None]:
        """Compare responses of stores with the versions of chunks that a run with targets has listed."""
        listed = self.state.versions if self.program.targets else ()
        if listed and not self.responses:
            self.responses = [versions.responses(file) for file, versions in listed]
        yield
        then = "run the job again, or start over (resume with again=True, --again)"
        for (file, versions), responses in zip(listed, self.responses, strict=False):
            versions.check_responses(file, responses, then=then)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Compare reads inside the context with the versions of chunks that a run without targets has listed."""
        with ExitStack() as stack:
            for file, versions in () if self.program.targets else self.state.versions:
                stack.enter_context(versions.reading(file))
            yield

    def is_done(self, part: Part) -> bool:
        """Return whether a part was done before a resume or the loss of a worker; after the run's end, all are."""
        done = self.ended or part in self.state.recovered.done
        if done or not (self.on_workers and self.program.targets):
            return done
        return self.journal.has(part) if self.journal.is_there() else is_finished(self.store)

    def record(self, part: Part, stored: Mapping[str, Mapping[str, Receipt]] | None = None) -> None:
        """Record that a part is done, once it is on its device.

        Threads do not wait for that: they end together, and their records are written in groups. A worker's task
        waits: if the worker dies, Dask does not repeat a finished task to make up for a missing record.
        """
        self.syncer.then(partial(self.journal.prepare, part, stored), ahead=self.program.ranks)
        if self.on_workers:
            self.syncer.wait()

    def release(self) -> None:
        """Publish the records so far, and release the journal to other runs."""
        self.syncer.stop()
        self.journal.release()


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


class Sealed(Generic[T]):
    """Value that is unpickled only where it is used: the scheduler, which forwards it, may not see its store."""

    def __init__(self, value: T) -> None:
        self._value: T = value
        self._closed: bytes | None = None
        self._opening = threading.Lock()

    def __reduce__(self) -> Any:
        return _come, (cloudpickle.dumps(self._value) if self._closed is None else self._closed,)

    @property
    def value(self) -> T:
        with self._opening:
            if self._closed is not None:
                self._value, self._closed = pickle.loads(self._closed), None  # bytes that this class has pickled
            return self._value


def _come(closed: bytes) -> Sealed[Any]:
    """Return a value still pickled; a module-level function, as cloudpickle would send a class's code along."""
    there: Sealed[Any] = Sealed(None)
    there._closed = closed
    return there
