"""The order of an all-to-all exchange: in every step, each rank has one partner.

    PEX on 4 ranks        step 1   0↔1  2↔3          GEN on 3 ranks     step 1   0→1  1→2  2→0
                          step 2   0↔2  1↔3                             step 2   0→2  1→0  2→1
                          step 3   0↔3  1↔2

Thakur 1995, section 4.2.2 (PEX, Figure 4.3, Table 4.1) and 4.3.4 (GEN, Figure 4.13). Step 0 is ours: what a rank
reads for itself stays with it, so that the steps of a schedule are all that there is to move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who sends to whom in each step of a complete exchange."""

    name: str
    """The algorithm: ``"PEX"`` or ``"GEN"``."""
    destinations: tuple[tuple[int, ...], ...]
    """``destinations[step][rank]`` is the rank that ``rank`` sends to; in step 0, itself."""

    @property
    def steps(self) -> int:
        """Steps, with step 0."""
        return len(self.destinations)

    @property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """``sources[step][rank]`` is the rank that ``rank`` receives from.

        >>> gen(3).sources[1]
        (2, 0, 1)
        """
        ranks = range(len(self.destinations[0]))
        return tuple(tuple(step.index(rank) for rank in ranks) for step in self.destinations)


def _schedule(name: str, ranks: int, partner: Callable[[int, int], int]) -> Schedule:
    return Schedule(name, tuple(tuple(partner(rank, step) for rank in range(ranks)) for step in range(ranks)))


def pex(ranks: int) -> Schedule:
    """Pairwise Exchange for a power-of-two number of ranks (Thakur 1995, Figure 4.3).

    >>> pex(4).destinations[2]
    (2, 3, 0, 1)
    """
    assert ranks & (ranks - 1) == 0, "PEX pairs ranks by exclusive or"
    return _schedule("PEX", ranks, lambda rank, step: rank ^ step)


def gen(ranks: int) -> Schedule:
    """The General Algorithm for any number of ranks (Thakur 1995, Figure 4.13).

    >>> gen(3).destinations[1]
    (1, 2, 0)
    """
    return _schedule("GEN", ranks, lambda rank, step: (rank + step) % ranks)


def complete_exchange(ranks: int) -> Schedule:
    """The schedule for ``ranks``: PEX where they are a power of two, GEN elsewhere.

    >>> complete_exchange(8).name, complete_exchange(6).name
    ('PEX', 'GEN')
    """
    return pex(ranks) if ranks & (ranks - 1) == 0 else gen(ranks)
