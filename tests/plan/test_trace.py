"""Traces against messages that are followed one by one: when each arrives, over which links, in which time."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from oocarrays.networks import FlatCluster, Mesh
from oocarrays.plan.exchange.ordering import Exchange, colored
from oocarrays.plan.exchange.prediction import DELTA, schedule_seconds
from oocarrays.plan.exchange.schedule import COLORING, NAMES, schedules
from oocarrays.plan.exchange.trace import ExchangeTrace, arrivals, in_order
from oocarrays.ranks import Schedule
from tests.plan.schedules import predicted

pytestmark = pytest.mark.once

ON_MESHES = [(name, ranks, columns) for name in ("rex", "ipex") for ranks in (4, 16) for columns in (1, 2, 4)]
ELSEWHERE = [(schedule.name, ranks, None) for ranks in (1, 2, 5, 8) for schedule in schedules(ranks)]


@pytest.mark.parametrize(("name", "ranks", "columns"), [*ON_MESHES, *ELSEWHERE])
def test_data_arrives_in_the_last_step_in_which_it_rides(name: str, ranks: int, columns: int | None) -> None:
    schedule = Schedule.of(name, ranks, columns=columns)
    last, rides = {}, Counter[tuple[int, int]]()
    for number, step in enumerate(schedule):
        for source in step.senders:
            for pair in schedule.ride(number, int(source)).pairs:
                last[pair] = number
                rides[pair] += 1
    found = arrivals(schedule)
    pairs = [(source, target) for source in range(ranks) for target in range(ranks)]
    assert {pair: int(found.steps[pair]) for pair in pairs} == {pair: last.get(pair, -1) for pair in pairs}
    assert {pair: int(found.messages[pair]) for pair in pairs} == {pair: rides[pair] for pair in pairs}


def some_sizes(ranks: int) -> np.ndarray:
    """Bytes of every pair of ranks, of which half have none."""
    random = np.random.default_rng(ranks)
    return random.integers(1, 5000, (ranks, ranks)) * random.integers(0, 2, (ranks, ranks))


def routed(mesh: Mesh, source: int, target: int) -> list[tuple[int, int]]:
    """The links of a message, each between two ranks: first along the row, then along the column."""
    here, way = source, []
    while here != target:
        (y, x), (to_y, to_x) = divmod(here, mesh.columns), divmod(target, mesh.columns)
        there = here + int(np.sign(to_x - x)) if x != to_x else here + mesh.columns * int(np.sign(to_y - y))
        way.append((here, there))
        here = there
    return way


@pytest.mark.parametrize("schedule", schedules(8, columns=4), ids=lambda schedule: schedule.name)
def test_links_carry_what_is_routed_over_them(schedule: Schedule) -> None:
    mesh, exchange = Mesh(rows=2, columns=4), Exchange.of(schedule, some_sizes(8))
    trace = ExchangeTrace.of(exchange, mesh, DELTA)
    carried, shared, messages = Counter[tuple[int, int]](), [], 0
    for turn in exchange:
        here = Counter[tuple[int, int]]()
        for (source, target), nbytes in zip(turn.step.pairs, turn.sizes, strict=True):
            messages += 1
            for link in routed(mesh, source, target):
                here[link] += 1
                carried[link] += int(nbytes)
        shared.append(max(here.values()))
    assert trace.messages == messages
    assert trace.shared.tolist() == shared
    assert sorted(trace.link_bytes[trace.link_bytes > 0]) == sorted(carried.values())


@pytest.mark.parametrize("network", [Mesh(rows=2, columns=4), FlatCluster.of(*[1] * 8)], ids=["mesh", "flat"])
def test_all_schedules_are_priced_as_they_are_predicted_the_cheapest_first(network: Mesh | FlatCluster) -> None:
    sizes = some_sizes(8)
    priced, left_out = in_order([sizes, sizes], network, DELTA)
    seconds = [each.seconds for each in priced]
    assert seconds == sorted(seconds)
    expected = {schedule.name: 2 * value for schedule, value in predicted(sizes, network, DELTA).items()}
    assert set(expected) == set(NAMES)
    expected[COLORING] = 2 * schedule_seconds(colored(sizes), sizes, network, DELTA)  # as messages differ
    assert {each.name: each.seconds for each in priced} == pytest.approx(expected)
    assert left_out == []


def test_transfers_that_are_cheapest_by_different_schedules_go_by_different_ones() -> None:
    """Each to its neighbour takes one step of its own; where all have for all, there are none of few steps."""
    few, all_ = np.roll(np.eye(8, dtype=int), 1, axis=1) * 10**4, np.full((8, 8), 10**4)
    flat = FlatCluster.of(*[1] * 8)
    priced, _ = in_order([few, all_], flat, DELTA)
    best = priced[0]
    assert best.seconds == pytest.approx(sum(in_order([each], flat, DELTA)[0][0].seconds for each in (few, all_)))
    assert best.seconds <= min(each.seconds for each in priced)


def test_of_a_large_exchange_the_likelier_schedules_are_priced() -> None:
    priced, left_out = in_order([some_sizes(16)], Mesh(rows=4, columns=4), DELTA, most=1500)
    assert {each.name for each in priced} == {"COLORING", "REX", "PEX", "IPEX"}
    assert left_out == ["GEN", "BEX", "PEX-GEN", "PEX-GEN-SHIFT", "LEX"]
    assert len(in_order([some_sizes(16)], Mesh(rows=4, columns=4), DELTA, most=0)[0]) == 1
