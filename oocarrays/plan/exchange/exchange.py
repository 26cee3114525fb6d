"""An exchange: a schedule, and what each rank has for each other. Empty messages are left out, and empty steps.

    sizes            PEX on 4 ranks           what is left: two of three steps
    to 0  1  2  3
     ┌ ·  5  ·  ·    step 1   0↔1  2↔3        step 1   0→1            5 bytes
     │ ·  ·  ·  7    step 2   0↔2  1↔3        step 2   1→3  3→1       7 and 2 bytes
     │ ·  ·  ·  ·    step 3   0↔3  1↔2
     └ ·  2  ·  ·

Where data travels through other ranks, a message is what all that rides in it has together: that is found by following
what each rank holds from step to step, for all ranks at once. Thakur 1995, sections 4.2.3 and 4.3.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oocarrays.errors import ScheduleError
from oocarrays.plan.exchange.schedule import IDLE, Schedule, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A step in which something is sent."""

    number: int
    """The step of the schedule, from 0: what its ``ride`` asks for."""
    step: Step
    """Who sends to whom; who has nothing to send is idle."""
    sent: np.ndarray
    """Bytes that each rank sends; 0 for one that is idle."""
    part: int = 0
    """Bytes of the largest message, by which a machine chooses how to send; in REX of what a pair exchanges at most: on
    the Delta it took four times as long for 1 KB as for 256 bytes, and less than three times that for 4 KB."""
    forwards: bool = False
    """Whether the schedule forwards, so that what comes is packed again."""

    @property
    def tasks(self) -> int:
        """Tasks between workers: of each sender, and two of each receiver, or three where it sends on."""
        receivers = len(np.unique(self.step.destinations[self.step.senders]))
        return len(self.step.senders) + (3 if self.forwards else 2) * receivers

    @property
    def sizes(self) -> np.ndarray:
        """Bytes of each message, by source: one for each of the step's senders."""
        sizes: np.ndarray = self.sent[self.step.senders]
        return sizes


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange: the bytes that every rank sends to every other one, in the order of a schedule."""

    schedule: Schedule
    """The order."""
    sizes: np.ndarray
    """``sizes[source, target]`` bytes; what ranks keep for themselves, too: ranks × ranks."""

    @classmethod
    def of(cls, schedule: Schedule, sizes: np.ndarray | int) -> Exchange:
        ranks = schedule.ranks
        if np.ndim(sizes) not in (0, 2) or max(np.shape(sizes), default=0) > ranks:
            raise ScheduleError(f"sizes of shape {np.shape(sizes)} are not of a schedule of {ranks} ranks")
        if np.min(sizes, initial=0) < 0:
            raise ScheduleError(f"sizes hold {np.min(sizes)} bytes: a message has none, or more")
        if np.ndim(sizes) == 0 or np.shape(sizes) == (ranks, ranks):
            return cls(schedule, np.broadcast_to(np.asarray(sizes), (ranks, ranks)))
        rows, columns = np.shape(sizes)
        return cls(schedule, np.pad(sizes, ((0, ranks - rows), (0, ranks - columns))))

    def __iter__(self) -> Iterator[Turn]:
        """The steps in which something is sent."""
        forwards, halves = self.schedule.forwards, self.schedule.name == "REX"
        largest = int((self.sizes * (1 - np.eye(self.schedule.ranks, dtype=int))).max(initial=0)) if halves else 0
        for number, (step, sent) in enumerate(zip(self.schedule, self._sent(), strict=True)):
            if sent.any():
                left = Step(destinations=np.where(sent, step.destinations, IDLE))
                part = largest or int(sent.max())
                yield Turn(number=number, step=left, sent=sent, part=part, forwards=forwards)

    @property
    def messages(self) -> int:
        """Messages between ranks: what is sent on counts again."""
        return sum(len(turn.sizes) for turn in self)

    @property
    def sent_bytes(self) -> int:
        return int(sum(turn.sizes.sum() for turn in self))

    @property
    def buffer_bytes(self) -> int:
        """Bytes that a rank holds at most above what it starts or ends with, while data travels through it.

        They are those of the largest message, L·P/2 in REX and L·r in IPEX, where every pair exchanges L bytes.
        """
        if not self.schedule.forwards:
            return 0
        held = self.sizes.sum(axis=1)
        usual, most = np.maximum(held, self.sizes.sum(axis=0)), np.zeros_like(held)
        for turn in self:
            come = np.zeros_like(held)
            come[turn.step.destinations[turn.step.senders]] = turn.sizes
            most = np.maximum(most, held + come)
            held = held + come - turn.sent
        return int((most - usual).max(initial=0))

    def _sent(self) -> Iterator[np.ndarray]:
        """Bytes that each rank sends in each step of the schedule."""
        match self.schedule.name:
            case "REX":
                return self._sent_by_halves()
            case "IPEX":
                return self._sent_by_rows()
        return self._sent_straight()

    def _sent_straight(self) -> Iterator[np.ndarray]:
        ranks = np.arange(self.schedule.ranks)
        for step in self.schedule:
            yield np.where(step.destinations == IDLE, 0, self.sizes[ranks, step.destinations])

    def _sent_by_halves(self) -> Iterator[np.ndarray]:
        """In REX a rank sends half of what it holds, that for the other half, and holds as much again from there."""
        ranks, bits = np.arange(self.schedule.ranks), self.schedule.halved_bits
        order = sum(((ranks >> bit & 1) << place for place, bit in enumerate(reversed(bits))), 0 * ranks)
        held = self.sizes[:, np.argsort(order)]
        for bit in bits:
            halves = held.reshape(len(ranks), 2, -1)
            mine = ranks >> bit & 1
            goes = halves[ranks, 1 - mine]
            yield goes.sum(axis=1)
            held = halves[ranks, mine] + goes[ranks ^ 1 << bit]

    def _sent_by_rows(self) -> Iterator[np.ndarray]:
        """In IPEX what goes along a row is for a whole column, and is sent on along that."""
        ranks, columns = np.arange(self.schedule.ranks), self.schedule.columns
        for_columns = self.sizes.reshape(len(ranks), -1, columns).sum(axis=1)
        for number, step in enumerate(self.schedule):
            leg, to = self.schedule.leg(number), step.destinations
            yield for_columns[ranks, to % columns] if leg.along_row else self.sizes[ranks ^ leg.forwarded, to]
