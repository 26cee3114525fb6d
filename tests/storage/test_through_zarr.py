"""Coded bytes are those that lie in the files: of chains of codecs too, whoever decodes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec

import oocarrays as ooc
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import describe
from oocarrays.storage.journal.texts import MADE, SOURCE
from oocarrays.storage.meter import Meter

ROWS = np.arange(40 * 60, dtype="i4").reshape(40, 60) % 97
CHUNKS = 4 * 3
CHAINS: dict[str, dict[str, Any]] = {
    "zstd": {"compressors": [ZstdCodec()]},
    "transpose and zstd": {"filters": [TransposeCodec(order=(1, 0))], "compressors": [ZstdCodec()]},
    "zstd and crc32c": {"compressors": [ZstdCodec(), Crc32cCodec()]},
    "big endian": {"serializer": BytesCodec(endian="big"), "compressors": None},
    "a shard in zarr's own hands": {
        "serializer": ShardingCodec(chunk_shape=(10, 10), codecs=[BytesCodec(), ZstdCodec(), Crc32cCodec()]),
        "compressors": None,
    },
    "format 2, delta and zstd": {
        "zarr_format": 2,
        "filters": [numcodecs.Delta(dtype="i4")],
        "compressors": numcodecs.Zstd(),
    },
    "format 2, shuffle and zlib": {
        "zarr_format": 2,
        "filters": [numcodecs.Shuffle(elementsize=4)],
        "compressors": numcodecs.Zlib(),
    },
    "format 2 in columns": {"zarr_format": 2, "order": "F", "compressors": numcodecs.Zstd()},
}
PLAIN = ("big endian",)
"""Chains that make as many bytes as they take."""


def made(store: Any, chain: str) -> zarr.Array:
    array = zarr.create_array(store, shape=ROWS.shape, chunks=(10, 20), dtype="i4", **CHAINS[chain])
    array[:] = ROWS
    return array


def sizes(folder: Path) -> list[int]:
    """Bytes of each chunk file below a folder."""
    names = ("zarr.json", ".zarray", ".zattrs", SOURCE, MADE)
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name not in names]


def stored_sizes(store: dict[str, Any]) -> list[int]:
    return [len(value) for key, value in store.items() if not key.endswith(("zarr.json", ".zarray", ".zattrs"))]


def without_zarrs(monkeypatch: pytest.MonkeyPatch, absent: bool) -> None:
    if absent:
        monkeypatch.setattr(array_file, "find_spec", lambda name: None)


@pytest.mark.parametrize("absent", [False, True], ids=["as it is", "without zarrs"])
@pytest.mark.parametrize("chain", CHAINS)
def test_what_is_read_and_written_is_what_lies_in_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chain: str, absent: bool
) -> None:
    without_zarrs(monkeypatch, absent)
    made(tmp_path / "a.zarr", chain)
    job = ooc.rechunk(tmp_path / "a.zarr", tmp_path / "b.zarr", chunks=(20, 10), memory="64MiB", scheduler="threads")
    np.testing.assert_array_equal(job.run()[:], ROWS)
    source, target, meter = sizes(tmp_path / "a.zarr"), sizes(tmp_path / "b.zarr"), job.meter
    assert (meter.read_requests, meter.read_bytes) == (CHUNKS, sum(source))
    assert (meter.write_requests, meter.written_bytes) == (len(target), sum(target))
    assert (meter.read_bytes < ROWS.nbytes) == (chain not in PLAIN)
    assert meter.decoded_bytes == ROWS.nbytes


@pytest.mark.parametrize("chain", CHAINS)
def test_in_a_store_in_memory_too(chain: str) -> None:
    here: dict[str, Any] = {}
    there: dict[str, Any] = {}
    made(here, chain)
    job = ooc.rechunk(zarr.storage.MemoryStore(here), zarr.storage.MemoryStore(there), chunks=(20, 10))
    job.run()
    assert job.meter.read_bytes == sum(stored_sizes(here))
    assert job.meter.written_bytes == sum(stored_sizes(there))


@pytest.mark.parametrize("absent", [False, True], ids=["as it is", "without zarrs"])
def test_chunks_that_are_missing_are_no_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: bool) -> None:
    without_zarrs(monkeypatch, absent)
    array = made(tmp_path / "a.zarr", "transpose and zstd")
    os.unlink(tmp_path / "a.zarr" / array.metadata.encode_chunk_key((1, 1)))
    job = ooc.rechunk(tmp_path / "a.zarr", tmp_path / "b.zarr", chunks=(20, 10), memory="64MiB", scheduler="threads")
    job.run()
    assert (job.meter.read_requests, job.meter.missing_chunks) == (CHUNKS - 1, 1)
    assert job.meter.read_bytes == sum(sizes(tmp_path / "a.zarr"))


@pytest.mark.parametrize("chain", CHAINS)
def test_chunks_are_read_into_the_memory_that_is_planned_for_them(tmp_path: Path, chain: str) -> None:
    """Chunks that zarr-python decodes were memory beside it: of boxes, twice what a run may hold."""
    file = describe(made(tmp_path / "a.zarr", chain))
    rooms = [np.empty((10, 20), "i4") for _ in range(CHUNKS)]
    indices = [(i, j) for i in range(4) for j in range(3)]
    for (index, chunk), room in zip(ChunkReader(file, Meter()).whole(indices, iter(rooms)), rooms, strict=True):
        assert chunk is not None
        assert np.shares_memory(chunk, room)
        np.testing.assert_array_equal(
            chunk, ROWS[tuple(slice(n * c, n * c + c) for n, c in zip(index, (10, 20), strict=True))]
        )
