"""Passes over windows cut along any axes give what the kernel gives on the whole array, in any budget."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import BudgetError, RunError, UnfinishedError
from tests.flat import flat
from tests.profiles import examples
from tests.seams import Journal
from tests.test_slab_iterator import threads
from tests.whole import beyond, boundaries, corners, expected, padded

pytestmark = pytest.mark.long

BOUNDARIES = ["none", "reflect", "nearest", "periodic", 3]
TILES = np.random.default_rng(0).integers(0, 99, (40, 24))


@st.composite
def passes(draw: st.DrawFn) -> tuple[Any, ...]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    heights = st.sampled_from([None, -1, 1, 2, 3, 5, 50])
    options = {
        "depth": tuple(draw(st.integers(0, 12 if len(shape) < 3 else 2)) for _ in shape),
        "boundary": draw(boundaries(len(shape), BOUNDARIES)),
        "prefetch": draw(st.integers(0, 3)),
        "reuse": draw(st.booleans()),
        "ranks": draw(st.integers(1, 5)),
        "axis": draw(st.sampled_from([None, *range(len(shape))])),
        "window": tuple(draw(heights) for _ in shape),
        "chunks": draw(st.tuples(*(st.integers(1, n) for n in shape))),
    }
    chunks = [draw(st.tuples(*(st.integers(1, n) for n in shape))) for _ in range(draw(st.integers(1, 2)))]
    coding = draw(st.sampled_from([{"compressors": None}, {"compressors": None}, {"zarr_format": 2}, {}]))
    return shape, chunks, coding, options


@examples(25)
@given(passes(), st.integers(0, 9))
def test_a_pass_is_the_kernel_on_the_whole_array(case: tuple, seed: int) -> None:
    """However its windows share, which is for memory and time to decide: what is planned is what is counted."""
    shape, chunks, coding, options = case
    wholes = [np.random.default_rng(seed + n).integers(1, 99, shape) for n in range(len(chunks))]
    sources = [
        zarr.create_array({}, data=whole, chunks=cut, **coding) for whole, cut in zip(wholes, chunks, strict=True)
    ]

    def kernel(*blocks: np.ndarray) -> np.ndarray:
        return corners(options["depth"])(sum(blocks[1:], blocks[0]))

    job = flat(ooc.map_slabs, kernel, sources, MemoryStore(), memory="64MiB", scheduler="threads", **options)
    (want,) = expected(kernel, wholes, options["depth"], options["boundary"])
    np.testing.assert_array_equal(job.run()[...], want)
    planned, counted = job.plan.traffic, job.meter
    assert len(job.__dask_graph__()) == (planned.tasks if job.plan.copies is None else 1)
    if coding == {"compressors": None}:
        for name in ("read_requests", "read_bytes", "write_requests", "written_bytes"):
            assert getattr(planned, name) == getattr(counted, name), name


@examples(40)
@given(passes())
def test_a_loop_is_given_what_numpy_cuts_out_of_the_padded_array(case: tuple) -> None:
    shape, (chunks, *_), coding, options = case
    names = ("depth", "boundary", "prefetch", "reuse", "window")
    data, seen = np.arange(np.prod(shape)).reshape(shape), np.zeros(shape, int)
    a = ooc.open_array(zarr.create_array({}, data=data, chunks=chunks, **coding))
    wide = padded(data, options["depth"], options["boundary"])
    around = beyond(options["boundary"], options["depth"])
    for window in a.slabs(memory="16MiB", **{name: options[name] for name in names}):
        spans = zip(window.section.lower, window.section.upper, around, options["depth"], strict=True)
        place = tuple(slice(max(l + b - d, 0), u + b + d) for l, u, b, d in spans)
        np.testing.assert_array_equal(window.data, wide[place])
        np.testing.assert_array_equal(window.data[window.inside], data[window.section.slices])
        seen[window.section.slices] += 1
        window.data[...] = -1  # it is the caller's
    assert (seen == 1).all()
    assert not threads()


@pytest.fixture
def tiles(tmp_path: Path) -> Path:
    zarr.create_array(tmp_path / "tiles.zarr", data=TILES, chunks=(4, 6), compressors=None)
    return tmp_path / "tiles.zarr"


def job_of(tiles: Path, kernel: Callable[..., Any], **options: Any) -> ooc.Job:
    given = {"depth": 1, "memory": "64MiB", "ranks": 2, "window": (4, 6), "scheduler": "threads"} | options
    return flat(ooc.map_slabs, kernel, tiles, given.pop("target", tiles.parent / "target.zarr"), **given)


@pytest.mark.parametrize("codec", [None, zarr.codecs.ZstdCodec()], ids=["plain", "coded"])
def test_any_budget_from_the_least_upwards(tmp_path: Path, codec: Any) -> None:
    """Of a source in rows of chunks and one in columns of chunks: 2 MiB each."""
    wholes = [np.random.default_rng(n).integers(0, 99, (512, 512)) for n in range(2)]
    for number, (whole, chunks) in enumerate(zip(wholes, [(64, 512), (512, 64)], strict=True)):
        zarr.create_array(tmp_path / f"{number}.zarr", data=whole, chunks=chunks, compressors=codec)
    sources = [tmp_path / f"{number}.zarr" for number in range(2)]

    def plan(memory: int) -> ooc.Job:
        return ooc.map_slabs(
            lambda a, b: corners((1, 2))(a - b),
            sources,
            ooc.Target(tmp_path / "target.zarr", chunks=(64, 64)),
            depth=(1, 2),
            boundary="reflect",
            memory=memory,
            overwrite=True,
            scheduler="threads",
            resources=ooc.Resources(ranks=2, workspace="512KiB"),
        )

    with pytest.raises(BudgetError) as caught:
        plan(1)
    least = caught.value.least
    assert least < 8 * 2**20
    (want,) = expected(lambda a, b: corners((1, 2))(a - b), wholes, (1, 2), "reflect")
    cut = set()
    for memory in (least, int(1.2 * least), 2 * least, 8 * least):
        job = plan(memory)
        assert job.plan.peak_bytes <= memory
        np.testing.assert_array_equal(job.run()[...], want)
        cut.add(len(job.plan.cut_axes))
    assert 2 in cut
    with pytest.raises(BudgetError):
        plan(least - 1)


@pytest.mark.sampled
@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("options", [{}, {"depth": (9, 3)}, {"boundary": "periodic"}, {"reuse": False}])
def test_no_more_windows_are_held_than_the_plan_says(tiles: Path, prefetch: int, options: dict) -> None:
    job = job_of(tiles, np.negative, prefetch=prefetch, **options)
    job.run()
    spans = {(span.phase, span.args): span for span in job.meter.spans}
    for slabs in map(job.plan.slabs, range(job.plan.ranks)):
        for span in (spans["read", slab] for slab in slabs):
            before = [slab for slab in slabs if spans["read", slab].start <= span.start]
            ended = [slab for slab in slabs if spans["compute", slab].stop <= span.start]
            assert len(before) - len(ended) <= job.plan.held


def test_what_is_stored_is_read_once_but_along_outer_axes(tiles: Path) -> None:
    alone = job_of(tiles, np.negative, ranks=1, depth=(0, 1), target=MemoryStore())
    assert alone.plan.read_bytes == TILES.nbytes or not alone.plan.reuse
    text = job_of(tiles, np.negative, reuse=False).explain()
    assert "40 of 4 × 6, 2 ranks" in text
    assert "none: slabs are read with their halo" in text
    kept = job_of(tiles, np.negative)
    assert ("are read again" in kept.explain()) == (kept.plan.again_bytes > 0)


def test_no_chunk_is_written_by_two_ranks(tiles: Path) -> None:
    """Also where windows are smaller than a chunk of the target."""
    plan = job_of(tiles, np.negative, window=(3, 4), chunks=(8, 24), ranks=3).plan
    owners: dict[tuple[int, ...], set[int]] = {}
    for slab in plan.all_slabs():
        for index in product(*plan.targets[0].grid.touched(plan.core(slab))):
            owners.setdefault(index, set()).add(slab.rank)
    assert all(len(ranks) == 1 for ranks in owners.values())


# ---------------------------------------------------------------------- going on


def test_what_stopped_is_resumed(tiles: Path) -> None:
    """By other windows, too, where memory is too little for those that were cut."""
    calls, on = iter(range(99)), [True]

    def kernel(block: np.ndarray) -> np.ndarray:
        if on[0] and next(calls) >= 15:
            raise ZeroDivisionError
        return corners((1, 1))(block)

    with pytest.raises(RunError):
        job_of(tiles, kernel).run()
    target = tiles.parent / "target.zarr"
    done = Journal(target).parts()
    assert 0 < len(done) < 40
    on[0] = False
    job = job_of(tiles, kernel, resume=True, window=None, ranks=5, memory="1GiB")
    assert job.plan.heights == (4, 6)
    (want,) = expected(corners((1, 1)), [TILES], (1, 1), "none")
    np.testing.assert_array_equal(job.run()[...], want)
    computed = {span.args for span in job.meter.spans if span.phase == "compute"}
    assert len(computed) == 40 - len(done)
    assert not computed & done


@pytest.mark.parametrize("at", ["begun", "pieces", "entry", "mark"])
def test_a_killed_run_is_resumed(tiles: Path, runs: Any, at: str) -> None:
    target = tiles.parent / "target.zarr"
    options = {"depth": 0, "memory": "64MiB", "ranks": 2, "window": (4, 6), "scheduler": "threads"}
    runs.run("map_slabs", "numpy:negative", tiles, target, at=at, after=1 if at in ("begun", "mark") else 4, **options)
    with pytest.raises(UnfinishedError):
        ooc.open_array(target)
    job = flat(ooc.map_slabs, np.negative, tiles, target, resume=True, **options)
    np.testing.assert_array_equal(job.run(), -TILES)
    assert (job.meter.write_requests == 0) == (at == "mark")
    assert sorted(path.name for path in target.iterdir()) == [".oocarrays.made", "c", "zarr.json"]
