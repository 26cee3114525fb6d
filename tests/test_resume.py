"""A killed run goes on where it stopped: the same plan, only what is missing, and nothing left behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, strategies as st
from zarr.storage import LocalStore

import oocarrays as ooc
from oocarrays.errors import InputError, NotFoundError, OocError, TargetError
from tests.dying import Server
from tests.flat import flat
from tests.profiles import examples
from tests.seams import JOURNAL_FOLDER, JOURNAL_PLAN, RECHUNK_METHODS
from tests.small import each_method
from tests.unfinished import (
    FIELD,
    check_finished,
    check_unfinished,
    chunks_of,
    count,
    fail,
    left_behind,
    make_field,
    missing,
    options_of,
    recorded,
    share_left,
    stamps,
)

pytestmark = pytest.mark.once

# ---------------------------------------------------------------------- killed once, and then again

STOPS = [("begun", 1), ("partial", 4), ("unrecorded", 3), ("entry", 1), ("entry", 6)]
CASES = [(method, at, after) for method in RECHUNK_METHODS for at, after in [*STOPS, ("mark", 1)]]


@pytest.mark.sampled
@pytest.mark.parametrize(("method", "at", "after"), CASES)
def test_a_killed_run_goes_on_where_it_stopped(
    field: Path, target: Path, runs: Server, method: str, at: str, after: int
) -> None:
    killed = runs.run("rechunk", field, target, at=at, after=after, **options_of(method))
    check_unfinished(target)
    before, here, left = kept_files(killed.plan, target), everything(target), missing(killed.plan, target)
    job = ooc.resume(target)
    assert everything(target) == here, "looking is free"
    assert job.plan == killed.plan
    assert job.left == pytest.approx(share_left(killed.plan, left))
    assert (job.left < 1) == bool(recorded(target))
    job.run()
    check_finished(target)
    assert kept_files(killed.plan, target, before) == before, "what was recorded is not written again"
    assert job.meter.write_requests <= count(killed.plan, left)
    assert job.meter.read_bytes <= most_bytes(killed.plan, left)


def everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def last_of(plan: Any, parts: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    return {part for part in parts if part[0] == len(plan.passes) - 1}


def kept_files(plan: Any, target: Path, which: Any = None) -> dict[str, tuple[int, int]]:
    """The chunk files of parts that are recorded; or those that were."""
    if which is not None:
        return {path: stamp for path, stamp in stamps(target).items() if path in which}
    rest = last_of(plan, missing(plan, target))
    done = last_of(plan, recorded(target)) - rest
    indices = {index for part in done for index in chunks_of(plan, part)}
    indices -= {index for part in rest for index in chunks_of(plan, part)}  # those that are assembled have many writers
    paths = {str(target.joinpath("c", *map(str, index))) for index in indices}
    return {path: stamp for path, stamp in stamps(target).items() if path in paths}


def most_bytes(plan: Any, left: set[tuple[int, ...]]) -> float:
    """Bytes of the share that is left, and of one part more."""
    most = 0.0
    for number, step in enumerate(plan.passes):
        units = len({part[1:] if step.alone else part[1] for part in left if part[0] == number})
        if units:
            most += step.traffic.read_bytes * (units + 1) / step.units
    return most


@each_method
def test_a_run_can_be_killed_again_and_again(field: Path, target: Path, runs: Server, method: str) -> None:
    first = runs.run("rechunk", field, target, at="entry", after=2, **options_of(method))
    done = recorded(target)
    for at, after in [("entry", 1), ("chunk", 1), ("partial", 1), ("entry", 1)]:
        again = runs.run("resume", target, at=at, after=after)
        assert again.plan == first.plan
        check_unfinished(target)
        assert done <= recorded(target)
        done = recorded(target)
    ooc.resume(target).run()
    check_finished(target)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("shared")
    make_field(folder)
    yield folder
    np.testing.assert_array_equal(ooc.open_array(folder / "source.zarr")[...], FIELD)


points = st.sampled_from(["chunk", "partial", "named", "unrecorded", "entry", "mark"])


@given(
    method=st.sampled_from(RECHUNK_METHODS),
    stops=st.lists(st.tuples(points, st.integers(1, 20)), min_size=1, max_size=3),
)
@examples(10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_wherever_it_is_killed_the_answer_is_right(
    shared: Path, runs: Server, method: str, stops: list[tuple[str, int]]
) -> None:
    target = shared / "target.zarr"
    shutil.rmtree(target, ignore_errors=True)
    for number, (at, after) in enumerate(stops):
        call = ("resume", target) if number else ("rechunk", shared / "source.zarr", target)
        child = runs.start(*call, at=at, after=after, **({} if number else options_of(method)))
        if child.wait() == 0:  # it was done before
            break
        check_unfinished(target)
    else:
        ooc.resume(target).run()
    check_finished(target)


# ---------------------------------------------------------------------- as a job like any other


@pytest.mark.parametrize("schedule", ["lex", "pex-gen-shift"])
def test_a_resumed_run_exchanges_in_the_order_in_which_it_began(field: Path, target: Path, schedule: str) -> None:
    job = flat(
        ooc.rechunk, field, target, **options_of("two-phase") | {"ranks": 3, "memory": "64MiB", "schedule": schedule}
    )
    fail(job, after=5)
    with dask.config.set({"oocarrays.schedule": "gen"}):
        rest = ooc.resume(target)
    assert rest.plan == job.plan
    assert {step.schedule.name.lower() for step in rest.plan.passes} == {schedule}
    assert f"3 ranks, {schedule.upper()}" in rest.explain()
    rest.run()
    check_finished(target)


def test_a_resumed_job_is_a_collection(field: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", field, target, at="entry", after=3, **options_of("two-phase"))
    job = ooc.resume(target)
    assert dask.is_dask_collection(job)
    assert len(job.__dask_graph__()) < job.plan.tasks
    assert "two-phase" in job.explain()
    assert str(target) in repr(job)
    (result,) = dask.compute(job)
    np.testing.assert_array_equal(result[...], FIELD)
    check_finished(target)


@each_method
def test_compute_of_a_resumed_job_does_all_that_run_does(field: Path, target: Path, runs: Server, method: str) -> None:
    runs.run("rechunk", field, target, at="chunk", after=6, **options_of(method))
    ooc.resume(target).compute(scheduler="synchronous")
    check_finished(target)


def test_a_resumed_job_runs_once(field: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", field, target, at="entry", **options_of("independent"))
    one, two = ooc.resume(target), ooc.resume(target)
    one.run()
    for job in (one, two):
        with pytest.raises(OocError, match=r"target\.zarr has changed since run") as caught:
            job.run()
        assert "\n" not in str(caught.value)
    check_finished(target)


# ---------------------------------------------------------------------- other arrays, other places

ARRAYS: dict[str, dict[str, Any]] = {
    "zstd": {"compressors": zarr.codecs.ZstdCodec()},
    "gzip, through Zarr": {"compressors": zarr.codecs.GzipCodec(level=0)},
    "big-endian": {"serializer": zarr.codecs.BytesCodec(endian="big")},
    "NaN for nothing": {"fill_value": np.nan},
}


KINDS = [("zstd", "independent"), ("zstd", "assembled"), ("gzip, through Zarr", "two-phase"), ("big-endian", "staged")]


@pytest.mark.parametrize(("kind", "method"), [*KINDS, *(("NaN for nothing", method) for method in RECHUNK_METHODS)])
def test_arrays_of_other_kinds_go_on(tmp_path: Path, runs: Server, method: str, kind: str) -> None:
    """One source chunk is missing, and stands for the fill value in every part."""
    source, target = make_field(tmp_path, **ARRAYS[kind]), tmp_path / "target.zarr"
    (source / "c/3/0").unlink()
    memory = {"memory": "64MiB"} if kind in dict(KINDS) else {}  # codecs want more
    runs.run("rechunk", source, target, at="entry", after=2, **(options_of(method) | memory))
    ooc.resume(target).run()
    check_finished(target, zarr.open_array(source, mode="r")[...])


SMALL = {
    "no axes": (np.array(7.5), ()),
    "no elements": (np.zeros((0, 4)), (1, 4)),
    "only nothing": (np.full((6, 4), np.nan), (6, 1)),
}


@pytest.mark.parametrize("at", ["begun", "chunk", "mark"])
@pytest.mark.parametrize(("data", "chunks"), SMALL.values(), ids=SMALL)
def test_small_arrays_go_on(tmp_path: Path, runs: Server, data: np.ndarray, chunks: tuple[int, ...], at: str) -> None:
    source, target = tmp_path / "source.zarr", tmp_path / "target.zarr"
    zarr.create_array(source, data=data, chunks=data.shape if data.size else chunks, fill_value=np.nan)
    child = runs.start("rechunk", source, target, at=at, chunks=chunks, memory="64MiB")
    if child.wait() == 0:
        assert at == "chunk"
        assert np.isnan(data).all(), "only what holds nothing but the fill value has no chunks to die at"
    else:
        check_unfinished(target)
        ooc.resume(target).run()
    check_finished(target, data)


def test_what_was_moved_goes_on_where_it_is(field: Path, tmp_path: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", field, target, at="entry", after=6, **options_of("staged"))
    moved = tmp_path / "else where" / "moved.zarr"
    moved.parent.mkdir()
    shutil.move(target, moved)
    ooc.resume(moved).run()
    check_finished(moved)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["else where", "source.zarr"]


def test_targets_and_sources_are_named_in_many_ways(
    tmp_path: Path, runs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = zarr.create_group(tmp_path / "group.zarr")
    group.create_array("field", data=FIELD, chunks=(64, 1024), compressors=None)
    os.symlink("group.zarr", tmp_path / "link")
    monkeypatch.chdir(tmp_path)
    names = ["target.zarr", "./x/../target.zarr", Path("target.zarr"), LocalStore("target.zarr")]
    (tmp_path / "x").mkdir()
    for name in names:
        target = tmp_path / "target.zarr"
        runs.run("rechunk", tmp_path / "link" / "field", target, at="entry", **options_of("independent"))
        ooc.resume(name).run()
        check_finished(target)
        shutil.rmtree(target)


@pytest.mark.parametrize("given", ["path", "array", "our array"])
def test_the_source_may_be_given_again(field: Path, target: Path, runs: Server, given: str) -> None:
    runs.run("rechunk", field, target, at="entry", **options_of("two-phase"))
    source = {"path": field, "array": zarr.open_array(field, mode="r"), "our array": ooc.open_array(field)}[given]
    ooc.resume(target, source=source).run()
    check_finished(target)


# ---------------------------------------------------------------------- where nothing can go on


@pytest.mark.parametrize("looked_at", [False, True], ids=["the same call", "resume, and the same call"])
def test_a_run_killed_before_it_had_made_its_target_is_begun_by_the_same_call(
    field: Path, target: Path, runs: Server, looked_at: bool
) -> None:
    options = options_of("independent")
    runs.run("rechunk", field, target, at="journal", **options)
    with pytest.raises(NotFoundError, match="no Zarr array"):
        ooc.open_array(target)
    if looked_at:
        with pytest.raises(NotFoundError, match="nothing to resume: no unfinished array"):
            ooc.resume(target)
    flat(ooc.rechunk, field, target, **options).run()
    check_finished(target)


@each_method
@pytest.mark.parametrize("plan", [b"", b"{", None], ids=["empty", "torn", "gone"])
def test_a_target_whose_journal_cannot_be_read_is_written_again(
    field: Path, target: Path, runs: Server, method: str, plan: bytes | None
) -> None:
    """All agree on one way out, which the errors name."""
    options = options_of(method)
    runs.run("rechunk", field, target, at="entry", after=4, **options)
    text = target / JOURNAL_FOLDER / JOURNAL_PLAN
    text.unlink() if plan is None else text.write_bytes(plan)
    check_unfinished(target)
    for again in (False, True):
        with pytest.raises(InputError, match=r"start over: make the same call with overwrite=True") as caught:
            ooc.resume(target, again=again)
        assert "\n" not in str(caught.value)
    with pytest.raises(TargetError, match="overwrite"):
        flat(ooc.rechunk, field, target, **options)
    flat(ooc.rechunk, field, target, overwrite=True, **options).run()
    ooc.clean(target.parent)  # scratch whose run nobody knows any more
    check_finished(target)


def test_a_run_killed_when_all_was_done_is_finished(field: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", field, target, at="finished", **options_of("independent"))
    np.testing.assert_array_equal(ooc.open_array(target)[...], FIELD)
    with pytest.raises(NotFoundError, match=r"nothing to resume: no unfinished (array|group) in .*target\.zarr"):
        ooc.resume(target)
    check_finished(target)


def test_the_same_call_removes_the_journal_of_a_run_killed_when_all_was_done(
    field: Path, target: Path, runs: Server
) -> None:
    runs.run("rechunk", field, target, at="finished", **options_of("independent"))
    assert left_behind(target) != []
    job = flat(ooc.rechunk, field, target, resume=True, scheduler="threads", **options_of("independent"))
    assert job.is_finished
    job.run()
    check_finished(target)


@each_method
def test_what_a_dead_run_left_can_be_overwritten(field: Path, target: Path, runs: Server, method: str) -> None:
    runs.run("rechunk", field, target, at="partial", after=5, **options_of(method))
    flat(
        ooc.rechunk, field, target, overwrite=True, **(options_of(method) | {"chunks": (64, 256), "memory": "64MiB"})
    ).run()
    assert ooc.open_array(target).chunks == (64, 256)
    ooc.clean(target.parent)
    check_finished(target)


NOTHING = {
    "a finished array": "source.zarr",
    "no such folder": "nowhere.zarr",
    "an empty folder": "empty",
    "a folder of other files": "notes",
    "a file": "file.txt",
    "a group": "group.zarr",
}


@pytest.mark.parametrize("name", NOTHING.values(), ids=NOTHING)
def test_where_nothing_was_left_there_is_nothing_to_resume(field: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/thesis.txt").write_text("three years of work")
    (tmp_path / "file.txt").touch()
    zarr.create_group(tmp_path / "group.zarr")
    before = everything(tmp_path)
    with pytest.raises(NotFoundError, match=f"nothing to resume: no unfinished (array|group) in .*{name}") as caught:
        ooc.resume(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert everything(tmp_path) == before


# ---------------------------------------------------------------------- a group that zarr.open has made of the folder


@pytest.mark.parametrize("looked", [{}, {"zarr_format": 2}], ids=["", "as format 2"])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("how", ["resume", "resumed", "overwrite"])
def test_looked_at_by_zarr(tmp_path: Path, how: str, zarr_format: int, looked: dict[str, Any]) -> None:
    source, target = make_field(tmp_path), tmp_path / "t.zarr"
    options = options_of("independent") | {"zarr_format": zarr_format, "scheduler": "threads"}
    fail(flat("rechunk", source, target, **options), 5)
    assert isinstance(zarr.open(target, **looked), zarr.Group)
    check_unfinished(target)
    with pytest.raises(TargetError, match=r"is unfinished: .*pass resume=True to continue"):
        flat("rechunk", source, target, **options)
    if how == "resumed":
        ooc.resume(target).run()
    else:
        flat("rechunk", source, target, **options, **{how: True}).run()
    check_finished(target)
    assert zarr.open(target, mode="r").metadata.zarr_format == zarr_format
    assert not (target / ".zgroup").exists()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_looked_at_by_zarr_in_a_store(tmp_path: Path, zarr_format: int) -> None:
    source, target = make_field(tmp_path), zarr.storage.MemoryStore()
    options = options_of("independent") | {"zarr_format": zarr_format, "scheduler": "threads"}
    options["memory"] += 20 * 2**20
    fail(flat("rechunk", source, target, **options), 5)
    zarr.open(target)
    check_unfinished(target)
    ooc.resume(target).run()
    np.testing.assert_array_equal(zarr.open_array(target, mode="r")[...], FIELD)


def test_a_group_with_something_in_it_is_not_replaced_by_the_run_beside_it(tmp_path: Path) -> None:
    source, target = make_field(tmp_path), tmp_path / "t.zarr"
    options = options_of("independent") | {"scheduler": "threads"}
    fail(flat("rechunk", source, target, **options), 5)
    zarr.open_group(target).create_array("a", data=np.arange(3))
    for more in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(TargetError, match="is not a Zarr array; it is not overwritten"):
            flat("rechunk", source, target, **options, **more)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_only_empty_groups_are_replaced(tmp_path: Path, zarr_format: int) -> None:
    source, target = make_field(tmp_path), tmp_path / "t.zarr"
    options = options_of("independent") | {"scheduler": "threads"}
    group = zarr.create_group(target, zarr_format=zarr_format)
    with pytest.raises(TargetError, match="already exists; pass overwrite=True"):
        flat("rechunk", source, target, **options)
    for fill in (lambda: group.attrs.update(a=1), lambda: (group.attrs.clear(), group.create_group("0"))):
        fill()
        for more in ({}, {"overwrite": True}):
            with pytest.raises(TargetError, match="is not a Zarr array; it is not overwritten"):
                flat("rechunk", source, target, **options, **more)
    shutil.rmtree(target / "0")
    flat("rechunk", source, target, **options, overwrite=True).run()
    check_finished(target)
