"""Chunks of foreign files: each is one run of bytes."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given, strategies as st

from oocarrays.mapping.grid import ChunkGrid
from oocarrays.storage.foreign import facts
from tests.profiles import examples


@given(st.lists(st.integers(1, 40), max_size=4), st.integers(1, 16), st.integers(1, 4000))
@examples(60)
def test_chunks_in_one_piece_lie_in_one_piece(shape: list[int], itemsize: int, most: int) -> None:
    with patch.object(facts, "ROW_BYTES", most):
        chunks = facts.rows_of(tuple(shape), itemsize)
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    for index in np.ndindex(*ChunkGrid.of(tuple(shape), chunks).counts):
        section = ChunkGrid.of(tuple(shape), chunks).section(index)
        flat = numbers[section.slices].reshape(-1)
        assert flat[-1] - flat[0] == len(flat) - 1
    assert itemsize * np.prod(chunks) <= max(most, itemsize)
