"""Lazy arrays are written as they are, each block computed once, whatever their blocks and the target's chunks."""

from __future__ import annotations

import json
import threading
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask.callbacks import Callback
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import (
    BudgetError,
    ChunksError,
    InputError,
    NotFoundError,
    RunError,
    TargetError,
    UnfinishedError,
    UnsupportedError,
)
from tests.flat import flat
from tests.profiles import examples
from tests.seams import replace_step
from tests.strategies import chunks_for, cut, shapes

MEMORY = "128MiB"
DTYPES = ["f4", "<f8", ">i2", "u1", "?", "c8", "i8"]


@st.composite
def block_lengths(draw: st.DrawFn, extent: int) -> tuple[int, ...]:
    """Any lengths that add up to an extent, of none too."""
    cuts = sorted(draw(st.lists(st.integers(0, extent), max_size=4)))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, extent], strict=True))


class Counted:
    """Blocks of an array, counted as they are computed."""

    def __init__(self, data: np.ndarray, blocks: tuple[tuple[int, ...], ...]) -> None:
        self.data = data
        self.times: Counter[tuple[tuple[int, int], ...]] = Counter()
        self._lock = threading.Lock()
        self.lazy = da.map_blocks(self._block, dtype=data.dtype, chunks=blocks, meta=np.empty(0, data.dtype))
        self.blocks = len(list(product(*blocks)))

    def _block(self, block_info: Any = None) -> np.ndarray:
        place = tuple(map(tuple, block_info[None]["array-location"]))
        with self._lock:
            self.times[(*place, tuple(block_info[None]["chunk-location"]))] += 1
        return self.data[tuple(slice(*axis) for axis in place)]


def data_of(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 200, shape).astype(dtype)


@examples(30)
@given(st.data())
def test_any_blocks_into_any_chunks(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    shape = data.draw(shapes(3, 4000))
    blocks = tuple(data.draw(block_lengths(n)) for n in shape)
    chunks = data.draw(chunks_for(shape))
    counted = Counted(data_of(shape, data.draw(st.sampled_from(DTYPES))), blocks)
    folder = tmp_path_factory.mktemp("any")
    codecs = data.draw(st.sampled_from([(), None]))
    job = ooc.rechunk(counted.lazy, ooc.Target(folder / "a", compressors=codecs), chunks=chunks, memory=MEMORY)
    a = job.run()
    np.testing.assert_array_equal(a[...], counted.data)
    np.testing.assert_array_equal(zarr.open_array(folder / "a")[...], counted.data)
    assert a.chunks == cut(chunks, shape)
    assert set(counted.times.values()) <= {1}
    assert len(counted.times) == (counted.blocks if counted.data.size else 0)
    assert [path.name for path in folder.iterdir()] == ["a"]
    if counted.data.size:
        assert job.meter.write_requests + job.meter.skipped_chunks == job.plan.traffic.write_requests


FIELD = np.arange(60 * 50, dtype="f4").reshape(60, 50)


def field(blocks: Any = ((7, 13, 40), (50,))) -> da.Array:
    return da.from_array(FIELD, chunks=blocks)


def test_chunks_are_the_longest_blocks_and_forms_are_dasks(tmp_path: Path) -> None:
    plan = ooc.rechunk(field(), tmp_path / "a", memory=MEMORY).plan
    assert plan.rechunk.target.grid.chunks == (40, 50)
    chosen = ooc.rechunk(
        field(), ooc.Target(tmp_path / "a", dimension_names=("y", "x")), chunks={"y": -1, 1: 5}, memory=MEMORY
    )
    assert chosen.plan.rechunk.target.grid.chunks == (60, 5)


def test_shards_have_one_writer(tmp_path: Path) -> None:
    regular = field((20, 50))
    job = ooc.rechunk(regular, ooc.Target(tmp_path / "a", shards=(20, 50)), chunks=(5, 10), memory=MEMORY)
    assert (job.plan.aligned, job.plan.pieces) == (True, 3)
    a = job.run()
    assert a.zarr.shards == (20, 50)
    np.testing.assert_array_equal(a[...], FIELD)
    across = ooc.rechunk(regular, ooc.Target(tmp_path / "b", shards=(30, 50)), chunks=(5, 10), memory=MEMORY)
    assert not across.plan.aligned


def test_what_is_said_of_the_target_is_kept(tmp_path: Path) -> None:
    a = ooc.rechunk(
        field(),
        ooc.Target(tmp_path / "a", attributes={"units": "K"}, dimension_names=("y", "x"), fill_value=7),
        memory=MEMORY,
    ).run()
    assert (a.attrs, a.dimension_names, a.fill_value) == ({"units": "K"}, ("y", "x"), 7)


@pytest.mark.parametrize("chunks", [(20, 50), (60, 5)], ids=["aligned", "joined"])
def test_dask_computes_it_too(tmp_path: Path, chunks: Any) -> None:
    job = ooc.rechunk(field((20, 50)), tmp_path / "a", chunks=chunks, memory=MEMORY)
    assert not list(tmp_path.iterdir())
    (a,) = dask.compute(job)
    np.testing.assert_array_equal(a[...], FIELD)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_target_that_is_read_may_be_replaced(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a", data=FIELD, chunks=(10, 50))
    x = da.from_zarr(zarr.open_array(tmp_path / "a", mode="r")) + 1
    with pytest.raises(TargetError, match="pass overwrite=True"):
        ooc.rechunk(x, tmp_path / "a")
    a = ooc.rechunk(x, tmp_path / "a", overwrite=True, memory=MEMORY).run()
    np.testing.assert_array_equal(a[...], FIELD + 1)


def fails(block: np.ndarray, block_id: Any = None) -> np.ndarray:
    if block_id == (2, 0):
        raise ZeroDivisionError("of the user")
    return block


@pytest.mark.parametrize("chunks", [(20, 50), (60, 5)], ids=["aligned", "joined"])
def test_a_block_that_fails_leaves_nothing_that_looks_finished(tmp_path: Path, chunks: Any) -> None:
    x = field((20, 50)).map_blocks(fails, dtype="f4", meta=np.empty(0, "f4"))
    with pytest.raises(ZeroDivisionError, match="of the user"):
        ooc.rechunk(x, tmp_path / "a", chunks=chunks, memory=MEMORY).run()
    left = [path.name for path in tmp_path.iterdir()]
    if left:
        assert left == ["a"]
        with pytest.raises(UnfinishedError):
            ooc.open_array(tmp_path / "a")
        with pytest.raises(NotFoundError, match="from a lazy array, whose blocks are not kept: pass overwrite=True"):
            ooc.resume(tmp_path / "a")
    again = ooc.rechunk(field((20, 50)), tmp_path / "a", chunks=chunks, overwrite=True, memory=MEMORY)
    np.testing.assert_array_equal(again.run()[...], FIELD)


def test_a_job_runs_again_after_it_failed(tmp_path: Path) -> None:
    bad = [True]

    def once(block: np.ndarray) -> np.ndarray:
        if bad.pop() if bad else False:
            raise ZeroDivisionError
        return block

    x = field((20, 50)).map_blocks(once, dtype="f4", meta=np.empty(0, "f4"))
    job = ooc.rechunk(x, tmp_path / "a", chunks=(60, 5), memory=MEMORY)
    with pytest.raises(ZeroDivisionError):
        job.run()
    np.testing.assert_array_equal(job.run()[...], FIELD)


def stops(*args: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("again", ["resumed", "run"])
def test_what_stopped_when_all_blocks_were_there_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    counted = Counted(FIELD, ((7, 13, 40), (50,)))
    job = ooc.rechunk(counted.lazy, tmp_path / "a", chunks=(60, 5), memory=MEMORY)
    with monkeypatch.context() as patched:
        replace_step(patched, "write chunks", stops)
        with pytest.raises(KeyboardInterrupt):
            job.run()
    a = ooc.resume(tmp_path / "a").run() if again == "resumed" else job.run()
    np.testing.assert_array_equal(a[...], FIELD)
    assert set(counted.times.values()) == {1 if again == "resumed" else 2}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_blocks_that_are_not_what_the_array_says(tmp_path: Path) -> None:
    short = field((20, 50)).map_blocks(lambda block: block[:-1], dtype="f4", meta=np.empty(0, "f4"))
    with pytest.raises(RunError, match=r"block at \(\d+, 0\) has shape \(19, 50\); expected \(20, 50\)"):
        ooc.rechunk(short, tmp_path / "a", chunks=(60, 5), memory=MEMORY).run()
    wide = field((20, 50)).map_blocks(lambda block: block + 1j, dtype="f4", meta=np.empty(0, "f4"))
    with pytest.raises(RunError, match="has dtype complex64; expected float32"):
        ooc.rechunk(wide, tmp_path / "b", memory=MEMORY).run()


def unknown() -> da.Array:
    x = field()
    return x[x[:, 0] > 3]


WRONG = {
    "no array": (lambda: 7, {}, InputError, "int cannot hold an array"),
    "unknown lengths": (unknown, {}, ChunksError, "unknown length: call its compute_chunk_sizes"),
    "objects": (lambda: field().astype(object), {}, UnsupportedError, "dtype object"),
    "masked": (lambda: da.ma.masked_equal(field(), 3), {}, UnsupportedError, "blocks of numpy.ma.MaskedArray"),
    "no such axis": (field, {"chunks": {"z": 3}}, ChunksError, r"'z' is not one of the"),
    "a budget too small": (field, {"chunks": (60, 5), "memory": 1000}, BudgetError, "memory=.* is too small"),
    "shards": (field, {"chunks": (7, 50), "shards": (40, 50)}, ChunksError, "shards=.* multiple"),
}


@pytest.mark.parametrize(("x", "options", "error", "says"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_one_line(tmp_path: Path, x: Any, options: dict, error: type, says: str) -> None:
    with pytest.raises(error, match=says) as raised:
        flat(ooc.rechunk, x(), tmp_path / "a", **options)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_planning_computes_nothing(tmp_path: Path) -> None:
    class NoTask(Callback):
        def _pretask(self, key: Any, dsk: Any, state: Any) -> None:
            raise AssertionError(key)

    with NoTask():
        job = ooc.rechunk(field(), tmp_path / "a", chunks=(60, 5), memory=MEMORY)
        assert "3, each computed once" in job.explain()
        assert "scratch" in repr(job)


@pytest.mark.parametrize("chunks", [20, 33], ids=["aligned", "joined"])
def test_a_url_is_a_target(chunks: int) -> None:
    pytest.importorskip("fsspec")
    x = da.arange(100, chunks=20)
    url = f"memory://from-dask/{chunks}"
    a = ooc.rechunk(x, url, chunks=chunks, memory=MEMORY).run()
    np.testing.assert_array_equal(a[...], np.arange(100))
    np.testing.assert_array_equal(ooc.open_array(url)[...], np.arange(100))


@pytest.mark.parametrize(("asked", "kept"), [(0, 0), (-1, -1), (None, None)])
def test_a_fill_value_that_is_given_is_that_of_format_2(tmp_path: Path, asked: int | None, kept: int | None) -> None:
    """Where none is given, no value stands for none: xarray takes that of format 2 so."""
    how: dict[str, Any] = {"zarr_format": 2, "dimension_names": ["x"], "scheduler": "threads"}
    flat(ooc.rechunk, da.arange(5, chunks=2), ooc.Target(tmp_path / "a", fill_value=asked), **how).run()
    assert json.loads((tmp_path / "a" / ".zarray").read_text())["fill_value"] == kept
