"""All-to-all exchanges as tasks, one after the other, in the order of any schedule.

    rank 0   outbox ─► send 1 ─╲ ╱─► receive 1 ─► taken 1 ─► send 2 …     a rank sends again once it has received,
    rank 1   outbox ─► send 1 ─╱ ╲─► receive 1 ─► taken 1 ─► send 2 …     and its previous message was taken

    forwarded          send 1 ──┬──► receive 1                            parts for this rank itself
                                └──► carry 1 ─► send 2                    parts for other ranks, until they are sent on

A message has a few parts, each the bytes of one origin for one final rank: one part in most schedules, several in those
that forward. A carried part is a copy, or a view of the buffer in which it was packed. It is no view of a received
message, which is one block of memory and would be kept whole. Messages to a lost worker are made again from outboxes
and carried parts, never from another rank's region. Thakur 1995, sections 4.2 and 4.3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oocarrays.plan.exchange.schedule import Schedule

if TYPE_CHECKING:  # importing it takes longer than most commands
    pass

Key = tuple[Any, ...]
Pair = tuple[int, int]
"""Origin and final rank of a part."""


PHASES: Mapping[str, str] = {
    "read": "read",
    **dict.fromkeys(("send", "carry", "receive", "taken", "exchange"), "exchange"),
    "write": "write",
}
"""Phase of a plan to which the seconds of each task count; others count as beginning and end."""
Add = Callable[..., Key]
"""Function that adds a task to a builder: a verb, plain arguments ending with the rank, inputs and dependencies."""


class Send(NamedTuple):
    """Message from one rank to another in a step."""

    source: int
    destination: int
    parts: tuple[Pair, ...]
    """Parts of the message, by origin and final rank."""


def messages_of(schedule: Schedule, wants: Callable[[int, int], bool]) -> Iterator[list[Send]]:
    """Yield the messages of each step, without empty ones."""
    for number, step in enumerate(schedule):
        rides = ((*pair, schedule.ride(number, pair[0]).pairs if schedule.forwards else [pair]) for pair in step.pairs)
        messages = [Send(s, d, tuple(p for p in ride if wants(*p))) for s, d, ride in rides]
        yield [message for message in messages if message.parts]


class Order:
    """Order of a rank's steps: the next one waits for "I have received" and "mine was taken" (DESIGN, promise 4)."""

    def __init__(self, ranks: int) -> None:
        self._received: list[Key | None] = [None] * ranks
        self._taken: list[Key | None] = [None] * ranks

    def before(self, rank: int) -> list[Key]:
        return sorted({key for key in (self._received[rank], self._taken[rank]) if key is not None})

    def went(self, pairs: Iterable[Pair], taken: Mapping[int, Key]) -> None:
        """Record a step of (source, destination) pairs; ``taken`` has the key of each destination's receiving task."""
        for source, destination in pairs:
            self._received[destination] = self._taken[source] = taken[destination]


class ExchangeTasks:
    """Builder of all-to-all exchanges as tasks, one exchange after the other.

    Tasks are ``send`` (from an outbox and carried parts), ``receive`` (into a region, one message per source),
    ``carry`` (of parts for other ranks) and ``taken``, each with ``*args, stage, rank``. Stages count from 1.
    """

    def __init__(self, schedule: Schedule, add: Add, *, synchronous: bool = True) -> None:
        self.schedule = schedule
        self.synchronous = synchronous
        self._add = add
        self._order = Order(schedule.ranks)

    def build(
        self,
        *args: Any,
        outboxes: Sequence[Key | None],
        regions: Sequence[Key | None],
        wants: Callable[[int, int], bool],
    ) -> list[Key | None]:
        """Add one all-to-all; return the key of each rank's region after it."""
        filled: list[Key | None] = list(regions)
        carried: list[Key | None] = [None] * self.schedule.ranks
        for stage, messages in enumerate(messages_of(self.schedule, wants), 1):
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
        """Return the keys that ensure that a rank's messages so far were taken, and those to it received."""
        return self._order.before(rank)

    def _step(
        self,
        args: tuple[Any, ...],
        messages: list[Send],
        outboxes: Sequence[Key | None],
        regions: list[Key | None],
        carried: list[Key | None],
    ) -> None:
        """Add the tasks of one step; update the keys in ``regions`` and ``carried``."""
        sends = {message.source: self._send(args, message, outboxes, carried) for message in messages}
        came = defaultdict(list)
        for message in messages:
            came[message.destination].append(message)
        taken = {}
        for rank, each in came.items():
            keys, took = [sends[message.source] for message in each], []
            finals = {final for message in each for _, final in message.parts}
            if rank in finals:
                took.append(self._task("receive", args, rank, regions[rank], *keys))
                regions[rank] = took[-1]
            if finals - {rank}:
                took.append(self._task("carry", args, rank, carried[rank], *keys))
                carried[rank] = took[-1]
            if self.synchronous:
                # Dask drops replicas in excess of the waiting tasks: a message with two users would be sent twice
                shared = keys if len(took) > 1 else []
                taken[rank] = self._task("taken", args, rank, after=[*took, *shared])
        if self.synchronous:
            self._order.went([(message.source, message.destination) for message in messages], taken)

    def _send(
        self, args: tuple[Any, ...], message: Send, outboxes: Sequence[Key | None], carried: Sequence[Key | None]
    ) -> Key:
        """Add a send task that holds only the buffers that it sends from."""
        rank, origins = message.source, {origin for origin, _ in message.parts}
        own = outboxes[rank] if rank in origins else None
        others = carried[rank] if origins - {rank} else None
        return self._task("send", args, rank, own, others, after=self._order.before(rank))

    def _task(
        self, verb: str, args: tuple[Any, ...], rank: int, *buffers: Key | None, after: Iterable[Key] = ()
    ) -> Key:
        return self._add(verb, *args, rank, name=f"{verb} step {args[-1]}", buffers=buffers, after=after)


class Taking:
    """All-to-all between threads: ranks read from each other's buffers, and send no messages."""

    def inputs(
        self, *args: Any, held: Sequence[Key | None], wants: Callable[[int, int], bool], **others: Any
    ) -> list[tuple[Key | None, ...]]:
        """Return the inputs of each rank's final task: the buffers of all ranks with data for it; add no task."""
        ranks = range(len(held))
        return [tuple(key if wants(origin, rank) else None for origin, key in enumerate(held)) for rank in ranks]
