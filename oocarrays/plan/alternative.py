"""Alternatives: the ways to do the work that a plan has looked at, the one that it takes among them."""

from __future__ import annotations

from dataclasses import dataclass, field

from oocarrays.plan.cost import Traffic

TAKEN = "taken"
"""The reason of the way that a plan takes."""
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A way to do the work that a plan has looked at."""

    name: str = field(metadata={"json": "strategy"})
    """The strategy or method, with the number of passes where they are several."""
    ranks: int = 1
    """Logical processors; of a collective request its aggregators."""
    seconds: float | None
    """Predicted by the clock, or None where it does not fit."""
    peak_bytes: int
    """Bytes that a process, or a task of a lazy array, holds at one time; where it does not fit, the least that it
    would need."""
    reason: str
    """Why it was not taken, or `TAKEN`."""

    @property
    def taken(self) -> bool:
        return self.reason == TAKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedAlternative(Alternative):
    """A way to read of which requests and bytes are compared, too."""

    seconds: float
    """Predicted by the clock."""
    traffic: Traffic
    """Requests, bytes and messages of all ranks together."""
    rounds: int = 1
    """Rounds of reading and sending."""
    domains: str | None = None
    """Which chunks are dealt out to aggregators; None where there are none."""


def too_large(peak_bytes: int, budget: int) -> str:
    """Say why a way was not taken that holds more than it may."""
    return f"needs {peak_bytes / MIB:.1f} MiB, the budget is {budget / MIB:.1f} MiB"


def slower(seconds: float, best: float) -> str:
    """Say why a way was not taken that fits."""
    return f"{seconds / max(best, 1e-9):.2f} times the predicted seconds of the one taken"
