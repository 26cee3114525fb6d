"""What an object that tasks read from takes of a stored array: a Zarr array, an array of ours, or xarray's lazy one.

    z[2:, ::3]                     TakenPart     array z, axes (range(2, n), range(0, m, 3))
    part[4:6, :]                   Taken    rows 6 to 7 of z, each third column

Nothing is read: the index that a task has is composed with what the object has taken already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr

from oocarrays.errors import SelectionError
from oocarrays.graphs.lazy.reads import StoredPart
from oocarrays.mapping import ranges
from oocarrays.mapping.selection import Selection, Taken
from oocarrays.plan.collective.wanted import regular
from oocarrays.storage.files.array_file import ArrayFile

Product = tuple[tuple[range, ...], ...]
"""Ranges along each axis: what is taken is their product."""


def as_ranges(taken: Taken) -> tuple[range, ...]:
    """Return what is taken along an axis as ranges: one, where it has a rule, or else its contiguous runs.

    >>> as_ranges(np.array([2, 4, 6])), as_ranges(np.array([2, 3, 7]))
    ((range(2, 7, 2),), (range(2, 4), range(7, 8)))
    """
    if isinstance(taken, range):
        return (ranges.ascending(taken),)
    found = regular(taken)
    if isinstance(found, range):
        return (ranges.ascending(found),)
    ends = np.flatnonzero(np.diff(found, append=found[-1] + 2) > 1)
    first = np.r_[0, ends[:-1] + 1]
    return tuple(range(int(found[a]), int(found[b]) + 1) for a, b in zip(first, ends, strict=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class TakenPart:
    """Part that an object has taken of a stored array before it is asked for any of it."""

    array: zarr.Array
    """The stored array."""
    by: str
    """Who reads it: one of `oocarrays.plan.advice.access.BY`."""
    axes: tuple[range | np.ndarray, ...]
    """What is taken along each axis of the array."""
    kept: tuple[int, ...]
    """Axes of the array that the object has, in order; of the others one element is taken."""
    points: tuple[np.ndarray, ...] | None = None
    """Where elements are taken one by one: their places along each axis."""

    @classmethod
    def whole(cls, array: zarr.Array, by: str = "zarr") -> TakenPart:
        """Return all of an array."""
        return cls(array=array, by=by, axes=tuple(map(range, array.shape)), kept=tuple(range(array.ndim)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis that the object has."""
        return self.points[0].shape if self.points else tuple(len(self.axes[axis]) for axis in self.kept)

    def take(self, key: Any) -> Iterator[Product]:
        """Yield what an index takes of the array, as products of ranges."""
        if self.points is not None:
            places = [np.atleast_1d(each[key]).reshape(-1).tolist() for each in self.points]
            yield from (tuple((range(p, p + 1),) for p in point) for point in zip(*places, strict=True))
            return
        axes: list[Any] = list(self.axes)
        taken = self._selected(key)
        for axis, chosen in zip(self.kept, taken, strict=True):
            axes[axis] = _of(axes[axis], chosen)
        if all(len(each) for each in axes):
            yield tuple(map(as_ranges, axes))

    def _selected(self, key: Any) -> Sequence[Taken]:
        """Return the places that an index takes along each axis that the object has."""
        shape, entries = self.shape, tuple(e for e in (key if isinstance(key, tuple) else (key,)) if e is not None)
        return _plain(entries, shape) or Selection.of(entries, shape).axes


def _plain(key: Any, shape: Sequence[int]) -> list[range] | None:
    """Return what an index takes along each axis, where it is one of slices as Dask has them for a block."""
    if isinstance(key, tuple) and len(key) == len(shape) and all(map(_is_plain, key)):
        return [range(e.start, min(e.stop, n)) for e, n in zip(key, shape, strict=True)]
    return None


def _is_plain(entry: Any) -> bool:
    """Whether an entry of an index is a slice as Dask has it for a block."""
    if type(entry) is not slice or entry.step not in (None, 1):
        return False
    return type(entry.start) is int and type(entry.stop) is int and 0 <= entry.start <= entry.stop


def _of(axis: range | np.ndarray, places: Taken) -> Taken:
    """Return some places of what is taken along an axis."""
    if isinstance(axis, np.ndarray):
        return np.sort(axis[np.asarray(places, np.int64)])
    if isinstance(places, range):
        return axis[places.start : places.stop : places.step]
    return np.asarray(axis.start + places * axis.step)


def part_of(source: Any) -> TakenPart | None:
    """Return what an object that tasks read from has taken of a stored array; None where it is none.

    >>> z = zarr.create_array({}, shape=(8, 6), dtype="f4", chunks=(2, 6))
    >>> [product for product in part_of(z).take((slice(2, 4), 5))]
    [((range(2, 4),), (range(5, 6),))]
    >>> part_of(np.zeros(3)) is None
    True
    """
    if isinstance(source, zarr.Array):
        return TakenPart.whole(source)
    if isinstance(source, StoredPart):
        kept = tuple(range(source.ndim))
        return TakenPart(array=source.file.zarr, by="oocarrays", axes=source.axes, kept=kept)
    if isinstance(source, ArrayFile):
        return TakenPart.whole(source.zarr, "oocarrays")
    if type(source).__module__.startswith("xarray."):
        return _xarray_part(source)
    opened = getattr(source, "zarr", None)  # an array of ours, as open_array gives it
    if isinstance(opened, zarr.Array) and type(source).__module__.startswith("oocarrays."):
        return TakenPart.whole(opened, "oocarrays")
    return None


def _xarray_part(source: Any) -> TakenPart | None:
    """Return what xarray's lazy arrays, one around the other, have taken of a Zarr array."""
    from xarray.core.indexing import LazilyIndexedArray

    while not isinstance(getattr(source, "_array", None), zarr.Array):
        inner: Any = getattr(source, "array", None)
        lazy = type(source).__name__ in ("LazilyIndexedArray", "LazilyVectorizedIndexedArray")
        if lazy and isinstance(getattr(inner, "_array", None), zarr.Array):
            return _indexed(inner._array, source.key.tuple, isinstance(source, LazilyIndexedArray))
        if inner is None or not type(inner).__module__.startswith("xarray."):
            return None
        source = inner
    return TakenPart.whole(source._array)


def _indexed(array: zarr.Array, key: tuple[Any, ...], outer: bool) -> TakenPart | None:
    """Return what one of xarray's indices takes of an array."""
    if outer:
        taken = Selection.of(key, array.shape).axes
        kept = tuple(axis for axis, entry in enumerate(key) if not isinstance(entry, int | np.integer))
        axes = tuple(t if isinstance(e, slice) else np.asarray(e) for t, e in zip(taken, key, strict=True))
        axes = tuple(a if axis in kept else taken[axis] for axis, a in enumerate(axes))
        return TakenPart(array=array, by="zarr", axes=_forwards(axes), kept=kept)
    if any(isinstance(entry, slice) for entry in key):
        return None
    points = tuple(np.broadcast_arrays(*map(np.asarray, key)))
    return TakenPart(array=array, by="zarr", axes=(), kept=(), points=points)


def _forwards(axes: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(ranges.ascending(axis) if isinstance(axis, range) else axis for axis in axes)


def asked(array: zarr.Array, how: str, key: Any) -> Iterator[Product]:
    """Yield what one of Zarr's own ways of reading or writing takes of an array."""
    if how in ("basic", "orthogonal"):
        plain = _plain(key, array.shape)  # of most reads: those of a chunk take less than a millisecond
        if plain is not None:
            yield from [tuple(zip(plain, strict=True))] if all(map(len, plain)) else ()
            return
        try:
            yield from TakenPart.whole(array).take(key)
        except SelectionError:
            return  # Zarr refuses it, too
    elif how == "block":
        yield from asked(array, "basic", _of_blocks(array, key))
    else:
        places = np.nonzero(np.asarray(key)) if how == "mask" else np.broadcast_arrays(*map(np.asarray, _tuple(key)))
        flat = [(np.asarray(p).reshape(-1) % max(n, 1)).tolist() for p, n in zip(places, array.shape, strict=False)]
        if len(flat) == array.ndim:
            yield from (tuple((range(p, p + 1),) for p in point) for point in zip(*flat, strict=True))


def _tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _of_blocks(array: zarr.Array, key: Any) -> tuple[Any, ...]:
    """Return the elements of some blocks, as an index."""
    entries = []
    for entry, n, c in zip(_tuple(key), array.shape, array.chunks, strict=False):
        taken = Selection.of(entry, (-(-n // c),)).axes[0]
        entries.append(slice(int(taken[0]) * c, min((int(taken[-1]) + 1) * c, n)))
    return tuple(entries)
