"""Ragged items of Dask: read when they are computed, written chunk by chunk, in the memory given."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import BudgetError, CorruptChunkError, InputError, UnsupportedError
from tests.graphs.clusters import cluster

MIB = 2**20
pytestmark = [pytest.mark.once, pytest.mark.usefixtures("quick")]


def made(place: Path, shape: Any, *, seed: int = 0, most: int = 300, ranks: int = 2) -> ooc.streams.Ragged:
    """Streams of all three modes, and what they hold."""
    rng, cells = np.random.default_rng(seed), int(np.prod(shape))
    counts = rng.integers(0, most, cells)
    counts[rng.integers(0, cells, 2)] = 0
    late = rng.random(int(counts.sum()))
    level = rng.random((3, cells))
    with ooc.streams.open_streams(place, "w", shape=shape, dtype="f8", ranks=ranks, memory=6 * MIB) as s:
        s.write(level[0].reshape(shape))
        s.write(np.repeat(level[1].reshape(shape), 2, -1)[..., ::2])
        s.write((counts.reshape(shape), late))
    lists = [np.concatenate((level[:2, k], part)) for k, part in enumerate(np.split(late, np.cumsum(counts)[:-1]))]
    return ooc.streams.Ragged((counts + 2).reshape(shape), np.concatenate(lists))


def same(a: ooc.streams.Ragged, b: ooc.streams.Ragged) -> None:
    np.testing.assert_array_equal(a.counts, b.counts)
    np.testing.assert_array_equal(a.values, b.values)
    assert a.values.dtype == b.values.dtype


@pytest.mark.parametrize("shape", [3000, (40, 75), (3, 1000), (2, 3, 500)])
def test_blocks_of_cells_have_blocks_of_values_of_known_sizes(place: Path, shape: Any) -> None:
    want = made(place, shape)
    with ooc.streams.open_streams(place, memory=2 * MIB) as s:
        before = s.meter.read_bytes
        ragged = s.to_dask()
        assert s.meter.read_bytes == before
        same(ragged.compute(), want)
    counts, values = ragged
    assert values.numblocks[0] == counts.npartitions > 4
    assert max(values.chunks[0]) * 8 <= 2 * MIB // 8
    each = [block.compute() for block in counts.blocks.ravel()]
    assert [int(block.sum()) for block in each] == list(values.chunks[0])
    same(ragged.compute(scheduler="processes", num_workers=2), want)


def test_cells_larger_than_a_block_have_several(place: Path) -> None:
    want = ooc.streams.Ragged([3, 0, 200_000, 5, 0], np.arange(200_008.0))
    ooc.streams.streams_from_ragged(place, want, memory=8 * MIB)
    ragged = ooc.streams.open_streams(place, memory=4 * MIB).to_dask()
    assert max(ragged.values.chunks[0]) * 8 <= MIB // 2
    assert len(ragged.values.chunks[0]) == 6
    same(ragged.compute(), want)
    np.testing.assert_array_equal(ragged.values[100_000:100_005].compute(), np.arange(100_000.0, 100_005))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (4, 2)])
def test_streams_of_any_shape_and_without_items(place: Path, shape: Any) -> None:
    with ooc.streams.open_streams(place, "w", shape=shape, dtype="i4") as s:
        same(s.to_dask().compute(), s.to_ragged())
        if not shape:
            s.write((np.array(3), np.arange(3, dtype="i4")))
            assert s.to_dask().values.compute().tolist() == [0, 1, 2]


def test_what_was_written_is_flushed_and_what_comes_later_is_not_among_it(place: Path) -> None:
    with ooc.streams.open_streams(place, "w", shape=3, dtype="i8") as s:
        s.write(([2, 0, 1], np.arange(3)))
        first = s.to_dask()
        s.write(([1, 1, 1], np.arange(3)))
        assert first.compute().to_list() == [[0, 1], [], [2]]
    later = pickle.loads(pickle.dumps(first))
    with ooc.streams.open_streams(place, "a", ranks=2) as s:
        s.write(([5, 6, 7], np.arange(18)))
    assert later.compute().to_list() == [[0, 1], [], [2]]
    ooc.streams.streams_from_ragged(place, [1, 0, 1], np.arange(2), overwrite=True)
    with pytest.raises(CorruptChunkError, match="shorter streams than when"):
        pickle.loads(pickle.dumps(first)).compute()


def test_bytes_read_as_items_and_an_array_that_is_a_stream_file(place: Path, tmp_path: Path) -> None:
    with ooc.streams.open_streams(place, "w", shape=3, dtype="u1") as s:
        s.write(([9, 16, 3], np.arange(28, dtype="u1")))
    ragged = ooc.streams.open_streams(place, dtype="i4").to_dask()
    same(ragged.compute(), ooc.streams.open_streams(place, dtype="i4").to_ragged())
    values = np.arange(60, dtype="i4").reshape(10, 3, 2)
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(4, 2, 2))
    ragged = pickle.loads(pickle.dumps(ooc.streams.open_streams(tmp_path / "a.zarr").to_dask()))
    np.testing.assert_array_equal(ragged.compute().padded(), np.moveaxis(values, 0, -1))


def test_awkward_takes_what_comes_back(place: Path) -> None:
    awkward = pytest.importorskip("awkward")
    want = made(place, (4, 5), most=9)
    found = ooc.streams.open_streams(place).to_dask().to_awkward()
    assert awkward.to_list(found) == awkward.to_list(want.to_awkward()) == want.to_list()
    with ooc.streams.open_streams(place, "a") as s:
        s.write(found)
    assert ooc.streams.open_streams(place)[3, 4].tolist() == 2 * want[3, 4].tolist()


@pytest.mark.parametrize("shape", [500, (20, 25)])
@pytest.mark.parametrize("of_counts", [da.from_array, np.asarray])
def test_what_dask_has_is_written_chunk_by_chunk(place: Path, tmp_path: Path, shape: Any, of_counts: Any) -> None:
    want = made(place, shape, most=2000)
    values = da.from_array(want.values, chunks=10_007)
    ooc.streams.streams_from_ragged(tmp_path / "t.zarr", of_counts(want.counts), values, memory=4 * MIB)
    same(ooc.streams.open_streams(tmp_path / "t.zarr").to_ragged(), want)
    with (
        ooc.streams.open_streams(place, memory=4 * MIB) as s,
        ooc.streams.open_streams(tmp_path / "t.zarr", "a", memory=4 * MIB) as t,
    ):
        t.write(s.to_dask())
    np.testing.assert_array_equal(ooc.streams.open_streams(tmp_path / "t.zarr").to_ragged().counts, 2 * want.counts)
    last = (0,) * want.counts.ndim
    assert ooc.streams.open_streams(tmp_path / "t.zarr")[last].tolist() == 2 * want[last].tolist()


def test_few_items_of_dask_are_written_as_those_of_numpy(place: Path) -> None:
    ooc.streams.streams_from_ragged(place, np.full(6, 2), da.arange(12.0, chunks=5))
    with ooc.streams.open_streams(place) as s:
        assert s.mode == "NB"
        assert s[5].tolist() == [10, 11]
    ooc.streams.streams_from_ragged(place, da.from_array([1, 0]), np.ones(1), overwrite=True)
    assert ooc.streams.open_streams(place).lengths.tolist() == [8, 0]


@pytest.mark.long
def test_what_is_held_is_at_most_the_memory_given(place: Path, tmp_path: Path) -> None:
    memory, cells = 8 * MIB, 1000
    counts = np.random.default_rng(0).integers(0, 12_000, cells)
    total = int(counts.sum())
    values = da.arange(float(total), chunks=memory // 8 // 4)
    ooc.streams.streams_from_ragged(tmp_path / "w.zarr", da.from_array([1, 2]), da.arange(3.0), memory=memory)
    dask.compute(ooc.streams.open_streams(tmp_path / "w.zarr").to_dask())
    tracemalloc.start()
    try:
        with dask.config.set(scheduler="synchronous"):
            ooc.streams.streams_from_ragged(place, counts, values, memory=memory)
            assert tracemalloc.get_traced_memory()[1] <= memory
            with ooc.streams.open_streams(place, memory=memory) as s:
                ragged = s.to_dask()
            tracemalloc.reset_peak()
            found = ragged.values.sum().compute()
            assert tracemalloc.get_traced_memory()[1] <= memory
    finally:
        tracemalloc.stop()
    assert total * 8 > 5 * memory
    assert found == pytest.approx(total * (total - 1) / 2)


@pytest.mark.parametrize("mode", ["NB", "CB", "NB of many"])
def test_even_streams_are_read_in_the_memory_given(place: Path, mode: str) -> None:
    """Each step of each cell had been said of by itself, which took several times what it is."""
    memory, cells, steps = 8 * MIB, 10_000, 64
    with ooc.streams.open_streams(place, "w", shape=cells, dtype="f8", memory=memory) as s:
        for step in range(0, steps, 4):
            values = np.arange(cells)[:, None] + np.arange(step, step + 4) / 64
            if mode == "NB of many":
                s.write(values)
            else:
                for each in values.T:
                    s.write(np.ascontiguousarray(each) if mode == "NB" else np.repeat(each, 2)[::2])
        assert s.mode == mode[:2]
    tracemalloc.start()
    try:
        with ooc.streams.open_streams(place, memory=memory) as s, dask.config.set(scheduler="synchronous"):
            ragged = s.to_dask()
            found = ragged.values.sum().compute()
        assert tracemalloc.get_traced_memory()[1] <= memory
        tracemalloc.reset_peak()
        with ooc.streams.open_streams(place, memory=memory) as s:
            s.to_ragged()
        assert tracemalloc.get_traced_memory()[1] <= memory + 3 * 8 * steps * cells
    finally:
        tracemalloc.stop()
    assert found == steps * cells * (cells - 1) // 2 + cells * (steps - 1) / 2
    with ooc.streams.open_streams(place) as s:
        np.testing.assert_array_equal(s.to_ragged().values, ragged.values.compute())
        np.testing.assert_array_equal(s[777], 777 + np.arange(64) / 64)
        np.testing.assert_array_equal(s.to_ragged()[9999], 9999 + np.arange(64) / 64)


UNKNOWN = da.arange(4.0, chunks=2)
WRONG: dict[str, tuple[type[Exception], str, Any, Any]] = {
    "add up": (InputError, "add up to 3 items", [1, 2], UNKNOWN),
    "negative": (InputError, "go down to -1", da.from_array(np.array([5, -1])), UNKNOWN),
    "counts of floats": (InputError, "not whole numbers", da.from_array(np.array([2.0, 2.0])), UNKNOWN),
    "unknown sizes": (InputError, "compute_chunk_sizes", [2, 2], UNKNOWN[UNKNOWN > 0]),
    "two axes": (InputError, r"shape \(2, 2\)", [2, 2], UNKNOWN.reshape(2, 2)),
    "large chunks": (BudgetError, "a chunk of values", [10**6, 10**6], da.ones(2 * 10**6, chunks=10**6)),
}


@pytest.mark.parametrize(("kind", "words", "counts", "values"), WRONG.values(), ids=WRONG)
def test_wrong_input_gets_one_line_before_anything_is_made(
    place: Path, kind: Any, words: str, counts: Any, values: Any
) -> None:
    with pytest.raises(kind, match=words):
        ooc.streams.streams_from_ragged(place, counts, values, memory="8MiB")
    assert not place.exists()


def test_wrong_input_to_streams_that_are_open(place: Path) -> None:
    big = da.arange(2_000_000, chunks=100_000)
    with ooc.streams.open_streams(place, "w", shape=2, dtype="i4", memory="8MiB") as s:
        with pytest.raises(InputError, match=r"counts of shape \(3,\) do not fit"):
            s.write(s.to_dask()._replace(counts=np.array([1, 1, 1])))
        with pytest.raises(InputError, match="no items of dtype"):
            s.write((np.array([10**6, 10**6]), big.astype("f8")))
        with pytest.raises(InputError, match="a block of values has shape"):
            s.write((np.array([10**6, 10**6]), big.map_blocks(lambda x: x[1:], dtype="i4")))
        assert s.lengths.tolist() == [0, 0]
    with pytest.raises(UnsupportedError, match="is closed"):
        s.to_dask()
    with ooc.streams.open_streams(place.with_name("many.zarr"), "w", shape=10**5, dtype="i4", memory="128MiB"):
        pass
    with ooc.streams.open_streams(place.with_name("many.zarr"), memory="24MiB") as s:
        with pytest.raises(BudgetError, match=r"memory=24.0 MiB .* streams of 100000 cells as Dask arrays") as error:
            s.to_dask()
        least = error.value.least
    with ooc.streams.open_streams(place.with_name("many.zarr"), memory=least) as s:
        assert s.to_dask().counts.shape == (10**5,)
    with pytest.raises(UnsupportedError, match="open for reading"):
        ooc.streams.open_streams(place).write((np.array([1, 1]), da.arange(2, dtype="i4")))


def test_tasks_on_workers_open_the_file_themselves(place: Path, tmp_path: Path) -> None:
    want = made(place, (40, 5))
    zarr.create_array(tmp_path / "a.zarr", data=np.arange(60.0).reshape(3, 20), dimension_names=("x", "stream"))
    with cluster(2) as client:
        with ooc.streams.open_streams(place, memory=2 * MIB) as s:
            same(s.to_dask().compute(), want)
        with ooc.streams.open_streams(place, "a", scheduler=client, memory=16 * MIB) as s:
            s.write(np.full((40, 5), 7.0))
            found = s.to_dask().compute()
        with pytest.raises(UnsupportedError, match="plain Zarr array"):
            ooc.streams.open_streams(tmp_path / "a.zarr", scheduler=client)
        with ooc.streams.open_streams(tmp_path / "a.zarr") as s:
            assert s.to_dask().compute().to_list() == np.arange(60.0).reshape(3, 20).tolist()
    assert (found.counts == want.counts + 1).all()
    assert found[39, 4].tolist() == [*want[39, 4].tolist(), 7]


@pytest.mark.parametrize(("mode", "there"), [("w", [[], [], []]), ("a", [[1.0], [], [2.0, 3.0]])])
def test_a_block_that_cannot_be_computed_leaves_no_part_of_the_values(place: Path, mode: Any, there: Any) -> None:
    if mode == "a":
        ooc.streams.streams_from_ragged(place, [1, 0, 2], [1.0, 2.0, 3.0])

    def fails(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        if block_info and block_info[0]["chunk-location"][0] == 3:
            raise ValueError("no such block")
        return block

    counts, given = np.array([100_000, 50_000, 150_000]), da.ones(300_000, chunks=50_000)
    values = given.map_blocks(fails, dtype="f8")
    with pytest.raises(ValueError, match="no such block"):
        ooc.streams.streams_from_ragged(place, counts, values, mode=mode, memory="8MiB")
    assert ooc.streams.open_streams(place).to_ragged().to_list() == there
    ooc.streams.streams_from_ragged(place, [1, 1, 0], [4.0, 5.0], overwrite=True)
    assert ooc.streams.open_streams(place).to_ragged().to_list() == [[4.0], [5.0], []]
