"""Sections, strided ones too, against numpy's masks and against every range that there is."""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays import Layout, Section
from oocarrays.errors import LayoutError

pytestmark = pytest.mark.once

DATA = Path(__file__).parents[1] / "data"
MOST = 13
intervals = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted)
blocks = st.lists(intervals, min_size=2, max_size=2).map(lambda axes: Section(*zip(*axes, strict=True)))
strided = st.builds(range, st.integers(0, 12), st.integers(0, MOST), st.integers(1, 6))
sections = blocks | st.lists(strided, min_size=2, max_size=2).map(Section.of)


def cells(section: Section) -> np.ndarray:
    mask = np.zeros((MOST, MOST), bool)
    mask[section.slices] = True
    return mask


@given(sections, sections)
def test_intersection_is_the_cells_in_both(a: Section, b: Section) -> None:
    both = cells(a) & cells(b)
    common = a.intersection(b)
    assert (common is None) == (not both.any())
    if common is not None:
        assert (cells(common) == both).all()
        assert common == b.intersection(a) == Section.of(common.axes)


@given(sections)
def test_shape_and_size_are_those_of_numpys_selection(section: Section) -> None:
    selected = np.zeros((MOST, MOST))[section.slices]
    assert section.shape == selected.shape
    assert section.size == selected.size


@given(sections, st.tuples(st.integers(0, 5), st.integers(0, 5)))
def test_relative_to_moves_the_origin(section: Section, origin: tuple[int, int]) -> None:
    moved = section.relative_to(origin)
    assert moved.shape == section.shape
    assert moved.stride == section.stride
    assert tuple(l + o for l, o in zip(moved.lower, origin, strict=True)) == section.lower


@given(
    st.lists(st.lists(strided | strided.map(lambda axis: axis[::-1]), min_size=2, max_size=2), min_size=2, max_size=2)
)
def test_sections_are_equal_where_they_have_the_same_elements(axes: list[list[range]]) -> None:
    a, b = map(Section.of, axes)
    same = [set(x) == set(y) for x, y in zip(*axes, strict=True)]
    assert (a == b) == all(same)
    assert (hash(a) == hash(b)) >= (a == b)
    assert a.axes == tuple(axis if axis.step > 0 else axis[::-1] for axis in axes[0])
    assert eval(repr(a), {"Section": lambda lower, upper, stride=(1, 1): (lower, upper, stride)}) == (
        a.lower,
        a.upper,
        a.stride,
    )
    assert all(l == u if l == u else (u - 1 - l) % s == 0 for l, u, s in zip(a.lower, a.upper, a.stride, strict=True))


# one axis


@pytest.mark.parametrize("starts", [(0, 0), (0, 3), (5, 1)])
def test_common_is_the_set_that_both_have(starts: tuple[int, int]) -> None:
    """Every pair of strides to 12, some past the other's end."""
    for s, t in ((s, t) for s in range(1, 13) for t in range(1, 13)):
        for n, m in ((0, 40), (1, 40), (3, 7), (40, 40), (140, 100)):
            a, b = range(starts[0], starts[0] + n, s), range(starts[1], starts[1] + m, t)
            assert common(a, b) == sorted({*a} & {*b}), (a, b)


def common(a: range, b: range) -> list[int]:
    """Elements that both have."""
    found = Section.of([a]).intersection(Section.of([b]))
    return list(found.axes[0]) if found else []


def test_common_is_arithmetic() -> None:
    """Of 10¹⁸ elements as quick as of ten, and by Python's integers: no product is too large."""
    a, b = range(5, 10**18, 99_991), range(2, 10**18, 1_000_003)
    found = Section.of([a]).intersection(Section.of([b]))
    assert found is not None
    (shared,) = found.axes
    assert shared.step == a.step * b.step
    assert shared.start < a.step * b.step
    assert shared.start in a
    assert shared.start in b


@cache
def every_range(most: int) -> list[tuple[range, frozenset[int]]]:
    """All there are of some elements, smallest first."""
    found = {
        frozenset(axis): axis
        for axis in (range(a, b, s) for a in range(most) for b in range(a + 1, most + 1) for s in range(1, most))
    }
    return sorted(((axis, held) for held, axis in found.items()), key=lambda pair: len(pair[1]))


@given(st.lists(st.builds(range, st.integers(0, 11), st.integers(0, 12), st.integers(1, 6)), min_size=1, max_size=4))
def test_hull_is_the_smallest_range_that_holds_them(axes: list[range]) -> None:
    held = frozenset().union(*axes)
    smallest = next(elements for _, elements in every_range(12) if elements >= held) if held else frozenset()
    first, *rest = (Section.of([axis]) for axis in axes)
    assert frozenset(first.hull(*rest).axes[0]) == smallest


@given(sections, st.lists(sections, max_size=3))
def test_hull_of_sections_holds_every_cell_and_is_that_of_each_axis(first: Section, rest: list[Section]) -> None:
    everything = np.any([cells(section) for section in (first, *rest)], axis=0)
    hull = first.hull(*rest)
    assert (cells(hull) >= everything).all()
    for axis, found in enumerate(hull.axes):
        held = frozenset(np.flatnonzero(everything.any(axis=1 - axis)).tolist())
        smallest = next(elements for _, elements in every_range(MOST) if elements >= held) if held else frozenset()
        assert frozenset(found) == smallest


# runs in a stored array


@st.composite
def stored(draw: st.DrawFn) -> tuple[tuple[int, ...], Section, tuple[int, ...]]:
    """A shape, a section of such an array, and an order of its axes; often the whole of an axis."""
    shape = draw(st.lists(st.integers(1, 5), max_size=4).map(tuple))
    axes = [
        draw(st.just(range(n)) | st.builds(range, st.integers(0, n), st.integers(0, n), st.integers(1, 4)))
        for n in shape
    ]
    return shape, Section.of(axes), tuple(draw(st.permutations(range(len(shape)))))


@given(stored())
def test_runs_are_those_of_a_mask_laid_out_as_the_array_is(
    case: tuple[tuple[int, ...], Section, tuple[int, ...]],
) -> None:
    """Ends of an axis are kept apart from the next one's start by a cell that nobody has."""
    shape, section, order = case
    mask = np.zeros(shape, bool)
    mask[section.slices] = True
    gaps = [(0, len(axis) < n) for axis, n in zip(section.axes, shape, strict=True)]
    line = np.pad(mask, gaps).transpose(order).reshape(-1) if shape else mask.reshape(-1)
    edges = np.flatnonzero(np.diff(line, prepend=False, append=False).astype(bool))
    lengths = (edges[1::2] - edges[::2]).tolist()
    count, length = section.runs(shape, order)
    assert [length] * count == lengths


@given(stored())
def test_rows_and_columns_are_axis_orders(case: tuple[tuple[int, ...], Section, tuple[int, ...]]) -> None:
    shape, section, _ = case
    forward = tuple(range(len(shape)))
    assert section.runs(shape) == section.runs(shape, "row") == section.runs(shape, forward)
    assert section.runs(shape, "column") == section.runs(shape, forward[::-1])


with (DATA / "twophase_table1.csv").open(newline="") as file:
    TABLE_1 = list(csv.DictReader(file))


@pytest.mark.parametrize("row", TABLE_1, ids=lambda row: row["distribution"])
def test_requests_of_direct_access_follow_from_runs(row: dict[str, str]) -> None:
    """Table 1 of the 1993 paper, for an N x N array that is stored by columns."""
    words = row["distribution"].lower().split("-")
    asked = {"column": f"(*, {words[1]})", "row": f"({words[1]}, *)"}.get(words[0], f"({words[0]}, {words[1]})")
    for n, ranks in ((16, 4), (36, 9), (64, 16)):
        layout = Layout.of((n, n), asked, ranks=ranks)
        runs = [part.runs((n, n), "column") for rank in range(ranks) for part in layout.parts(rank)]
        printed = {
            name: eval(row[name], {"N": n, "P": ranks, "sqrt": math.isqrt}) for name in ("requests", "request_elements")
        }
        assert sum(count for count, _ in runs) == printed["requests"]
        assert {length for _, length in runs} == {printed["request_elements"]}


@pytest.mark.parametrize("orientation", ["diagonal", (0, 0), (0, 1, 2), ()])
def test_an_orientation_is_an_order_of_the_axes(orientation: str | tuple[int, ...]) -> None:
    with pytest.raises(LayoutError, match=r"orientation=.* is not 'row', 'column' or an order of 2 axes: \(0, 1\)"):
        Section((0, 0), (1, 1)).runs((2, 2), orientation)
