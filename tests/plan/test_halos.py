"""Halo pieces that ranks send, counted."""

from __future__ import annotations

import numpy as np

import oocarrays as ooc
from oocarrays.plan.layouts.halos import Halos


def test_only_borders_move_and_none_twice() -> None:
    halos = Halos.of(ooc.Layout.of((100, 60), "(block, block)", grid=(2, 2)), (3, 3), "none")
    assert halos.sent()[0].tolist() == [0, 50 * 3, 3 * 30, 9]
    # mirrored rows are put there by who got them: no more is sent
    assert Halos(halos.layout, (3, 3), "reflect").sent().tolist() == halos.sent().tolist()
    far = Halos.of(ooc.Layout.of((9,), "block", ranks=9), (2,), "none")
    assert [np.flatnonzero(far.sent()[:, rank]).tolist() for rank in (0, 4)] == [[1, 2], [2, 3, 5, 6]]
