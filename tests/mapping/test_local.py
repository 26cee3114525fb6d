"""The part of the array in a rank's file, beside distributions that are dealt out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays import Layout, Section
from oocarrays.errors import LayoutError
from oocarrays.mapping.grid import chunks_along, orientation_of, runs_along
from oocarrays.mapping.layouts.local import LocalPart, check_depth, depths, places_in, shared
from tests.mapping.local_parts import NOTHING, hand, local_files
from tests.profiles import examples

pytestmark = pytest.mark.once


@examples(60)
@given(local_files())
def test_a_file_has_what_is_dealt_by_hand(case: tuple[Layout, tuple[int, ...]]) -> None:
    layout, depth = case
    for rank in range(layout.ranks):
        part, along = LocalPart.of(layout, rank, depth), hand(layout, rank, depth)
        assert part.shape == tuple(map(len, along))
        for axis, places in enumerate(along):
            seen = part.seen[axis]
            there = [NOTHING] * len(places)
            there[part.start[axis] : part.start[axis] + len(seen)] = np.asarray(seen).tolist()
            assert there == places
            own = places[part.inside.lower[axis] : part.inside.upper[axis]]
            assert own == np.asarray(part.own[axis]).tolist()


@examples(60)
@given(local_files(), st.data())
def test_what_a_file_has_of_a_box_is_one_box_there(case: tuple[Layout, tuple[int, ...]], data: st.DataObject) -> None:
    layout, depth = case
    lower = tuple(data.draw(st.integers(0, n)) for n in layout.shape)
    box = Section(lower, tuple(data.draw(st.integers(l, n)) for l, n in zip(lower, layout.shape, strict=True)))
    for rank in range(layout.ranks):
        axes, place = LocalPart.of(layout, rank, depth).of_box(box)
        for axis, places in enumerate(hand(layout, rank, depth)):
            inside = [i for i, g in enumerate(places) if g != NOTHING and box.lower[axis] <= g < box.upper[axis]]
            assert inside == list(range(place.lower[axis], place.upper[axis]))
            assert [places[i] for i in inside] == np.asarray(axes[axis]).tolist()


taken = st.one_of(
    st.builds(lambda a, n, s: range(a, a + n * s, s) if n > 1 else range(a, a + n), *[st.integers(1, 9)] * 3),
    st.sets(st.integers(0, 30)).map(lambda found: np.array(sorted(found), np.int64)),
)


@examples(60)
@given(taken, taken)
def test_what_two_have_in_common_stands_at_these_places(wanted: range | np.ndarray, held: range | np.ndarray) -> None:
    among, there = shared(wanted, held)
    both = sorted({int(i) for i in wanted} & {int(i) for i in held})
    assert [int(wanted[i]) for i in among] == [int(held[i]) for i in there] == both


@examples(60)
@given(st.lists(taken, min_size=1, max_size=2).map(tuple), st.integers(0, 30), st.integers(0, 30))
def test_places_in_a_box_are_those_of_its_elements(axes: tuple, a: int, b: int) -> None:
    low, high = sorted((a, b))
    box = Section((low,) * len(axes), (high,) * len(axes))
    field = np.arange(100 ** len(axes)).reshape((100,) * len(axes))
    values = field[np.ix_(*map(np.asarray, axes))]
    inside = np.isin(np.indices(values.shape)[0], []) if 0 in values.shape else None
    wanted = field[np.ix_(*([i for i in map(int, axis) if low <= i < high] for axis in axes))]
    places = places_in(axes, box)
    if wanted.size == 0:
        assert places is None or inside is not None
        return
    assert places is not None
    np.testing.assert_array_equal(values[places[0]], wanted)
    np.testing.assert_array_equal(field[box.slices][places[1]], wanted)


@examples(60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(1, 300), st.randoms())
def test_chunks_run_along_their_orientation(shape: list[int], size: int, random: object) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)  # type: ignore[attr-defined]
    chunks = chunks_along(order, shape, size)
    assert math.prod(chunks) <= size
    assert runs_along(order, shape, chunks)
    found = orientation_of(shape, chunks)
    assert found is not None
    assert runs_along(found, shape, chunks)
    cut = [axis for axis in order if chunks[axis] < shape[axis]]
    assert all(chunks[axis] == 1 for axis in cut[:-1]), "only the fastest axis that is cut is longer than 1"
    if cut:
        fastest = cut[-1]
        assert math.prod(chunks) + math.prod(chunks) // chunks[fastest] > size, "one more would not fit"


def test_wrong_depths_and_halos_of_scattered_blocks_are_refused() -> None:
    for depth, said in ((-1, "depth=-1"), ((1, -2), r"\(1, -2\)"), ((1,), "2 axes"), (1.5, "1.5")):
        with pytest.raises(LayoutError, match=said):
            depths(depth, 2)  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="depth=2 along axis 1"):
        check_depth(Layout.of((8, 8), "(block, cyclic)", grid=(2, 2)), (1, 2))
    check_depth(Layout.of((8, 8), "(cyclic(4), *)", ranks=2), (1, 2))  # one block a rank
