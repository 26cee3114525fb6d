"""Access patterns hold the sections that were seen, each as often as it was, however they came."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product

import pytest
from hypothesis import given, strategies as st

from oocarrays import Section
from oocarrays.plan.advice import patterns
from oocarrays.plan.advice.patterns import Fold, Pattern, folded, progressions

pytestmark = pytest.mark.once


def unfolded(found: Iterable[Pattern]) -> Counter[Section]:
    return Counter(section for pattern in found for section in pattern.sections())


@st.composite
def some_sections(draw: st.DrawFn) -> tuple[int, list[Section]]:
    """Draw sections that are few and small, so that many are alike."""
    axes = draw(st.integers(0, 3))
    one = st.builds(lambda low, n, step: range(low, low + n * step, step), *[st.integers(1, 3)] * 3)
    section = st.tuples(*[one] * axes).map(Section.of)
    return axes, draw(st.lists(section, max_size=30))


@given(some_sections(), st.sampled_from([2, 7, 2**20]), st.integers(0, 30))
def test_no_section_is_lost_or_added(asked: tuple[int, list[Section]], buffered: int, cut: int) -> None:
    """Neither of sections that are folded at one time, nor where the patterns of two parts are put together."""
    axes, sections = asked
    parts = Fold(axes)
    for part in (sections[:cut], sections[cut:]):
        parts.add_all(folded(part, axes))
    assert unfolded(parts.patterns()) == Counter(sections)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "MOST_BUFFERED", buffered)
        found = folded(sections, axes)
    assert unfolded(found) == Counter(sections)
    assert sum(pattern.count for pattern in found) == len(sections)
    assert sum(pattern.elements for pattern in found) == sum(section.size for section in sections)


@given(st.lists(st.builds(range, st.integers(0, 9), st.integers(10, 19), st.integers(1, 4)), max_size=20))
def test_progressions_hold_their_ranges_in_one_form(ranges: list[range]) -> None:
    made = progressions(ranges)
    assert Counter(each for one in made for each in one.ranges()) == Counter(ranges)
    assert made == progressions(reversed(ranges))


def grid(extents: Sequence[int], block: int) -> list[tuple[range, ...]]:
    """Return the blocks of an array, the last of each axis cut short."""
    return list(product(*([range(i, min(i + block, n)) for i in range(0, n, block)] for n in extents)))


@pytest.mark.parametrize("buffered", [64, 2**20])
@pytest.mark.parametrize("shuffled", [False, True])
def test_blocks_of_an_array_are_one_pattern(monkeypatch: pytest.MonkeyPatch, buffered: int, shuffled: bool) -> None:
    monkeypatch.setattr(patterns, "MOST_BUFFERED", buffered)
    blocks = grid((101, 53, 22), 7)
    if shuffled:
        random.Random(1).shuffle(blocks)
    fold = Fold(3)
    for block in blocks:
        fold.add(block)
    found = fold.patterns()
    assert unfolded(found) == Counter(map(Section.of, blocks))
    if buffered > len(blocks) or not shuffled:
        assert len(found) == 1
        assert all(len(along) == 2 for along in found[0].axes[:2])
