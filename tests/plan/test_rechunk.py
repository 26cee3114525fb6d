from __future__ import annotations

import dataclasses
import math
from contextlib import suppress
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocarrays.errors import BudgetError, InputError
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.machine import Costs
from oocarrays.plan.memory import Resources
from oocarrays.plan.rechunk import assembled, candidates
from oocarrays.plan.rechunk.counting import MAX_TASKS
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.plan.rechunk.plan import RechunkPlan, plan_rechunk
from tests.profiles import examples
from tests.seams import RECHUNK_METHODS
from tests.strategies import MIB, apart, chunks_for, shapes, stored

pytestmark = pytest.mark.once

COSTS = Costs(cores=2)


def plan(shape, source, target, budget, *, coded=False, **options) -> RechunkPlan:
    resources, how = apart({"budget": budget, "costs": COSTS} | options)
    grids = ChunkGrid.of(shape, source), ChunkGrid.of(shape, target)
    return plan_rechunk(*(stored(grid, coded=coded) for grid in grids), resources, **how)


@st.composite
def problems(draw: st.DrawFn) -> dict:
    shape = draw(shapes(3))
    return {
        "shape": shape,
        "source": draw(chunks_for(shape)),
        "target": draw(chunks_for(shape)),
        "budget": 64 * MIB,
        "coded": draw(st.booleans()),
        "ranks": draw(st.integers(1, 9)),
        "method": draw(st.sampled_from(RECHUNK_METHODS)),
    }


@examples(150)
@given(problems())
def test_every_target_chunk_is_built_by_one_rank_once(problem: dict) -> None:
    """Where chunks are assembled, every source chunk is read by one rank once."""
    for step in plan(**problem).passes:
        written = np.zeros(step.cut.counts, int)
        for box in boxes(step):
            written[tuple(map(slice, *box))] += 1
        assert (written == 1).all()


def boxes(step: Pass) -> list:
    """The target chunks that are built together, or the source chunks that are read together, by whoever."""
    if step.alone:
        units = [
            unit for rank in range(step.ranks) for batch in step.batches(rank) for unit in step.batch_units(batch, rank)
        ]
        return [step.chunk_box(unit) for unit in units]
    shares = [step.share(unit, rank) for unit in range(step.units) for rank in range(step.ranks)]
    return [box for box in shares if box is not None]


@examples(150)
@given(problems())
def test_a_region_is_no_larger_than_planned(problem: dict) -> None:
    for step in plan(**problem).passes:
        for first, last in boxes(step):
            assert math.prod(b - a for a, b in zip(first, last, strict=True)) <= math.prod(step.region)


@examples(150)
@given(problems())
def test_ranks_read_each_chunk_of_a_partition_once(problem: dict) -> None:
    for step in plan(**problem | {"method": "two-phase"}).passes:
        for unit in range(step.units):
            read = [
                index
                for turn in range(step.rounds(unit))
                for rank in range(step.ranks)
                for index in step.reads(unit, turn, rank)
            ]
            wanted = set(step.source.grid.indices(step.section(step.chunk_box(unit))))
            assert len(read) == len(set(read))
            assert set(read) == wanted


@examples(100)
@given(problems())
def test_the_plan_keeps_its_budget_and_moves_every_byte(problem: dict) -> None:
    made = plan(**problem)
    assert made.peak_bytes <= made.budget
    for step in made.passes:
        assert step.traffic.write_requests == step.target.grid.count
        if step.access == "ranges":
            assert step.traffic.read_bytes == made.source.nbytes


@pytest.mark.parametrize("method", [*RECHUNK_METHODS, "auto"])
def test_a_budget_too_small_names_both_numbers(method: str) -> None:
    with pytest.raises(BudgetError) as error:
        plan((8192, 8192), (64, 8192), (8192, 64), MIB, coded=True, method=method)
    assert error.value.budget == MIB
    assert str(error.value.least) in str(error.value)
    assert str(MIB) in str(error.value)


@pytest.mark.parametrize("method", RECHUNK_METHODS)
@pytest.mark.parametrize("coded", [False, True], ids=["plain", "coded"])
def test_the_least_budget_named_is_enough(method: str, coded: bool) -> None:
    problem = ((8192, 8192), (64, 8192), (8192, 64))
    with pytest.raises(BudgetError) as error:
        plan(*problem, MIB, coded=coded, method=method, ranks=2)
    least = error.value.least
    assert plan(*problem, least, coded=coded, method=method, ranks=2).peak_bytes <= least
    with pytest.raises(BudgetError):
        plan(*problem, least * 9 // 10, coded=coded, method=method, ranks=2)


@pytest.mark.parametrize(
    ("shape", "source", "target"),
    [
        ((100_000, 100), (1, 100), (100_000, 1)),
        ((100_000, 10_000), (100, 100), (1000, 10)),
        ((365, 600, 600), (1, 600, 600), (365, 2, 2)),
    ],
    ids=["rows", "blocks", "maps"],
)
@pytest.mark.parametrize("coded", [False, True], ids=["plain", "coded"])
@pytest.mark.parametrize("budget", [256 * MIB, 4096 * MIB])
def test_a_hundred_thousand_chunks_take_few_tasks(shape, source, target, coded: bool, budget: int) -> None:
    made = plan(shape, source, target, budget, coded=coded, ranks=8)
    assert made.tasks <= MAX_TASKS


def test_plain_chunks_need_no_scratch_where_coded_ones_do() -> None:
    problem = ((32768, 32768), (256, 32768), (32768, 256), 512 * MIB)
    assert len(plan(*problem).passes) == 1
    assert plan(*problem).scratch_bytes == 0
    assert plan(*problem, coded=True).strategy in ("assembled", "staged")
    assert plan(*problem, coded=True).scratch_bytes > 0


def test_conforming_chunks_are_read_independently() -> None:
    """Selective: ranks whose target chunks are the source's have nothing to exchange."""
    made = plan((4096, 4096), (64, 4096), (128, 4096), 256 * MIB, coded=True, ranks=4)
    assert made.strategy == "independent"
    assert made.traffic.pieces == made.source.grid.count


def test_ranks_that_share_every_chunk_exchange() -> None:
    """Small chunks, short runs: in two phases each chunk is read once; ranks alone would read it eight times."""
    made = plan((100_000, 100), (1, 100), (100_000, 1), 1024 * MIB, ranks=8)
    assert made.strategy == "two-phase"
    assert made.traffic.read_requests == made.source.grid.count


def test_a_plan_is_frozen() -> None:
    made = plan((64, 64), (8, 64), (64, 8), 64 * MIB)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.budget = 1  # type: ignore[misc]


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_an_empty_array_has_no_passes(shape: tuple[int, ...]) -> None:
    assert plan(shape, (1,) * len(shape), (2,) * len(shape), 64 * MIB).passes == ()


@pytest.mark.parametrize("options", [{"method": "magic"}, {"ranks": 0}], ids=["method", "ranks"])
def test_wrong_options_are_refused(options: dict) -> None:
    with pytest.raises(InputError, match=r"is not one of|at least 1"):
        plan((4, 4), (1, 4), (4, 1), 64 * MIB, **options)


@pytest.mark.parametrize(("edge", "name"), [(1024, "REX"), (16384, "PEX")])
def test_auto_takes_few_steps_for_little_and_few_bytes_for_much(edge: int, name: str) -> None:
    """REX takes lg P steps and sends most of it lg P times; whoever names an order gets that."""
    rows = Stored(grid=ChunkGrid.of((edge, edge), (edge // 64, edge)), itemsize=4, local=True)
    columns = Stored(grid=ChunkGrid.of((edge, edge), (edge, edge // 64)), itemsize=4, local=True)
    four = Resources(budget=2**29, workers=4)

    def asked(order: str = "auto") -> RechunkPlan:
        return plan_rechunk(rows, columns, dataclasses.replace(four, schedule=order), method="two-phase")

    seconds = {order: asked(order).seconds for order in ("pex", "rex", "gen", "ipex")}
    plan = asked()
    assert plan.passes[0].schedule.name == name
    assert plan.seconds <= 1.05 * min(seconds.values())
    assert asked("gen").passes[0].schedule.name == "GEN"


@st.composite
def problems_of_any_kind(draw: st.DrawFn) -> dict:
    shape = draw(shapes(3, most=100_000))
    source, target = (draw(chunks_for(shape)) for _ in range(2))

    def stored(chunks: tuple[int, ...]) -> Stored:
        size = 4 * math.prod(chunks)
        coded = {"codec": "zstd", "decode_workspace": size, "encode_workspace": 2 * size} if draw(st.booleans()) else {}
        return Stored(grid=ChunkGrid.of(shape, chunks), itemsize=4, local=True, **coded)

    return {
        "ends": (stored(source), stored(target)),
        "workers": draw(st.sampled_from([None, None, 3])),
        "method": draw(st.sampled_from(["auto", "independent", "two-phase", "assembled", "staged"])),
    }


@examples(60)
@given(problems_of_any_kind())
def test_the_least_budget_that_a_refusal_names_is_true_to_the_byte(problem: dict) -> None:
    def refused(budget: int) -> int | None:
        resources = Resources(budget=budget, workers=problem["workers"], threads=2)
        try:
            plan_rechunk(*problem["ends"], resources, method=problem["method"])
        except BudgetError as error:
            return error.least
        return None

    least = refused(1)
    if least is not None:  # an array without elements needs nothing
        assert refused(least) is None
        assert refused(least - 1) is not None


# ---------------------------------------------------------------------- steps of planning

MANY_AXES = {
    "4-D": ((200, 100, 721, 1440), (1, 1, 721, 1440), (200, 1, 20, 20)),
    "5-D": ((100,) * 5, (1, 10, 10, 100, 100), (100, 100, 10, 10, 1)),
    "6-D": ((30,) * 6, (1, 3, 5, 7, 30, 30), (30, 30, 7, 5, 3, 1)),
    "6-D, in turn": ((64,) * 6, (4,) * 6, (64, 1) * 3),
    "8-D": ((16,) * 8, (2,) * 8, (16, 1) * 4),
}
MOST_COUNTED = 15_000
"""Candidates: each takes 40 to 70 microseconds."""


@pytest.mark.long
@pytest.mark.parametrize("budget", [MIB, 64 * MIB, 2**30])
@pytest.mark.parametrize(("shape", "source", "target"), MANY_AXES.values(), ids=MANY_AXES)
def test_arrays_of_many_axes_are_planned_or_refused_in_few_steps(
    shape, source, target, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    for module, name in ((candidates, "count_pass"), (assembled, "_count")):
        count = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, count=count, name=name: counted.append(name) or count(*args))
    for workers, codec, remote in product((None, 4), (None, "zstd"), (False, True)):
        counted.clear()
        how = {"itemsize": 4, "codec": codec, "local": not remote, "remote": remote, "travel_bytes": MIB * remote}
        ends = [Stored(grid=ChunkGrid.of(shape, chunks), **how) for chunks in (source, target)]
        with suppress(BudgetError):
            plan_rechunk(*ends, Resources(budget=budget, costs=COSTS, workers=workers, threads=2))
        assert 0 < len(counted) < MOST_COUNTED
