"""Shards against Zarr's own: what it writes we read chunk by chunk, and what we write it reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import CorruptChunkError
from oocarrays.storage.codecs.shards import ShardLayout, layout_of, pack_shard
from tests.profiles import examples
from tests.seams import set_constants

VALUES = np.arange(1, 12 * 20 + 1, dtype="i4").reshape(12, 20)
MIB = 2**20


def sharded(store, values=VALUES, **options) -> zarr.Array:
    return zarr.create_array(
        store, data=values, **({"chunks": (2, 5), "shards": (4, 10), "compressors": None} | options)
    )


@given(st.data(), st.booleans(), st.booleans())
@examples(50)
def test_what_we_pack_zarr_unpacks(data: st.DataObject, at_end: bool, checksum: bool) -> None:
    counts = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple))
    chunks = data.draw(st.tuples(*(st.integers(1, 4) for _ in counts)))
    shape = tuple(n * c for n, c in zip(counts, chunks, strict=True))
    values = data.draw(st.integers(0, 2**32)) + np.arange(np.prod(shape), dtype="i8").reshape(shape)
    values[: shape[0] // 2] = 7
    index = [BytesCodec(), Crc32cCodec()] if checksum else [BytesCodec()]
    codec = ShardingCodec(
        chunk_shape=chunks, codecs=[BytesCodec()], index_codecs=index, index_location="end" if at_end else "start"
    )
    layout = layout_of(codec, shape)
    assert layout == ShardLayout(chunks=chunks, counts=counts, at_end=at_end, checksum=checksum)
    out = np.empty(values.nbytes + layout.index_bytes, np.uint8)
    nbytes, elements = pack_shard(layout, values, lambda c: c.tobytes(), lambda c: bool((c == 7).all()), out)
    store = MemoryStore()
    array = zarr.create_array(
        store, shape=shape, chunks=shape, dtype="i8", serializer=codec, filters=None, compressors=None, fill_value=7
    )
    zarr.core.sync.sync(store.set(f"c/{'/'.join('0' * len(shape))}", as_buffer(out[:nbytes])))
    np.testing.assert_array_equal(array[...], values)
    assert nbytes == elements * 8 + layout.index_bytes


def as_buffer(data: np.ndarray):
    return zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(data.tobytes())


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("codec", [None, ZstdCodec()])
@pytest.mark.parametrize("local", [True, False])
def test_a_shard_is_read_chunk_by_chunk(tmp_path, location: str, codec, local: bool) -> None:
    place = tmp_path / "s" if local else MemoryStore()
    array = sharded(place, shards={"shape": (4, 10), "index_location": location}, compressors=codec)
    assert (ooc.open_array(array).chunks, ooc.open_array(array).shards) == ((2, 5), (4, 10))
    job = ooc.rechunk(array, MemoryStore(), chunks=(12, 5), memory="64MiB", resources=ooc.Resources(ranks=1))
    np.testing.assert_array_equal(job.run()[...], VALUES)
    assert job.plan.read_requests == job.meter.read_requests
    assert job.plan.traffic.index_requests == job.meter.index_requests == 6


def test_the_part_of_a_shard_that_is_not_wanted_is_not_read(tmp_path) -> None:
    """One column of chunks in shards of ten: a tenth of the bytes, and the indices."""
    values = np.arange(100 * 1000, dtype="f8").reshape(100, 1000)
    array = sharded(tmp_path / "s", values, chunks=(10, 100), shards=(100, 1000), compressors=ZstdCodec())
    a, out = ooc.open_array(array), np.empty((100, 100))
    with ooc.advise.metered() as meter:
        a.read(np.s_[:, 300:400], out=out)
    np.testing.assert_array_equal(out, values[:, 300:400])
    whole = (tmp_path / "s/c/0/0").stat().st_size
    assert (meter.read_requests, meter.index_requests) == (10, 1)
    assert 0 < meter.read_bytes < whole / 8


def test_chunks_and_shards_that_hold_the_fill_value_are_not_stored(tmp_path) -> None:
    values = np.zeros((12, 20), "i4")
    values[0, 0], values[5, 19] = 1, 2
    zarr.create_array(tmp_path / "s", data=values, chunks=(12, 20), compressors=None)
    job = ooc.rechunk(tmp_path / "s", ooc.Target(tmp_path / "t", shards=(4, 10)), chunks=(2, 5), memory="64MiB")
    np.testing.assert_array_equal(job.run()[...], values)
    stored = sorted(str(p.relative_to(tmp_path / "t/c")) for p in (tmp_path / "t/c").rglob("*") if p.is_file())
    assert stored == ["0/0", "1/1"]
    index = 16 * 4 + 4
    assert all((tmp_path / "t/c" / shard).stat().st_size == 2 * 5 * 4 + index for shard in stored)


def test_missing_chunks_of_a_shard_and_missing_shards_hold_the_fill_value(tmp_path) -> None:
    values = VALUES.copy()
    values[:2, :5] = -9
    sharded(tmp_path / "s", values, fill_value=-9)
    (tmp_path / "s/c/1/1").unlink()
    values[4:8, 10:] = -9
    for method in ("independent", "two-phase", "assembled"):
        job = ooc.rechunk(tmp_path / "s", MemoryStore(), chunks=(12, 4), memory="64MiB", method=method)
        np.testing.assert_array_equal(job.run()[...], values)


@pytest.mark.parametrize(
    ("what", "codec"),
    [*((what, codec) for what in ("cut", "index", "empty") for codec in (None, ZstdCodec())), ("chunk", ZstdCodec())],
)
def test_a_corrupt_shard_is_one_clear_error(tmp_path, what: str, codec) -> None:
    sharded(tmp_path / "s", compressors=codec)
    shard = tmp_path / "s/c/1/1"
    shard.write_bytes(spoiled(shard.read_bytes(), what))
    with pytest.raises(CorruptChunkError) as error:
        ooc.rechunk(tmp_path / "s", tmp_path / "t", chunks=(12, 4), memory="64MiB").run()
    assert "c/1/1" in str(error.value)
    assert "\n" not in str(error.value)


def spoiled(data: bytes, what: str) -> bytes:
    if what == "chunk":
        return bytes(8) + data[8:]
    if what == "index":
        return data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]
    return data[: len(data) // 2] if what == "cut" else b""


def test_a_chunk_that_is_said_to_lie_past_the_end_of_its_shard(tmp_path) -> None:
    """The index is whole, the shard was cut before it."""
    sharded(tmp_path / "s", shards={"shape": (4, 10), "index_location": "start"})
    shard = tmp_path / "s/c/0/0"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(CorruptChunkError, match="c/0/0 is truncated"):
        ooc.rechunk(tmp_path / "s", tmp_path / "t", chunks=(12, 4), memory="64MiB").run()


@pytest.mark.parametrize(("kept", "requests"), [(1, 4), (2, 2)])
def test_indices_are_kept_to_a_bound(monkeypatch, kept: int, requests: int) -> None:
    set_constants(monkeypatch, shard_index_bytes=kept * (16 * 4 + 4))
    a = ooc.open_array(sharded(MemoryStore()))
    with ooc.advise.metered() as meter:  # a row of chunks after the other, each of two shards
        np.testing.assert_array_equal(a.read(np.s_[:4], out=np.empty((4, 20), "i4")), VALUES[:4])
    assert meter.index_requests == requests


@pytest.mark.parametrize("codec", [(), ZstdCodec(), ZstdCodec(checksum=True)], ids=["none", "zstd", "zstd-checksum"])
@pytest.mark.parametrize("method", ["independent", "two-phase", "assembled", "staged"])
def test_zarr_reads_the_shards_that_we_write(tmp_path, codec, method: str) -> None:
    zarr.create_array(tmp_path / "s", data=VALUES, chunks=(2, 20))
    job = ooc.rechunk(
        tmp_path / "s",
        ooc.Target(tmp_path / "t", shards=(10, 6), compressors=codec),
        chunks=(5, 3),
        memory="64MiB",
        method=method,
    )
    job.run()
    array = zarr.open_array(tmp_path / "t")
    np.testing.assert_array_equal(array[...], VALUES)
    assert (array.chunks, array.shards) == ((5, 3), (10, 6))
    assert (
        sum(1 for p in Path(tmp_path / "t/c").rglob("*") if p.is_file())
        == job.plan.passes[-1].traffic.write_requests
        == 8
    )
