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
from typing import Literal, NamedTuple, cast

import numpy as np

from oocarrays.errors import InputError
from oocarrays.mapping.casting import has_number
from oocarrays.mapping.given import by_axis
from oocarrays.mapping.layouts.axis import Axis
from oocarrays.mapping.selection import Taken

Boundary = Literal["none", "reflect", "nearest", "periodic"] | float
"""Boundary condition of an axis; the names are those of Dask's ``map_overlap``."""
NAMES = ("none", "reflect", "nearest", "periodic")
Boundaries = Boundary | tuple[Boundary, ...]
"""Boundary of all axes, or of each. Beyond several edges, axes are padded in order: the last constant prevails."""


BoundaryLike = str | float | Mapping[int, str | float] | Sequence[str | float]
"""Boundaries as given by a user."""


def as_asked(boundary: BoundaryLike) -> Boundaries:
    """Return boundaries that are checked once the arrays are known."""
    return cast(Boundaries, boundary)


def of_axis(boundary: Boundaries, axis: int) -> Boundary:
    return boundary[axis] if isinstance(boundary, tuple) else boundary


def of_each(boundary: Boundaries, ndim: int) -> tuple[Boundary, ...]:
    return boundary if isinstance(boundary, tuple) else (boundary,) * ndim


def joined(each: tuple[Boundary, ...]) -> Boundaries:
    """Return one boundary if all axes have the same."""
    return each[0] if each and all(other == each[0] for other in each) else each or "none"


def checked_boundary(boundary: object, ndim: int, *dtypes: np.dtype) -> Boundaries:
    """Return validated boundaries for arrays of ``ndim`` axes and of these types."""
    boundary = by_axis(boundary, ndim, "none", None, "boundary")
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
    """Window of one rank along an axis."""

    length: int
    """Number of elements of the window."""
    before: int
    """Number of elements before the rank's own."""
    lent: Mapping[int, Lent]
    """Elements that each rank along the axis provides."""
    filled: tuple[slice, ...]
    """Positions of a constant."""


@lru_cache(maxsize=4096)
def axis_window(axis: Axis, rank: int, depth: int, boundary: Boundary) -> AxisWindow:
    """Return the window of a rank with one block along an axis; with a depth of 0, the rank may hold several blocks.

    A rank without elements has an empty window.
    """
    size = axis.size(rank)
    if not depth or not size:
        return AxisWindow(length=size, before=0, lent={rank: _whole(size, 0)} if size else {}, filled=())
    first = axis.sections(rank)[0].start
    lower, upper = first - depth, first + size + depth
    if boundary == "none":
        lower, upper = max(lower, 0), min(upper, axis.extent)
    runs: dict[int, list[_Run]] = {rank: []}
    for low, high in ((lower, first), (first + size, upper)):
        elements = standing(boundary, axis.extent, low, high)
        for start, stop, owner in _runs(elements, np.where(elements < 0, NOBODY, axis.owner(elements))):
            places = np.asarray(axis.place(elements[start:stop]))
            runs.setdefault(owner, []).append(_Run(low - lower + start, places))
    filled = tuple(run.there for run in runs.pop(NOBODY, []))
    lent = {owner: _lent(found) for owner, found in runs.items() if owner != rank}
    own = _whole(size, first - lower, [run.strip(range(size)) for run in runs[rank]])
    return AxisWindow(length=upper - lower, before=first - lower, lent={rank: own} | lent, filled=filled)


NOBODY = -1
"""Owner of elements that a constant replaces."""


class _Run(NamedTuple):
    """Consecutive elements of one rank in a window: ascending, descending, or repeated."""

    start: int
    places: np.ndarray

    @property
    def there(self) -> slice:
        """Positions of the run in the window."""
        return slice(self.start, self.start + len(self.places))

    def strip(self, taken: Taken) -> Strip:
        """Return the positions of the run in the window, and among the provided elements."""
        first, last = np.searchsorted(np.asarray(taken), self.places[[0, -1]]).tolist()
        if first > last:
            return self.there, slice(first, last - 1 if last else None, -1)
        return self.there, slice(first, last + 1)


def _runs(elements: np.ndarray, owners: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield the start, end and owner of each run."""
    start = 0
    for stop in range(1, len(elements) + 1):
        run = elements[start : stop + 1]
        step = run[1] - run[0] if len(run) > 1 else 0
        goes_on = stop < len(elements) and abs(step) <= 1 and run[-1] - run[-2] == step
        if not goes_on or owners[start] != owners[stop]:
            yield start, stop, int(owners[start])
            start = stop


def _whole(size: int, start: int, others: Sequence[Strip] = ()) -> Lent:
    """Return a rank's share of its own window: its whole part, and repeated elements."""
    return Lent(taken=range(size), strips=((slice(start, start + size), slice(0, size)), *others))


def _lent(runs: Sequence[_Run]) -> Lent:
    """Return one rank's share of another's window."""
    places = np.unique(np.concatenate([run.places for run in runs]))
    low, high = int(places[0]), int(places[-1]) + 1
    taken = range(low, high) if high - low == len(places) else places
    return Lent(taken=taken, strips=tuple(run.strip(taken) for run in runs))
