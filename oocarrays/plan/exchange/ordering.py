"""Which schedule an exchange goes by, and what that makes a rank send and hold.

    schedule      messages a rank   parts in one      carried for others
    PEX, GEN, …   P − 1             1                 none
    LEX           P − 1             1, P − 1 come     none
    REX           lg P              P / 2             up to what half of the ranks hold for each other
    IPEX, r × c   P − 1             r along a row     r − 1, and those of the row before while they leave

A part is what one rank has for one other. Thakur 1995, sections 4.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from oocarrays.errors import ScheduleError
from oocarrays.plan.exchange.coloring import colored
from oocarrays.plan.exchange.schedule import Schedule, complete_exchange, is_auto, is_coloring, is_unordered

CREDIT = 2
"""Messages that come to a rank at one time, and that go, where one task holds a whole exchange and they come as they
come."""


def schedule_for(name: str, ranks: int, sizes: np.ndarray | None = None) -> Schedule:
    """Return the schedule of an exchange in steps.

    Examples
    --------
    >>> schedule_for("auto", 6).name, schedule_for("bex", 4).name, schedule_for("coloring", 4).name
    ('GEN', 'BEX', 'PEX')
    >>> len(schedule_for("coloring", 4, np.eye(4, k=1)))
    1
    """
    if is_coloring(name) and sizes is not None:
        return colored(sizes)
    any_order = is_auto(name) or is_coloring(name) or is_unordered(name)
    return complete_exchange(ranks) if any_order else Schedule.of(name, ranks)


def schedules_for(name: str, counts: Iterable[int]) -> list[Schedule]:
    """Return the schedule for each number of ranks that it takes, the most first.

    Examples
    --------
    >>> [schedule.ranks for schedule in schedules_for("pex", {1, 4, 12})]
    [4, 1]
    """
    most, *fewer = sorted(counts, reverse=True)
    found = []
    for count in (most, *fewer):
        with suppress(ScheduleError):
            found.append(schedule_for(name, count))
    if found and (found[0].ranks > 1 or most == 1):
        return found
    return [schedule_for(name, most)]


def worth_trying(schedule: Schedule) -> tuple[Schedule, ...]:
    """The orders of which one may take the least time where ranks stand on a flat network: of few steps, or few bytes.

    The direct ones take as long as each other there; of those that forward, REX has the fewest steps.

    >>> [schedule.name for schedule in worth_trying(complete_exchange(8))], len(worth_trying(complete_exchange(6)))
    (['PEX', 'REX'], 1)
    """
    ranks = schedule.ranks
    return (schedule, Schedule.of("REX", ranks)) if ranks > 2 and ranks & (ranks - 1) == 0 else (schedule,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The work that one exchange gives to ranks."""

    messages: int
    """Messages that all ranks together send."""
    receives: int
    """Times that some rank receives in a step, from one partner or from all."""
    carries: int
    """Times that some rank keeps what is for others."""
    parts: int
    """Parts in all messages: one that is forwarded counts each time."""
    held: int
    """Parts that a rank holds at one time beside its outbox and its region, in steps one after the other."""
    held_at_most: int
    """The same where messages come as they come."""


@lru_cache(maxsize=256)
def load_of(schedule: Schedule) -> Load:
    """Count the work that an exchange with data for every pair of ranks gives to them.

    >>> load = load_of(Schedule.of("rex", 8))
    >>> load.messages, load.carries, load.parts, load.held
    (24, 16, 96, 13)
    """
    steps = list(schedule)
    messages = sum(len(step.senders) for step in steps)
    receives = sum(len(np.unique(step.destinations[step.senders])) for step in steps)
    if schedule.name == "REX":
        return _rex(schedule, messages, receives)
    if schedule.name == "IPEX":
        return _ipex(schedule, messages, receives)
    at_once = schedule.ranks if schedule.name == "LEX" else 2
    return Load(
        messages=messages,
        receives=receives,
        carries=0,
        parts=messages,
        held=max(at_once, 2),
        held_at_most=max(schedule.ranks - 1, at_once, 2),
    )


def load_in_place(schedule: Schedule) -> Load:
    """Count the same where ranks are threads: each takes in the step in which a message would bring it, and none carry.

    >>> load = load_in_place(Schedule.of("rex", 8))
    >>> load.messages, load.receives, load.carries, load.parts
    (56, 24, 0, 56)
    """
    takes = schedule.ranks * (schedule.ranks - 1)
    return replace(load_of(schedule), messages=takes, carries=0, parts=takes)


def _rex(schedule: Schedule, messages: int, receives: int) -> Load:
    """After k steps a rank holds parts of 2^k origins for P / 2^k ranks: those of others for others are carried."""
    ranks, steps, half = schedule.ranks, len(schedule), schedule.ranks // 2
    carried = [(2**k - 1) * (ranks // 2**k - 1) for k in range(steps)]
    comes = [half - 2**k for k in range(steps)]
    return Load(
        messages=messages,
        receives=receives,
        carries=ranks * max(steps - 1, 0),
        parts=messages * half,
        held=2 * max(half, 1) + max((c + n for c, n in zip(carried, comes, strict=True)), default=0),
        held_at_most=max(steps * half, 2) + sum(comes),
    )


def _ipex(schedule: Schedule, messages: int, receives: int) -> Load:
    """A message along a row has a part for each rank of its column; all but one are carried, until the next one."""
    ranks, along = schedule.ranks, schedule.columns - 1
    rows = ranks // schedule.columns
    received = along * rows + along * (rows - 1) + rows - 1
    return Load(
        messages=messages,
        receives=receives,
        carries=ranks * along if rows > 1 else 0,
        parts=ranks * received,
        held=2 * (rows if along else 1) + min(along, 2) * (rows - 1),
        held_at_most=max(received, 2) + along * (rows - 1),
    )
