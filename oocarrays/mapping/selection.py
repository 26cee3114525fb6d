"""Selections: the elements that an index selects along each axis, and their order in the result.

    a[10:2:-3, 5, None]        axes        4 · 7 · 10    and    5          ascending, each once: as read
                               order       backwards            –          the order in the result
                               result      (3, 1)                          5 has no axis there, None has a new one

N-d is the product of one-axis results. The selection along an axis is a range, or any indices as a sorted array.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocarrays.errors import SelectionError
from oocarrays.mapping.along import Taken as Taken, ascending
from oocarrays.mapping.section import Section

Axes = tuple[Taken, ...]
"""Selected indices along each axis; the selection is their product."""
_AS_TAKEN = slice(None)


@dataclass(frozen=True, slots=True)
class Selection:
    """Elements that an index selects of an array, by numpy's rules."""

    axes: Axes
    """Selected indices along each axis of the array."""
    order: tuple[slice | np.ndarray, ...]
    """Order of the elements in the result, along each axis of the array."""
    result: tuple[int | None, ...]
    """Axis of the array for each axis of the result; None for a new one."""

    @classmethod
    def of(cls, key: Any, shape: Sequence[int]) -> Selection:
        axes: list[Taken] = []
        order: list[slice | np.ndarray] = []
        result: list[int | None] = []
        for entry in one_an_axis(key, len(shape)):
            if entry is None:
                result.append(None)
                continue
            number = len(axes)
            if _is_integer(entry):
                axes.append(_one(operator.index(entry), shape[number], number))
                order.append(_AS_TAKEN)
                continue
            is_slice, extent = isinstance(entry, slice), shape[number]
            taken, stands = _sliced(entry, extent) if is_slice else _listed(entry, extent, number)
            axes.append(taken)
            order.append(stands)
            result.append(number)
        return cls(tuple(axes), tuple(order), tuple(result))

    @classmethod
    def of_section(cls, section: Section) -> Selection:
        axes = section.axes
        return cls(axes, (slice(None),) * len(axes), tuple(range(len(axes))))

    @property
    def key(self) -> tuple[int | slice | list[int] | None, ...]:
        """Return an equivalent index in plain values."""
        entries: list[int | slice | list[int] | None] = []
        number = 0
        for axis in (*self.result, len(self.axes)):
            if axis is None:
                entries.append(None)
                continue
            entries += [int(self.axes[before][0]) for before in range(number, axis)]
            entries += [self._entry(axis)] if axis < len(self.axes) else []
            number = axis + 1
        return tuple(entries)

    def _entry(self, axis: int) -> slice | list[int]:
        """Return an equivalent index along one axis, in the order of the result."""
        stands, taken = self.order[axis], self.axes[axis]
        if not (isinstance(stands, slice) and isinstance(taken, range)):
            return list(map(int, np.asarray(taken)[stands]))
        ordered = taken[stands]
        return slice(ordered.start, ordered.stop if ordered.stop >= 0 else None, ordered.step)

    @property
    def shape(self) -> tuple[int, ...]:
        lengths = (len(a if isinstance(o, slice) else o) for a, o in zip(self.axes, self.order, strict=True))
        along = tuple(lengths)
        return tuple(1 if axis is None else along[axis] for axis in self.result)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def arranged(self, data: np.ndarray) -> np.ndarray:
        """Return the result from read data: a view, unless an axis is selected by a sequence of indices."""
        for axis, stands in enumerate(self.order):
            if not (isinstance(stands, slice) and stands == _AS_TAKEN):
                place: Any = (slice(None),) * axis + (stands,)
                data = data[place]
        if self.result == tuple(range(len(self.axes))):
            return data
        return data.reshape([1 if axis is None else data.shape[axis] for axis in self.result])

    def spread(self, values: Any) -> np.ndarray:
        """Return values in the result's shape as data for ``axes``, as a view if possible."""
        values = data = np.asarray(values)
        while data.ndim > len(self.shape) and data.shape[0] == 1:  # as in numpy's assignment
            data = data[0]
        try:
            data = np.broadcast_to(data, self.shape)
        except ValueError:
            raise SelectionError(
                f"values of shape {values.shape} do not broadcast to the selection's shape {self.shape}"
            ) from None
        data = data[(*(0 if axis is None else slice(None) for axis in self.result), ...)]
        data = data[(*(slice(None) if axis in self.result else None for axis in range(len(self.axes))), ...)]
        for axis, stands in enumerate(self.order):
            place: Any = (slice(None),) * axis + (stands if isinstance(stands, slice) else _last(stands),)
            data = data[place]
        return data


def _last(inverse: np.ndarray) -> np.ndarray:
    """Return the position of the last value for each element, which numpy's assignment keeps."""
    places = np.zeros(inverse.max(initial=-1) + 1, np.int64)
    np.maximum.at(places, inverse, np.arange(len(inverse)))
    return places


def _is_integer(entry: Any) -> bool:
    if type(entry) is int or type(entry) is slice:
        return type(entry) is int
    if not hasattr(entry, "__index__") or isinstance(entry, bool | np.bool_):
        return False
    return not isinstance(entry, np.ndarray) or (entry.ndim == 0 and entry.dtype.kind in "iu")


def one_an_axis(key: Any, axes: int) -> list[Any]:
    """Return the entries of a key with its ellipsis expanded; None for new axes."""
    entries = list(key) if isinstance(key, tuple) else [key]
    dots = [place for place, entry in enumerate(entries) if entry is Ellipsis]
    there = len(entries) - len(dots) - sum(entry is None for entry in entries)
    if there > axes:
        raise SelectionError(f"too many indices: {there} for an array of {axes} axes")
    if len(dots) > 1:
        raise SelectionError("an index can have one ellipsis (...) only")
    at = dots[0] if dots else len(entries)
    return [*entries[:at], *[slice(None)] * (axes - there), *entries[at + 1 :]]


def _one(index: int, extent: int, axis: int) -> range:
    if not -extent <= index < extent:
        raise SelectionError(f"index {index} is out of range for axis {axis} with {extent} elements")
    return range(index % extent, index % extent + 1)


def _sliced(entry: slice, extent: int) -> tuple[range, slice]:
    try:
        taken = range(*entry.indices(extent))
    except (TypeError, ValueError) as error:
        raise SelectionError(f"{entry} is not an index: {error}") from None
    backwards = len(taken) > 1 and taken.step < 0
    return ascending(taken), slice(None, None, -1) if backwards else _AS_TAKEN


def _listed(entry: Any, extent: int, axis: int) -> tuple[Taken, np.ndarray]:
    try:
        listed = np.asarray(entry)
    except (ValueError, TypeError, OverflowError):  # ragged, or not readable as an array
        listed = np.asarray(None)
    if listed.ndim != 1 or (listed.dtype.kind not in "iub" and listed.size):
        raise SelectionError(
            f"{entry!r} is not an index: use integers, slices, ..., None, or one sequence of integers per axis"
        )
    if listed.dtype.kind == "b":
        if len(listed) != extent:
            raise SelectionError(f"a mask of {len(listed)} elements does not fit axis {axis} with {extent}")
        listed = np.flatnonzero(listed)
    outside = listed[(listed < -extent) | (listed >= extent)]
    if outside.size:
        raise SelectionError(f"index {outside[0]} is out of range for axis {axis} with {extent} elements")
    taken, inverse = np.unique(listed.astype(np.int64) % max(extent, 1), return_inverse=True)
    return taken, inverse.reshape(-1)


def lengths(axes: Axes) -> tuple[int, ...]:
    return tuple(map(len, axes))


def index_of(axes: Axes) -> Any:
    """Return a numpy index of the selected elements along each axis; it gives a view if all are ranges."""
    if all(isinstance(taken, range) for taken in axes):
        return (*(slice(taken.start, taken.stop, taken.step) for taken in axes), ...)  # type: ignore[union-attr]
    return np.ix_(*(np.asarray(taken, np.int64) for taken in axes))


def index_of_parts(parts: Sequence[slice | np.ndarray]) -> Any:
    """Return a numpy index of slices and sorted indices along each axis; it gives a view if all are slices."""
    if all(isinstance(part, slice) for part in parts):
        return (*parts, ...)
    return np.ix_(*(np.r_[part] if isinstance(part, slice) else part for part in parts))


def regular(indices: np.ndarray) -> Taken:
    """Return sorted indices as a range if they are equidistant."""
    if not len(indices):
        return range(0)
    step = int(indices[1] - indices[0]) if len(indices) > 1 else 1
    found = range(int(indices[0]), int(indices[-1]) + 1, step)
    return found if len(found) == len(indices) and bool((np.diff(indices) == step).all()) else indices


def moved(taken: Taken, by: int) -> Taken:
    return range(taken.start + by, taken.stop + by, taken.step) if isinstance(taken, range) else taken + by


def within(taken: Taken, lower: int, upper: int) -> tuple[slice, slice | np.ndarray]:
    """Find the selected indices in ``lower <= x < upper``: their positions in the selection, and in the interval."""
    if isinstance(taken, np.ndarray):
        first, last = np.searchsorted(taken, (lower, upper)).tolist()
        return slice(first, last), taken[first:last] - lower
    first = min(max(-(-(lower - taken.start) // taken.step), 0), len(taken))
    last = min(max(-(-(upper - taken.start) // taken.step), first), len(taken))
    if first == last:
        return slice(first, first), slice(0, 0)
    part = taken[first:last]
    return slice(first, last), slice(part[0] - lower, part[-1] + 1 - lower, part.step)


def common(axes: Axes, box: Section) -> Axes:
    """Return the selected indices in a box, along each axis."""
    places = (within(taken, l, u)[0] for taken, l, u in zip(axes, box.lower, box.upper, strict=True))
    return tuple(
        taken[place] if isinstance(taken, np.ndarray) else ascending(taken[place])
        for taken, place in zip(axes, places, strict=True)
    )
