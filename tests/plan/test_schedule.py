"""Schedules: packets are followed from rank to rank, and the thesis's own tables and figures are drawn again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import permutations

import pytest

from oocarrays.errors import ScheduleError
from oocarrays.plan.exchange.schedule import schedules
from oocarrays.ranks import Schedule
from tests import printed
from tests.seams import SCHEDULES

pytestmark = pytest.mark.long


def taken(most: int = 40) -> Iterator[Schedule]:
    """Every schedule for every number of ranks that it takes, and for every mesh where it stands on one."""
    for ranks in range(1, most + 1):
        yield from (each for each in schedules(ranks) if not each.forwards)
        if ranks & (ranks - 1) == 0:
            for columns in (1 << bit for bit in range(ranks.bit_length())):
                yield from schedules(ranks, columns=columns, names=("REX", "IPEX"))


def label(schedule: Schedule) -> str:
    return f"{schedule.name} {schedule.ranks} in {schedule.columns}"


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_ordered_pair_is_delivered_once(name: str) -> None:
    """A packet starts at its origin, rides only in messages of the rank that holds it, and ends at its final rank."""
    for schedule in taken():
        if schedule.name != name:
            continue
        at = {pair: pair[0] for pair in permutations(range(schedule.ranks), 2)}
        arrived: Counter[tuple[int, int]] = Counter()
        for number, step in enumerate(schedule):
            rides = [(packet, to) for source, to in step.pairs for packet in schedule.ride(number, source).pairs]
            moved = dict(rides)
            assert len(moved) == len(rides), f"{label(schedule)}: a packet rides twice in step {number}"
            for source, _ in step.pairs:
                held = {at[packet] for packet in schedule.ride(number, source).pairs}
                assert held == {source}, f"{label(schedule)}: {source} sends what is at {held}"
            at |= moved
            arrived.update(packet for packet, to in moved.items() if packet[1] == to)
        assert all(at[packet] == packet[1] for packet in at), label(schedule)
        assert set(arrived.values()) <= {1}, label(schedule)
        assert sum(arrived.values()) == schedule.ranks * (schedule.ranks - 1)


def test_a_rank_has_one_partner_a_step_and_never_itself() -> None:
    for schedule in taken():
        for step in schedule:
            to = [target for _, target in step.pairs]
            assert all(source != target for source, target in step.pairs)
            if schedule.name != "LEX":
                assert len(set(to)) == len(to), label(schedule)
            assert [step.sources(rank) for rank in range(schedule.ranks)] == [
                [source for source, target in step.pairs if target == rank] for rank in range(schedule.ranks)
            ]


def test_in_the_pairwise_ones_partners_exchange() -> None:
    for schedule in taken():
        if schedule.name not in ("LEX", "GEN"):
            assert all((to, source) in step.pairs for step in schedule for source, to in step.pairs)


@pytest.mark.parametrize(("name", "number"), [("PEX", "4_1"), ("REX", "4_2"), ("BEX", "4_3")])
def test_tables_of_the_thesis(name: str, number: str) -> None:
    ours = [{frozenset(pair) for pair in step.pairs} for step in Schedule.of(name, 8)]
    assert ours == printed.steps(number)


def test_the_steps_are_as_many_as_the_thesis_says() -> None:
    for schedule in taken():
        ranks, padded = schedule.ranks, 1 << (schedule.ranks - 1).bit_length()
        many = {"LEX": ranks, "REX": ranks.bit_length() - 1, "PEX-GEN": padded - 1, "PEX-GEN-SHIFT": padded - 1}
        assert len(schedule) == len(list(schedule)) == (many.get(schedule.name, ranks - 1) if ranks > 1 else 0)


def test_gen_sends_i_ranks_on_in_step_i() -> None:
    """Thakur 1995, Figure 4.13."""
    assert Schedule.of("gen", 5).step(2).pairs == [(0, 3), (1, 4), (2, 0), (3, 1), (4, 2)]


def test_pex_gen_shift_moves_ranks_to_the_middle() -> None:
    """Figure 4.11: 20 ranks stand at 6 to 25 of 32; so 0 meets 7 ^ 6 - 6 = -5, nobody, where 1 has 0."""
    first = Schedule.of("pex-gen-shift", 20).step(0).pairs
    assert first[:4] == [(0, 1), (1, 0), (2, 3), (3, 2)]
    eighth = dict(Schedule.of("pex-gen-shift", 20).step(7).pairs)
    assert eighth == {n: ((n + 6) ^ 8) - 6 for n in range(20) if 0 <= ((n + 6) ^ 8) - 6 < 20}


def test_ipex_is_the_figure_that_the_thesis_prints() -> None:
    """Figure 4.14, with the column loops over j: its messages one after the other, and what they are for."""
    rows, columns = 4, 8
    schedule = Schedule.of("IPEX", rows * columns, columns=columns)
    order = []
    for i in range(1, columns):
        order.append((i, rows))
        order += [(j * columns, 1) for j in range(1, rows)]
    order += [(j * columns, 1) for j in range(1, rows)]
    assert [(step.pairs[0][1], len(schedule.ride(n, 0).pairs)) for n, step in enumerate(schedule)] == order


def test_rex_on_a_mesh_halves_columns_first() -> None:
    """Figure 4.15: partners on a mesh of 4 × 8 are half of what is left away, along the row before the column."""
    schedule = Schedule.of("REX", 32, columns=8)
    assert [step.pairs[0] for step in schedule] == [(0, 4), (0, 2), (0, 1), (0, 16), (0, 8)]
    assert all(len(schedule.ride(number, 5).pairs) == 16 for number in range(5))


def test_all_steps_of_4096_ranks_are_quick_to_make() -> None:
    for schedule in schedules(4096):
        assert sum(len(step.senders) for step in schedule) == 4096 * (12 if schedule.name == "REX" else 4095)
        assert len(schedule.ride(0, 1).pairs) == {"REX": 2048, "IPEX": 64}.get(schedule.name, 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ring", 8), "schedule='ring' is unknown; pass one of lex, pex, rex, bex, pex-gen, pex-gen-shift, gen, ipex"),
        (("pex", 6), "pex needs a power of two of ranks, not 6; for any number use lex, pex-gen, pex-gen-shift, gen"),
        (("ipex", 12), "ipex needs a power of two of ranks, not 12"),
        (("gen", 0), "ranks=0"),
    ],
)
def test_what_is_refused_is_said_in_one_line(arguments: tuple[str, int], says: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        Schedule.of(*arguments)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("number", [-1, 7])
def test_a_step_that_is_not_there_is_refused(number: int) -> None:
    with pytest.raises(ScheduleError, match=f"step={number}: gen on 8 ranks has 7 steps, from 0"):
        Schedule.of("gen", 8).step(number)


@pytest.mark.parametrize("columns", [0, 3, 16])
def test_a_mesh_that_does_not_fit_is_refused(columns: int) -> None:
    with pytest.raises(ScheduleError, match=f"not 8 ranks in {columns} columns"):
        Schedule.of("IPEX", 8, columns=columns)


def test_those_that_take_a_number_of_ranks() -> None:
    assert [each.name for each in schedules(12)] == ["LEX", "PEX-GEN", "PEX-GEN-SHIFT", "GEN"]
    assert [each.name for each in schedules(16)] == list(SCHEDULES)
    assert {each.columns for each in schedules(16, columns=2) if each.forwards} == {2}
    with pytest.raises(ScheduleError, match="'ring' is unknown"):
        schedules(16, names=("ring",))
