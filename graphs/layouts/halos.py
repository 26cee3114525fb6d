"""Halos as tasks: what every rank holds, with its neighbours' border rows around it.

    between threads    part ─┬─► see ─► window               each border copied once, straight from the neighbour's part
                       part ─┴─► see ─► window

    between workers    part ─► an exchange ─► window          only borders travel: see `exchanging`

Thakur 1995, section 5.4 (PASSION_oc_shift).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dask.task_spec import Task, TaskRef

from oocarrays.graphs.exchange.messages import Round
from oocarrays.graphs.layouts.exchanging import Exchanging, exchange_tasks
from oocarrays.graphs.layouts.parts import Parts, RankParts, layered
from oocarrays.graphs.run.builder import new_suffix
from oocarrays.graphs.run.steps import Key
from oocarrays.mapping.selection import lengths
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.halos import Halos, lent, put


def windows(parts: Parts, halos: Halos, schedule: Schedule | None, workers: Sequence[str]) -> RankParts:
    """What every rank sees.

    Parameters
    ----------
    schedule : Schedule, optional
        The order of messages between workers; None between threads.
    workers : sequence of str
        Where ranks are put.
    """
    if schedule is None:
        suffix = new_suffix()
        keys: list[Key] = [(f"see-{suffix}", rank) for rank in range(halos.ranks)]
        tasks = {key: _seeing(key, parts, halos) for key in keys}
        homes = {}
    else:
        shifting = Shifting(halos=halos, schedule=schedule, assembly="asynchronous", dtype=parts.dtype)
        sent = halos.sent()
        made = exchange_tasks(shifting, parts.keys, halos.ranks, lambda a, b: bool(sent[a, b]), workers)
        suffix, keys, homes = made.suffix, made.keys, {**parts.homes, **made.homes}
        tasks = made.tasks
    name = f"windows-{suffix}"
    graph = layered(parts.graph, name, tasks, parts.name)
    return RankParts(dtype=parts.dtype, graph=graph, name=name, keys=tuple(keys), homes=homes)


def _seeing(key: Key, parts: Parts, halos: Halos) -> Task:
    sources = halos.lenders(key[-1])
    return Task(key, see, halos, key[-1], parts.dtype, sources, *(TaskRef(parts.keys[source]) for source in sources))


def see(halos: Halos, rank: int, dtype: np.dtype, sources: Sequence[int], *held: np.ndarray) -> np.ndarray:
    """What ``rank`` sees, taken from what each of ``sources`` holds.

    >>> from oocarrays.mapping.layouts.layout import Layout
    >>> halos = Halos(Layout.of((4,), "block", ranks=2), (1,), "nearest")
    >>> see(halos, 1, np.dtype(int), [0, 1], np.array([5, 6]), np.array([7, 8]))
    array([6, 7, 8, 8])
    """
    window = np.empty(halos.shape(rank), dtype)
    for place in halos.filled(rank):
        window[place] = halos.boundary
    for source, part in zip(sources, held, strict=True):
        put(halos, source, rank, lent(part, halos.taken(source, rank)), window)
    return window


@dataclass(eq=False, kw_only=True)
class Shifting(Exchanging):
    """An exchange of borders between workers: what its tasks do."""

    halos: Halos
    """Who sees what of whom."""

    def packed(self, round: Round, rank: int, held: np.ndarray, final: int) -> np.ndarray | None:
        """What another rank sees of the part of ``rank``."""
        if rank not in self.halos.lenders(final):
            return None
        return self.rooms.packed(lent(held, self.halos.taken(rank, final))).reshape(-1)

    def keep(self, rank: int, part: np.ndarray | None) -> np.ndarray:
        """The window, and in it what this rank has itself."""
        assert part is not None, "each rank of a layout has a part"
        return see(self.halos, rank, self.dtype, [rank] if part.size else [], *([part] if part.size else []))

    def unpack(self, came: dict[int, np.ndarray], rank: int, made: np.ndarray) -> None:
        """Put what has come where it stands."""
        for source, message in came.items():
            put(self.halos, source, rank, message.reshape(lengths(self.halos.taken(source, rank))), made)
