"""``a.to_dask``: any blocks over any stored chunks are what numpy says, each stored chunk read as often as planned."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import BudgetError, ChunksError, LayoutError
from tests.dying import Server
from tests.pairs import pairs

ZSTD = zarr.codecs.ZstdCodec()
DATA = np.random.default_rng(0).integers(0, 1000, (96, 120)).astype("f4")
SLABS: dict[str, Any] = {"data": DATA, "chunks": (8, 120), "compressors": ZSTD}
COLUMNS = (96, 15)
SLOW = {"oocarrays.cost.decode_bandwidth": {"zstd": 1e5, "other": 1e5}, "oocarrays.cost.cores": 1}
"""Bytes a second that a codec makes: so few, that small arrays are read as large ones are."""
GROUPED, CROWDED, MOST = 2**20, 120_000, 2**30
"""Bytes in which some blocks fit together, in which few do, and in which all."""


@pytest.fixture(autouse=True)
def threads() -> Any:
    with dask.config.set({"scheduler": "threads", "num_workers": 2, **SLOW}):
        yield


def slabs(tmp_path: Path, **options: Any) -> ooc.OutOfCoreArray:
    zarr.create_array(tmp_path / "a.zarr", **(SLABS | options))
    return ooc.open_array(tmp_path / "a.zarr")


@pytest.mark.parametrize(("memory", "method"), [(GROUPED, "groups"), (CROWDED, "scratch")])
def test_coded_chunks_that_blocks_share_are_read_once(tmp_path: Path, memory: int, method: str) -> None:
    x = slabs(tmp_path).to_dask(COLUMNS, memory=memory)
    assert x.plan.method == method
    assert float(x.sum()) == DATA.sum(dtype="f8")
    assert x.meter.read_requests == x.plan.read_requests == 12
    assert x.meter.decoded_bytes == DATA.nbytes
    assert x.plan.task_bytes <= memory
    assert os.listdir(tmp_path) == ["a.zarr"], "the plain copy is gone when it has been used"


@pytest.mark.parametrize(
    *pairs(
        blocks=[COLUMNS, ((50, 46), (7, 113)), (1, 120), (96, 1)], memory=[GROUPED, CROWDED], shards=[None, (32, 120)]
    )
)
def test_uncompressed_bytes_are_read_once(tmp_path: Path, memory: int, blocks: Any, shards: Any) -> None:
    x = slabs(tmp_path, compressors=None, shards=shards).to_dask(blocks, memory=memory)
    np.testing.assert_array_equal(x.compute(), DATA)
    assert x.meter.read_bytes == DATA.nbytes == x.plan.read_bytes
    assert x.meter.read_requests == x.plan.read_requests


@pytest.mark.parametrize(
    *pairs(blocks=[(256, 128), (25, 75), (256, 16), (7, 256)], compressors=[ZSTD, None], order=[None, (1, 0)])
)
def test_how_often_stored_bytes_are_read_is_said(compressors: Any, order: Any, blocks: Any) -> None:
    data = np.arange(2**16, dtype="f4").reshape(256, 256)
    turn = [zarr.codecs.TransposeCodec(order=order)] if order else None
    z = zarr.create_array({}, data=data, chunks=(64, 256), compressors=compressors, filters=turn)
    for memory in (2**17, 2**18, 2**20, 2**24):
        try:
            x = ooc.open_array(z).to_dask(blocks, memory=memory)
        except BudgetError:
            continue
        np.testing.assert_array_equal(x.compute(scheduler="threads"), data)
        least, most = x.plan.times_read
        read = (x.meter.decoded_bytes if compressors else x.meter.read_bytes) / data.nbytes
        assert least - 0.01 <= read <= most + 0.01
        assert ("each stored byte" in x.explain()) == (most > 1.005)
        assert x.plan.once_bytes <= x.plan.read_bytes <= x.plan.most_read_bytes


def test_few_blocks_of_many_are_read_by_themselves(tmp_path: Path) -> None:
    x = slabs(tmp_path).to_dask(COLUMNS, memory=CROWDED)
    row = x[50, ::-2]
    np.testing.assert_array_equal(row.compute(), DATA[50, ::-2])
    assert row.name != x[51, ::-2].name
    assert x.meter.read_requests == 1


KEYS = [np.s_[3], np.s_[..., 7], np.s_[5:90:3, None, -3:], np.s_[::-1], np.s_[10:10], np.s_[[4, 2]], np.s_[-1, 3]]


@pytest.mark.parametrize("memory", [GROUPED, CROWDED])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_parts_are_those_of_numpy(tmp_path: Path, memory: int, key: Any) -> None:
    part = slabs(tmp_path).to_dask(COLUMNS, memory=memory)[key]
    np.testing.assert_array_equal(part.compute(), DATA[key])


def test_neighbours_that_are_nearly_all_share_what_is_read(tmp_path: Path) -> None:
    x = slabs(tmp_path).to_dask(COLUMNS, memory=GROUPED)
    np.testing.assert_array_equal((x[1:] - x[:-1]).compute(), np.diff(DATA, axis=0))
    assert x.meter.read_requests == 12


def test_what_is_assigned_to_is_no_longer_what_is_stored(tmp_path: Path) -> None:
    x = slabs(tmp_path).to_dask(COLUMNS, memory=CROWDED)
    x[50] = 3
    assert float(x[50, 4].compute()) == 3
    assert repr(x).startswith("dask.array<")


def test_it_says_what_each_task_holds_and_why(tmp_path: Path) -> None:
    x = slabs(tmp_path).to_dask(COLUMNS, memory=GROUPED)
    assert "a task holds" in repr(x)
    assert "in 12 chunks" in repr(x)
    lines = x.explain().splitlines()
    assert next(line for line in lines if line.startswith("groups")).endswith("taken")
    assert "oocarrays.LazyArray" in x._repr_html_()
    assert type(x + 1) is da.Array


def test_names_are_the_same_for_the_same_array_and_blocks(tmp_path: Path) -> None:
    a = slabs(tmp_path)
    again = ooc.open_array(tmp_path / "a.zarr").to_dask(COLUMNS, memory=GROUPED)
    assert a.to_dask(COLUMNS, memory=GROUPED).name == again.name
    assert a.to_dask((96, 16), memory=GROUPED).name != again.name
    assert a.to_dask(COLUMNS, memory=CROWDED).name != again.name


def test_blocks_of_a_layout(tmp_path: Path) -> None:
    x = slabs(tmp_path).to_dask(layout="(block, gen_block(20,100))", ranks=6)
    assert x.chunks == ((32, 32, 32), (20, 100))
    np.testing.assert_array_equal(x.compute(), DATA)
    laid = ooc.ranks.distribute(x, "(block, gen_block(20,100))", ranks=6, scheduler="threads")
    np.testing.assert_array_equal(laid.local(3).compute(), DATA[32:64, 20:])


@pytest.mark.parametrize("memory", [GROUPED, CROWDED])
def test_processes_see_the_same(tmp_path: Path, memory: int) -> None:
    x = slabs(tmp_path).to_dask(COLUMNS, memory=memory)
    assert float(x.sum().compute(scheduler="processes", num_workers=1)) == DATA.sum(dtype="f8")


def test_missing_chunks_are_the_fill_value(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", shape=(20, 20), chunks=(3, 20), dtype="f4", fill_value=2.5)
    for memory in (50_000, 5_000):
        x = ooc.open_array(tmp_path / "a.zarr").to_dask((20, 3), memory=memory)
        np.testing.assert_array_equal(x.compute(), np.full((20, 20), 2.5))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"chunks": (5, 6, 7)}, ChunksError, "has 3 axes; the array has 2"),
        ({"chunks": ((50, 50), 15)}, ChunksError, "add up to 100; the axis has 96"),
        ({"chunks": ((97, -1), 15)}, ChunksError, "at least 0"),
        ({"chunks": 0}, ChunksError, "at least 1"),
        ({"chunks": 8, "layout": "(block, *)"}, ChunksError, "pass one of them"),
        ({"layout": "(cyclic, *)", "ranks": 2}, LayoutError, "more than one block"),
        ({"memory": 1000, "chunks": -1}, BudgetError, "a block of the lazy array needs at least"),
        ({"memory": "much"}, ooc.errors.InputError, "memory='much'"),
    ],
    ids=str,
)
def test_wrong_inputs_are_one_line(tmp_path: Path, options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as raised:
        slabs(tmp_path).to_dask(**options)
    assert "\n" not in str(raised.value)


def test_a_copy_of_a_dead_process_is_found_by_clean(tmp_path: Path, runs: Server) -> None:
    done = runs.start("tests.apart:dies_of_a_lazy_array", slabs(tmp_path).store, config=SLOW)
    assert done.wait() == -signal.SIGKILL, done.err
    (found,) = ooc.clean(tmp_path)
    assert (found.kind, found.nbytes >= DATA.nbytes) == ("scratch", True)
    assert os.listdir(tmp_path) == ["a.zarr"]
