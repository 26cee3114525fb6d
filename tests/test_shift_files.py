"""Halos of local array files, against numpy's pad of the whole array; what the plan says, against the meter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import BudgetError, InputError, LayoutError, RunError, ScheduleError, TargetError
from tests import entries
from tests.flat import flat
from tests.padding import BOUNDARIES, blocks, padded
from tests.profiles import examples
from tests.whole import boundaries, of_axes

pytestmark = pytest.mark.long

COUNTS = (
    "read_requests",
    "read_bytes",
    "write_requests",
    "written_bytes",
    "decoded_bytes",
    "encoded_bytes",
    "messages",
)
OLD = -99


def made(store: Any, array: np.ndarray, layout: ooc.Layout, depth: Any, **how: Any) -> ooc.ranks.LocalArrays:
    """Files of an array, whose halos are all old."""
    a = flat(
        ooc.create_array,
        store,
        shape=array.shape,
        dtype=array.dtype,
        layout=layout,
        placement="local",
        depth=depth,
        **how,
    )
    for rank in range(layout.ranks):
        file = zarr.open_array(a.files.place(rank), mode="r+")
        file[...] = OLD
    for rank in range(layout.ranks):
        own = np.ix_(*(np.asarray(held, int) for held in a.files.descriptor.part(rank).own))
        zarr.open_array(a.files.place(rank), mode="r+")[a.inside(rank).slices] = array[own]
    return a


def expected(array: np.ndarray, a: ooc.ranks.LocalArrays, rank: int, boundary: Any) -> np.ndarray:
    """The file of a rank afterwards: its own and what is around it in the padded array."""
    part = a.files.descriptor.part(rank)
    if not all(map(len, part.own)):
        return np.full(part.shape, OLD)
    ends = [slice(own[0], own[-1] + 1 + 2 * d) for own, d in zip(part.own, a.depth, strict=True)]
    each = of_axes(boundary, array.ndim)
    stays = [d if one == "none" else 0 for d, one in zip(a.depth, each, strict=True)]
    others = tuple(d - stay for d, stay in zip(a.depth, stays, strict=True))
    whole = np.pad(padded(array, others, boundary), [(stay, stay) for stay in stays], constant_values=OLD)
    return whole[tuple(ends)]


def field(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape), dtype="i4").reshape(shape)


def check(job: ooc.Job, array: np.ndarray, boundary: Any) -> None:
    a = job.run()
    for rank in range(a.ranks):
        np.testing.assert_array_equal(a.local(rank)[...], expected(array, a, rank, boundary))


@examples(25)
@given(blocks(), st.data())
def test_halos_are_what_pad_gives(asked: tuple[ooc.Layout, tuple[int, ...]], data: st.DataObject) -> None:
    layout, depth = asked
    boundary = data.draw(boundaries(len(depth), BOUNDARIES))
    if not any(depth):
        depth = (*depth[:-1], 1)
    array = field(layout.shape)
    chunks = tuple(data.draw(st.integers(1, n + 2)) for n in layout.shape)
    compressors = data.draw(st.sampled_from([(), "auto"]))
    a = made(MemoryStore(), array, layout, depth, chunks=chunks, compressors=compressors)
    check(ooc.ranks.shift(a, boundary=boundary, scheduler="threads"), array, boundary)


@pytest.mark.sampled
@pytest.mark.parametrize("boundary", ["none", "reflect", "periodic"])
@pytest.mark.parametrize(
    "how",
    [
        {"chunks": (16, 20), "compressors": ()},
        {"chunks": (16, 20)},
        {"chunks": (4, 5), "shards": (16, 20), "compressors": ()},
        {"chunks": (200, 200), "compressors": ()},
    ],
    ids=["plain", "zstd", "shards", "one chunk"],
)
def test_the_plan_is_what_the_meter_counts(tmp_path: Path, how: dict[str, Any], boundary: str) -> None:
    array = field((90, 70))
    a = made(tmp_path / "a", array, ooc.Layout.of((90, 70), "(block, block)", grid=(3, 2)), (2, 3), **how)
    job = ooc.ranks.shift(a, boundary=boundary, scheduler="threads")
    check(job, array, boundary)
    coded = "compressors" not in how or "shards" in how
    for name in COUNTS:
        if not (coded and name in ("read_bytes", "written_bytes")):
            assert getattr(job.meter, name) == getattr(job.plan.traffic, name, 0), name
    assert "last run" in job.explain()


def test_borders_alone_are_read_and_halos_alone_written(tmp_path: Path) -> None:
    array = field((400, 300))
    a = made(tmp_path / "a", array, ooc.Layout.of((400, 300), "(block, *)", ranks=4), (1, 0), compressors=())
    job = ooc.ranks.shift(a, scheduler="threads")
    job.run()
    assert job.meter.read_bytes == job.meter.written_bytes == 6 * 300 * 4
    assert (job.meter.read_requests, job.meter.write_requests) == (6, 6)
    assert job.plan.way(0) == "direct"


def test_a_deep_halo_crosses_ranks(tmp_path: Path) -> None:
    array = field((12, 7))
    a = made(tmp_path / "a", array, ooc.Layout.of((12, 7), "(block, block)", grid=(6, 3)), (5, 4), compressors=())
    job = ooc.ranks.shift(a, boundary="periodic", scheduler="threads")
    assert np.flatnonzero(job.plan.sizes[:, 8]).tolist() == [rank for rank in range(18) if rank != 8]
    check(job, array, "periodic")


def test_a_stencil_sees_its_neighbours(tmp_path: Path) -> None:
    """As the thesis uses it: Jacobi over files, halos refreshed before each sweep (Figure 5.3)."""
    array = np.random.default_rng(1).random((20, 16))
    layout = ooc.Layout.of(array.shape, "(block, block)", grid=(2, 2))
    a = ooc.create_array(tmp_path / "a", shape=array.shape, dtype=float, layout=layout, placement="local", depth=1)
    a[...] = array
    for _ in range(3):
        ooc.ranks.shift(a, boundary="nearest", scheduler="threads").run()
        for rank in range(4):
            file = a.local(rank)
            x = file[...]
            x[1:-1, 1:-1] = (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) / 4
            file[...] = x
        around = np.pad(array, 1, mode="edge")
        array = (around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:]) / 4
    np.testing.assert_array_equal(a[...], array)


def test_wrong_inputs_are_told_in_a_line(tmp_path: Path) -> None:
    layout = ooc.Layout.of((8, 6), "(block, *)", ranks=2)
    a = made(tmp_path / "a", field((8, 6)), layout, (1, 0))
    bare = made(tmp_path / "flat", field((8, 6)), layout, 0)
    cases: list[tuple[type[InputError], str, ooc.ranks.LocalArrays, dict[str, Any]]] = [
        (LayoutError, r"have halos of depth \(1, 0\): omit depth", a, {"depth": 2}),
        (InputError, "have no halo: pass depth= to create_array or scatter_files", bare, {}),
        (TargetError, "open it with mode='r\\+'", ooc.open_array(tmp_path / "a"), {}),
        (ScheduleError, "schedule='hex' is unknown", a, {"schedule": "hex"}),
        (BudgetError, "is too small: this shift needs at least", a, {"memory": 1}),
        (InputError, "boundary='mirror' is not 'none'", a, {"boundary": "mirror"}),
    ]
    for error, told, files, asked in cases:
        with pytest.raises(error, match=told) as caught:
            flat(ooc.ranks.shift, files, scheduler="threads", **asked)
        assert "\n" not in str(caught.value)


def test_multicast_of_files_reads_once(tmp_path: Path) -> None:
    array = field((40, 30))
    a = made(tmp_path / "a", array, ooc.Layout.of((40, 30), "(block, block)", grid=(2, 2)), 1, compressors=())
    cast = ooc.ranks.multicast(a, np.s_[18:22, 3], scheduler="threads")
    for block in cast.compute():
        np.testing.assert_array_equal(block, array[18:22, 3])
    assert cast.plan.holders == (0, 2)
    assert cast.meter.read_requests == 2


def test_files_that_were_emptied_after_they_were_opened_are_not_shifted(tmp_path: Path) -> None:
    """Neither are they read; what has been written through the array may be fill values, and is none of this."""
    zarr.create_array(tmp_path / "s.zarr", data=np.arange(1.0, 65).reshape(8, 8), chunks=(2, 8))
    ooc.ranks.scatter_files(
        tmp_path / "s.zarr", "(block, *)", tmp_path / "a.zarr", ranks=2, depth=(1, 0), scheduler="threads"
    ).run()
    before, written = (ooc.open_array(tmp_path / "a.zarr", mode="r+") for _ in range(2))
    planned = ooc.ranks.shift(written, scheduler="threads")
    written[...] = 0
    entries.emptied(tmp_path / "a.zarr")
    for read in (lambda: before[...], lambda: ooc.ranks.shift(before, scheduler="threads"), planned.run):
        with pytest.raises(RunError, match=r"a\.zarr.* is empty: it had chunks when it was opened"):
            read()
    assert not written[...].any()
    ooc.ranks.shift(written, scheduler="threads").run()
