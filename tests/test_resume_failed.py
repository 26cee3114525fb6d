"""Going on after an error, when scratch has gone, beside a run that lives, and in stores of other kinds."""

from __future__ import annotations

import gc
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import CorruptChunkError, DiskFullError, JournalError, NotFoundError, RunError, TargetError
from tests.dying import Server
from tests.flat import flat
from tests.seams import Journal, replace_step, set_constants, step
from tests.small import each_method
from tests.unfinished import (
    FIELD,
    STORE_MORE,
    break_disk,
    check_finished,
    check_unfinished,
    fail,
    missing,
    options_of,
    recorded,
    share_left,
)

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays have many parts, too."""
    set_constants(monkeypatch, batch_bytes=1)


def plan(source: Any, target: Any, method: str, **options: Any) -> ooc.Job:
    return flat(ooc.rechunk, source, target, **(options_of(method) | options))


each_way = pytest.mark.parametrize("run", [lambda job: job.run(), dask.compute], ids=["run", "dask.compute"])

# ---------------------------------------------------------------------- after an error


@each_method
def test_a_run_that_met_a_corrupt_chunk_goes_on_when_it_is_mended(field: Path, target: Path, method: str) -> None:
    chunk = field / "c/9/0"
    data = chunk.read_bytes()
    chunk.write_bytes(data[:-1])
    job = plan(field, target, method)
    with pytest.raises(CorruptChunkError):
        job.run()
    check_unfinished(target)
    with pytest.raises(CorruptChunkError):
        ooc.resume(target).run()
    chunk.write_bytes(data)
    with pytest.raises(JournalError, match=r"of the chunks of .* have changed since"):
        ooc.resume(target)
    ooc.resume(target, as_is=True).run()
    check_finished(target)


@pytest.mark.sampled(2)
@each_way
@each_method
def test_a_run_that_filled_the_disk_goes_on_where_it_stopped(
    field: Path, target: Path, method: str, run: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = plan(field, target, method)
    with monkeypatch.context() as patch:
        break_disk(patch, 9)
        with pytest.raises(DiskFullError):
            run(job)
    again = ooc.resume(target)
    assert again.plan == job.plan
    left = missing(job.plan, target)
    if not list(target.parent.glob(".oocarrays-*")):  # a run that failed has taken its scratch away
        left |= {part for number, step in enumerate(job.plan.passes[:-1]) for part in step.parts(number)}
    so_far = any(len(part) == 4 for part in recorded(target))  # of a part that was not done
    most = pytest.approx(share_left(job.plan, left))
    assert again.left < most.expected if so_far else again.left == most
    run(again)
    del job
    gc.collect()
    check_finished(target)


@pytest.mark.parametrize("method", ["independent", "two-phase", "assembled"])
def test_a_job_that_failed_runs_again_and_so_does_a_resumed_one(field: Path, target: Path, method: str) -> None:
    job = plan(field, target, method)
    fail(job, 5)
    fail(job, 4)
    again = ooc.resume(target)
    fail(again, 2)
    fail(again, 1)
    again.run()
    check_finished(target)


@each_way
def test_a_resumed_job_that_lost_its_scratch_when_it_failed_does_not_run_again(
    field: Path, target: Path, runs: Server, run: Callable
) -> None:
    runs.run("rechunk", field, target, at="entry", after=6, **options_of("staged"))
    job = ooc.resume(target)
    fail(job, 2)
    with pytest.raises(RunError, match=r"target\.zarr had in scratch is missing: resume it again"):
        run(job)
    ooc.resume(target).run()
    check_finished(target)


def test_the_first_job_may_go_on_itself(field: Path, target: Path) -> None:
    job = plan(field, target, "staged")
    fail(job, 9)
    job.run()
    check_finished(target)
    assert job.left == 1


# ---------------------------------------------------------------------- scratch that has gone


def test_scratch_that_has_gone_is_not_taken_for_whole_when_it_is_half_made(
    field: Path, target: Path, runs: Server
) -> None:
    """An error removes scratch. The next run is killed when it has made a part of it."""
    fail(plan(field, target, "staged"), 9)
    assert {(0, 0, 0), (0, 0, 1)} <= recorded(target)
    runs.run("resume", target, at="unrecorded")
    assert not {(0, 0, 0), (0, 0, 1)} <= recorded(target)
    ooc.resume(target).run()
    check_finished(target)


def test_the_same_where_the_job_itself_runs_again(field: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = plan(field, target, "staged")
    fail(job, 9)
    with monkeypatch.context() as patch:
        break_disk(patch, 1)
        with pytest.raises(DiskFullError):
            dask.compute(job)
    ooc.resume(target).run()
    check_finished(target)


@pytest.mark.parametrize("gone", ["all", "its metadata", "one array"])
def test_scratch_that_somebody_removed_is_made_again(field: Path, target: Path, runs: Server, gone: str) -> None:
    runs.run("rechunk", field, target, at="entry", after=6, **options_of("staged"))
    (scratch,) = target.parent.glob(".oocarrays-*")
    if gone == "its metadata":
        (scratch / "0/zarr.json").unlink()
    else:
        shutil.rmtree(scratch if gone == "all" else scratch / "0")
    job = ooc.resume(target)
    assert job.left < 1
    job.run()
    check_finished(target)


def test_scratch_of_which_some_was_removed_is_made_again(
    field: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that failed was killed while it removed its scratch."""

    def begin(folder: Path, **_: Any) -> None:
        for chunk in list(Path(folder).glob("0/c/*/*"))[:2]:
            chunk.unlink()

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", begin)
        fail(plan(field, target, "staged"), 9)
    assert list(target.parent.glob(".oocarrays-*/0/c/*/*"))
    ooc.resume(target).run()
    check_finished(target)


def test_scratch_that_goes_between_plan_and_run_is_missed(field: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", field, target, at="entry", after=6, **options_of("staged"))
    stale = ooc.resume(target)
    fail(ooc.resume(target), 2)
    with pytest.raises(RunError, match=r"target\.zarr had in scratch is missing: resume it again"):
        stale.run()
    runs.run("resume", target, at="unrecorded")
    with pytest.raises(RunError, match="resume it again"):  # there is scratch again, but only a part of it
        stale.run()
    ooc.resume(target).run()
    check_finished(target)


def interrupt(job: ooc.Job, after: int) -> None:
    """Ctrl-C when some parts have been recorded: scratch stays."""
    record, calls = step("publish entry"), itertools.count(1)

    def stop(self: Journal, *done: Any) -> None:
        record(self, *done)
        if next(calls) >= after:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        job._run.live.syncer.patience = 0.0
        replace_step(patch, "publish entry", stop)
        with pytest.raises(KeyboardInterrupt):
            job.run()


def test_scratch_that_was_used_up_is_not_used_again(field: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first scratch array of three passes goes when the last one begins."""
    staged = step("plan stages")
    replace_step(monkeypatch, "plan stages", lambda problem, stages: staged(problem, 3))
    job = plan(field, target, "staged")
    every = [set(step.parts(number)) for number, step in enumerate(job.plan.passes)]
    interrupt(job, len(every[0]) + len(every[1]) + 2)
    shutil.rmtree(next(target.parent.glob(".oocarrays-*")))
    interrupt(ooc.resume(target), 1)
    job = ooc.resume(target)
    interrupt(job, len(every[0]) + len(every[1]))
    assert [path.name for path in target.parent.glob(".oocarrays-*/[0-9]")] == ["1"]
    with pytest.raises(RunError, match="resume it again"):
        job.run()
    ooc.resume(target).run()
    check_finished(target)


def test_a_failed_job_that_is_collected_takes_no_scratch_from_the_one_that_goes_on(
    field: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = [plan(field, target, "staged")]
    with monkeypatch.context() as patch:
        break_disk(patch, 9)
        with pytest.raises(DiskFullError):
            dask.compute(failed[0])
    record = step("publish entry")

    def forget(self: Journal, *done: Any) -> None:
        if failed:
            failed.clear()
            gc.collect()
        record(self, *done)

    replace_step(monkeypatch, "publish entry", forget)
    set_constants(monkeypatch, record_seconds=0)  # each part is written down at once
    ooc.resume(target).run()
    assert not failed
    check_finished(target)


# ---------------------------------------------------------------------- beside a run that lives


@pytest.mark.sampled(2)
@each_method
@pytest.mark.parametrize(("at", "after"), [("begun", 1), ("entry", 6)], ids=["nothing recorded", "much recorded"])
def test_nobody_else_writes_while_a_run_lives(
    field: Path, target: Path, runs: Server, method: str, at: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constants(monkeypatch, claim_seconds=0.1)
    alive = runs.start("rechunk", field, target, at=at, after=after, wait=True, **options_of(method))
    alive.until_there()
    scratch = sorted(target.parent.glob(".oocarrays-*"))
    for job in (plan(field, target, method, overwrite=True), ooc.resume(target)):
        with pytest.raises(TargetError, match=r"another run is writing to .*target\.zarr") as caught:
            job.run()
        assert "\n" not in str(caught.value)
    with pytest.raises(TargetError, match="exists"):
        plan(field, target, method)
    assert sorted(target.parent.glob(".oocarrays-*")) == scratch
    assert alive.go_on() == 0, alive.err
    check_finished(target)


@each_method
def test_nobody_else_writes_while_a_resumed_run_lives(
    field: Path, target: Path, runs: Server, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constants(monkeypatch, claim_seconds=0.1)
    runs.run("rechunk", field, target, at="entry", after=2, **options_of(method))
    early = ooc.resume(target)
    alive = runs.start("resume", target, at="entry", after=2, wait=True)
    alive.until_there()
    for job in (early, ooc.resume(target), plan(field, target, method, overwrite=True)):
        with pytest.raises(TargetError, match="another run is writing"):
            job.run()
    assert alive.go_on() == 0, alive.err
    check_finished(target)
    with pytest.raises(RunError, match="has changed since run"):
        early.run()
    check_finished(target)


# ---------------------------------------------------------------------- stores


@each_method
def test_stores_in_memory_go_on_with_a_source_that_is_given(tmp_path: Path, method: str) -> None:
    source, target = MemoryStore(), MemoryStore()
    zarr.create_array(source, data=FIELD, chunks=(64, 1024), compressors=None)
    options = {"scratch": tmp_path, "memory": "64MiB"}
    fail(plan(source, target, method, **options), 3)
    check_unfinished(target)
    with pytest.raises(NotFoundError, match="not a path or URL: pass source=") as caught:
        ooc.resume(target)
    assert "\n" not in str(caught.value)
    ooc.resume(target, source=source).run()
    np.testing.assert_array_equal(ooc.open_array(target)[...], FIELD)
    assert [key for key in target._store_dict if not key.startswith(("c/", "zarr.json"))] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", ["independent", "staged"])
def test_targets_named_by_a_url_go_on(field: Path, tmp_path: Path, method: str) -> None:
    target = f"memory://{tmp_path.name}/target.zarr"
    memory = options_of(method)["memory"] + STORE_MORE
    fail(plan(field, target, method, scratch=tmp_path, memory=memory), 9)
    check_unfinished(target)
    result = ooc.resume(target).run()
    np.testing.assert_array_equal(result[...], FIELD)
    with pytest.raises(NotFoundError, match="nothing to resume"):
        ooc.resume(target)
    assert list(tmp_path.iterdir()) == [field]
