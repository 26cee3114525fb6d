from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.mapping.grid import ChunkGrid
from oocarrays.plan.machine import Costs
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


# ---------------------------------------------------------------------- steps of planning
