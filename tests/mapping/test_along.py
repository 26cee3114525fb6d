"""A selection over the chunks of an axis, beside a table of every element."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.mapping.along import AxisOverGrid, Line, cuts, product_line, range_cuts
from oocarrays.mapping.grid import chunk_runs
from oocarrays.mapping.selection import Taken

pytestmark = pytest.mark.once


@st.composite
def selections(draw: st.DrawFn) -> AxisOverGrid:
    """A range or sorted indices of an axis, in chunks."""
    extent, chunk = draw(st.integers(0, 60)), draw(st.integers(1, 14))
    if draw(st.booleans()):
        chosen = draw(st.sets(st.integers(0, extent - 1), max_size=25)) if extent else set()
        return AxisOverGrid(np.array(sorted(chosen), np.int64), extent, chunk)
    start = draw(st.integers(0, extent))
    found = range(start, draw(st.integers(start, extent)), draw(st.integers(1, 20)))
    taken = range(found[0], found[-1] + 1, found.step if len(found) > 1 else 1) if found else range(0)
    return AxisOverGrid(taken, extent, chunk)


def table(along: AxisOverGrid) -> dict[int, list[int]]:
    """The selected elements of each chunk that has any, relative to its start."""
    found: dict[int, list[int]] = {}
    for element in along.taken:
        found.setdefault(int(element) // along.chunk, []).append(int(element) % along.chunk)
    return found


def listed(inside: Taken | slice, chunk: int) -> list[int]:
    return list(range(chunk))[inside] if isinstance(inside, slice) else list(map(int, inside))


@given(selections())
def test_cuts_are_the_chunks_in_order_with_equal_neighbours_together(along: AxisOverGrid) -> None:
    found = list(cuts(along.taken, along.chunk))
    each = [
        (chunk, listed(cut.inside, along.chunk), cut.first + n * len(cut.inside))
        for cut in found
        for n, chunk in enumerate(cut.chunks)
    ]
    places = np.cumsum([0, *(len(inside) for _, inside, _ in each)])[: len(each)].tolist()
    expected = [(*pair, place) for pair, place in zip(table(along).items(), places, strict=True)]
    assert each == expected
    for cut, more in pairwise(found):
        assert not (is_near(cut.chunks, more.chunks) and list(cut.inside) == list(more.inside))


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 12))
def test_chunk_runs_are_the_ends_of_cuts(lower: int, length: int, chunk: int) -> None:
    found = range_cuts(range(lower, lower + length), chunk)
    ends = [(lower + cut.out.start, lower + cut.out.stop) for cut in found]
    assert list(chunk_runs(lower, lower + length, chunk)) == ends
    assert len(ends) <= 3


def is_near(chunks: range, more: range) -> bool:
    """Whether chunks follow others at their distance."""
    return all(len(each) == 1 or each.step == more[0] - chunks[-1] for each in (chunks, more))


@given(selections())
def test_pieces_are_the_elements_of_each_chunk(along: AxisOverGrid) -> None:
    pieces, taken = list(along), np.asarray(along.taken, int)
    assert {piece.chunk: listed(piece.inside, along.chunk) for piece in pieces} == table(along)
    for piece in pieces:
        inside = listed(piece.inside, along.chunk)
        assert (taken[piece.out] - piece.chunk * along.chunk).tolist() == inside
        assert piece.size == len(inside)
        assert piece.runs == 1 + sum(b > a + 1 for a, b in pairwise(inside))
        assert piece.whole == (len(inside) == min(along.chunk, along.extent - piece.chunk * along.chunk))
    assert [element for piece in pieces for element in taken[piece.out]] == taken.tolist()


@given(selections())
def test_alike_counts_every_piece(along: AxisOverGrid) -> None:
    def kind(piece):
        last = (piece.chunk + 1) * along.chunk >= along.extent
        return tuple(listed(piece.inside, along.chunk)), piece.whole, last

    found = along.alike
    counted = Counter()
    for piece, times in found:
        counted[kind(piece)] += times
    assert counted == Counter(map(kind, along))
    assert len(found) == len(counted)
    pieces = {piece.chunk: piece for piece in along}
    for piece, _ in found:
        own = pieces[piece.chunk]
        assert (own.out, own.whole) == (piece.out, piece.whole)


@given(st.lists(selections(), max_size=3), st.booleans())
def test_lines_multiply_to_the_runs_of_every_chunk(axes: list[AxisOverGrid], whole: bool) -> None:
    """Brute force: the runs of a chunk are counted from its last axis on, as readers do."""
    total = Line(0, 0, 0)
    every = [()]
    for along in axes:
        every = [(*each, (piece, along)) for each in every for piece in along if piece.whole or not whole]
    for each in every:
        elements, runs, full = 1, 1, True
        for piece, along in reversed(each):
            runs = piece.runs if full else piece.size * runs
            elements, full = elements * piece.size, full and piece.size == along.chunk
        total = Line(total.elements + elements, total.runs + runs, total.wholes + full)
    assert product_line([along.line(whole=whole) for along in axes]) == total


@pytest.mark.parametrize("step", [1, 2, 8, 24, 3, 20])
def test_an_axis_of_a_quadrillion_elements_is_counted_without_listing_it(step: int) -> None:
    extent = 10**15
    along = AxisOverGrid(range(5, extent, step), extent, 8)
    assert sum(times * piece.size for piece, times in along.alike) == len(along.taken)
    assert sum(times for _, times in along.alike) == len(range(5, extent, step)) if step >= 8 else (extent + 7) // 8
    assert len(along.alike) < 12
    if 8 % step == 0 or step % 8 == 0:
        assert sum(1 for _ in cuts(along.taken, 8)) <= 3
