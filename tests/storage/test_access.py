from __future__ import annotations

import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.storage import LocalStore, MemoryStore

import oocarrays as ooc
from oocarrays import Section
from oocarrays.errors import CorruptChunkError, StoreFailure
from oocarrays.mapping.grid import ChunkGrid, chunks_along
from oocarrays.storage.chunks.elements import scatter
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.files.array_file import describe
from oocarrays.storage.local.blobs import LocalBlobs, open_ahead
from oocarrays.storage.meter import Meter
from tests.profiles import examples
from tests.strategies import grids

pytestmark = pytest.mark.long


@st.composite
def sections_of(draw: st.DrawFn, grid: ChunkGrid) -> Section:
    bounds = [sorted(draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))) for n in grid.shape]
    return Section(tuple(l for l, _ in bounds), tuple(u for _, u in bounds))


some_grids = grids().filter(lambda grid: 0 not in grid.shape)


@given(some_grids, st.data())
def test_scatter_puts_elements_where_their_chunks_lie(grid: ChunkGrid, data: st.DataObject) -> None:
    section = data.draw(sections_of(grid))
    values = np.arange(1, section.size + 1).reshape(section.shape)
    buffer = np.zeros(grid.counts + grid.chunks, int)
    scatter(buffer, (0,) * len(grid.shape), section, values)
    array = np.zeros(grid.shape, int)
    array[section.slices] = values
    for index in np.ndindex(grid.counts):
        cell = array[grid.section(index).slices]
        assert (buffer[index][tuple(map(slice, cell.shape))] == cell).all()
    assert (buffer != 0).sum() == section.size


@examples(60)
@given(some_grids, st.data(), st.integers(1, 400))
def test_tiles_are_numpys_selection(grid: ChunkGrid, data: st.DataObject, limit: int) -> None:
    section = data.draw(sections_of(grid))
    values = np.arange(np.prod(grid.shape, dtype=int), dtype="i4").reshape(grid.shape)
    file = describe(zarr.create_array(MemoryStore(), data=values, chunks=grid.chunks, compressors=None, fill_value=-1))
    tile = chunks_along(range(len(grid.chunks)), list(map(min, grid.chunks, section.shape)), limit // 4)
    got = np.zeros(grid.shape, "i4")
    meter = Meter()
    for part, tile_values in ChunkReader(file, meter).tiles(grid.indices(section), section, tile):
        assert tile_values is not None
        got[part.slices] += tile_values
    expected = np.zeros(grid.shape, "i4")
    expected[section.slices] = values[section.slices]
    assert (got == expected).all()
    assert meter.read_bytes == section.size * 4


@pytest.mark.parametrize("past_cache", [False, True])
@pytest.mark.parametrize("nbytes", [1, 4096, 4097])
def test_a_blob_is_replaced_at_once(tmp_path, past_cache: bool, nbytes: int) -> None:
    blobs = LocalBlobs(str(tmp_path), past_cache=past_cache)
    for value in (b"a", b"b"):
        blobs.put("c/0/1", memoryview(value * nbytes))
        assert (tmp_path / "c/0/1").read_bytes() == value * nbytes
    assert [p.name for p in (tmp_path / "c/0").iterdir()] == ["1"], "no partial file is left"


def test_open_ahead_closes_what_nobody_asked_for(tmp_path) -> None:
    blobs = LocalBlobs(str(tmp_path))
    for key in "abcd":
        blobs.put(key, memoryview(b"x"))
    opened = open_ahead(blobs, ["a", "b", "missing", "d"], read_ahead=True)
    first = next(opened)
    assert first is not None
    assert bytes(first.read_all()) == b"x"
    opened.close()
    with pytest.raises(StoreFailure):
        first.read_into(0, memoryview(bytearray(1)))


def test_a_chunk_of_the_fill_value_is_not_stored(tmp_path) -> None:
    values = np.array([np.nan, np.nan, 1, np.nan], "f4")
    zarr.create_array(tmp_path / "a", data=values, chunks=(4,), fill_value=np.nan)
    job = ooc.rechunk(tmp_path / "a", tmp_path / "b", chunks=(2,), scheduler="threads")
    np.testing.assert_array_equal(job.run()[...], values)
    assert (job.meter.skipped_chunks, job.meter.write_requests) == (1, 1)
    assert not (tmp_path / "b/c/0").exists()


def test_a_file_cut_short_is_one_clear_error(tmp_path) -> None:
    zarr.create_array(tmp_path / "a", data=np.ones((4, 4)), chunks=(4, 4), compressors=None)
    (tmp_path / "a/c/0/0").write_bytes(b"short")
    a = ooc.open_array(tmp_path / "a")
    for key in (np.s_[:, :2], np.s_[:2], np.s_[::3, ::3], np.s_[...]):
        with pytest.raises(CorruptChunkError, match="has 5 bytes; a chunk has 128"):
            a[key]


@pytest.mark.long
def test_more_than_two_gib_are_read_and_written(tmp_path) -> None:
    """The kernel stops a call at 2 GiB less a page."""
    size = 2**31 + 4096
    (tmp_path / "big").touch()
    with (tmp_path / "big").open("r+b") as file:
        file.truncate(size)
        file.seek(size - 5)
        file.write(b"tail!")
    data = LocalBlobs(str(tmp_path)).open("big").read_all()
    assert len(data) == size
    assert bytes(data[-5:]) == b"tail!"


@pytest.mark.parametrize("store", [MemoryStore, LocalStore], ids=["memory", "local"])
@pytest.mark.parametrize(
    ("codecs", "pipeline"),
    [
        ({"compressors": None}, "plain"),
        ({"compressors": zarr.codecs.ZstdCodec()}, "numcodecs"),
        ({"compressors": zarr.codecs.BloscCodec()}, "numcodecs"),
        ({"compressors": zarr.codecs.GzipCodec()}, "numcodecs"),
    ],
    ids=["none", "zstd", "blosc", "gzip"],
)
def test_the_shortest_way_through_a_codec_is_found(tmp_path, store, codecs, pipeline) -> None:
    place = MemoryStore() if store is MemoryStore else LocalStore(tmp_path / "a")
    array = zarr.create_array(place, shape=(4, 4), chunks=(2, 2), dtype="f8", **codecs)
    file = describe(array)
    assert file.chain.pipeline == pipeline
    assert file.stored.local == (store is LocalStore)
