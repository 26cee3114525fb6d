"""One all-to-all after the other as tasks, in the order of any schedule.

    rank 0   outbox ─► send 1 ─╲ ╱─► receive 1 ─► taken 1 ─► send 2 …     a rank sends again when it has received, and
    rank 1   outbox ─► send 1 ─╱ ╲─► receive 1 ─► taken 1 ─► send 2 …     when what it sent before was taken

    forwarded          send 1 ──┬──► receive 1                            what is for this rank itself
                                └──► carry 1 ─► send 2                    what is for others, until it goes on

A message is a few parts, each the bytes of one origin for one final rank: one part in most schedules, several in those
that forward. A part that is carried is a copy, or a look at where it was packed: a message that came is one piece of
memory, and would stay whole for it.
What a lost worker was sent is made again from outboxes and from what is carried, never from another rank's region.
Thakur 1995, sections 4.2 and 4.3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from oocarrays.plan.exchange.schedule import Schedule

if TYPE_CHECKING:  # importing it takes longer than most commands
    from oocarrays.graphs.cluster.nearby import Message
    from oocarrays.graphs.cluster.shared import Rooms

Key = tuple[Any, ...]
Pair = tuple[int, int]
"""Origin and final rank of a part."""


class Add(Protocol):
    """How a builder adds a task: a verb, plain arguments of which the last is its rank, what it takes and waits for."""

    def __call__(
        self, verb: str, *args: Any, name: str = "", buffers: tuple[Key | None, ...] = (), after: Iterable[Key] = ()
    ) -> Key: ...


# ---------------------------------------------------------------------- the tasks


@dataclass(frozen=True, slots=True)
class Send:
    """Message that one rank sends another in a step."""

    source: int
    """The rank that sends."""
    destination: int
    """The rank that receives."""
    parts: tuple[Pair, ...]
    """What rides in it."""

    @property
    def arrives(self) -> bool:
        """Whether some of it is for the rank that receives."""
        return any(final == self.destination for _, final in self.parts)

    @property
    def goes_on(self) -> bool:
        """Whether some of it is for others."""
        return any(final != self.destination for _, final in self.parts)


def messages_of(schedule: Schedule, wants: Callable[[int, int], bool] | None = None) -> Iterator[list[Send]]:
    """The messages of each step, without those in which nothing rides."""
    for number, step in enumerate(schedule):
        rides = ((*pair, schedule.ride(number, pair[0]).pairs if schedule.forwards else [pair]) for pair in step.pairs)
        messages = [Send(s, d, tuple(p for p in ride if wants is None or wants(*p))) for s, d, ride in rides]
        yield [message for message in messages if message.parts]


class Order:
    """Order of a rank's steps: before the next, "I have received" and "mine was taken" (DESIGN, promise 4)."""

    def __init__(self, ranks: int) -> None:
        self._received: list[Key | None] = [None] * ranks
        self._taken: list[Key | None] = [None] * ranks

    def before(self, rank: int) -> list[Key]:
        return sorted({key for key in (self._received[rank], self._taken[rank]) if key is not None})

    def went(self, pairs: Iterable[Pair], taken: Mapping[int, Key]) -> None:
        """After a step of some sources and destinations, where ``taken`` has what each destination says so by."""
        for source, destination in pairs:
            self._received[destination] = self._taken[source] = taken[destination]


class ExchangeTasks:
    """All-to-alls one after the other, each as tasks that a builder adds.

    Tasks are ``send`` (of an outbox, and of what is carried), ``receive`` (into a region, one message of each source),
    ``carry`` (of what is for others) and ``taken``, each with ``*args, stage, rank``. Stages count from 1.
    """

    def __init__(self, schedule: Schedule, add: Add, *, synchronous: bool = True) -> None:
        self.schedule = schedule
        self.synchronous = synchronous
        self._add = add
        self._order = Order(schedule.ranks)

    @cached_property
    def _all(self) -> list[list[Send]]:
        """The messages of each step where every rank has something for every other."""
        return list(messages_of(self.schedule))

    def build(
        self,
        *args: Any,
        outboxes: Sequence[Key | None],
        regions: Sequence[Key | None],
        wants: Callable[[int, int], bool] | None = None,
    ) -> list[Key | None]:
        """Add one all-to-all; returns what holds each rank's region afterwards."""
        filled: list[Key | None] = list(regions)
        carried: list[Key | None] = [None] * self.schedule.ranks
        for stage, messages in enumerate(messages_of(self.schedule, wants) if wants else self._all, 1):
            self._step((*args, stage), messages, outboxes, filled, carried)
        return filled

    def inputs(
        self,
        *args: Any,
        held: Sequence[Key | None],
        wants: Callable[[int, int], bool],
        regions: Sequence[Key | None] = (),
    ) -> list[tuple[Key | None, ...]]:
        """Add one all-to-all; return the inputs of each rank's final task: its own part and the parts received."""
        came = self.build(*args, outboxes=held, regions=regions or [None] * len(held), wants=wants)
        return [(own if wants(rank, rank) else None, came[rank]) for rank, own in enumerate(held)]

    def before(self, rank: int) -> list[Key]:
        """Return the keys that say: all that a rank has sent so far was taken, and all that has come was received."""
        return self._order.before(rank)

    def _step(
        self,
        args: tuple[Any, ...],
        messages: list[Send],
        outboxes: Sequence[Key | None],
        regions: list[Key | None],
        carried: list[Key | None],
    ) -> None:
        """The tasks of one step, and what holds regions and what is carried after it."""
        sends = {message.source: self._send(args, message, outboxes, carried) for message in messages}
        came = defaultdict(list)
        for message in messages:
            came[message.destination].append(message)
        taken = {}
        for rank, each in came.items():
            keys, took = [sends[message.source] for message in each], []
            if any(message.arrives for message in each):
                took.append(self._task("receive", args, rank, regions[rank], *keys))
                regions[rank] = took[-1]
            if any(message.goes_on for message in each):
                took.append(self._task("carry", args, rank, carried[rank], *keys))
                carried[rank] = took[-1]
            if self.synchronous:
                # Dask drops copies that fewer tasks wait for than there are: a message that two take would come twice
                shared = keys if len(took) > 1 else []
                taken[rank] = self._task("taken", args, rank, after=[*took, *shared])
        if self.synchronous:
            self._order.went([(message.source, message.destination) for message in messages], taken)

    def _send(
        self, args: tuple[Any, ...], message: Send, outboxes: Sequence[Key | None], carried: Sequence[Key | None]
    ) -> Key:
        """A send that holds no more than what it sends of."""
        rank, origins = message.source, {origin for origin, _ in message.parts}
        own = outboxes[rank] if rank in origins else None
        others = carried[rank] if origins - {rank} else None
        return self._task("send", args, rank, own, others, after=self._order.before(rank))

    def _task(
        self, verb: str, args: tuple[Any, ...], rank: int, *buffers: Key | None, after: Iterable[Key] = ()
    ) -> Key:
        return self._add(verb, *args, rank, name=f"{verb} step {args[-1]}", buffers=buffers, after=after)


class Taking:
    """An all-to-all between threads: ranks take from what others hold, and nothing is sent."""

    def inputs(
        self, *args: Any, held: Sequence[Key | None], wants: Callable[[int, int], bool], **others: Any
    ) -> list[tuple[Key | None, ...]]:
        """Return what each rank's task takes that uses all: what every rank holds that has any for it; adds no task."""
        ranks = range(len(held))
        return [tuple(key if wants(origin, rank) else None for origin, key in enumerate(held)) for rank in ranks]


# ---------------------------------------------------------------------- what the tasks do


@dataclass(slots=True)
class Carried:
    """Parts that a rank holds for others; it does not tell Dask how large it is, as all that the plan has counted."""

    parts: dict[Pair, np.ndarray]
    """Contiguous bytes by origin and final rank."""


def sent_parts(
    schedule: Schedule, stage: int, rank: int, own: Callable[[int], np.ndarray | None], carried: Carried | None
) -> Message | None:
    """Return the message of ``rank`` in a stage, labelled by origin and final rank, or None if empty."""
    from oocarrays.graphs.cluster.nearby import Message

    others = carried.parts if carried else {}
    parts = {
        (origin, final): own(final) if origin == rank else others.get((origin, final))
        for origin, final in schedule.ride(stage - 1, rank).pairs
    }
    there = {pair: part for pair, part in parts.items() if part is not None}
    return Message(list(there.values()), list(there)) if there else None


def carried_parts(
    schedule: Schedule,
    stage: int,
    rank: int,
    carried: Carried | None,
    messages: Iterable[Message | None],
    rooms: Rooms,
) -> Carried:
    """Return the parts that ``rank`` holds for others after a stage: held and not sent, or come to go on."""
    step = schedule.step(stage - 1)
    gone = set(schedule.ride(stage - 1, rank).pairs) if rank in step.senders else set()
    kept = {pair: part for pair, part in (carried.parts if carried else {}).items() if pair not in gone}
    return Carried(kept | {pair: rooms.forwarded(part) for pair, part in _parts(messages) if pair[1] != rank})


def arrived_parts(rank: int, messages: Iterable[Message | None]) -> dict[int, np.ndarray]:
    """Return the parts that came for ``rank`` itself, by the rank that packed them."""
    return {origin: part for (origin, final), part in _parts(messages) if final == rank}


def _parts(messages: Iterable[Message | None]) -> Iterator[tuple[Pair, np.ndarray]]:
    for message in messages:
        if message is not None:
            yield from zip(message.labels, message.arrays, strict=True)


@lru_cache(maxsize=4096)
def arriving(schedule: Schedule, stage: int, rank: int) -> tuple[int, ...]:
    """Name the ranks whose parts come for ``rank`` in a stage."""
    sources = schedule.step(stage - 1).sources(rank)
    pairs = [pair for source in sources for pair in schedule.ride(stage - 1, source).pairs]
    return tuple(origin for origin, final in pairs if final == rank)
