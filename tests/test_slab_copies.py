"""Passes whose slabs cross coded chunks: copies in scratch are read instead, where that takes less time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import KernelError
from tests.flat import flat
from tests.seams import MemoryWatch

pytestmark = pytest.mark.long

MAPS = np.random.default_rng(0).random((60, 300, 310)).astype("f4")
HERE: dict[str, Any] = {"memory": "16MiB", "scheduler": "threads", "drop_axis": 0, "dtype": "f4"}


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    zarr.create_array(tmp_path / "maps.zarr", data=MAPS, chunks=(1, 300, 310))
    return tmp_path / "maps.zarr"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    with dask.config.set({"oocarrays.scratch": str(folder)}):
        yield folder


def largest(block: np.ndarray) -> np.ndarray:
    return block.max(0)


def test_maps_are_decoded_once(maps: Path, scratch: Path, tmp_path: Path) -> None:
    job = flat(ooc.map_slabs, largest, maps, tmp_path / "t.zarr", **HERE)
    assert not list(scratch.iterdir())
    np.testing.assert_array_equal(job.run()[...], MAPS.max(0))
    assert not list(scratch.iterdir())
    traffic, meter = job.plan.traffic, job.meter
    assert meter.decoded_bytes == traffic.decoded_bytes == MAPS.nbytes
    assert (meter.read_requests, meter.write_requests) == (traffic.read_requests, traffic.write_requests)
    assert job.plan.peak_bytes <= job.plan.budget
    assert MAPS.nbytes <= job.plan.scratch_bytes <= 2 * MAPS.nbytes
    assert job.plan.times_decoded == 1
    assert "copied first" in job.explain()
    assert not job.notices


def test_a_job_is_a_dask_collection_all_the_same(maps: Path, scratch: Path, tmp_path: Path) -> None:
    job = flat(ooc.map_slabs, largest, maps, tmp_path / "t.zarr", **HERE)
    (made,) = dask.compute(job)
    np.testing.assert_array_equal(made[...], MAPS.max(0))
    kept = flat(ooc.map_slabs, largest, maps, tmp_path / "u.zarr", **HERE).persist()
    np.testing.assert_array_equal(kept.compute()[...], MAPS.max(0))
    assert not list(scratch.iterdir())


def test_several_sources_are_copied(maps: Path, scratch: Path, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "more.zarr", data=2 * MAPS, chunks=(1, 300, 310))
    job = flat(ooc.map_slabs, lambda a, b: (a * b).max(0), [maps, tmp_path / "more.zarr"], tmp_path / "t.zarr", **HERE)
    np.testing.assert_array_equal(job.run()[...], (2 * MAPS * MAPS).max(0))
    assert job.meter.decoded_bytes == 2 * MAPS.nbytes
    assert not list(scratch.iterdir())


def test_a_source_that_is_decoded_once_as_it_is_stays_as_it_is(maps: Path, scratch: Path, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "series.zarr", data=MAPS, chunks=(60, 10, 310))
    sources, cut = [maps, tmp_path / "series.zarr"], {"axis": 1, "height": 10}
    job = flat(ooc.map_slabs, lambda a, b: (a + b).max(0), sources, tmp_path / "t.zarr", **cut, **HERE)
    assert [read.coded for read in job.plan.sources] == [False, True]
    np.testing.assert_array_equal(job.run()[...], (MAPS + MAPS).max(0))
    assert job.meter.decoded_bytes == job.plan.traffic.decoded_bytes


def test_copies_keep_to_the_budget(maps: Path, scratch: Path, tmp_path: Path) -> None:
    job = flat(ooc.map_slabs, largest, maps, tmp_path / "t.zarr", **HERE)
    with MemoryWatch() as watch:
        job.run()
    assert watch.peak_bytes <= job.plan.budget


def test_without_room_in_scratch_a_notice_says_how_often_chunks_are_decoded(
    maps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**20))
    job = flat(ooc.map_slabs, largest, maps, tmp_path / "t.zarr", **HERE)
    (notice,) = job.notices
    assert notice.startswith(f"each chunk is decoded {job.plan.times_decoded:.1f} times: ")
    assert notice in job.explain()
    job.run()
    assert job.meter.decoded_bytes == job.plan.traffic.decoded_bytes > 2 * MAPS.nbytes


def test_with_memory_enough_nothing_is_copied(maps: Path, scratch: Path, tmp_path: Path) -> None:
    job = flat(ooc.map_slabs, largest, maps, tmp_path / "t.zarr", **HERE | {"memory": "1GiB"})
    assert job.plan.copies is None
    assert not job.notices


def test_a_failed_pass_removes_copies_and_goes_on(maps: Path, scratch: Path, tmp_path: Path) -> None:
    calls, most = [], [6]

    def failing(block: np.ndarray) -> np.ndarray:
        calls.append(block.shape)
        if len(calls) > most[0]:
            raise ValueError("stop")
        return block.max(0)

    how = HERE | {"chunks": (20, 310), "ranks": 1}
    with pytest.raises(KernelError, match="stop"):
        flat(ooc.map_slabs, failing, maps, tmp_path / "t.zarr", **how).run()
    assert not list(scratch.iterdir())
    most[0] = 10**6
    job = flat(ooc.map_slabs, failing, maps, tmp_path / "t.zarr", resume=True, **how)
    assert 0 < job.left < 1
    np.testing.assert_array_equal(job.run()[...], MAPS.max(0))
    assert not list(scratch.iterdir())
