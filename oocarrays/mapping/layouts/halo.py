"""Windows of ranks along an axis with a halo: the element at each position, and its owner.

    axis                0 1 2 3 4 5 6 7 8 9             block over 3 ranks, depth 2, boundary "reflect"
    window of rank 0    1 0│0 1 2 3│4 5                 its own, its own again beyond the edge, and two of rank 1
    window of rank 1            2 3│4 5 6 7│8 9
    window of rank 2                    6 7│8 9│9 8

N-d is the product of one-axis results, so corners are included. Thakur 1995, section 5.4 (Figure 5.4: the overlap
area).

    reflect     c b a │ a b c d │ d c b        as scipy's "reflect", numpy's "symmetric"
    nearest     a a a │ a b c d │ d d d
    periodic    b c d │ a b c d │ a b c        scipy's "wrap"
    a number    x x x │ a b c d │ x x x
    none              │ a b c d │              nothing: a block ends there
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Number
from typing import Any, Literal, cast

import numpy as np

from oocarrays.errors import InputError
from oocarrays.mapping.casting import has_number
from oocarrays.mapping.given import by_axis
from oocarrays.mapping.layouts.distribution import Axis
from oocarrays.mapping.selection import Taken

Boundary = Literal["none", "reflect", "nearest", "periodic"] | float
"""Boundary condition of an axis; the names are those of Dask's ``map_overlap``."""
NAMES = ("none", "reflect", "nearest", "periodic")
Boundaries = Boundary | tuple[Boundary, ...]
"""Boundary of all axes, or of each. Beyond several edges, axes are padded in order: the last constant prevails."""


BoundaryLike = str | float | Mapping[Any, str | float] | Sequence[str | float]
"""Boundaries as given by a user."""


def of_axis(boundary: Boundaries, axis: int) -> Boundary:
    return boundary[axis] if isinstance(boundary, tuple) else boundary


def of_each(boundary: Boundaries, ndim: int) -> tuple[Boundary, ...]:
    return boundary if isinstance(boundary, tuple) else (boundary,) * ndim


def joined(each: tuple[Boundary, ...]) -> Boundaries:
    """Return one boundary if all axes have the same."""
    return each[0] if each and all(other == each[0] for other in each) else each or "none"


def checked_boundary(
    boundary: object, ndim: int, *dtypes: np.dtype, names: Sequence[str | None] | None = None
) -> Boundaries:
    boundary = by_axis(boundary, ndim, "none", names, "boundary")
    if not isinstance(boundary, list | tuple):
        return _checked(boundary, dtypes)
    if len(boundary) != ndim:
        raise InputError(
            f"boundary={boundary!r} has {len(boundary)} entries: pass one for all {ndim} axes, or one for each"
        )
    return joined(tuple(_checked(each, dtypes) for each in boundary))


def _checked(boundary: object, dtypes: tuple[np.dtype, ...]) -> Boundary:
    if isinstance(boundary, Number) and not isinstance(boundary, bool):
        other = next((dtype for dtype in dtypes if not has_number(dtype, boundary)), None)
        if other is not None:
            raise InputError(f"boundary={boundary!r} is not a value of an array of {other}")
    elif not isinstance(boundary, str) or boundary not in NAMES:
        raise InputError(f"boundary={boundary!r} is not 'none', 'reflect', 'nearest', 'periodic' or a number")
    return cast(Boundary, boundary)


def standing(boundary: Boundary, extent: int, lower: int, upper: int) -> np.ndarray:
    """Return the elements at positions ``lower <= x < upper``, including those beyond the edges; -1 for a constant."""
    places = np.arange(lower, upper)
    if boundary == "reflect":
        turned = places % (2 * extent)
        return np.minimum(turned, 2 * extent - 1 - turned)
    if boundary == "nearest":
        return np.clip(places, 0, extent - 1)
    if boundary == "periodic":
        return places % extent
    return np.where((places < 0) | (places >= extent), -1, places)


Strip = tuple[slice, slice]
"""Positions in a window, and positions among the provided elements: a single one, if it fills the strip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """Elements of a window that one rank along an axis provides, to another rank or to itself."""

    taken: Taken
    """Local indices of these elements with their owner, each once, ascending."""
    strips: tuple[Strip, ...]
    """Positions of the elements in the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisWindow:
    length: int
    before: int
    """Number of elements before the rank's own."""
    lent: Mapping[int, Lent]
    """Elements that each rank along the axis provides."""
    filled: tuple[slice, ...]
    """Positions of a constant."""


@lru_cache(maxsize=4096)
def axis_window(axis: Axis, rank: int, depth: int, boundary: Boundary) -> AxisWindow:
    """Return the window of a rank with one block along an axis; with a depth of 0, the rank may hold several blocks."""
    size = axis.size(rank)
    if not depth or not size:
        return AxisWindow(length=size, before=0, lent={rank: _whole(size, 0)} if size else {}, filled=())
    first = axis.sections(rank)[0].start
    lower, upper = first - depth, first + size + depth
    if boundary == "none":
        lower, upper = max(lower, 0), min(upper, axis.extent)
    sides = (lower, first), (first + size, upper)
    elements = np.concatenate([standing(boundary, axis.extent, *side) for side in sides])
    owners = np.where(elements < 0, NOBODY, axis.owner(elements))
    there, places = np.concatenate([np.arange(*side) for side in sides]) - lower, np.asarray(axis.place(elements))
    shares = {int(owner): (there[owners == owner], places[owners == owner]) for owner in np.unique(owners)}
    nothing = np.zeros(0, np.int64), np.zeros(0, np.int64)
    constant, _ = shares.pop(NOBODY, nothing)
    filled = tuple(part for part, _ in _strips(constant, np.zeros_like(constant)))
    own = _whole(size, first - lower, tuple(_strips(*shares.pop(rank, nothing))))
    lent = {rank: own} | {owner: _lent(*share) for owner, share in shares.items()}
    return AxisWindow(length=upper - lower, before=first - lower, lent=lent, filled=filled)


NOBODY = -1
"""Owner of elements that a constant replaces."""


def _strips(there: np.ndarray, among: np.ndarray) -> Iterator[Strip]:
    """Yield runs of consecutive positions in a window, with ascending or descending elements, or one repeated."""
    start, steps = 0, np.diff(among)
    for stop in range(1, len(there) + 1):
        step = steps[stop - 1] if stop < len(there) and there[stop] == there[stop - 1] + 1 else None
        if step is not None and step == steps[start] and abs(step) <= 1:
            continue
        first, last = int(among[start]), int(among[stop - 1])
        backward = slice(first, last - 1 if last else None, -1)
        yield slice(int(there[start]), int(there[stop - 1]) + 1), backward if first > last else slice(first, last + 1)
        start = stop


def _whole(size: int, start: int, others: Sequence[Strip] = ()) -> Lent:
    """Return a rank's share of its own window: its whole part, and repeated elements."""
    return Lent(taken=range(size), strips=((slice(start, start + size), slice(0, size)), *others))


def _lent(there: np.ndarray, places: np.ndarray) -> Lent:
    """Return one rank's share of another's window, from positions in the window and in the rank's part."""
    taken = np.unique(places)
    low, high = int(taken[0]), int(taken[-1]) + 1
    strips = tuple(_strips(there, np.searchsorted(taken, places)))
    return Lent(taken=range(low, high) if high - low == len(taken) else taken, strips=strips)
