"""Sections that are read, beside numpy's own indexing of the same array in memory."""

from __future__ import annotations

import errno
import os
import resource
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import CorruptChunkError, StoreFailure
from oocarrays.storage.local import ranges
from tests.pairs import pairs
from tests.seams import read_plan

pytestmark = pytest.mark.long

DTYPES = ("u1", "<i4", ">i4", "f8", "c16", "bool", "M8[s]", "S3")


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """An index an axis: an integer, a slice of any stride, or a sequence."""

    def along(extent: int) -> Any:
        places = st.none() | st.integers(-extent - 1, extent + 1)
        slices = st.builds(slice, places, places, st.integers(-4, 4).filter(bool))
        if not extent:
            return draw(slices)
        index = st.integers(-extent, extent - 1)
        return draw(st.one_of(slices, index, st.lists(index, max_size=extent + 2)))

    return tuple(map(along, shape))


@st.composite
def stored_arrays(draw: st.DrawFn) -> tuple[dict[str, Any], np.ndarray, bool]:
    """How an array is made, its elements, and whether only a part of them is written."""
    shape = draw(st.lists(st.integers(0, 6), max_size=4).map(tuple))
    chunks = tuple(draw(st.integers(1, n + 2)) for n in shape)
    made: dict[str, Any] = {"shape": shape, "chunks": chunks, "dtype": draw(st.sampled_from(DTYPES))}
    if made["dtype"] == "S3" or draw(st.booleans()):
        made |= {"zarr_format": 2, "order": draw(st.sampled_from("CF"))}
    elif shape and draw(st.booleans()):
        made["shards"] = tuple(c * draw(st.integers(1, 3)) for c in chunks)
    made["compressors"] = None if draw(st.booleans()) else "auto"
    data = (np.arange(int(np.prod(shape))).reshape(shape) % 120 + 1).astype(made["dtype"])
    return made, data, draw(st.booleans())


def product_of(data: np.ndarray, key: tuple[Any, ...]) -> np.ndarray:
    """What a key takes, one axis after the other."""
    for axis in reversed(range(data.ndim)):
        place: Any = (slice(None),) * axis
        entry = np.array(key[axis], int) if isinstance(key[axis], list) else key[axis]
        data = data[(*place, entry)]
    return data


@given(stored_arrays(), st.data(), st.sampled_from(["auto", "direct", "sieve"]), st.sampled_from([None, 8, 100]))
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_what_is_read_is_what_numpy_takes(
    tmp_path_factory: pytest.TempPathFactory,
    stored: tuple[dict[str, Any], np.ndarray, bool],
    data: st.DataObject,
    method: Any,
    buffer_bytes: int | None,
) -> None:
    how, elements, half = stored
    store: Any = {} if data.draw(st.booleans()) else tmp_path_factory.getbasetemp() / "drawn"
    array = zarr.create_array(store, overwrite=True, fill_value=np.zeros((), elements.dtype)[()], **how)
    if half and elements.ndim:
        elements[elements.shape[0] // 2 :] = np.zeros((), elements.dtype)
    array[...] = elements
    key = data.draw(keys(elements.shape))
    with reading(buffer=buffer_bytes) as meter:
        a = ooc.open_array(array)
        np.testing.assert_array_equal(a.read(key, method=method), product_of(elements, key))
        plan = read_plan(a, key, method=method)
    assert plan.requests >= meter.read_requests
    if not half:
        assert (plan.requests, plan.decoded_bytes) == (meter.read_requests, meter.decoded_bytes)
        assert plan.stored.coded or plan.asked_bytes == meter.read_bytes


@contextmanager
def reading(buffer: int | None = None, threads: int = 1) -> Iterator[Any]:
    """Count what is read, in buffers of some bytes and by some threads."""
    set_so = {} if buffer is None else {"oocarrays.sieve-buffer": buffer}
    with dask.config.set({"num_workers": threads} | set_so), ooc.advise.metered() as meter:
        yield meter


def plain(tmp_path: Path, **settings: Any) -> tuple[ooc.OutOfCoreArray, np.ndarray]:
    """An array of 256 x 512 in uncompressed chunks of 64 rows, or otherwise, in local files."""
    data = np.arange(256 * 512, dtype="i4").reshape(256, 512)
    how = {"chunks": (64, 512), "compressors": None} | settings
    return ooc.open_array(zarr.create_array(tmp_path / "a", data=data, **how)), data


@pytest.mark.parametrize("settings", [{}, {"chunks": (16, 16), "shards": (64, 128)}, {"chunks": (256, 8)}])
@pytest.mark.parametrize("key", [np.s_[0:256:4, 0:512:64], np.s_[[3, 4, 9, 200], :]], ids=str)
def test_threads_and_an_out_of_any_strides_and_type(tmp_path: Path, settings: dict[str, Any], key: Any) -> None:
    a, data = plain(tmp_path, **settings)
    expected = data[key]
    for out in (np.empty(expected.shape, "i4"), np.empty(expected.shape[::-1], "f8").T):
        for threads in (1, 2):
            out[...] = 0
            with reading(threads=threads):
                a.read(key, out=out)
            np.testing.assert_array_equal(out, expected)


def test_no_room_for_batches_and_no_way_not_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems without ``io_submit``, and file systems that do not tell what the cache has."""
    a, data = plain(tmp_path)
    monkeypatch.setattr(ranges, "_refused", True)
    real = os.preadv

    def waits_always(file: int, into: Any, offset: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(file, [into[0][:7]], offset)  # and brings little at a time

    monkeypatch.setattr(os, "preadv", waits_always)
    np.testing.assert_array_equal(a.read(np.s_[::3, 5:9], method="direct"), data[::3, 5:9])


def test_what_is_not_in_the_cache_is_waited_for(tmp_path: Path) -> None:
    a, data = plain(tmp_path)
    for path in Path(tmp_path / "a").rglob("*"):
        if path.is_file():
            with path.open("rb") as opened:
                os.fsync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with reading() as meter:
        np.testing.assert_array_equal(a.read(np.s_[:, 5:6], method="direct"), data[:, 5:6])
    assert (meter.read_requests, meter.read_bytes) == (256, 1024)


def test_what_is_held_is_what_the_plan_says(tmp_path: Path) -> None:
    data = np.zeros((64, 2**17), "f4")
    a = ooc.open_array(zarr.create_array(tmp_path / "a", data=data, chunks=(32, 2**17), compressors=None))
    key, out = np.s_[:, ::2], np.empty((64, 2**16), "f4")
    with reading(buffer=2**18, threads=2):
        plan = read_plan(a, key)
        tracemalloc.start()
        a.read(key, out=out)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert plan.held_bytes < 2**21
    assert peak < plan.held_bytes + 2**19


@pytest.mark.parametrize(
    *pairs(
        codec=[zarr.codecs.ZstdCodec(), zarr.codecs.GzipCodec(), zarr.codecs.BloscCodec()],
        buffer_bytes=[2**10, 2**14, None],
        shards=[None, (64, 128)],
    )
)
def test_coded_chunks_are_read_once_within_what_the_plan_holds(
    tmp_path: Path, codec: Any, shards: Any, buffer_bytes: int | None
) -> None:
    """One by one or many at a time, as the buffer has room; one is missing."""
    a, data = plain(tmp_path, chunks=(16, 32), shards=shards, compressors=codec)
    key, out = np.s_[3:256:3, ::5], np.empty((85, 103), "i4")
    with reading(buffer=buffer_bytes) as meter:
        plan = read_plan(a, key)
        a.read(key, out=out)
    with reading(buffer=buffer_bytes, threads=2):
        tracemalloc.start()
        a.read(key, out=out)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    np.testing.assert_array_equal(out, data[3::3, ::5])
    assert (meter.read_requests, meter.decoded_bytes) == (plan.requests, plan.decoded_bytes) == (256, data.nbytes)
    assert peak < plan.held_bytes + 2**19
    a.zarr[64:128, 128:256] = 0
    data[64:128, 128:256] = 0
    with reading(buffer=buffer_bytes):
        np.testing.assert_array_equal(a.read(key), data[3::3, ::5])


def test_a_chunk_of_each_of_many_shards_opens_few_files(tmp_path: Path) -> None:
    data = np.arange(2**13, dtype="i4")
    a = ooc.open_array(zarr.create_array(tmp_path / "a", data=data, chunks=(4,), shards=(8,), compressors=None))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 300, limit[1]))
    try:
        np.testing.assert_array_equal(a.read(np.s_[::8]), data[::8])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_a_coded_chunk_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    a, _ = plain(tmp_path, chunks=(16, 32), compressors=zarr.codecs.ZstdCodec())
    victim = tmp_path / "a" / "c" / "2" / "5"
    victim.write_bytes(victim.read_bytes()[:-9])
    with pytest.raises(CorruptChunkError, match=r"chunk c/2/5 of .* cannot be decoded by zstd"):
        a.read(np.s_[::3])


@pytest.mark.parametrize("settings", [{}, {"chunks": (16, 16), "shards": (64, 128)}])
def test_a_chunk_that_is_cut_short_is_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    a, _ = plain(tmp_path, **settings)
    victim = max(Path(tmp_path / "a" / "c").rglob("*"), key=lambda path: path.stat().st_size * path.is_file())
    os.truncate(victim, victim.stat().st_size - 1 if not settings else 100)
    with pytest.raises(CorruptChunkError):
        a.read(np.s_[:, ::3])


def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    a, _ = plain(tmp_path)
    victim = tmp_path / "a" / "c" / "1" / "0"
    victim.unlink()
    victim.mkdir()
    with pytest.raises((StoreFailure, CorruptChunkError)):
        a.read(np.s_[:, ::3])


def test_files_are_closed(tmp_path: Path) -> None:
    a, _ = plain(tmp_path, chunks=(1, 512))
    a.read(np.s_[:, 5:6])
    before = len(os.listdir("/proc/self/fd"))
    a.read(np.s_[:, 5:6])
    os.truncate(tmp_path / "a" / "c" / "77" / "0", 5)
    with pytest.raises(CorruptChunkError):
        a.read(np.s_[:, 5:6])
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_range_past_the_end_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is cut while it is read: its size was right when it was opened."""
    a, _ = plain(tmp_path)
    os.truncate(tmp_path / "a" / "c" / "2" / "0", 1000)
    real = os.fstat

    def before(number: int) -> os.stat_result:
        found = list(real(number))
        found[6] = 64 * 512 * 4
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", before)
    with pytest.raises(CorruptChunkError, match="truncated"):
        a.read(np.s_[:, ::3])
