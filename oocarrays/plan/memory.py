"""Memory: what a process holds at one time, term by term, as every plan promises it.

stacks        24.0 MiB
regions       16.0 MiB      of two ranks
messages       4.0 MiB
──────────────────────
in all        44.0 MiB      plan.peak_bytes, at most the budget

on threads      Resources(budget=2**30, threads=2)                 ranks are threads of this process
    on workers      Resources(budget=2**30, threads=2, workers=4)      ranks are put on workers of a cluster

Whether ranks are threads is said in one way: ``workers is None``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import NoReturn, Self

from oocarrays.mapping.grid import ceil_div
from oocarrays.plan.machine import Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Memory, processors and requests that a plan may use, and the order in which its ranks exchange."""

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
        return self.workers is not None

    def ranks_of_a_process(self, ranks: int) -> int:
        """Ranks that share one process, at most."""
        return ranks if self.workers is None else ceil_div(ranks, self.workers)


PROCESS_BYTES = 3 * 2**20
"""Bytes that a process takes to run anything on threads: their stacks, open arrays, the scheduler, first imports."""
_BYTES = itemgetter(1)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that are held at one time, by what holds them."""

    terms: tuple[tuple[str, int], ...] = ()
    """What holds any, and the bytes; no name twice."""

    @classmethod
    def of(cls, **terms: int) -> Self:
        return cls(tuple(terms.items()))

    @property
    def nbytes(self) -> int:
        return sum(map(_BYTES, self.terms))

    def __add__(self, other: Memory) -> Memory:
        both = dict(self.terms)
        for name, nbytes in other.terms:
            both[name] = both.get(name, 0) + nbytes
        return Memory(tuple(both.items()))

    def __mul__(self, times: int) -> Memory:
        return Memory(tuple((name, nbytes * times) for name, nbytes in self.terms))

    def __getitem__(self, name: str) -> int:
        return dict(self.terms).get(name, 0)

    def __repr__(self) -> str:
        return f"Memory({', '.join(f'{name}={nbytes}' for name, nbytes in self.terms)})"


def largest(*memories: Memory) -> Memory:
    """Choose what holds most of what is never held at one time."""
    return max(memories, key=attrgetter("nbytes"), default=Memory())


class Holding(ABC):
    """A plan that says what it holds."""

    __slots__ = ()

    @property
    @abstractmethod
    def memory(self) -> Memory:
        """Held by one process at one time, at most."""

    @property
    def considered(self) -> NoReturn:
        """Raise an error that names ``alternatives``."""
        raise AttributeError("'considered' is renamed 'alternatives'")

    @property
    def peak_bytes(self) -> int:
        """Bytes that one process holds at one time, at most."""
        return self.memory.nbytes
