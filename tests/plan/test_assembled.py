"""Passes that assemble chunks, against a table of every element: who writes what where, in how many runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.cost import SECTOR
from oocarrays.plan.exchange.schedule import complete_exchange
from oocarrays.plan.machine import Costs
from oocarrays.plan.memory import Resources
from oocarrays.plan.rechunk.assembled import assembled_passes, on_sectors, stage_shape
from oocarrays.plan.rechunk.passes import Pass, Problem
from oocarrays.plan.rechunk.plan import plan_rechunk
from oocarrays.storage.chunks.elements import element_runs
from tests.profiles import examples
from tests.strategies import MIB, chunks_for, shapes, stored

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
        for index, piece in step.places(unit):
            owners[index][piece.slices] += 1
            writers[index] += 1
    assert all((owner == 1).all() for owner in owners.values())
    assert writers.sum() == step.writes == step.traffic.placed_pieces
    expected = np.ones(())
    for axis in step.writers:
        expected = np.multiply.outer(expected, axis)
    np.testing.assert_array_equal(writers, expected)


@examples(200)
@given(made())
def test_runs_are_counted_and_lie_on_sectors_where_it_is_said(step: Pass) -> None:
    runs, odd = 0, 0
    for unit in range(step.units):
        for _, piece in step.places(unit):
            starts, length = element_runs(piece, step.target.grid.chunks)
            runs += len(starts)
            odd += ((starts * step.target.itemsize) % SECTOR != 0).sum()
            odd += (length * step.target.itemsize) % SECTOR != 0
            assert all(n <= t for n, t in zip(piece.shape, stage_shape(piece.shape, 4, 2**40), strict=True))
    assert runs <= step.traffic.placed_runs
    if all(box % c == 0 or (c % box == 0 and n % c == 0) for n, box, c in _lengths(step)):
        assert runs == step.traffic.placed_runs
    assert odd == 0 or not on_sectors(step)


def _lengths(step: Pass) -> list[tuple[int, int, int]]:
    """Elements of the array, of a box and of a target chunk along each axis."""
    source, target = step.source.grid, step.target.grid
    return [(n, b * s, c) for n, b, s, c in zip(target.shape, step.unit, source.chunks, target.chunks, strict=True)]


def test_what_is_laid_out_at_a_time_is_whole_sectors() -> None:
    assert stage_shape((512, 512), 4, 2**16) == (32, 512)
    assert stage_shape((100_000, 3), 1, 2**16) == (20_480, 3), "4096 rows are 3 sectors"


def test_boxes_are_as_wide_as_target_chunks_where_that_makes_runs_long() -> None:
    """A quarter of a row of a square chunk would be a run of 1 KiB."""
    plan = plan_rechunk(
        stored(ChunkGrid.of((32768, 32768), (4096, 256))),
        stored(ChunkGrid.of((32768, 32768), (1024, 1024))),
        Resources(budget=128 * MIB, costs=Costs(cores=2)),
        method="assembled",
    )
    (step,) = plan.passes
    assert step.unit[1] % 4 == 0
    assert step.traffic.placed_runs == step.traffic.placed_pieces
    assert on_sectors(step)


def test_it_fits_wherever_a_few_chunks_do() -> None:
    """A chunk of 32 MiB, and some of what is laid out."""
    slabs, columns = (stored(ChunkGrid.of((32768, 32768), chunks)) for chunks in ((256, 32768), (32768, 256)))
    for budget in (64, 96, 128, 256, 1024):
        plan = plan_rechunk(slabs, columns, Resources(budget=budget * MIB, costs=Costs(cores=2)), method="assembled")
        assert plan.peak_bytes <= budget * MIB
        assert plan.passes[0].traffic.read_bytes == slabs.nbytes


def test_a_million_chunks_are_planned_at_once() -> None:
    fine = stored(ChunkGrid.of((2**20, 2**20, 64), (2**10, 2**10, 64)))
    coarse = Stored(grid=ChunkGrid.of((2**20, 2**20, 64), (2**13, 2**7, 64)), itemsize=4, local=True, codec="zstd")
    plan = plan_rechunk(fine, coarse, Resources(budget=2**31, costs=Costs(cores=2)), method="assembled")
    assert [step.method for step in plan.passes] == ["assembled", "independent"]
