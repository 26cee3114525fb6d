"""Collective reads on the workers of a cluster: every order of messages, chunks read once, workers that die."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from distributed import Client, wait

import oocarrays as ooc
from oocarrays.errors import PlacementError
from oocarrays.graphs.collective.read_tasks import FilledPart
from tests.flat import flat
from tests.graphs.clusters import Sampler, cluster, until, within
from tests.owners import numbered, part
from tests.selections import picked
from tests.small import CODECS, make

pytestmark = pytest.mark.long

X = numbered((96, 80), "f4")
TILES: list[Any] = [np.s_[20 * p : 20 * p + 36, 8:70:3] for p in range(3)] + [None, np.s_[[80, 2, 41], ::-1]]
"""Tiles that overlap, nothing, and rows in no order."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("collective")
    make(folder / "zstd.zarr", X, chunks=(8, 80), compressors=CODECS["zstd"])
    make(folder / "plain.zarr", X, chunks=(16, 20))
    return folder


def assert_tiles(y: ooc.ranks.SectionArrays) -> None:
    for got, tile in zip(within(y.compute), TILES, strict=True):
        np.testing.assert_array_equal(got, picked(X, tile), strict=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", [None, "lex", "gen"])
@pytest.mark.parametrize("file", ["zstd", "plain"])
def test_every_rank_gets_what_numpy_gives_in_any_order(
    three: Client, place: Path, file: str, schedule: str | None
) -> None:
    with dask.config.set({"oocarrays.collective-buffer": "2kB"}):
        y = ooc.ranks.read_sections(
            place / f"{file}.zarr", TILES, method="two-phase", aggregators=4, resources=ooc.Resources(schedule=schedule)
        )
    assert len(y.plan.rounds) > 1
    assert_tiles(y)
    until(lambda: y.meter.read_requests >= y.plan.price.traffic.read_requests, 10)
    assert y.meter.read_requests == y.plan.price.traffic.read_requests
    assert y.meter.decoded_bytes == y.plan.price.traffic.decoded_bytes
    if file == "plain":
        assert y.meter.read_bytes == y.plan.price.traffic.read_bytes


@pytest.mark.parametrize("schedule", ["rex", "ipex", "bex"])
def test_a_layout_by_schedules_for_powers_of_two(three: Client, place: Path, schedule: str) -> None:
    options: dict[str, Any] = {"grid": (2, 2), "method": "two-phase", "aggregators": 3, "schedule": schedule}
    with dask.config.set({"oocarrays.collective-buffer": "2kB"}):
        y = flat(ooc.ranks.read_sections, place / "zstd.zarr", "(cyclic(5), block)", **options)
    kept = y.persist()
    for rank in range(4):
        np.testing.assert_array_equal(kept.local(rank).compute(), part(X, y.layout, rank), strict=True)
    np.testing.assert_array_equal(within(kept.redistribute("(*, cyclic)", ranks=3).compute), X)


def test_every_part_is_with_its_rank_and_independent_reads_are_too(three: Client, place: Path) -> None:
    for method in ("two-phase", "independent"):
        y = ooc.ranks.read_sections(place / "zstd.zarr", TILES, method=method)
        kept = y.persist()
        wait(three.futures_of(kept))
        held = three.who_has(three.futures_of(kept))
        for key, address in zip(kept.__dask_keys__(), y.placement.values(), strict=True):
            assert held[str(key) if str(key) in held else key] == (address,)
        assert_tiles(kept)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", [None, "gen"])
@pytest.mark.parametrize("phase", ["read", "message|send", "fill|receive"])
def test_a_worker_dies_in_each_phase(three: Client, tmp_path: Path, phase: str, schedule: str | None) -> None:
    three.wait_for_workers(3, timeout=60)
    x = np.random.default_rng(3).random((512, 256), dtype="f4")
    make(tmp_path / "x.zarr", x, chunks=(8, 256), compressors=CODECS["zstd"])
    with dask.config.set({"oocarrays.collective-buffer": "32KiB"}):
        y = ooc.ranks.read_sections(
            tmp_path / "x.zarr",
            "(cyclic, *)",
            ranks=6,
            method="two-phase",
            aggregators=6,
            resources=ooc.Resources(schedule=schedule),
        )
    victim = y.placement[1]
    pid = three.run(os.getpid, workers=[victim])[victim]
    kept = y.persist()
    until(lambda: begun(three, phase), 30)
    os.kill(pid, signal.SIGKILL)
    np.testing.assert_array_equal(within(kept.compute), x)


def begun(client: Client, phase: str) -> bool:
    """Whether a task of a kind is done, as the scheduler knows."""
    kinds = tuple(phase.split("|"))
    done = client.run_on_scheduler(
        lambda dask_scheduler: [str(k) for k, t in dask_scheduler.tasks.items() if t.state in ("memory", "released")]
    )
    return any(key.lstrip("('").startswith(kinds) for key in done)


def test_a_worker_holds_no_more_than_the_plan_says(tmp_path: Path) -> None:
    x = np.random.default_rng(3).random((4096, 4096), dtype="f4")
    make(tmp_path / "x.zarr", x, chunks=(128, 4096), compressors=CODECS["zstd"])
    with cluster(2, memory_limit=0) as client:
        warm: Any = {"method": "two-phase", "scheduler": client}
        small = zarr.create_array(tmp_path / "warm.zarr", data=x[:64, :64], chunks=(8, 64))
        within(flat(ooc.ranks.read_sections, small.store_path.store.root, "(*, block)", ranks=2, **warm).compute)
        with dask.config.set({"oocarrays.collective-buffer": "8MiB"}):
            y = flat(ooc.ranks.read_sections, tmp_path / "x.zarr", "(*, block)", ranks=2, **warm)
        pids = list(client.run(os.getpid).values())
        with Sampler(pids) as sampler:
            kept = y.persist()
            within(lambda: wait(client.futures_of(kept)))
        assert y.plan.price is not None
        for peak in sampler.peak.values():
            assert peak <= y.plan.price.peak_bytes + 2**23, "and what Python takes"
        np.testing.assert_array_equal(kept.local(1).compute(), x[:, 2048:])


def test_parts_go_on_as_dask_arrays_without_being_kept(three: Client, place: Path) -> None:
    with dask.config.set({"oocarrays.collective-buffer": "2kB"}):
        y = ooc.ranks.read_sections(place / "zstd.zarr", TILES, method="two-phase")
    sums = dask.compute(*(y.local(rank).sum(dtype="f8") for rank in (0, 1, 2, 4)))
    assert sums == tuple(picked(X, TILES[rank]).sum(dtype="f8") for rank in (0, 1, 2, 4))


def test_a_store_in_this_process_is_refused(three: Client) -> None:
    with pytest.raises(PlacementError, match="this process's memory"):
        ooc.ranks.read_sections(make({}, X), TILES, scheduler=three)


def test_a_part_that_came_from_elsewhere_is_copied_before_it_is_written() -> None:
    received = np.zeros(4)
    received.flags.writeable = False
    part = FilledPart(received)
    part.put((slice(1, 3),), np.ones(2))
    assert part.array.tolist() == [0, 1, 1, 0]
    assert not received.any()
