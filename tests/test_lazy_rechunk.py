"""Lazy arrays in other chunks without a target: against numpy, each block computed once, scratch gone in the end."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, strategies as st

import oocarrays as ooc
from oocarrays.errors import BudgetError, ChunksError, InputError, RunError, UnsupportedError
from tests.flat import flat
from tests.graphs.clusters import cluster, until, within
from tests.profiles import examples

pytestmark = pytest.mark.long

HERE: dict[str, Any] = {"scheduler": "threads", "memory": "64MiB"}
CALLS: Counter[tuple[int, ...]] = Counter()


def left(folder: Path) -> list[str]:
    gc.collect()
    return sorted(os.listdir(folder))


@st.composite
def blocks_of(draw: st.DrawFn, extent: int) -> list[int]:
    """Lengths of any blocks along an axis."""
    ends = sorted(draw(st.sets(st.integers(1, max(extent - 1, 1)), max_size=4))) if extent > 1 else []
    return np.diff([0, *ends, extent]).tolist()


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), shape=st.lists(st.integers(0, 9), min_size=0, max_size=3).map(tuple))
def test_any_blocks_become_any_chunks(tmp_path: Path, data: st.DataObject, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 99, shape).astype(data.draw(st.sampled_from(["i2", ">f8", "c8"])))
    blocks = tuple(tuple(data.draw(blocks_of(n))) for n in shape)
    chunks = tuple(data.draw(st.integers(1, 10)) for _ in shape)
    x = da.from_array(values, chunks=blocks or -1)
    y = ooc.rechunk(x, chunks=chunks, resources=ooc.Resources(scratch=tmp_path), **HERE)
    assert y.chunks == x.rechunk(chunks).chunks
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y.compute(scheduler="threads"), values)
    some = tuple(slice(None, None, 2) for _ in shape)
    np.testing.assert_array_equal((y[some] + 1).compute(scheduler="threads"), values[some] + 1)
    del y
    assert left(tmp_path) == []


def counted(block: np.ndarray, block_info: Any = None) -> np.ndarray:
    CALLS[block_info[None]["chunk-location"]] += 1
    return block + 1


def test_blocks_are_computed_once_and_scratch_goes_with_what_needs_it(tmp_path: Path) -> None:
    values = np.arange(60.0 * 40).reshape(60, 40)
    CALLS.clear()
    x = da.from_array(values, chunks=(7, 40)).map_blocks(counted, meta=values[:0, :0])
    y = ooc.rechunk(x, chunks=(60, 3), resources=ooc.Resources(scratch=tmp_path), **HERE)
    assert left(tmp_path) != []
    z = y.map_overlap(lambda block: block * 2, depth=1, boundary="reflect")
    del y
    np.testing.assert_array_equal(z.compute(scheduler="threads"), (values + 1) * 2)
    assert set(CALLS.values()) == {1}
    assert len(CALLS) == 9
    np.testing.assert_array_equal(z.compute(scheduler="threads"), (values + 1) * 2, "once more")
    del z
    assert left(tmp_path) == []


def test_a_pipeline_has_several(tmp_path: Path) -> None:
    x = da.random.default_rng(0).random((200, 160), chunks=(20, 160))
    expected = np.fft.fft2(x.compute(scheduler="threads"))
    rows = da.fft.fft(x, axis=1)
    columns = da.fft.fft(ooc.rechunk(rows, chunks=(-1, 16), resources=ooc.Resources(scratch=tmp_path), **HERE), axis=0)
    again = ooc.rechunk(columns, chunks={0: 20, 1: -1}, resources=ooc.Resources(scratch=tmp_path), **HERE)
    made = ooc.rechunk(again, tmp_path / "a.zarr", scheduler="threads").run()
    np.testing.assert_allclose(made[...], expected)
    del rows, columns, again
    assert left(tmp_path) == ["a.zarr"]


def test_xarrays_objects_keep_all_but_their_chunks(tmp_path: Path) -> None:
    ds = xr.Dataset(
        {"air": (("time", "lat"), np.arange(60.0).reshape(12, 5), {"units": "K"}), "rain": ("time", np.arange(12))},
        coords={"time": np.arange(12), "lat": np.arange(5), "height": ("lat", np.arange(5) * 2)},
        attrs={"title": "a test"},
    )
    made = ooc.rechunk(
        ds.chunk(time=2), chunks={"time": -1, "lat": 2}, resources=ooc.Resources(scratch=tmp_path), **HERE
    )
    assert (made.air.chunks, made.rain.chunks) == (((12,), (2, 2, 1)), ((12,),))
    xr.testing.assert_identical(made.compute(scheduler="threads"), ds)
    array = ooc.rechunk(ds.air.chunk(time=2), chunks={"time": 6}, resources=ooc.Resources(scratch=tmp_path), **HERE)
    assert array.chunks == ((6, 6), (5,))
    xr.testing.assert_identical(array.compute(scheduler="threads"), ds.air)
    with pytest.raises(ChunksError, match="'depth' is not a dimension; the dimensions are"):
        ooc.rechunk(ds.chunk(time=2), chunks={"depth": 1})


@pytest.mark.parametrize("chunks", [((3, 5, 2), (7,)), ((1, 9), (2, 4, 1)), {0: (2, 3, 5)}, ((10,), (1, 6))], ids=str)
def test_blocks_may_be_of_unequal_lengths(tmp_path: Path, chunks: Any) -> None:
    x = da.arange(70, chunks=70).reshape(10, 7).rechunk((3, 2))
    expected = x.rechunk(chunks)
    made = ooc.rechunk(x, chunks=chunks, resources=ooc.Resources(scratch=tmp_path), **HERE)
    assert made.chunks == expected.chunks
    np.testing.assert_array_equal(made.compute(**HERE), expected.compute(**HERE))
    one = da.arange(10, chunks=4)
    np.testing.assert_array_equal(ooc.rechunk(one, chunks=((3, 5, 2),), **HERE).compute(**HERE), np.arange(10))
    assert ooc.rechunk(one, chunks=((3, 5, 2),), **HERE).chunks == ((3, 5, 2),)


def test_without_chunks_nothing_moves(tmp_path: Path) -> None:
    x = da.ones((6, 4), chunks=((1, 5), 2))
    assert ooc.rechunk(x, chunks=None, resources=ooc.Resources(scratch=tmp_path), **HERE) is x
    assert ooc.rechunk(x, chunks=x.chunks, resources=ooc.Resources(scratch=tmp_path), **HERE).name == x.name
    assert not list(tmp_path.iterdir())


WRONG: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "stored": ("a.zarr", {"chunks": 3}, InputError, r"to_dask\(chunks=…\) reads each byte once"),
    "blocks that do not add up": (da.zeros(9, chunks=2), {"chunks": ((3, 5),)}, ChunksError, "add up to 8"),
    "of a target": (da.zeros(9, chunks=2), {"chunks": 3, "overwrite": True}, InputError, "overwrite=True is for a"),
    "too many axes": (da.zeros(9, chunks=2), {"chunks": (3, 3)}, ChunksError, "has 2 axes"),
    "objects": (da.zeros(9, chunks=2).astype(object), {"chunks": 3}, UnsupportedError, "no fixed size"),
    "a store": (da.zeros(9, chunks=2), {"chunks": 3, "scratch": "s3://a/b"}, UnsupportedError, "in a local folder"),
    "budget": (da.zeros(2**20, chunks=2**19), {"chunks": 2**18, "memory": 1000}, BudgetError, "writing the blocks"),
}  # fmt: skip


@pytest.mark.parametrize(("x", "how", "error", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_input_is_one_line(x: Any, how: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        flat(ooc.rechunk, x, **{"scheduler": "threads", **how})
    assert "\n" not in str(caught.value)


def test_what_is_lost_of_scratch_is_never_taken_for_zeros(tmp_path: Path) -> None:
    y = ooc.rechunk(da.ones((8, 8), chunks=(2, 8)), chunks=(8, 2), resources=ooc.Resources(scratch=tmp_path), **HERE)
    (staged,) = tmp_path.iterdir()

    def lose(block: np.ndarray) -> np.ndarray:
        (staged / "staged" / "c" / "0" / "3").unlink(missing_ok=True)
        return block

    first = y[:, :2].map_blocks(lose)
    with pytest.raises(RunError, match="has lost stored blocks"):
        da.concatenate([first, y[:, 6:] + first.sum()], axis=1).compute(scheduler="sync")


def test_on_workers_of_which_one_dies(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((400, 300))
    with cluster(2):

        def kill_one(block: np.ndarray, block_info: Any = None) -> np.ndarray:
            """Kill the worker that takes the third chunk, the first time."""
            if block_info[None]["chunk-location"] == (0, 2) and not os.path.exists(f"{tmp_path}/died"):
                open(f"{tmp_path}/died", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            return block + 1

        y = ooc.rechunk(
            da.from_array(values, chunks=(100, 300)), chunks=(-1, 50), resources=ooc.Resources(scratch=tmp_path)
        )
        z = y.map_blocks(kill_one, meta=values[:0, :0])
        np.testing.assert_array_equal(within(z.compute), values + 1)
        kept = (z * 2).persist()
        del y, z
        np.testing.assert_array_equal(within(kept.compute), (values + 1) * 2)
        del kept
        until(lambda: left(tmp_path) == ["died"], 20)
