"""A collective read as tasks.

    between threads    make ─┬─► gather 1 ─┬─► part      what an aggregator reads of a round goes straight into the
                       make ─┼─► gather 2 ─┼─► part      parts of all who want it, and is gone
                             └─► …         │

    between workers    read 1 ─► keep, send ─╳─► receive ─► …      the exchange of a round goes on while the next is
                       read 2 ─► …                                 read; round k + 2, when round k has been taken

    independent        read for itself ─► part

While a part is being filled, each of its elements is only ever given the one value that it will have: a task that is
done again after a worker was lost makes the same of it. Thakur 1995, section 6.3.1.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.task_spec import Task, TaskRef
from oocarrays.graphs.parts import home_addresses, itself
from oocarrays.graphs.rechunk import new_suffix
from oocarrays.graphs.steps import Carried, Exchange, Key, arrived_parts, carried_parts, sent_parts
from oocarrays.graphs.work import this_worker

from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Selection
from oocarrays.plan.collective import AHEAD, CollectivePlan, part_shape
from oocarrays.plan.cost import Costs
from oocarrays.plan.wanted import Place
from oocarrays.storage.array_file import ArrayFile
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections import read_section

if TYPE_CHECKING:
    from distributed import Client
    from oocarrays.graphs.nearby import Message

READS = ("read", "independent")
"""What tasks on workers say when they have done it."""


@dataclass(slots=True)
class Read:
    """What an aggregator has read in a round; it does not tell Dask how large it is, as the plan has counted it."""

    boxes: list[np.ndarray]
    """The tight section of each box."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the tasks of a collective read do."""

    file: ArrayFile
    """What is read."""
    plan: CollectivePlan
    """Who reads what for whom."""
    meter: Meter
    """What has been read, in each process."""
    topic: str
    """The name under which a cluster tells what has been read."""
    under_way: int = 16
    """Requests that a rank has under way at one time, to stores that are no local files."""
    costs: Costs | None = None
    """What the plan was made with."""
    selections: tuple[Selection, ...] = ()
    """How what each rank wants stands in its array, where that is not as it is read."""

    def task(self, verb: str, args: tuple[int, ...], buffers: int, *inputs: Any) -> Any:
        """Do one task: ``verb`` with its plain arguments and its first ``buffers`` inputs."""
        result = getattr(self, verb)(*args, *inputs[:buffers])
        if verb in READS and (worker := this_worker()):
            worker.log_event(self.topic, {"verb": verb, "args": args, "worker": worker.address, **self.meter.take()})
        return result

    def _section(self, axes: Axes, out: np.ndarray | None = None) -> np.ndarray:
        """What is taken of the file, by this thread alone: ranks are side by side."""
        return read_section(
            self.file, axes, out, meter=self.meter, requests=self.under_way, threads=1, costs=self.costs
        )

    # ------------------------------------------------------------------ each for itself, or all on threads

    def make(self, rank: int) -> np.ndarray:
        """A rank's part, still empty."""
        return np.empty(part_shape(self.plan, rank), self.file.dtype)

    def independent(self, rank: int) -> np.ndarray:
        """A rank's part, read by itself."""
        return self.filled(rank, self._section(self.plan.requests[rank]))

    def gather(self, number: int, source: int, *parts: np.ndarray) -> None:
        """Read what an aggregator reads in a round, and fill the parts of those who want any of it."""
        filled = dict(zip(self.wanting(number, source), parts, strict=True))
        for box in self.plan.rounds[number][source]:
            self._gather_box(box, {rank: filled[rank] for rank in self.plan.table.ranks(box)})

    def _gather_box(self, box: Section, parts: dict[int, np.ndarray]) -> None:
        owner = self.plan.only(box)
        if owner is not None:  # what one rank alone wants is read to its place
            self._section(self.plan.tight(box), parts[owner][(*self.plan.places(box, owner)[0], ...)])
            return
        data = self._section(self.plan.tight(box))
        for rank, part in parts.items():
            there, inside = self.plan.places(box, rank)
            part[(*there, ...)] = selected(data, inside)

    def wanting(self, number: int, source: int) -> list[int]:
        """The ranks that want any of what another reads in a round."""
        found: list[int] = np.flatnonzero(self.plan.sizes(number)[source]).tolist()
        return found

    def filled(self, rank: int, part: np.ndarray) -> np.ndarray:
        """A rank's array, when all has been read that it wants."""
        return self.selections[rank].arranged(part) if self.selections else part

    # ------------------------------------------------------------------ between workers

    def read(self, number: int, rank: int) -> Read:
        """What an aggregator reads in a round, for all."""
        boxes = self.plan.rounds[number][rank]
        return Read([self._section(self.plan.tight(box)) for box in boxes])

    def keep(self, number: int, rank: int, part: np.ndarray, read: Read) -> np.ndarray:
        """A rank's part, and in it what it has read for itself."""
        part = part if part.flags.writeable else part.copy()
        for box, data in self._wanted(number, rank, rank, read):
            there, inside = self.plan.places(box, rank)
            part[(*there, ...)] = selected(data, inside)
        return part

    def _wanted(self, number: int, source: int, rank: int, read: Read) -> list[tuple[Section, np.ndarray]]:
        boxes = zip(self.plan.rounds[number][source], read.boxes, strict=True)
        return [(box, data) for box, data in boxes if self.plan.table.counts(box)[rank]]

    def send(self, number: int, stage: int, rank: int, read: Read | None, carried: Carried | None) -> Message | None:
        """The message of a step, packed when it goes."""
        assert self.plan.schedule is not None, "threads send nothing"
        return sent_parts(self.plan.schedule, stage, rank, _Packed(self, number, rank, read), carried)

    def pack(self, number: int, rank: int, read: Read, final: int) -> np.ndarray | None:
        """What another rank wants of what this one has read, as bytes: a view, where it lies in one piece."""
        if final == rank:
            return None
        pieces = []
        for box, data in self._wanted(number, rank, final, read):
            inside = self.plan.places(box, final)[1]
            pieces.append(np.ascontiguousarray(selected(data, inside)).reshape(-1).view(np.uint8))
        return np.concatenate(pieces) if len(pieces) > 1 else pieces[0] if pieces else None

    def carry(self, number: int, stage: int, rank: int, carried: Carried | None, *messages: Message | None) -> Carried:
        """What this rank holds for others."""
        assert self.plan.schedule is not None, "threads send nothing"
        return carried_parts(self.plan.schedule, stage, rank, carried, messages)

    def taken(self, number: int, stage: int, rank: int) -> None:
        """Say that a step's message has been received."""

    def receive(self, number: int, stage: int, rank: int, part: np.ndarray, *messages: Message | None) -> np.ndarray:
        """A rank's part, and in it what has come."""
        part = part if part.flags.writeable else part.copy()
        for source, data in arrived_parts(rank, messages).items():
            elements = data.view(self.file.dtype)
            for box in self.plan.rounds[number][source]:
                if self.plan.table.counts(box)[rank]:
                    there = self.plan.places(box, rank)[0]
                    place = part[(*there, ...)]
                    place[...] = elements[: place.size].reshape(place.shape)
                    elements = elements[place.size :]
        return part


class _Packed(Sequence[np.ndarray | None]):
    """Messages of one rank as bytes, each packed when it is asked for."""

    def __init__(self, reading: Reading, number: int, rank: int, read: Read | None) -> None:
        self._reading, self._number, self._rank, self._read = reading, number, rank, read

    def __len__(self) -> int:
        return self._reading.plan.ranks

    def __getitem__(self, final: Any) -> Any:
        if self._read is None or final >= len(self):
            return None
        return self._reading.pack(self._number, self._rank, self._read, final)


def selected(data: np.ndarray, place: Place) -> np.ndarray:
    """The elements at a place, axis after axis: a view, where all along each axis follow one another evenly.

    >>> selected(np.arange(9).reshape(3, 3), (np.array([0, 2]), slice(1, 3)))
    array([[1, 2],
           [7, 8]])
    """
    data = data[(*(part if isinstance(part, slice) else slice(None) for part in place), ...)]
    for axis, part in enumerate(place):
        if not isinstance(part, slice):
            data = data.take(part, axis)
    return data


def topic_of(suffix: str) -> str:
    """The name under which a cluster tells what is done by tasks with a suffix."""
    return f"oocarrays-{suffix}"


def listen(client: Client, topic: str, meter: Meter) -> None:
    """Let a meter count what workers tell that they have read, as long as it is there."""
    there = weakref.ref(meter)

    def hear(event: tuple[float, dict[str, Any]]) -> None:
        counted = there()
        if counted is not None and "seconds" in event[1]:
            counted.put(event[1])

    client.subscribe_topic(topic, hear)


# ---------------------------------------------------------------------- the graph


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
    file: ArrayFile,
    plan: CollectivePlan,
    workers: Sequence[str],
    meter: Meter | None = None,
    selections: Sequence[Selection] = (),
    **how: Any,
) -> CollectiveTasks:
    """The tasks that give each rank what it wants.

    Parameters
    ----------
    workers : sequence of str
        Where ranks are put, in turn; none for threads, which take what they want of what others have read.
    meter : Meter, optional
        Counts what this process reads.
    selections : sequence of Selection
        How what each rank wants stands in its array; by default as it is read.
    **how
        ``under_way`` and ``costs``, as `Reading` has them.
    """
    suffix = new_suffix()
    reading = Reading(
        file=file, plan=plan, meter=meter or Meter(), topic=topic_of(suffix), selections=tuple(selections), **how
    )
    builder = _Builder(reading, suffix)
    together = _between_workers if plan.schedule else _between_threads
    keys = tuple((_independent if plan.method == "independent" else together)(builder))
    homes = {builder.suffix: home_addresses(plan.ranks, workers)} if workers else {}
    return CollectiveTasks(suffix=builder.suffix, tasks=builder.tasks, keys=keys, homes=homes)


def _independent(builder: _Builder) -> list[Key]:
    return [builder.add("independent", rank) for rank in range(builder.plan.ranks)]


def _between_threads(builder: _Builder) -> list[Key]:
    """A task for all that an aggregator does in a round: what threads hold at one time is what these tasks hold."""
    ranks = range(builder.plan.ranks)
    parts = [builder.add("make", rank) for rank in ranks]
    done: list[list[Key]] = [[] for _ in ranks]
    for number, each in enumerate(builder.plan.rounds):
        for source in (rank for rank in ranks if each[rank]):
            wanting = builder.reading.wanting(number, source)
            key = builder.add("gather", number, source, buffers=tuple(parts[rank] for rank in wanting))
            for rank in wanting:
                done[rank].append(key)
    return [builder.add("filled", rank, buffers=(parts[rank],), after=done[rank]) for rank in ranks]


def _between_workers(builder: _Builder) -> list[Key]:
    """An exchange a round, one after the other."""
    plan, ranks = builder.plan, range(builder.plan.ranks)
    assert plan.schedule is not None, "workers send messages"
    exchange = Exchange(plan.schedule, builder.add)
    parts: list[Key] = [builder.add("make", rank) for rank in ranks]
    taken: list[list[list[Key]]] = []
    for number, each in enumerate(plan.rounds):
        before = taken[number - AHEAD] if number >= AHEAD else [[] for _ in ranks]
        read = [builder.add("read", number, rank, after=before[rank]) if each[rank] else None for rank in ranks]
        sizes = plan.sizes(number)
        kept = [
            builder.add("keep", number, rank, buffers=(parts[rank], read[rank])) if sizes[rank, rank] else parts[rank]
            for rank in ranks
        ]
        pad = [None] * (plan.schedule.ranks - plan.ranks)
        made = exchange.build(
            number,
            outboxes=[*read, *pad],
            regions=[*kept, *pad],
            wants=lambda origin, final, sizes=sizes: bool(sizes[origin, final]),  # type: ignore[misc]
        )
        parts = [part for part in made if part is not None]
        taken.append([[*exchange.before(rank), kept[rank]] for rank in ranks])
    return [builder.add("filled", rank, buffers=(parts[rank],)) for rank in ranks]


class _Builder:
    """Adds the tasks of one collective read."""

    def __init__(self, reading: Reading, suffix: str) -> None:
        self.suffix = suffix
        self.reading, self.plan = reading, reading.plan
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
