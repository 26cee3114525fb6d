"""Programs, the frozen data of runs, and the builder of the tasks of one graph.

Tasks are plain functions of a module, ``f(live, *args, *inputs)``, which share their first argument: run or plan.

    key      name-suffix, plain arguments, rank       new for each graph; `placement` pins by the suffix and the rank
    task     do(shared, function, arguments, …)       receives buffers, and waits for other tasks

Buffers travel along the edges of the graph, which bounds memory: a task that needs a buffer waits for the previous user
of that buffer. Objects that hold a buffer do not report its size to Dask: the plan has counted it, and a worker must
not spill it.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import zarr
from dask.task_spec import Task, TaskRef
from zarr.storage import MemoryStore

from oocarrays.errors import RunError
from oocarrays.graphs.run.steps import PHASES, Key
from oocarrays.plan.cost import Traffic
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import TargetSpec
from oocarrays.storage.files.local_files import RankFiles
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.journal.texts import Kept
from oocarrays.storage.local.pages import allocate
from oocarrays.storage.stores.remote import RemoteStore


@dataclass(slots=True)
class RankBuffers:
    """Buffers of one rank that works alone in a pass."""

    region: np.ndarray
    """Bytes of the target chunks being built; in an assembled pass, of the source box being read."""
    chunk: np.ndarray
    """Bytes of the source chunk being read; in an assembled pass, of the piece being staged."""

    @property
    def empty(self) -> bool:
        """Whether the buffers were dropped when the rank moved to another worker."""
        return len(self.region) == 0

    def __reduce__(self) -> Any:
        return RankBuffers, (allocate(0), allocate(0))


@dataclass(slots=True)
class ReadSlab:
    """Chunks that one rank has read in one round of a partition."""

    buffer: np.ndarray
    """Bytes of the chunks, one after the other."""
    chunks: list[tuple[tuple[int, ...], np.ndarray | None]] = field(default_factory=list)
    """Index and elements of each source chunk; None for a missing chunk."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Outbox:
    """Messages that one rank has packed from a partition."""

    messages: list[np.ndarray | None]
    """Bytes for each rank; None for a rank that needs nothing."""
    buffer: np.ndarray | None
    """Memory that holds all messages, one after the other; None once released."""


@dataclass(slots=True)
class Region:
    """Target chunks that one rank builds in a partition."""

    buffer: np.ndarray | None
    """Bytes of the chunks, one after the other; None once written, or if the rank has nothing to write."""

    @property
    def memory(self) -> np.ndarray:
        """Bytes of the chunks, which are still to be written."""
        if self.buffer is None:
            raise RunError("a region was released before it was written")
        return self.buffer


T = TypeVar("T")
Work = Callable[..., Any]
"""Function of a task: its first argument is the live state of the run, or the shared argument of a plan."""
AROUND: ContextVar[Any] = ContextVar("around", default=None)
"""Key of the task around a coroutine, whose own key the worker does not know."""
SUFFIX = re.compile(r"-([0-9a-f]{12})")
"""Suffix in every key of a graph; Dask may append to it."""


def itself(given: T) -> T:
    """Return the argument unchanged: the function of a task that holds a value."""
    return given


def new_suffix() -> str:
    return uuid.uuid4().hex[:12]


class Unfused(Task):
    """Task that graph optimisation fuses with no other: its key is known elsewhere, or a worker awaits its result."""

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        return True

    def __call__(self, values: Any = ()) -> Any:
        """Return the result. Inside another task, as in `dask.delayed`, no worker awaits it: this thread does."""
        made = super().__call__(values)  # type: ignore[no-untyped-call]
        if not asyncio.iscoroutine(made):
            return made
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            return made  # to the worker's loop
        from distributed import get_worker, secede

        worker = get_worker()
        token = AROUND.set(worker.get_current_task())
        try:
            secede()  # its peers may need a thread of this worker
            return asyncio.run_coroutine_threadsafe(made, worker.loop.asyncio_loop).result()  # type: ignore[attr-defined]
        finally:
            AROUND.reset(token)


class RoundsAhead(Generic[T]):
    """Window of `ahead` rounds in progress: each new round waits for the end of the oldest round in the window."""

    def __init__(self, ahead: int, start: T) -> None:
        self._last = deque([start] * ahead, maxlen=ahead)

    @property
    def before(self) -> T:
        """End of the round that the next round waits for."""
        return self._last[0]

    @property
    def last(self) -> T:
        return self._last[-1]

    def add(self, end: T) -> None:
        self._last.append(end)

    def __iter__(self) -> Iterator[T]:
        return iter(self._last)


class Builder:
    def __init__(
        self,
        suffix: str,
        do: Callable[..., Any],
        shared: Any,
        begins: tuple[Work, Work] | None = None,
        after: Iterable[Key] = (),
    ) -> None:
        self.suffix = suffix
        self.graph: dict[Key, Task] = {}
        self._do = do
        self.shared = shared
        self.begins = begins
        self.elsewhere: Mapping[str, str] = {}
        """Suffixes of the verbs with tasks that are pinned to other workers, by the names of their functions."""
        self._after = tuple(after)

    def share(self, name: str) -> None:
        """Add a task that holds the shared argument, so that it travels once to each worker."""
        key = (f"{name}-{self.suffix}", 0)
        self.graph[key] = Task(key, itself, self.shared)
        self.receive(key)

    def receive(self, key: Key) -> None:
        """Let later tasks receive the shared argument from a task."""
        self.shared = TaskRef(key)

    def create(self, addresses: Sequence[str], after: Iterable[Key] = (), *, probes: bool = True) -> Key:
        """Add the tasks that begin a run, which ``probes`` its workers first; later tasks receive the run from it."""
        assert self.begins, "lazy tasks have no beginning in common"
        create, probe = self.begins
        if addresses:
            self.share("run")
        after = (*self._after, *after)
        each = enumerate(addresses if probes else ())
        seen = [self.add(probe, at, rank, name="probe worker", after=after) for rank, at in each]
        created = self.add(create, buffers=tuple(seen), after=() if seen else after, rank=0)
        if addresses:
            self.receive(created)
        return created

    def add(
        self,
        work: Work,
        *args: Any,
        name: str = "",
        buffers: tuple[Key | None, ...] = (),
        after: Iterable[Key] = (),
        rank: int | None = None,
        do: Callable[..., Any] | None = None,
    ) -> Key:
        """Add a task with its arguments, inputs and dependencies; return its key, which ends with its rank."""
        called = work.__name__
        key = (f"{name or called}-{self.elsewhere.get(called, self.suffix)}", *args, *([] if rank is None else [rank]))
        taken = [None if buffer is None else TaskRef(buffer) for buffer in buffers]
        self.graph[key] = Task(key, do or self._do, self.shared, work, args, len(taken), *taken, *map(TaskRef, after))
        return key

    def add_whole(self, do: Callable[..., Any], name: str, *args: int, held: Key | None, after: Iterable[Key]) -> Key:
        """Add a task for a coroutine function, which takes its own key and waits for its peers without a thread."""
        key = (f"{name}-{self.suffix}", *args)
        self.graph[key] = Unfused(
            key, do, self.shared, key, args, None if held is None else TaskRef(held), *map(TaskRef, after)
        )
        return key


# ---------------------------------------------------------------------- programs


Part = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class InPlace:
    """Destination of a run that creates no target: an existing array, or existing local array files."""

    store: StoreLike
    """Folder, or store and path, of the array or of the group of files."""


NOWHERE = InPlace(MemoryStore())
"""Destination of a program without targets, whose result is returned in memory."""


class Remaining(NamedTuple):
    """Work that is not done yet."""

    share: float
    """Share of the work, from 0 to 1."""
    reads: float
    """Number of read requests."""
    writes: float
    """Number of chunk writes."""

    @classmethod
    def of(cls, share: float, traffic: Traffic) -> Remaining:
        return cls(share, share * traffic.read_requests, share * traffic.write_requests)


@dataclass(frozen=True, kw_only=True)
class Program:
    """Work of a run: each kind adds its data."""

    plan: Any
    note: Mapping[str, Any] = field(default_factory=dict)
    """Request kept beside existing data while a run writes in place; empty for other runs."""
    phases: ClassVar[Mapping[str, str]] = PHASES
    """Phase of a plan to which the seconds of each function count; others count as beginning and end."""
    threads_stay: ClassVar[bool] = False
    """Whether a run planned for threads cannot leave its process."""
    restarts: ClassVar[bool] = False
    """Whether an interrupted run starts over, and keeps no journal."""
    untimed: ClassVar[Collection[str]] = ()
    """Names of the functions that time their reads and writes themselves."""

    @property
    def processes(self) -> int | None:
        """Number of worker processes; None for threads of one process."""
        return self.plan.processes

    @property
    def ranks(self) -> int:
        return self.plan.ranks

    @property
    def merges(self) -> bool:
        """Whether workers may write to copies of its target arrays, to be merged at the end."""
        return False

    @property
    def whole(self) -> bool:
        """Whether one task exchanges a whole round of a rank, with those of other ranks on their workers."""
        return False

    @property
    def sources(self) -> Sequence[ArrayFile | RankFiles]:
        """Files that the run reads and does not make."""
        return ()

    @property
    def presences(self) -> Iterable[Presence]:
        """Records that detect whether the sources still exist."""
        return chain.from_iterable(source.presences for source in self.sources)

    @property
    def read_from(self) -> Sequence[zarr.Array] | Mapping[str, zarr.Array]:
        """Arrays that must not change during the run, in order or by name."""
        return [file.zarr for source in self.sources for file in source.shared]

    @property
    def fingerprinted(self) -> Sequence[zarr.Array] | Mapping[str, zarr.Array]:
        """Arrays with their fingerprints in the journal: also those that other runs of the same job read."""
        return self.read_from

    @property
    def targets(self) -> Sequence[TargetSpec]:
        """Targets of the run, the first one with its journal: by default its ``target``; empty if it has none."""
        target: TargetSpec | None = getattr(self, "target", None)
        return () if target is None else (target,)

    @property
    def destination(self) -> TargetSpec | InPlace:
        """Location of the journal and the mark."""
        return self.targets[0] if self.targets else NOWHERE

    @property
    def removable(self) -> bool:
        """Whether a run whose kernel has failed may remove its targets if it has written no part of them."""
        return True

    @property
    def places(self) -> Sequence[StoreLike | RemoteStore]:
        """Locations in which a changed plan removes chunks that are not as they were stored."""
        return [place for target in self.targets for place in target.places]

    @property
    def scratch(self) -> Sequence[str | RemoteStore]:
        """Locations of intermediate data that is synced before it is recorded."""
        return ()

    @property
    def cached(self) -> Sequence[str | RemoteStore]:
        """Locations of intermediate data in the system's cache; records of it hold until the system restarts."""
        return ()

    @property
    def room(self) -> Mapping[str, int]:
        """Bytes to be written, by folder, as far as they are known beforehand."""
        return {}

    @property
    def stores(self) -> dict[str, Any]:
        """Stores that all workers must reach, by their names in messages."""
        places: dict[str, list[Any]] = {
            "source": [
                source.files.store if isinstance(source, RankFiles) else source.zarr.store_path.store
                for source in self.sources
            ],
            "target": [target.store for target in self.targets],
        }
        each = ((name, number, store) for name, stores in places.items() for number, store in enumerate(stores))
        return {f"{name} {number}" if len(places[name]) > 1 else name: store for name, number, store in each}

    @property
    def made_place(self) -> StoreLike | None:
        """Array beside which the request is kept; None where no process but a worker sees it."""
        return self.destination.store

    def place_of(self, part: Part, name: str) -> StoreLike | None:
        """Return the location of a part's receipts under a name; None for locations that are not checked."""
        return None if name else self.destination.store

    @property
    def member(self) -> str:
        """Path of the target in a group, whose run records the end of all its arrays; empty for a run by itself."""
        return ""

    @property
    def leaves(self) -> str:
        """Description of the state that an interrupted run without targets leaves."""
        return "nothing is left of it"

    def check_visible(self) -> None:
        """Raise if this worker does not see existing data that the run changes."""

    def restart(self, live: Any) -> None:
        """Discard what another plan cannot use, before that plan replaces the one in the journal."""

    def begin(self, live: Any) -> None:
        """Begin what only this program has, in the task that begins the run: the journal and the targets exist."""

    def settle(self, live: Any, *, resumable: bool) -> None:
        """Release what a failed run holds in this process, and remove what no resumed run can use."""

    def remaining(self, done: Collection[Part], kept: Kept) -> Remaining:
        """Return the work that remains after these parts, and chunks that earlier plans have stored."""
        return Remaining.of(1.0, self.plan.traffic)

    def graph(self, builder: Builder, addresses: Sequence[str], done: Collection[Part]) -> Key:
        """Add the tasks of a run on the workers with these addresses, less parts that are done; return the last key."""
        raise NotImplementedError
