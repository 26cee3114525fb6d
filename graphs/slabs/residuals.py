"""Residuals: how much the last sweep of a pass has changed, by which the next pass is begun or left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

Residual = Callable[[Any, Any], float]
"""What the last sweep of a pass has changed, of a part of the array before and after it; of several arrays both are
tuples."""


def change(before: np.ndarray, after: np.ndarray) -> float:
    """The most that an element changes; one that stays NaN, or infinite, does not change.

    >>> change(np.array([1.0, np.nan, np.inf]), np.array([1.5, np.nan, np.inf])), change(np.uint8([3]), np.uint8([1]))
    (0.5, 2.0)
    """
    if not after.size:
        return 0.0
    exact = after.dtype if after.dtype.kind in "fc" else np.float64
    with np.errstate(invalid="ignore"):
        differences = np.abs(np.subtract(after, before, dtype=exact))
    most = differences.max()
    if np.isnan(most):
        same = (before == after) | (np.isnan(before) & np.isnan(after))
        most = differences.max(where=~same, initial=0)
    return float(most)


def residual_of(residual: Residual, before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> float:
    """A residual of all arrays that are swept: by default of that which changes most.

    >>> residual_of(change, [np.zeros(2), np.zeros(2)], [np.array([0.0, 1.0]), np.array([3.0, 0.0])])
    3.0
    """
    if residual is change:
        return largest(map(change, before, after))
    return float(residual(before[0], after[0]) if len(before) == 1 else residual(tuple(before), tuple(after)))


def largest(residuals: Iterable[float]) -> float:
    """The largest of them, NaN where one is.

    >>> largest([1.0, 3.0, 2.0]), largest([1.0, float("nan")]), largest([])
    (3.0, nan, -inf)
    """
    return float(np.max([-np.inf, *residuals]))


def as_bits(residual: float) -> int:
    """A residual as the journal keeps it: a whole number.

    >>> as_residual(as_bits(-0.1))
    -0.1
    """
    return int(np.float64(residual).view(np.uint64))


def as_residual(bits: int) -> float:
    """Undo `as_bits`."""
    return float(np.uint64(bits).view(np.float64))
