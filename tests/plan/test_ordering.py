"""The parts that a schedule makes ranks send and hold, counted by hand: one part after the other is followed."""

from __future__ import annotations

from collections import Counter

import pytest

from oocarrays import Schedule
from oocarrays.errors import ScheduleError
from oocarrays.graphs.run.steps import arriving
from oocarrays.plan.exchange.ordering import load_in_place, load_of, schedule_for, schedules_for
from tests.strategies import taking

pytestmark = pytest.mark.once

SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 32)


@pytest.mark.parametrize("schedule", [Schedule.of(name, n) for n in SIZES for name in taking(n)], ids=str)
def test_loads_are_what_following_every_part_counts(schedule: Schedule) -> None:
    load, sent, carries, receives = load_of(schedule), [], 0, 0
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
            carries += bool(new)
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
    assert (load.receives, load.carries) == (receives, carries)
    assert most <= load.held <= max(2 * most, 2), "what is held, and the message that comes next"
    assert load.held_at_most >= most_at_any_time


def test_forwarding_holds_what_the_thesis_says() -> None:
    """Thakur 1995, section 4.3: messages of L · P / 2 in REX, of L · r in IPEX."""
    rex, ipex = Schedule.of("rex", 64), Schedule.of("ipex", 64, columns=16)
    assert {len(rex.ride(n, 5).pairs) for n in range(len(rex))} == {32}
    assert Counter(len(ipex.ride(n, 5).pairs) for n in range(len(ipex))) == {4: 15, 1: 48}
    assert load_of(ipex).held == 2 * 4 + 2 * 3


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("hex", 4), "schedule='hex' is unknown.*pex"),
        (("pex", 3), "pex takes a power of two of ranks, not 3.*gen"),
        (("ipex", 6), "ipex takes a power of two.*not 6"),
    ],
    ids=str,
)
def test_what_no_exchange_can_go_by_is_refused_in_a_line(asked: tuple[str, int], said: str) -> None:
    with pytest.raises(ScheduleError, match=said) as caught:
        schedule_for(*asked)
    assert len(str(caught.value).splitlines()) == 1


def test_threads_take_in_place_and_do_not_forward() -> None:
    """Each takes once from each other, in the steps in which messages would come: none carries anything."""
    for name in taking(8):
        schedule = schedule_for(name, 8)
        steps = [[len(arriving(schedule, stage, rank)) for rank in range(8)] for stage in range(1, len(schedule) + 1)]
        load = load_in_place(schedule)
        assert load.messages == load.parts == sum(map(sum, steps)) == 56
        assert load.receives == sum(takes > 0 for step in steps for takes in step)
        assert not load.carries


@pytest.mark.parametrize("ranks", range(1, 34))
def test_by_default_a_power_of_two_goes_by_pex_and_others_by_gen(ranks: int) -> None:
    assert schedule_for("auto", ranks).name == ("PEX" if ranks in (1, 2, 4, 8, 16, 32) else "GEN")


def test_numbers_of_ranks_that_a_schedule_does_not_take_are_not_looked_at() -> None:
    assert [each.ranks for each in schedules_for("pex", {1, 3, 8, 12})] == [8, 1]
    assert [each.ranks for each in schedules_for("gen", {1, 3})] == [3, 1]
    with pytest.raises(ScheduleError, match="not 12"):
        schedules_for("pex", {1, 12})
