"""Builder of one graph's tasks, which share their first argument: the run or the plan.

    key      name-suffix, plain arguments, rank       new for each graph; `placement` pins by the suffix and the rank
    task     do(shared, function, arguments, …)       receives buffers, and waits for other tasks

Buffers travel along the edges of the graph, which bounds memory: a task that needs a buffer waits for the previous user
of that buffer. Objects that hold a buffer do not report its size to Dask: the plan has counted it, and a worker must
not spill it.
"""

from __future__ import annotations

import re
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from dask.task_spec import Task, TaskRef

from oocarrays.errors import RunError
from oocarrays.graphs.run.steps import Key
from oocarrays.storage.local.pages import allocate


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
SUFFIX = re.compile(r"-([0-9a-f]{12})")
"""Suffix in every key of a graph; Dask may append to it."""


def itself(given: T) -> T:
    """Return the argument unchanged: the function of a task that holds a value."""
    return given


def new_suffix() -> str:
    """Return a new suffix for the keys of one graph."""
    return uuid.uuid4().hex[:12]


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
        """End of the most recent round."""
        return self._last[-1]

    def add(self, end: T) -> None:
        self._last.append(end)

    def __iter__(self) -> Iterator[T]:
        return iter(self._last)


class Builder:
    """Builder of the tasks of one graph."""

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
        key = (f"{name or called}-{self._suffix_of(called)}", *args, *([] if rank is None else [rank]))
        taken = [None if buffer is None else TaskRef(buffer) for buffer in buffers]
        self.graph[key] = Task(key, do or self._do, self.shared, work, args, len(taken), *taken, *map(TaskRef, after))
        return key

    def add_whole(self, do: Callable[..., Any], name: str, *args: int, held: Key | None, after: Iterable[Key]) -> Key:
        """Add a task for a coroutine function, which takes its own key and waits for its peers without a thread."""
        key = (f"{name}-{self.suffix}", *args)
        self.graph[key] = Task(
            key, do, self.shared, key, args, None if held is None else TaskRef(held), *map(TaskRef, after)
        )
        return key

    def _suffix_of(self, verb: str) -> str:
        """Return the suffix of a verb's keys, by which its tasks are pinned to workers."""
        return self.suffix
