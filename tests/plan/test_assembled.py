"""Passes that assemble chunks, against a table of every element: who writes what where, in how many runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.section import Section
from oocarrays.plan.cost import SECTOR
from oocarrays.plan.exchange.schedule import complete_exchange
from oocarrays.plan.machine import Costs
from oocarrays.plan.plan import Resources
from oocarrays.plan.rechunk.assembled import assembled_passes, on_sectors, stage_shape
from oocarrays.plan.rechunk.passes import Pass, Problem
from oocarrays.storage.chunks.elements import element_runs
from tests.profiles import examples
from tests.strategies import MIB, chunks_for, shapes, stored
from tests.unfinished import places_of

pytestmark = pytest.mark.once


def passes(shape, source, target, *, itemsize=4, ranks=2, budget=64 * MIB) -> list[Pass]:
    arrays = [stored(ChunkGrid.of(shape, chunks), itemsize=itemsize) for chunks in (source, target)]
    problem = Problem(
        source=arrays[0],
        target=arrays[1],
        resources=Resources(budget=budget, costs=Costs(cores=2)),
        schedule=complete_exchange(ranks),
    )
    return [counted.made(problem) for counted in assembled_passes(problem)]


@st.composite
def made(draw: st.DrawFn) -> Pass:
    shape = draw(shapes(4, most=400).filter(math.prod))
    source, target = draw(chunks_for(shape)), draw(chunks_for(shape))
    options = {"itemsize": draw(st.sampled_from([1, 4, 1024, 4096])), "ranks": draw(st.integers(1, 4))}
    return draw(st.sampled_from(passes(shape, source, target, **options)))


@examples(200)
@given(made())
def test_every_place_of_every_chunk_has_one_owner(step: Pass) -> None:
    grid = step.target.grid
    owners = {index: np.zeros(grid.chunks, int) for index in np.ndindex(grid.counts)}
    writers = np.zeros(grid.counts, int)
    for unit in range(step.units):
        for index, piece in places_of(step, unit):
            owners[index][piece.slices] += 1
            writers[index] += 1
    assert all((owner == 1).all() for owner in owners.values())
    assert writers.sum() == step.writes == step.traffic.placed_pieces
    expected = np.ones(())
    for axis in step.writers:
        expected = np.multiply.outer(expected, axis)
    np.testing.assert_array_equal(writers, expected)


def test_the_place_in_a_chunk_is_found_without_those_in_all_others() -> None:
    """Fill values that a unit has left out are put into one chunk after the other, of ten million here."""
    (step, *_) = passes((10**8,), (10**8,), (10,), itemsize=1, budget=2**10 * MIB)
    assert all(step.place(0, (index,)) == Section((0,), (10,)) for index in range(0, 10**7, 999))
    assert step.place(0, (10**7,)) is None


@examples(200)
@given(made())
def test_runs_are_counted_and_lie_on_sectors_where_it_is_said(step: Pass) -> None:
    runs, odd = 0, 0
    for unit in range(step.units):
        for _, piece in places_of(step, unit):
            starts, length = element_runs(piece, step.target.grid.chunks)
            runs += len(starts)
            odd += ((starts * step.target.itemsize) % SECTOR != 0).sum()
            odd += (length * step.target.itemsize) % SECTOR != 0
            assert all(n <= t for n, t in zip(piece.shape, stage_shape(piece.shape, 4, 2**40), strict=True))
    assert runs <= step.traffic.placed_runs
    if all(box % c == 0 or (c % box == 0 and n % c == 0) for n, box, c in _lengths(step)):
        assert runs == step.traffic.placed_runs
    assert odd == 0 or not on_sectors(step.source, step.target, step.unit)


def _lengths(step: Pass) -> list[tuple[int, int, int]]:
    """Elements of the array, of a box and of a target chunk along each axis."""
    source, target = step.source.grid, step.target.grid
    return [(n, b * s, c) for n, b, s, c in zip(target.shape, step.unit, source.chunks, target.chunks, strict=True)]
