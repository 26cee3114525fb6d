"""The runs that one axis must move, beside elements dealt out one by one."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from oocarrays.mapping.layouts.distribution import Axis, BlockCyclicAxis, GenBlockAxis
from oocarrays.plan.layouts.runs import Runs, cut, formula, runs_between
from tests.plan.formulas import FORMULAS
from tests.profiles import examples

pytestmark = pytest.mark.once

BILLION = 10**9


@st.composite
def axes(draw: st.DrawFn, extent: int) -> Axis:
    """Any distribution of an axis: cyclic(m), block(m), gen_block, on any number of ranks."""
    ranks = draw(st.integers(1, 9))
    kind = draw(st.sampled_from(["cyclic", "block", "gen_block"]))
    if kind == "gen_block":
        cuts = sorted(draw(st.lists(st.integers(0, extent), min_size=ranks - 1, max_size=ranks - 1)))
        return GenBlockAxis(extent, ranks, tuple(np.diff([0, *cuts, extent]).tolist()))
    least = max(-(-extent // ranks), 1) if kind == "block" else 1
    return BlockCyclicAxis(extent, ranks, draw(st.integers(least, max(least, 12))))


pairs = st.integers(0, 60).flatmap(lambda extent: st.tuples(axes(extent), axes(extent)))


def dealt(axis: Axis) -> list[tuple[int, int]]:
    """The rank that holds each element and where, by dealing the elements out one after the other."""
    blocks = axis.sizes if isinstance(axis, GenBlockAxis) else None
    hands: list[list[int]] = [[] for _ in range(axis.ranks)]
    places, rank, in_block = [], 0, 0
    for element in range(axis.extent):
        while in_block == (blocks[rank] if blocks else axis.block):
            rank, in_block = (rank + 1) % axis.ranks, 0
        places.append((rank, len(hands[rank])))
        hands[rank].append(element)
        in_block += 1
    return places


def moved(runs: Runs) -> list[tuple[int, ...]]:
    """Source, place with it, target, place with it: of every element of every run."""
    return list(_moved(runs))


def _moved(runs: Runs) -> Iterator[tuple[int, ...]]:
    for n in range(len(runs)):
        one = {name: int(column[n]) for name, column in runs.columns()}
        for time_ in range(one["count"]):
            for i in range(one["length"]):
                yield (
                    one["source"],
                    one["source_start"] + time_ * one["source_stride"] + i,
                    one["target"],
                    one["target_start"] + time_ * one["target_stride"] + i,
                )


def expected(source: Axis, target: Axis) -> list[tuple[int, ...]]:
    return sorted((*before, *after) for before, after in zip(dealt(source), dealt(target), strict=True))


def columns(runs: Runs) -> dict[str, list[int]]:
    return {name: column.tolist() for name, column in runs.columns()}


@examples(400)
@given(pairs)
@example((BlockCyclicAxis(0, 1, 1), GenBlockAxis(0, 2, (0, 0))))
@example((BlockCyclicAxis(60, 1, 3), BlockCyclicAxis(60, 1, 4)))
def test_every_element_moves_once_from_where_it_is_to_where_it_is_to_be(pair: tuple[Axis, Axis]) -> None:
    for runs in (runs_between(*pair), cut(*pair)):
        assert sorted(moved(runs)) == expected(*pair)
        assert all(runs.length > 0)
        assert all(runs.count > 0)
        order = list(zip(runs.source.tolist(), runs.target.tolist(), runs.source_start.tolist(), strict=True))
        assert order == sorted(order)


@examples(400)
@given(st.integers(0, 60), st.integers(2, 9), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
def test_each_formula_gives_what_cutting_gives(extent: int, ranks: int, y: int, k: int, others: int) -> None:
    large, small = BlockCyclicAxis(extent, ranks, k * y), BlockCyclicAxis(extent, ranks, y)
    block = BlockCyclicAxis(extent, ranks, max(-(-extent // ranks), 1) + y - 1)
    cyclic = BlockCyclicAxis(extent, others, 1)
    cases = {"ky-to-y": (large, small), "x-to-kx": (small, large)}
    cases |= {"block-to-cyclic": (block, cyclic), "cyclic-to-block": (cyclic, block)}
    for name, pair in cases.items():
        assert sorted(moved(FORMULAS[name](*pair))) == expected(*pair)
        assert len(runs_between(*pair)) <= len(cut(*pair))
        if name in ("ky-to-y", "x-to-kx") and k <= ranks and extent >= 2 * k * y * ranks:
            assert columns(FORMULAS[name](*pair)) == columns(cut(*pair))


@pytest.mark.parametrize(
    ("source", "target", "name"),
    [
        (BlockCyclicAxis(60, 4, 15), BlockCyclicAxis(60, 7, 1), "block-to-cyclic"),
        (BlockCyclicAxis(60, 7, 1), BlockCyclicAxis(60, 4, 15), "cyclic-to-block"),
        (BlockCyclicAxis(60, 4, 6), BlockCyclicAxis(60, 4, 2), "ky-to-y"),
        (BlockCyclicAxis(60, 4, 2), BlockCyclicAxis(60, 4, 6), "x-to-kx"),
        (BlockCyclicAxis(60, 4, 4), BlockCyclicAxis(60, 2, 2), None),
        (BlockCyclicAxis(60, 4, 4), BlockCyclicAxis(60, 4, 3), None),
        (GenBlockAxis(4, 2, (2, 2)), BlockCyclicAxis(4, 4, 1), None),
    ],
)
def test_a_formula_applies_where_the_thesis_says(source: Axis, target: Axis, name: str | None) -> None:
    assert formula(source, target) == name


@examples(200)
@given(pairs)
def test_the_way_back_is_the_same_runs_with_their_sides_swapped(pair: tuple[Axis, Axis]) -> None:
    back = runs_between(*pair).reversed()
    assert sorted(moved(back)) == expected(*pair[::-1])
    assert columns(back.reversed()) == columns(runs_between(*pair))


@examples(100)
@given(pairs)
def test_the_runs_of_one_rank_and_the_sizes_are_those_of_all(pair: tuple[Axis, Axis]) -> None:
    runs, (source, target) = runs_between(*pair), pair
    sizes = runs.sizes(source.ranks, target.ranks)
    everything = expected(*pair)
    for rank in range(source.ranks):
        assert sorted(moved(runs.of("source", rank))) == [each for each in everything if each[0] == rank]
        for other in range(target.ranks):
            between = [each for each in everything if each[0] == rank and each[2] == other]
            assert sorted(moved(runs.between(rank, other))) == between
            assert sizes[rank, other] == len(between)
    for rank in range(target.ranks):
        assert sorted(moved(runs.of("target", rank))) == [each for each in everything if each[2] == rank]


# ---------------------------------------------------------------------- the thesis's theorems


def partners(runs: Runs, ranks: int) -> tuple[list[int], list[int]]:
    """How many others each rank sends to, and receives from."""
    others = runs.sizes(ranks, ranks) > 0
    np.fill_diagonal(others, False)
    return others.sum(1).tolist(), others.sum(0).tolist()


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8])
def test_theorem_3_1_partners_of_block_to_cyclic(ranks: int) -> None:
    for extent, more in product([1, 5, 16, 17, 60], [0, 1, 5]):
        block, cyclic = BlockCyclicAxis(extent, ranks, -(-extent // ranks) + more), BlockCyclicAxis(extent, ranks, 1)
        sends, receives = partners(runs_between(block, cyclic), ranks)
        filled = -(-extent // block.block)
        for rank in range(ranks):
            held = block.size(rank)
            assert sends[rank] in ([ranks - 1] if held >= ranks else [held, held - 1])
            assert receives[rank] <= min(cyclic.size(rank), filled)


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_theorems_3_2_and_3_3_hold_over_whole_periods(ranks: int) -> None:
    for k, y in product([1, 2, 3, 4, 6, 9], [1, 3]):
        extent = 3 * k * y * ranks
        large, small = BlockCyclicAxis(extent, ranks, k * y), BlockCyclicAxis(extent, ranks, y)
        for runs in (runs_between(large, small), runs_between(small, large)):
            for counts in partners(runs, ranks):
                assert set(counts) <= ({k, k - 1} if k < ranks else {ranks - 1})


def test_theorem_3_2_does_not_hold_over_a_part_of_a_period() -> None:
    """The erratum's example: 4 ranks, cyclic(4) to cyclic(2), 9 elements; all partners, itself too."""
    runs = runs_between(BlockCyclicAxis(9, 4, 4), BlockCyclicAxis(9, 4, 2))
    assert (runs.sizes(4, 4) > 0).sum(1).tolist() == [2, 2, 1, 0]
    assert partners(runs, 4)[0] == [1, 2, 1, 0]


def test_the_sequence_of_ranks_comes_again_where_k_does_not_divide_the_ranks() -> None:
    """Erratum to 3.5.1: over two periods a receiver's sources are the same again after k blocks."""
    extent, ranks, k = 60, 5, 3
    places = dealt(BlockCyclicAxis(2 * extent, ranks, k))
    for rank in range(ranks):
        sources = [places[element][0] for element in range(rank, 2 * extent, ranks)]
        assert sources[: len(sources) - k] == sources[k:]


# ---------------------------------------------------------------------- few, and at once


def test_what_one_run_can_say_is_one_run() -> None:
    block, halves = BlockCyclicAxis(BILLION, 4, BILLION // 4), BlockCyclicAxis(BILLION, 8, BILLION // 8)
    assert len(runs_between(block, block)) == 4
    assert len(runs_between(block, halves)) == len(runs_between(halves, block)) == 8
    one = BlockCyclicAxis(BILLION, 1, 7)
    assert columns(runs_between(one, BlockCyclicAxis(BILLION, 1, 3)))["length"] == [BILLION]
    assert len(runs_between(BlockCyclicAxis(BILLION, 4, 5), BlockCyclicAxis(BILLION, 4, 5))) <= 8
    assert len(runs_between(one, BlockCyclicAxis(BILLION, 64, 1))) == 64


@pytest.mark.parametrize("case", ["cyclic", "block", "large-blocks", "gen-block"])
def test_the_cost_is_independent_of_the_extent(case: str) -> None:
    made = {
        "cyclic": lambda n: (BlockCyclicAxis(n, 64, 11), BlockCyclicAxis(n, 64, 3)),
        "block": lambda n: (BlockCyclicAxis(n, 64, -(-n // 64)), BlockCyclicAxis(n, 64, 1)),
        "large-blocks": lambda n: (BlockCyclicAxis(n, 4, n // 1000), BlockCyclicAxis(n, 64, 1)),
        "gen-block": lambda n: (GenBlockAxis(n, 3, (n - 2, 1, 1)), BlockCyclicAxis(n, 64, 3)),
    }[case]
    tracemalloc.start()
    try:
        runs = runs_between(*made(BILLION))
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held < 500 * (len(runs) + 1000), "an element, or a block, is gone through one by one"
    assert int((runs.length * runs.count).sum()) == BILLION
    assert len(runs) <= (64_000 if case == "large-blocks" else 2 * len(runs_between(*made(10**6))))
