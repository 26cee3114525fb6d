"""Metadata of an array in one Zarr format and in the other, read back by Zarr."""

from __future__ import annotations

import base64
import json

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import ChunksError, NotFoundError, OocError, UnsupportedError
from tests.flat import flat
from tests.seams import RECHUNK_METHODS

VALUES = np.arange(6 * 8, dtype="f4").reshape(6, 8)


def make(store, **options) -> zarr.Array:
    return zarr.create_array(store, data=VALUES, **({"chunks": (2, 8)} | options))


def rewritten(source, target, **options) -> zarr.Array:
    job = flat(ooc.rechunk, source, target, **({"chunks": (6, 3), "memory": "64MiB"} | options))
    np.testing.assert_array_equal(job.run()[...], VALUES)
    return zarr.open_array(target, mode="r")


def test_names_of_axes_go_from_an_attribute_to_the_metadata_and_back(tmp_path) -> None:
    """So does what stands for no value: in format 2 the fill value does, as xarray reads it."""
    make(tmp_path / "two", zarr_format=2, attributes={"_ARRAY_DIMENSIONS": ["y", "x"], "units": "K"})
    three = rewritten(tmp_path / "two", tmp_path / "three", zarr_format=3)
    assert three.metadata.dimension_names == ("y", "x")
    assert dict(three.attrs) == {"units": "K", "_FillValue": base64.b64encode(bytes(8)).decode()}
    two = rewritten(tmp_path / "three", tmp_path / "again", zarr_format=2)
    assert dict(two.attrs) == {"_ARRAY_DIMENSIONS": ["y", "x"], "units": "K"}
    assert ooc.open_array(tmp_path / "again").dimension_names == ("y", "x")


def test_format_2_is_kept_with_its_keys_order_and_codecs(tmp_path) -> None:
    keys = {"name": "v2", "separator": "/"}
    filters = [numcodecs.Delta(dtype="f4")]
    make(
        tmp_path / "s", zarr_format=2, order="F", chunk_key_encoding=keys, filters=filters, compressors=numcodecs.LZ4()
    )
    target = rewritten(tmp_path / "s", tmp_path / "t")
    metadata = json.loads((tmp_path / "t/.zarray").read_text())
    assert (metadata["zarr_format"], metadata["order"], metadata["dimension_separator"]) == (2, "F", "/")
    assert (target.filters, target.compressors) == (tuple(filters), (numcodecs.LZ4(),))
    assert (tmp_path / "t/0/2").is_file()


@pytest.mark.parametrize("source", [2, 3])
def test_the_order_of_axes_goes_with_them(tmp_path, source: int) -> None:
    order = {"order": "F"} if source == 2 else {"filters": [TransposeCodec(order=(1, 0))]}
    make(tmp_path / "s", zarr_format=source, compressors=None, **order)
    rewritten(tmp_path / "s", tmp_path / "t", zarr_format=5 - source)
    chunk = tmp_path / ("t/c/0/1" if source == 2 else "t/0.1")
    np.testing.assert_array_equal(np.frombuffer(chunk.read_bytes(), "f4").reshape(3, 6), VALUES[:, 3:6].T)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("orientation", ["row", "column"])
def test_orientation_in_either_format(tmp_path, zarr_format: int, orientation: str) -> None:
    make(tmp_path / "s", filters=[TransposeCodec(order=(1, 0))], compressors=None)
    rewritten(tmp_path / "s", tmp_path / "t", zarr_format=zarr_format, orientation=orientation)
    chunk = np.frombuffer((tmp_path / ("t/0.0" if zarr_format == 2 else "t/c/0/0")).read_bytes(), "f4")
    stored = VALUES[:, :3] if orientation == "row" else VALUES[:, :3].T
    np.testing.assert_array_equal(chunk, stored.reshape(-1))


CODECS = [
    (numcodecs.Zstd(level=3, checksum=True), ZstdCodec(level=3, checksum=True)),
    (numcodecs.GZip(level=4), GzipCodec(level=4)),
    (
        numcodecs.Blosc("zstd", 4, numcodecs.Blosc.BITSHUFFLE),
        BloscCodec(typesize=4, cname="zstd", clevel=4, shuffle="bitshuffle"),
    ),
]


@pytest.mark.parametrize(("two", "three"), CODECS, ids=["zstd", "gzip", "blosc"])
def test_codecs_have_their_counterparts(tmp_path, two, three) -> None:
    make(tmp_path / "two", zarr_format=2, compressors=two)
    assert rewritten(tmp_path / "two", tmp_path / "three", zarr_format=3).compressors == (three,)
    assert rewritten(tmp_path / "three", tmp_path / "again", zarr_format=2).compressors == (two,)


@pytest.mark.parametrize(("two", "three"), CODECS, ids=["zstd", "gzip", "blosc"])
def test_a_codec_may_be_named_in_the_words_of_either_format(tmp_path, two, three) -> None:
    make(tmp_path / "s", compressors=None)
    assert rewritten(tmp_path / "s", tmp_path / "3", compressors=two).compressors == (three,)
    assert rewritten(tmp_path / "s", tmp_path / "2", compressors=three, zarr_format=2).compressors == (two,)


def test_a_codec_without_a_counterpart_is_one_line(tmp_path) -> None:
    make(tmp_path / "s", zarr_format=2, compressors=numcodecs.BZ2())
    with pytest.raises(UnsupportedError, match=r"BZ2.* has no counterpart in Zarr format 3: pass Target"):
        ooc.rechunk(tmp_path / "s", ooc.Target(tmp_path / "t", zarr_format=3), chunks=(6, 3))
    rewritten(tmp_path / "s", tmp_path / "t", zarr_format=3, compressors=ZstdCodec())


def test_filters_are_not_dropped_without_a_word(tmp_path) -> None:
    make(tmp_path / "s", zarr_format=2, filters=[numcodecs.Delta(dtype="f4")])
    with pytest.raises(UnsupportedError, match=r"Delta.*pass Target\(store, filters=\(\)\)"):
        ooc.rechunk(tmp_path / "s", ooc.Target(tmp_path / "t", zarr_format=3), chunks=(6, 3))
    rewritten(tmp_path / "s", tmp_path / "t", zarr_format=3, filters=())


def test_an_order_that_format_2_does_not_have(tmp_path) -> None:
    values = np.zeros((2, 3, 4))
    zarr.create_array(tmp_path / "s", data=values, chunks=(2, 3, 4), filters=[TransposeCodec(order=(1, 0, 2))])
    with pytest.raises(UnsupportedError, match=r"\(1, 0, 2\).*first or the last axis fastest"):
        ooc.rechunk(tmp_path / "s", ooc.Target(tmp_path / "t", zarr_format=2), chunks=(1, 3, 4))


def test_big_endian_bytes_stay_big_endian(tmp_path) -> None:
    make(tmp_path / "three", serializer=BytesCodec(endian="big"), compressors=None)
    rewritten(tmp_path / "three", tmp_path / "t3")
    zarr.create_array(tmp_path / "two", data=VALUES.astype(">f4"), chunks=(2, 8), zarr_format=2, compressors=None)
    two = rewritten(tmp_path / "two", tmp_path / "t2")
    assert two.dtype == ">f4"
    for chunk in ("t3/c/0/0", "t2/0.0"):
        stored = np.frombuffer((tmp_path / chunk).read_bytes(), ">f4").reshape(6, 3)
        np.testing.assert_array_equal(stored, VALUES[:, :3])


@pytest.mark.parametrize("method", RECHUNK_METHODS)
def test_an_array_in_memory_that_was_made_big_endian(method: str) -> None:
    """Format 3 keeps no byte order: an array just made says one, and stores the other."""
    source = zarr.create_array(MemoryStore(), data=VALUES.astype(">f4"), chunks=(2, 8), compressors=None)
    rewritten(source, MemoryStore(), method=method)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_missing_chunk_without_a_fill_value(tmp_path, zarr_format: int) -> None:
    array = make(tmp_path / "s", zarr_format=2, fill_value=None)
    (tmp_path / "s/1.0").unlink()
    job = ooc.rechunk(
        tmp_path / "s", ooc.Target(tmp_path / "t", zarr_format=zarr_format), chunks=(6, 3), memory="64MiB"
    )
    np.testing.assert_array_equal(job.run()[...], array[...])
    assert zarr.open_array(tmp_path / "t").fill_value in (None, 0)


def test_not_a_time_is_a_fill_value(tmp_path) -> None:
    times = np.array(["2000-01-01", "NaT", "2001-02-03", "NaT"], "M8[s]")
    zarr.create_array(tmp_path / "s", data=times, chunks=(1,), fill_value=np.datetime64("NaT", "s"), zarr_format=2)
    target = ooc.rechunk(tmp_path / "s", ooc.Target(tmp_path / "t", zarr_format=3), chunks=(4,), memory="64MiB").run()
    np.testing.assert_array_equal(target[...], times)
    assert np.isnat(target.fill_value)


WRONG = {
    "format": ({"zarr_format": 4}, "zarr_format=4 is not 2 or 3"),
    "shards in format 2": ({"zarr_format": 2, "shards": (6, 6)}, "Zarr format 2 has no shards"),
    "half a chunk": ({"shards": (6, 4)}, "multiples of the chunks (6, 3)"),
    "shards of another length": ({"shards": (6,)}, "has 1 axis; the array has 2"),
    "no shards": ({"shards": (0, 3)}, "at least 1"),
}


@pytest.mark.parametrize(("options", "words"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_made_is_one_line(tmp_path, options, words: str) -> None:
    make(tmp_path / "s")
    with pytest.raises(OocError) as error:
        ooc.rechunk(tmp_path / "s", ooc.Target(tmp_path / "t", **options), chunks=(6, 3))
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "t").exists()


def test_shards_of_all_chunks_of_an_axis(tmp_path) -> None:
    make(tmp_path / "s")
    assert rewritten(tmp_path / "s", tmp_path / "t", chunks=(4, 3), shards=-1).shards == (8, 9)


@pytest.mark.parametrize("codec", ["blosc", "lz4"])
def test_chunks_that_are_too_large_for_their_codec_are_refused_in_the_plan(tmp_path, codec: str) -> None:
    compressors = {"blosc": BloscCodec(), "lz4": numcodecs.LZ4()}[codec]
    zarr.create_array(tmp_path / "s", shape=(2**31,), chunks=(2**20,), dtype="u1")
    with pytest.raises(
        ChunksError, match=rf"have 2147483648 bytes; {codec} takes at most 21\d{{8}}: choose smaller chunks"
    ):
        ooc.rechunk(
            tmp_path / "s",
            ooc.Target(tmp_path / "t", compressors=compressors, zarr_format=2 if codec == "lz4" else 3),
            chunks=(2**31,),
            memory="8GiB",
        )


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_unknown_codec_is_one_line(tmp_path, zarr_format: int) -> None:
    make(tmp_path / "s", zarr_format=zarr_format)
    path = tmp_path / "s" / (".zarray" if zarr_format == 2 else "zarr.json")
    path.write_text(path.read_text().replace('"zstd"', '"nonesuch"'))
    with pytest.raises(NotFoundError, match="nonesuch") as error:
        ooc.rechunk(tmp_path / "s", tmp_path / "t", chunks=(6, 3))
    assert "\n" not in str(error.value)


def test_elements_with_fields_are_not_put_in_shards(tmp_path) -> None:
    values = np.zeros(4, [("a", "i4"), ("b", "f8")])
    zarr.create_array(tmp_path / "s", data=values, chunks=(1,), zarr_format=2)
    with pytest.raises(UnsupportedError, match="cannot read structured elements"):
        ooc.rechunk(tmp_path / "s", ooc.Target(tmp_path / "t", shards=(4,), zarr_format=3), chunks=(2,))
