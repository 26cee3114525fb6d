"""Patterns in words: the part of each rank as ``"(block, *)"``, or sections one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, product
from typing import Any

from oocarrays.errors import LayoutError, SelectionError
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.section import Section
from oocarrays.plan.advice.patterns import Fold, Pattern, folded


def patterns_of(sections: Any, shape: tuple[int, ...], ranks: int | None) -> tuple[tuple[Pattern, ...], int | None]:
    """Return the patterns that are meant, and how many ranks have them together.

    >>> patterns_of("(block, *)", (8, 6), 4)[0][0].largest
    (2, 6)
    """
    if isinstance(sections, Section):
        sections = [sections]
    if isinstance(sections, Sequence) and sections and all(isinstance(each, Section) for each in sections):
        for each in sections:
            if len(each.lower) != len(shape):
                raise SelectionError(f"{each} has {len(each.lower)} axes; the array has {len(shape)}: shape {shape}")
        return folded(sections, len(shape)), ranks
    if isinstance(sections, Layout) and sections.shape != shape:
        raise LayoutError(f"the layout {sections} is of shape {sections.shape}; the array has shape {shape}")
    layout = sections if isinstance(sections, Layout) else Layout.of(shape, sections, ranks=ranks)
    return layout_patterns(layout), layout.ranks


def layout_patterns(layout: Layout) -> tuple[Pattern, ...]:
    """Return the parts of all ranks of a layout.

    >>> [pattern.count for pattern in layout_patterns(Layout.of((8, 6), "(block, block)", grid=(2, 3)))]
    [6]
    """
    along = [[axis.sections(c) for c in range(n)] for axis, n in zip(layout.axes, layout.grid, strict=True)]
    fold = Fold(len(layout.shape))
    if all(len(each) == 1 for axis in along for each in axis):
        fold.add_all([Pattern.of(map(chain.from_iterable, along))])
    else:
        for parts in product(*along):
            for section in product(*parts):
                fold.add(section)
    return fold.patterns()
