"""The resources that a plan may use: one value that every planner takes.

    on threads      Resources(budget=2**30, threads=2)                 ranks are threads of this process
    on workers      Resources(budget=2**30, threads=2, workers=4)      ranks are put on workers of a cluster

Whether ranks are threads is said in one way: ``workers is None``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oocarrays.mapping.grid import ceil_div
from oocarrays.plan.machine import Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Memory, processors and requests that a plan may use, and the order in which its ranks exchange.

    >>> Resources(budget=2**26, workers=3).ranks_of_a_process(8), Resources(budget=2**26).ranks_of_a_process(8)
    (3, 8)
    """

    budget: int = 2**62
    """Bytes that each process may hold above its idle level."""
    costs: Costs = field(default_factory=Costs)
    """Seconds that each kind of work takes."""
    workers: int | None = None
    """Workers of a cluster on which ranks are put in turn; None where ranks are threads of this process."""
    threads: int = 1
    """Threads of each process."""
    ranks: int | None = None
    """Logical processors that are asked for; None for as many as the planner finds cheapest."""
    schedule: str = "auto"
    """The order in which ranks exchange, by its name."""
    synchronous: bool = True
    """Whether a step between workers waits until the one before has been received and taken."""
    steps_below: int = 8
    """Ranks from which one task of each holds the whole exchange of a round, where they are on workers; below, each
    step is a task."""
    requests: int = 64
    """Requests that a process has under way at one time, at most, where they travel over a network."""

    @property
    def on_workers(self) -> bool:
        """Whether ranks are on workers of a cluster."""
        return self.workers is not None

    def ranks_of_a_process(self, ranks: int) -> int:
        """Ranks that share one process, at most."""
        return ranks if self.workers is None else ceil_div(ranks, self.workers)
