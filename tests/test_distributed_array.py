"""Arrays laid out over ranks, on threads: every part against its elements counted out one by one."""

from __future__ import annotations

from xml.etree import ElementTree

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import ChunksError, InputError, LayoutError, ScheduleError, UnsupportedError
from tests.owners import layouts, numbered, part
from tests.profiles import examples
from tests.seams import step

SHAPES = st.lists(st.integers(0, 12), max_size=3).map(tuple)
ON_THREADS = {"scheduler": "threads"}


def assert_placed(y: ooc.ranks.DistributedArray, x: np.ndarray) -> None:
    """Every rank holds its elements, and they are those of ``x``; the whole is ``x``."""
    with dask.config.set(scheduler="synchronous"):
        parts = dask.compute(*(y.local(rank) for rank in range(y.ranks)))
        for rank, held in enumerate(parts):
            np.testing.assert_array_equal(held, part(x, y.layout, rank), strict=True)
        np.testing.assert_array_equal(y.compute(), x, strict=True)


@examples(60)
@given(st.data(), SHAPES)
def test_a_redistribution_puts_every_element_with_its_rank(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = numbered(shape)
    before = ooc.ranks.distribute(x, data.draw(layouts(shape)), **ON_THREADS)
    assert_placed(before, x)
    target = data.draw(layouts(shape))
    after = ooc.ranks.redistribute(before, target)
    assert_placed(after, x)
    assert after.plan is not None
    for offer in after.plan.offers:
        assert_placed(ooc.ranks.redistribute(before, target, method=offer.method), x)


@examples(30)
@given(st.data(), SHAPES)
def test_a_dask_array_comes_in_natural_order_and_goes_out_in_it(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = numbered(shape)
    chunks = tuple(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)) for _ in shape)
    x = numbered(tuple(map(sum, chunks)))
    y = ooc.ranks.distribute(
        da.from_array(x, chunks=tuple(map(tuple, chunks))), data.draw(layouts(x.shape)), **ON_THREADS
    )
    assert_placed(y, x)
    back = y.to_dask()
    assert back.dtype == x.dtype
    np.testing.assert_array_equal(back.compute(scheduler="synchronous"), x, strict=True)
    doubled = (back * 2 + 1).compute(scheduler="synchronous")
    np.testing.assert_array_equal(doubled, x * 2 + 1)


def test_a_dask_array_of_blocks_has_the_ranks_parts_as_its_blocks() -> None:
    y = ooc.ranks.distribute(numbered((5, 6)), "(block, block)", grid=(4, 2), **ON_THREADS)
    assert y.to_dask().chunks == ((2, 2, 1), (3, 3))
    assert {key[0] for key in y.to_dask().__dask_graph__()} == {y.to_dask().name, *(k[0] for k in y.__dask_keys__())}
    assert ooc.ranks.distribute(numbered((5,)), "cyclic(2)", ranks=2, **ON_THREADS).to_dask().chunks == ((3, 2),)


def test_blocks_are_computed_once_and_only_when_asked_for() -> None:
    counted: list[int] = []

    def count(block: np.ndarray) -> np.ndarray:
        counted.append(block.size)
        return block

    x = da.from_array(numbered((12, 12)), chunks=(4, 6)).map_blocks(count, dtype="i4", meta=np.empty((0, 0), "i4"))
    y = ooc.ranks.distribute(x, "(cyclic, *)", ranks=3, **ON_THREADS).redistribute("(*, cyclic(5))", ranks=2)
    repr(y), y.explain(), y._repr_html_(), y.plan, y.peak_bytes, y.to_dask()
    assert counted == []
    np.testing.assert_array_equal(y.compute(), numbered((12, 12)))
    assert counted == [24] * 6


def test_where_nothing_moves_parts_are_what_they_were() -> None:
    x = da.from_array(numbered((8, 6)), chunks=(2, 6))
    own = ooc.ranks.redistribute(x, ooc.Layout.from_chunks(x.chunks))
    same = own.redistribute("(block, *)").redistribute("(block(2), *)")
    assert same.__dask_keys__() == own.__dask_keys__()
    assert_placed(same, numbered((8, 6)))
    assert same.to_dask().chunks == x.chunks


def test_several_ways_of_computing_give_the_same() -> None:
    x = numbered((7, 9), "f8")
    y = ooc.ranks.distribute(x, "(cyclic(2), block)", ranks=6, **ON_THREADS)
    z = y.redistribute("(block, *)", ranks=4)
    computed = dask.compute(y, z, z.to_dask().sum(), y.local(0))
    np.testing.assert_array_equal(computed[0], x)
    np.testing.assert_array_equal(computed[1], x)
    assert computed[2] == x.sum()
    np.testing.assert_array_equal(computed[3], part(x, y.layout, 0))
    np.testing.assert_array_equal(np.asarray(z, "f4"), x.astype("f4"))
    assert len(y) == 7


def test_what_is_persisted_can_be_used_again_and_stays_as_it_is() -> None:
    x = numbered((30, 8))
    kept = ooc.ranks.distribute(x, "(block, *)", ranks=3, **ON_THREADS).persist()
    before = [held.copy() for held in dask.compute(*(kept.local(rank) for rank in range(3)))]
    for layout in ("(*, cyclic)", "(cyclic(4), block)"):
        assert_placed(kept.redistribute(layout, ranks=4), x)
    for rank in range(3):
        np.testing.assert_array_equal(kept.local(rank).compute(), before[rank])
    assert len(kept.__dask_graph__()) == 3


def test_parts_are_no_views_of_what_the_caller_has() -> None:
    x = numbered((8,))
    kept = ooc.ranks.distribute(x, "block", ranks=2, **ON_THREADS).persist()
    x[:] = -1
    np.testing.assert_array_equal(kept.compute(), numbered((8,)))


@pytest.mark.parametrize("dtype", ["?", "u1", ">f4", "c16", "M8[s]", "S5", [("a", "i4"), ("b", "f8")]], ids=str)
def test_elements_of_any_fixed_size(dtype: object) -> None:
    x = np.frombuffer(np.random.default_rng(0).bytes(np.dtype(dtype).itemsize * 21), np.uint8).copy()
    x = (x % 2 if dtype == "?" else x).view(dtype)
    y = ooc.ranks.distribute(x, "cyclic(2)", ranks=3, **ON_THREADS).redistribute("block", ranks=4)
    assert y.compute().tobytes() == x.tobytes()
    assert y.local(1).dtype == x.dtype


@pytest.mark.parametrize("x", [numbered((6, 4)).T, numbered((12, 8))[::2, ::2], numbered((6, 4), ">i4")], ids=len)
def test_arrays_that_do_not_lie_in_order(x: np.ndarray) -> None:
    assert_placed(ooc.ranks.distribute(x, "(cyclic, block)", grid=(2, 2), **ON_THREADS), x)
    blocks = da.from_array(x, chunks=3).map_blocks(np.asfortranarray)
    assert_placed(ooc.ranks.distribute(blocks, "(cyclic, block)", grid=(2, 2), **ON_THREADS), x)


# ---------------------------------------------------------------------- ranks, layouts


def test_ranks_are_the_cores_if_nothing_is_said_and_then_stay() -> None:

    y = ooc.ranks.distribute(numbered((40,)), "block", **ON_THREADS)
    assert y.ranks == step("count cores")()
    assert ooc.ranks.distribute(numbered((40,)), "block", ranks=5, **ON_THREADS).redistribute(ooc.Cyclic(3)).ranks == 5
    assert y.redistribute("gen_block(10, 20, 10)").ranks == 3
    assert y.redistribute("*").ranks == 1
    assert y.redistribute("(block) on 7").layout.grid == (7,)
    assert y.placement == dict.fromkeys(range(0))


def test_a_layout_is_taken_as_it_is() -> None:
    layout = ooc.Layout.of((6, 6), [ooc.Block(), ooc.Cyclic(2)], grid=(2, 3))
    y = ooc.ranks.redistribute(da.ones((6, 6), chunks=4), layout)
    assert y.layout is layout
    assert (y.shape, y.ndim, y.size, y.nbytes, y.dtype) == ((6, 6), 2, 36, 288, np.dtype("f8"))


# ---------------------------------------------------------------------- what a person reads


def test_an_array_says_what_ranks_hold_and_what_they_hold_at_most() -> None:
    rows = ooc.ranks.distribute(np.zeros((64, 64)), "(block, *)", ranks=4, **ON_THREADS)
    columns = rows.redistribute("(*, block)")
    assert (rows.peak_bytes, columns.peak_bytes) == (64 * 64 * 8 // 4, 64 * 64 * 8 // 2)
    for text in ("(*, block) on 1 × 4", "8.00 kiB", "16.00 kiB", "24.00 kiB between ranks", "threads"):
        assert text in repr(columns) + columns.explain()
    for layout in ("(*, block)", "(cyclic, *)"):
        page = columns.redistribute(layout)._repr_html_()
        assert ElementTree.fromstring(page).tag == "div"
        assert ("<svg" in page) == ("block" in layout)
    assert columns.plan is not None
    assert columns.plan.transfers[-1].target == columns.layout


# ---------------------------------------------------------------------- what is refused, in one line

Y = ooc.ranks.distribute(numbered((12, 6)), "(block, *)", ranks=3, **ON_THREADS)
WRONG = {
    "another shape": (lambda: Y.redistribute(ooc.Layout.of((12, 7), "(block, *)", ranks=3)), LayoutError, "(12, 7)"),
    "too many axes": (lambda: Y.redistribute("(block, *, *)"), LayoutError, "3 axes"),
    "no layout": (lambda: Y.redistribute("(blok, *)"), LayoutError, "blok"),
    "cyclic(0)": (lambda: Y.redistribute("(cyclic(0), *)"), LayoutError, "at least 1"),
    "block too small": (lambda: Y.redistribute("(block(3), *)"), LayoutError, "at least 4"),
    "ranks beside a layout": (lambda: ooc.ranks.redistribute(Y, Y.layout, ranks=4), LayoutError, "ranks=4"),
    "grid beside a layout": (lambda: ooc.ranks.redistribute(Y, Y.layout, grid=(3, 1)), LayoutError, "grid=(3, 1)"),
    "no such rank": (lambda: Y.local(3), LayoutError, "rank 3"),
    "no such schedule": (lambda: Y.redistribute("(*, block)", schedule="pax"), ScheduleError, "pax"),
    "schedule for others": (lambda: Y.redistribute("(*, block)", schedule="pex"), ScheduleError, "power of two"),
    "no such assembly": (lambda: Y.redistribute("(*, block)", assembly="later"), InputError, "later"),
    "no such method": (lambda: Y.redistribute("(*, block)", method="magic"), InputError, "magic"),
    "objects": (lambda: ooc.ranks.distribute(np.array([None]), "block", ranks=1), UnsupportedError, "object"),
    "a list": (lambda: ooc.ranks.distribute([1, 2], "block", ranks=1), InputError, "list"),
    "unknown blocks": (
        lambda: ooc.ranks.distribute((z := da.ones(4))[z > 0], "block"),
        ChunksError,
        "compute_chunk_sizes",
    ),
}


@pytest.mark.parametrize(("wrong", "kind", "text"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_refused_in_one_line(wrong: object, kind: type[InputError], text: str) -> None:
    with pytest.raises(kind) as refused:
        wrong()
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_distributed_array_is_never_taken_for_one_that_shares_its_parts() -> None:
    with pytest.raises(ValueError, match="copied"):
        np.array(Y, copy=False)
    with pytest.raises(TypeError):
        len(ooc.ranks.distribute(numbered(()), "()", ranks=1, **ON_THREADS))


@pytest.mark.parametrize("layouts", [("(block, *)", "(*, block)"), ("(cyclic, *)", "(block, *)"), ("(block, *)",) * 2])
def test_threads_count_the_bytes_that_they_give_each_other(layouts: tuple[str, str]) -> None:
    x = ooc.ranks.distribute(np.arange(120, dtype="i4").reshape(12, 10), layouts[0], ranks=3, scheduler="threads")
    y = ooc.ranks.redistribute(x, layouts[1])
    y.compute()
    assert y.meter.sent_bytes == y.plan.price.moved_bytes
