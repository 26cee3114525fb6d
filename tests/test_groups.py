"""A group is rewritten as xarray expects it: what is named in other chunks, all else as it is stored."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import dask
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import (
    BudgetError,
    ChunksError,
    CorruptChunkError,
    NotFoundError,
    OocError,
    TargetError,
    UnfinishedError,
    UnsupportedError,
)
from tests.flat import flat
from tests.groups import AIR, as_stored, check_same, objects, opened, write
from tests.profiles import examples
from tests.seams import KEPT_REQUEST, KEPT_SOURCE, UNFINISHED_MARK, small
from tests.small import make
from tests.strategies import cut

pytestmark = pytest.mark.long

CHUNKS: dict[str, Any] = {"air": (24, 6, 5), "deep/er/air": {"time": -1, "lon": 4}}
formats = pytest.mark.parametrize("zarr_format", [2, 3])


def rechunk(source: Any, target: Any, chunks: Any = None, **options: Any) -> ooc.Job:
    job = flat(
        ooc.rechunk, source, target, chunks=CHUNKS if chunks is None else chunks, **({"memory": "256MiB"} | options)
    )
    assert isinstance(job, ooc.Job)
    return job


@pytest.fixture
def group(tmp_path: Path) -> Path:
    return write(tmp_path / "group.zarr")


# ---------------------------------------------------------------------- as xarray sees it


@pytest.mark.sampled(2)
@formats
@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("memory", [False, True], ids=["files", "memory"])
def test_xarray_sees_no_difference_but_chunks(
    tmp_path: Path, zarr_format: int, consolidated: bool, memory: bool
) -> None:
    source, target = (MemoryStore(), MemoryStore()) if memory else (tmp_path / "a", tmp_path / "b")
    write(source, zarr_format=zarr_format, consolidated=consolidated)
    rechunk(source, target).run()
    check_same(source, target, rechunked=("air",))
    check_same(source, target, rechunked=("air",), group="deep/er")
    assert opened(target).air.encoding["chunks"] == (24, 6, 5)
    assert opened(target, "deep/er").air.encoding["chunks"] == (24, 18, 4)
    kept = zarr.open_group(target, mode="r").metadata.consolidated_metadata is not None
    assert kept == consolidated


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("at_once", [2**26, 2**10], ids=["whole arrays", "in parts"])
def test_what_is_not_named_is_copied_byte_by_byte(
    tmp_path: Path, zarr_format: int, consolidated: bool, at_once: int
) -> None:
    source = write(tmp_path / "a", zarr_format=zarr_format, consolidated=consolidated)
    target = tmp_path / "b"
    names = [name for name in zarr.open_group(source, mode="r") if name != "air"]
    with small(copied_bytes=at_once):
        job = rechunk(source, target, {"air": (24, 6, 5)})
    assert any(piece.parts > 1 for batch in job.plan.copies.batches for piece in batch) == (at_once < 2**26)
    job.run()
    for name in ["deep/er/air", *names]:
        assert objects(source / name) == as_stored(target / name), name


@pytest.mark.parametrize("consolidated", [True, False])
def test_a_dataset_opens_consolidated_with_the_new_chunks(tmp_path: Path, consolidated: bool) -> None:
    write(tmp_path / "a", consolidated=consolidated)
    rechunk(tmp_path / "a", tmp_path / "b").run()
    if consolidated:
        assert opened(tmp_path / "b", consolidated=True).air.encoding["chunks"] == (24, 6, 5)
        text = (tmp_path / "b" / "zarr.json").read_text()
        assert UNFINISHED_MARK not in text, "nor in the metadata that is kept of the arrays"
    else:
        with pytest.raises(ValueError, match=r"[Cc]onsolidated"):
            opened(tmp_path / "b", consolidated=True)


def test_groups_below_keep_consolidated_metadata_of_their_own(tmp_path: Path) -> None:
    source = write(tmp_path / "a")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(source, path="deep/er")
    rechunk(source, tmp_path / "b").run()
    assert opened(tmp_path / "b" / "deep" / "er", consolidated=True).air.encoding["chunks"] == (24, 18, 4)


def test_missing_chunks_stay_missing(tmp_path: Path) -> None:
    source = zarr.create_group(tmp_path / "a")
    for name in ("copied", "rechunked"):
        array = source.create_array(name, shape=(40, 40), chunks=(10, 10), dtype="f4", fill_value=7.5)
        array[10:20, 20:30] = 3
    rechunk(tmp_path / "a", tmp_path / "b", {"rechunked": (20, 20)}).run()
    assert objects(tmp_path / "a" / "copied") == as_stored(tmp_path / "b" / "copied")
    target = zarr.open_group(tmp_path / "b", mode="r")
    np.testing.assert_array_equal(target["rechunked"][...], source["rechunked"][...])
    stored = objects(tmp_path / "b" / "rechunked").keys() - {KEPT_REQUEST, KEPT_SOURCE}
    assert len(stored) == 2, "its metadata, and the one chunk that holds something"


def test_a_group_in_a_store_with_others(tmp_path: Path) -> None:
    """The group alone is what is read and written, and what stands beside it is not touched."""
    store = MemoryStore()
    root = zarr.create_group(store)
    make(store, name="inside/air")
    make(store, name="air")
    root.create_group("elsewhere")
    job = rechunk(root["inside"], tmp_path / "b", {"air": (96, 10)})
    assert list(job.run()) == ["air"]
    back = rechunk(tmp_path / "b", root.store_path / "back", {"air": (8, 80)}).run()
    np.testing.assert_array_equal(back["air"][...], root["air"][...])
    assert sorted(zarr.open_group(store, mode="r")) == ["air", "back", "elsewhere", "inside"]
    with pytest.raises(TargetError, match="one inside the other"):
        rechunk(root["inside"], root.store_path / "inside" / "again", {"air": (8, 80)})


# ---------------------------------------------------------------------- a job as others


@pytest.fixture
def of_three(tmp_path: Path) -> ooc.Job:
    """A job of three arrays, of which two are rewritten."""
    source, rng = zarr.create_group(tmp_path / "a"), np.random.default_rng(0)
    for name in ("one", "two/three", "four"):
        source.create_array(name, data=rng.random((64, 64)), chunks=(4, 64), compressors=None)
    return rechunk(tmp_path / "a", tmp_path / "b", {"one": (64, 4), "two/three": -1})


def test_looking_is_free(tmp_path: Path, of_three: ooc.Job) -> None:
    before = objects(tmp_path)
    assert "two/three" in repr(of_three)
    assert "considered" in of_three.explain()
    assert "<table>" in of_three._repr_html_()
    assert of_three.plan.tasks == len(of_three.__dask_graph__())
    assert objects(tmp_path) == before
    assert os.listdir(tmp_path) == ["a"]


def test_the_plan_tells_the_truth(tmp_path: Path, of_three: ooc.Job) -> None:
    assert of_three.plan.peak_bytes == max(plan.peak_bytes for _, plan in of_three.plan.members) <= of_three.plan.budget
    of_three.run(progress=True)
    meter, traffic = of_three.meter, of_three.plan.traffic
    assert (meter.read_requests, meter.read_bytes) == (traffic.read_requests, traffic.read_bytes)
    assert (meter.write_requests, meter.written_bytes) == (traffic.write_requests, traffic.written_bytes)
    copied = objects(tmp_path / "a" / "four")
    assert (meter.copied_objects, meter.copied_bytes) == (len(copied), sum(map(len, copied.values())))
    assert "copied as stored" in of_three.explain()


def test_the_result_is_a_group(tmp_path: Path, of_three: ooc.Job) -> None:
    target = of_three.run()
    assert list(target) == ["four", "one", "two/three"]
    assert target["/two/three"].chunks == (64, 64)
    assert target.nbytes == 3 * 64 * 64 * 8
    assert repr(target).count("\n") == 3
    assert set(os.listdir(tmp_path)) == {"a", "b"}


def test_dask_computes_it_and_persists_it(group: Path, tmp_path: Path) -> None:
    (target,) = dask.compute(rechunk(group, tmp_path / "b"))
    check_same(group, target.store, rechunked=("air",))
    persisted = rechunk(group, tmp_path / "c").persist()
    check_same(group, persisted.compute().store, rechunked=("air",))


@pytest.mark.parametrize("method", ["independent", "two-phase", "assembled"])
def test_every_method(group: Path, tmp_path: Path, method: str) -> None:
    target = rechunk(group, tmp_path / "b", method=method).run()
    check_same(group, target.store, rechunked=("air",))
    assert set(os.listdir(tmp_path)) == {"group.zarr", "b"}, "scratch is gone"


def test_a_group_is_replaced_where_that_is_asked_for(group: Path, tmp_path: Path) -> None:
    target = tmp_path / "b"
    make(target / "air")
    zarr.create_group(target, overwrite=True).create_array("old", shape=(3,), dtype="i4")
    with pytest.raises(TargetError, match="exists; pass overwrite=True"):
        rechunk(group, target)
    job = rechunk(group, target, overwrite=True)
    assert "old" in zarr.open_group(target, mode="r")
    for _ in range(2):
        assert "old" not in job.run()
        check_same(group, target, rechunked=("air",))


def test_two_jobs_at_one_target_do_not_mix(group: Path, tmp_path: Path) -> None:
    first, second = (rechunk(group, tmp_path / "b") for _ in range(2))
    first.run()
    before = objects(tmp_path / "b")
    with pytest.raises(TargetError, match="exists"):
        second.run()
    assert objects(tmp_path / "b") == before


@formats
def test_lengths_by_dimension_are_of_all_arrays_that_have_it(tmp_path: Path, zarr_format: Any) -> None:
    axes = {"time": np.arange(24), "lat": np.arange(6.0), "lon": np.arange(5.0)}
    air = np.random.default_rng(0).random((24, 6, 5))
    made = xr.Dataset({"air": (tuple(axes), air), "mean": (("time",), air.mean((1, 2))), "one": ((), 3.5)}, axes)
    made.to_zarr(tmp_path / "a", zarr_format=zarr_format, encoding={"air": {"chunks": (1, 6, 5)}}, consolidated=False)
    ooc.rechunk(tmp_path / "a", tmp_path / "b", chunks={"time": -1, "lat": 3, "air": {"lon": 2}}).run()
    assert main(["rechunk", str(tmp_path / "a"), str(tmp_path / "c"), "--chunks", "time=-1,lat=3", "--quiet"]) == 0
    ooc.rechunk(tmp_path / "a", tmp_path / "d", chunks={"time": {"time": 8}}).run()
    found = {name: {k: v.chunks for k, v in zarr.open_group(tmp_path / name).arrays()} for name in "abcd"}
    assert found["b"] == found["a"] | {"air": (1, 6, 2), "mean": (24,)}
    assert found["c"] == found["a"] | {"air": (24, 3, 5), "mean": (24,)}
    assert found["d"] == found["a"] | {"time": (8,)}
    for name in "bcd":
        assert xr.open_zarr(tmp_path / name, consolidated=False).identical(made)


def test_a_length_of_a_coordinate_only_is_refused(tmp_path: Path) -> None:
    xr.Dataset(coords={"time": np.arange(24)}).to_zarr(tmp_path / "a", consolidated=False)
    with pytest.raises(ChunksError, match="to coordinates only"):
        ooc.rechunk(tmp_path / "a", tmp_path / "b", chunks={"time": -1})


# ---------------------------------------------------------------------- another Zarr format


def same_in(zarr_format: int, source: Any, target: Any) -> None:
    """All that xarray sees of a target is that of the source, also where it takes fill values for no values."""
    for group in (None, "deep/er"):
        there = opened(target, group)
        xr.testing.assert_identical(opened(source, group).load(), there.load())
    assert {node.metadata.zarr_format for _, node in zarr.open_group(target, mode="r").members(max_depth=None)} == {
        zarr_format
    }


@pytest.mark.sampled(2)
@formats
@pytest.mark.parametrize("chunks", [None, {"air": (24, 6, 5)}, {"lat": 6}], ids=["none", "named", "dimension"])
@pytest.mark.parametrize("memory", [False, True], ids=["files", "memory"])
def test_a_group_changes_its_format(tmp_path: Path, zarr_format: int, chunks: Any, memory: bool) -> None:
    source, target = (MemoryStore(), MemoryStore()) if memory else (tmp_path / "a", tmp_path / "b")
    write(source, zarr_format=5 - zarr_format)
    job = ooc.rechunk(
        source, ooc.Target(target, zarr_format=zarr_format), chunks=chunks, memory="256MiB", scheduler="threads"
    )
    assert "place" in job.plan.copies.names, "texts go by way of Zarr"
    job.run()
    same_in(zarr_format, source, target)
    assert opened(target).rain.encoding["chunks"] == ((5, 6) if chunks == {"lat": 6} else (5, 7))
    kept = zarr.open_group(target, mode="r").metadata.consolidated_metadata
    assert kept is not None, "as the source's"


@formats
def test_a_format_that_is_the_groups_own_changes_nothing(tmp_path: Path, zarr_format: int) -> None:
    source = write(tmp_path / "a", zarr_format=zarr_format)
    rechunk(source, tmp_path / "b", {"air": (24, 6, 5)}, zarr_format=zarr_format).run()
    assert objects(source / "rain") == as_stored(tmp_path / "b" / "rain")


def test_chunks_that_nobody_wrote_keep_what_they_are_in_another_format(tmp_path: Path) -> None:
    """In format 3 they hold zeros, and -1 stands for no value; in format 2 nothing but the fill value stands for it."""
    root = zarr.create_group(tmp_path / "a")
    made = root.create_array(
        "rain", shape=(40,), chunks=(10,), dtype="i2", dimension_names=["x"], attributes={"_FillValue": -1}
    )
    made[5:15] = [-1, 3] * 5
    rechunk(tmp_path / "a", tmp_path / "b", {"rain": 10}, zarr_format=2).run()
    xr.testing.assert_identical(opened(tmp_path / "a", consolidated=False).load(), opened(tmp_path / "b").load())
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "b", mode="r")["rain"][...], made[...])


def test_texts_of_many_chunks_change_their_format(tmp_path: Path) -> None:
    words = np.array([f"{'w' * (n % 7)}{n}" for n in range(1000)], dtype=np.dtypes.StringDType())
    root = zarr.create_group(tmp_path / "a")
    root.create_array("words", data=words.reshape(50, 20), chunks=(7, 6))
    for names, zarr_format in (("ab", 2), ("bc", 3)):
        here, there = (tmp_path / name for name in names)
        job = ooc.rechunk(here, ooc.Target(there, zarr_format=zarr_format), memory="64MiB", scheduler="threads")
        job.run()
        assert job.meter.copied_objects == 8 * 4
        np.testing.assert_array_equal(
            zarr.open_group(there, mode="r")["words"][...].astype(object), np.asarray(words.reshape(50, 20), object)
        )
        again = ooc.rechunk(
            here, ooc.Target(there, zarr_format=zarr_format), overwrite=True, memory="64MiB", scheduler="threads"
        )
        again.run()
        np.testing.assert_array_equal(
            zarr.open_group(there, mode="r")["words"][...].astype(object), np.asarray(words.reshape(50, 20), object)
        )


def test_texts_that_cannot_be_decoded_are_one_line(tmp_path: Path) -> None:
    root = zarr.create_group(tmp_path / "a")
    root.create_array("words", data=np.array(["a", "long word"], dtype=np.dtypes.StringDType()))
    (tmp_path / "a" / "words" / "c" / "0").write_bytes(b"nothing")
    job = ooc.rechunk(tmp_path / "a", ooc.Target(tmp_path / "b", zarr_format=2), memory="64MiB", scheduler="threads")
    with pytest.raises(CorruptChunkError, match=r"words.*cannot be decoded") as caught:
        job.run()
    assert "\n" not in str(caught.value)


@formats
def test_a_format_alone_on_the_command_line(tmp_path: Path, zarr_format: int) -> None:
    write(tmp_path / "a", zarr_format=5 - zarr_format)
    assert main(["rechunk", f"{tmp_path}/a", f"{tmp_path}/b", "--zarr-format", str(zarr_format), "--quiet"]) == 0
    same_in(zarr_format, tmp_path / "a", tmp_path / "b")


def test_an_array_changes_its_format_in_its_own_chunks(source: Path, tmp_path: Path) -> None:
    made = ooc.rechunk(source, ooc.Target(tmp_path / "b", zarr_format=2), memory="256MiB", scheduler="threads").run()
    before = zarr.open_array(source, mode="r")
    assert (made.chunks, zarr.open_array(tmp_path / "b", mode="r").metadata.zarr_format) == (before.chunks, 2)
    np.testing.assert_array_equal(made[...], before[...])


def test_filters_that_another_format_has_not_are_named(tmp_path: Path) -> None:
    root = zarr.create_group(tmp_path / "a", zarr_format=2)
    root.create_array("steps", data=np.arange(10), filters=[numcodecs.Delta("i8")])
    with pytest.raises(UnsupportedError, match=r"^steps: filters .* pass Target\(store, filters=\(\)\)"):
        ooc.rechunk(tmp_path / "a", ooc.Target(tmp_path / "b", zarr_format=3), scheduler="threads")
    ooc.rechunk(tmp_path / "a", ooc.Target(tmp_path / "b", zarr_format=3, filters=()), scheduler="threads").run()
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "b", mode="r")["steps"][...], np.arange(10))


# ---------------------------------------------------------------------- what cannot be done

WRONG: dict[str, tuple[dict[str, Any], type[OocError], str]] = {
    "no names": ({"chunks": (1, 2)}, ChunksError, r"is a group.*its arrays are air, crs, deep/er/air"),
    "no chunks": ({"chunks": None}, ChunksError, r"is a group.*its arrays are air"),
    "empty": ({"chunks": {}}, ChunksError, r"names no array.*its arrays are air"),
    "not there": ({"chunks": {"wind": 1}}, NotFoundError, r"no array 'wind'.*its arrays are air, crs"),
    "a group": ({"chunks": {"deep/er": 1}}, NotFoundError, r"'deep/er'.*is a group, not an array"),
    "twice": ({"chunks": {"air": -1, "/air": 3}}, ChunksError, r"'air' twice"),
    "too few": ({"chunks": {"air": (1, 2)}}, ChunksError, r"^air: chunks=\(1, 2\) has 2 axes"),
    "dimension": (
        {"chunks": {"air": {"depth": 3}}},
        ChunksError,
        r"air: .*'depth' is not one of the 3 axes.*'time', 'lat', 'lon'",
    ),
    "no fixed size": ({"chunks": {"place": 3}}, UnsupportedError, r"place has dtype"),
    "budget": ({"chunks": {"air": (24, 6, 5)}, "memory": 1000}, BudgetError, r"rechunking air needs at least"),
    "no such format": ({"zarr_format": 4}, UnsupportedError, r"^air: zarr_format=4"),
    "source itself": ({"target": "group.zarr"}, TargetError, "is the source itself"),
    "inside": ({"target": "group.zarr/deep/new"}, TargetError, "one inside the other"),
    "around": ({"target": "."}, TargetError, "one inside the other"),
    "no group": ({"target": "notes", "overwrite": True}, TargetError, "is not a Zarr group"),
}


@pytest.mark.parametrize(("options", "error", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_input_is_one_line_and_nothing_is_written(
    group: Path, tmp_path: Path, options: dict[str, Any], error: type[OocError], words: str
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("three years of work")
    before = objects(tmp_path)
    given = {"chunks": CHUNKS, "target": "new"} | options
    with pytest.raises(error, match=words) as caught:
        flat(ooc.rechunk, group, tmp_path / given.pop("target"), **given)
    assert "\n" not in str(caught.value)
    assert objects(tmp_path) == before
    assert not (tmp_path / "new").exists()


def test_chunks_of_a_group_are_nothing_for_an_array(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ChunksError, match="'air' is not one of the") as caught:
        ooc.rechunk(source, tmp_path / "b", chunks={"air": (1, 2)})
    assert "\n" not in str(caught.value)


def test_what_a_dead_run_left_is_no_source(group: Path, tmp_path: Path) -> None:
    zarr.open_group(group, mode="r+")["deep/er/air"].attrs[UNFINISHED_MARK] = "c0ffee"
    with pytest.raises(UnfinishedError, match="deep/er/air in"):
        rechunk(group, tmp_path / "b")
    zarr.open_group(group, mode="r+").attrs[UNFINISHED_MARK] = "c0ffee"
    for call in (lambda: rechunk(group, tmp_path / "b"), lambda: ooc.open_group(group)):
        with pytest.raises(UnfinishedError, match=r"is unfinished: .*resume"):
            call()


def test_a_corrupt_chunk_leaves_the_group_unfinished(group: Path, tmp_path: Path) -> None:
    (group / "deep" / "er" / "air" / "c" / "3" / "0" / "0").write_bytes(b"?")
    with pytest.raises(CorruptChunkError):
        rechunk(group, tmp_path / "b").run()
    with pytest.raises(UnfinishedError):
        ooc.open_group(tmp_path / "b")
    assert ooc.open_array(tmp_path / "b" / "air").chunks == (24, 6, 5), "it was finished before"
    assert set(os.listdir(tmp_path)) == {"group.zarr", "b"}, "scratch is gone"


# ---------------------------------------------------------------------- as it is typed


def test_on_the_command_line(group: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rechunk", str(group), str(tmp_path / "b"), "--memory", "256MiB"]
    chunks = ["--chunks", "air=24,6,5", "--chunks", "deep/er/air=time:-1,lon:4,time=time:-1"]
    assert main([*words, *chunks, "--dry-run"]) == 0
    assert not (tmp_path / "b").exists()
    assert "deep/er/air" in capsys.readouterr().out
    assert main([*words, *chunks]) == 0
    check_same(group, tmp_path / "b", rechunked=("air",))
    assert main(["rechunk", str(group), str(tmp_path / "c"), "--chunks", "time=1,nothing=3"]) == 2
    assert "no array 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["a=3,a=4"], ["a=3", "a=4"], ["3,a=4"], ["3", "4"], ["a="], ["a=x"], ["a=t:1,2"]])
def test_unreadable_chunks_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    options = [word for text in words for word in ("--chunks", text)]
    assert main(["rechunk", "no", "where", *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1


# ---------------------------------------------------------------------- which task copies what


@examples(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_arrays_of_a_group(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Some of them rechunked, some copied, in files and in memory: each holds what it held."""
    folder = tmp_path_factory.mktemp("any")
    source = zarr.create_group(folder / "a", attributes={"k": [1, "x"]})
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    wanted: dict[str, Any] = {}
    for number in range(data.draw(st.integers(1, 4))):
        name = data.draw(st.sampled_from(["", "g/", "g/h/"])) + f"v{number}"
        shape = tuple(data.draw(st.lists(st.integers(0, 9), max_size=3)))
        dtype = data.draw(st.sampled_from(["f4", "<i2", ">f8", "u1", "bool", "M8[s]"]))
        chunks = tuple(data.draw(st.integers(1, 9)) for _ in shape)
        values = rng.integers(0, 100, shape).astype(dtype)
        source.create_array(name, data=values, chunks=chunks, attributes={"n": number})
        if number == 0 or data.draw(st.booleans()):
            wanted[name] = tuple(data.draw(st.integers(1, 9)) for _ in shape)
    to = MemoryStore() if data.draw(st.booleans()) else folder / "b"
    rechunk(folder / "a", to, wanted).run()
    target = zarr.open_group(to, mode="r")
    assert target.attrs.asdict() == source.attrs.asdict()
    found = dict(source.members(max_depth=None))
    for name, node in target.members(max_depth=None):
        twin = found.pop(name)
        assert node.attrs.asdict() == twin.attrs.asdict()
        if isinstance(node, zarr.Array):
            assert node.chunks == (cut(wanted[name], twin.shape) if name in wanted else twin.chunks)
            assert node.dtype == twin.dtype
            np.testing.assert_array_equal(node[...], twin[...])
    assert found == {}


def test_the_metadata_says_what_xarray_needs(group: Path, tmp_path: Path) -> None:
    rechunk(group, tmp_path / "b").run()
    a, b = (json.loads((folder / "air" / "zarr.json").read_text()) for folder in (group, tmp_path / "b"))
    b["chunk_grid"] = a["chunk_grid"]
    assert a == b
    assert xr.open_zarr(tmp_path / "b").sizes == dict(zip(("time", "lat", "lon"), AIR, strict=True))
