"""Memory of each worker while its ranks run on several threads, and what it keeps from one pass to the next."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import BudgetError
from oocarrays.graphs.cluster.pins import pin
from oocarrays.graphs.cluster.placement import known_workers
from oocarrays.graphs.rechunk.passes import pool
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.plan.machine import Costs
from oocarrays.plan.plan import Resources
from oocarrays.plan.rechunk.passes import BASE_BYTES, Pass
from oocarrays.plan.rechunk.plan import plan_rechunk
from tests.flat import flat
from tests.graphs.clusters import cluster, most_held, only, within
from tests.graphs.edges import run_of
from tests.pairs import pairs
from tests.small import CODECS, make
from tests.strategies import MIB, stored

pytestmark = pytest.mark.long

WIDE = np.random.default_rng(5).random((4096, 2048), dtype="f4")


@pytest.fixture(scope="module")
def workers() -> Iterator[Client]:
    with cluster(2, threads_per_worker=2, memory_limit=0) as client:
        yield client


@pytest.fixture
def two(request: pytest.FixtureRequest, workers: Client) -> Iterator[Client]:
    """Two workers of two threads each, with no limit but the plan's, that get each other's messages in one way."""
    with only(workers, looks=request.param == "look") as client:
        yield client


@pytest.mark.parametrize(
    *pairs(two=("read", "look"), method=("independent", "two-phase"), codec=("plain", "zstd")), indirect=["two"]
)
def test_ranks_that_share_a_worker_keep_its_budget(two: Client, tmp_path: Path, method: str, codec: str) -> None:
    make(tmp_path / "field.zarr", WIDE, chunks=(128, 2048), compressors=CODECS[codec])
    place = tmp_path / "field.zarr", tmp_path / "target.zarr"
    options: dict[str, Any] = {"chunks": (4096, 64), "memory": 40 * MIB, "method": method, "overwrite": True}
    job = flat(ooc.rechunk, *place, scheduler=two, resources=ooc.Resources(ranks=4), **options)
    within(job.run)  # what is imported on first use, and the threads' own pools
    region = max(2 * np.prod(step.region, dtype=int) * step.target.chunk_bytes for step in job.plan.passes)
    for peak in most_held(two, lambda: np.testing.assert_array_equal(job.run(), WIDE), region // 2):
        assert peak <= job.plan.peak_bytes <= job.plan.budget == 40 * MIB
        assert peak > region // 2, "the sampler sees the buffers"


def one_exchange(source: tuple[int, int], target: tuple[int, int], mebibytes: int) -> Pass:
    grids = (ChunkGrid.of(WIDE.shape, chunks) for chunks in (source, target))
    source_file, target_file = (stored(grid) for grid in grids)
    two = Resources(budget=BASE_BYTES + mebibytes * MIB, costs=Costs(cores=2), ranks=2, workers=2)
    (step,) = plan_rechunk(source_file, target_file, two, method="two-phase").passes
    return step


def test_a_pass_begins_without_the_buffers_of_the_one_before(tmp_path: Path) -> None:
    make(tmp_path / "field.zarr", WIDE, chunks=(128, 2048))
    job = ooc.rechunk(
        tmp_path / "field.zarr",
        tmp_path / "target.zarr",
        chunks=(4096, 64),
        memory="64MiB",
        resources=ooc.Resources(ranks=2),
    )
    passes = one_exchange((128, 2048), (512, 512), 24), one_exchange((512, 512), (4096, 64), 12)
    run = run_of(job, *(dataclasses.replace(step, access="chunks") for step in passes), processes=2)
    with cluster(2, processes=False, memory_limit=0) as client:  # in this process, as the run's live state then is
        addresses = sorted(known_workers(client))
        graph, last = run.graph(addresses)
        pin(client, last[0].rpartition("-")[2], addresses, "pass after pass")
        np.testing.assert_array_equal(ooc.open_array(client.get(graph, last)), WIDE)
    kept = sum(size * len(buffers) for size, buffers in pool(run.live, 1)._free.items())
    last = run.program.plan.passes[-1]
    held = last.depth * np.prod(last.region, dtype=int) * last.target.chunk_bytes + last.slabs * last.outbox_bytes
    assert kept <= last.ranks * (held + last.source.chunk_bytes)


# ---------------------------------------------------------------------- many: python -m tests.graphs.test_worker_memory


def configurations() -> Iterator[dict[str, Any]]:
    """Workers × threads × memory × method × codec, each value with each of the others at some time."""
    workers, threads, memory = (1, 2, 3, 4), (1, 2, 4), (24, 40, 64, 96)
    methods, codecs = ("independent", "two-phase", "staged", "auto"), tuple(CODECS)
    for number in range(20):
        yield {
            "workers": workers[number % 4],
            "threads": threads[number % 3],
            "memory": memory[(number // 4) % 4] * MIB,
            "method": methods[(number // 2 + number // 8) % 4],
            "codec": codecs[number % len(codecs)],
        }


def most_of(folder: Path, workers: int, threads: int, memory: int, method: str, codec: str) -> tuple[Any, list[int]]:
    """A job's plan in one configuration, and what each worker held; in the least memory, where too little was asked."""
    make(folder / f"{codec}.zarr", WIDE, chunks=(128, 2048), compressors=CODECS[codec], overwrite=True)
    with cluster(workers, threads_per_worker=threads, memory_limit=0) as client:
        options: dict[str, Any] = {"chunks": (4096, 64), "method": method, "overwrite": True, "scheduler": client}
        place = folder / f"{codec}.zarr", folder / "target.zarr"
        try:
            job = flat(ooc.rechunk, *place, **options, memory=memory)
        except BudgetError as error:
            job = flat(ooc.rechunk, *place, **options, memory=error.least)
        within(job.run)
        return job.plan, most_held(client, lambda: np.testing.assert_array_equal(job.run(), WIDE), 0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for asked in configurations():
            plan, held = most_of(Path(folder), **asked)
            told = [f"{size / MIB:.1f}" for size in (plan.peak_bytes, plan.budget, *held)]
            print("within" if max(held) <= plan.peak_bytes else "OVER", asked, plan.strategy, *told, flush=True)
