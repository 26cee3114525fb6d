"""Boxes of the chunks that an update writes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.strategies import DataObject

from oocarrays.plan.files.update import boxes_of
from tests.profiles import examples

pytestmark = pytest.mark.once


@examples(100)
@given(st.data())
def test_boxes_hold_each_true_place_once(data: DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), max_size=3)))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))))
    mask = mask.reshape(shape).astype(bool)
    count = np.zeros(shape, int)
    for low, high in boxes_of(mask):
        count[tuple(map(slice, low, high))] += 1
    np.testing.assert_array_equal(count, mask)
