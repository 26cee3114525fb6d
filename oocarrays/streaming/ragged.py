"""Ragged arrays: cells with separate numbers of items; and items, made of the values that a caller gives.

A value without a counterpart of the items' type is refused:

NumPy array     ``same_kind`` by NumPy, and every value fits          bytes (``u1``) take arrays of any type as they are
Python value    every value fits: ``[1, 2, 3]`` into ``u1``
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from oocarrays.errors import InputError, SelectionError, UnsupportedError
from oocarrays.mapping.casting import lost_value
from oocarrays.mapping.grid import ravel


class Ragged:
    """Items of each cell of a shape: their counts, and all items, one cell after the other.

    Parameters
    ----------
    counts : array of int
        Items of each cell; its shape is that of the cells.
    values : array
        Items of all cells, in the order of the cells.

    Examples
    --------
    >>> ragged = Ragged([2, 0, 1], [1.5, 2.5, 3.5])
    >>> ragged[0].tolist(), ragged.to_list(), ragged.padded(-1)[1].tolist()
    ([1.5, 2.5], [[1.5, 2.5], [], [3.5]], [-1.0, -1.0])

    Raises
    ------
    InputError
        If counts are negative, or do not add up to the number of values.
    """

    def __init__(self, counts: Any, values: Any) -> None:
        self.values = as_array(values, "values")
        self.counts = checked_counts(counts, self.values.shape)
        self._ends = np.cumsum(self.counts.reshape(-1))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis of the cells."""
        return self.counts.shape

    @property
    def dtype(self) -> np.dtype:
        """Type of an item."""
        return self.values.dtype

    def __repr__(self) -> str:
        return f"Ragged(shape={self.shape}, items={len(self.values)}, dtype={self.dtype})"

    def __getitem__(self, cell: Any) -> np.ndarray:
        """Return the items of one cell."""
        number = cell_number(cell, self.shape)
        end = int(self._ends[number])
        return self.values[end - int(self.counts.reshape(-1)[number]) : end]

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield the items of each cell, in their order."""
        starts = [0, *self._ends.tolist()]
        return (self.values[a:b] for a, b in itertools.pairwise(starts))

    def to_list(self) -> Any:
        """Return nested lists, of cells and then of items."""
        lists: Any = [each.tolist() for each in self]
        for extent in reversed(self.shape[1:]):
            lists = [lists[k : k + extent] for k in range(0, len(lists), extent)] if extent else []
        return lists if self.shape else lists[0]

    def padded(self, fill: Any = 0) -> np.ndarray:
        """Return an array of cells × items; shorter cells are filled with ``fill``."""
        counts = self.counts.reshape(-1)
        out = np.full((len(counts), int(counts.max(initial=0))), as_fill(fill, self.dtype), self.dtype)
        out[np.arange(out.shape[1]) < counts[:, None]] = self.values
        return out.reshape(*self.shape, out.shape[1])

    def to_awkward(self) -> Any:
        """Return an array of awkward.

        Raises
        ------
        UnsupportedError
            If awkward is not installed.
        """
        if find_spec("awkward") is None:
            raise UnsupportedError("awkward is not installed: pip install awkward")
        awkward = import_module("awkward")
        array = awkward.unflatten(self.values, self.counts.reshape(-1))
        for extent in reversed(self.shape[1:]):
            array = awkward.unflatten(array, extent)
        return array if self.shape else array[0]

    def to_dask(self, chunks: int = 2**20) -> DaskRagged:
        """Return counts and values as Dask arrays."""
        import dask.array

        return DaskRagged(dask.array.from_array(self.counts), dask.array.from_array(self.values, chunks=chunks))


class DaskRagged(NamedTuple):
    """Ragged items with counts and values as Dask arrays, as `Streams.to_dask` returns them."""

    counts: Any
    """Items of each cell; its shape is that of the cells."""
    values: Any
    """Items of all cells, in the order of the cells."""

    def compute(self, **options: Any) -> Ragged:
        """Return it as arrays of numpy; ``options`` are those of Dask's ``compute``."""
        from dask.base import compute

        counts, values = compute(self.counts, self.values, **options)  # type: ignore[no-untyped-call]
        return Ragged(counts, values)

    def to_awkward(self) -> Any:
        return self.compute().to_awkward()


def cell_number(cell: Any, shape: tuple[int, ...]) -> int:
    """Return the number of a cell at an index; negative indices count from the end of their axis."""
    index = cell if isinstance(cell, tuple) else (cell,)
    fits = len(index) == len(shape) and all(
        isinstance(k, int | np.integer) and not isinstance(k, bool) and -n <= k < n
        for k, n in zip(index, shape, strict=True)
    )
    if not fits:
        raise SelectionError(f"{cell!r} is no cell of shape {shape}")
    return ravel([int(k) % n for k, n in zip(index, shape, strict=True)], shape)


def checked_counts(given: Any, values: tuple[int, ...]) -> np.ndarray:
    """Return the counts of cells; raise if they do not match the values."""
    counts = as_array(given, "counts")
    if counts.dtype.kind not in "iu" and counts.size:
        raise InputError(f"counts of dtype {counts.dtype} are not whole numbers")
    counts = counts.astype(np.int64)
    if (counts < 0).any():
        raise InputError(f"counts go down to {counts.min()}: no cell has fewer than 0 items")
    if len(values) != 1 or counts.sum() != values[0]:
        raise InputError(f"counts add up to {counts.sum()} items, but values of shape {values} are given")
    return counts


def ragged_of(given: Any, shape: tuple[int, ...], items: Callable[[Any], np.ndarray]) -> Ragged | None:
    """Return the argument as ragged items of cells; None if it is an array."""
    if isinstance(given, Ragged):
        return _of_shape(given, shape)
    is_pair = isinstance(given, tuple) and len(given) == 2 and np.shape(given[0]) == shape and np.ndim(given[1]) == 1
    if is_pair and np.asarray(given[0]).dtype.kind in "iu":
        return Ragged(given[0], items(given[1]))
    if type(given).__module__.partition(".")[0] == "awkward":
        awkward = import_module("awkward")
        counts = awkward.to_numpy(awkward.num(given, axis=len(shape)))
        return _of_shape(Ragged(counts, awkward.to_numpy(awkward.flatten(given, axis=None))), shape)
    try:
        np.asarray(given if isinstance(given, list) else 0)
    except (ValueError, TypeError):  # lists of different lengths
        return _of_lists(given, shape, items)
    return None


def _of_shape(ragged: Ragged, shape: tuple[int, ...]) -> Ragged:
    if ragged.shape != shape:
        raise InputError(f"counts of shape {ragged.shape} do not fit streams of shape {shape}")
    return ragged


def _of_lists(given: list[Any], shape: tuple[int, ...], items: Callable[[Any], np.ndarray]) -> Ragged:
    cells: list[Any] = given
    for axis, extent in enumerate(shape[1:], 1):
        if any(not isinstance(each, list | tuple | np.ndarray) or len(each) != extent for each in cells):
            raise InputError(f"the list does not fit streams of shape {shape}: axis {axis} has {extent} cells")
        cells = [inner for each in cells for inner in each]
    if len(cells) != math.prod(shape):
        raise InputError(f"a list of {len(cells)} cells does not fit streams of shape {shape}")
    try:
        lists = [items(each if np.ndim(each) else [each]) for each in cells]
    except (InputError, ValueError) as error:
        raise InputError(f"the list has an invalid item: {error}") from None
    if any(each.ndim != 1 for each in lists):
        raise InputError(f"the list does not fit streams of shape {shape}: it has more axes than cells and their items")
    counts = np.array([len(each) for each in lists], np.int64).reshape(shape)
    return Ragged(counts, np.concatenate([items([]), *lists]))


def as_items(values: Any, item: np.dtype) -> np.ndarray:
    if np.ma.is_masked(values):
        masked = int(np.ma.getmaskarray(values).sum())
        raise InputError(f"{masked} values are masked; pass values.filled(...), or where=~mask")
    if isinstance(values, np.generic) or not hasattr(values, "__array__"):
        return _of_python(values, item)
    array = np.asarray(values)
    if array.dtype == item or (item == np.uint8 and array.dtype.kind in "biufcV" and isinstance(values, np.ndarray)):
        return array
    return _fitted(array, item, np.can_cast(array.dtype, item, "same_kind"))


def as_array(given: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(given)
    except (TypeError, ValueError):
        raise InputError(f"{name} are lists of different lengths; give one flat list, cell after cell") from None


def check_view(item: np.dtype, wanted: np.dtype, name: str) -> None:
    """Raise if items cannot be read as another type: bytes can be read as any, and any as bytes."""
    if wanted != item and np.uint8 not in (item, wanted):
        raise InputError(f"dtype={wanted}: {name} has items of dtype {item}; leave out dtype=, or read bytes with 'u1'")


def as_fill(value: Any, item: np.dtype) -> np.ndarray:
    try:
        made = as_items(value, item)
    except InputError as error:
        raise InputError(f"fill={value!r:.80}: {error}") from None
    if made.ndim:
        raise InputError(f"fill={value!r:.80} must be one value")
    return made


def _of_python(values: Any, item: np.dtype) -> np.ndarray:
    """Convert Python values, which have no dtype: each must fit the item."""
    try:
        array = np.asarray(values, object if item.kind in "iu" else None)
        if item.kind in "iu":
            return _integers(array, item)
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{values!r:.80} are no items of dtype {item}") from None
    if not array.size:
        return array.astype(item)
    are_numbers = array.dtype.kind in "biufc" and item.kind in "biufc"
    return _fitted(array, item, are_numbers or np.can_cast(array.dtype, item, "same_kind"))


def _fitted(array: np.ndarray, item: np.dtype, is_kind: bool) -> np.ndarray:
    """Return values as items; raise unless they are of that kind and each of them fits."""
    if not is_kind:
        raise InputError(f"values of dtype {array.dtype} are no items of dtype {item}; convert them with astype()")
    lost = lost_value(array, item)
    if lost is not None:
        raise _no_room(lost, item)
    return array.astype(item)


def _integers(exact: np.ndarray, item: np.dtype) -> np.ndarray:
    limits = np.iinfo(item)
    for value in exact.flat:
        if isinstance(value, str | bytes) or value != int(value):
            raise InputError(f"{value!r:.80} is no whole number: values are no items of dtype {item}")
        if not limits.min <= value <= limits.max:
            raise _no_room(value, item)
    return exact.astype(item)


def _no_room(value: object, item: np.dtype) -> InputError:
    return InputError(f"{value} does not fit items of dtype {item}")
