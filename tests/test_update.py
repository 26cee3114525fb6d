"""Arrays that are brought up to date with sources that have grown or changed, against rechunking them again."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, strategies as st
from hypothesis.strategies import DataObject
from zarr.codecs.numcodecs import Delta

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import (
    BudgetError,
    ChunksError,
    InputError,
    JournalError,
    NotFoundError,
    RunError,
    TargetError,
    UnfinishedError,
    UnsupportedError,
)
from tests.dying import Server
from tests.flat import flat
from tests.profiles import examples

pytestmark = pytest.mark.long

DAYS = np.random.default_rng(3).random((120, 24, 20), dtype="f4")
BEFORE, HERE = 100, {"memory": "64MiB", "scheduler": "threads"}
SOURCE = ".oocarrays.source"


def grow(source: Path, days: int = len(DAYS)) -> None:
    array = zarr.open_array(source, mode="r+")
    array.append(DAYS[array.shape[0] : days])


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """When each chunk was written, and as which file."""
    found = {path: path.stat() for path in (folder / "c").rglob("*") if path.is_file()}
    return {str(path.relative_to(folder)): (each.st_mtime_ns, each.st_ino) for path, each in found.items()}


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    array = zarr.create_array(
        tmp_path / "maps", shape=DAYS[:BEFORE].shape, chunks=(2, 24, 20), dtype="f4", compressors=None
    )
    array[:] = DAYS[:BEFORE]
    return tmp_path / "maps"


@pytest.fixture
def series(maps: Path, tmp_path: Path) -> Path:
    flat(ooc.rechunk, maps, tmp_path / "series", chunks=(32, 8, 8), **HERE).run()
    return tmp_path / "series"


def test_what_was_appended_is_read_and_nothing_else(maps: Path, series: Path) -> None:
    before = stamps(series)
    grow(maps)
    job = flat(ooc.update, series, **HERE)
    assert job.plan.source_share == pytest.approx(20 / 120)
    a = job.run()
    np.testing.assert_array_equal(a[...], DAYS)
    assert a.chunks == (32, 8, 8)
    after = stamps(series)
    assert {key for key, stamp in after.items() if before.get(key) != stamp} == {
        f"c/3/{i}/{j}" for i in range(3) for j in range(3)
    }
    traffic, meter = job.plan.traffic, job.meter
    assert (meter.read_requests, meter.read_bytes) == (traffic.read_requests, traffic.read_bytes)
    assert (meter.write_requests, meter.written_bytes) == (traffic.write_requests, traffic.written_bytes)
    assert traffic.read_bytes == 20 * 24 * 20 * 4 + 9 * 32 * 8 * 8 * 4, "the new days, and chunks that were begun"
    assert not (series / ".oocarrays").exists()


def test_it_says_what_share_that_is(maps: Path, series: Path) -> None:
    grow(maps)
    text = flat(ooc.update, series, **HERE).explain()
    assert "16.7 % of the source" in text
    assert "9 of 36 chunks of the target, 25 %, which grows: 100 × 24 × 20 → 120 × 24 × 20" in text


def test_what_is_up_to_date_is_left_alone(maps: Path, series: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in series.rglob("*")}
    job = flat(ooc.update, series, **HERE)
    assert not job.plan.changed
    assert "nothing: the target is up to date" in repr(job)
    np.testing.assert_array_equal(job.run()[...], DAYS[:BEFORE])
    assert {path: path.stat().st_mtime_ns for path in series.rglob("*")} == before


def test_chunks_that_have_changed_are_written_again_and_again(maps: Path, series: Path) -> None:
    array = zarr.open_array(maps, mode="r+")
    for day in (5, 71):
        array[day, 3, 3] = -1
        job = flat(ooc.update, series, **HERE)
        assert job.plan.changed == (ooc.Section((day // 2 * 2, 0, 0), (day // 2 * 2 + 2, 24, 20)),)
        np.testing.assert_array_equal(job.run()[...], array[:])


def test_it_is_opened_by_nobody_while_it_is_half_done(maps: Path, series: Path, runs: Server) -> None:
    grow(maps)
    runs.run("update", series, **HERE, at="entry")
    with pytest.raises(UnfinishedError):
        ooc.open_array(series)
    with pytest.raises(TargetError, match="exists"):
        flat(ooc.rechunk, maps, series, chunks=(32, 8, 8), **HERE)


@pytest.mark.sampled
@pytest.mark.parametrize("again", ["update", "resume", "command"])
@pytest.mark.parametrize(
    ("at", "after"), [("journal", 1), ("begun", 1), ("unrecorded", 1), ("entry", 1), ("mark", 1), ("finished", 1)]
)
def test_an_update_that_was_killed_goes_on(
    maps: Path, series: Path, runs: Server, at: str, after: int, again: str
) -> None:
    grow(maps)
    runs.run("update", series, **HERE, at=at, after=after)
    if again == "update" or at in ("journal", "finished"):
        a = flat(ooc.update, series, **HERE).run()
    elif again == "resume":
        a = ooc.resume(series, kind="update").run()
    else:
        assert main(["resume", str(series), "--quiet"]) == 0
        a = ooc.open_array(series)
    np.testing.assert_array_equal(a[...], DAYS)
    assert not flat(ooc.update, series, **HERE).plan.changed
    assert not list((series / ".oocarrays").rglob("*")), "no journal is left"


def test_parts_that_were_done_are_not_done_again_unless_they_have_gone(maps: Path, series: Path, runs: Server) -> None:
    grow(maps)
    zarr.open_array(maps, mode="r+")[:50] = 7
    least = least_memory(series)
    runs.run("update", series, memory=least, scheduler="threads", at="entry", after=2)
    job = ooc.resume(series)
    parts = len(list(job.plan.parts()))
    assert parts > 2
    assert job.left == pytest.approx(1 - 2 / parts)
    index = next(iter(job.plan.units(0)))
    key = "c/" + "/".join(map(str, index))
    (series / key).unlink()
    with pytest.warns(RuntimeWarning, match="1 of .* chunks that had been written are not as they were"):
        job = ooc.resume(series)
    expected = DAYS.copy()
    expected[:50] = 7
    np.testing.assert_array_equal(job.run()[...][:50], 7)


def least_memory(series: Path) -> int:
    with pytest.raises(BudgetError) as refused:
        ooc.update(series, memory=1, scheduler="threads")
    return refused.value.least


def test_in_any_memory_it_goes_on_in_other_memory(maps: Path, series: Path, runs: Server) -> None:
    grow(maps)
    zarr.open_array(maps, mode="r+")[3:97, 2] = 7
    least = least_memory(series)
    runs.run("update", series, memory=least, scheduler="threads", at="entry", after=2)
    job = ooc.resume(series, memory="64MiB")
    np.testing.assert_array_equal(job.run()[...], zarr.open_array(maps)[:])


def test_a_source_that_changed_since_is_refused_or_looked_at_again(maps: Path, series: Path, runs: Server) -> None:
    grow(maps, 110)
    runs.run("update", series, **HERE, at="entry")
    zarr.open_array(maps, mode="r+")[0] = 9
    with pytest.raises(JournalError, match="have changed since"):
        flat(ooc.update, series, **HERE)
    grow(maps)
    a = ooc.resume(series, again=True).run()
    np.testing.assert_array_equal(a[...], zarr.open_array(maps)[:])
    assert not flat(ooc.update, series, **HERE).plan.changed


def test_of_a_source_that_changed_since_and_was_taken_as_it_is_all_is_updated_later(
    maps: Path, series: Path, runs: Server
) -> None:
    grow(maps, 110)
    runs.run("update", series, **HERE, at="begun")
    zarr.open_array(maps, mode="r+")[0] = 9
    ooc.resume(series, as_is=True).run()
    job = flat(ooc.update, series, **HERE)
    assert job.plan.changed, "what was read is known to nobody"
    np.testing.assert_array_equal(job.run()[...], zarr.open_array(maps)[:])


def test_a_source_that_changes_between_plan_and_end_leaves_it_unfinished(maps: Path, series: Path) -> None:
    grow(maps)
    job = flat(ooc.update, series, **HERE)
    zarr.open_array(maps, mode="r+")[0] = 9
    with pytest.raises(RunError, match="have changed since"):
        job.run()
    a = ooc.resume(series, again=True).run()
    np.testing.assert_array_equal(a[...], zarr.open_array(maps)[:])


def test_a_source_that_was_moved_is_named(maps: Path, series: Path, tmp_path: Path) -> None:
    grow(maps)
    shutil.copytree(maps, tmp_path / "moved")  # with times
    shutil.rmtree(maps)
    with pytest.raises(NotFoundError, match="maps"):
        flat(ooc.update, series, **HERE)
    job = flat(ooc.update, series, source=tmp_path / "moved", **HERE)
    assert job.plan.source_share == pytest.approx(20 / 120)
    np.testing.assert_array_equal(job.run()[...], DAYS)
    assert not flat(ooc.update, series, **HERE).plan.changed


def test_an_update_makes_what_is_not_there(maps: Path, tmp_path: Path) -> None:
    target = tmp_path / "whole"
    for days in (100, 104, 111, 120):
        grow(maps, days)
        job = flat(ooc.update, target, source=maps, chunks={0: -1, 1: 8, 2: 8}, **HERE)
        np.testing.assert_array_equal(job.run()[...], DAYS[:days])
    assert isinstance(job, ooc.Job)
    assert ooc.open_array(target).chunks == (100, 8, 8)
    with pytest.raises(ChunksError, match=r"has chunks \(100, 8, 8\), not \(100, 4, 8\)"):
        flat(ooc.update, target, source=maps, chunks=(100, 4, 8), **HERE)
    with pytest.raises(InputError, match="does not exist: pass source="):
        flat(ooc.update, target, chunks=(100, 8, 8), **HERE)
    lazy = ooc.open_array(maps).to_dask()
    with pytest.raises(InputError, match="lazy"):
        flat(ooc.update, target, source=lazy, chunks=(100, 8, 8), **HERE)


STATED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "compressors": ({"compressors": "gzip"}, TargetError, r'has compressors {"name": "zstd".* not {"name": "gzip"'),
    "level": (
        {"compressors": zarr.codecs.ZstdCodec(level=7)}, TargetError,
        r'has compressors {"name": "zstd", "configuration": {"level": 0}}, not .*{"level": 7}}: omit compressors, or',
    ),
    "filters": ({"filters": Delta}, TargetError, "has filters"),  # which zarr warns of as soon as it is made
    "zarr_format": ({"zarr_format": 2}, TargetError, "has zarr_format 3, not 2: omit zarr_format"),
    "orientation": ({"orientation": "column"}, TargetError, r"has orientation \[0, 1\], not \[1, 0\]"),
    "chunks": ({"chunks": (8, 2), "shards": (16, 8)}, ChunksError, r"has chunks \(8, 4\), not \(8, 2\): omit chunks"),
    "shards": ({"shards": (24, 8)}, ChunksError, r"has shards \(16, 8\), not \(24, 8\): omit shards"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr")
@pytest.mark.parametrize("name", STATED)
def test_what_a_target_states_is_how_it_is_stored(tmp_path: Path, name: str) -> None:
    data = np.arange(240).reshape(30, 8)
    source = zarr.create_array(tmp_path / "source", data=data[:20], chunks=(1, 8))
    made = ooc.Target(tmp_path / "target", chunks=(8, 4), shards=(16, 8), compressors="zstd", orientation="row")
    ooc.update(made, source=tmp_path / "source", **HERE).run()
    source.append(data[20:])
    stated, kind, said = STATED[name]
    if name == "filters":
        stated = {"filters": [Delta(dtype="i8")]}
    with pytest.raises(kind, match=said) as caught:
        ooc.update(ooc.Target(tmp_path / "target", **stated), source=tmp_path / "source", **HERE)
    assert "\n" not in str(caught.value)
    for same in (made, replace(made, shards=None), ooc.Target(tmp_path / "target", shards=(16, 8)), made.store):
        job = ooc.update(same, source=tmp_path / "source", **HERE)
        assert job.plan.changed
    np.testing.assert_array_equal(job.run()[...], data)


def test_what_cannot_be_updated_later_is_not_made(maps: Path, series: Path, tmp_path: Path) -> None:
    for source in (DAYS[:8], zarr.create_array({}, data=DAYS[:8], chunks=(2, 24, 20))):
        with pytest.raises(InputError, match="needs a stored source: changes of an array in memory cannot be"):
            ooc.update(tmp_path / "new", source=source, chunks=(8, 8, 8), **HERE)
        assert not (tmp_path / "new").exists()
    for how in ({}, {"source": maps}):
        with pytest.raises(NotFoundError, match=r"new does not exist: .* update with source= and chunks="):
            ooc.update(tmp_path / "new", **how, **HERE)
    zarr.create_array(tmp_path / "other", data=DAYS[:4], chunks=(2, 24, 20), compressors=None)
    with pytest.raises(JournalError, match=r"other is not the source of .*series: its shape was .*; write it anew"):
        ooc.update(series, source=tmp_path / "other", **HERE)


@pytest.mark.parametrize("how", [{"chunks": (8, 2)}, {"chunks": (4, 2), "shards": (16, 4)}], ids=str)
def test_chunks_longer_than_a_growing_axis_stay_as_they_are_asked_for(tmp_path: Path, how: dict[str, Any]) -> None:
    data = np.arange(120).reshape(30, 4)
    source = zarr.create_array(tmp_path / "source", data=data[:6], chunks=(1, 4))
    for days in (6, 9, 11, 30):
        source.append(data[source.shape[0] : days])
        job = flat(ooc.update, ooc.Target(tmp_path / "target", **how), source=tmp_path / "source", **HERE)
        assert not job.notices
        np.testing.assert_array_equal(job.run()[...], data[:days])
        target = zarr.open_array(tmp_path / "target", mode="r")
        assert (target.chunks, target.shards) == (how["chunks"], how.get("shards"))
        np.testing.assert_array_equal(target[...], data[:days])


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_copied_arrays_of_a_group_are_updated_by_their_paths(tmp_path: Path, zarr_format: int) -> None:
    source = zarr.create_group(tmp_path / "source", zarr_format=3)
    maps = source.create_array("maps", data=np.arange(60).reshape(6, 10), chunks=(1, 10))
    days = source.create_array("days", data=np.arange(6.0), chunks=(4,))
    source.create_array("one", data=np.array(5))
    source.create_array("names", data=np.array(["a", "bc"], dtype=np.dtypes.StringDType()))
    to = ooc.Target(tmp_path / "target", zarr_format=zarr_format, chunks={"maps": (8, 2)})
    flat(ooc.rechunk, tmp_path / "source", to, **HERE).run()
    maps.append(np.arange(60, 80).reshape(2, 10))
    days.append(np.arange(6.0, 11))
    for name in "maps", "days", "one":
        job = flat(ooc.update, tmp_path / "target" / name, **HERE)
        assert job.plan.source_share == {"maps": 0.25, "days": 7 / 11, "one": 0}[name]
        np.testing.assert_array_equal(job.run()[...], source[name][...])
        assert zarr.open_array(tmp_path / "target" / name, mode="r").metadata.zarr_format == zarr_format
    with pytest.raises(UnsupportedError, match="no fixed size"):
        flat(ooc.update, tmp_path / "target" / "names", **HERE)


def test_coordinates_of_joined_files_are_updated_though_they_are_one_chunk(tmp_path: Path) -> None:
    days, rng = np.datetime64("2001-01-01", "ns") + np.arange(9) * np.timedelta64(1, "D"), np.random.default_rng(0)
    whole = xr.Dataset({"air": (("time", "x"), rng.random((9, 5)))}, {"time": days})
    how: dict[str, Any] = {"engine": "h5netcdf", "encoding": {"time": {"units": "days since 2000-01-01"}}}
    for number in range(3):
        whole.isel(time=slice(3 * number, 3 * number + 3)).to_netcdf(tmp_path / f"{number}.nc", **how)
        if number == 1:
            ooc.rechunk(tmp_path / "?.nc", tmp_path / "target", chunks={"air": (9, 2)}, **HERE).run()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(tmp_path / "target")
    for name in "time", "air":
        ooc.update(tmp_path / "target" / name, **HERE).run()
    xr.testing.assert_identical(xr.open_zarr(tmp_path / "target", consolidated=True).load(), whole)


def test_an_array_that_is_replaced_is_described_anew_by_its_group(tmp_path: Path) -> None:
    source = zarr.create_group(tmp_path / "a")
    source.create_array("x", data=np.arange(6), chunks=(3,))
    ooc.rechunk(tmp_path / "a", tmp_path / "b", chunks={"x": (2,)}, **HERE).run()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(tmp_path / "b")
    zarr.create_array(tmp_path / "c", data=np.arange(8), chunks=(3,))
    ooc.rechunk(tmp_path / "c", tmp_path / "b" / "x", chunks=(4,), overwrite=True, **HERE).run()
    there = zarr.open_consolidated(tmp_path / "b")["x"]
    assert (there.shape, there.chunks) == ((8,), (4,))


def test_what_cannot_be_updated_is_refused_in_one_line(maps: Path, series: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has no record of its source"):
        flat(ooc.update, maps, **HERE)
    with pytest.raises(NotFoundError):
        flat(ooc.update, tmp_path / "nowhere", **HERE)
    zarr.create_group(tmp_path / "group")
    with pytest.raises(TargetError, match="is a group: update its arrays one by one"):
        flat(ooc.update, tmp_path / "group", **HERE)
    with dask.config.set({"oocarrays.fingerprints": False}):
        flat(ooc.rechunk, maps, tmp_path / "unkept", chunks=(8, 8, 8), **HERE).run()
    assert not (tmp_path / "unkept" / SOURCE).exists()
    with pytest.raises(NotFoundError, match=r"oocarrays\.fingerprints"):
        flat(ooc.update, tmp_path / "unkept", **HERE)
    text = (series / SOURCE).read_bytes()
    (series / SOURCE).write_bytes(text[:-5])
    with pytest.raises(JournalError, match="truncated"):
        flat(ooc.update, series, **HERE)
    (series / SOURCE).write_bytes(text)
    zarr.open_array(series, mode="r+").resize((90, 24, 20))
    with pytest.raises(TargetError, match=r"has shape \(90, 24, 20\); it was made with \(100, 24, 20\)"):
        flat(ooc.update, series, **HERE)


@pytest.mark.parametrize(
    "other",
    [
        {"shape": (90, 24, 20)},
        {"dtype": "f8"},
        {"chunks": (4, 24, 20)},
        {"fill_value": 3},
        {"compressors": "auto"},
        {"shape": (100, 24, 20, 1), "chunks": (2, 24, 20, 1)},
    ],
    ids=str,
)
def test_another_source_is_refused(maps: Path, series: Path, other: dict[str, Any]) -> None:
    same = {"shape": (100, 24, 20), "dtype": "f4", "chunks": (2, 24, 20), "compressors": None}
    zarr.create_array(maps, **(same | other), overwrite=True)
    with pytest.raises(JournalError, match="write it anew"):
        flat(ooc.update, series, **HERE)


def test_a_target_that_a_rechunk_left_is_resumed_first(maps: Path, tmp_path: Path, runs: Server) -> None:
    runs.run("rechunk", maps, tmp_path / "t", chunks=[32, 8, 8], **HERE, at="begun")
    with pytest.raises(TargetError, match=r"is unfinished: .* resume=True"):
        flat(ooc.update, tmp_path / "t", **HERE)
    ooc.resume(tmp_path / "t").run()
    grow(maps)
    np.testing.assert_array_equal(flat(ooc.update, tmp_path / "t", **HERE).run()[...], DAYS)


def test_what_replaces_an_array_keeps_nothing_of_the_one_before(maps: Path, series: Path) -> None:
    flat(ooc.map_slabs, np.negative, maps, series, overwrite=True, **HERE).run()
    with pytest.raises(NotFoundError, match="has no record"):
        flat(ooc.update, series, **HERE)


def test_arrays_of_a_group_are_updated_one_by_one(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g")
    array = group.create_array("air", data=DAYS[:100], chunks=(2, 24, 20))
    flat(ooc.rechunk, tmp_path / "g", tmp_path / "t", chunks={"air": (32, 8, 8)}, **HERE).run()
    array.append(DAYS[100:])
    np.testing.assert_array_equal(flat(ooc.update, tmp_path / "t" / "air", **HERE).run()[...], DAYS)


def test_the_command_line(maps: Path, series: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["update", str(series)]) == 0
    assert capsys.readouterr() == (f"{series} is up to date\n", "")
    grow(maps)
    assert main(["update", str(series), "--dry-run", "--memory", "64MiB"]) == 0
    assert "25 %, which grows" in capsys.readouterr().out
    assert ooc.open_array(series).shape == DAYS[:BEFORE].shape
    assert main(["rechunk", str(maps), str(series), "--update", "--memory", "64MiB"]) == 0
    np.testing.assert_array_equal(ooc.open_array(series)[...], DAYS)
    capsys.readouterr()
    assert main(["update", str(maps)]) != 0
    assert len(capsys.readouterr().err.splitlines()) == 1


# ---------------------------------------------------------------------- anything against a full rechunk

CODECS: dict[str, Any] = {"none": None, "zstd": zarr.codecs.ZstdCodec()}


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    axes = draw(st.integers(1, 3))
    before = tuple(draw(st.integers(1, 14)) for _ in range(axes))
    return {
        "before": before,
        "after": tuple(n + draw(st.sampled_from([0, 0, 1, 5])) for n in before),
        "chunks": tuple(draw(st.integers(1, 6)) for _ in range(axes)),
        "to": tuple(draw(st.integers(1, 6)) for _ in range(axes)),
        "shards": draw(st.booleans()),
        "codecs": tuple(draw(st.sampled_from(sorted(CODECS))) for _ in range(2)),
        "format": draw(st.sampled_from([2, 3])),
        "orientation": draw(st.sampled_from([None, "column"])),
    }


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), data=st.data())
def test_it_is_as_if_rechunked_again(tmp_path: Path, case: dict[str, Any], data: DataObject) -> None:
    for name in ("s", "t"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    codec = {"none": None, "zstd": "auto"} if case["format"] == 2 else CODECS
    source = zarr.create_array(
        tmp_path / "s", shape=case["before"], chunks=case["chunks"], dtype="i4", compressors=codec[case["codecs"][0]],
        zarr_format=case["format"],
    )  # fmt: skip
    rng = np.random.default_rng(0)
    source[...] = rng.integers(1, 9, case["before"])
    shards = tuple(2 * n for n in case["to"]) if case["shards"] and case["format"] == 3 else None
    how: dict[str, Any] = {"chunks": case["to"], "shards": shards, "orientation": case["orientation"]}
    if case["codecs"][1] != case["codecs"][0] and case["format"] == 3:
        how |= {"compressors": CODECS[case["codecs"][1]] or (), "filters": ()}
    with suppress(ChunksError):  # shards that are larger than the array
        flat(ooc.rechunk, tmp_path / "s", tmp_path / "t", **how, **HERE).run()
    if not (tmp_path / "t").exists():
        return
    source.resize(case["after"])
    for _ in range(data.draw(st.integers(0, 3))):
        lower = [data.draw(st.integers(0, n - 1)) for n in case["after"]]
        upper = [data.draw(st.integers(low + 1, n)) for low, n in zip(lower, case["after"], strict=True)]
        place = tuple(map(slice, lower, upper))
        source[place] = data.draw(st.sampled_from([0, 7]))
    job = flat(ooc.update, tmp_path / "t", **HERE)
    a = job.run()
    assert a.shape == case["after"]
    np.testing.assert_array_equal(a[...], source[...])
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "t")[...], source[...])
    assert not flat(ooc.update, tmp_path / "t", **HERE).plan.changed


# ---------------------------------------------------------------------- on workers


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_on_workers(maps: Path, series: Path, client: Any) -> None:
    grow(maps)
    zarr.open_array(maps, mode="r+")[:40:7] = 1
    job = ooc.update(series, memory="64MiB", scheduler=client)
    assert job.plan.ranks == 2
    assert len(list(job.plan.parts())) >= 2
    np.testing.assert_array_equal(job.run()[...], zarr.open_array(maps)[:])
    assert (job.meter.write_requests, job.meter.read_requests) == (
        job.plan.traffic.write_requests,
        job.plan.traffic.read_requests,
    )
    assert not ooc.update(series, scheduler=client).plan.changed
    (computed,) = dask.compute(ooc.update(series, scheduler=client))
    assert computed.shape == DAYS.shape
    assert not os.path.exists(series / ".oocarrays")


def test_what_is_not_read_is_not_in_the_prediction(maps: Path, series: Path) -> None:
    grow(maps, BEFORE + 1)
    one = flat(ooc.update, series, **HERE).plan
    zarr.open_array(maps, mode="r+")[...] = 1
    every = flat(ooc.update, series, **HERE).plan
    assert one.phases.read < every.phases.read / 10


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_the_consolidated_metadata_of_the_groups_above_has_the_new_shape(tmp_path: Path, zarr_format: int) -> None:
    group = zarr.create_group(tmp_path / "maps", zarr_format=zarr_format)
    inner = group.create_group("inner", attributes={"a": 1})
    array = inner.create_array("b", data=np.arange(60).reshape(6, 10), chunks=(1, 10))
    zarr.consolidate_metadata(group.store, path="inner")
    zarr.consolidate_metadata(group.store)
    ooc.rechunk(tmp_path / "maps", tmp_path / "t", chunks={"inner/b": (6, 2)}, scheduler="threads").run()
    array.append(np.arange(10)[None])
    ooc.update(tmp_path / "t" / "inner" / "b", scheduler="threads").run()
    for place, name in ((tmp_path / "t", "inner/b"), (tmp_path / "t" / "inner", "b")):
        seen: Any = zarr.open_consolidated(place)[name]
        np.testing.assert_array_equal(seen[...], array[...])
        assert dict(seen.attrs) == {}
