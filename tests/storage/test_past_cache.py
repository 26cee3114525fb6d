"""Reading and writing past the system's cache: the same elements, and the cache is left as it was."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import CorruptChunkError
from oocarrays.storage.files.array_file import ArrayFile, describe
from oocarrays.storage.local import pages
from oocarrays.storage.local.pages import cached_bytes
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.write import write_section
from tests.flat import flat
from tests.pairs import pairs
from tests.profiles import examples

pytestmark = pytest.mark.long

ROWS = 700
"""Of 8 KiB: chunks of 100 rows are whole sectors."""
DATA = np.random.default_rng(0).random((ROWS, 1024))


@pytest.fixture(autouse=True)
def short_ranges_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "LONG_BYTES", 1)


def stored(folder: Path, **how: Any) -> ArrayFile:
    return describe(zarr.create_array(folder / "a.zarr", data=DATA, chunks=(100, 1024), compressors=None, **how))


def each_chunk(folder: Path, do: Callable[[int], Any]) -> list[Any]:
    found = []
    for path in sorted(folder.rglob("c/*/*")):
        file = os.open(path, os.O_RDONLY)
        found.append(do(file))
        os.close(file)
    return found


def make_cold(file: int) -> None:
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def cached(file: int) -> int | None:
    return cached_bytes(file, 0, os.fstat(file).st_size)


@pytest.fixture
def tells(tmp_path: Path) -> None:
    """Skips where the system does not tell what is in its cache, or keeps files in memory only."""
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "0").mkdir()
    (tmp_path / "c" / "0" / "0").write_bytes(bytes(2**16))
    each_chunk(tmp_path, make_cold)
    if any(there != 0 for there in each_chunk(tmp_path, cached)):
        pytest.skip("files stay in memory, or the system does not tell")


@pytest.mark.parametrize(
    *pairs(
        rows=[range(700), range(100, 300), range(37, 655), range(0, 700, 3), np.array([1, 5, 699])],
        columns=[range(1024), range(5, 1000)],
        chunks=["cold", "warm", "some"],
        threads=[1, 2],
    )
)
def test_a_section_is_what_numpy_takes(tmp_path: Path, rows: Any, columns: Any, chunks: str, threads: int) -> None:
    file = stored(tmp_path)
    if chunks != "warm":
        each_chunk(tmp_path, make_cold)
    if chunks == "some":
        read_section(file, (range(150, 350), range(1024)))
    found = read_section(file, (rows, columns), threads=threads, past_cache=True)
    np.testing.assert_array_equal(found, DATA[np.ix_(rows, columns)])


def test_what_is_cold_stays_cold_and_what_is_warm_warm(tmp_path: Path, tells: None) -> None:
    folder = tmp_path / "x"
    a = ooc.open_array(stored(folder).zarr)
    each_chunk(folder, make_cold)
    with dask.config.set({"oocarrays.past-cache-above": 1}):
        np.testing.assert_array_equal(np.concatenate([slab.data for slab in a.slabs(memory="64MiB")]), DATA)
    assert sum(each_chunk(folder, cached)) == 0
    a[...]
    warm = each_chunk(folder, cached)
    assert min(warm) > 0
    with dask.config.set({"oocarrays.past-cache-above": 1}):
        np.testing.assert_array_equal(np.concatenate([slab.data for slab in a.slabs(memory="64MiB")]), DATA)
    assert each_chunk(folder, cached) == warm


def test_what_is_in_memory_only_is_read_in_the_usual_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a file system refuses, or sectors are larger, or the system does not tell what its cache has."""
    file = stored(tmp_path)
    for name, instead in {
        "cached_bytes": lambda *_: None,
        "read_past_cache": lambda files, *_: np.zeros(len(files), np.int64),
    }.items():
        each_chunk(tmp_path, make_cold)
        with monkeypatch.context() as patch:
            patch.setattr(pages, name, instead)
            patch.setattr("oocarrays.storage.sections.sieved.read_past_cache", pages.read_past_cache)
            found = read_section(file, (range(ROWS), range(1024)), past_cache=True)
        np.testing.assert_array_equal(found, DATA)


def test_a_chunk_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    a = ooc.open_array(stored(tmp_path).zarr)
    os.truncate(next(iter(sorted(tmp_path.rglob("c/3/*")))), 12345)
    each_chunk(tmp_path, make_cold)
    with (
        dask.config.set({"oocarrays.past-cache-above": 1}),
        pytest.raises(CorruptChunkError, match="12345 bytes"),
    ):
        list(a.slabs(memory="64MiB"))


@examples(40)
@given(st.integers(1, 40), st.integers(1, 3000), st.data(), st.sampled_from(["u1", "f8"]), st.booleans())
def test_what_is_written_is_what_numpy_writes(
    tmp_path_factory: pytest.TempPathFactory, rows: int, columns: int, data: st.DataObject, dtype: str, aligned: bool
) -> None:
    """Chunks of any number of bytes, from memory on sectors and not, parts of chunks too."""
    store = tmp_path_factory.getbasetemp() / "written.zarr"
    chunks = data.draw(st.integers(1, rows)), data.draw(st.integers(1, columns))
    before = np.arange(rows * columns).reshape(rows, columns).astype(dtype)
    array = zarr.create_array(store, data=before, chunks=chunks, compressors=None, overwrite=True)
    low, left = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    values = (before[low:, left:] + 1).astype(dtype)
    if aligned:
        room = np.empty(values.nbytes + 4096, "u1")
        room = room[-room.ctypes.data % 4096 :][: values.nbytes].view(dtype).reshape(values.shape)
        room[...] = values
        values = room
    write_section(describe(array), (range(low, rows), range(left, columns)), values, past_cache=True)
    before[low:, left:] = values
    np.testing.assert_array_equal(zarr.open_array(store)[...], before)


def test_what_is_written_past_the_cache_is_not_in_it(tmp_path: Path, tells: None) -> None:
    source = stored(tmp_path / "x").zarr
    (tmp_path / "y").mkdir()
    with dask.config.set({"oocarrays.past-cache-above": 1}):
        target = ooc.map_slabs(
            np.negative, source, tmp_path / "y" / "a.zarr", memory="64MiB", scheduler="threads"
        ).run()
    assert sum(each_chunk(tmp_path / "y", cached)) == 0
    np.testing.assert_array_equal(target[...], -DATA)


def test_no_descriptor_stays_direct(tmp_path: Path) -> None:
    """Flags are of an open file: what is read after long ranges is read as before."""
    a = ooc.open_array(stored(tmp_path).zarr)
    each_chunk(tmp_path, make_cold)
    before = len(os.listdir("/proc/self/fd"))
    with dask.config.set({"oocarrays.past-cache-above": 1}):
        for slab in a.slabs(memory="64MiB"):
            assert slab.data.size
    assert len(os.listdir("/proc/self/fd")) == before


def test_passes_of_an_iteration_count_together(tmp_path: Path) -> None:
    """Each writes 5.6 MB; the cache would take what all of them write."""
    source = zarr.create_array(tmp_path / "a.zarr", data=DATA, chunks=(100, 1024), compressors=None)
    with dask.config.set({"oocarrays.past-cache-above": "8MB"}):
        for fuse, past in ((4, False), (2, True)):
            plan = ooc.iterate(
                abs, source, tmp_path / "b.zarr", sweeps=4, memory="64MiB", resources=ooc.Resources(fuse=fuse)
            ).plan
            assert {each.past_cache for each in plan.passes} == {past}


@pytest.mark.parametrize("boundary", ["none", "reflect"])
@pytest.mark.parametrize("above", [1, "1GiB"])
def test_passes_over_large_arrays_go_past_it(tmp_path: Path, boundary: str, above: Any) -> None:
    source = zarr.create_array(tmp_path / "a.zarr", data=DATA, chunks=(100, 1024), compressors=None)

    def smooth(u: np.ndarray) -> np.ndarray:
        u[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
        return u

    with dask.config.set({"oocarrays.past-cache-above": above}):
        how: dict[str, Any] = {"memory": "64MiB", "boundary": boundary, "scheduler": "threads"}
        job = flat(ooc.map_slabs, smooth, source, tmp_path / "b.zarr", depth=1, **how)
        swept = flat(ooc.iterate, smooth, source, tmp_path / "c.zarr", sweeps=4, resources=ooc.Resources(fuse=2), **how)
        each_chunk(tmp_path, make_cold)
        target = job.run()
        once = target[...]
        assert job.plan.past_cache == (above == 1)
        assert job.meter.read_bytes == job.plan.traffic.read_bytes
        each_chunk(tmp_path, make_cold)
        padded = DATA if boundary == "none" else np.pad(DATA, 1, mode="symmetric")
        inside = slice(None) if boundary == "none" else slice(1, -1)
        np.testing.assert_array_equal(once, smooth(padded.copy())[inside, inside])
        four = DATA
        for _ in range(4):
            padded = four if boundary == "none" else np.pad(four, 1, mode="symmetric")
            four = smooth(padded.copy())[inside, inside]
        np.testing.assert_array_equal(swept.run()[...], four)
        np.testing.assert_array_equal(np.concatenate([s.data[s.inside] for s in target.slabs()]), once)
