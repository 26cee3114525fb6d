"""Sections that many ranks write, against numpy: rank after rank, the highest last."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.storage import WrapperStore

import oocarrays as ooc
from oocarrays.errors import BudgetError, CorruptChunkError, InputError, SelectionError, StoreFailure, UnsupportedError
from tests.flat import flat
from tests.small import CODECS
from tests.strategies import requests_of

DATA = np.arange(24 * 20, dtype="f4").reshape(24, 20) + 1
TILES = [np.s_[0:14, 0:12], np.s_[4:24, 6:20], np.s_[2:9:3, ::4], np.s_[20, 3:]]


def parts_for(sections: list, shape: tuple[int, ...], dtype: str = "f4") -> list[np.ndarray]:
    """Of every rank values that no other rank has."""
    whole = np.empty(shape, dtype)
    return [
        np.arange(whole[key].size, dtype=dtype).reshape(whole[key].shape) + 1000 * rank
        for rank, key in enumerate(sections, 1)
    ]


def model(data: np.ndarray, sections: list, parts: list) -> np.ndarray:
    made = data.copy()
    for key, part in zip(sections, parts, strict=True):
        made[key] = part
    return made


def check_meter(job: ooc.Job) -> None:
    """The plan told the truth."""
    planned, meter = job.plan.traffic, job.meter
    assert (meter.read_requests, meter.messages) == (planned.read_requests, planned.messages)
    assert meter.write_requests + meter.skipped_chunks == planned.write_requests
    assert (meter.decoded_bytes, meter.encoded_bytes) == (planned.decoded_bytes, planned.encoded_bytes)
    if not job.plan.stored.made:
        assert (meter.read_bytes, meter.written_bytes) == (planned.read_bytes, planned.written_bytes)


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any], list]:
    shape = draw(st.lists(st.integers(1, 9), max_size=3).map(tuple))
    chunks = tuple(draw(st.integers(1, n + 1)) for n in shape)
    options: dict[str, Any] = {"chunks": chunks, "compressors": CODECS[draw(st.sampled_from(["plain", "zstd"]))]}
    options["zarr_format"] = draw(st.sampled_from([2, 3, 3]))
    if options["zarr_format"] == 2:
        options["compressors"] = None
    elif shape and draw(st.booleans()):
        options["shards"] = tuple(c * draw(st.integers(1, 3)) for c in chunks)
    return shape, options, draw(requests_of(shape))


@given(cases(), st.data())
def test_what_is_written_is_what_numpy_writes_rank_after_rank(case: tuple, data: st.DataObject) -> None:
    shape, options, requests = case
    before = np.arange(1, math.prod(shape) + 1, dtype="i4").reshape(shape)
    z = zarr.create_array({}, data=before, **options)
    parts = [np.full(tuple(map(len, axes)), -rank, "i4") for rank, axes in enumerate(requests, 1)]
    if not requests:
        return
    sections = [tuple(list(taken) for taken in axes) for axes in requests]
    how = {
        "domains": data.draw(st.sampled_from(["dynamic", "static"])),
        "deal": data.draw(st.sampled_from(["block", "cyclic"])),
        "aggregators": data.draw(st.one_of(st.just("auto"), st.integers(1, len(requests)))),
    }
    job = flat(ooc.ranks.write_sections, z, sections, parts, scheduler="threads", **how)
    assert len(job.run()[...].shape) == len(shape)
    expected = before.copy()
    for axes, part in zip(requests, parts, strict=True):
        expected[np.ix_(*axes) if axes else ...] = part
    np.testing.assert_array_equal(z[...], expected)
    check_meter(job)


@pytest.mark.parametrize("kind", ["plain", "zstd", "shards"])
def test_overlapping_sections_are_written_and_the_rest_stays(kind: str, tmp_path: Path) -> None:
    options = {"shards": (8, 10), "chunks": (4, 5)} if kind == "shards" else {"chunks": (5, 7)}
    z = zarr.create_array(tmp_path / "z", data=DATA, compressors=CODECS.get(kind, CODECS["zstd"]), **options)
    parts = parts_for(TILES, DATA.shape)
    job = ooc.ranks.write_sections(tmp_path / "z", TILES, parts, scheduler="threads")
    assert job.plan.method == "two-phase"
    np.testing.assert_array_equal(z[...], DATA)
    np.testing.assert_array_equal(job.run(), model(DATA, TILES, parts))
    check_meter(job)
    assert "stay" in job.explain()
    assert "measured" in job.explain()
    assert sorted(path.name for path in (tmp_path / "z").iterdir()) == ["c", "zarr.json"]


def test_the_highest_rank_wins_every_time() -> None:
    sections, parts = [np.s_[:, :15], np.s_[3:, 5:], np.s_[:20]], None
    z = zarr.create_array({}, data=DATA, chunks=(5, 7))
    for number in range(72):
        parts = [part + number for part in parts_for(sections, DATA.shape)]
        how = {"aggregators": 1 + number % 3, "deal": ("block", "cyclic")[number % 2], "scheduler": "threads"}
        flat(ooc.ranks.write_sections, z, sections, parts, **how).run()
        np.testing.assert_array_equal(z[...], model(DATA, sections, parts), err_msg=str(number))


def test_nothing_is_read_where_ranks_together_cover_chunks() -> None:
    """Interleaved and overlapping rows: no rank covers a chunk, all of them do."""
    z = zarr.create_array({}, data=DATA, chunks=(6, 20))
    sections = [np.s_[0:24:2], np.s_[1:24:2, :11], np.s_[1:24:2, 9:]]
    parts = parts_for(sections, DATA.shape)
    job = ooc.ranks.write_sections(z, sections, parts, scheduler="threads")
    np.testing.assert_array_equal(job.run(), model(DATA, sections, parts))
    assert (job.meter.read_requests, job.meter.write_requests) == (0, 4)


def test_what_a_higher_rank_covers_is_not_sent() -> None:
    z = zarr.create_array({}, data=DATA, chunks=(6, 20))
    job = ooc.ranks.write_sections(
        z, [np.s_[:, :10]] * 8, [DATA[:, :10] * rank for rank in range(8)], scheduler="threads"
    )
    assert job.plan.sent.sum() == DATA[:, :10].nbytes
    np.testing.assert_array_equal(job.run()[:, :10], DATA[:, :10] * 7)


def test_ranks_write_for_themselves_where_sections_conform() -> None:
    z = zarr.create_array({}, data=DATA * 0, chunks=(6, 20))
    x = ooc.ranks.distribute(DATA, "(block, *)", ranks=4, scheduler="threads")
    job = ooc.ranks.write_sections(z, x.layout, x)
    assert (job.plan.method, job.plan.traffic.messages) == ("independent", 0)
    assert "independent" in job.explain()
    np.testing.assert_array_equal(job.run(), DATA)
    columns = x.redistribute("(*, cyclic)")
    assert ooc.ranks.write_sections(z, columns.layout, columns).plan.method == "two-phase"


def test_parts_may_be_read_of_the_array_that_they_are_written_to() -> None:
    """Rows are turned round: every section is read before any is written."""
    z = zarr.create_array({}, data=DATA, chunks=(3, 20))
    wanted = [np.s_[23 - rank : 22 - rank if rank < 23 else None : -1] for rank in range(24)]
    read = ooc.ranks.read_sections(z, wanted, scheduler="threads")
    dask.compute(ooc.ranks.write_sections(z, [np.s_[rank : rank + 1] for rank in range(24)], read))
    np.testing.assert_array_equal(z[...], DATA[::-1])


def test_lazy_parts_and_indices_of_any_kind() -> None:
    z = zarr.create_array({}, data=DATA, chunks=(5, 7))
    sections = [np.s_[::-2, 3], np.s_[[7, 1, 2], 5:], None]
    parts = [da.ones(12, chunks=5) * 7, da.arange(45, chunks=9).reshape(3, 15), np.empty((0, 0))]
    ooc.ranks.write_sections(z, sections, parts, scheduler="threads").run()
    expected = DATA.copy()
    expected[::-2, 3] = 7
    expected[[7, 1, 2], 5:] = np.arange(45).reshape(3, 15)
    np.testing.assert_array_equal(z[...], expected)


def test_chunks_that_become_fill_value_are_not_stored(tmp_path: Path) -> None:
    z = zarr.create_array(tmp_path / "z", data=DATA, chunks=(12, 20))
    job = ooc.ranks.write_sections(
        z, [np.s_[:8], np.s_[8:12]], [np.zeros((8, 20)), np.zeros((4, 20))], scheduler="threads"
    )
    job.run()
    assert (job.meter.skipped_chunks, z.nchunks_initialized) == (1, 1)
    np.testing.assert_array_equal(z[:], np.vstack([DATA[:12] * 0, DATA[12:]]))


def test_each_disk_is_written_by_aggregators_of_its_own() -> None:
    z = zarr.create_array({}, data=DATA, chunks=(4, 5))
    disk_of = {index: index[1] % 2 for index in np.ndindex(6, 4)}
    parts = parts_for(TILES, DATA.shape)
    job = ooc.ranks.write_sections(z, TILES, parts, scheduler="threads", resources=ooc.Resources(disks=disk_of))
    serving = [
        {disk_of[index] for box in domain.boxes for index in domain.grid.indices(box)} for domain in job.plan.domains
    ]
    assert all(len(disks) == 1 for disks in serving)
    np.testing.assert_array_equal(job.run(), model(DATA, TILES, parts))


def test_less_is_done_at_one_time_in_less_memory() -> None:
    z = zarr.create_array({}, data=np.zeros((64, 64)), chunks=(8, 64))
    asked = [np.s_[:, :40], np.s_[:, 30:]], [np.ones((64, 40)), np.ones((64, 34))]
    with pytest.raises(BudgetError, match="this collective write needs at least") as refused:
        ooc.ranks.write_sections(z, *asked, scheduler="threads", memory=1)
    job = ooc.ranks.write_sections(z, *asked, scheduler="threads", memory=refused.value.least)
    assert job.plan.threads == 1
    assert job.plan.peak_bytes == refused.value.least
    assert (job.run()[:] == 1).all()


@pytest.mark.parametrize(
    ("sections", "parts", "options", "said"),
    [
        ([np.s_[:3]], [DATA[:3], DATA[:3]], {}, "2 parts are not one for each of 1 section"),
        ([np.s_[:3]], [DATA[:2]], {}, "the part of rank 0 has shape (2, 20); its section has (3, 20)"),
        ([np.s_[:3]], [DATA[:3] * 1j], {}, "the part of rank 0 has dtype complex64; the array has float32"),
        ([np.s_[30]], [DATA[0]], {}, "the section of rank 0: index 30 is out of range for axis 0 with 24 elements"),
        (
            "(block, *)",
            DATA,
            {},
            "parts are a ndarray: pass a sequence of arrays, one per rank, or a distributed array",
        ),
        ([np.s_[:3]], [DATA[:3]], {"method": "direct"}, "method='direct' is not one of 'auto'"),
        ([np.s_[:3]] * 2, [DATA[:3]] * 2, {"method": "independent"}, "two ranks would write to one chunk"),
        ([np.s_[:3]] * 2, [DATA[:3]] * 2, {"domains": "random"}, "domains='random' is not"),
        ([np.s_[:3]] * 2, [DATA[:3]] * 2, {"deal": "poker"}, "deal='poker' is not"),
        ([np.s_[:3]] * 2, [DATA[:3]] * 2, {"aggregators": 3}, "aggregators=3 is not 'auto'"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_line(sections: Any, parts: Any, options: dict, said: str) -> None:
    z = zarr.create_array({}, data=DATA, chunks=(5, 7))
    with pytest.raises(InputError) as refused:
        flat(ooc.ranks.write_sections, z, sections, parts, scheduler="threads", **options)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    np.testing.assert_array_equal(z[...], DATA)


def test_an_array_that_is_open_for_reading_is_refused(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "z", data=DATA, chunks=(5, 7))
    with pytest.raises(InputError, match=r"open for reading only: open it with mode='r\+'"):
        ooc.ranks.write_sections(ooc.open_array(tmp_path / "z"), [np.s_[:3]], [DATA[:3]], scheduler="threads")


def test_a_part_that_is_not_what_it_said_stops_the_run_before_anything_is_written() -> None:
    z = zarr.create_array({}, data=DATA, chunks=(5, 7))
    lies = da.from_array(DATA, chunks=-1).map_blocks(lambda block: block[:5], dtype="f4")
    job = ooc.ranks.write_sections(z, [np.s_[:], np.s_[:]], [DATA * 2, lies], scheduler="threads")
    with pytest.raises(Exception, match=r"the part of rank 1 has shape \(5, 20\)"):
        job.run()
    np.testing.assert_array_equal(z[...], DATA)


def test_errors_are_of_the_kinds_that_they_are() -> None:
    assert issubclass(SelectionError, IndexError)
    assert issubclass(UnsupportedError, InputError)


class Refusing(WrapperStore):
    """A store that refuses one write."""

    left = -1

    async def set(self, key: str, value: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError("no more")
        await super().set(key, value)


@pytest.mark.parametrize("number", [1, 4])
def test_a_run_that_a_store_stopped_is_run_again(number: int) -> None:
    store = Refusing(zarr.storage.MemoryStore())
    zarr.create_array(store, data=DATA, chunks=(6, 5))
    parts = parts_for(TILES, DATA.shape)
    job = ooc.ranks.write_sections(store, TILES, parts, scheduler="threads", aggregators=3)
    job._array.zarr.store.left = number
    with pytest.raises(StoreFailure, match="no more"):
        job.run()
    np.testing.assert_array_equal(job.run(), model(DATA, TILES, parts))
    check_meter(job)


def test_a_chunk_that_is_cut_short_stops_the_run(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "z", data=DATA, chunks=(12, 20), compressors=None)
    chunk = tmp_path / "z" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-4])
    job = ooc.ranks.write_sections(tmp_path / "z", [np.s_[:, :9], np.s_[:, 8:19]], [DATA[:, :9], DATA[:, 8:19]])
    with pytest.raises(CorruptChunkError, match=r"c/0/0 has 956 bytes; a chunk has 960"):
        job.run()
