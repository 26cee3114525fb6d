"""A redistribution as tasks: what every rank holds in another layout, made of what it holds in this one.

    between threads    part ─┬─► fill ─► part                 a rank's new part is filled straight from the others'
                       part ─┴─► fill ─► part

    between workers    part ─► an exchange ─► part            messages in the steps of a schedule: see `exchanging`

Old parts are only read: whoever holds them may use them again. Thakur 1995, sections 3.4 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from dask.task_spec import Task, TaskRef

from oocarrays.graphs.exchange.messages import Round
from oocarrays.graphs.layouts.exchanging import Exchanging, exchange_tasks
from oocarrays.graphs.layouts.parts import Parts
from oocarrays.graphs.run.builder import new_suffix
from oocarrays.graphs.run.steps import Key
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.assembly import Messaging, squared
from oocarrays.plan.layouts.redistribution import Transfer
from oocarrays.storage.sections.packing import move, pack, unpack_all


def moved(parts: Parts, transfers: Sequence[Transfer], messaging: Messaging, workers: Sequence[str]) -> Parts:
    """The parts after transfers, one after the other; where nothing moves, they are what they were."""
    for transfer, schedule in zip(transfers, messaging.schedules, strict=True):
        if _stays(transfer):
            parts = replace(parts, layout=transfer.target)
        else:
            parts = exchanged(parts, transfer, schedule, messaging, workers) if schedule else filled(parts, transfer)
    return parts


def _stays(transfer: Transfer) -> bool:
    """Whether every rank is to hold what it holds; empty parts may yet be of another shape."""
    sides = transfer.source, transfer.target
    before, after = ([side.local_shape(rank) for rank in range(side.ranks)] for side in sides)
    return before == after and not transfer.work.moved


# ---------------------------------------------------------------------- between threads


def filled(parts: Parts, transfer: Transfer) -> Parts:
    """The parts after a transfer between threads: one task a rank."""
    suffix, sizes = new_suffix(), transfer.sizes()
    keys: list[Key] = [(f"fill-{suffix}", rank) for rank in range(transfer.target.ranks)]
    tasks = {}
    for key in keys:
        sources = [int(source) for source in np.roll(np.arange(len(sizes)), -key[-1]) if sizes[source, key[-1]]]
        held = [TaskRef(parts.keys[source]) for source in sources]
        tasks[key] = Task(key, fill, transfer, key[-1], parts.dtype, sources, *held)
    return parts.followed_by(suffix, tasks, transfer.target, keys)


def fill(transfer: Transfer, rank: int, dtype: np.dtype, sources: Sequence[int], *held: np.ndarray) -> np.ndarray:
    """What ``rank`` is to hold, taken from what each of ``sources`` holds, itself first."""
    part = np.empty(transfer.target.local_shape(rank), dtype)
    for source, array in zip(sources, held, strict=True):
        move(array, transfer, source, rank, part)
    return part


# ---------------------------------------------------------------------- between workers


@dataclass(eq=False, kw_only=True)
class Moving(Exchanging):
    """A transfer between workers: what its tasks do."""

    transfer: Transfer
    """Who holds what before and afterwards."""

    def packed(self, round: Round, rank: int, held: np.ndarray, final: int) -> np.ndarray | None:
        """What ``rank`` holds and another is to hold."""
        if final >= self.transfer.target.ranks:
            return None
        message = pack(held, self.transfer, rank, final, self.rooms.take)
        return message if len(message) else None

    def keep(self, rank: int, part: np.ndarray | None) -> np.ndarray:
        """The new part, and in it what stays with this rank."""
        made = np.empty(self.transfer.target.local_shape(rank), self.dtype)
        if part is not None:
            move(part, self.transfer, rank, rank, made)
        return made

    def unpack(self, came: dict[int, np.ndarray], rank: int, made: np.ndarray) -> None:
        """Put what has come where it belongs."""
        unpack_all(came, self.transfer, rank, made)


def exchanged(
    parts: Parts, transfer: Transfer, schedule: Schedule, messaging: Messaging, workers: Sequence[str]
) -> Parts:
    """The parts after a transfer between workers."""
    moving = Moving(transfer=transfer, schedule=schedule, assembly=messaging.assembly, dtype=parts.dtype)
    ranks, wants = transfer.target.ranks, _wants(transfer)
    made = exchange_tasks(moving, parts.keys, ranks, wants, workers, ordered=messaging.ordered)
    return parts.followed_by(made.suffix, made.tasks, transfer.target, made.keys, made.homes)


def _wants(transfer: Transfer) -> Callable[[int, int], bool]:
    sizes = squared(transfer.sizes())
    return lambda origin, final: bool(sizes[origin, final])
