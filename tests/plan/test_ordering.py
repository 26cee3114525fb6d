"""The parts that a schedule makes ranks send and hold, counted by hand: one part after the other is followed."""

from __future__ import annotations

from collections import Counter

import pytest

from oocarrays.graphs.exchange.messages import arriving
from oocarrays.plan.exchange.ordering import load_in_place, load_of, schedule_for
from oocarrays.ranks import Schedule
from tests.strategies import taking

pytestmark = pytest.mark.once

SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 32)


@pytest.mark.parametrize("schedule", [Schedule.of(name, n) for n in SIZES for name in taking(n)], ids=str)
def test_loads_are_what_following_every_part_counts(schedule: Schedule) -> None:
    load, sent, receives = load_of(schedule), [], 0
    carried: list[set] = [set() for _ in range(schedule.ranks)]
    most = most_at_any_time = 0
    for number, step in enumerate(schedule):
        rides = {source: schedule.ride(number, source).pairs for source, _ in step.pairs}
        sent += rides.values()
        came: dict[int, list] = {}
        for source, destination in step.pairs:
            came.setdefault(destination, []).extend(rides[source])
        receives += len(came)
        for rank, parts in came.items():
            new = {part for part in parts if part[1] != rank}
            most = max(most, len(carried[rank]) + len(new) + len(parts))
        for rank in range(schedule.ranks):
            new = {part for part in came.get(rank, ()) if part[1] != rank}
            carried[rank] = (carried[rank] - set(rides.get(rank, ()))) | new
    for rank in range(schedule.ranks):
        coming = [
            p
            for number, step in enumerate(schedule)
            for s in step.sources(rank)
            for p in schedule.ride(number, s).pairs
        ]
        most_at_any_time = max(most_at_any_time, len(coming) + sum(final != rank for _, final in coming))
    assert not any(carried)
    assert (load.messages, load.parts) == (len(sent), sum(map(len, sent)))
    assert load.receives == receives
    assert most <= load.held <= max(2 * most, 2), "what is held, and the message that comes next"
    assert load.held_at_most >= most_at_any_time


def test_forwarding_holds_what_the_thesis_says() -> None:
    """Thakur 1995, section 4.3: messages of L · P / 2 in REX, of L · r in IPEX."""
    rex, ipex = Schedule.of("rex", 64), Schedule.of("ipex", 64, columns=16)
    assert {len(rex.ride(n, 5).pairs) for n in range(len(rex))} == {32}
    assert Counter(len(ipex.ride(n, 5).pairs) for n in range(len(ipex))) == {4: 15, 1: 48}


def test_threads_take_in_place_and_do_not_forward() -> None:
    """Each takes once from each other, in the steps in which messages would come."""
    for name in taking(8):
        schedule = schedule_for(name, 8)
        steps = [[len(arriving(schedule, stage, rank)) for rank in range(8)] for stage in range(1, len(schedule) + 1)]
        load = load_in_place(schedule)
        assert load.messages == load.parts == sum(map(sum, steps)) == 56
        assert load.receives == sum(takes > 0 for step in steps for takes in step)
