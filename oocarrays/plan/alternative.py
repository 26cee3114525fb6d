"""Alternatives: the ways to do the work that a plan has compared, the one that it takes among them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from oocarrays.plan.cost import Traffic

TAKEN = "taken"
"""The reason of the way that a plan takes."""
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A way to do the work that a plan has compared."""

    name: str = field(metadata={"json": "strategy"})
    """Strategy or method, with the number of passes if there are several."""
    ranks: int = 1
    """Logical processors; of a collective request its aggregators."""
    seconds: float | None
    """Predicted by the clock; None if it does not fit."""
    peak_bytes: int
    """Most bytes that a process, or a task of a lazy array, holds; the least that it would need if it does not fit."""
    reason: str = ""
    """Why it was not taken, or `TAKEN`."""
    traffic: Traffic = field(default=Traffic(), metadata={"json": None})
    """Requests, bytes and messages of all ranks together, where ways are compared by them."""
    rounds: int = field(default=1, metadata={"json": None})
    """Rounds of reading and sending."""
    domains: str | None = field(default=None, metadata={"json": None})
    """Chunks that are assigned to aggregators; None without aggregators."""

    @property
    def taken(self) -> bool:
        return self.reason == TAKEN

    def judged(self, taken: Alternative, budget: int) -> Alternative:
        """Return the alternative with the reason why ``taken`` was preferred within a budget."""
        if self is taken:
            reason = TAKEN
        elif self.peak_bytes > budget or self.seconds is None:
            reason = too_large(self.peak_bytes, budget)
        else:
            reason = slower(self.seconds, taken.seconds or 0.0)
        return replace(self, reason=reason)


def too_large(peak_bytes: int, budget: int) -> str:
    """Return why a way that exceeds the budget was not taken."""
    return f"needs {peak_bytes / MIB:.1f} MiB, the budget is {budget / MIB:.1f} MiB"


def slower(seconds: float, best: float) -> str:
    """Return why a way that keeps the budget was not taken."""
    return f"{seconds / max(best, 1e-9):.2f} times the predicted seconds of the one taken"
