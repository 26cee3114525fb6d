"""A carrier: a network, and the times that it takes for messages; what prices an exchange by every schedule.

    sizes  ──►  PEX  GEN  REX … COLORING  ──►  steps routed on the network  ──►  the least seconds

A redistribution's methods, its schedules and the run that follows are priced by one and the same carrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from oocarrays.errors import ScheduleError
from oocarrays.plan.exchange.coloring import colored, is_worth_coloring
from oocarrays.plan.exchange.network import FlatCluster, Mesh, Network
from oocarrays.plan.exchange.prediction import Constants, flat_constants, schedule_seconds
from oocarrays.plan.exchange.schedule import (
    COLORING,
    NAMES,
    Schedule,
    complete_exchange,
    is_auto,
    is_coloring,
    is_unordered,
    schedules,
)
from oocarrays.plan.machine import Costs

QUICK = 7 * 10**7
"""Ranks that are asked in all steps of all schedules what they send, where that is a matter of seconds."""
LIKELY = (COLORING, "REX", "PEX", "IPEX", "GEN", "BEX", "PEX-GEN", "PEX-GEN-SHIFT", "LEX")
"""Schedules as they are worth to be priced, where not all can be; of equal ones, the plainer first."""
BETWEEN_WORKERS = "the costs of messages between workers: see oocarrays calibrate"
"""Whose constants those of a flat cluster are."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """A network, and what messages take on it.

    >>> few = np.array([[0, 900, 0, 0], [0, 0, 900, 0], [0, 0, 0, 900], [900, 0, 0, 0]])
    >>> flat = Carrier.between_workers(4, Costs())
    >>> schedule, seconds = flat.cheapest(few)
    >>> schedule.name, len(schedule), round(seconds, 4)
    ('COLORING', 1, 0.018)
    """

    network: Network
    """What carries messages."""
    constants: tuple[Constants, ...]
    """What they take, by their size."""
    whose: str = ""
    """Whose constants these are."""
    direct: bool = False
    """Whether "auto" leaves out schedules that forward: ranks take what is there, in the order of arrival."""

    @classmethod
    def between_workers(cls, ranks: int, costs: Costs, *, direct: bool = False) -> Carrier:
        """Return a flat cluster with the constants that were calibrated."""
        return cls(FlatCluster.of(*[1] * ranks), flat_constants(costs), BETWEEN_WORKERS, direct)

    def orders(
        self, sizes: np.ndarray, asked: str | Schedule | None = "auto", *, most: int = QUICK
    ) -> tuple[list[Schedule], list[str]]:
        """Return the schedules that an exchange may go by, and the names of those that would take long to price."""
        ranks = max(np.shape(sizes))
        if is_coloring(asked):
            return [colored(square(sizes))], []
        if is_unordered(asked):
            return [complete_exchange(ranks)], []
        columns = self.network.columns if isinstance(self.network, Mesh) and ranks == self.network.ranks else None
        if asked is not None and not is_auto(asked):
            return [Schedule.of(asked, ranks, columns=columns)], []
        takes: dict[str, Schedule] = {each.name: each for each in schedules(ranks, columns=columns, names=NAMES)}
        takes = {name: each for name, each in takes.items() if not (self.direct and each.forwards)}
        if is_worth_coloring(square(sizes)):
            takes[COLORING] = colored(square(sizes))
        return self._quick([takes[name] for name in LIKELY if name in takes], sizes, most)

    def _quick(self, known: Iterable[Schedule], sizes: np.ndarray, most: int) -> tuple[list[Schedule], list[str]]:
        """Return the schedules that are followed quickly together, one at least; and the names of the others."""
        chosen: list[Schedule] = []
        left_out: list[str] = []
        messages, work = int(np.count_nonzero(sizes)), 0
        for schedule in known:
            mine = len(schedule) * schedule.ranks
            mine += 2 * min(messages, mine)  # to route a message takes twice as long as to ask a rank
            if chosen and work + mine > most:
                left_out.append(schedule.name)
            else:
                chosen.append(schedule)
                work += mine
        return chosen, left_out

    def cheapest(self, sizes: np.ndarray, asked: str | Schedule | None = "auto") -> tuple[Schedule, float]:
        """Return the schedule of least predicted seconds, and these."""
        if max(np.shape(sizes)) > self.network.ranks:
            raise ScheduleError(f"{max(np.shape(sizes))} ranks do not stand on a network of {self.network.ranks}")
        return min(self._priced(sizes, asked), key=lambda each: each[1])

    def _priced(self, sizes: np.ndarray, asked: str | Schedule | None) -> Iterator[tuple[Schedule, float]]:
        for schedule in self.orders(sizes, asked)[0]:
            yield schedule, schedule_seconds(schedule, sizes, self.network, self.constants)


def square(sizes: np.ndarray) -> np.ndarray:
    """Return sizes over all ranks that are there before or afterwards.

    >>> square(np.ones((1, 2), int)).tolist()
    [[1, 1], [0, 0]]
    """
    ranks = max(sizes.shape)
    return np.pad(sizes, [(0, ranks - length) for length in sizes.shape])
