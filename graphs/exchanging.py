"""Parts that are made anew of what every rank holds, by one exchange: a task for each thing that a rank does.

    between workers    part ─┬─► keep ─► receive 1 ─► receive 2 ─► part        asynchronous: each unpacked as it comes
                             └─► send 1 ─╳─► receive 1 …                       (a message is packed when it is sent)

                       part ─┬───────────────────────────► assemble ─► part    synchronous: when all have come
                             └─► send 1 ─╳─► receive 1 ─► receive 2 ─►┘

Old parts are only read, and a new one is handed on when it is full: whoever holds parts may use them again. While a
part is being filled, each of its elements is only ever given the one value that it will have: a task that is done again
after a worker was lost makes the same of it, however much is there already. Thakur 1995, sections 3.4 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from oocarrays.graphs.builder import Builder
from oocarrays.graphs.rechunk import new_suffix
from oocarrays.graphs.shared import Rooms
from oocarrays.graphs.steps import Carried, Exchange, Key, arrived_parts, carried_parts, sent_parts

from oocarrays.plan.assembly import Assembly
from oocarrays.plan.schedule import Schedule

if TYPE_CHECKING:
    from oocarrays.graphs.nearby import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanging:
    """What the tasks of an exchange between workers do; each kind says what is packed, kept and unpacked."""

    schedule: Schedule
    """Who sends to whom in which step."""
    assembly: Assembly
    """When messages are unpacked."""
    dtype: np.dtype
    """Of the elements."""
    rooms: Rooms = field(default_factory=Rooms, compare=False, repr=False)
    """Memory that messages are packed in, in each process."""

    def task(self, verb: str, args: tuple[int, ...], buffers: int, *inputs: Any) -> Any:
        """Do one task: ``verb`` with its plain arguments and its first ``buffers`` inputs."""
        return getattr(self, verb)(*args, *inputs[:buffers])

    # ------------------------------------------------------------------ what a kind says

    def packed(self, part: np.ndarray, rank: int, final: int) -> np.ndarray | None:
        """What ``rank`` has for another, contiguous; None where that is nothing."""
        raise NotImplementedError

    def keep(self, rank: int, part: np.ndarray | None) -> np.ndarray:
        """The new part, and in it what stays with this rank."""
        raise NotImplementedError

    def unpack(self, came: dict[int, np.ndarray], rank: int, made: np.ndarray) -> None:
        """Put what has come where it belongs, by the rank that packed it."""
        raise NotImplementedError

    # ------------------------------------------------------------------ the tasks

    def send(self, stage: int, rank: int, part: np.ndarray | None, carried: Carried | None) -> Message | None:
        """The message of a step, packed when it goes."""
        return sent_parts(self.schedule, stage, rank, _Packed(self, rank, part), carried)

    def carry(self, stage: int, rank: int, carried: Carried | None, *messages: Message | None) -> Carried:
        """What this rank holds for others."""
        return carried_parts(self.schedule, stage, rank, carried, messages, self.rooms)

    def taken(self, stage: int, rank: int) -> None:
        """Say that a step's message has been received."""

    def receive(self, stage: int, rank: int, there: Any, *messages: Message | None) -> Any:
        """What has come, unpacked or kept for later."""
        came = {origin: message.view(self.dtype) for origin, message in arrived_parts(rank, messages).items()}
        if self.assembly == "asynchronous":
            return self._unpacked(rank, there, came)
        if self.schedule.forwards:  # else it would keep what is for others, too
            came = {origin: message.copy() for origin, message in came.items()}
        return {**(there or {}), **came}

    def assemble(self, rank: int, part: np.ndarray | None, came: dict[int, np.ndarray] | None) -> np.ndarray:
        """The new part, of all that has come."""
        return self._unpacked(rank, self.keep(rank, part), came or {})

    def _unpacked(self, rank: int, part: np.ndarray, came: dict[int, np.ndarray]) -> np.ndarray:
        made = part if part.flags.writeable else part.copy()
        self.unpack(came, rank, made)
        return made


class _Packed(Sequence[np.ndarray | None]):
    """Messages of one rank as bytes, each packed when it is asked for."""

    def __init__(self, exchanging: Exchanging, rank: int, part: np.ndarray | None) -> None:
        self._exchanging, self._rank, self._part = exchanging, rank, part

    def __len__(self) -> int:
        return self._exchanging.schedule.ranks

    def __getitem__(self, final: Any) -> Any:
        if self._part is None:
            return None
        message = self._exchanging.packed(self._part, self._rank, final)
        return None if message is None else message.view(np.uint8)


def exchange_tasks(
    exchanging: Exchanging, old: Sequence[Key], ranks: int, wants: Callable[[int, int], bool], *, ordered: bool = True
) -> tuple[Builder, list[Key]]:
    """The tasks of one exchange, and the new part of each of ``ranks``.

    Parameters
    ----------
    old : sequence of keys
        What each rank holds before.
    wants : callable
        Whether an origin has something for a final rank.
    ordered : bool
        Whether a step waits for the one before.
    """
    builder, waits = Builder(new_suffix(), Exchanging.task, exchanging), exchanging.assembly == "synchronous"
    builder.share("exchange")
    before = _padded(old, exchanging.schedule.ranks)
    new = [] if waits else [builder.add("keep", rank, buffers=(before[rank],)) for rank in range(ranks)]
    exchange = Exchange(exchanging.schedule, builder.add, synchronous=ordered)
    there = exchange.build(outboxes=before, regions=_padded(new, exchanging.schedule.ranks), wants=wants)
    if waits:
        there = [builder.add("assemble", rank, buffers=(before[rank], there[rank])) for rank in range(ranks)]
    return builder, [key for key in there[:ranks] if key is not None]


def _padded(keys: Sequence[Key], ranks: int) -> list[Key | None]:
    """The keys of the ranks that are there, and none for the others."""
    return [*keys, *[None] * (ranks - len(keys))]
