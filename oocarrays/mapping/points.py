"""Points: elements of an array selected by paired indices, as numpy pairs several sequences, and masks.

    a[[3, 0], 2:5, [1, 7]]      paired axes   0, 2       named   (3, 1), (0, 7)
                                rest          axis 1     range(2, 5)
                                result        (2, 3)     the points' own axes come first if the paired are apart

The selected elements are the points times the rest; a `Selection` is the product of all axes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocarrays.errors import SelectionError
from oocarrays.mapping.grid import Index
from oocarrays.mapping.selection import Selection, one_an_axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Elements that paired indices select of an array, by numpy's rules."""

    paired: tuple[int, ...]
    """The array's axes with paired indices, ascending."""
    indices: np.ndarray
    """Coordinates: ``indices[k, i]`` is the index of point ``i`` along axis ``paired[k]``."""
    grouped: tuple[int, ...]
    """Shape of the indices as given, broadcast."""
    at: int
    """Number of axes of the rest before those of the points in the result."""
    rest: Selection
    """Selection along the other axes."""

    @classmethod
    def of(cls, key: Any, shape: Sequence[int], *, first: bool = False) -> Points:
        entries = _one_an_axis(key, shape)
        paired = [place for place, (entry, _) in enumerate(entries) if not _is_free(entry)]
        if not paired:
            raise SelectionError(f"{key!r} selects no points: pass integers, sequences or a mask for at least one axis")
        lists = [_indices(entries[place], shape) for place in paired]
        try:
            spread = np.broadcast_arrays(*(each for several in lists for each in several))
        except ValueError:
            shapes = [each.shape for several in lists for each in several]
            raise SelectionError(f"indices of shapes {', '.join(map(str, shapes))} cannot be paired") from None
        axes = tuple(axis for place in paired for axis in entries[place][1])
        free = [entry for entry, _ in entries if _is_free(entry)]
        together = _are_adjacent(key if isinstance(key, tuple) else (key,))
        return cls(
            paired=axes,
            indices=np.stack([each.reshape(-1) for each in spread]),
            grouped=spread[0].shape,
            at=paired[0] if together and not first else 0,
            rest=Selection.of(tuple(free), [n for axis, n in enumerate(shape) if axis not in axes]),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        rest = self.rest.shape
        return (*rest[: self.at], *self.grouped, *rest[self.at :])

    @property
    def size(self) -> int:
        return int(self.indices.shape[1]) * self.rest.size

    def arranged(self, data: np.ndarray) -> np.ndarray:
        """Return the result from read data: ``data[i]`` has the elements of point ``i`` along the other axes."""
        made = self._in_a_row().arranged(data).reshape(*self.grouped, *self.rest.shape)
        return np.moveaxis(made, *self._ends)

    def spread(self, values: Any) -> np.ndarray:
        """Return values in the result's shape as data in the order of the selected elements."""
        try:
            data = np.broadcast_to(values, self.shape)
        except ValueError:
            raise SelectionError(
                f"values of shape {np.shape(values)} do not broadcast to the selection's shape {self.shape}"
            ) from None
        data = np.moveaxis(data, *reversed(self._ends))
        return self._in_a_row().spread(data.reshape(self.indices.shape[1], *self.rest.shape))

    def _in_a_row(self) -> Selection:
        """Return the selection of all points, one after the other, and of the rest."""
        rest = self.rest
        axes = (range(self.indices.shape[1]), *rest.axes)
        result = (0, *(None if axis is None else axis + 1 for axis in rest.result))
        return Selection(axes, (slice(None), *rest.order), result)

    @property
    def _ends(self) -> tuple[range, range]:
        """Axes of the points themselves, where data begins with them and where the result has them."""
        return range(len(self.grouped)), range(self.at, self.at + len(self.grouped))


def by_chunk(indices: np.ndarray, chunks: Sequence[int]) -> Iterator[tuple[Index, np.ndarray]]:
    """Yield the points of each chunk: the chunk's index, and the positions of its points, ascending."""
    numbers = indices // np.reshape(chunks, (-1, 1))
    order = np.lexsort(numbers[::-1])
    ordered = numbers[:, order]
    ends = np.flatnonzero((ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) + 1
    for places in np.split(order, ends) if order.size else ():
        yield tuple(map(int, numbers[:, places[0]])), places


_PLAIN = {int, slice, type(None), type(Ellipsis)}
"""Types of entries that never pair: small reads use these."""


def is_paired(key: Any) -> bool:
    """Return whether numpy pairs the indices of a key instead of forming the product of all axes."""
    entries = key if isinstance(key, tuple) else (key,)
    if _PLAIN.issuperset(map(type, entries)):
        return False
    axes = [np.ndim(entry) for entry in entries if not _is_free(entry) and _can_be_array(entry)]
    lists = sum(n > 0 for n in axes)
    return lists > 1 or max(axes, default=0) > 1 or (lists == 1 and not _are_adjacent(entries))


def _are_adjacent(entries: Sequence[Any]) -> bool:
    """Return whether the indices in a key are adjacent; an ellipsis separates them even if it stands for no axis."""
    taken = [place for place, entry in enumerate(entries) if not _is_free(entry)]
    return taken[-1] - taken[0] < len(taken)


def _can_be_array(entry: Any) -> bool:
    try:
        np.asarray(entry)
    except (ValueError, TypeError, OverflowError):  # ragged, or not readable as an array
        return False
    return True


def _is_free(entry: Any) -> bool:
    return isinstance(entry, slice) or entry is None or entry is Ellipsis


def _one_an_axis(key: Any, shape: Sequence[int]) -> list[tuple[Any, tuple[int, ...]]]:
    """Return the entries of a key, each with its axes of the array: a mask has as many as its dimensions."""
    entries = list(key) if isinstance(key, tuple) else [key]
    spelled: list[Any] = []
    for entry in entries:
        could = not _is_free(entry) and _can_be_array(entry)
        axes = np.ndim(entry) if could and np.asarray(entry).dtype.kind == "b" else 1
        spelled += [entry] if axes < 2 else [_Mask(entry), *[_COVERED] * (axes - 1)]
    found: list[tuple[Any, tuple[int, ...]]] = []
    axis = 0
    for entry in one_an_axis(tuple(spelled), len(shape)):
        if entry is _COVERED:
            continue
        axes = 0 if entry is None else entry.values.ndim if isinstance(entry, _Mask) else 1
        found.append((entry.values if isinstance(entry, _Mask) else entry, tuple(range(axis, axis + axes))))
        axis += axes
    return found


class _Mask:
    """Mask of several axes, which replaces as many entries."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)


_COVERED = object()
"""Further axis of a mask."""


def _indices(entry: tuple[Any, tuple[int, ...]], shape: Sequence[int]) -> list[np.ndarray]:
    """Return the non-negative indices along each of the axes of an entry."""
    values, axes = entry
    named = np.asarray(values if _can_be_array(values) else None)
    extents = tuple(shape[axis] for axis in axes)
    if named.dtype.kind == "b":
        if named.shape != extents:
            raise SelectionError(f"a mask of shape {named.shape} does not fit axes of {extents} elements")
        return list(np.nonzero(named))
    if named.dtype.kind not in "iu" and named.size:
        if named.ndim or not hasattr(values, "__index__"):
            raise SelectionError(
                f"{values!r} is not an index: use integers, slices, ..., None, masks, or sequences of integers"
            )
        named = np.asarray(operator.index(values))
    outside = named[(named < -extents[0]) | (named >= extents[0])]
    if outside.size:
        raise SelectionError(f"index {outside.flat[0]} is out of range for axis {axes[0]} with {extents[0]} elements")
    return [named.astype(np.int64) % max(extents[0], 1)]
