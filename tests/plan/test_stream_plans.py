"""Plans of streams: blocks of ragged arrays, and places past 2**31."""

from __future__ import annotations

import numpy as np
import pytest

from oocarrays.plan.streams.buffers import Chunking, segments
from oocarrays.plan.streams.units import cell_chunks, value_cuts

pytestmark = pytest.mark.once


def test_blocks_are_bounded_whatever_cells_have() -> None:
    rng = np.random.default_rng(0)
    for shape in [(50,), (7, 9), (2, 3, 40), (1, 1, 1), (30, 2)]:
        items = (10 * rng.pareto(1, shape)).astype(np.int64)
        chunks = cell_chunks(items, 50)
        assert tuple(map(sum, chunks)) == shape
        cuts = value_cuts(items, chunks, 100)
        assert sum(cut.stop - cut.start for cut in cuts) == items.sum()
        assert all(cut.stop - cut.start <= 100 for cut in cuts)
        whole = value_cuts(items, chunks, 10**9)
        assert [cut.lower for cut in whole[1:]] == [cut.upper for cut in whole[:-1]]
        assert len(cuts) <= 6 * items.sum() // 50 + 2 * shape[0] + 10


def test_beyond_2_to_the_31_by_arithmetic() -> None:
    far = 2**40 + 3
    pieces = Chunking(8, 1, 1000, 2).pieces(*(np.array([n]) for n in (1500, far, 10, 0)))
    assert (pieces.chunk == [far // 8 * 2 + 1, (far // 8 + 1) * 2 + 1]).all()
    assert pieces.count.sum() == 10
    assert pieces.place[0] == 500 * 8 + 3
    parts = segments(np.array([2**33]), np.array([16]), 2**33 + 4, 2**33 + 8, np.array([2**34]))
    assert [int(part[1][0]) for part in parts] == [4, 4, 8, 0]
    assert parts[2][0][0] == 0
