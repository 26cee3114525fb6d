"""A redistribution as tasks: what every rank holds in another layout, made of what it holds in this one.

    part ─► an exchange ─► part        straight from others' parts, or by messages in the steps of a schedule

Old parts are only read: whoever holds them may use them again. Thakur 1995, sections 3.4 and 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from oocarrays.graphs.exchange.messages import Round
from oocarrays.graphs.layouts.exchanging import Exchanging, exchange_tasks
from oocarrays.graphs.layouts.parts import Parts
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.assembly import Messaging, squared
from oocarrays.plan.layouts.redistribution import Transfer
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections.packing import move, pack, unpack_all


def moved(
    parts: Parts, transfers: Sequence[Transfer], messaging: Messaging, workers: Sequence[str], meter: Meter
) -> Parts:
    """Return the parts after transfers, one after the other; where nothing moves, they are what they were."""
    for transfer, schedule in zip(transfers, messaging.schedules, strict=True):
        if _stays(transfer):
            parts = replace(parts, layout=transfer.target)
        else:
            parts = exchanged(parts, transfer, schedule, messaging, workers, meter)
    return parts


def _stays(transfer: Transfer) -> bool:
    """Whether every rank is to hold what it holds; empty parts may yet be of another shape."""
    sides = transfer.source, transfer.target
    before, after = ([side.local_shape(rank) for rank in range(side.ranks)] for side in sides)
    return before == after and not transfer.work.moved


@dataclass(eq=False, kw_only=True)
class Moving(Exchanging):
    """The tasks of one transfer."""

    transfer: Transfer
    """Who holds what before and afterwards."""

    def sizes(self) -> np.ndarray:
        """Count the elements that each origin has for each final rank."""
        return squared(self.transfer.sizes())

    def made(self, rank: int) -> np.ndarray:
        """Make the new part of a rank, still empty."""
        return np.empty(self.transfer.target.local_shape(rank), self.dtype)

    def take(self, source: int, part: np.ndarray, rank: int, made: np.ndarray) -> None:
        """Put what a rank takes of an old part where it belongs."""
        move(part, self.transfer, source, rank, made)

    def packed(self, round: Round, rank: int, held: np.ndarray, final: int) -> np.ndarray | None:
        """Pack what ``rank`` holds and another is to hold."""
        if final >= self.transfer.target.ranks:
            return None
        message = pack(held, self.transfer, rank, final, self.rooms.take)
        return message if len(message) else None

    def unpack(self, came: dict[int, np.ndarray], rank: int, made: np.ndarray) -> None:
        """Put what has come where it belongs."""
        unpack_all(came, self.transfer, rank, made)


def exchanged(
    parts: Parts,
    transfer: Transfer,
    schedule: Schedule | None,
    messaging: Messaging,
    workers: Sequence[str],
    meter: Meter | None = None,
) -> Parts:
    """Return the parts after a transfer: between threads, where there is no schedule."""
    travels = transfer.bare() if schedule else transfer
    moving = Moving(transfer=travels, schedule=schedule, assembly=messaging.assembly, dtype=parts.dtype)
    ranks = transfer.target.ranks
    made = exchange_tasks(moving, parts.keys, ranks, workers, ordered=messaging.ordered, meter=meter)
    return parts.followed_by(made.suffix, made.tasks, transfer.target, made.keys, made.homes)
