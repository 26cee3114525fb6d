"""Halos as tasks: what every rank holds, with its neighbours' border rows around it.

    part ─► an exchange ─► window        only borders travel, or are copied once, straight from the neighbour's part

Thakur 1995, section 5.4 (PASSION_oc_shift).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oocarrays.graphs.exchange.messages import Round
from oocarrays.graphs.layouts.exchanging import Exchanging, exchange_tasks, exchanged_arrays
from oocarrays.graphs.layouts.parts import Parts, RankParts
from oocarrays.mapping.selection import lengths
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.halos import Halos, lent, put
from oocarrays.storage.meter import Meter


def windows(parts: Parts, halos: Halos, schedule: Schedule | None, workers: Sequence[str], meter: Meter) -> RankParts:
    """Return what every rank sees."""
    shifting = Shifting(halos=halos, schedule=schedule, assembly="asynchronous", dtype=parts.dtype)
    return exchanged_arrays("windows", parts, exchange_tasks(shifting, parts.keys, halos.ranks, workers, meter=meter))


@dataclass(eq=False, kw_only=True)
class Shifting(Exchanging):
    """The tasks of one exchange of borders.

    >>> from oocarrays.mapping.layouts.layout import Layout
    >>> halos = Halos(Layout.of((4,), "block", ranks=2), (1,), "nearest")
    >>> shifting = Shifting(halos=halos, schedule=None, assembly="asynchronous", dtype=np.dtype(int))
    >>> shifting.copied((), 0, 1, None, {0: np.array([5, 6]), 1: np.array([7, 8])})
    array([6, 7, 8, 8])
    """

    halos: Halos
    """Who sees what of whom."""

    def sizes(self) -> np.ndarray:
        """Count the elements that each rank sees of each other."""
        return self.halos.sizes()

    @cached_property
    def lenders(self) -> list[Sequence[int]]:
        """The ranks of whose elements each sees any."""
        return [self.halos.lenders(rank) for rank in range(self.halos.ranks)]

    def made(self, rank: int) -> np.ndarray:
        """Make the window of a rank, and in it what stands beyond the array's edges."""
        window = np.empty(self.halos.shape(rank), self.dtype)
        for place, constant in self.halos.filled(rank):
            window[place] = constant
        return window

    def take(self, source: int, part: np.ndarray, rank: int, made: np.ndarray) -> None:
        """Put what a rank sees of a part where it stands."""
        put(self.halos, source, rank, lent(part, self.halos.taken(source, rank)), made)

    def packed(self, round: Round, rank: int, held: np.ndarray, final: int) -> np.ndarray | None:
        """Pack what another rank sees of the part of ``rank``."""
        if rank not in self.halos.lenders(final):
            return None
        return self.rooms.packed(lent(held, self.halos.taken(rank, final))).reshape(-1)

    def unpack(self, came: dict[int, np.ndarray], rank: int, made: np.ndarray) -> None:
        """Put what has come where it stands."""
        for source, message in came.items():
            put(self.halos, source, rank, message.reshape(lengths(self.halos.taken(source, rank))), made)
