"""Plans of collective reads: who reads which chunk, in which round, and what goes to whom."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocarrays import Layout, Section
from oocarrays.errors import BudgetError, InputError, ScheduleError
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.selection import Axes, common, lengths
from oocarrays.plan.collective.domains import Dealing
from oocarrays.plan.collective.read import CollectivePlan, two_phase
from oocarrays.plan.collective.read_offers import ANY, plan_collective
from oocarrays.plan.collective.wanted import AccessTable, requests_of
from oocarrays.plan.memory import Resources
from tests.plan.test_wanted import SHAPES, marked
from tests.profiles import examples
from tests.selections import requests
from tests.strategies import apart, chunks_for, stored
from tests.work import CALLS_A_SECOND, counted

pytestmark = pytest.mark.once

GRID = ChunkGrid.of((64, 64), (8, 64))


def size(axes: Axes, box: Section) -> int:
    return math.prod(lengths(common(axes, box)))


def _touched(grid: ChunkGrid, read: np.ndarray) -> list[tuple[int, ...]]:
    """The chunks of which anything is read."""
    return [index for index in itertools.product(*map(range, grid.counts)) if read[grid.section(index).slices].any()]


@examples(150)
@given(st.data(), SHAPES, st.booleans())
def test_every_wanted_element_is_read_once_by_an_aggregator(
    data: st.DataObject, shape: tuple[int, ...], coded: bool
) -> None:
    file = stored(ChunkGrid.of(shape, data.draw(chunks_for(shape))), itemsize=1, coded=coded)
    wants, buffer_bytes = data.draw(requests(shape)), data.draw(st.integers(1, 60))
    chosen = data.draw(st.sets(st.integers(0, len(wants) - 1), min_size=1))
    partition: Any = data.draw(st.sampled_from(["static", "dynamic"]))
    plan = two_phase(
        file, wants, aggregators=sorted(chosen), dealing=Dealing(partition=partition), buffer_bytes=buffer_bytes
    )
    boxes = [(rank, box) for each in plan.rounds for rank, some in enumerate(each) for box in some]
    assert {rank for rank, _ in boxes} <= chosen
    times = np.zeros(shape, int)
    readers: dict[tuple[int, ...], set[int]] = {}
    for rank, box in boxes:
        read = marked(shape, plan.tight(box))
        times += read
        for index in _touched(file.grid, read):
            readers.setdefault(index, set()).add(rank)
    wanted = np.logical_or.reduce([marked(shape, axes) for axes in wants])
    assert times.max(initial=0) <= 1
    assert (times[wanted] == 1).all()
    assert all(len(ranks) == 1 for ranks in readers.values()), "one aggregator a chunk"
    for number, each in enumerate(plan.rounds):
        counted = [[sum(size(axes, box) for box in some) for axes in wants] for some in each]
        assert plan.sizes(number).tolist() == counted
        for some in each:
            read = sum(math.prod(lengths(plan.tight(box))) for box in some)
            alone = len(_touched(file.grid, marked(shape, plan.tight(some[0])))) if len(some) == 1 else 0
            assert read <= buffer_bytes or (coded and alone == 1), "a round is no more than a buffer, or one chunk"


def test_columns_that_all_want_are_read_as_one_piece_over_those_that_nobody_wants() -> None:
    file = stored(ChunkGrid.of((64, 300), (64, 1)), coded=True)
    plan = two_phase(file, [(range(4 * p, 4 * p + 4, 2), range(20, 280, 3)) for p in range(4)], aggregators=[0])
    assert plan.rounds == (((Section((0, 20), (64, 279)),), (), (), ()),)
    assert plan.tight(plan.rounds[0][0][0]) == (range(0, 15, 2), range(20, 279, 3))
    assert plan.chunks_read == (len(range(20, 280, 3)), 0, 0, 0)
    dealt = two_phase(file, plan.requests, aggregators=[0, 1], dealing=Dealing(deal="cyclic"))
    assert dealt.chunks_read == (44, 43, 0, 0), "what another reads is not bridged"


def test_rounds_are_in_file_order_and_as_large_as_the_buffer() -> None:
    plan = two_phase(stored(GRID), requests_of(Layout.of((64, 64), "(*, block)", ranks=2)), buffer_bytes=2 * 8 * 64 * 4)
    first = [[box.lower[0] for box in each[0]] for each in plan.rounds]
    assert first == [[0], [16]]
    assert plan.round_bytes == 2 * 8 * 64 * 4
    assert plan.all_sizes.sum(axis=0).tolist() == [[32 * 32, 32 * 32]] * 2


@pytest.mark.parametrize("options", [{"deal": "cyclic"}, {"disk_of": lambda index: index[0] % 2}], ids=list)
def test_chunks_are_read_in_turn_or_by_the_aggregators_of_their_disk(options: dict[str, Any]) -> None:
    plan = two_phase(stored(GRID), requests_of(Layout.of((64, 64), "(*, block)", ranks=2)), dealing=Dealing(**options))
    read = [[i for each in plan.rounds for box in each[rank] for i, _ in GRID.indices(box)] for rank in range(2)]
    assert sorted(read) == [[0, 2, 4, 6], [1, 3, 5, 7]]


# ---------------------------------------------------------------------- which way


def planned(layout: str, *, ranks: int = 4, coded: bool = True, **options: Any) -> CollectivePlan:
    file = stored(ChunkGrid.of((4096, 4096), (256, 4096)), coded=coded)
    resources, how = apart(options)
    if dealt := {name: how.pop(name) for name in ("partition", "deal") if name in how}:
        how["dealing"] = replace(ANY, **dealt)
    return plan_collective(file, requests_of(Layout.of((4096, 4096), layout, ranks=ranks)), resources, **how)


def test_each_reads_for_itself_where_requests_conform_and_all_for_all_where_chunks_are_coded_and_shared() -> None:
    assert planned("(block, *)").method == "independent"
    assert [way.name for way in planned("(block, *)").considered] == ["independent"], "nothing else is looked at"
    uneven = plan_collective(stored(GRID, coded=True), [(range(64), range(64)), (range(0), range(0))], Resources())
    assert {way.name for way in uneven.considered} == {"independent", "two-phase"}
    for layout in ("(*, block)", "(*, cyclic)", "(cyclic, *)"):
        plan = planned(layout)
        assert plan.method == "two-phase"
        assert plan.price is not None
        assert plan.price.traffic.decoded_bytes == 4096 * 4096 * 4
        own = next(way for way in plan.considered if way.name == "independent")
        assert own.traffic.decoded_bytes == 4 * 4096 * 4096 * 4


@pytest.mark.parametrize("chunks", [(4, 64), (64, 4), (16, 16), (12, 20)])
@pytest.mark.parametrize("layout", ["(block, *)", "(*, block)", "(block, block)", "(cyclic(4), block)"])
def test_domains_go_to_who_wants_most_of_them(layout: str, chunks: tuple[int, int]) -> None:
    ranks, table = 4, AccessTable(ChunkGrid.of((64, 64), chunks), requests_of(Layout.of((64, 64), layout, ranks=4)))
    plan = two_phase(stored(table.grid, coded=True), table.requests, workers=4)
    each = [sum(map(table.counts, domain.boxes)) for domain in plan.domains]
    in_order, *others = (
        sum(int(wants.sum() - wants[rank]) for wants, rank in zip(each, order, strict=True))
        for order in itertools.permutations(range(ranks))
    )
    assert sorted(domain.rank for domain in plan.domains) == [0, 1, 2, 3]
    sent = plan.exchanged_bytes // plan.stored.itemsize
    assert min(in_order, *others) <= sent <= in_order
    if (layout, chunks) == ("(block, block)", (64, 4)):
        assert sent == min(others) < in_order


def test_dynamic_domains_are_never_predicted_to_take_longer() -> None:
    file = stored(ChunkGrid.of((64, 64), (2, 64)), coded=True)
    wants = [(range(8 * p, 8 * p + 12), range(10 * p, 10 * p + 30)) for p in range(4)]
    how: dict[str, Any] = {"method": "two-phase", "aggregators": 4}
    both = {
        p: plan_collective(file, wants, Resources(workers=4), dealing=Dealing(partition=p), **how)
        for p in ("static", "dynamic")
    }
    assert max(both["dynamic"].chunks_read) < max(both["static"].chunks_read)
    assert [plan.considered[0].seconds for plan in both.values()] == sorted(
        (plan.considered[0].seconds for plan in both.values()), reverse=True
    )


def test_a_few_ranks_read_for_all_where_messages_cost_more_than_reading() -> None:
    wants = requests_of(Layout.of((64, 64), "(*, block)", ranks=16))
    plan = plan_collective(stored(GRID), wants, Resources(workers=16), method="two-phase")
    assert len(plan.aggregators) < 16
    assert {way.ranks for way in plan.considered} >= {1, 2, 4, 8}
    asked = plan_collective(stored(GRID), wants, Resources(workers=16), method="two-phase", aggregators=[3, 5])
    assert asked.aggregators == (3, 5)
    assert Counter(asked.chunks_read) == {0: 14, 4: 2}


def test_a_plan_keeps_its_budget_by_smaller_rounds_or_says_what_it_needs() -> None:
    for workers in (None, 4):
        how: dict[str, Any] = {"workers": workers, "method": "two-phase", "aggregators": 4}
        whole = planned("(*, block)", **how)
        assert whole.price is not None
        least = whole.price.peak_bytes - whole.round_bytes // 2
        less = planned("(*, block)", **how, budget=least)
        assert less.price is not None
        assert less.price.peak_bytes <= least
        assert (len(less.rounds), less.schedule) != (len(whole.rounds), whole.schedule)
        with pytest.raises(BudgetError, match="this collective read needs at least") as caught:
            planned("(*, block)", **how, budget=1)
        planned("(*, block)", **how, budget=caught.value.least)


@pytest.mark.long
@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("workers", [None, 4])
def test_a_budget_that_parts_alone_exceed_is_refused_without_naming_every_element(coded: bool, workers: int) -> None:
    file = stored(ChunkGrid.of((2048, 4096), (128, 4096)), coded=coded)  # 32 MiB
    wants = requests_of(Layout.of((2048, 4096), "(*, block)", ranks=4))
    with counted() as work:
        with pytest.raises(BudgetError) as caught:
            plan_collective(file, wants, Resources(budget=7 * 2**20, workers=workers))
        fitting = plan_collective(file, wants, Resources(budget=caught.value.least, workers=workers))
    assert work.calls < 2 * CALLS_A_SECOND, "not a box an element: that took minutes"
    assert fitting.price is not None
    assert fitting.price.peak_bytes == caught.value.least


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"method": "direct"}, InputError, "direct"),
        ({"partition": "half"}, InputError, "half"),
        ({"deal": "random"}, InputError, "random"),
        ({"aggregators": 5}, InputError, "aggregators=5"),
        ({"aggregators": 0}, InputError, "aggregators=0"),
        ({"aggregators": [1, 1]}, InputError, "[1, 1]"),
        ({"aggregators": [4]}, InputError, "below 4"),
        ({"schedule": "pax", "workers": 4}, ScheduleError, "pax"),
    ],
    ids=str,
)
def test_what_there_is_not_is_refused_in_one_line(options: dict[str, Any], error: type, said: str) -> None:
    for layout in ("(*, block)", "(block, *)"):  # also where requests conform, and none of it is needed
        with pytest.raises(error) as caught:
            planned(layout, **options)
        assert said in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1
