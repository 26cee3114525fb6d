"""Scratch that stays in the system's cache: no device is waited for, and what was lost with the power is not used."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.machine import Costs
from oocarrays.plan.plan import Resources
from oocarrays.plan.rechunk.plan import RechunkPlan, plan_rechunk
from oocarrays.storage.local import fs, syncing
from oocarrays.storage.local.syncing import Syncer, written
from tests.dying import Server
from tests.flat import flat
from tests.seams import replace_step, set_constants
from tests.unfinished import CHUNKS, FIELD, check_finished, fail, make_field, recorded

pytestmark = pytest.mark.long


def planned(cache: float, **more: Any) -> RechunkPlan:
    rows, columns = (ChunkGrid.of((1024, 1024), chunks) for chunks in ((64, 1024), (1024, 64)))
    source = Stored(grid=rows, itemsize=4, local=True)
    target = Stored(grid=columns, itemsize=4, local=True, codec="zstd", encode_workspace=2**19)
    resources = Resources(budget=2**27, costs=Costs(cache_bytes=cache), threads=2, **more)
    return plan_rechunk(source, target, resources, method="assembled")


def test_what_the_cache_keeps_for_certain_is_not_waited_for() -> None:
    cached, large, shared = planned(2**25), planned(2**24 - 1), planned(2**25, workers=2)
    assert [plan.scratch_is_cached for plan in (cached, large, shared)] == [True, False, False]
    assert cached.seconds < large.seconds


@pytest.fixture
def coded(tmp_path: Path) -> Path:
    return make_field(tmp_path, compressors=zarr.codecs.ZstdCodec())


def options(source: Path) -> dict[str, Any]:
    """What makes a plan of many parts in both passes: the least budget."""
    given: dict[str, Any] = {"chunks": CHUNKS, "ranks": 2, "method": "assembled"}
    with pytest.raises(BudgetError) as caught:
        flat(ooc.rechunk, source, source.with_name("none"), memory=1, scheduler="threads", **given)
    return given | {"memory": caught.value.least + 2**17}  # where each part is a task of its own these take some


STOPS = product(("chunk", "partial", "named", "unrecorded", "entry"), (1, 70))


def test_killed_anywhere_it_goes_on_with_what_is_in_the_cache(tmp_path: Path, coded: Path, runs: Server) -> None:
    for number, (at, after) in enumerate(STOPS):
        target = tmp_path / f"{number}.zarr"
        child = runs.start("rechunk", coded, target, at=at, after=after, **options(coded))
        if child.wait() != 0:
            assert child.plan.scratch_is_cached, child.err
            done = recorded(target)
            job = ooc.resume(target)
            assert job._run.done == done, "a warning would be an error"
            job.run()
        check_finished(target)


def test_after_another_start_of_the_system_scratch_is_made_again(
    tmp_path: Path, coded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target.zarr"
    set_constants(monkeypatch, batch_bytes=1)
    with pytest.MonkeyPatch.context() as patch:
        replace_step(patch, "remove scratch", lambda folder: None)  # as of a run that is killed
        fail(flat(ooc.rechunk, coded, target, scheduler="threads", **options(coded)), 260)
    assert [part for part in recorded(target) if part[0] == 0]
    (scratch,) = tmp_path.glob(".oocarrays-*")
    replace_step(monkeypatch, "name start of system", lambda: "the next one")
    for chunk in scratch.rglob("c/*/*"):
        chunk.write_bytes(bytes(chunk.stat().st_size))  # as a file may be that was never written out
    again = ooc.resume(target)
    assert not [part for part in again._run.done if part[0] == 0]
    again.run()
    check_finished(target)


def test_where_no_start_can_be_told_from_another_scratch_is_on_the_device(
    tmp_path: Path, coded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_step(monkeypatch, "name start of system", lambda: "")
    job = flat(ooc.rechunk, coded, tmp_path / "target.zarr", scheduler="threads", **options(coded))
    assert job._run.program.cached == []
    assert len(job._run.program.scratch) == 1
    job.run()
    check_finished(tmp_path / "target.zarr")


@pytest.mark.parametrize(("most", "whole"), [(10, False), (2, True)])
def test_beside_scratch_few_files_are_synced_and_many_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, whole: bool
) -> None:
    asked: list[str] = []
    for module, name in ((syncing, "sync_file_system"), (fs, "sync_path")):
        monkeypatch.setattr(module, name, lambda path, name=name: asked.append(name))
    replace_step(monkeypatch, "can sync device", lambda folder: True)
    set_constants(monkeypatch, unsynced_files=most)
    place, scratch = tmp_path / "t.zarr", tmp_path / "scratch"
    place.mkdir()
    syncer = Syncer(lambda: [str(place)], active=True, spare=lambda: [str(scratch)])
    for path in (place / "a", place / "b", scratch / "c"):
        written(str(path))
    syncer.finish()
    assert ("sync_file_system" in asked) == whole
    assert asked.count("sync_path") == (1 if whole else 4), "files, their folder and what names that"


def test_the_target_goes_past_the_cache_all_the_same(tmp_path: Path, coded: Path) -> None:
    with dask.config.set({"oocarrays.past-cache-above": 1}):
        flat(ooc.rechunk, coded, tmp_path / "past.zarr", scheduler="threads", **options(coded)).run()
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "past.zarr")[...], FIELD)
