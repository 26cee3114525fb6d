"""Messages between workers: every element in exactly one, none longer than planned, and unpacked where it belongs."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask.threaded
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import BudgetError
from oocarrays.graphs.exchange.messages import bytes_for
from oocarrays.graphs.rechunk import exchange, program, tasks
from oocarrays.graphs.rechunk.program import Destination, Rechunk, rechunk_run
from oocarrays.graphs.run.run import Run
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.section import Section
from oocarrays.plan.machine import Costs
from oocarrays.plan.plan import Resources
from oocarrays.plan.rechunk.counting import MessageBlock, message_blocks
from oocarrays.plan.rechunk.passes import BASE_BYTES, Pass
from oocarrays.plan.rechunk.plan import RechunkPlan, plan_rechunk
from oocarrays.storage.files import array_file
from oocarrays.storage.files.formats import target_settings
from tests.profiles import examples
from tests.strategies import MIB, chunks_for, orders, shapes, stored

pytestmark = pytest.mark.long

many = examples(60)


def planned(shape: tuple, source: tuple, target: tuple, ranks: int, itemsize: int = 4, budget: int = MIB * 64):
    """The plan of an exchange between workers, a rank on each."""
    return plan_rechunk(
        stored(ChunkGrid.of(shape, source), itemsize=itemsize),
        stored(ChunkGrid.of(shape, target), itemsize=itemsize),
        Resources(budget=budget, costs=Costs(cores=2), ranks=ranks, workers=ranks),
        method="two-phase",
    )


@st.composite
def arrays(draw: st.DrawFn, most: int = 2000) -> tuple[tuple, tuple, tuple]:
    """A shape with elements, and the chunks of a source and a target."""
    shape = draw(shapes(3, most).filter(math.prod))
    return shape, draw(chunks_for(shape)), draw(chunks_for(shape))


@st.composite
def exchanges(draw: st.DrawFn, most: int = 2000) -> Pass:
    """A pass between 1 to 9 workers with any region, split, access and schedule."""
    ranks = draw(st.integers(1, 9))
    (step,) = planned(*draw(arrays(most)), ranks).passes
    counts = step.target.grid.counts
    return dataclasses.replace(
        step,
        region=tuple(draw(st.integers(1, n)) for n in counts),
        split=draw(st.integers(0, max(len(counts) - 1, 0))),
        access=draw(st.sampled_from(("ranges", "chunks"))),
        depth=draw(st.integers(1, 2)),
        slabs=draw(st.integers(1, 2)),
        synchronous=draw(st.booleans()),
        exchange=draw(orders(ranks)),
        outbox_bytes=step.source.nbytes,
    )


@st.composite
def plans(draw: st.DrawFn) -> RechunkPlan:
    """A plan whose elements are so large that the budget decides on regions."""
    options = {"ranks": draw(st.integers(1, 6)), "itemsize": draw(st.sampled_from((2**12, 2**15, 2**17)))}
    problem = draw(arrays())
    try:
        return planned(*problem, **options, budget=BASE_BYTES + draw(st.integers(1, 256)) * MIB)
    except BudgetError as error:
        return planned(*problem, **options, budget=error.least)


def pairs(step: Pass) -> Iterator[tuple[int, int]]:
    """Every source with every destination."""
    return ((source, destination) for source in range(step.ranks) for destination in range(step.ranks))


def elements(step: Pass, sections: list) -> np.ndarray:
    """How often each element of the array is in one of some sections."""
    seen = np.zeros(step.target.grid.shape, int)
    for section in sections:
        seen[section.slices] += 1
    return seen


# ---------------------------------------------------------------------- who sends what


@given(exchanges())
@many
def test_every_element_is_in_the_one_message_from_its_reader_to_its_builder(step: Pass) -> None:
    for unit in range(step.units):
        everything = []
        for source, destination in pairs(step):
            sections = [block.section for block in message_blocks(step, unit, source, destination)]
            box = step.share(unit, destination)
            read = elements(step, list(read_chunks(step, unit, source)))
            built = elements(step, [step.section(box)] if box else [])
            np.testing.assert_array_equal(elements(step, sections), read * built)
            everything += sections
        here = elements(step, [step.section(step.chunk_box(unit))])
        np.testing.assert_array_equal(elements(step, everything), here)
        for rank in range(step.ranks):
            few, read = (
                [step.source.grid.block(*box) for box in step.read_boxes(unit, 0, rank)],
                elements(step, list(read_chunks(step, unit, rank))),
            )
            np.testing.assert_array_equal(elements(step, few), read)
            assert len(few) <= max(2 * read.ndim - 1, 1)


def read_chunks(step: Pass, unit: int, rank: int) -> Iterator:
    """What a rank reads of a partition, chunk by chunk, were all of it read in one round."""
    once = dataclasses.replace(step, slab=step.source.grid.count)
    return map(step.source.grid.section, once.reads(unit, 0, rank))


# ---------------------------------------------------------------------- in which order


@given(exchanges(), st.data())
@many
def test_a_block_is_cut_as_the_target_stores_it(step: Pass, data: st.DataObject) -> None:
    """An element's place in a block and its place in a region, both counted by hand."""
    unit = data.draw(st.integers(0, step.units - 1))
    grid, numbers = step.target.grid, np.arange(math.prod(step.target.grid.shape)).reshape(step.target.grid.shape)
    for source, destination in pairs(step):
        box = step.share(unit, destination)
        for block in message_blocks(step, unit, source, destination):
            assert box is not None
            place = block.place(grid, box[0])
            for inside in np.ndindex(block.shape):
                element = tuple(map(sum, zip(block.section.lower, offsets(block, grid, inside), strict=True)))
                region = tuple(s.start + i for s, i in zip(place, inside, strict=True))
                chunk, rest = region[: len(grid.shape)], region[len(grid.shape) :]
                there = tuple((f + i) * c + r for f, i, c, r in zip(box[0], chunk, grid.chunks, rest, strict=True))
                assert numbers[element] == numbers[there]
            for count, length, chunk in zip(block.counts, block.lengths, grid.chunks, strict=True):
                assert length == chunk or count == 1, "several chunks are whole ones"


def offsets(block: MessageBlock, grid: ChunkGrid, inside: tuple[int, ...]) -> list[int]:
    """How far an element of a block is from the block's first, in each axis of the array."""
    ndim = len(grid.shape)
    steps = [c if n > 1 else 0 for c, n in zip(grid.chunks, block.counts, strict=True)]
    return [i * c + j for i, c, j in zip(inside[:ndim], steps, inside[ndim:], strict=True)]


# ---------------------------------------------------------------------- how long


@given(plans())
@many
def test_messages_outboxes_and_regions_are_no_longer_than_planned(plan: RechunkPlan) -> None:
    (step,) = plan.passes
    message = outbox = region = 0
    for unit in range(step.units):
        for source in range(step.ranks):
            sizes = [
                sum(block.size for block in message_blocks(step, unit, source, destination)) * step.source.itemsize
                for destination in range(step.ranks)
            ]
            message, outbox = max(message, *sizes), max(outbox, sum(sizes))
            box = step.share(unit, source)
            region = max(region, Section(*box).size * step.target.chunk_bytes if box else 0)
    assert message <= step.message_bytes
    assert outbox <= step.outbox_bytes
    held = step.slabs * outbox + step.depth * region + 2 * message
    assert BASE_BYTES + held <= plan.peak_bytes <= plan.budget


# ---------------------------------------------------------------------- packed and unpacked


class Here:
    """Outboxes that ranks on threads hold for each other, in place of the exchanges of workers."""

    def __init__(self) -> None:
        self.there: dict[Any, Any] = {}
        self.changed = threading.Condition()

    def hold(self, live: Any, round: tuple[int, ...], rank: int, outbox: Any) -> None:
        with self.changed:
            self.there[round, rank] = outbox
            self.changed.notify_all()

    def let_go(self, place: Any) -> None:
        """Keep it: a test is short."""

    def round(self, run: Any, key: Any, args: tuple[int, ...], held: Any, *after: Any) -> Any:
        """Take all parts from the others, in place of a coroutine."""
        *round, rank = args
        live, now = run.live, tuple(round)
        region = exchange.begin(live, now, rank, held)
        for origin in range(program.Rechunk.exchange.order(live, now).ranks):
            with self.changed:
                self.changed.wait_for(lambda origin=origin: (now, origin) in self.there)
            if origin != rank:
                part = bytes_for(live, now, origin, self.there[now, origin], rank)
                region = exchange.unpack(live, now, rank, region, {origin: part})
        return region


@given(exchanges(most=400))
@examples(30)
def test_packing_and_unpacking_gives_the_right_target(step: Pass) -> None:
    """The tasks of workers, on threads: a probe that is on no worker says that it is where it was put."""
    grid, here = step.source.grid, Here()
    values = np.random.default_rng(0).random(grid.shape, dtype="f4")
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(program, "whole_round", here.round)
        for module in (exchange, tasks):
            patched.setattr(module, "answer", lambda live: here)
        source = zarr.create_array(f"{folder}/source", data=values, chunks=grid.chunks, compressors=None)
        run = run_of(step, source, Path(folder, "target"))
        graph, key = run.graph(["x"] * step.ranks)
        target = ooc.open_array(dask.threaded.get(graph, key, num_workers=2 * step.ranks))
        np.testing.assert_array_equal(target, values)
        assert run.meter.write_requests == step.target.grid.count


def run_of(step: Pass, source: zarr.Array, target: Path) -> Run[Rechunk]:
    settings = target_settings(source, step.target.grid.chunks)
    destination = Destination(
        store=str(target), settings=settings, overwrite=False, scratch=str(target.parent), past_cache_above=2**40
    )
    plan = dataclasses.replace(
        planned(step.source.grid.shape, step.source.grid.chunks, step.target.grid.chunks, step.ranks), passes=(step,)
    )
    return rechunk_run(plan, array_file.describe(source), destination, {})
