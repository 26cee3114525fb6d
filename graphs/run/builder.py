"""Adding the tasks of one graph, which take one thing in common: the run or the plan that says what they do.

key      verb-suffix, plain arguments, rank       new for each graph; `placement` pins by the suffix and the rank
task     do(shared, verb, arguments, …)           takes buffers, and waits for others

A graph bounds memory because a buffer travels along its edges: who needs one waits for the task that had it before.
What holds one does not tell Dask how large it is: the plan has counted it, and a worker must not spill it.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from dask.task_spec import Task, TaskRef

from oocarrays.graphs.run.steps import Key
from oocarrays.storage.local.pages import allocate


@dataclass(slots=True)
class RankBuffers:
    """Buffers of one rank while it builds regions for itself."""

    region: np.ndarray
    """Bytes of the target chunks that it builds."""
    chunk: np.ndarray
    """Bytes of the source chunk that it reads."""

    @property
    def empty(self) -> bool:
        """Whether it was left behind when its rank moved to another worker."""
        return len(self.region) == 0

    def __reduce__(self) -> Any:
        return RankBuffers, (allocate(0), allocate(0))


@dataclass(slots=True)
class ReadSlab:
    """Chunks that one rank has read in one round of a partition."""

    buffer: np.ndarray
    """Bytes, chunk after chunk."""
    chunks: list[tuple[tuple[int, ...], np.ndarray | None]] = field(default_factory=list)
    """Index and elements of each source chunk; None for one that is missing."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Outbox:
    """Messages that one rank has packed of a partition."""

    messages: list[np.ndarray | None]
    """Bytes for each rank; None where it needs nothing."""
    buffer: np.ndarray | None
    """Where they lie, one behind the other; None when they have been let go."""


@dataclass(slots=True)
class Region:
    """The target chunks that one rank builds in a partition."""

    buffer: np.ndarray | None
    """Bytes, chunk after chunk; None when they have been written."""


T = TypeVar("T")


def itself(given: T) -> T:
    """Return an argument as it was given: a task that holds a value."""
    return given


def new_suffix() -> str:
    """Make what is in every key of one graph, and of no other."""
    return uuid.uuid4().hex[:12]


class RoundsAhead(Generic[T]):
    """Rounds of which so many are under way at one time: one begins when that so many before is done."""

    def __init__(self, ahead: int, start: T) -> None:
        self._last = deque([start] * ahead, maxlen=ahead)

    @property
    def before(self) -> T:
        """The end of the round that the next one waits for."""
        return self._last[0]

    @property
    def last(self) -> T:
        """The end of the last round."""
        return self._last[-1]

    def add(self, end: T) -> None:
        self._last.append(end)

    def __iter__(self) -> Iterator[T]:
        return iter(self._last)


class Builder:
    """Adds tasks."""

    def __init__(self, suffix: str, do: Callable[..., Any], shared: Any) -> None:
        self.suffix = suffix
        self.graph: dict[Key, Task] = {}
        self._do = do
        self._shared = shared

    def share(self, name: str) -> None:
        """Make what all tasks take a result, so that it travels once to each worker."""
        key = (f"{name}-{self.suffix}", 0)
        self.graph[key] = Task(key, itself, self._shared)
        self._shared = TaskRef(key)

    def create(self, addresses: Sequence[str], after: Iterable[Key] = ()) -> Key:
        """Add the tasks that begin a run; the others take the run that they give."""
        if not addresses:
            return self.add("create", after=after, rank=0)
        self.share("run")
        probes = [self.add("probe", at, rank, name="probe worker", after=after) for rank, at in enumerate(addresses)]
        created = self.add("create", buffers=tuple(probes), rank=0)
        self._shared = TaskRef(created)
        return created

    def add(
        self,
        verb: str,
        *args: Any,
        name: str = "",
        buffers: tuple[Key | None, ...] = (),
        after: Iterable[Key] = (),
        rank: int | None = None,
    ) -> Key:
        """Add a task with its arguments, inputs and dependencies; return its key, which ends with its rank."""
        key = (f"{name or verb}-{self._suffix_of(verb)}", *args, *([] if rank is None else [rank]))
        taken = [None if buffer is None else TaskRef(buffer) for buffer in buffers]
        self.graph[key] = Task(key, self._do, self._shared, verb, args, len(taken), *taken, *map(TaskRef, after))
        return key

    def add_whole(self, do: Callable[..., Any], name: str, *args: int, held: Key | None, after: Iterable[Key]) -> Key:
        """Add a task that waits for others of its kind without a thread: a coroutine function, which takes its key."""
        key = (f"{name}-{self.suffix}", *args)
        self.graph[key] = Task(
            key, do, self._shared, key, args, None if held is None else TaskRef(held), *map(TaskRef, after)
        )
        return key

    def _suffix_of(self, verb: str) -> str:
        """Return the part of a task's key that says where ranks are."""
        return self.suffix
