"""Plans from above: what is drawn is what is done."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.plan import Resources
from oocarrays.plan.rechunk.plan import RechunkPlan, plan_rechunk
from oocarrays.plan.rechunk.ways import METHODS
from oocarrays.show.pictures.plans import MOST_BOXES, MOST_READS, MOST_UNITS, Panel, view
from tests.profiles import examples

pytestmark = pytest.mark.once


def stored(shape: tuple[int, ...], chunks: tuple[int, ...], codec: str | None = None) -> Stored:
    return Stored(grid=ChunkGrid.of(shape, chunks), itemsize=4, local=True, codec=codec)


@st.composite
def plans(draw: st.DrawFn) -> RechunkPlan:
    ndim = draw(st.integers(0, 3))
    shape = tuple(draw(st.integers(1, 12)) for _ in range(ndim))
    source, target = (stored(shape, tuple(draw(st.integers(1, 12)) for _ in shape)) for _ in range(2))
    ranks, method = draw(st.integers(1, 4)), draw(st.sampled_from(METHODS))
    try:
        return plan_rechunk(source, target, Resources(budget=2**27, ranks=ranks), method=method)
    except BudgetError:
        return plan_rechunk(source, target, Resources(budget=2**27, ranks=1))


def painted(panel: Panel) -> np.ndarray:
    """How often each element shown lies in a box."""
    times = np.zeros(panel.grid.shape, int)
    for box in panel.boxes:
        times[tuple(map(slice, box.lower, box.upper))] += 1
    return times[tuple(map(slice, panel.window))]


@examples(60)
@given(plan=plans())
def test_every_element_of_the_target_is_drawn_once_by_the_rank_that_writes_it(plan: RechunkPlan) -> None:
    seen = view(plan)
    step, panel = plan.passes[-1], seen.panels[-1]
    assert panel.name == "target"
    assert (painted(panel) == 1).all()
    for box in panel.boxes:
        unit = box.turn - 1 if not step.alone else (box.turn - 1) * step.ranks + box.rank
        whole = step.chunk_box(unit) if step.alone else step.share(unit, box.rank)
        assert whole is not None
        section = step.section(whole)
        assert tuple(section.lower[a] for a in seen.axes) == box.lower
        assert tuple(section.upper[a] for a in seen.axes) == box.upper


@examples(60)
@given(plan=plans())
def test_boxes_of_chunks_are_the_chunks_that_are_read_each_once(plan: RechunkPlan) -> None:
    step = plan.passes[0]
    if step.alone:
        return
    for unit in range(step.units):
        touched = [*step.source.grid.indices(step.section(step.chunk_box(unit)))]
        turns = product(range(step.rounds(unit)), range(step.ranks))
        assert [index for turn, rank in turns for index in step.reads(unit, turn, rank)] == touched
        for turn, rank in product(range(step.rounds(unit)), range(step.ranks)):
            counted = sum(
                math.prod(b - a for a, b in zip(*box, strict=True)) for box in step.read_boxes(unit, turn, rank)
            )
            assert counted == len(list(step.reads(unit, turn, rank)))


def test_the_axes_shown_are_those_that_tell_most() -> None:
    plan = plan_rechunk(
        stored((40, 30, 50), (1, 30, 50)),
        stored((40, 30, 50), (40, 30, 2)),
        Resources(budget=2**27, ranks=2),
        method="two-phase",
    )
    seen = view(plan)
    assert seen.axes == (0, 2)
    assert seen.notes == ("seen at index 0 of axis 1 (30 long)",)
    assert {box.rank for panel in seen.panels for box in panel.boxes} == {0, 1}


def test_a_large_plan_is_thinned_and_says_so() -> None:
    shape = (200_000, 100_000)
    plan = plan_rechunk(
        stored(shape, (10, shape[1])),
        stored(shape, (shape[0], 10)),
        Resources(budget=2**31, ranks=2),
        method="two-phase",
    )
    seen = view(plan)
    assert [panel.name for panel in seen.panels] == ["source", "target"]
    assert len(seen.panels[0].boxes) <= MOST_READS
    assert len(seen.panels[1].boxes) <= min(MOST_BOXES, MOST_UNITS * plan.ranks)
    for panel, axis, note in zip(seen.panels, (0, 1), seen.notes, strict=True):
        assert panel.window[axis] < shape[axis]
        assert note == f"{panel.name} thinned: the first {panel.window[axis]} of {shape[axis]} along axis {axis}"
