"""Exchanges: a schedule and the bytes between each pair of ranks. Empty messages and empty steps are skipped.

    sizes            PEX on 4 ranks           remaining: two of three steps
    to 0  1  2  3
     ┌ ·  5  ·  ·    step 1   0↔1  2↔3        step 1   0→1            5 bytes
     │ ·  ·  ·  7    step 2   0↔2  1↔3        step 2   1→3  3→1       7 and 2 bytes
     │ ·  ·  ·  ·    step 3   0↔3  1↔2
     └ ·  2  ·  ·

In schedules that forward, a message carries data of several pairs. Its size is computed by following each rank's held
data from step to step, for all ranks at once. Thakur 1995, sections 4.2.3 and 4.3.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oocarrays.errors import ScheduleError
from oocarrays.plan.exchange.schedule import IDLE, Schedule, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Step with at least one nonempty message."""

    number: int
    """Index of the step in the schedule, from 0, as used by `Schedule.ride`."""
    step: Step
    """Destinations of the step; ranks with nothing to send are idle."""
    sent: np.ndarray
    """Bytes that each rank sends; 0 for an idle rank."""
    part: int = 0
    """Bytes of the largest message, by which a machine chooses the send method; in REX the most that a pair exchanges.
    On the Delta, REX took four times as long for 1 KB as for 256 bytes, and less than three times that for 4 KB.
    """
    forwards: bool = False
    """True if the schedule forwards, so that received data is packed again."""

    @property
    def tasks(self) -> int:
        """Number of tasks between workers: one per sender, and two per receiver, or three if it forwards."""
        receivers = len(np.unique(self.step.destinations[self.step.senders]))
        return len(self.step.senders) + (3 if self.forwards else 2) * receivers

    @property
    def sizes(self) -> np.ndarray:
        """Bytes of each message by source, one per sender of the step."""
        sizes: np.ndarray = self.sent[self.step.senders]
        return sizes


@dataclass(frozen=True, slots=True)
class Exchange:
    """Exchange: the bytes from each rank to each other, and their schedule."""

    schedule: Schedule
    """Schedule of the messages."""
    sizes: np.ndarray
    """``sizes[source, target]`` in bytes, with the bytes that ranks keep on the diagonal: ranks × ranks."""

    @classmethod
    def of(cls, schedule: Schedule, sizes: np.ndarray | int) -> Exchange:
        ranks = schedule.ranks
        if np.ndim(sizes) not in (0, 2) or max(np.shape(sizes), default=0) > ranks:
            raise ScheduleError(f"sizes of shape {np.shape(sizes)} do not fit a schedule of {ranks} ranks")
        if np.min(sizes, initial=0) < 0:
            raise ScheduleError(f"sizes hold {np.min(sizes)} bytes: a message cannot be negative")
        if np.ndim(sizes) == 0 or np.shape(sizes) == (ranks, ranks):
            return cls(schedule, np.broadcast_to(np.asarray(sizes), (ranks, ranks)))
        rows, columns = np.shape(sizes)
        return cls(schedule, np.pad(sizes, ((0, ranks - rows), (0, ranks - columns))))

    def __iter__(self) -> Iterator[Turn]:
        """Yield the steps with at least one nonempty message."""
        forwards, halves = self.schedule.forwards, self.schedule.name == "REX"
        largest = int((self.sizes * (1 - np.eye(self.schedule.ranks, dtype=int))).max(initial=0)) if halves else 0
        for number, (step, sent) in enumerate(zip(self.schedule, self._sent(), strict=True)):
            if sent.any():
                left = Step(destinations=np.where(sent, step.destinations, IDLE))
                part = largest or int(sent.max())
                yield Turn(number=number, step=left, sent=sent, part=part, forwards=forwards)

    @property
    def messages(self) -> int:
        """Number of messages between ranks, forwarded messages included."""
        return sum(len(turn.sizes) for turn in self)

    @property
    def sent_bytes(self) -> int:
        return int(sum(turn.sizes.sum() for turn in self))

    @property
    def buffer_bytes(self) -> int:
        """Maximum bytes that a rank holds for forwarding, above its own data at the start or the end.

        If every pair exchanges L bytes, this is the largest message: L·P/2 in REX and L·r in IPEX.
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
        """Yield the bytes that each rank sends in each step of the schedule."""
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
        """Yield the bytes of REX: a rank sends half of its data, for the other half of ranks, and receives as much."""
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
        """Yield the bytes of IPEX: data sent along a row is for a whole column, and is forwarded along it."""
        ranks, columns = np.arange(self.schedule.ranks), self.schedule.columns
        for_columns = self.sizes.reshape(len(ranks), -1, columns).sum(axis=1)
        for number, step in enumerate(self.schedule):
            leg, to = self.schedule.leg(number), step.destinations
            yield for_columns[ranks, to % columns] if leg.along_row else self.sizes[ranks ^ leg.forwarded, to]
