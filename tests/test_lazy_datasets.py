"""xarray's datasets and arrays are written as xarray would write them, in other chunks, each block computed once."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import ChunksError, InputError, PlacementError, TargetError, UnsupportedError
from tests.flat import flat
from tests.graphs.clusters import within
from tests.profiles import examples
from tests.seams import UNFINISHED_MARK, unfinished_run

xr = pytest.importorskip("xarray")
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),  # of text in format 3
    pytest.mark.filterwarnings("ignore:Consolidated metadata:UserWarning"),
]
MEMORY = "128MiB"
HOURS = np.datetime64("2000-01-01", "ns") + np.arange(240).astype("m8[h]").reshape(30, 8)


def dataset() -> Any:
    """Packed numbers, times, text, a scalar, coordinates with and without an index, attributes everywhere."""
    maps = np.random.default_rng(0).random((30, 8, 6))
    made = xr.Dataset(
        {
            "air": (("time", "lat", "lon"), maps, {"units": "K"}),
            "count": (("time", "lat"), np.arange(240).reshape(30, 8)),
            "when": (("time", "lat"), HOURS),
            "label": (("lat",), np.array(list("abcdefgh"))),
            "wet": (("time",), np.arange(30) % 3 == 0),
            "one": ((), 3.5, {"long_name": "a scalar"}),
        },
        coords={
            "time": HOURS[:, 0],
            "lat": ("lat", np.arange(8.0), {"units": "degrees_north"}),
            "area": (("lat", "lon"), np.ones((8, 6))),
        },
        attrs={"title": "of a test", "years": [2000, 2001]},
    )
    made.air.encoding = {"dtype": "i2", "scale_factor": 0.001, "_FillValue": -1}
    made.when.encoding = {"units": "minutes since 1999-01-01", "dtype": "i8"}
    return made


def by_xarray(ds: Any, path: Path, zarr_format: int = 3) -> Any:
    """The same, written by xarray."""
    ds.to_zarr(path, zarr_format=zarr_format)
    return xr.open_zarr(path)


ASKED = {
    "as it is": None,
    "by dimension": {"time": -1, "lat": 2},
    "by variable": {"air": (30, 2, 3), "count": {"lat": 1}, "label": 3},
    "both": {"air": (30, 2, 3), "time": 10},
    "by size": "1kiB",
}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("chunks", ASKED.values(), ids=ASKED)
def test_what_is_opened_is_what_was_given(tmp_path: Path, chunks: Any, zarr_format: Any) -> None:
    ds = dataset().chunk(time=7)
    job = ooc.rechunk(ds, ooc.Target(tmp_path / "a.zarr", zarr_format=zarr_format), chunks=chunks, memory=MEMORY)
    assert not list(tmp_path.iterdir())
    a = job.run()
    assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]
    expected = by_xarray(ds, tmp_path / "b.zarr", zarr_format)
    xr.testing.assert_identical(a.load(), expected.load())
    xr.testing.assert_identical(xr.open_zarr(tmp_path / "a.zarr", consolidated=True).load(), expected)
    ours, theirs = zarr.open_group(tmp_path / "a.zarr"), zarr.open_group(tmp_path / "b.zarr")
    for name, array in ours.arrays():
        same = {"fill_value", "data_type", "dtype", "attributes", "dimension_names", "codecs", "compressor"}
        mine, other = array.metadata.to_dict(), theirs[name].metadata.to_dict()
        assert {k: str(mine[k]) for k in same & mine.keys()} == {k: str(other[k]) for k in same & other.keys()}
    assert UNFINISHED_MARK not in ours.attrs


def test_chunks_are_those_asked_for(tmp_path: Path) -> None:
    asked = {"air": (30, 2, 3), "time": 10, "label": 3}
    ooc.rechunk(dataset().chunk(time=7), tmp_path / "a.zarr", chunks=asked, memory=MEMORY).run()
    group = zarr.open_group(tmp_path / "a.zarr")
    chunks = {name: group[name].chunks for name in ("air", "count", "when", "label")}
    assert chunks == {"air": (30, 2, 3), "count": (10, 8), "when": (10, 8), "label": (3,)}


def test_what_several_variables_are_computed_from_is_computed_once(tmp_path: Path) -> None:
    times: Counter[tuple[int, ...]] = Counter()
    lock = threading.Lock()

    def block(block_id: Any = None) -> np.ndarray:
        with lock:
            times[block_id] += 1
        return np.full((10, 4), block_id[0], "f4")

    x = da.map_blocks(block, chunks=((10,) * 3, (4,) * 2), dtype="f4", meta=np.empty(0, "f4"))
    ds = xr.Dataset({"a": (("y", "x"), x), "b": (("y", "x"), x + 1), "c": ("x", x.sum(axis=0))})
    out = ooc.rechunk(ds, tmp_path / "a.zarr", chunks={"a": (30, 1), "b": (10, 4)}, memory=MEMORY).run()
    xr.testing.assert_identical(out.load(), ds.load())
    assert (len(times), set(times.values())) == (6, {2})  # once by us, once by load


@examples(15)
@given(st.data())
def test_any_array_in_any_blocks(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 12)))
    values = np.arange(np.prod(shape)).reshape(shape).astype(data.draw(st.sampled_from(["f4", "i8", "M8[ns]", "?"])))
    array = xr.DataArray(values, dims=("y", "x"), name=data.draw(st.sampled_from([None, "v"])), attrs={"a": 1})
    lazy = array.chunk(y=data.draw(st.integers(1, 12)), x=data.draw(st.integers(1, 12)))
    chunks = {"y": data.draw(st.integers(1, 12)), "x": data.draw(st.sampled_from([-1, 3]))}
    folder = tmp_path_factory.mktemp("any")
    out = ooc.rechunk(lazy, folder / "a.zarr", chunks=chunks, memory=MEMORY).run()
    xr.testing.assert_identical(out.load(), array)
    assert out.name == array.name


def test_a_dask_array_goes_to_from_dask(tmp_path: Path) -> None:
    x = da.arange(100, chunks=7)
    (a,) = dask.compute(ooc.rechunk(x, tmp_path / "a", chunks=10, memory=MEMORY))
    np.testing.assert_array_equal(a[...], np.arange(100))


def raises(block: np.ndarray) -> np.ndarray:
    raise ZeroDivisionError("of the user")


def test_a_dataset_that_fails_is_left_unfinished(tmp_path: Path) -> None:
    ds = dataset().chunk(time=7)
    ds["bad"] = ("time", ds.wet.data.map_blocks(raises, dtype=bool, meta=np.empty(0, bool)))
    job = ooc.rechunk(ds, tmp_path / "a.zarr", chunks={"time": -1}, memory=MEMORY)
    with pytest.raises(ZeroDivisionError, match="of the user"):
        job.run()
    assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]
    with pytest.raises(FileNotFoundError):
        zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert unfinished_run(tmp_path / "a.zarr")
    with pytest.raises(TargetError, match="exists"):
        ooc.rechunk(ds, tmp_path / "a.zarr")


WRONG: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "unknown name": (dataset, {"chunks": {"wind": 3}}, ChunksError, "'wind' is neither a variable nor a dimension"),
    "bad chunks": (dataset, {"chunks": {"air": (3, 3)}}, ChunksError, "has 2 axes; the array has 3"),
    "ranks": (dataset, {"ranks": 3}, UnsupportedError, "ranks=3 is for stored arrays"),
    "codecs": (dataset, {"compressors": ()}, UnsupportedError, "comes from its variables' encoding"),
    "another collection": (lambda: dask.delayed(3), {}, InputError, "is not a dask.array.Array"),
}


@pytest.mark.parametrize(("source", "options", "error", "says"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_one_line(tmp_path: Path, source: Any, options: Any, error: Any, says: str) -> None:
    given = source()
    with pytest.raises(error, match=says) as raised:
        flat(ooc.rechunk, given.chunk(time=7) if hasattr(given, "dims") else given, tmp_path / "a.zarr", **options)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_an_existing_target_is_kept_unless_it_may_be_replaced(tmp_path: Path) -> None:
    ds = by_xarray(dataset(), tmp_path / "a.zarr")
    with pytest.raises(TargetError, match=r"exists; pass overwrite=True \(--overwrite\) to replace it"):
        ooc.rechunk(ds, tmp_path / "a.zarr")
    (tmp_path / "text").mkdir()
    (tmp_path / "text/thesis.tex").write_text("x")
    with pytest.raises(TargetError, match="exists and is not a Zarr group; it is not overwritten"):
        ooc.rechunk(ds, tmp_path / "text", overwrite=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(TargetError, match="exists and is not a Zarr group; it is not overwritten"):
        ooc.rechunk(ds, tmp_path / "file", overwrite=True)
    assert (tmp_path / "file").read_text() == "x"
    xr.testing.assert_identical(xr.open_zarr(tmp_path / "a.zarr").load(), ds.load())


@pytest.mark.parametrize("blocks", [{}, None], ids=["dask", "in memory when it is read"])
def test_a_dataset_replaces_what_it_is_computed_from(tmp_path: Path, blocks: Any) -> None:
    wanted = by_xarray(dataset(), tmp_path / "a.zarr").load()
    for chunks in ((30, 2, 3), (10, 4, 3)):
        source, wanted = xr.open_zarr(tmp_path / "a.zarr", chunks=blocks), wanted.assign(air=wanted.air * 2)
        twice = source.assign(air=source.air * 2)
        job = ooc.rechunk(twice, tmp_path / "a.zarr", chunks={"air": chunks}, overwrite=True, memory=MEMORY)
        xr.testing.assert_allclose(job.run().load(), wanted)
        xr.testing.assert_allclose(xr.open_zarr(tmp_path / "a.zarr").load(), wanted)
    assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]


@pytest.mark.parametrize("kind", ["memory", "url", "path in a store"])
def test_a_dataset_is_written_to_any_store(kind: str, tmp_path: Path) -> None:
    target: Any = {
        "memory": zarr.storage.MemoryStore(),
        "url": "memory://datasets/any.zarr",
        "path in a store": zarr.storage.StorePath(zarr.storage.MemoryStore(), "deep/a"),
    }[kind]
    ds = by_xarray(dataset(), tmp_path / "a.zarr").load()
    for overwrite in (False, True):
        job = ooc.rechunk(ds.chunk(time=7), target, chunks={"air": (30, 2, 3)}, overwrite=overwrite, memory=MEMORY)
        found = job.run()
        assert found.air.encoding["chunks"] == (30, 2, 3)
        xr.testing.assert_identical(found.load(), ds)
    with pytest.raises(TargetError, match="exists"):
        ooc.rechunk(ds.chunk(time=7), target)


def test_on_workers(two: Client, tmp_path: Path) -> None:
    ds = by_xarray(dataset(), tmp_path / "source.zarr").chunk(time=7)
    job = ooc.rechunk(ds, tmp_path / "a.zarr", chunks={"air": (30, 2, 3), "count": {"lat": 1}}, memory=MEMORY)
    out = within(job.run)
    xr.testing.assert_identical(out.load(), ds.load())
    with pytest.raises(PlacementError, match="in this process's memory"):
        ooc.rechunk(ds, zarr.storage.MemoryStore(), memory=MEMORY).run()
    again = ooc.rechunk(
        out,
        tmp_path / "a.zarr",
        chunks={"air": (10, 4, 3)},
        overwrite=True,
        memory=MEMORY,
        resources=ooc.Resources(scratch=tmp_path),
    )
    xr.testing.assert_identical(within(again.run).load(), ds.load())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zarr", "source.zarr"]
    assert job.meter.write_requests + job.meter.skipped_chunks == job.plan.traffic.write_requests


@pytest.mark.parametrize("kind", ["dataset", "array", "coordinates only"])
def test_what_is_in_memory_is_a_source_too(tmp_path: Path, kind: str) -> None:
    air = np.random.default_rng(0).random((20, 10))
    ds = xr.Dataset(
        {"air": (("time", "lat"), air, {"units": "K"})}, {"time": np.arange(20), "name": ("lat", list("abcdefghij"))}
    )
    source = {"dataset": ds, "array": ds.air, "coordinates only": ds.drop_vars("air")}[kind]
    chunks = {"time": -1, "lat": 5} if kind != "coordinates only" else None
    ooc.rechunk(source, tmp_path / "a.zarr", chunks=chunks, memory="64MiB").run()
    found = xr.open_zarr(tmp_path / "a.zarr")
    assert found.load().identical(ds if kind == "array" else source)
    if kind != "coordinates only":
        assert found.air.encoding["chunks"] == (20, 5)
