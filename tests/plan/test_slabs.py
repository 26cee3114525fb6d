"""Plans of passes over slabs: every element once, no ring of tasks, and what a run then counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr
from dask.order import order
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.slabs.cuts import MOST, plan_slabs
from oocarrays.plan.slabs.options import SlabOptions
from oocarrays.plan.slabs.plan import SlabPlan
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
        "height": draw(st.sampled_from([None, 1, 3, 4])),
    }


def planned(shape: tuple[int, ...], chunks: tuple[int, ...], **options: Any) -> SlabPlan:
    array = stored(shape, chunks)
    return plan_slabs([array], [array], SlabOptions(budget=2**28, **options))


@examples(60)
@given(asked())
def test_slabs_cover_the_array_once_and_windows_what_is_around(case: tuple) -> None:
    shape, options = case
    check_covers(planned(shape, **options))


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
    job = ooc.map_slabs(np.negative, source, MemoryStore(), memory="64MiB", scheduler="threads", **options)
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
    job = ooc.map_slabs(np.negative, folder / "a.zarr", folder / "b.zarr", **how)
    np.testing.assert_array_equal(job.run(), -data)
    planned, counted = job.plan.traffic, job.meter
    for name in ("read_requests", "read_bytes", "write_requests", "written_bytes", "decoded_bytes"):
        assert getattr(planned, name) == getattr(counted, name), name


# ---------------------------------------------------------------------- choosing


def test_slabs_are_cut_on_chunks_of_all_arrays() -> None:
    plan = plan_slabs(
        [stored((96, 10), (4, 10)), stored((96, 10), (6, 10))], [stored((96, 10), (8, 5))], SlabOptions(budget=2**28)
    )
    assert (plan.axis, plan.height % 24) == (0, 0)


def test_no_chunk_is_written_by_two_ranks() -> None:
    plan = plan_slabs(
        [stored((100, 4), (10, 4))], [stored((100, 4), (7, 4))], SlabOptions(budget=2**28, ranks=4, height=5)
    )
    assert all(edge % 35 == 0 for edge in plan.edges[0][:-1])


def test_another_axis_where_no_slab_of_the_first_fits() -> None:
    columns = stored((2**16, 256), (2**16, 8))
    plan = plan_slabs([columns], [columns], SlabOptions(budget=2**27, ranks=2))
    assert (plan.axis, plan.height % 8) == (1, 0)
    assert plan.peak_bytes <= 2**27


def test_fewer_ranks_where_all_do_not_fit_in_one_process() -> None:
    rows = stored((2**12, 2**10), (2**8, 2**10))
    wide = plan_slabs([rows], [rows], SlabOptions(budget=2**30, ranks=8))
    assert wide.ranks == 8
    assert plan_slabs([rows], [rows], SlabOptions(budget=wide.peak_bytes // 2, ranks=8)).ranks < 8
    with pytest.raises(BudgetError):
        plan_slabs([rows], [rows], SlabOptions(budget=2**20, ranks=8))


def test_the_least_budget_is_the_least() -> None:
    rows = stored((2**12, 2**10), (2**8, 2**10))
    with pytest.raises(BudgetError) as caught:
        plan_slabs([rows], [rows], SlabOptions(budget=1, ranks=4, depth=3))
    least = caught.value.least
    assert plan_slabs([rows], [rows], SlabOptions(budget=least, ranks=4, depth=3)).peak_bytes == least
    with pytest.raises(BudgetError):
        plan_slabs([rows], [rows], SlabOptions(budget=least - 1, ranks=4, depth=3))


def test_large_arrays_have_no_more_slabs_than_a_graph_can_take() -> None:
    rows = stored((2**24, 2**14), (16, 2**14))
    plan = plan_slabs([rows], [rows], SlabOptions(budget=2**33, ranks=2))
    assert plan.count <= MOST + 2
    assert plan.traffic.read_bytes == plan.source_bytes == 2**41


def test_a_workspace_is_a_number_of_blocks_or_of_bytes() -> None:
    rows = stored((2**12, 2**10), (2**8, 2**10))
    by = {
        w: plan_slabs([rows], [rows], SlabOptions(budget=2**30, workspace=w, height=256)) for w in (0, 1.5, 5_000_000)
    }
    assert [plan.workspace for plan in by.values()] == [0, int(1.5 * by[0].window_bytes()), 5_000_000]
    assert by[5_000_000].peak_bytes - by[0].peak_bytes == 5_000_000
