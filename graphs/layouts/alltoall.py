"""All-to-alls of rows as tasks: of what every rank has, some for each other.

    rows ─► an exchange ─► rows        a slice of what a rank has is a message; between threads it is copied once

Thakur 1995, chapter 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oocarrays.graphs.exchange.messages import Round
from oocarrays.graphs.layouts.exchanging import Exchanging, exchange_tasks, exchanged_arrays
from oocarrays.graphs.layouts.parts import RankParts
from oocarrays.plan.layouts.alltoall import AlltoallPlan
from oocarrays.storage.meter import Meter


@dataclass(eq=False, kw_only=True)
class RowExchange(Exchanging):
    """The tasks of one all-to-all of rows."""

    plan: AlltoallPlan
    """Who sends what to whom."""

    def sizes(self) -> np.ndarray:
        """Count the elements that each rank has for each."""
        return self.plan.sizes()

    def made(self, rank: int) -> np.ndarray:
        """Make what a rank gets, still empty."""
        return np.empty(self.plan.shape(rank), self.dtype)

    def take(self, source: int, part: np.ndarray, rank: int, made: np.ndarray) -> None:
        """Put the rows of another, or its own, where they belong."""
        made[self.plan.place(source, rank)] = part[self.plan.taken(source, rank)]

    def packed(self, round: Round, rank: int, held: np.ndarray, final: int) -> np.ndarray | None:
        """Pack the rows for another."""
        rows = held[self.plan.taken(rank, final)]
        return self.rooms.packed(rows).reshape(-1) if rows.size else None

    def unpack(self, came: dict[int, np.ndarray], rank: int, made: np.ndarray) -> None:
        """Put rows that have come where they belong."""
        for source, message in came.items():
            there = made[self.plan.place(source, rank)]
            there[...] = message.reshape(there.shape)


def rows_exchanged(parts: RankParts, plan: AlltoallPlan, workers: Sequence[str], meter: Meter) -> RankParts:
    """Return what every rank gets."""
    exchange = RowExchange(plan=plan, schedule=plan.schedule, assembly="asynchronous", dtype=parts.dtype)
    return exchanged_arrays("rows", parts, exchange_tasks(exchange, parts.keys, plan.ranks, workers, meter=meter))
