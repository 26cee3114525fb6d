"""Iterated sweeps on a cluster: pass after pass, ended by a residual, whatever happens to a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from distributed import Client

import oocarrays as ooc
from tests.graphs.clusters import cluster, events, kill_when, within
from tests.sweeping import gray_scott, jacobi, plain_sweeps, together

pytestmark = pytest.mark.once

FIELD = np.random.default_rng(5).random((96, 40))


@pytest.fixture
def field(tmp_path: Path) -> Path:
    zarr.create_array(tmp_path / "a", data=FIELD, chunks=(8, 40), compressors=None)
    return tmp_path / "a"


def plain(sweeps: int) -> Any:
    return plain_sweeps(FIELD, jacobi, (1, 1), "none", sweeps)


def test_passes_on_workers_end_where_the_residual_is_small_enough(two: Client, field: Path, tmp_path: Path) -> None:
    states = [plain(sweeps) for sweeps in range(9)]
    residuals = [float(np.abs(states[n] - states[n - 1]).max()) for n in (2, 4, 6)]
    job = ooc.iterate(
        jacobi,
        field,
        tmp_path / "b",
        sweeps=20,
        until=residuals[-1],
        memory="64MiB",
        resources=ooc.Resources(fuse=2, window=16),
    )
    np.testing.assert_array_equal(within(job.run)[...], states[6])
    assert job.residuals == residuals
    assert (job.meter.read_bytes, job.meter.written_bytes) == (4 * FIELD.nbytes, 4 * FIELD.nbytes)
    assert {event["worker"] for event in events(two, job)} == set(job.placement.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_all_passes_as_one_graph(two: Client, field: Path, tmp_path: Path) -> None:
    job = ooc.iterate(
        jacobi, field, tmp_path / "b", sweeps=5, memory="64MiB", resources=ooc.Resources(fuse=2, window=16)
    )
    (made,) = within(lambda: dask.compute(job))
    np.testing.assert_array_equal(made[...], plain(5))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.long
def test_a_worker_killed_in_the_middle_costs_nothing_but_time(field: Path, tmp_path: Path) -> None:
    with cluster(2) as client:
        job = ooc.iterate(
            jacobi,
            field,
            tmp_path / "b",
            sweeps=6,
            until=0.0,
            memory="64MiB",
            resources=ooc.Resources(fuse=2, window=16),
        )
        killer = kill_when(client, job, job.placement[1], lambda: job.meter.write_requests > 18)
        made = within(job.run)
        killer.join()
        np.testing.assert_array_equal(made[...], plain(6))
        assert len(job.residuals) == 3
        assert job.residuals[-1] == np.abs(plain(6) - plain(5)).max()


def with_right_hand_side(block: np.ndarray, right: np.ndarray) -> np.ndarray:
    made = jacobi(block)
    made[1:-1, 1:-1] -= right[1:-1, 1:-1]
    return made


@pytest.mark.long
def test_arrays_beside_what_is_swept_when_a_worker_is_killed(field: Path, tmp_path: Path) -> None:
    right = np.random.default_rng(6).random(FIELD.shape)
    zarr.create_array(tmp_path / "f", data=right, chunks=(16, 40))
    wanted = FIELD
    for _ in range(6):
        wanted = with_right_hand_side(wanted, right)
    with cluster(2) as client:
        job = ooc.iterate(
            with_right_hand_side,
            [field, tmp_path / "f"],
            tmp_path / "b",
            sweeps=6,
            until=0.0,
            memory="64MiB",
            resources=ooc.Resources(fuse=2, window=16),
        )
        killer = kill_when(client, job, job.placement[1], lambda: job.meter.write_requests > 18)
        np.testing.assert_array_equal(within(job.run)[...], wanted)
        killer.join()


@pytest.fixture
def reaction(tmp_path: Path) -> list[np.ndarray]:
    """Two substances, stored in chunks of their own."""
    arrays = [1 - FIELD / 4, (FIELD[::-1] / 2).astype("f8")]
    for name, data, chunks in zip("uv", arrays, [(8, 40), (16, 20)], strict=True):
        zarr.create_array(tmp_path / name, data=data, chunks=chunks)
    return arrays


def test_fields_evolve_together_on_workers(two: Client, reaction: list[np.ndarray], tmp_path: Path) -> None:
    sources, targets = [tmp_path / "u", tmp_path / "v"], [tmp_path / "a", tmp_path / "b"]
    job = ooc.iterate(
        gray_scott,
        sources,
        targets,
        sweeps=40,
        boundary="periodic",
        until=0.0,
        memory="64MiB",
        resources=ooc.Resources(fuse=8, window=16),
    )
    wanted = together(gray_scott, reaction, 2, (1, 1), "periodic", 40)
    for made, other in zip(within(job.run), wanted, strict=True):
        np.testing.assert_array_equal(made[...], other)
    assert len(job.residuals) == 5
    assert {event["worker"] for event in events(two, job)} == set(job.placement.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "u", "v"]


@pytest.mark.long
def test_fields_evolve_together_when_a_worker_is_killed(reaction: list[np.ndarray], tmp_path: Path) -> None:
    sources, targets = [tmp_path / "u", tmp_path / "v"], [tmp_path / "a", tmp_path / "b"]
    with cluster(2) as client:
        job = ooc.iterate(
            gray_scott,
            sources,
            targets,
            sweeps=12,
            until=0.0,
            memory="64MiB",
            resources=ooc.Resources(fuse=2, window=16),
        )
        killer = kill_when(client, job, job.placement[1], lambda: job.meter.write_requests > 36)
        made = within(job.run)
        killer.join()
    for each, other in zip(made, together(gray_scott, reaction, 2, (1, 1), "none", 12), strict=True):
        np.testing.assert_array_equal(each[...], other)
    assert len(job.residuals) == 6
