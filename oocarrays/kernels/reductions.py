"""Reductions piece by piece: what is kept of a piece, how two follow each other, and what comes out.

    piece ─► state ─┐
    piece ─► state ─┴─ fold ─► state ─► finish

States are folded in the order of the pieces, so that the same pieces give the same bits. Floating-point numbers are
added in float64: within a piece as numpy does, from piece to piece with what was lost by rounding (Neumaier 1974);
squares of deviations as Chan, Golub and LeVeque 1979.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from oocarrays.errors import InputError

Axes = tuple[int, ...]
NAMES = ("sum", "mean", "var", "std", "min", "max", "count")
"""Reductions that are known by name."""
LONG = np.dtype("i8")
PIECE = 2**18
"""Elements of which deviations are held at one time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """A reduction in three steps."""

    state: Callable[[np.ndarray, Axes, np.ndarray | None], Any]
    """Takes a piece, the axes along which it is reduced, and a mask of what counts, or None."""
    fold: Callable[[Any, Any], Any]
    """Takes two states, of what stands before and behind."""
    finish: Callable[[Any], np.ndarray]
    """Takes the state of all."""


def reduction(name: str, *, skipna: bool, ddof: int = 0, counts: np.dtype = LONG) -> Reduction:
    """Return a reduction that is known by name; elements are counted in ``counts``, which all of them must fit.

    >>> mean = reduction("mean", skipna=True)
    >>> first, second = (mean.state(np.array(piece), (0,), None) for piece in ([1.0, np.nan], [4.0]))
    >>> mean.finish(mean.fold(first, second)).item()
    2.5
    """
    if name in ("min", "max"):
        return Reduction(
            state=partial(_extreme, counts=counts, smallest=name == "min", skipna=skipna),
            fold=partial(_extremes, smallest=name == "min", skipna=skipna),
            finish=_some,
        )
    if name in ("var", "std"):
        deviation = partial(_deviation, ddof=ddof, root=name == "std")
        return Reduction(state=partial(_moments, counts=counts, skipna=skipna), fold=_moments_of_both, finish=deviation)
    finish: Callable[[Any], np.ndarray] = {"sum": _total, "mean": _mean, "count": _number}[name]
    return Reduction(state=partial(_sums, counts=counts, skipna=skipna), fold=_sums_of_both, finish=finish)


# ---------------------------------------------------------------------- sums

Sums = tuple[np.ndarray, np.ndarray, np.ndarray]
"""How many elements count, their sum, and what it lacks by rounding."""


def _accumulator(dtype: np.dtype) -> np.dtype:
    """The dtype in which elements are added: as numpy has it, floating-point numbers in 64 bits."""
    usual: np.dtype = np.add.reduce(np.empty(0, dtype)).dtype
    return {"f": np.dtype("f8"), "c": np.dtype("c16")}.get(dtype.kind, usual)


def _sums(block: np.ndarray, axes: Axes, mask: np.ndarray | None, counts: np.dtype, skipna: bool) -> Sums:
    dtype = _accumulator(block.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.add.reduce(block, axis=axes, dtype=dtype, where=True if mask is None else mask)
    if skipna and block.dtype.kind in "fc" and np.isnan(total).any():
        mask = ~np.isnan(block) if mask is None else mask & ~np.isnan(block)
        total = np.add.reduce(block, axis=axes, dtype=dtype, where=mask)
    return _counted(block, axes, mask, counts), np.asarray(total), np.zeros_like(total)


def _counted(block: np.ndarray, axes: Axes, mask: np.ndarray | None, counts: np.dtype) -> np.ndarray:
    kept = [n for axis, n in enumerate(block.shape) if axis not in axes]
    if mask is None:
        return np.full(kept, math.prod(block.shape[axis] for axis in axes), counts)
    return np.asarray(np.add.reduce(mask, axis=axes, dtype=counts))


def _sums_of_both(a: Sums, b: Sums) -> Sums:
    with np.errstate(invalid="ignore", over="ignore"):
        total = a[1] + b[1]
        if total.dtype.kind not in "fc":
            return a[0] + b[0], total, a[2]
        larger = np.abs(a[1]) >= np.abs(b[1])
        lost = np.where(larger, (a[1] - total) + b[1], (b[1] - total) + a[1])
        lost = np.where(np.isfinite(total), lost, 0)
    return a[0] + b[0], total, a[2] + b[2] + lost


def _number(state: Sums) -> np.ndarray:
    return state[0].astype(LONG)


def _total(state: Sums) -> np.ndarray:
    return state[1] + state[2]


def _mean(state: Sums) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(_total(state) / state[0])


# ---------------------------------------------------------------------- deviations

Moments = tuple[np.ndarray, np.ndarray, np.ndarray]
"""How many elements count, their mean, and the sum of squares of what they differ from it."""


def _moments(block: np.ndarray, axes: Axes, mask: np.ndarray | None, counts: np.dtype, skipna: bool) -> Moments:
    if skipna and block.dtype.kind in "fc" and np.isnan(block).any():
        mask = ~np.isnan(block) if mask is None else mask & ~np.isnan(block)
    sums = _sums(block, axes, mask, counts, skipna=False)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(sums[0] > 0, _mean(sums), 0)
    return sums[0], mean, _squares(block, axes, mask, np.expand_dims(mean, axes))


def _squares(block: np.ndarray, axes: Axes, mask: np.ndarray | None, mean: np.ndarray) -> np.ndarray:
    """The sum of squared deviations, a few rows of the longest axis at one time."""
    found: Any = np.zeros([n for axis, n in enumerate(block.shape) if axis not in axes])
    if not block.size:
        return np.asarray(found)
    along = max(axes, key=lambda axis: block.shape[axis], default=None)
    if along is None:
        return np.asarray(found)
    rows = max(PIECE * block.shape[along] // block.size, 1)
    for first in range(0, block.shape[along], rows):
        part = (slice(None),) * along + (slice(first, first + rows),)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(block[part] - mean)
            found = found + np.add.reduce(apart * apart, axis=axes, where=True if mask is None else mask[part])
    return np.asarray(found)


def _moments_of_both(a: Moments, b: Moments) -> Moments:
    count = a[0] + b[0]
    some = np.maximum(count, 1)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = b[1] - a[1]
        mean = a[1] + apart * (b[0] / some)
        squares = a[2] + b[2] + np.abs(apart) ** 2 * (a[0] * (b[0] / some))
    empty = (a[0] == 0, b[0] == 0)
    return count, np.where(empty[0], b[1], np.where(empty[1], a[1], mean)), squares


def _deviation(state: Moments, ddof: int, root: bool) -> np.ndarray:
    count, _, squares = state
    with np.errstate(invalid="ignore", divide="ignore"):
        found = squares / np.where(count > ddof, count - ddof, 0)
        return np.asarray(np.sqrt(found) if root else found)


# ---------------------------------------------------------------------- extremes

Extremes = tuple[np.ndarray, np.ndarray]
"""How many elements count, and the smallest or largest."""


def _chooser(*, smallest: bool, skipna: bool) -> np.ufunc:
    if skipna:
        return np.fmin if smallest else np.fmax
    return np.minimum if smallest else np.maximum


def _extreme(
    block: np.ndarray, axes: Axes, mask: np.ndarray | None, counts: np.dtype, smallest: bool, skipna: bool
) -> Extremes:
    choose, last = _chooser(smallest=smallest, skipna=skipna), _last(block.dtype, largest=smallest)
    if mask is None and block.size:
        return _counted(block, axes, None, counts), np.asarray(choose.reduce(block, axis=axes))
    if skipna and mask is not None and block.dtype.kind in "fmM":
        mask = mask & (block == block)
    count = _counted(block, axes, mask, counts)
    shown = block if mask is None else np.where(mask, block, last)
    return count, np.asarray(choose.reduce(shown, axis=axes, initial=last))


def _last(dtype: np.dtype, *, largest: bool) -> Any:
    """Return the value that any element is chosen before."""
    if dtype.kind == "b":
        return dtype.type(largest)
    if dtype.kind in "iu":
        return dtype.type(np.iinfo(dtype).max if largest else np.iinfo(dtype).min)
    if dtype.kind in "mM":
        return np.asarray(np.iinfo("i8").max if largest else np.iinfo("i8").min + 1).astype(dtype)[()]
    return dtype.type(np.inf if largest else -np.inf)


def _extremes(a: Extremes, b: Extremes, smallest: bool, skipna: bool) -> Extremes:
    return a[0] + b[0], np.asarray(_chooser(smallest=smallest, skipna=skipna)(a[1], b[1]))


def _some(state: Extremes) -> np.ndarray:
    count, chosen = state
    if (count > 0).all():
        return chosen
    if chosen.dtype.kind != "f":
        raise InputError("where nothing counts there is no smallest and no largest element")
    return np.where(count > 0, chosen, np.nan)
