"""Sections of arrays with other axes and fewer elements, against counting."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import oocarrays as ooc
from oocarrays.mapping.coarsening import Coarsening

pytestmark = pytest.mark.once


def test_places_of_axes() -> None:
    """Sections of what has other axes, element by element."""
    level = Coarsening((2, 1, 3)).reshaped((1,), {0: 4, 3: 5})
    assert level.shape((8, 7, 9)) == (4, 4, 3, 5)
    assert level.section(ooc.Section((2, 0, 3), (6, 7, 9))) == ooc.Section((0, 1, 1, 0), (4, 3, 3, 5))
    assert [level.unit(axis, n) for axis, n in enumerate((8, 7, 9))] == [2, 7, 3]
    assert [level.factor(axis) for axis in range(3)] == [2, None, 3]


def test_places_of_groups() -> None:
    """Sections of a coarser array, element by element."""
    lengths = (3, 1, 4)
    ends = np.cumsum([0, *lengths])
    coarse = Coarsening.of([lengths, 3], (8, 7))
    group = np.repeat(range(3), lengths)
    for (a, b), (c, d) in product([(0, 3), (3, 8), (4, 8), (0, 8)], [(0, 3), (3, 7), (6, 7)]):
        found = coarse.section(ooc.Section((a, c), (b, d)))
        assert list(found.axes[0]) == sorted(set(group[a:b].tolist()))
        assert list(found.axes[1]) == sorted({i // 3 for i in range(c, d)})
    assert ends[-1] == 8
