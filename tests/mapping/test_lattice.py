from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.mapping.section import floor_sum

pytestmark = pytest.mark.once

small = st.integers(0, 40)


@given(small, small, st.lists(small, min_size=1, max_size=5), st.integers(1, 40))
def test_the_sum_is_that_of_its_terms_also_of_many_digits(n: int, a: int, bs: list[int], m: int) -> None:
    expected = [sum((a * i + b) // m for i in range(n)) for b in bs]
    assert [floor_sum(n, a, b, m) for b in bs] == expected
    assert floor_sum(n, a, np.array(bs, np.uint64), m).tolist() == expected
    many, digits = 10**15, 10**15 + 37
    assert floor_sum(many, digits - 1, 0, digits) == many * (many - 1) // 2 - (many - 1)
