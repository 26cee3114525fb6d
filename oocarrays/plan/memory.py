"""Memory of a process at one time, by term, as stated by every plan.

    stacks        24.0 MiB
    regions       16.0 MiB      of two ranks
    messages       4.0 MiB
    ──────────────────────
    in all        44.0 MiB      plan.peak_bytes, at most the budget

    on threads      Resources(budget=2**30, threads=2)                 ranks are threads of this process
    on workers      Resources(budget=2**30, threads=2, workers=4)      ranks are placed on workers of a cluster

Ranks are threads if and only if ``workers is None``.
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
    """Memory, processors and requests that a plan may use, and the exchange schedule of its ranks."""

    budget: int = 2**62
    """Bytes that each process may hold above its idle level."""
    costs: Costs = field(default_factory=Costs)
    """Seconds of each kind of work."""
    workers: int | None = None
    """Workers of a cluster, to which ranks are assigned in turn; None if ranks are threads of this process."""
    threads: int = 1
    """Threads of each process."""
    ranks: int | None = None
    """Requested number of logical processors; None for the cheapest number."""
    schedule: str = "auto"
    """Name of the exchange schedule."""
    synchronous: bool = True
    """Whether a step between workers waits until the previous one has been received and consumed."""
    steps_below: int = 8
    """Minimum number of ranks on workers at which one task per rank handles all exchange steps of a round; below, each
    step is a task.
    """
    requests: int = 64
    """Maximum number of concurrent network requests of a process."""

    @property
    def on_workers(self) -> bool:
        return self.workers is not None

    def ranks_of_a_process(self, ranks: int) -> int:
        """Return the maximum number of ranks that share one process."""
        return ranks if self.workers is None else ceil_div(ranks, self.workers)


PROCESS_BYTES = 3 * 2**20
"""Fixed bytes of a process for running tasks on threads: stacks, open arrays, the scheduler, first imports."""
_BYTES = itemgetter(1)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes held at one time, by term."""

    terms: tuple[tuple[str, int], ...] = ()
    """Unique names of the terms, with their bytes."""

    @classmethod
    def of(cls, **terms: int) -> Self:
        return cls(tuple(terms.items()))

    @classmethod
    def from_number(cls, nbytes: int) -> Self:
        """Return the memory that `to_number` wrote: its terms are not kept."""
        return cls.of(in_all=nbytes)

    def to_number(self) -> int:
        """Return the number of bytes, as plans keep it."""
        return self.nbytes

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


def largest_memory(*memories: Memory) -> Memory:
    """Return the largest of several memories that are never held at the same time."""
    return max(memories, key=attrgetter("nbytes"), default=Memory())


class Holding(ABC):
    """Base of plans with a memory estimate."""

    __slots__ = ()

    @property
    @abstractmethod
    def memory(self) -> Memory:
        """Peak memory of one process."""

    @property
    def considered(self) -> NoReturn:
        """Raise an error that names ``alternatives``."""
        raise AttributeError("'considered' is renamed 'alternatives'")

    @property
    def peak_bytes(self) -> int:
        """Peak bytes of one process."""
        return self.memory.nbytes
