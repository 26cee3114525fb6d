"""Plans of collective reads: who reads which chunk, in which round, and what goes to whom."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays import Layout, Section
from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.mapping.selection import Axes, common, lengths
from oocarrays.plan.collective.domains import Dealing
from oocarrays.plan.collective.read import AHEAD, two_phase
from oocarrays.plan.collective.search import plan_collective
from oocarrays.plan.collective.wanted import AccessTable, requests_of
from oocarrays.plan.collective.write import plan_collective_write
from oocarrays.plan.plan import Resources
from tests.plan.test_wanted import SHAPES, marked
from tests.profiles import examples
from tests.selections import requests
from tests.strategies import chunks_for, stored
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
        assert plan.read.sizes(number).tolist() == counted
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


@pytest.mark.parametrize("options", [{"deal": "cyclic"}, {"disk_of": lambda index: index[0] % 2}], ids=list)
def test_chunks_are_read_in_turn_or_by_the_aggregators_of_their_disk(options: dict[str, Any]) -> None:
    plan = two_phase(stored(GRID), requests_of(Layout.of((64, 64), "(*, block)", ranks=2)), dealing=Dealing(**options))
    read = [[i for each in plan.rounds for box in each[rank] for i, _ in GRID.indices(box)] for rank in range(2)]
    assert sorted(read) == [[0, 2, 4, 6], [1, 3, 5, 7]]


# ---------------------------------------------------------------------- which way


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


def test_a_collective_write_holds_a_chunk_a_thread_what_codecs_need_and_messages_ahead() -> None:
    chunk = 64 * 1024 * 4
    coded = Stored(
        grid=ChunkGrid.of((1024, 1024), (64, 1024)), itemsize=4, local=True, codec="zstd", decode_workspace=1000,
        encode_workspace=3000,
    )  # fmt: skip
    wants = [(range(1024), range(0, 700)), (range(1024), range(500, 1024))]
    here = plan_collective_write(coded, wants, Resources())
    assert (here.memory["chunks"], here.memory["codecs"]) == (here.threads * chunk, here.threads * 4000)
    there = plan_collective_write(coded, wants, Resources(workers=2))
    sent = there.sent
    messages = min(AHEAD, len(sent)) * int(sent.sum(axis=1).max()) + int(sent.max())
    assert [there.memory[name] for name in ("chunks", "codecs", "messages")] == [chunk, 4000, messages]
