"""Blocks of a Dask array that are whole chunks of a target."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from tests.test_from_dask import block_lengths


@given(st.data())
def test_aligned_is_what_a_table_says(data: st.DataObject) -> None:
    from oocarrays.mapping.grid import ChunkGrid
    from oocarrays.plan.lazy.blocks import are_aligned

    n = data.draw(st.integers(1, 12))
    lengths, chunk = data.draw(block_lengths(n)), data.draw(st.integers(1, n + 1))
    owner = np.repeat(np.arange(len(lengths)), lengths)
    alone = all(len(set(owner[at : at + chunk])) == 1 for at in range(0, n, chunk))
    assert are_aligned((lengths,), ChunkGrid.of((n,), (chunk,))) == alone
