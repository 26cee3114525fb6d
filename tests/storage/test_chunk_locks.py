"""Many writers of one chunk, or shard, lose nothing; one that dies leaves each chunk whole, and nobody waiting."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import ZstdCodec
from zarr.storage import MemoryStore

import oocarrays as ooc
from tests.dying import Server

pytestmark = pytest.mark.long

TIMES, WRITERS = 200, 4
CODINGS: dict[str, dict[str, Any]] = {
    "plain": {"chunks": (TIMES, 8), "compressors": None},
    "zstd": {"chunks": (TIMES, 8), "compressors": ZstdCodec()},
    "shard": {"chunks": (TIMES // 4, 4), "shards": (TIMES, 8), "compressors": ZstdCodec()},
    "format 2": {"chunks": (TIMES, 8), "compressors": None, "zarr_format": 2},
}
each_coding = pytest.mark.parametrize("coding", CODINGS)


def make(store: Any, coding: str) -> ooc.OutOfCoreArray:
    """All elements lie in one chunk, or in one shard."""
    return ooc.open_array(zarr.create_array(store, shape=(TIMES, 8), dtype="i4", fill_value=0, **CODINGS[coding]))


@pytest.mark.parametrize("local", [True, False], ids=["local", "in memory"])
@each_coding
def test_threads_that_write_to_one_chunk_lose_nothing(tmp_path: Path, coding: str, local: bool) -> None:
    array = make(tmp_path / "a.zarr" if local else MemoryStore(), coding)

    def write(rank: int) -> None:
        for row in range(TIMES):
            array[row, rank::WRITERS] = rank + 1

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    np.testing.assert_array_equal(array[...], np.tile(np.arange(8) % WRITERS + 1, (TIMES, 1)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("coding", "method"), [*((coding, "auto") for coding in CODINGS), ("plain", "direct"), ("format 2", "direct")]
)
def test_processes_that_write_to_one_chunk_lose_nothing(tmp_path: Path, runs: Server, coding: str, method: str) -> None:
    array = make(tmp_path / "a.zarr", coding)
    files = sorted(tmp_path.rglob("*"))
    children = [
        runs.start(
            "write",
            tmp_path / "a.zarr",
            [[[row, row + 1, None], [rank, None, WRITERS]] for row in range(TIMES // WRITERS)],
            rank + 1,
            method="auto" if rank == 0 else method,  # one replaces the chunk while others change it
        )
        for rank in range(WRITERS)
    ]
    assert [child.wait() for child in children] == [0] * WRITERS, children[0].err
    np.testing.assert_array_equal(array[: TIMES // WRITERS], np.tile(np.arange(8) % WRITERS + 1, (TIMES // WRITERS, 1)))
    new = {path.relative_to(tmp_path).as_posix() for path in set(tmp_path.rglob("*")) - set(files)}
    assert new <= {"a.zarr/c", "a.zarr/c/0", "a.zarr/c/0/0", "a.zarr/0.0"}, "locks leave nothing"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("coding", "point", "after"),
    [
        ("plain", "window", 1),
        ("plain", "window", 2),
        ("plain", "pieces", 2),
        ("zstd", "chunk", 2),
        ("zstd", "partial", 2),
        ("shard", "shard", 2),
        ("shard", "chunk", 1),
        ("shard", "partial", 1),
    ],
)
def test_a_writer_that_is_killed_leaves_each_chunk_old_or_new(
    tmp_path: Path, runs: Server, coding: str, point: str, after: int
) -> None:
    path = tmp_path / "a.zarr"
    chunks = {"chunks": (4, 4), "shards": (8, 8)} if coding == "shard" else {"chunks": (8, 8)}
    before = np.arange(1, 257).reshape(16, 16)
    zarr.create_array(path, data=before, **(CODINGS[coding] | chunks))
    changed = before.copy()
    changed[1::2, 3:13:3] = -1
    memory = {"memory": 256} if point == "window" and after > 1 else {}
    runs.run("write", path, [[[1, None, 2], [3, 13, 3]]], -1, at=point, after=after, **memory)
    array = ooc.open_array(path, mode="r+")
    for i in range(0, 16, 8):
        for j in range(0, 16, 8):
            chunk = array[i : i + 8, j : j + 8]
            assert any((chunk == all_of_it[i : i + 8, j : j + 8]).all() for all_of_it in (before, changed))
    array[1::2, 3:13:3] = -1  # the dead hold no locks
    np.testing.assert_array_equal(array[...], changed)
    for partial in tmp_path.rglob("*.partial"):
        os.utime(partial, (0, 0))  # what is a minute old is nobody's any more
    ooc.clean(tmp_path)
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("coding", ["plain", "zstd", "shard"])
def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path: Path, runs: Server, coding: str) -> None:
    (tmp_path / "small").mkdir()
    done = runs.run("tests.small_disk:change", tmp_path / "small", coding)
    told = done.told
    assert done.err == ""
    assert (told["error"], told["left"], told["same"]) == ("DiskFullError", [], True)
    assert "small" in told["message"]
    assert "\n" not in told["message"]
