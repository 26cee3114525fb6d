"""Alternatives, the ways of doing the work that a plan compared, and the searches that compare them.

The largest number that fits, the first plan that fits, the cheapest of several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import TypeVar

from oocarrays.errors import BudgetError
from oocarrays.plan.cost import Traffic
from oocarrays.plan.memory import Holding

TAKEN = "taken"
"""Reason of the chosen way."""
MIB = 2**20
T = TypeVar("T")
P = TypeVar("P", bound=Holding)


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


def largest(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest number up to ``high`` that fits by bisection, if ``low`` fits."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def least(fits: Callable[[int], bool], low: int, high: int, within: int = 1) -> int:
    """Return a number that fits, at most ``within`` above one that does not; ``high`` fits and ``low`` does not."""
    while high - low > within:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def halvings(most: int) -> Iterator[int]:
    """Yield ``most``, half of it, and so on down to 1."""
    return takewhile(bool, (most >> bit for bit in count()))


def first_fitting(plans: Iterable[P], budget: int, what: str) -> tuple[P, list[P]]:
    """Return the first plan that fits the budget, and those before it, or raise with the minimum of all."""
    refused: list[P] = []
    for plan in plans:
        if plan.peak_bytes <= budget:
            return plan, refused
        refused.append(plan)
    raise BudgetError(budget, min(plan.peak_bytes for plan in refused), what)


def cheapest(
    candidates: Iterable[T], price: Callable[[T], Alternative], budget: int, what: str
) -> tuple[T, tuple[Alternative, ...]]:
    """Return the candidate with the least seconds that fits the budget, and every candidate with the reason against
    it."""
    priced = [(each, price(each)) for each in candidates]
    fitting = [(each, its) for each, its in priced if its.seconds is not None and its.peak_bytes <= budget]
    if not fitting:
        raise BudgetError(budget, min(its.peak_bytes for _, its in priced), what)
    best, taken = min(fitting, key=lambda both: both[1].seconds or 0.0)
    return best, tuple(its.judged(taken, budget) for _, its in priced)
