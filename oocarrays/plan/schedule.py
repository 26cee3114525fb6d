"""The order of an all-to-all exchange: which rank sends to which in each step, and what rides along.

    PEX on 4 ranks                GEN on 3 ranks                REX on 4 ranks
    step 1   0↔1  2↔3             step 1   0→1  1→2  2→0        step 1   0↔2  1↔3    what 0 sends to 2 is for 2 and 3
    step 2   0↔2  1↔3             step 2   0→2  1→0  2→1        step 2   0↔1  2↔3    what 2 sends to 3 is from 0 and 2
    step 3   0↔3  1↔2

A rank sends one message in a step, or none, so that a step is one destination a rank. Steps are made when they are
looked at: a schedule is its name and its ranks. Thakur 1995, sections 4.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oocarrays.errors import ScheduleError

IDLE = -1
"""The destination of a rank that sends nothing in a step."""
NAMES = ("LEX", "PEX", "REX", "BEX", "PEX-GEN", "PEX-GEN-SHIFT", "GEN", "IPEX")
FORWARDING = ("REX", "IPEX")
"""Those in which data travels through ranks that it is not for."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: every rank sends at most one message."""

    destinations: np.ndarray
    """``destinations[rank]`` is the rank that ``rank`` sends to, or ``IDLE``."""

    @cached_property
    def senders(self) -> np.ndarray:
        """The ranks that send, in their order."""
        return np.flatnonzero(self.destinations != IDLE)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Source and destination of each message, by source."""
        return [(int(source), int(self.destinations[source])) for source in self.senders]

    def sources(self, rank: int) -> list[int]:
        """The ranks that ``rank`` receives from."""
        return [int(source) for source in np.flatnonzero(self.destinations == rank)]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who sends to whom, in which step.

    >>> schedule = Schedule.of("PEX", 4)
    >>> len(schedule), schedule.step(1).pairs
    (3, [(0, 2), (1, 3), (2, 0), (3, 1)])
    """

    name: str
    """One of ``NAMES``."""
    ranks: int
    """Ranks."""
    columns: int = 0
    """Columns of the mesh that ranks stand on row by row (IPEX; REX halves a mesh's columns first); 0 for none."""

    @classmethod
    def of(cls, name: str, ranks: int, *, columns: int = 0) -> Schedule:
        """A schedule, checked.

        Raises
        ------
        ScheduleError
            Where there is no such schedule, or it does not take so many ranks.
        """
        known = name.upper()
        if known not in NAMES:
            raise ScheduleError(f"schedule={name!r} is unknown; there are {', '.join(n.lower() for n in NAMES)}")
        if known in ("PEX", "BEX", "REX") and ranks & (ranks - 1):
            raise ScheduleError(f"{name} takes a power of two of ranks, not {ranks}: gen and pex-gen take any number")
        return cls(known, ranks, columns)

    def __len__(self) -> int:
        return self.ranks - 1

    def step(self, number: int) -> Step:
        """Step ``number``, from 0."""
        ranks = np.arange(self.ranks)
        if self.name == "GEN":
            return Step(destinations=(ranks + number + 1) % self.ranks)
        return Step(destinations=ranks ^ (number + 1))

    def __iter__(self) -> Iterator[Step]:
        return map(self.step, range(len(self)))

    @property
    def forwards(self) -> bool:
        """Whether data travels through ranks that it is not for."""
        return self.name in FORWARDING

    def rides(self, number: int, source: int) -> list[tuple[int, int]]:
        """What ``source`` sends in step ``number``: the data of these pairs, each from its first sender to its last
        receiver."""
        return [(source, int(self.step(number).destinations[source]))]

    # what a rechunk asks of it, to be asked of the steps instead

    @property
    def steps(self) -> int:
        """Steps, with a step 0 in which each rank sends to itself."""
        return self.ranks

    @property
    def destinations(self) -> tuple[tuple[int, ...], ...]:
        """``destinations[step][rank]`` is the rank that ``rank`` sends to; in step 0, itself."""
        return (tuple(range(self.ranks)), *(tuple(step.destinations.tolist()) for step in self))

    @property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """``sources[step][rank]`` is the rank that ``rank`` receives from.

        >>> gen(3).sources[1]
        (2, 0, 1)
        """
        return tuple(tuple(step.index(rank) for rank in range(self.ranks)) for step in self.destinations)


def pex(ranks: int) -> Schedule:
    """Pairwise Exchange for a power-of-two number of ranks (Thakur 1995, Figure 4.3).

    >>> pex(4).destinations[2]
    (2, 3, 0, 1)
    """
    return Schedule.of("PEX", ranks)


def gen(ranks: int) -> Schedule:
    """The General Algorithm for any number of ranks (Thakur 1995, Figure 4.13).

    >>> gen(3).destinations[1]
    (1, 2, 0)
    """
    return Schedule.of("GEN", ranks)


def complete_exchange(ranks: int) -> Schedule:
    """The schedule for ``ranks``: PEX where they are a power of two, GEN elsewhere.

    >>> complete_exchange(8).name, complete_exchange(6).name
    ('PEX', 'GEN')
    """
    return pex(ranks) if ranks & (ranks - 1) == 0 else gen(ranks)
