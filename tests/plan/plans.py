"""Small plans for tests of functions that take one."""

from __future__ import annotations

from typing import Any, Literal

from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.mapping.layouts.halo import Boundaries
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.selection import Selection
from oocarrays.plan.layouts.multicast import MulticastPlan, plan_multicast
from oocarrays.plan.slabs.geometry import SlabGeometry


def slabs_plan(ranks: Literal[1, 2] = 1, boundary: Boundaries = "none") -> SlabGeometry:
    """Return a plan of nine rows in chunks of two, with one neighbour on each side."""
    rows = Stored(grid=ChunkGrid((9, 4), (2, 4)), itemsize=8, local=True)
    return SlabGeometry(
        edges=((0, 9) if ranks == 1 else (0, 6, 9), (0, 4)),
        axis=0,
        heights=(2, 4),
        depth=(1, 0),
        boundary=boundary,
        sources=(rows,),
        targets=(),
        workspace=0,
        budget=2**23,
    )


def multicast_plan(ranks: int, root: int | None = None, **_: Any) -> MulticastPlan:
    """Return a multicast of two elements to all ranks, each of which holds one."""
    return plan_multicast(Layout.of((ranks,), "block", ranks=ranks), Selection.of(slice(0, 2), (ranks,)), root, 8)
