"""Searches of planners: the largest number that fits, the first plan that fits, the cheapest of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, takewhile
from typing import TypeVar

from oocarrays.errors import BudgetError
from oocarrays.plan.alternative import Alternative
from oocarrays.plan.memory import Holding

T = TypeVar("T")
P = TypeVar("P", bound=Holding)


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
