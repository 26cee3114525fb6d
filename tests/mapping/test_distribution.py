from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from oocarrays import GenBlock
from oocarrays.errors import LayoutError
from oocarrays.mapping.grid import even_part

pytestmark = pytest.mark.once


@given(st.integers(0, 200), st.integers(1, 30))
def test_even_blocks_cover_the_axis_once_and_differ_by_one(extent: int, ranks: int) -> None:
    blocks = GenBlock.even(extent, ranks)
    assert all(even_part(extent, ranks, rank) == blocks.part(rank) for rank in range(ranks))
    assert [i for rank in range(ranks) for i in blocks.part(rank)] == list(range(extent))
    assert max(blocks.sizes) - min(blocks.sizes) <= 1


def test_an_axis_is_not_cut_for_more_ranks_than_there_can_be() -> None:
    with pytest.raises(LayoutError, match="exceeds 65536, the maximum of a layout"):
        GenBlock.even(7, 10**400)
