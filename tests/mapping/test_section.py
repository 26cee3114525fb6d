from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oocarrays.mapping.section import Section

intervals = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted)
sections = st.lists(intervals, min_size=2, max_size=2).map(lambda axes: Section(*zip(*axes, strict=True)))


def cells(section: Section) -> np.ndarray:
    mask = np.zeros((13, 13), bool)
    mask[section.slices] = True
    return mask


@given(sections, sections)
def test_intersection_is_the_cells_in_both(a: Section, b: Section) -> None:
    both = cells(a) & cells(b)
    common = a.intersection(b)
    assert (common is None) == (not both.any())
    if common is not None:
        assert (cells(common) == both).all()


@given(sections)
def test_shape_and_size_are_those_of_numpys_selection(section: Section) -> None:
    selected = np.zeros((13, 13))[section.slices]
    assert section.shape == selected.shape
    assert section.size == selected.size


@given(sections, st.tuples(st.integers(0, 5), st.integers(0, 5)))
def test_relative_to_moves_the_origin(section: Section, origin: tuple[int, int]) -> None:
    moved = section.relative_to(origin)
    assert moved.shape == section.shape
    assert tuple(l + o for l, o in zip(moved.lower, origin, strict=True)) == section.lower
