"""Windows cut along any axes: every element once, least budgets that are true, plans that are arithmetic."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocarrays.errors import BudgetError, InputError
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.machine import Costs
from oocarrays.plan.slabs.blocks import ways_of
from oocarrays.plan.slabs.cuts import plan_slabs
from oocarrays.plan.slabs.iterate import IteratePlan, SweepOptions, plan_iterate
from oocarrays.plan.slabs.options import SlabOptions
from oocarrays.plan.slabs.plan import SlabPlan
from tests.pairs import pairs
from tests.plan.test_slabs import MODES, check_covers, stored
from tests.profiles import examples
from tests.work import CALLS_A_SECOND, counted

pytestmark = pytest.mark.long

MIB = 2**20
IMAGE = stored((8192, 8192), (1024, 1024), 4)


@st.composite
def asked(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    shape = tuple(draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    heights = st.sampled_from([None, -1, 1, 2, 3, 5, 20])
    return shape, {
        "depth": tuple(draw(st.integers(0, 6)) for _ in shape),
        "boundary": tuple(draw(st.sampled_from(MODES)) for _ in shape),
        "reuse": draw(st.booleans()),
        "ranks": draw(st.integers(1, 4)),
        "axis": draw(st.sampled_from([None, *range(len(shape))])),
        "heights": tuple(draw(heights) for _ in shape),
    }


@examples(60)
@given(asked(), st.data())
def test_windows_cover_the_array_once_however_they_share(case: tuple, data: st.DataObject) -> None:
    shape, options = case
    array = stored(shape, tuple(data.draw(st.integers(1, n)) for n in shape))
    plan = plan_slabs([array], [array], SlabOptions(budget=2**28, **options))
    for ways in ways_of(plan.cut_axes, plan.depth, reuse=options["reuse"]):
        check_covers(replace(plan, ways=ways))


@st.composite
def arrays(draw: st.DrawFn) -> list[Stored]:
    shape = tuple(draw(st.lists(st.sampled_from([1, 7, 96, 500, 3000]), min_size=1, max_size=3)))
    chunks = st.sampled_from([1, 8, 60, 64, 1000])
    return [
        Stored(
            grid=ChunkGrid(shape, tuple(min(draw(chunks), n) for n in shape)),
            itemsize=draw(st.sampled_from([1, 8])),
            local=draw(st.booleans()),
            codec=draw(st.sampled_from([None, "zstd"])),
        )
        for _ in range(3)
    ]


@examples(25)
@given(arrays(), st.integers(0, 2), st.integers(0, 9), st.sampled_from([1, 3, 64]), st.booleans())
def test_the_least_budget_is_the_least(known: list[Stored], targets: int, depth: int, ranks: int, reuse: bool) -> None:
    def plan(budget: int) -> SlabPlan:
        options = SlabOptions(budget=budget, depth=depth, ranks=ranks, reuse=reuse)
        return plan_slabs(known[: 3 - targets], known[3 - targets :], options)

    with pytest.raises(BudgetError) as caught:
        plan(1)
    least = caught.value.least
    assert plan(least).peak_bytes <= least
    with pytest.raises(BudgetError) as again:
        plan(least - 1)
    assert again.value.least == least


@examples(40)
@given(arrays(), st.integers(0, 4), st.sampled_from([1, 3]), st.floats(1, 4))
def test_no_chunk_of_a_target_is_written_by_two(known: list[Stored], depth: int, ranks: int, more: float) -> None:
    sources, targets = known[:2], known[2:]
    with pytest.raises(BudgetError) as caught:
        plan_slabs(sources, targets, SlabOptions(budget=1, depth=depth, ranks=ranks))
    plan = plan_slabs(sources, targets, SlabOptions(budget=int(more * caught.value.least), depth=depth, ranks=ranks))
    for axis, chunk in enumerate(targets[0].grid.chunks):
        assert axis not in plan.cut_axes or plan.heights[axis] % chunk == 0
        assert all(edge % chunk == 0 for edge in plan.edges[axis][:-1])


@examples(15)
@given(arrays(), st.sampled_from([1, 7, 40]), st.sampled_from(["auto", 1, 4]), st.booleans(), st.sampled_from([1, 2]))
def test_the_least_budget_of_an_iteration_is_the_least(
    known: list[Stored], sweeps: int, fuse: Any, watched: bool, threads: int
) -> None:
    source, other, target = (replace(each, itemsize=8) for each in known)
    scratch = replace(source, codec=None, local=other.local)

    def plan(budget: int) -> IteratePlan:
        options = SweepOptions(budget=budget, depth=1, ranks=2, sweeps=sweeps, fuse=fuse, watched=watched)
        return plan_iterate([source], [scratch], [target], options, costs=Costs(), threads=threads)

    with pytest.raises(BudgetError) as caught:
        plan(1)
    least = caught.value.least
    assert plan(least).peak_bytes <= least
    with pytest.raises(BudgetError):
        plan(least - 1)


# ---------------------------------------------------------------------- choosing


@pytest.mark.parametrize("budget", [64, 128, 256])
@pytest.mark.parametrize("sweeps", [10, 40])
def test_sweeps_are_fused_in_windows(budget: int, sweeps: int) -> None:
    image = stored((8192, 8192), (1024, 1024))
    options = SweepOptions(budget=budget * MIB, depth=1, ranks=2, sweeps=sweeps)
    with counted() as work:
        plan = plan_iterate([image], [image], [image], options, costs=Costs(), threads=2)
    assert plan.peak_bytes <= budget * MIB
    assert plan.fuse >= 10
    assert len(plan.passes[0].slabs.cut_axes) == 2
    assert work.calls < 2 * CALLS_A_SECOND


@pytest.mark.parametrize("budget", [64, 128, 256])
def test_an_image_in_square_chunks_passes_in_any_budget(budget: int) -> None:
    plan = plan_slabs([IMAGE], [IMAGE], SlabOptions(budget=budget * MIB, depth=2, ranks=2))
    assert plan.peak_bytes <= budget * MIB
    assert plan.read_bytes <= 1.01 * plan.source_bytes
    assert len(plan.cut_axes) == 2


def test_more_ranks_have_windows_where_slabs_fit_for_fewer_and_neighbours_are_seen() -> None:
    options = SlabOptions(budget=320 * MIB, depth=2, ranks=2)
    assert plan_slabs([IMAGE], [IMAGE], options).ranks == 2
    alone = plan_slabs([IMAGE], [IMAGE], replace(options, depth=(2, 0)))
    assert (alone.ranks, alone.cut_axes) == (1, (0,)), "a kernel may need whole rows"


def test_slabs_are_whole_where_they_fit() -> None:
    plan = plan_slabs([IMAGE], [IMAGE], SlabOptions(budget=2**30, depth=2, ranks=2))
    assert (plan.axis, plan.heights, plan.ways) == (0, (1024, 8192), ("handed", "handed"))


def test_coded_chunks_are_not_cut() -> None:
    coded = replace(IMAGE, codec="zstd", decode_workspace=2**20, encode_workspace=2**22)
    plan = plan_slabs([coded], [coded], SlabOptions(budget=128 * MIB, depth=2, ranks=1))
    assert plan.heights[0] % 1024 == plan.heights[1] % 1024 == 0
    assert plan.traffic.decoded_bytes <= 2.1 * plan.source_bytes


def test_crossing_chunks_need_what_a_window_needs() -> None:
    """Of a source in row slabs and one in column slabs, each 64 MiB."""
    rows, columns = stored((4096, 4096), (256, 4096), 4), stored((4096, 4096), (4096, 256), 4)
    plan = plan_slabs([rows, columns], [rows], SlabOptions(budget=64 * MIB))
    assert plan.heights == (256, 4096)
    assert plan.read_bytes == plan.source_bytes
    with pytest.raises(BudgetError) as caught:
        plan_slabs([rows, columns], [rows], SlabOptions(budget=1))
    assert caught.value.least < 64 * MIB


def test_chunks_of_what_is_only_read_are_cut_inside() -> None:
    plan = plan_slabs([IMAGE], [], SlabOptions(budget=12 * MIB, depth=1, workspace=0))
    assert plan.heights[0] < 1024 or plan.heights[1] < 1024


def test_a_window_is_of_the_shape_that_is_asked_for() -> None:
    options = SlabOptions(budget=2**30, depth=1, heights=(512, None))
    assert plan_slabs([IMAGE], [], options).heights == (512, 8192)
    assert plan_slabs([IMAGE], [], replace(options, heights=(500, 10**6))).cut_axes == (0,)
    both = plan_slabs([IMAGE], [], replace(options, heights=(500, 700), axis=0))
    assert (both.axis, both.cut_axes) == (0, (1, 0))


def test_windows_of_one_axis_are_slabs() -> None:
    options = SlabOptions(budget=2**30, depth=3, ranks=2)
    slabs = plan_slabs([IMAGE], [IMAGE], replace(options, axis=0, height=256))
    assert plan_slabs([IMAGE], [IMAGE], replace(options, heights=(256, None))) == slabs


HUGE = {
    "a million a side": ((10**6, 10**6), (1000, 1000)),
    "more along one": ((10**8, 10**7), (10**4, 10**4)),
    "three axes": ((10**5,) * 3, (100,) * 3),
    "four axes": ((3000,) * 4, (30,) * 4),
    "maps": ((262800, 721, 1440), (1, 721, 1440)),
}


@pytest.mark.parametrize(*pairs(array=HUGE, budget=[MIB, 4096 * MIB], processes=[1, 4]))
def test_planning_is_arithmetic(array: str, budget: int, processes: int) -> None:
    shape, chunks = HUGE[array]
    known = [stored(shape, chunks, 4)] * 2
    options = SlabOptions(budget=budget, depth=1, ranks=64, processes=processes)
    with counted() as work, suppress(BudgetError):
        plan = plan_slabs(known[:1], known[1:], options)
        assert plan.tasks > 0 < plan.traffic.read_bytes
    assert work.calls < CALLS_A_SECOND


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"heights": (4,)}, r"window=\(4,\) is not a whole number from 1 on for each of 2 axes; None or -1 is the"),
        ({"heights": (4, 0)}, r"window=\(4, 0\) is not"),
        ({"heights": (4, 2.5)}, r"window=\(4, 2\.5\) is not"),
        ({"heights": "44"}, "window='44' is not"),
        ({"heights": 4}, "window=4 is not"),
        ({"heights": (4, 4), "height": 3}, r"height=3 and window=\(4, 4\): give the one or the other"),
    ],
    ids=str,
)
def test_wrong_inputs_in_one_line(options: dict, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        plan_slabs([IMAGE], [], SlabOptions(budget=2**30, **options))
    assert "\n" not in str(caught.value)
