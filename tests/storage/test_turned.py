"""Chunks whose elements lie in another order of the axes: read and written as others, beside numpy and zarr-python."""

from __future__ import annotations

import shutil
from operator import mul
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from numcodecs import LZ4
from zarr.codecs import BloscCodec, TransposeCodec, ZstdCodec

import oocarrays as ooc
from oocarrays.errors import CorruptChunkError, RunError, SelectionError
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.chunks.writer import ChunkWriter
from oocarrays.storage.files.array_file import describe
from oocarrays.storage.local.pages import copy
from oocarrays.storage.meter import Meter
from tests.flat import flat
from tests.profiles import examples
from tests.seams import read_plan
from tests.selections import key_of, takens

pytestmark = pytest.mark.long

CODECS: dict[str, tuple[Any, Any]] = {
    "plain": (None, None),
    "zstd": ((ZstdCodec(),), LZ4()),
    "blosc": ((BloscCodec(typesize=4),), LZ4()),
}
"""Compressors in format 3, and in format 2."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all drawn arrays are made in, one after the other."""
    return tmp_path_factory.mktemp("turned")


def made(path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], how: dict[str, Any]) -> zarr.Array:
    """An array whose elements lie in an order of the axes: ``how["order"]``."""
    compressors, older = CODECS[how["codec"]]
    shutil.rmtree(path, ignore_errors=True)
    settings: dict[str, Any] = {"shape": shape, "chunks": chunks, "dtype": how.get("dtype", "i4"), "fill_value": 7}
    if how["zarr_format"] == 2:
        return zarr.create_array(path, zarr_format=2, order="F", compressors=older, **settings)
    if how.get("shards"):
        settings["shards"] = tuple(n * c for n, c in zip(how["shards"], chunks, strict=False))
    return zarr.create_array(path, filters=[TransposeCodec(order=how["order"])], compressors=compressors, **settings)


@st.composite
def ways(draw: st.DrawFn, ndim: int) -> dict[str, Any]:
    """How an array is stored."""
    order = tuple(draw(st.permutations(range(ndim))))
    return {
        "order": order,
        "codec": draw(st.sampled_from(sorted(CODECS))),
        "zarr_format": draw(st.sampled_from((2, 3))),
        "shards": draw(st.none() | st.tuples(*[st.integers(1, 3)] * ndim)),
    }


@st.composite
def arrays(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """A shape, chunks, and how they are stored."""
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
    return shape, tuple(draw(st.integers(1, n + 2)) for n in shape), draw(ways(len(shape)))


def elements(shape: tuple[int, ...]) -> np.ndarray:
    """Elements that differ."""
    return np.arange(int(np.prod(shape)), dtype="i4").reshape(shape) + 100


def test_an_order_is_no_codec(tmp_path: Path) -> None:
    """Ranges of a chunk are read, in whichever order its elements lie; of a coded chunk all of it is."""
    for name, how, requests, nbytes in (
        ("format 3", {"codec": "plain", "order": (1, 0), "zarr_format": 3}, 2, 6 * 4),
        ("format 2", {"codec": "plain", "zarr_format": 2}, 2, 6 * 4),
        ("rows", {"codec": "plain", "order": (0, 1), "zarr_format": 3}, 6, 6 * 4),
        ("coded", {"codec": "zstd", "order": (0, 1), "zarr_format": 3}, 2, None),
    ):
        array = made(tmp_path / name, (6, 8), (3, 4), how)
        array[...] = elements((6, 8))
        a = ooc.open_array(tmp_path / name)
        assert a.orientation == how.get("order", (1, 0))
        with ooc.advise.metered() as meter:
            np.testing.assert_array_equal(a.read(np.s_[:, 1:2], method="direct"), elements((6, 8))[:, 1:2])
        assert meter.read_requests == requests
        assert meter.read_bytes == (nbytes or sum((tmp_path / name / f"c/{row}/0").stat().st_size for row in range(2)))


def test_orders_one_after_the_other_are_one(tmp_path: Path) -> None:
    twice = [TransposeCodec(order=(2, 0, 1)), TransposeCodec(order=(0, 2, 1))]
    array = zarr.create_array(
        tmp_path / "twice", shape=(2, 3, 4), chunks=(2, 3, 4), dtype="i4", filters=twice, compressors=None
    )
    array[:] = elements((2, 3, 4))
    a = ooc.open_array(tmp_path / "twice")
    assert a.orientation == (2, 1, 0)
    np.testing.assert_array_equal(a[:], elements((2, 3, 4)))


@examples(60)
@given(arrays(), st.data(), st.sampled_from(["auto", "direct", "sieve"]), st.sampled_from([None, 16, 100]))
def test_sections_are_read_as_they_were_planned(
    folder: Path, drawn: Any, data: st.DataObject, method: Any, buffer_bytes: int | None
) -> None:
    shape, chunks, how = drawn
    array, values = made(folder / "read", shape, chunks, how), elements(shape)
    array[...] = values
    a, axes = ooc.open_array(array), tuple(data.draw(takens(n)) for n in shape)
    out = np.zeros(tuple(map(len, axes)), data.draw(st.sampled_from(["i4", "f8"])))
    with dask.config.set({"oocarrays.sieve-buffer": buffer_bytes}):
        with ooc.advise.metered() as meter:
            read = a.read(axes, method=method)  # sequences: slices of one run of each chunk need no plan
        plan = read_plan(a, axes, method=method)
        assert a.read(key_of(axes), method=method, out=out) is out
    for each in (read, out):
        np.testing.assert_array_equal(each, values[np.ix_(*axes)])
    assert meter.read_requests == plan.requests
    if how["codec"] == "plain":
        assert meter.read_bytes == plan.asked_bytes


@examples(60)
@given(arrays(), st.data(), st.sampled_from(["auto", "direct"]))
def test_sections_are_written_as_numpy_does(folder: Path, drawn: Any, data: st.DataObject, method: Any) -> None:
    shape, chunks, how = drawn
    method = method if how["codec"] == "plain" and not how["shards"] else "auto"
    array, values = made(folder / "written", shape, chunks, how), elements(shape)
    array[...] = values
    axes = tuple(data.draw(takens(n)) for n in shape)
    new = -1 - elements(tuple(map(len, axes)))
    ooc.open_array(array).write(key_of(axes), new, method=method)
    values[np.ix_(*axes)] = new
    np.testing.assert_array_equal(zarr.open_array(folder / "written", mode="r")[...], values)


@examples(40)
@given(arrays(), st.data())
def test_chunks_are_read_and_written_with_the_arrays_own_axes(folder: Path, drawn: Any, data: st.DataObject) -> None:
    shape, chunks, how = drawn
    array, values = made(folder / "chunks", shape, chunks, how), elements(shape)
    file = describe(array, written=True)
    grid = file.stored.grid
    chunks, padded = grid.chunks, np.full([-(-n // c) * c for n, c in zip(shape, grid.chunks, strict=True)], 7, "i4")
    padded[tuple(map(slice, shape))] = values
    indices = [index for index in np.ndindex(*grid.counts) if data.draw(st.booleans())]
    boxes = {i: tuple(slice(a * c, (a + 1) * c) for a, c in zip(i, chunks, strict=True)) for i in indices}
    whole = {index: np.ascontiguousarray(padded[box]) for index, box in boxes.items()}
    ChunkWriter(file, Meter()).write_all(whole.items())
    expected = np.full(shape, 7, "i4")
    for index in indices:
        expected[grid.section(index).slices] = values[grid.section(index).slices]
    np.testing.assert_array_equal(array[...], expected)
    file = describe(array)
    grid, chunks = file.stored.grid, file.stored.grid.chunks
    reader, every = ChunkReader(file, Meter()), list(np.ndindex(*grid.counts))
    for index, chunk in reader.whole(every, (np.empty(chunks, "i4") for _ in every)):
        there = expected[grid.section(index).slices]
        assert np.array_equal(there, np.full_like(there, 7) if chunk is None else chunk)
    if how["codec"] != "plain" or not all(shape):
        return
    lower = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    box = ooc.Section(lower, tuple(data.draw(st.integers(l + 1, n)) for l, n in zip(lower, shape, strict=True)))
    seen = np.full(box.shape, 7, "i4")
    for part, piece in reader.tiles(grid.indices(box), box, (2,) * len(shape)):
        seen[part.relative_to(box.lower).slices] = 7 if piece is None else piece
    np.testing.assert_array_equal(seen, expected[box.slices])


@examples(25)
@given(st.data(), st.sampled_from(["independent", "two-phase", "assembled", "auto"]))
def test_arrays_are_rechunked_from_one_order_to_another(folder: Path, data: st.DataObject, method: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 24), min_size=1, max_size=3)))
    how = data.draw(ways(len(shape)))
    here, there = (tuple(data.draw(st.integers(1, n + 1)) for n in shape) for _ in range(2))
    array, values = made(folder / "source", shape, here, how), elements(shape)
    array[...] = values
    multiples = data.draw(st.none() | st.tuples(*[st.integers(1, 2)] * len(shape)))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    compressors = () if method == "assembled" else data.draw(st.sampled_from([(), (ZstdCodec(),)]))
    chunks = tuple(min(c, n) for c, n in zip(there, shape, strict=True))
    shards = None if multiples is None or method == "assembled" else tuple(map(mul, chunks, multiples))
    job = ooc.rechunk(
        folder / "source",
        ooc.Target(folder / "target", shards=shards, orientation=order, zarr_format=3, compressors=compressors),
        chunks=chunks,
        memory="64MiB",
        method=method,
        overwrite=True,
        resources=ooc.Resources(scratch=folder / "scratch"),
    )
    target = job.run()
    np.testing.assert_array_equal(zarr.open_array(folder / "target", mode="r")[...], values)
    assert target.orientation == order
    counts, traffic = job.meter, job.plan.passes[0].traffic
    if len(job.plan.passes) == 1 and job.plan.passes[0].method != "assembled":
        assert (counts.read_requests, counts.write_requests) == (traffic.read_requests, traffic.write_requests)
        if how["codec"] == "plain":
            assert counts.read_bytes == traffic.read_bytes


@given(st.data())
def test_blocked_copies_are_numpys(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    shape = tuple(data.draw(st.integers(0, most)) for most in (700, 300, 3)[:ndim])
    dtype = data.draw(st.sampled_from(["u1", "f8", "S70"]))
    values = (np.arange(int(np.prod(shape))) % 251).astype(dtype).reshape(shape)
    there, here = data.draw(st.permutations(range(ndim))), data.draw(st.permutations(range(ndim)))
    into = np.empty([shape[a] for a in there], dtype).transpose(np.argsort(there))
    given_as = np.ascontiguousarray(values.transpose(here)).transpose(np.argsort(here))
    copy(into, given_as)
    np.testing.assert_array_equal(into, values)


@examples(80)
@given(arrays(), st.data())
def test_runs_are_read_without_a_plan_as_with_one(folder: Path, drawn: Any, data: st.DataObject) -> None:
    """Into memory of the caller's, a section is read by its plan."""
    shape, chunks, how = drawn
    how |= {"codec": "plain", "shards": None}
    array, values = made(folder / "runs", shape, chunks, how), elements(shape)
    for index in np.ndindex(*array.cdata_shape):
        box = tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, array.chunks, strict=True))
        if data.draw(st.booleans()):
            array[box] = values[box]
        else:
            values[box] = 7
    wholes = st.sampled_from([None, 0, 1])
    axes = tuple(
        range(n) if (at := data.draw(wholes)) is None or not n else range(at % n, data.draw(st.integers(at % n, n)))
        for n in shape
    )
    a, out = ooc.open_array(array), np.empty(tuple(map(len, axes)), "i4")
    with ooc.advise.metered() as direct:
        read = a.read(key_of(axes))
    with ooc.advise.metered() as planned:
        a.read(key_of(axes), out=out)
    np.testing.assert_array_equal(read, values[np.ix_(*axes)])
    np.testing.assert_array_equal(out, read)
    assert read.dtype == out.dtype
    assert (direct.read_requests, direct.read_bytes) == (planned.read_requests, planned.read_bytes)


@given(arrays(), st.data())
def test_a_run_is_read_by_an_index_as_numpy_takes_it(folder: Path, drawn: Any, data: st.DataObject) -> None:
    shape, chunks, how = drawn
    how |= {"codec": "plain", "shards": None}
    array, values = made(folder / "indexed", shape, chunks, how), elements(shape)
    array[...] = values
    bound = st.none() | st.integers(-9, 9)
    entry = (
        st.integers(-9, 9) | st.just(slice(None)) | st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, -1]))
    )
    key, a = data.draw(st.tuples(*[entry] * len(shape))), ooc.open_array(array)
    try:
        expected = values[key]
    except IndexError:
        with pytest.raises(SelectionError):
            a[key]
        return
    with ooc.advise.metered() as meter:
        read = a[key]
    np.testing.assert_array_equal(read, expected)
    assert read.dtype == expected.dtype
    assert meter.read_bytes <= read_plan(a, key).asked_bytes, "a chunk of nothing but the fill value is not stored"


@pytest.mark.parametrize("filters", [None, [TransposeCodec(order=(1, 0))]], ids=["rows", "columns"])
def test_a_chunk_that_is_replaced_or_gone_is_seen_by_the_next_read(tmp_path: Path, filters: Any) -> None:
    array = zarr.create_array(
        tmp_path / "a", shape=(6, 8), chunks=(6, 2), dtype="i4", compressors=None, filters=filters, fill_value=7
    )
    array[:] = elements((6, 8))
    a = ooc.open_array(tmp_path / "a", missing="error")
    np.testing.assert_array_equal(a[:, 2:4], elements((6, 8))[:, 2:4])
    other = tmp_path / "other"
    other.write_bytes(np.full(12, 3, "i4").tobytes())
    other.rename(tmp_path / "a/c/0/1")
    assert (a[:, 2:4] == 3).all()
    (tmp_path / "a/c/0/1").unlink()
    for key in (np.s_[:, 2:4], np.s_[::2, 2:4], np.s_[...]):
        with pytest.raises(RunError, match=r"lacks 1 chunk, and missing='error': \(0, 1\)"):
            a[key]
    (tmp_path / "a/c/0/1").write_bytes(b"short")
    with pytest.raises(CorruptChunkError, match="has 5 bytes; a chunk has 48"):
        a[:, 2:4]


def test_ranges_of_a_column_are_counted_as_those_of_a_row(tmp_path: Path) -> None:
    how: dict[str, Any] = {"codec": "plain", "zarr_format": 3}
    rows = made(tmp_path / "rows", (512, 256), (64, 256), how | {"order": (0, 1)})
    columns = made(tmp_path / "columns", (256, 512), (256, 64), how | {"order": (1, 0)})
    asked: dict[str, Any] = {"memory": 2**26, "compressors": (), "scheduler": "threads"}
    by_rows = flat(ooc.rechunk, rows, tmp_path / "a", chunks=(512, 32), **asked).plan
    by_columns = flat(
        ooc.rechunk, columns, ooc.Target(tmp_path / "b", orientation=(1, 0)), chunks=(32, 512), **asked
    ).plan
    assert by_rows.passes[0].traffic == by_columns.passes[0].traffic
    assert by_rows.seconds == pytest.approx(by_columns.seconds)
