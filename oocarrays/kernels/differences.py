"""Differences of two blocks: the number of elements, the first of them, and the largest distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PIECE = 2**16
"""Elements that are compared at a time: temporary arrays stay in the processor's cache."""
HELD = 64 * PIECE
"""Maximum bytes in addition to two blocks: both values of each element as numbers, and some masks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Maximum distance of equal elements: ``|a - b| <= atol + rtol * |b|``, as in numpy."""

    rtol: float = 0.0
    """Tolerance relative to the second element."""
    atol: float = 0.0
    """Absolute tolerance."""
    equal_nan: bool = True
    """Whether NaN is equal to NaN in the same place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Elements of two arrays that differ."""

    count: int = 0
    """Number of elements."""
    first: tuple[int, ...] | None = None
    """Index of the first of them, in row order; None without differences."""
    values: tuple[object, ...] = ()
    """Values of both arrays at that index."""
    largest: float = 0.0
    """Largest difference of numbers: infinite, or NaN, if one of two is."""

    def __add__(self, other: Differences) -> Differences:
        """Return the differences of two parts together, in any order."""
        some = (each for each in (self, other) if each.first is not None)
        earlier = min(some, key=lambda each: each.first or (), default=self)
        return Differences(
            count=self.count + other.count,
            first=earlier.first,
            values=earlier.values,
            largest=float(np.maximum(self.largest, other.largest)),  # NaN is more than any number
        )


def differences(a: np.ndarray, b: np.ndarray, lower: Sequence[int], tolerance: Tolerance) -> Differences:
    """Compare two blocks of one shape."""
    found, flat = Differences(), (a.reshape(-1), b.reshape(-1))
    for start in range(0, a.size, PIECE):
        x, y = (each[start : start + PIECE] for each in flat)
        unlike = _unlike(x, y, tolerance)
        count = int(np.count_nonzero(unlike))
        if count:
            at = int(np.argmax(unlike))
            place = tuple(int(i) + n for i, n in zip(np.unravel_index(start + at, a.shape), lower, strict=True))
            far = _farthest(x[unlike], y[unlike])
            found += Differences(count=count, first=place, values=(x[at].item(), y[at].item()), largest=far)
    return found


def _unlike(x: np.ndarray, y: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    unlike: np.ndarray = x != y
    if (tolerance.rtol or tolerance.atol) and x.dtype.kind in "iufcb":
        with np.errstate(invalid="ignore", over="ignore"):
            unlike &= ~np.isclose(_numbers(x), _numbers(y), tolerance.rtol, tolerance.atol)
    if tolerance.equal_nan and unlike.any():
        unlike &= ~((x != x) & (y != y))  # NaN and NaT alone are unlike themselves
    return unlike


def _numbers(x: np.ndarray) -> np.ndarray:
    return x.astype(np.result_type(x.dtype, np.float64), copy=False)


def _farthest(x: np.ndarray, y: np.ndarray) -> float:
    """Return the largest difference of elements; NaN if they are no numbers."""
    if x.dtype.kind not in "iufcb" or y.dtype.kind not in "iufcb":
        return math.nan
    if x.dtype == y.dtype and x.dtype.kind in "iu":  # as floats, neighbours beyond 2**53 would be one number
        unsigned = x.dtype.str.replace("i", "u")
        return float((np.maximum(x, y).view(unsigned) - np.minimum(x, y).view(unsigned)).max())
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.abs(_numbers(x) - _numbers(y)).max())
