"""Plans of passes over slabs: every element once, no ring of tasks, and what a run then counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zarr
from dask.order import order
from hypothesis import given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.slabs.cuts import plan_slabs
from oocarrays.plan.slabs.options import SlabOptions
from oocarrays.plan.slabs.plan import SlabPlan
from tests.flat import flat
from tests.profiles import examples
from tests.whole import beyond, of_axes, padded

pytestmark = pytest.mark.long

MODES = ["none", "reflect", "nearest", "periodic", 7]


def stored(shape: tuple[int, ...], chunks: tuple[int, ...], itemsize: int = 8) -> Stored:
    return Stored(grid=ChunkGrid(shape, chunks), itemsize=itemsize, local=True)


@st.composite
def asked(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    shape = tuple(draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
    return shape, {
        "chunks": tuple(draw(st.integers(1, n)) for n in shape),
        "depth": tuple(draw(st.integers(0, 12)) for _ in shape),
        "boundary": draw(st.sampled_from(MODES) | st.tuples(*[st.sampled_from(MODES)] * len(shape))),
        "prefetch": draw(st.integers(0, 2)),
        "reuse": draw(st.booleans()),
        "ranks": draw(st.integers(1, 6)),
        "axis": draw(st.sampled_from([None, *range(len(shape))])),
        **draw(cuts(shape)),
    }


def cuts(shape: tuple[int, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Slabs of a height along one axis, or windows along several, up to six along each."""
    window = st.tuples(*(st.sampled_from([None, -1, n + 3, n // 2 + 1, n // 3 + 1, n // 6 + 1]) for n in shape))
    return st.sampled_from([{}, {"height": 1}, {"height": 3}, {"height": 4}]) | st.builds(dict, window=window)


def planned(shape: tuple[int, ...], chunks: tuple[int, ...], **options: Any) -> SlabPlan:
    array, heights = stored(shape, chunks), options.pop("window", None)
    return plan_slabs([array], [array], SlabOptions(budget=2**28, heights=heights, **options))


@examples(100)
@given(asked())
def test_slabs_and_windows_cover_the_array_once_and_hold_what_is_around(case: tuple) -> None:
    """Whatever neighbours hand on or read again."""
    shape, options = case
    plan = planned(shape, **options)
    check_covers(plan)
    check_covers(replace(plan, reuse=not plan.reuse))


def check_covers(plan: SlabPlan) -> None:
    """Every element is of one slab, and each window is put together of what is around it, each place once."""
    shape, depth = plan.shape, plan.depth
    seen = np.zeros(shape, int)
    numbers = np.arange(seen.size).reshape(shape)
    wide = padded(numbers, depth, tuple(-1 if each == 7 else each for each in of_axes(plan.boundary, len(shape))))
    for slab in plan.all_slabs():
        seen[plan.core(slab).slices] += 1
        window, read = plan.window(slab), plan.read(slab)
        block = np.full(window.shape, -2)
        block[read.relative_to(window.lower).slices] = numbers[read.slices]
        for piece in plan.pieces(slab):
            among = [np.asarray(each) for each in piece.elements]
            constant = any((each < 0).any() for each in among)
            assert (block[piece.place] == -2).all(), "what is there is given by nobody"
            block[piece.place] = -1 if constant else numbers[np.ix_(*among)]
            if piece.owner:
                assert all(a.min() in b for a, b in zip(among, plan.read(piece.owner).axes, strict=True))
        outside = beyond(plan.boundary, depth)
        place = tuple(slice(a + d, b + d) for a, b, d in zip(window.lower, window.upper, outside, strict=True))
        np.testing.assert_array_equal(block, wide[place])
    assert (seen == 1).all()
    assert plan.count == len(list(plan.all_slabs()))


@examples(60)
@given(asked())
def test_no_slab_waits_for_itself(case: tuple) -> None:
    shape, options = case
    source = zarr.create_array({}, shape=shape, chunks=options.pop("chunks"), dtype="u1")
    job = flat(ooc.map_slabs, np.negative, source, MemoryStore(), memory="64MiB", scheduler="threads", **options)
    graph = job.__dask_graph__()
    assert len(order(graph)) == len(graph) == job.plan.traffic.tasks


@examples(25)
@given(asked(), st.integers(1, 9))
def test_what_is_planned_is_what_is_counted(tmp_path_factory: pytest.TempPathFactory, case: tuple, chunk: int) -> None:
    shape, options = case
    folder, data = tmp_path_factory.mktemp("slabs"), np.ones(shape)
    zarr.create_array(folder / "a.zarr", data=data, chunks=options["chunks"], compressors=None)
    options["chunks"] = tuple(min(chunk, n) for n in shape)
    how = options | {"memory": "64MiB", "scheduler": "threads"}
    job = flat(ooc.map_slabs, np.negative, folder / "a.zarr", folder / "b.zarr", **how)
    np.testing.assert_array_equal(job.run(), -data)
    planned, counted = job.plan.traffic, job.meter
    for name in ("read_requests", "read_bytes", "write_requests", "written_bytes", "decoded_bytes"):
        assert getattr(planned, name) == getattr(counted, name), name
