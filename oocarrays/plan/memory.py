"""Memory: what a process holds at one time, term by term, as every plan promises it.

stacks        24.0 MiB
regions       16.0 MiB      of two ranks
messages       4.0 MiB
──────────────────────
in all        44.0 MiB      plan.peak_bytes, at most the budget
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Self

PROCESS_BYTES = 3 * 2**20
"""Bytes that a process takes to run anything on threads: their stacks, open arrays, the scheduler, first imports."""
_BYTES = itemgetter(1)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that are held at one time, by what holds them.

    >>> rank = Memory.of(regions=8, messages=2)
    >>> process = Memory.of(stacks=24) + rank * 2
    >>> process
    Memory(stacks=24, regions=16, messages=4)
    >>> process.nbytes, process["regions"], process["scratch"]
    (44, 16, 0)
    """

    terms: tuple[tuple[str, int], ...] = ()
    """What holds any, and the bytes; no name twice."""

    @classmethod
    def of(cls, **terms: int) -> Self:
        """Name what is held."""
        return cls(tuple(terms.items()))

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
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
    """Choose what holds most of what is never held at one time.

    >>> largest(Memory.of(reading=3), Memory.of(chunks=1, writing=4)), largest()
    (Memory(chunks=1, writing=4), Memory())
    """
    return max(memories, key=attrgetter("nbytes"), default=Memory())


class Holding(ABC):
    """A plan that says what it holds."""

    __slots__ = ()

    @property
    @abstractmethod
    def memory(self) -> Memory:
        """Held by one process at one time, at most."""

    @property
    def peak_bytes(self) -> int:
        """Bytes that one process holds at one time, at most."""
        return self.memory.nbytes
