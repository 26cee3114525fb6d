"""What must move when an array's layout changes: who sends which sections to whom, and in how many transfers.

    (block, *) on 2          (*, block) on 2            rank 0 sends to rank 1
    ┌─────────┐              ┌────┬────┐                ┌────┬────┐
    │ 0  0  0 │   ──────►    │ 0  │ 1  │                │    │ ▒▒ │
    ├─────────┤              │ 0  │ 1  │                ├────┼────┤
    │ 1  1  1 │              │ 0  │ 1  │                │    │    │
    └─────────┘              └────┴────┘                └────┴────┘

A `Transfer` is one all-to-all between two layouts; a `Redistribution` is one of them, or several one after the other.
Thakur 1995, chapter 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from oocarrays.errors import LayoutError
from oocarrays.mapping.axis import Axis
from oocarrays.mapping.layout import Layout
from oocarrays.plan.communication import Runs, runs_between


@lru_cache(maxsize=256)
def _runs(source: Axis, target: Axis) -> Runs:
    return runs_between(source, target)


@dataclass(frozen=True, slots=True)
class Transfer:
    """One all-to-all: every rank of ``source`` sends to every rank of ``target`` what the latter is to hold.

    >>> transfer = Transfer(Layout.of((4, 4), "(block, *)", ranks=2), Layout.of((4, 4), "(*, block)", ranks=2))
    >>> transfer.sizes().tolist()
    [[4, 4], [4, 4]]
    """

    source: Layout
    """Who holds what before."""
    target: Layout
    """Who holds what afterwards."""

    def __post_init__(self) -> None:
        if self.source.shape != self.target.shape:
            raise LayoutError(f"an array of shape {self.source.shape} cannot be laid out as one of {self.target.shape}")

    @property
    def axes(self) -> tuple[Runs, ...]:
        """The runs along each axis, between coordinates of the two grids."""
        return tuple(map(_runs, self.source.axes, self.target.axes))

    def runs(self, source: int, target: int) -> tuple[Runs, ...]:
        """What ``source`` sends to ``target``: runs along each axis; their product is what moves."""
        places = zip(self.axes, self.source.coordinates(source), self.target.coordinates(target), strict=True)
        return tuple(runs.between(s, t) for runs, s, t in places)

    def size(self, source: int, target: int) -> int:
        """Elements that ``source`` sends to ``target``."""
        return math.prod(int((runs.length * runs.count).sum()) for runs in self.runs(source, target))

    def sizes(self) -> np.ndarray:
        """Elements that each source sends to each target, and to itself: a matrix."""
        sizes = np.ones((1, 1), np.int64)
        for runs, sources, targets in zip(self.axes, self.source.grid, self.target.grid, strict=True):
            sizes = np.kron(sizes, runs.sizes(sources, targets))
        return sizes
