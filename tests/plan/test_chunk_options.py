"""Every form of chunks means what Dask means by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import ChunksError
from oocarrays.mapping.grid import ChunkGrid
from tests.flat import flat
from tests.small import DATA, make
from tests.strategies import grids

NAMES = ("time", "lat", "lon")
F8 = np.dtype("f8")


def chunks_of(asked: Any, grid: ChunkGrid, names: tuple[str, ...] | None = None) -> tuple[int, ...]:
    """The chunks that a rechunk is planned to make of an array of eight bytes an element."""
    array = zarr.create_array({}, shape=grid.shape, chunks=grid.chunks, dtype="f8", dimension_names=names)
    how = {"memory": "64GiB", "scheduler": "threads"}
    made: tuple[int, ...] = flat(ooc.rechunk, array, MemoryStore(), chunks=asked, **how).plan.target.grid.chunks
    return made


def blocks_of(extent: int, chunk: int) -> tuple[int, ...]:
    """Lengths of blocks as Dask writes them."""
    return tuple(min(chunk, extent - at) for at in range(0, extent, chunk))


def forms(grid: ChunkGrid) -> st.SearchStrategy[Any]:
    """What may be asked for in all axes: by tuple, with blocks among them, or by dict."""
    axes = [
        st.one_of(st.none(), st.just(-1), st.integers(1, n + 2), st.integers(1, n).map(lambda c, n=n: blocks_of(n, c)))
        for n in grid.shape
    ]
    by_number = st.dictionaries(st.sampled_from(range(len(axes))), st.integers(1, 50))
    return st.one_of(st.tuples(*axes), by_number, st.just(-1), st.integers(1, 50))


@given(st.data())
def test_given_lengths_are_those_of_dasks_rechunk(data: st.DataObject) -> None:
    grid = data.draw(grids().filter(lambda grid: grid.shape and all(grid.shape)))
    asked = data.draw(forms(grid))
    there = da.zeros(grid.shape, chunks=grid.chunks)
    chunks = chunks_of(asked, grid)
    assert there.rechunk(asked).chunks == tuple(map(blocks_of, grid.shape, chunks))


@given(st.data())
def test_chosen_lengths_are_small_enough_and_fit_the_source(data: st.DataObject) -> None:
    grid = data.draw(grids().filter(lambda grid: grid.shape and all(grid.shape)))
    size = data.draw(st.sampled_from(["100B", "1kiB", "64kiB", "auto"]))
    axes = data.draw(st.lists(st.booleans(), min_size=len(grid.shape), max_size=len(grid.shape)).filter(any))
    asked = tuple(size if chosen else None for chosen in axes)
    chunks = chunks_of(asked, grid)
    kept = (min(old, n) for old, n in zip(grid.chunks, grid.shape, strict=True))
    assert all(min(c, n) == old for c, n, old, chosen in zip(chunks, grid.shape, kept, axes, strict=True) if not chosen)
    with dask.config.set({"array.chunk-size": "128MiB" if size == "auto" else size}):
        by_dask = da.zeros(grid.shape, chunks=grid.chunks).rechunk(tuple("auto" if c else None for c in axes))
    assert tuple(min(c, n) for c, n in zip(chunks, grid.shape, strict=True)) == tuple(c[0] for c in by_dask.chunks)


GRID = ChunkGrid.of((720, 180, 360), (1, 180, 360))
MEANS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "names": ({"time": -1, "lat": 20}, (720, 20, 360)),
    "a name and a number": ({"time": 24, -1: 36}, (24, 180, 36)),
    "whole maps of some size": ("32MiB", (64, 180, 360)),
    "as many maps as fit": (("auto", -1, -1), (258, 180, 360)),
    "numpy's numbers": (tuple(np.array([24, 20, 20])), (24, 20, 20)),
    "as Dask writes blocks": (((300, 300, 120), (180,), (360,)), (300, 180, 360)),
}


@pytest.mark.parametrize(("asked", "chunks"), MEANS.values(), ids=MEANS)
def test_means(asked: Any, chunks: tuple[int, ...]) -> None:
    assert chunks_of(asked, GRID, NAMES) == chunks


WRONG: dict[str, tuple[Any, str]] = {
    "no such name": ({"tim": 3}, r"'tim' is not one of the 3 axes, 0 to 2, or 'time', 'lat', 'lon'"),
    "no such axis": ({3: 3}, "3 is not one of the 3 axes"),
    "too few": ((3, 3), r"has 2 axes; the array has 3"),
    "zero": ((0, 3, 3), "at least 1"),
    "a fraction": ((1.5, 3, 3), "1.5 is not a whole number"),
    "no form": (3.5, "not whole numbers, one for each axis"),
    "no size": ("big", "'big' is not 'auto' or a size such as '128MiB'"),
    "two sizes": (("1MiB", "2MiB", -1), "sizes 1MiB, 2MiB differ"),
    "blocks of another axis": (((300, 300), 3, 3), "add up to 600; the axis has 720"),
}


@pytest.mark.parametrize(("asked", "says"), WRONG.values(), ids=WRONG)
def test_wrong_chunks_are_one_line(asked: Any, says: str) -> None:
    with pytest.raises(ChunksError, match=says) as raised:
        chunks_of(asked, GRID, NAMES)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("chunks=")


def test_shards_are_whole_chunks_and_where_chunks_are_regular_blocks_are() -> None:
    array = zarr.create_array({}, shape=GRID.shape, chunks=GRID.chunks, dtype="f8", dimension_names=NAMES)

    def shards(asked: Any, chunks: Any) -> Any:
        how: Any = {"memory": "64GiB", "scheduler": "threads", "compressors": ()}
        return flat(
            ooc.rechunk, array, ooc.Target(MemoryStore(), shards=asked), chunks=chunks, **how
        ).plan.target.grid.chunks

    with pytest.raises(ChunksError, match="must have equal length"):
        shards(((300, 120, 300), 20, 36), (60, 20, 36))
    assert shards((-1, "1MiB", 72), (24, 20, 36)) == (720, 20, 72)
    assert shards({"lat": -1}, (24, 25, 36)) == (24, 200, 36)


@pytest.mark.parametrize(
    "text", ["4,8", "-1,auto", "128MiB", "auto", "time=-1,lat=20", "0=4", "a,b", "1.5,8", "time=3,8", "time=", "=3"]
)
def test_a_command_line_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    zarr.create_array(tmp_path / "a", shape=(360, 200), dtype="f8", chunks=(10, 10), dimension_names=("time", "lat"))
    wrong = text in ("a,b", "1.5,8", "time=3,8", "time=", "=3")
    said = {"128MiB": "128MiB", "auto": "auto", "-1,auto": (-1, "auto"), "4,8": (4, 8)}
    line = ["rechunk", str(tmp_path / "a"), str(tmp_path / "b"), f"--chunks={text}", "--memory=1GiB", "--dry-run"]
    if wrong:
        assert main(line) == 2
        assert text.split(",")[-1] in capsys.readouterr().err
        return
    assert main(line) == 0
    asked = said[text] if text in said else dict(_pairs(text))
    assert ooc.rechunk(tmp_path / "a", tmp_path / "b", chunks=asked, memory="1GiB").explain() in capsys.readouterr().out


def _pairs(text: str) -> list[tuple[Any, int]]:
    named = [part.split("=") for part in text.split(",")]
    return [(int(name) if name.isdigit() else name, int(value)) for name, value in named]


def test_rechunk_takes_names_and_sizes(tmp_path: Path) -> None:
    make(tmp_path / "a", dimension_names=("y", "x"))
    assert ooc.rechunk(tmp_path / "a", tmp_path / "b", chunks={"y": -1, "x": 5}).plan.target.grid.chunks == (96, 5)
    a = ooc.rechunk(tmp_path / "a", tmp_path / "b", chunks="16kiB", memory="64MiB").run()
    assert a.chunks == (48, 80)
    np.testing.assert_array_equal(a[...], DATA)


def test_to_dask_takes_blocks_as_rechunk_takes_chunks(tmp_path: Path) -> None:
    a = ooc.open_array(make(tmp_path / "a", dimension_names=("y", "x")))
    x = a.to_dask({"y": 32})
    assert (x.chunks, x.dtype) == (((32, 32, 32), (80,)), a.dtype)
    np.testing.assert_array_equal(x.compute(scheduler="synchronous"), DATA)
    assert x.name == ooc.open_array(tmp_path / "a").to_dask({"y": 32}).name
    assert len({x.name, a.to_dask().name, a.to_dask("auto").name}) == 3
    assert a.to_dask().chunks == ((8,) * 12, (80,))
    assert a.to_dask((12, -1)).chunks == ((12,) * 8, (80,))


# ---------------------------------------------------------------------- longer than the array

CUT = "chunks are no longer than the array: 1000 along y is cut to 96"
LONG: dict[str, Any] = {"chunks": {"y": 1000, "x": 5}, "memory": "64MiB", "scheduler": "threads"}


def _jobs(tmp_path: Path) -> dict[str, Any]:
    z = make(tmp_path / "a", dimension_names=("y", "x"))
    lazy, target = da.from_array(DATA, chunks=(8, 80)), str(tmp_path / "t")
    return {
        "rechunk": lambda: flat(ooc.rechunk, z, target, **LONG),
        "from_dask": lambda: flat(ooc.rechunk, lazy, ooc.Target(target, dimension_names=("y", "x")), **LONG),
        "map_slabs": lambda: flat(ooc.map_slabs, np.sqrt, z, target, **LONG),
        "gather_files": lambda: flat(ooc.ranks.gather_files, _scattered(z, tmp_path, {}).run(), target, **LONG),
        "scatter_files": lambda: _scattered(z, tmp_path, LONG),
    }


def _scattered(z: Any, tmp_path: Path, how: dict[str, Any]) -> Any:
    how = {"scheduler": "threads"} | how
    return flat(ooc.ranks.scatter_files, z, "(*, block)", tmp_path / "parts", ranks=2, **how)


@pytest.mark.parametrize("name", ["rechunk", "from_dask", "map_slabs", "gather_files", "scatter_files"])
def test_chunks_longer_than_the_array_are_cut_and_that_is_said(name: str, tmp_path: Path) -> None:
    job = _jobs(tmp_path)[name]()
    assert job.notices == (CUT,)
    assert CUT in job.explain().splitlines()
    made = job.run()
    made = made.local(0).zarr if name == "scatter_files" else made
    assert made.chunks == (96, 5)


def test_shards_are_cut_to_whole_chunks(tmp_path: Path) -> None:
    job = ooc.rechunk(
        make(tmp_path / "a"), ooc.Target(tmp_path / "t", shards=(1000, 20)), chunks=(10, 10), scheduler="threads"
    )
    assert job.notices == ("shards are no longer than the array: 1000 along axis 0 is cut to 96",)
    target = job.run()
    assert (target.chunks, target.shards) == ((10, 10), (100, 20))
    np.testing.assert_array_equal(target[...], DATA)


def test_datasets_and_groups_say_it_of_each_array(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    ds = xr.Dataset({"t": (("y", "x"), DATA), "u": ("x", DATA[0])})
    lazy = flat(ooc.rechunk, ds, tmp_path / "g", **LONG)
    assert lazy.notices == (f"t: {CUT}",)
    lazy.run()
    group = flat(ooc.rechunk, tmp_path / "g", tmp_path / "h", **LONG)
    assert f"t: {CUT}" in group.notices
    assert group.run()["t"].chunks == (96, 5)


def test_an_array_that_is_made_is_cut_and_one_that_is_to_grow_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = ooc.create_array(tmp_path / "a", shape=(96, 80), dtype="f4", chunks=(1000, 80))
    assert made.chunks == (96, 80)
    assert "1000 along axis 0 is cut to 96" in caplog.text
    caplog.clear()
    assert ooc.create_array(tmp_path / "b", shape=(0, 80), dtype="f4", chunks=(1000, 80)).chunks == (1000, 80)
    assert not caplog.records


def test_what_the_source_has_stays(tmp_path: Path) -> None:
    make(tmp_path / "a", chunks=(1000, 80))
    job = ooc.rechunk(tmp_path / "a", tmp_path / "t", chunks={1: 5}, memory="64MiB", scheduler="threads")
    assert (job.plan.target.grid.chunks, job.notices) == ((1000, 5), ())


def test_the_command_line_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "a", dimension_names=("y", "x"))
    assert main(["rechunk", str(tmp_path / "a"), str(tmp_path / "t"), "--chunks", "y=1000,x=5"]) == 0
    assert CUT in capsys.readouterr().out.splitlines()
