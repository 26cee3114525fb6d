"""Plans for clusters of many workers: tasks that grow with ranks, graphs that a scheduler gets through."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from oocarrays.graphs.rechunk.graph import GraphBuilder
from oocarrays.graphs.rechunk.tasks import RechunkRun
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.machine import Costs
from oocarrays.plan.memory import Resources
from oocarrays.plan.rechunk.as_json import from_json, to_json
from oocarrays.plan.rechunk.plan import GRAPH_TASK_BYTES, RechunkPlan, plan_rechunk

pytestmark = pytest.mark.long

MAPS, SERIES = (8, 1024, 1024), (16384, 32, 32)


def stored(frames: int, chunks: tuple[int, ...], *, remote: bool) -> Stored:
    """Frames of 4 MiB, in plain chunks: of an object store, or on storage that all workers share."""
    grid = ChunkGrid.of((frames, 1024, 1024), chunks)
    size = grid.chunk_size * 4 if remote else 0
    travels = {"travel_bytes": 2 * size, "decode_workspace": size, "encode_workspace": size}
    return Stored(grid=grid, itemsize=4, local=not remote, remote=remote, **travels)


def planned(frames: int, workers: int, *, remote: bool = True, method: str = "auto", **given: Any) -> RechunkPlan:
    resources = Resources(budget=2**32, workers=workers, threads=2, costs=Costs(cores=2 * workers))
    source, target = (stored(frames, chunks, remote=remote) for chunks in (MAPS, SERIES))
    return plan_rechunk(source, target, replace(resources, **given), method=method)  # type: ignore[arg-type]


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize(("frames", "workers"), [(262_144, 64), (1_740_800, 256), (15_500_000, 1000)])
def test_tasks_of_what_is_chosen(frames: int, workers: int, remote: bool) -> None:
    """1.1 TB on 64 workers, 7.3 TB on 256, 65 TB on 1000."""
    plan = planned(frames, workers, remote=remote)
    assert plan.tasks <= 300_000
    assert plan.tasks <= 8 * plan.ranks * max(step.units for step in plan.passes)
    assert plan.scheduler_seconds < plan.seconds / 2
    assert plan.graph_bytes < 300e6
    assert all(way.reason for way in plan.considered)


@pytest.mark.parametrize("ranks", [8, 9, 64])
def test_tasks_grow_with_ranks(ranks: int) -> None:
    plan = planned(20_000, ranks, method="two-phase", ranks=ranks)
    (step,) = plan.passes
    assert step.whole
    assert step.traffic.tasks == step.units * (4 * ranks + 1)
    by_steps = planned(20_000, ranks, method="two-phase", ranks=ranks, steps_below=10_000).passes[0]
    assert not by_steps.whole
    assert by_steps.traffic.tasks > step.traffic.tasks
    assert plan.seconds <= planned(20_000, ranks, method="two-phase", ranks=ranks, steps_below=10_000).seconds


@pytest.mark.parametrize("method", ["independent", "two-phase"])
@pytest.mark.parametrize("frames", [256, 4096])
def test_workers_that_share_few_cores_are_not_all_given_ranks(frames: int, method: str) -> None:
    """Each message and task wants one of the cores: with more ranks nothing else would be done at one time."""
    few = planned(frames, 4, remote=False, method=method, threads=1, costs=Costs(cores=2))
    many = planned(frames, 64, remote=False, method=method, threads=1, costs=Costs(cores=2))
    assert many.ranks <= 4
    assert many.seconds <= 1.1 * few.seconds
    asked = planned(frames, 64, remote=False, method=method, threads=1, costs=Costs(cores=2), ranks=64)
    assert asked.ranks == 64
    assert asked.seconds >= many.seconds
    assert planned(65_536, 64, method=method).ranks >= 64, "each on a machine of its own"


def test_what_has_come_is_taken_in_one_task() -> None:
    assert planned(20_000, 4, method="two-phase", ranks=4, synchronous=False).passes[0].whole
    assert not planned(20_000, 4, method="two-phase", ranks=4).passes[0].whole


def test_a_journal_of_before_names_steps() -> None:
    plan = planned(20_000, 9, method="two-phase", ranks=9)
    data = to_json(plan)
    assert from_json(data).passes[0].whole
    for step in data["passes"]:
        del step["whole"], step["scheduler_seconds"]
    assert not from_json(data).passes[0].whole


class Run:
    """A run of which only the graph is made."""

    def __init__(self, plan: RechunkPlan) -> None:
        self.plan, self.done = plan, frozenset[object]()

    def units(self, number: int) -> list[int]:
        return list(range(self.plan.passes[number].units))


def test_bytes_of_a_graph() -> None:
    plan = planned(262_144, 64, method="two-phase", ranks=64)
    run = Run(plan)
    builder = GraphBuilder(run, "0" * 12, [f"tcp://10.0.0.{rank}:40000" for rank in range(64)])  # type: ignore[arg-type]
    builder._do = RechunkRun.task
    builder.build()
    assert len(builder.graph) == plan.tasks
    nbytes = len(pickle.dumps(builder.graph))
    assert nbytes / 2 < plan.tasks * GRAPH_TASK_BYTES < 3 * nbytes
    assert nbytes < 1000 * plan.tasks
