"""Exchanges: a schedule and the bytes between each pair of ranks. Empty messages and empty steps are skipped.

    sizes            PEX on 4 ranks           remaining: two of three steps
    to 0  1  2  3
     ┌ ·  5  ·  ·    step 1   0↔1  2↔3        step 1   0→1            5 bytes
     │ ·  ·  ·  7    step 2   0↔2  1↔3        step 2   1→3  3→1       7 and 2 bytes
     │ ·  ·  ·  ·    step 3   0↔3  1↔2
     └ ·  2  ·  ·

In schedules that forward, a message carries data of several pairs. Its size is computed by following each rank's held
data from step to step, for all ranks at once. Thakur 1995, sections 4.2.3 and 4.3.5.

The choice of a schedule compares each rank's messages and memory under it:
    schedule      messages a rank   parts in one      forwarded for others
    PEX, GEN, …   P − 1             1                 none
    LEX           P − 1             1, P − 1 come     none
    REX           lg P              P / 2             up to the parts between half of the ranks
    IPEX, r × c   P − 1             r along a row     r − 1, and those of the row before until sent

A part is the data from one rank to one other. Thakur 1995, sections 4.2 and 4.3.

    cyclic(4) → cyclic(2) on 4 ranks         0 has for 0, 1      1 for 2, 3      2 for 0, 1      3 for 2, 3
    PEX          0→1  3→2 │ 1→3  2→0 │ 1→2  2→1          three steps
    COLORING     0→1  1→3  2→0  3→2 │ 1→2  2→1           two: no rank has more than two partners

Senders, receivers and messages form a bipartite graph. Its edges can be coloured so that no two edges at one rank
share a colour, with as many colours as the busiest rank has edges (König 1916). A colour is a step. The largest
messages are coloured first, so that messages of a step have similar sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from oocarrays.errors import ScheduleError
from oocarrays.plan.exchange.schedule import (
    COLORING,
    IDLE,
    Schedule,
    Step,
    complete_exchange,
    is_auto,
    is_coloring,
    is_unordered,
)


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
        return self.sent[self.step.senders]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Exchange: the bytes from each rank to each other, and their schedule."""

    schedule: Schedule
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
        """Yield the bytes that each rank sends in each step."""
        schedule, ranks = self.schedule, np.arange(self.schedule.ranks)
        match schedule.name:
            case "REX":  # a rank sends half of its data, for the other half of ranks, and receives as much
                bits = schedule.halved_bits
                order = sum(((ranks >> bit & 1) << place for place, bit in enumerate(reversed(bits))), 0 * ranks)
                held = self.sizes[:, np.argsort(order)]
                for bit in bits:
                    halves = held.reshape(len(ranks), 2, -1)
                    mine = ranks >> bit & 1
                    goes = halves[ranks, 1 - mine]
                    yield goes.sum(axis=1)
                    held = halves[ranks, mine] + goes[ranks ^ 1 << bit]
            case "IPEX":  # data sent along a row is for a whole column, and is forwarded along it
                columns = schedule.columns
                for_columns = self.sizes.reshape(len(ranks), -1, columns).sum(axis=1)
                for number, step in enumerate(schedule):
                    leg, to = schedule.leg(number), step.destinations
                    along_row = leg.along_row
                    yield for_columns[ranks, to % columns] if along_row else self.sizes[ranks ^ leg.forwarded, to]
            case _:
                for step in schedule:
                    yield np.where(step.destinations == IDLE, 0, self.sizes[ranks, step.destinations])


def colored(sizes: np.ndarray) -> Schedule:
    """Return the schedule with the fewest steps for the given messages; per step a rank sends one and receives one."""
    if np.ndim(sizes) != 2 or sizes.shape[0] != sizes.shape[1]:
        raise ScheduleError(f"sizes of shape {np.shape(sizes)} must be square")
    sources, targets = np.nonzero(sizes * (1 - np.eye(len(sizes), dtype=int)))
    order = np.argsort(-sizes[sources, targets], kind="stable")
    edges = list(zip(sources[order].tolist(), targets[order].tolist(), strict=True))
    listed = _Colors(len(sizes), partners(sizes)).of(edges)
    return Schedule(COLORING, len(sizes), 1, tuple(map(tuple, listed)))  # type: ignore[arg-type]


def partners(sizes: np.ndarray) -> int:
    """Return the largest number of other ranks that one rank sends to, or receives from."""
    others = sizes > 0
    np.fill_diagonal(others, val=False)
    return int(max(others.sum(axis=0).max(initial=0), others.sum(axis=1).max(initial=0)))


def is_worth_coloring(sizes: np.ndarray) -> bool:
    """Return True if a coloured schedule may be faster for the given messages than the named ones.

    Colouring helps if each rank has few partners, or if message sizes differ: a step takes as long as its largest
    message, and colouring groups similar sizes. Other pairs per step also share links differently.
    """
    if sizes.shape[0] != sizes.shape[1]:
        return False
    others = sizes[(sizes > 0) & ~np.eye(len(sizes), dtype=bool)]
    most = partners(sizes)
    if most <= 0.75 * (len(sizes) - 1):
        return len(others) <= 2**20  # the messages of a thousand ranks take half a second
    return len(others) <= 2**16 and bool(others.max() > others.min())  # a tenth of a second


class _Colors:
    """Partial edge colouring: the target of each source, and the source of each target, in each colour.

    The free colours of a rank are the bits of an integer, so one operation finds the colours free at both ends.
    """

    def __init__(self, ranks: int, colors: int) -> None:
        self._to = [[IDLE] * ranks for _ in range(colors)]
        self._come = [[IDLE] * ranks for _ in range(colors)]
        self._free_to, self._free_come = [2**colors - 1] * ranks, [2**colors - 1] * ranks

    def of(self, edges: list[tuple[int, int]]) -> list[list[int]]:
        """Colour the edges in the given order, and return targets by colour and source."""
        for source, target in edges:
            both = self._free_to[source] & self._free_come[target]
            self._put(source, target, _first(both) if both else self._freed(source, target))
        return self._to

    def _put(self, source: int, target: int, color: int) -> None:
        self._to[color][source], self._come[color][target] = target, source
        self._free_to[source] &= ~(1 << color)
        self._free_come[target] &= ~(1 << color)

    def _take(self, source: int, target: int, color: int) -> None:
        self._to[color][source] = self._come[color][target] = IDLE
        self._free_to[source] |= 1 << color
        self._free_come[target] |= 1 << color

    def _freed(self, source: int, target: int) -> int:
        """Free a colour at both ends of an edge by swapping two colours along a path from its target.

        The path leaves the target by a colour that is free at the source. It never reaches the source, because it could
        enter it only by that colour.
        """
        mine, yours = _first(self._free_to[source]), _first(self._free_come[target])
        path, here, at_target, color = [], target, True, mine
        while (there := (self._come if at_target else self._to)[color][here]) != IDLE:
            path.append((there, here, color) if at_target else (here, there, color))
            here, at_target, color = there, not at_target, mine + yours - color
        for a, b, old in path:
            self._take(a, b, old)
        for a, b, old in path:
            self._put(a, b, mine + yours - old)
        return mine


def _first(colors: int) -> int:
    return (colors & -colors).bit_length() - 1


CREDIT = 2
"""Maximum number of messages that a rank receives, and sends, at one time without an order of messages."""


def schedule_for(name: str, ranks: int) -> Schedule:
    """Return the schedule of a name; of one that depends on messages, which are not known yet, the default."""
    any_order = is_auto(name) or is_coloring(name) or is_unordered(name)
    return complete_exchange(ranks) if any_order else Schedule.of(name, ranks)


def schedules_for(name: str, counts: Iterable[int]) -> list[Schedule]:
    """Return the schedule for each given number of ranks that it supports, the largest first."""
    each, found = sorted(counts, reverse=True), []
    for count in each:
        with suppress(ScheduleError):
            found.append(schedule_for(name, count))
    return found if found and (found[0].ranks > 1 or each[0] == 1) else [schedule_for(name, each[0])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Work of all ranks in one exchange."""

    messages: int
    """Number of messages sent by all ranks together."""
    receives: int
    """Number of receives, counted once per rank and step, from one partner or from all."""
    parts: int
    """Number of parts in all messages; a forwarded part counts each time."""
    held: int
    """Number of parts that a rank holds at one time beside its outbox and its region, in ordered steps."""
    held_at_most: int
    """Number of parts that a rank holds at one time beside its outbox and its region, without an order of messages."""


@lru_cache(maxsize=256)
def load_of(schedule: Schedule) -> Load:
    """Return the work of an exchange with data for every pair of ranks."""
    steps, ranks = list(schedule), schedule.ranks
    messages = sum(len(step.senders) for step in steps)
    receives = sum(len(np.unique(step.destinations[step.senders])) for step in steps)
    match schedule.name:
        case "REX":  # after k steps a rank holds parts of 2^k origins for P / 2^k ranks, some to forward
            half = ranks // 2
            comes = [half - 2**k for k in range(len(steps))]
            most = max(((2**k - 1) * (ranks // 2**k - 1) + came for k, came in enumerate(comes)), default=0)
            parts, held, held_at_most = messages * half, 2 * max(half, 1) + most, max(len(steps) * half, 2) + sum(comes)
        case "IPEX":  # a message along a row has a part per rank of the column; all but one are forwarded
            along, rows = schedule.columns - 1, ranks // schedule.columns
            received, forwarded = along * (2 * rows - 1) + rows - 1, along * (rows - 1)
            held = 2 * (rows if along else 1) + min(along, 2) * (rows - 1)
            parts, held_at_most = ranks * received, max(received, 2) + forwarded
        case _:
            held = max(ranks, 2) if schedule.name == "LEX" else 2
            parts, held_at_most = messages, max(ranks - 1, held)
    return Load(messages=messages, receives=receives, parts=parts, held=held, held_at_most=held_at_most)


def load_in_place(schedule: Schedule) -> Load:
    """Return the work on threads: each part is copied in the step that would send it, and none is forwarded."""
    takes = schedule.ranks * (schedule.ranks - 1)
    return replace(load_of(schedule), messages=takes, parts=takes)
