"""The main job against numpy: any shape, chunks, codec, dtype, store, strategy, number of ranks and budget."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, strategies as st
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.storage import MemoryStore

import oocarrays as ooc
from tests.flat import flat
from tests.profiles import examples
from tests.seams import RECHUNK_METHODS, store_at
from tests.strategies import MIB, chunks_for, cut, shapes

CODECS = {
    "none": None,
    "zstd": ZstdCodec(),
    "zstd-checksum": ZstdCodec(level=1, checksum=True),
    "blosc": BloscCodec(cname="lz4", shuffle="shuffle"),
    "gzip": GzipCodec(),
    "two": (ZstdCodec(), Crc32cCodec()),
}
NUMCODECS = {
    "none": None,
    "zstd": numcodecs.Zstd(),
    "zstd-checksum": numcodecs.Zstd(level=1, checksum=True),
    "blosc": numcodecs.Blosc(),
    "gzip": numcodecs.GZip(),
    "two": numcodecs.LZ4(),
}
"""The same for format 2, or one that only format 2 has."""
STRUCTURED = [("a", ">i4"), ("b", "f8"), ("c", "S2")]
DTYPES = ["u1", "i2", ">i4", "f4", ">f8", "c16", "?", "S3", "U2", "M8[ns]", "m8[s]", STRUCTURED]


def values_of(shape: tuple[int, ...], dtype: object) -> np.ndarray:
    count = (np.arange(1, math.prod(shape) + 1) % 97 + 1).astype("i8")
    if dtype is not STRUCTURED:
        return count.astype(dtype).reshape(shape)
    values = np.zeros(len(count), dtype)
    for name in values.dtype.names:
        values[name] = count.astype(values.dtype[name])
    return values.reshape(shape)


def make_source(store, values, chunks, **settings) -> zarr.Array:
    if settings.get("zarr_format", 3) == 3 and values.dtype.newbyteorder("=") != values.dtype:
        settings |= {} if values.dtype.names else {"serializer": BytesCodec(endian="big")}
        values = values.astype(values.dtype.newbyteorder("="))  # zarr 3.1.6 forgets the byte order of fields
    return zarr.create_array(store, data=values, chunks=chunks, **settings)


def codec_settings(codec: str, zarr_format: int, order: str, ndim: int) -> dict:
    """The same codec and order in either format."""
    if zarr_format == 2:
        return {"compressors": NUMCODECS[codec], "zarr_format": 2, "order": order}
    turned = [TransposeCodec(order=tuple(reversed(range(ndim))))] if order == "F" and ndim else None
    return {"compressors": CODECS[codec], "filters": turned}


@st.composite
def shards_for(draw: st.DrawFn, chunks: tuple[int, ...]) -> tuple[int, ...] | None:
    return draw(st.none() | st.tuples(*(st.integers(1, 3).map(lambda n, c=c: n * c) for c in chunks)))


@st.composite
def requests(draw: st.DrawFn) -> dict:
    shape = draw(shapes(4, most=1500))
    source, chunks = draw(chunks_for(shape)), draw(chunks_for(shape))
    formats, dtype = draw(st.sampled_from([(3, 3), (3, 3), (2, 2), (2, 3), (3, 2)])), draw(st.sampled_from(DTYPES))
    in_shards = [number == 3 and shape and dtype is not STRUCTURED for number in formats]  # zarr 3.1.6 reads no others
    return {
        "shape": shape,
        "source": source,
        "source_shards": draw(shards_for(source)) if in_shards[0] else None,
        "chunks": chunks,
        "shards": draw(shards_for(chunks)) if in_shards[1] else None,
        "formats": formats,
        "order": draw(st.sampled_from("CCF")),
        "codec": draw(st.sampled_from(sorted(CODECS))),
        "dtype": dtype,
        "method": draw(st.sampled_from(RECHUNK_METHODS)),
        "ranks": draw(st.integers(1, 7)),
        "memory": draw(st.sampled_from([96 * MIB, 256 * MIB])),  # five ranks over a network need 65 MiB
        "place": draw(st.sampled_from(["folder", "memory", "network"])),
    }


def place_of(kind: str, folder: str, name: str) -> object:
    """A place for an array; the one over a network is fsspec's own memory, which is asked as any URL is."""
    if kind == "folder":
        return Path(folder, name)
    return MemoryStore() if kind == "memory" else store_at(f"memory://{folder}/{name}")


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What stores in fsspec's memory hold, until the end of a test."""
    yield
    fsspec.filesystem("memory").store.clear()


@pytest.mark.usefixtures("forgotten")
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests())
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_any_rechunk_is_numpys_copy_and_moves_what_was_planned(request: dict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        places = [place_of(request["place"], folder, name) for name in ("source", "target")]
        values = values_of(request["shape"], request["dtype"])
        theirs, ours = request["formats"]
        codec = codec_settings(request["codec"], theirs, request["order"], values.ndim)
        source = make_source(places[0], values, request["source"], shards=request["source_shards"], **codec)
        job = flat(
            ooc.rechunk,
            *places,
            chunks=request["chunks"],
            shards=request["shards"],
            zarr_format=ours,
            compressors=None if theirs == ours else codec_settings(request["codec"], ours, "C", 0)["compressors"] or (),
            memory=request["memory"],
            method=request["method"],
            ranks=request["ranks"],
        )
        target = job.run()
        np.testing.assert_array_equal(target[...], values)
        np.testing.assert_array_equal(zarr.open_array(places[1], mode="r")[...], values)
        chunks, shards = cut(request["chunks"], values.shape), request["shards"]
        assert (target.chunks, target.zarr.shards) == (chunks, shards and cut(shards, values.shape, chunks))
        assert target.zarr.metadata.zarr_format == ours
        assert target.dtype == (source.dtype if ours == theirs else values.dtype.newbyteorder("="))
        assert_moved_as_planned(job)


def assert_moved_as_planned(job: ooc.Job) -> None:
    """Promise 6: predicted requests and decoded bytes are what the meter counts."""
    planned, metered = job.plan.traffic, job.meter
    assert metered.read_requests == planned.read_requests
    assert metered.index_requests == planned.index_requests
    assert metered.decoded_bytes == planned.decoded_bytes
    assert metered.write_requests == planned.write_requests
    assert metered.encoded_bytes == planned.encoded_bytes
    assert metered.messages == planned.messages
    assert len(job.__dask_graph__()) == planned.tasks
    if not (job.plan.source.coded or job.plan.target.coded):
        assert metered.read_bytes == planned.read_bytes
        assert metered.written_bytes == planned.written_bytes


@pytest.mark.sampled(2)
@pytest.mark.parametrize("spare", [0, 3 * MIB])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_two_phase_with_many_rounds_and_partitions(tmp_path, ranks: int, spare: int) -> None:
    """A budget that holds a few chunks: partitions and rounds follow each other, buffers are used again."""
    values = values_of((1024, 2048), "f8")
    make_source(tmp_path / "s", values, (64, 2048), compressors=CODECS["blosc"])
    request = {"chunks": (1024, 32), "method": "two-phase", "ranks": ranks}
    with pytest.raises(ooc.errors.BudgetError) as error:
        flat(ooc.rechunk, tmp_path / "s", tmp_path / "t", memory=1, **request)
    job = flat(ooc.rechunk, tmp_path / "s", tmp_path / "t", memory=error.value.least + spare, **request)
    np.testing.assert_array_equal(job.run()[...], values)
    assert job.plan.passes[0].units > 1
    assert_moved_as_planned(job)


@pytest.mark.parametrize("method", RECHUNK_METHODS)
def test_what_an_array_says_of_itself_is_carried_over(tmp_path, method: str) -> None:
    make_source(
        tmp_path / "s",
        values_of((6, 8), "f4"),
        (2, 8),
        fill_value=-9.0,
        attributes={"units": "K", "nested": {"a": [1]}},
        dimension_names=["y", "x"],
        compressors=CODECS["blosc"],
        filters=[TransposeCodec(order=(1, 0))],
    )
    target = ooc.rechunk(tmp_path / "s", tmp_path / "t", chunks=(6, 3), memory="64MiB", method=method).run()
    source = zarr.open_array(tmp_path / "s")
    assert target.attrs == {"units": "K", "nested": {"a": [1]}}
    assert target.dimension_names == ("y", "x")
    assert target.fill_value == -9.0
    assert target.dtype == np.float32
    assert target.zarr.compressors == source.compressors
    assert target.zarr.filters == source.filters


def test_codecs_can_be_chosen(tmp_path) -> None:
    values = values_of((6, 8), "f4")
    make_source(tmp_path / "s", values, (2, 8))
    plain = ooc.rechunk(tmp_path / "s", ooc.Target(tmp_path / "p", compressors=()), chunks=(6, 3)).run()
    gzip = ooc.rechunk(tmp_path / "s", ooc.Target(tmp_path / "g", compressors=CODECS["gzip"]), chunks=(6, 3)).run()
    assert plain.zarr.compressors == ()
    assert gzip.zarr.compressors == (CODECS["gzip"],)
    np.testing.assert_array_equal(plain[...], gzip[...])


def test_a_sharded_source_is_read(tmp_path) -> None:
    values = values_of((12, 16), "f4")
    make_source(tmp_path / "s", values, (2, 4), shards=(4, 8))
    job = ooc.rechunk(tmp_path / "s", tmp_path / "t", chunks=(12, 3), memory="64MiB")
    np.testing.assert_array_equal(job.run()[...], values)


@pytest.mark.parametrize(
    ("orientation", "order"), [("row", (0, 1, 2)), ("column", (2, 1, 0)), ((1, 0, 2), (1, 0, 2))], ids=str
)
def test_orientation_is_the_order_in_which_a_chunk_is_stored(tmp_path, orientation, order) -> None:
    values = values_of((4, 5, 6), "i4")
    make_source(tmp_path / "s", values, (1, 5, 6), compressors=None)
    target = ooc.rechunk(
        tmp_path / "s", ooc.Target(tmp_path / "t", orientation=orientation), chunks=(4, 5, 6), memory="64MiB"
    ).run()
    np.testing.assert_array_equal(target[...], values)
    stored = np.frombuffer((tmp_path / "t/c/0/0/0").read_bytes(), "i4")
    np.testing.assert_array_equal(stored, values.transpose(order).reshape(-1))


def test_orientation_chooses_chunks_along_its_fastest_axes(tmp_path) -> None:
    make_source(tmp_path / "s", values_of((100, 60), "f4"), (2, 60))
    assert ooc.rechunk(tmp_path / "s", ooc.Target(tmp_path / "t", orientation="column")).run().chunks == (100, 1)


@pytest.mark.parametrize("kind", ["path", "text", "store", "array", "ours"])
def test_sources_of_every_kind(tmp_path, kind: str) -> None:
    values = values_of((6, 8), "f4")
    array = make_source(tmp_path / "s", values, (2, 8))
    source = {
        "path": tmp_path / "s",
        "text": str(tmp_path / "s"),
        "store": zarr.storage.LocalStore(tmp_path / "s"),
        "array": array,
        "ours": ooc.open_array(tmp_path / "s"),
    }[kind]
    np.testing.assert_array_equal(ooc.rechunk(source, MemoryStore(), chunks=(6, 1)).run()[...], values)


@pytest.mark.parametrize("method", RECHUNK_METHODS)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_missing_chunks_hold_the_fill_value(tmp_path, method: str, codec: str) -> None:
    values = values_of((9, 8), "f4")
    make_source(tmp_path / "s", values, (2, 8), compressors=CODECS[codec], fill_value=5.0)
    (tmp_path / "s/c/1/0").unlink()
    values[2:4] = 5.0
    job = ooc.rechunk(tmp_path / "s", tmp_path / "t", chunks=(9, 3), memory="64MiB", method=method)
    np.testing.assert_array_equal(job.run()[...], values)


def test_padding_holds_the_fill_value_whatever_the_buffer_held_before(tmp_path) -> None:
    values = values_of((10, 64), "i4")
    make_source(tmp_path / "s", values, (10, 8), compressors=None, fill_value=-7)
    ooc.rechunk(tmp_path / "s", tmp_path / "t", chunks=(4, 64), memory="64MiB", resources=ooc.Resources(ranks=1)).run()
    edge = np.frombuffer((tmp_path / "t/c/2/0").read_bytes(), "i4").reshape(4, 64)
    assert (edge[:2] == values[8:]).all()
    assert (edge[2:] == -7).all()


@pytest.mark.parametrize("chunks", [None, (None, None), (4, None)], ids=str)
def test_chunks_that_are_not_asked_for_are_those_of_the_source(tmp_path: Path, chunks: object) -> None:
    data = np.arange(60).reshape(10, 6)
    zarr.create_array(tmp_path / "a", data=data, chunks=(4, 6))
    made = ooc.rechunk(
        tmp_path / "a", ooc.Target(tmp_path / "b", compressors=()), chunks=chunks, scheduler="threads"
    ).run()
    array = zarr.open_array(tmp_path / "b", mode="r")
    assert (array.chunks, array.compressors, made.chunks) == ((4, 6), (), (4, 6))
    np.testing.assert_array_equal(array[...], data)
