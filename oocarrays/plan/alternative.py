"""Alternatives: the ways of doing the work that a plan compared, including the chosen one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from oocarrays.plan.cost import Traffic

TAKEN = "taken"
"""Reason of the chosen way."""
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Way of doing the work that a plan compared."""

    name: str = field(metadata={"json": "strategy"})
    """Strategy or method, with the number of passes if there are several."""
    ranks: int = 1
    """Number of logical processors; for a collective request, its aggregators."""
    seconds: float | None
    """Predicted elapsed seconds; None if it does not fit."""
    peak_bytes: int
    """Peak bytes of a process, or of a task of a lazy array; the minimum required if it does not fit."""
    reason: str = ""
    """Reason for not choosing it, or `TAKEN`."""
    traffic: Traffic = field(default=Traffic(), metadata={"json": None})
    """Requests, bytes and messages of all ranks together, where alternatives are compared by them."""
    rounds: int = field(default=1, metadata={"json": None})
    """Rounds of reading and sending."""
    domains: str | None = field(default=None, metadata={"json": None})
    """Rule that assigns chunks to aggregators; None without aggregators."""

    @property
    def taken(self) -> bool:
        return self.reason == TAKEN

    def judged(self, taken: Alternative, budget: int) -> Alternative:
        """Return the alternative with the reason for preferring ``taken`` within a budget."""
        if self is taken:
            reason = TAKEN
        elif self.peak_bytes > budget or self.seconds is None:
            reason = too_large(self.peak_bytes, budget)
        else:
            reason = slower(self.seconds, taken.seconds or 0.0)
        return replace(self, reason=reason)


def too_large(peak_bytes: int, budget: int) -> str:
    """Return the reason for rejecting an alternative that exceeds the budget."""
    return f"needs {peak_bytes / MIB:.1f} MiB, the budget is {budget / MIB:.1f} MiB"


def slower(seconds: float, best: float) -> str:
    """Return the reason for rejecting an alternative that fits the budget."""
    return f"{seconds / max(best, 1e-9):.2f} times the predicted seconds of the one taken"
