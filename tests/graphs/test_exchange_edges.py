"""The edges of a graph for workers prove: memory is bounded, a rank is in one round at a time, buffers stay at home."""

from __future__ import annotations

import dataclasses
import pickle
from itertools import product

import pytest
from hypothesis import given, strategies as st

from oocarrays import Job
from oocarrays.graphs.run.program import RankBuffers
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.plan.machine import Costs
from oocarrays.plan.plan import Resources
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.plan.rechunk.plan import plan_rechunk
from oocarrays.storage.local.pages import allocate
from tests.graphs.edges import Deed, Edges, run_of
from tests.profiles import examples
from tests.seams import RECHUNK_METHODS
from tests.small import DATA, make, plan
from tests.strategies import MIB, orders, stored, taking

pytestmark = pytest.mark.long

edges_of_any_pass = examples(40)


@st.composite
def packed(draw: st.DrawFn, step: Pass) -> Pass:
    """The pass between workers, with any schedule, region, number of outboxes, depth and number of ranks."""
    counts = step.target.grid.counts
    ranks = draw(st.sampled_from((1, 2, 3, 4, 5, 8)))
    return dataclasses.replace(
        step,
        packed=True,
        synchronous=True,
        ranks=ranks,
        exchange=draw(orders(ranks)),
        depth=draw(st.integers(1, 3)),
        slabs=draw(st.integers(1, 3)),
        region=tuple(draw(st.integers(1, n)) for n in counts),
        split=draw(st.integers(0, len(counts) - 1)),
    )


def graph_of(job: Job, *passes: Pass) -> Edges:
    """The graph of some passes, each rank on a worker of its own."""
    ranks = passes[0].ranks
    run = run_of(job, *passes, processes=ranks)
    return Edges.of(run.graph([f"w{rank}" for rank in range(ranks)])[0])


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A two-phase job of several target chunks in both axes, over chunks that do not divide the shape."""
    folder = tmp_path_factory.mktemp("edges")
    make(folder / "source.zarr", DATA[:50, :33], chunks=(6, 20))
    return plan(folder / "source.zarr", folder / "target.zarr", "two-phase", chunks=(17, 7))


# ---------------------------------------------------------------------- memory is bounded


@given(data=st.data())
@edges_of_any_pass
def test_a_rank_holds_no_more_outboxes_than_planned(job: Job, data: st.DataObject) -> None:
    """A read comes after its rank has let go of the outbox of ``slabs`` partitions before: there are so many places."""
    step = data.draw(packed(job.plan.passes[0]))
    edges = graph_of(job, step)
    for rank in range(step.ranks):
        reads, frees = (of_rank(edges.named(verb), rank) for verb in ("read", "free"))
        assert len(reads) == len(frees) == step.units
        for unit, read in enumerate(reads):
            in_this_place = frees[unit % step.slabs : unit : step.slabs]
            assert set(in_this_place) <= edges.before[read]
            assert set(in_this_place[-1:]) <= edges.direct[read]


@given(data=st.data())
@edges_of_any_pass
def test_an_outbox_is_kept_until_all_have_written(job: Job, data: st.DataObject) -> None:
    """So that what a lost worker was sent can be sent again."""
    step = data.draw(packed(job.plan.passes[0]))
    edges = graph_of(job, step)
    for free in edges.named("free"):
        read = free._replace(verb="read")
        assert read in edges.direct[free]
        takers = {each for each, formers in edges.direct.items() if read in formers} - {free}
        assert takers == {free._replace(verb="exchange")}
        assert takers <= edges.before[free]
        assert {free._replace(verb="write", rank=other) for other in range(step.ranks)} <= edges.before[free]


@given(data=st.data())
@edges_of_any_pass
def test_a_rank_holds_at_most_depth_regions(job: Job, data: st.DataObject) -> None:
    """A round begins after the region of ``depth`` partitions before has been written, and after the round before."""
    step = data.draw(packed(job.plan.passes[0]))
    edges = graph_of(job, step)
    for rank in range(step.ranks):
        writes = of_rank(edges.named("write"), rank)
        assert [write.unit for write in writes] == list(range(step.units))
        for unit, write in enumerate(writes):
            round, in_this_place = write._replace(verb="exchange"), writes[unit % step.depth : unit : step.depth]
            assert set(in_this_place) <= edges.before[round]
            assert set(in_this_place[-1:]) <= edges.direct[round]
            assert {round._replace(unit=unit - 1)} <= edges.direct[round] or not unit
            assert round in edges.direct[write]


def of_rank(deeds: list[Deed], rank: int) -> list[Deed]:
    return [each for each in deeds if each.rank == rank]


# ---------------------------------------------------------------------- what stays at home


@pytest.mark.parametrize("synchronous", [True, False], ids=["synchronous", "asynchronous"])
@given(data=st.data())
@edges_of_any_pass
def test_between_ranks_go_messages_and_tokens_only(job: Job, synchronous: bool, data: st.DataObject) -> None:
    """Outboxes and regions are taken over by tasks of their own rank; no token has a buffer in it."""
    exchange = dataclasses.replace(data.draw(packed(job.plan.passes[0])), synchronous=synchronous)
    alone = dataclasses.replace(exchange, method="independent", packed=False, batch=2)
    passes = data.draw(st.sampled_from([(exchange,), (alone,), (exchange, alone), (alone, exchange)]))
    edges = graph_of(job, *passes)
    crossing = {(former.verb, later.verb) for former, later in edges.pairs() if former.rank != later.rank}
    after_run = {("run", "probe"), ("probe", "create")}
    after_create = {("create", verb) for verb in ("read", "exchange", "written", "write", "free", "copy")}
    after_start = {("start", verb) for verb in ("read", "exchange", "copy")}
    exchanged = {("write", "written"), ("written", "free")}
    at_the_end = {(last, verb) for last in ("free", "copy") for verb in ("start", "finish")}
    assert crossing <= after_run | after_create | after_start | exchanged | at_the_end


def test_what_a_copy_holds_stays_behind_when_others_wait_for_it() -> None:
    there = pickle.loads(pickle.dumps(RankBuffers(allocate(10**6), allocate(100))))
    assert there.empty
    assert len(pickle.dumps(there)) < 1000


@given(data=st.data())
@edges_of_any_pass
def test_every_key_ends_with_its_rank(job: Job, data: st.DataObject) -> None:
    """Ranks are pinned by it."""
    exchange = data.draw(packed(job.plan.passes[0]))
    alone = dataclasses.replace(exchange, method="independent", packed=False, batch=1)
    edges = graph_of(job, exchange, alone)
    assert {each.rank for each in edges.direct} <= set(range(exchange.ranks))
    probed = {each.number: each.rank for each in edges.direct if each.verb == "probe"}
    assert probed == {f"w{rank}": rank for rank in range(exchange.ranks)}
    for former, later in edges.pairs():
        if {former.verb, later.verb} <= {"read", "exchange", "write", "copy"}:
            assert former.rank == later.rank


# ---------------------------------------------------------------------- how many tasks


@pytest.mark.parametrize("synchronous", [True, False], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("method", RECHUNK_METHODS)
def test_a_graph_has_as_many_tasks_as_the_plan_says(job: Job, method: str, synchronous: bool) -> None:
    grids = (ChunkGrid.of((96, 80), chunks) for chunks in ((8, 80), (96, 10)))
    source, target = (stored(grid, itemsize=2**10) for grid in grids)
    for ranks, memory in product((1, 2, 3, 4, 5), (48 * MIB, 512 * MIB)):
        has = {"budget": memory, "costs": Costs(cores=2), "ranks": ranks, "workers": ranks, "synchronous": synchronous}
        for name in taking(ranks) if method == "two-phase" else ["auto"]:
            made = plan_rechunk(source, target, Resources(schedule=name, **has), method=method)
            run = run_of(job, *made.passes, processes=ranks)
            assert len(run.graph(["x"] * ranks)[0]) == made.tasks
