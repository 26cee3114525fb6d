"""Sections of one array for many ranks, on threads: every rank's array against numpy's, each stored chunk read once."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import BudgetError, InputError, LayoutError, PlacementError, RunError, SelectionError
from tests.flat import flat
from tests.owners import layouts, numbered, part
from tests.profiles import examples
from tests.selections import keys, picked
from tests.small import CODECS, make
from tests.strategies import chunks_for

SHAPES = st.lists(st.integers(0, 10), min_size=1, max_size=3).map(tuple)
THREADS = {"scheduler": "threads"}
TWO_PHASE = {"method": "two-phase", "aggregators": "auto", **THREADS}
X = numbered((60, 48), "f4")
OVERLAPPING = [np.s_[16 * p : 16 * p + 28, 8:40] for p in range(3)]
"""Tiles that each overlap the next."""


def check(y: ooc.ranks.SectionArrays, x: np.ndarray, sections: list[Any]) -> None:
    for got, section in zip(y.compute(), sections, strict=True):
        np.testing.assert_array_equal(got, picked(x, section if section is None else _tuple(section)), strict=True)


def _tuple(section: Any) -> tuple[Any, ...]:
    return section if isinstance(section, tuple) else (section,)


@examples(40)
@given(st.data(), SHAPES)
def test_every_rank_gets_what_numpy_gives(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = numbered(shape)
    codec = CODECS[data.draw(st.sampled_from(["plain", "zstd"]))]
    z = zarr.create_array({}, data=x, chunks=data.draw(chunks_for(shape)), compressors=codec)
    sections = data.draw(st.lists(st.none() | keys(shape), min_size=1, max_size=5))
    count = data.draw(st.sampled_from(["auto", 1, len(sections)]))
    options = {"domains": data.draw(st.sampled_from(["auto", "static"])), "aggregators": count}
    with dask.config.set({"scheduler": "synchronous", "oocarrays.collective-buffer": data.draw(st.integers(1, 200))}):
        for method in ("auto", "two-phase", "independent"):
            check(flat(ooc.ranks.read_sections, z, sections, method=method, **options, **THREADS), x, sections)


@examples(40)
@given(st.data(), SHAPES)
def test_a_layout_gives_a_distributed_array_of_it(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x, layout = numbered(shape), data.draw(layouts(shape))
    z = zarr.create_array({}, data=x, chunks=data.draw(chunks_for(shape)))
    y = ooc.ranks.read_sections(z, layout, method=data.draw(st.sampled_from(["auto", "two-phase"])), **THREADS)
    with dask.config.set({"scheduler": "synchronous", "oocarrays.collective-buffer": 64}):
        for rank, held in enumerate(dask.compute(*map(y.local, range(y.ranks)))):
            np.testing.assert_array_equal(held, part(x, layout, rank), strict=True)
        np.testing.assert_array_equal(y.compute(), x, strict=True)


MANY = {
    "common": [np.s_[8:40, :]] * 4,
    "overlapping": OVERLAPPING,
    "interleaved": [np.s_[p::4, :] for p in range(4)],
    "strided": [np.s_[p::4, p::4] for p in range(4)],
    "distinct": [np.s_[15 * p : 15 * p + 15, :] for p in range(4)],
    "some want nothing": [None, np.s_[5:9, 5:9], np.s_[0:0]],
    "in no order": [np.s_[[50, 3, 3, 59], :], np.s_[::-7, [47, 0]], np.s_[-1]],
}


@pytest.mark.parametrize("codec", ["plain", "zstd"])
@pytest.mark.parametrize("name", MANY)
def test_a_stored_chunk_is_read_and_decoded_once_whoever_wants_it(name: str, codec: str) -> None:
    z = make({}, X, chunks=(8, 12), compressors=CODECS[codec])
    for workers_read in (1, 3):
        y = flat(
            ooc.ranks.read_sections, z, MANY[name], **(TWO_PHASE | {"aggregators": min(workers_read, len(MANY[name]))})
        )
        check(y, X, MANY[name])
        touched = np.zeros((8, 4), bool)
        marks = np.zeros(X.shape, bool)
        for section in MANY[name]:
            marks.reshape(-1)[picked(numbered(X.shape), section if section is None else _tuple(section))] = True
        for i, j in np.argwhere(marks):
            touched[i // 8, j // 12] = True
        assert y.meter.decoded_bytes == (codec == "zstd") * touched.sum() * 8 * 12 * 4
        assert y.plan.price is not None
        assert y.plan.price.traffic.decoded_bytes == y.meter.decoded_bytes
        assert y.plan.price.traffic.read_requests == y.meter.read_requests
        if codec == "zstd":
            assert y.meter.read_requests == touched.sum()
        else:
            assert y.plan.price.traffic.read_bytes == y.meter.read_bytes


def test_overlapping_tiles_are_decoded_once_together_and_once_each_alone() -> None:
    z = make({}, X, chunks=(8, 48), compressors=CODECS["zstd"])
    both = {m: ooc.ranks.read_sections(z, OVERLAPPING, method=m, **THREADS) for m in ("two-phase", "independent")}
    for y in both.values():
        check(y, X, OVERLAPPING)
    chunks = {method: y.meter.decoded_bytes // (8 * 48 * 4) for method, y in both.items()}
    assert chunks == {"two-phase": 8, "independent": 4 + 4 + 4}


def test_conforming_requests_are_read_by_each_rank_for_itself_and_it_says_so() -> None:
    z = make({}, X, chunks=(15, 48), compressors=CODECS["zstd"])
    y = ooc.ranks.read_sections(z, "(block, *)", ranks=4, **THREADS)
    assert isinstance(y, ooc.ranks.DistributedArray)
    assert y.plan is not None
    assert y.plan.method == "independent"
    assert "no chunk is wanted by two ranks" in y.explain()
    np.testing.assert_array_equal(y.compute(), X)
    assert y.meter.read_requests == 4


def test_a_part_of_an_array_is_laid_out() -> None:
    z = make({}, X, chunks=(8, 12))
    within = ooc.Section((4, 0), (50, 48))
    y = ooc.ranks.read_sections(z, "(cyclic(3), block)", grid=(2, 2), within=within, **THREADS)
    assert y.shape == (46, 48)
    np.testing.assert_array_equal(y.compute(), X[4:50])
    np.testing.assert_array_equal(y.redistribute("(*, cyclic)", ranks=3).local(1).compute(), X[4:50, 1::3])


def test_parts_stay_in_memory_and_are_read_no_more() -> None:
    y = flat(ooc.ranks.read_sections, make({}, X, chunks=(8, 12)), OVERLAPPING, **TWO_PHASE)
    kept = y.persist()
    read = y.meter.read_requests
    check(kept, X, OVERLAPPING)
    total = sum(kept.local(rank).sum().compute() for rank in range(kept.ranks))
    assert total == sum(X[key].sum(dtype="f8") for key in OVERLAPPING)
    assert kept.meter.read_requests == read > 0
    assert kept.placement == {}


def test_looking_reads_nothing(tmp_path: Path) -> None:
    make(tmp_path / "x.zarr", X, chunks=(8, 12), compressors=CODECS["zstd"])
    y = flat(ooc.ranks.read_sections, tmp_path / "x.zarr", OVERLAPPING, **TWO_PHASE)
    for file in (tmp_path / "x.zarr" / "c").rglob("*"):
        if file.is_file():
            file.unlink()
    text = repr(y) + y.explain() + repr(y.plan)
    assert ElementTree.fromstring(y._repr_html_()).tag == "div"
    for said in ("two-phase, dynamic", "in 1 round of", "dynamic", "static", "predicted", "◄"):
        assert said in text
    assert (y.ranks, y.shapes, y.nbytes, len(y)) == (3, ((28, 32),) * 3, 3 * 28 * 32 * 4, 3)
    with pytest.raises(RunError, match="is empty: it had chunks"):
        y.compute()


def test_a_chunk_larger_than_the_buffer_is_read_in_ranges_where_that_can_be(tmp_path: Path) -> None:
    x = numbered((256, 64))
    z = make(tmp_path / "x.zarr", x, chunks=(256, 64))
    with dask.config.set({"oocarrays.collective-buffer": "4KiB"}):
        y = ooc.ranks.read_sections(z, "(*, block)", ranks=2, method="two-phase", **THREADS)
    assert y.plan.round_bytes <= 4096
    assert len(y.plan.rounds) >= 16
    np.testing.assert_array_equal(y.compute(), x)


WRONG: dict[str, tuple[Callable[[zarr.Array], Any], type, str]] = {
    "out of range": (lambda z: ooc.ranks.read_sections(z, [np.s_[0], np.s_[60]], **THREADS), SelectionError, "rank 1"),
    "too many axes": (lambda z: ooc.ranks.read_sections(z, [np.s_[0, 0, 0]], **THREADS), SelectionError, "3"),
    "past the end": (
        lambda z: ooc.ranks.read_sections(z, [ooc.Section((0, 0), (61, 2))], **THREADS),
        SelectionError,
        "61",
    ),
    "another number": (
        lambda z: ooc.ranks.read_sections(z, OVERLAPPING, ranks=4, **THREADS),
        SelectionError,
        "3 sections: a layout, or a sequence of one section for each of 4 ranks",
    ),
    "no sections": (lambda z: ooc.ranks.read_sections(z, [], **THREADS), SelectionError, "sections=[]"),
    "no index": (lambda z: ooc.ranks.read_sections(z, ["(block, *)", 1.5], **THREADS), LayoutError, ""),
    "a number": (lambda z: ooc.ranks.read_sections(z, 4, **THREADS), SelectionError, "4"),
    "another layout": (
        lambda z: ooc.ranks.read_sections(z, "(block, *, *)", ranks=2, **THREADS),
        LayoutError,
        "3 axes",
    ),
    "outside": (
        lambda z: ooc.ranks.read_sections(z, "(block, *)", ranks=2, within=ooc.Section((0, 0), (61, 48)), **THREADS),
        SelectionError,
        "within",
    ),
    "within sections": (
        lambda z: ooc.ranks.read_sections(z, OVERLAPPING, within=ooc.Section((0, 0), (4, 4)), **THREADS),
        SelectionError,
        "within",
    ),
    "no such method": (
        lambda z: ooc.ranks.read_sections(z, OVERLAPPING, method="direct", **THREADS),
        InputError,
        "direct",
    ),
    "too little memory": (
        lambda z: ooc.ranks.read_sections(z, OVERLAPPING, memory="1kB", **THREADS),
        BudgetError,
        "collective read",
    ),
    "workers of no cluster": (
        lambda z: ooc.ranks.read_sections(z, OVERLAPPING, resources=ooc.Resources(workers=["a"]), **THREADS),
        PlacementError,
        "no cluster",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused_in_one_line(name: str) -> None:
    call, error, said = WRONG[name]
    with pytest.raises(error) as caught:
        call(make({}, X, chunks=(8, 12)))
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_shapes_say_what_is_computed() -> None:
    y = ooc.ranks.read_sections(make({}, X), [np.s_[3, ::-5], np.s_[...], None], **THREADS)
    assert [got.shape for got in y.compute()] == list(y.shapes) == [(10,), (60, 48), (0, 0)]
    assert [y.local(rank).shape for rank in range(3)] == list(y.shapes)
    assert sum(math.prod(map(len, axes)) for axes in y.plan.requests) * 4 == y.nbytes
