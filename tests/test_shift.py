"""Halos in memory, against numpy's pad of the whole array; multicasts against its own indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import InputError, LayoutError, SelectionError
from tests.flat import flat
from tests.owners import part
from tests.padding import BOUNDARIES, blocks, seen
from tests.profiles import examples
from tests.whole import boundaries


def field(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape), dtype="i4").reshape(shape)


@examples(80)
@given(blocks(), st.data())
def test_every_rank_sees_what_pad_gives(asked: tuple[ooc.Layout, tuple[int, ...]], data: st.DataObject) -> None:
    layout, depth = asked
    boundary = data.draw(boundaries(len(depth), BOUNDARIES))
    array = field(layout.shape)
    shifted = ooc.ranks.shift(ooc.ranks.distribute(array, layout, scheduler="threads"), depth, boundary=boundary)
    for rank, block in enumerate(shifted.compute()):
        np.testing.assert_array_equal(block, seen(array, layout, rank, depth, boundary))
        assert block.shape == shifted.shapes[rank] == shifted.local_shape(rank)
        inside = shifted.plan.inside(rank)
        np.testing.assert_array_equal(block[inside.slices], part(array, layout, rank))


def test_no_copy_of_what_was_there_is_changed() -> None:
    array = field((8, 4))
    x = ooc.ranks.distribute(array, "(block, *)", ranks=2, scheduler="threads").persist()
    for block in ooc.ranks.shift(x, 1, boundary="nearest").compute():
        block[...] = 0
    np.testing.assert_array_equal(x.compute(), array)


def test_an_axis_without_a_halo_may_be_laid_out_in_any_way() -> None:
    array = field((10, 6))
    x = ooc.ranks.distribute(array, "(cyclic(2), block)", grid=(2, 2), scheduler="threads")
    rows = [0, 1, 4, 5, 8, 9]
    np.testing.assert_array_equal(ooc.ranks.shift(x, (0, 1)).compute()[1], array[np.ix_(rows, range(2, 6))])


def test_what_shift_says() -> None:
    x = ooc.ranks.distribute(field((8, 4)), "(block, *)", ranks=4, scheduler="threads")
    shifted = ooc.ranks.shift(x, boundary="reflect")
    assert "boundary 'reflect'" in repr(shifted)
    assert shifted.plan.messages == 6
    assert shifted.plan.sent_bytes == 6 * 6 * 4 - 6 * 2 * 4
    assert "none: ranks are threads" in shifted.explain()
    assert "RankBlocks" in shifted._repr_html_()
    assert len(shifted) == 4
    np.testing.assert_array_equal(shifted.local(0).compute(), shifted.persist().compute()[0])


@pytest.mark.parametrize(
    ("layout", "asked", "error", "told"),
    [
        ("block", {"depth": -1}, LayoutError, "depth=-1 must be a whole number, at least 0, or one for each of 1 axis"),
        ("block", {"depth": (1, 1)}, LayoutError, r"depth=\(1, 1\) must be"),
        ("cyclic", {}, LayoutError, "a halo needs block, gen_block or"),
        ("block", {"boundary": 2**70}, InputError, "is not a value of an array of int64"),
        ("block", {"boundary": "wrap"}, InputError, "boundary='wrap' is not 'none', 'reflect'"),
    ],
)
def test_wrong_shifts_are_told_in_a_line(layout: str, asked: dict[str, Any], error: type, told: str) -> None:
    x = ooc.ranks.distribute(np.arange(9), layout, ranks=2, scheduler="threads")
    with pytest.raises(error, match=told) as caught:
        flat(ooc.ranks.shift, x, **asked)
    assert "\n" not in str(caught.value)


def test_what_is_no_distributed_array_is_refused() -> None:
    with pytest.raises(InputError, match="x=ndarray is neither"):
        ooc.ranks.shift(np.arange(9))  # type: ignore[arg-type]
    x = ooc.ranks.distribute(np.arange(9), "block", ranks=2, scheduler="threads")
    with pytest.raises(InputError, match="memory='1GiB' goes with local array files"):
        ooc.ranks.shift(x, memory="1GiB")  # type: ignore[call-overload]
    with pytest.raises(InputError, match="x=ndarray is neither"):
        ooc.ranks.multicast(np.arange(9), 0)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- multicasts


@examples(40)
@given(
    layout=st.sampled_from(["(block, *)", "(cyclic, block)", "(cyclic(2), cyclic)", "(*, block)"]),
    ranks=st.integers(1, 9),
    key=st.sampled_from(
        [np.s_[...], np.s_[3], np.s_[2:9:3, ::-1], np.s_[[5, 1], 2:4], np.s_[0:0], np.s_[7, None, 1:], np.s_[4, 2]]
    ),
    data=st.data(),
)
def test_every_rank_gets_the_section(layout: str, ranks: int, key: Any, data: st.DataObject) -> None:
    array = field((11, 5))
    x = ooc.ranks.distribute(array, layout, ranks=ranks, scheduler="threads")
    root = data.draw(st.one_of(st.none(), st.integers(0, ranks - 1)))
    got = ooc.ranks.multicast(x, key, root=root).compute()
    assert len(got) == ranks
    for block in got:
        np.testing.assert_array_equal(block, array[key], strict=True)
        assert np.shares_memory(block, got[0]) or not block.size
        assert not block.flags.writeable


@pytest.mark.parametrize(("ranks", "root"), [(1, 0), (2, 1), (7, 3), (8, 0), (13, 12)])
def test_a_tree_is_as_deep_as_its_schedule_says_one_partner_a_step(ranks: int, root: int) -> None:
    """Whoever has it sends it to one more in each step, so that twice as many have it afterwards."""
    plan = ooc.ranks.multicast(
        ooc.ranks.distribute(np.arange(ranks), "block", ranks=ranks, scheduler="threads"), 0, root=root
    ).plan
    has, waiting = {root}, set(range(ranks)) - {root}
    for step in range(1, plan.steps + 1):
        now = {r for r in waiting if plan.parent(r) in has and (plan.before(r) is None or plan.before(r) in has)}
        assert len({plan.parent(rank) for rank in now}) == len(now)
        has, waiting = has | now, waiting - now
        assert len(has) == min(2**step, ranks)
    assert not waiting


def test_a_section_object_and_wrong_ones() -> None:
    x = ooc.ranks.distribute(field((6, 4)), "(block, *)", ranks=3, scheduler="threads")
    cast = ooc.ranks.multicast(x, ooc.Section((1, 0), (5, 4), (2, 1)))
    np.testing.assert_array_equal(cast.compute()[2], field((6, 4))[1:5:2])
    assert cast.plan.root == 0
    assert "ranks 0, 1" in cast.explain()
    with pytest.raises(SelectionError):
        ooc.ranks.multicast(x, 6)
    with pytest.raises(LayoutError, match="rank 3 is out of range for the 3 ranks"):
        ooc.ranks.multicast(x, 0, root=3)
