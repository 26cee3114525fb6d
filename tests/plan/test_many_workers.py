"""Plans for clusters of many workers: tasks that grow with ranks, graphs that a scheduler gets through."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import zarr

import oocarrays as ooc
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.machine import Costs
from oocarrays.plan.plan import Resources
from oocarrays.plan.rechunk.plan import RechunkPlan, plan_rechunk
from oocarrays.plan.rechunk.ways import best_of

pytestmark = pytest.mark.long

MAPS, SERIES = (8, 1024, 1024), (16384, 32, 32)


@pytest.mark.parametrize(("frames", "workers"), [(262_144, 64), (1_740_800, 256), (15_500_000, 1000)])
def test_tasks_of_what_is_chosen_are_few_and_small(tmp_path: Path, frames: int, workers: int) -> None:
    """1.1 TB on 64 workers, 7.3 TB on 256, 65 TB on 1000."""
    source, cluster = tmp_path / "source", ooc.networks.planned_cluster(workers=workers, memory=2**32)
    zarr.create_array(source, shape=(frames, 1024, 1024), chunks=MAPS, dtype="f4", compressors=None)
    plan = ooc.rechunk(source, tmp_path / "target", chunks=SERIES, scheduler=cluster).plan
    assert plan.tasks <= min(300_000, 8 * plan.ranks * max(step.units for step in plan.passes))
    assert plan.scheduler_seconds < plan.seconds / 2
    assert plan.graph_bytes < 300e6
    assert all(way.reason for way in plan.alternatives)


@pytest.mark.parametrize("method", ["independent", "two-phase"])
@pytest.mark.parametrize("frames", [256, 4096])
def test_workers_that_share_few_cores_are_not_all_given_ranks(frames: int, method: Any) -> None:
    """Each message and task wants one of the cores: with more ranks nothing else would be done at one time."""

    chunks = (ChunkGrid.of((frames, 1024, 1024), each) for each in (MAPS, SERIES))
    source, target = (Stored(grid=grid, itemsize=4, local=True) for grid in chunks)

    def on(workers: int, ranks: int | None = None) -> RechunkPlan:
        means = Resources(budget=2**32, workers=workers, ranks=ranks, costs=Costs(cores=2))
        return plan_rechunk(source, target, means, method=method)

    few, many, asked = on(4), on(64), on(64, 64)
    assert many.ranks <= 4 < asked.ranks == 64
    assert many.seconds <= 1.1 * few.seconds
    assert asked.seconds >= many.seconds


class Offer(NamedTuple):
    """A way as far as the choice among ways looks at it."""

    seconds: float
    tasks: int
    peak_bytes: int
    stages: int = 1
    too_many: bool = False


def test_of_ways_alike_the_smallest_graph_is_taken() -> None:
    """Memory decides among small graphs only."""
    large, larger, slow = Offer(3104, 89_026, 24), Offer(3205, 258_036, 22), Offer(4292, 41_082, 8)
    assert best_of([larger, large, slow]) == large  # type: ignore[list-item, comparison-overlap]
    small, smaller = Offer(100, 8_000, 1), Offer(99, 500, 2)
    assert best_of([small, smaller]) == small  # type: ignore[list-item, comparison-overlap]
