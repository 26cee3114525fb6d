"""Every form of chunks means what Dask means by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oocarrays as ooc
from oocarrays.errors import ChunksError
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.options.chunks import ChunksLike, blocks_of, parsed_chunks, regular_chunks, regular_shards
from tests.small import DATA, make
from tests.strategies import grids

NAMES = ("time", "lat", "lon")
F8 = np.dtype("f8")


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
    chunks = regular_chunks(asked, grid, F8)
    assert there.rechunk(asked).chunks == tuple(map(blocks_of, grid.shape, chunks))


@given(st.data())
def test_chosen_lengths_are_small_enough_and_fit_the_source(data: st.DataObject) -> None:
    grid = data.draw(grids().filter(lambda grid: grid.shape and all(grid.shape)))
    size = data.draw(st.sampled_from(["100B", "1kiB", "64kiB", "auto"]))
    axes = data.draw(st.lists(st.booleans(), min_size=len(grid.shape), max_size=len(grid.shape)).filter(any))
    asked = tuple(size if chosen else None for chosen in axes)
    chunks = regular_chunks(asked, grid, F8)
    assert all(c == old for c, old, chosen in zip(chunks, grid.chunks, axes, strict=True) if not chosen)
    with dask.config.set({"array.chunk-size": "128MiB" if size == "auto" else size}):
        by_dask = da.zeros(grid.shape, chunks=grid.chunks).rechunk(tuple("auto" if c else None for c in axes))
    assert tuple(min(c, n) for c, n in zip(chunks, grid.shape, strict=True)) == tuple(c[0] for c in by_dask.chunks)


GRID = ChunkGrid.of((720, 180, 360), (1, 180, 360))
MEANS: dict[str, tuple[ChunksLike, tuple[int, ...]]] = {
    "names": ({"time": -1, "lat": 20}, (720, 20, 360)),
    "a name and a number": ({"time": 24, -1: 36}, (24, 180, 36)),
    "whole maps of some size": ("32MiB", (64, 180, 360)),
    "as many maps as fit": (("auto", -1, -1), (258, 180, 360)),
    "numpy's numbers": (tuple(np.array([24, 20, 20])), (24, 20, 20)),
    "as Dask writes blocks": (((300, 300, 120), (180,), (360,)), (300, 180, 360)),
}


@pytest.mark.parametrize(("asked", "chunks"), MEANS.values(), ids=MEANS)
def test_means(asked: ChunksLike, chunks: tuple[int, ...]) -> None:
    assert regular_chunks(asked, GRID, F8, NAMES) == chunks


WRONG: dict[str, tuple[Any, str]] = {
    "no such name": ({"tim": 3}, r"'tim' is no axis .* 0 to 2, or by name 'time', 'lat', 'lon'"),
    "no such axis": ({3: 3}, "3 is no axis"),
    "too few": ((3, 3), r"has 2 axes; the array has 3"),
    "zero": ((0, 3, 3), "at least 1"),
    "a fraction": ((1.5, 3, 3), "1.5 is not a whole number"),
    "no form": (3.5, "not whole numbers, one for each axis"),
    "no size": ("big", "'big' is not 'auto' or a size such as '128MiB'"),
    "two sizes": (("1MiB", "2MiB", -1), "sizes 1MiB, 2MiB differ"),
    "uneven blocks": (((300, 120, 300), 3, 3), "not all of one length"),
    "blocks of another axis": (((300, 300), 3, 3), "add up to 600; the axis has 720"),
}


@pytest.mark.parametrize(("asked", "says"), WRONG.values(), ids=WRONG)
def test_wrong_chunks_are_one_line(asked: Any, says: str) -> None:
    with pytest.raises(ChunksError, match=says) as raised:
        regular_chunks(asked, GRID, F8, NAMES)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("chunks=")


def test_shards_are_whole_chunks() -> None:
    assert regular_shards((-1, "1MiB", 72), (24, 20, 36), GRID.shape, F8) == (720, 20, 72)
    assert regular_shards({"lat": -1}, (24, 25, 36), GRID.shape, F8, NAMES) == (24, 200, 36)


@pytest.mark.parametrize("text", ["", ",", "4,8", "-1,auto", "128MiB", "auto", "time=-1,lat=20", "0=4"])
def test_a_command_line_says_the_same(text: str) -> None:
    said = {"128MiB": "128MiB", "auto": "auto", "-1,auto": (-1, "auto"), "4,8": (4, 8), "": (), ",": ()}
    assert parsed_chunks(text) == (said[text] if text in said else dict(_pairs(text)))


def _pairs(text: str) -> list[tuple[Any, int]]:
    named = [part.split("=") for part in text.split(",")]
    return [(int(name) if name.isdigit() else name, int(value)) for name, value in named]


@pytest.mark.parametrize("text", ["a,b", "1.5,8", "time=3,8", "time=", "=3"])
def test_what_a_command_line_cannot_mean(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parsed_chunks(text)


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
