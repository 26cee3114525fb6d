"""Reductions piece by piece: the state of a piece, the fold of two states, and the result.

    piece ─► state ─┐
    piece ─► state ─┴─ fold ─► state ─► finish

States are folded in the order of the pieces, so that the same pieces give the same bits. Floating-point numbers, and
integers for their mean, are added in float64: within a piece as in numpy, from piece to piece with the rounding error
(Neumaier 1974); squares of deviations as Chan, Golub and LeVeque 1979. Sums of integers and of times are as in numpy,
with a sum in float64 that detects overflow of their type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from oocarrays.errors import RunError

Axes = tuple[int, ...]
NAMES = ("sum", "mean", "var", "std", "min", "max", "count")
"""Names of the built-in reductions."""
LONG = np.dtype("i8")
ADD: Any = np.add
"""`numpy.add` without a type, because its stubs differ among versions of numpy."""
PIECE = 2**18
"""Elements per batch of deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    state: Callable[[np.ndarray, Axes, np.ndarray | None], Any]
    """Function of a piece, the reduced axes, and a mask of the elements to include, or None."""
    fold: Callable[[Any, Any], Any]
    """Function of two states, of the elements before and after."""
    finish: Callable[[Any], np.ndarray]
    """Function of the state of all elements."""


def reduction(
    name: str, *, skipna: bool, ddof: int = 0, counts: np.dtype = LONG, some_empty: bool = False
) -> Reduction:
    if name in ("min", "max"):
        return Reduction(
            state=partial(_extreme, counts=counts, smallest=name == "min", skipna=skipna),
            fold=partial(_extremes, smallest=name == "min", skipna=skipna),
            finish=partial(_some, some_empty=some_empty),
        )
    if name in ("var", "std"):
        deviation = partial(_deviation, ddof=ddof, root=name == "std")
        return Reduction(state=partial(_moments, counts=counts, skipna=skipna), fold=_moments_of_both, finish=deviation)
    if name == "count":
        return Reduction(state=partial(_count, counts=counts, skipna=skipna), fold=_counts_of_both, finish=_number)
    finish = _total if name == "sum" else _mean
    state = partial(_sums, counts=counts, skipna=skipna, exact=name == "sum")
    return Reduction(state=state, fold=_sums_of_both, finish=finish)


Sums = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Number of elements, their sum, and its rounding error; for integers and times the sum in float64."""


def _sums(
    block: np.ndarray, axes: Axes, mask: np.ndarray | None, counts: np.dtype, skipna: bool, exact: bool = True
) -> Sums:
    """Add elements; integers in their own type if their sum is to be ``exact``, otherwise in float64."""
    if block.dtype.kind == "m":
        return _sums_of_times(block, axes, mask, counts, skipna)
    if block.dtype.kind in "biu":
        return _sums_of_integers(block, axes, mask, counts, exact)
    dtype = np.dtype("c16" if block.dtype.kind == "c" else "f8")
    total = _added(block, axes, mask, dtype)
    if skipna and np.isnan(total).any():
        mask = _known(block, mask)
        total = _added(block, axes, mask, dtype)
    return _counted(block, axes, mask, counts), total, np.zeros_like(total)


def _sums_of_integers(block: np.ndarray, axes: Axes, mask: np.ndarray | None, counts: np.dtype, exact: bool) -> Sums:
    count, usual = _counted(block, axes, mask, counts), ADD.reduce(np.empty(0, block.dtype)).dtype
    wide = block.dtype.itemsize == 8  # the sum of one block of them may leave 64 bits
    total = _added(block, axes, mask, usual) if exact or not wide else None
    rounded = _added(block, axes, mask, np.dtype("f8")) if wide or total is None else total.astype("f8")
    return (count, rounded, np.zeros_like(rounded)) if total is None or not exact else (count, total, rounded)


def _sums_of_times(block: np.ndarray, axes: Axes, mask: np.ndarray | None, counts: np.dtype, skipna: bool) -> Sums:
    """Add durations as integers, because numpy raises on overflow; NaT among them makes NaN in float64."""
    known, numbers = _known(block, mask), block.view(LONG.newbyteorder(block.dtype.byteorder))
    total, rounded = (_added(numbers, axes, known, np.dtype(kind)) for kind in ("i8", "f8"))
    mask = known if skipna else mask
    if not skipna:
        rounded = np.where(_counted(block, axes, known, counts) < _counted(block, axes, mask, counts), np.nan, rounded)
    return _counted(block, axes, mask, counts), total.view(block.dtype.newbyteorder("=")), rounded


def _added(block: np.ndarray, axes: Axes, mask: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(ADD.reduce(block, axis=axes, dtype=dtype, where=True if mask is None else mask))


def _known(block: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Return a mask of the included elements that are neither NaN nor NaT."""
    known: np.ndarray = block == block
    return known if mask is None else mask & known


def _counted(block: np.ndarray, axes: Axes, mask: np.ndarray | None, counts: np.dtype) -> np.ndarray:
    kept = [n for axis, n in enumerate(block.shape) if axis not in axes]
    if mask is None:
        return np.full(kept, math.prod(block.shape[axis] for axis in axes), counts)
    return np.asarray(ADD.reduce(mask, axis=axes, dtype=counts))


def _sums_of_both(a: Sums, b: Sums) -> Sums:
    with np.errstate(invalid="ignore", over="ignore"):
        if a[1].dtype.kind not in "fc":
            return a[0] + b[0], (_whole(a[1]) + _whole(b[1])).view(a[1].dtype), a[2] + b[2]
        total = a[1] + b[1]
        larger = np.abs(a[1]) >= np.abs(b[1])
        lost = np.where(larger, (a[1] - total) + b[1], (b[1] - total) + a[1])
        lost = np.where(np.isfinite(total), lost, 0)
    return a[0] + b[0], total, a[2] + b[2] + lost


def _total(state: Sums) -> np.ndarray:
    _, total, rounded = state
    if total.dtype.kind in "fc":
        return total + rounded
    wrapped = _is_wrapped(total, rounded)
    if wrapped.any():
        found = np.asarray(rounded)[wrapped].flat[0]
        raise RunError(f"a sum is about {found:g}, which {total.dtype} cannot hold: pass functions that add floats")
    return total if total.dtype.kind != "m" else np.where(np.isnan(rounded), np.array("NaT", total.dtype), total)


def _whole(total: np.ndarray) -> np.ndarray:
    return np.asarray(total).view("i8") if total.dtype.kind == "m" else total


def _is_wrapped(total: np.ndarray, rounded: np.ndarray) -> np.ndarray:
    """Return a mask of overflowed sums, which are wrong by a multiple of 2**64, without NaT."""
    return np.asarray(np.abs(_whole(total).astype("f8") - rounded) > 2.0**62)


def _mean(state: Sums) -> np.ndarray:
    """Return means; of times, as in numpy, cut to whole units, and from float64 if the sum overflows."""
    count, total, rounded = state
    if total.dtype.kind != "m":
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((total + rounded) / count)
    some, known = np.maximum(count, 1), ~np.isnan(rounded)
    about = np.trunc(np.where(known, rounded, 0) / some).astype("i8").view(total.dtype)
    made = np.where(_is_wrapped(total, rounded), about, total / some)
    return np.where((count > 0) & known, made, np.array("NaT", total.dtype))


Counts = tuple[np.ndarray, ...]
"""Number of elements, with further items in states of earlier versions."""


def _count(block: np.ndarray, axes: Axes, mask: np.ndarray | None, counts: np.dtype, skipna: bool) -> Counts:
    mask = _known(block, mask) if skipna and block.dtype.kind in "fcmM" else mask
    return (_counted(block, axes, mask, counts),)


def _counts_of_both(a: Counts, b: Counts) -> Counts:
    return (a[0] + b[0],)


def _number(state: Counts) -> np.ndarray:
    return state[0].astype(LONG)


Moments = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Number of elements, their mean, and the sum of squares of deviations from it."""


def _moments(block: np.ndarray, axes: Axes, mask: np.ndarray | None, counts: np.dtype, skipna: bool) -> Moments:
    if skipna and block.dtype.kind in "fc" and np.isnan(block).any():
        mask = _known(block, mask)
    sums = _sums(block, axes, mask, counts, skipna=False, exact=False)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(sums[0] > 0, _mean(sums), 0)
    return sums[0], mean, _squares(block, axes, mask, np.expand_dims(mean, axes))


def _squares(block: np.ndarray, axes: Axes, mask: np.ndarray | None, mean: np.ndarray) -> np.ndarray:
    """Return the sum of squared deviations, a few rows of the longest axis at a time."""
    found: Any = np.zeros([n for axis, n in enumerate(block.shape) if axis not in axes])
    if not block.size or not axes:
        return np.asarray(found)
    along = max(axes, key=lambda axis: block.shape[axis])
    rows = max(PIECE * block.shape[along] // block.size, 1)
    for first in range(0, block.shape[along], rows):
        part = (slice(None),) * along + (slice(first, first + rows),)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(block[part] - mean)
            found = found + ADD.reduce(apart * apart, axis=axes, where=True if mask is None else mask[part])
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


Extremes = tuple[np.ndarray, np.ndarray]
"""Number of elements, and the smallest or largest."""


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
        mask = _known(block, mask)
    count = _counted(block, axes, mask, counts)
    shown = block if mask is None else np.where(mask, block, last)
    return count, np.asarray(choose.reduce(shown, axis=axes, initial=last))


def _last(dtype: np.dtype, *, largest: bool) -> Any:
    """Return the value that any element is preferred to."""
    if dtype.kind == "b":
        return dtype.type(largest)
    if dtype.kind in "iu":
        return dtype.type(np.iinfo(dtype).max if largest else np.iinfo(dtype).min)
    if dtype.kind in "mM":
        return np.asarray(np.iinfo("i8").max if largest else np.iinfo("i8").min + 1).astype(dtype)[()]
    return dtype.type(np.inf if largest else -np.inf)


def _extremes(a: Extremes, b: Extremes, smallest: bool, skipna: bool) -> Extremes:
    return a[0] + b[0], np.asarray(_chooser(smallest=smallest, skipna=skipna)(a[1], b[1]))


def _some(state: Extremes, some_empty: bool) -> np.ndarray:
    """Return the chosen elements, with NaN or NaT if none is included."""
    count, chosen = state
    if chosen.dtype.kind in "mM":
        return np.where(count > 0, chosen, np.array("NaT", chosen.dtype))
    if chosen.dtype.kind == "f" or some_empty:
        return np.where(count > 0, chosen, np.nan)
    assert (count > 0).all(), "where nothing counts is known before"
    return chosen
