"""A collective read as tasks.

    between threads    read 1 ─┬─► fill 1 ─┬─► fill 2 ─► part     a rank's part is filled straight from what others read
                       read 2 ─┼─► …       │
                               └───────────┴                      round k + 2 is read when round k has been taken

    between workers    read 1 ─► keep, send ─╳─► receive …        the exchange of a round goes on while the next is read

Thakur 1995, section 6.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.task_spec import Task, TaskRef
from oocarrays.graphs.parts import home_addresses, itself
from oocarrays.graphs.rechunk import new_suffix
from oocarrays.graphs.steps import Carried, Exchange, Key, arrived_parts, carried_parts, sent_parts

from oocarrays.mapping.section import Section
from oocarrays.plan.collective import CollectivePlan, Place, part_shape
from oocarrays.plan.schedule import Schedule
from oocarrays.storage.array_file import ArrayFile
from oocarrays.storage.sections import read_section

if TYPE_CHECKING:
    from oocarrays.graphs.nearby import Message

AHEAD = 2
"""Rounds that a rank has read and the others not yet taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the tasks of a collective read do."""

    file: ArrayFile
    """What is read."""
    plan: CollectivePlan
    """Who reads what for whom."""
    schedule: Schedule | None
    """Who sends to whom in which step; None between threads."""

    def task(self, verb: str, args: tuple[int, ...], buffers: int, *inputs: Any) -> Any:
        """Do one task: ``verb`` with its plain arguments and its first ``buffers`` inputs."""
        return getattr(self, verb)(*args, *inputs[:buffers])

    def _box(self, number: int, rank: int) -> Section:
        box = self.plan.rounds[number][rank]
        assert box is not None, "only what is there is read"
        return box

    def make(self, rank: int) -> np.ndarray:
        """A rank's part, still empty."""
        return np.empty(part_shape(self.plan, rank), self.file.dtype)

    def read(self, number: int, rank: int) -> np.ndarray:
        """What a rank reads in a round, for all."""
        return read_section(self.file, self.plan.tight(self._box(number, rank)))

    def fill(self, number: int, rank: int, part: np.ndarray, *came: np.ndarray | None) -> np.ndarray:
        """A rank's part, and in it what it wants of what some ranks have read: those that it wants any of."""
        wanted = [source for source in range(self.plan.ranks) if self.wanted(number, source, rank)]
        for source, data in zip(wanted, came, strict=True):
            there, inside = self._places(number, source, rank)
            assert data is not None, "who reads has something"
            part[index_of(there)] = data[index_of(inside)]
        return part

    def wanted(self, number: int, source: int, rank: int) -> bool:
        """Whether a rank wants any of what another reads in a round."""
        box = self.plan.rounds[number][source]
        return box is not None and self.plan.wants(box, rank)

    def _places(self, number: int, source: int, rank: int) -> tuple[Place, Place]:
        box = self._box(number, source)
        return self.plan.places(box, self.plan.tight(box), rank)

    def keep(self, number: int, rank: int, part: np.ndarray, data: np.ndarray) -> np.ndarray:
        """A rank's part, and in it what it has read for itself."""
        there, inside = self._places(number, rank, rank)
        part[index_of(there)] = data[index_of(inside)]
        return part

    def send(
        self, number: int, stage: int, rank: int, data: np.ndarray | None, carried: Carried | None
    ) -> Message | None:
        """The message of a step."""
        assert self.schedule is not None, "threads send nothing"
        own = _Packed(self, number, rank, data)
        return sent_parts(self.schedule, stage, rank, own, carried)

    def pack(self, number: int, rank: int, data: np.ndarray, final: int) -> np.ndarray | None:
        """What another rank wants of what this one has read, as bytes."""
        if final == rank or not self.wanted(number, rank, final):
            return None
        _, inside = self._places(number, rank, final)
        return np.ascontiguousarray(data[index_of(inside)]).reshape(-1).view(np.uint8)

    def carry(self, number: int, stage: int, rank: int, carried: Carried | None, *messages: Message | None) -> Carried:
        """What this rank holds for others."""
        assert self.schedule is not None, "threads send nothing"
        return carried_parts(self.schedule, stage, rank, carried, messages)

    def taken(self, number: int, stage: int, rank: int) -> None:
        """Say that a step's message has been received."""

    def receive(self, number: int, stage: int, rank: int, part: np.ndarray, *messages: Message | None) -> np.ndarray:
        """A rank's part, and in it what has come."""
        for source, data in arrived_parts(rank, messages).items():
            there, _ = self._places(number, source, rank)
            place = index_of(there)
            part[place] = data.view(self.file.dtype).reshape(part[place].shape)
        return part


class _Packed(Sequence[np.ndarray | None]):
    """Messages of one rank as bytes, each packed when it is asked for."""

    def __init__(self, reading: Reading, number: int, rank: int, data: np.ndarray | None) -> None:
        self._reading, self._number, self._rank, self._data = reading, number, rank, data

    def __len__(self) -> int:
        return self._reading.plan.ranks

    def __getitem__(self, final: Any) -> Any:
        if self._data is None or final >= len(self):
            return None
        return self._reading.pack(self._number, self._rank, self._data, final)


def index_of(place: Place) -> Any:
    """A place as an index of an array: a view, where all are slices."""
    if all(isinstance(part, slice) for part in place):
        return (*place, ...)
    return np.ix_(*(np.r_[part] if isinstance(part, slice) else part for part in place))


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTasks:
    """The tasks of a collective read."""

    suffix: str
    """What is in the key of each."""
    tasks: dict[Key, Task]
    """All of them."""
    keys: tuple[Key, ...]
    """The part of each rank."""
    homes: dict[str, Sequence[str]]
    """The worker of each rank, by suffix; none on threads."""


def collective_read(
    file: ArrayFile, plan: CollectivePlan, schedule: Schedule | None, workers: Sequence[str]
) -> CollectiveTasks:
    """The tasks that give each rank what it wants.

    Parameters
    ----------
    schedule : Schedule, optional
        The order of messages; None for threads, which take what they want of what others have read.
    workers : sequence of str
        Where ranks are put, in turn.
    """
    reading = Reading(file=file, plan=plan, schedule=schedule)
    builder = _Builder(reading)
    parts: list[Key | None] = [builder.add("make", rank) for rank in range(plan.ranks)]
    exchange = Exchange(schedule, builder.add) if schedule else None
    taken: list[list[Key]] = []
    for number in range(len(plan.rounds)):
        before = taken[number - AHEAD] if number >= AHEAD else []
        read = [
            builder.add("read", number, rank, after=before) if plan.rounds[number][rank] else None
            for rank in range(plan.ranks)
        ]
        parts = _exchanged(builder, exchange, number, read, parts)
        taken.append([part for part in parts if part is not None])
    keys = tuple(part for part in parts if part is not None)
    homes = {builder.suffix: home_addresses(plan.ranks, workers)} if workers else {}
    return CollectiveTasks(suffix=builder.suffix, tasks=builder.tasks, keys=keys, homes=homes)


def _exchanged(
    builder: _Builder, exchange: Exchange | None, number: int, read: list[Key | None], parts: list[Key | None]
) -> list[Key | None]:
    """The parts after a round."""
    reading, ranks = builder.reading, range(builder.reading.plan.ranks)
    if exchange is None:
        filled = []
        for rank in ranks:
            wanted = [read[source] for source in ranks if reading.wanted(number, source, rank)]
            filled.append(builder.add("fill", number, rank, buffers=(parts[rank], *wanted)) if wanted else parts[rank])
        return filled
    kept = [
        builder.add("keep", number, rank, buffers=(parts[rank], read[rank]))
        if reading.wanted(number, rank, rank)
        else parts[rank]
        for rank in ranks
    ]
    return exchange.build(
        number, outboxes=read, regions=kept, wants=lambda origin, final: reading.wanted(number, origin, final)
    )


class _Builder:
    """Adds the tasks of one collective read."""

    def __init__(self, reading: Reading) -> None:
        self.suffix = new_suffix()
        self.reading = reading
        first = (f"reading-{self.suffix}", 0)  # one result that all tasks take: it travels once to each worker
        self.tasks: dict[Key, Task] = {first: Task(first, itself, reading)}
        self._first = TaskRef(first)

    def add(
        self, verb: str, *args: Any, name: str = "", buffers: tuple[Key | None, ...] = (), after: Iterable[Key] = ()
    ) -> Key:
        """Add a task: a verb, plain arguments of which the last is its rank, what it takes and waits for."""
        key = (f"{name or verb}-{self.suffix}", *args)
        taken = [None if buffer is None else TaskRef(buffer) for buffer in buffers]
        self.tasks[key] = Task(key, Reading.task, self._first, verb, args, len(taken), *taken, *map(TaskRef, after))
        return key
