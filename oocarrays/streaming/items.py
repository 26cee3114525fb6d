"""Items of streams, made of the values that a caller gives; a value without a counterpart of their type is refused.

NumPy array     ``same_kind`` by NumPy, and every value fits          bytes (``u1``) take arrays of any type as they are
Python value    every value fits: ``[1, 2, 3]`` into ``u1``
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocarrays.errors import InputError
from oocarrays.mapping.casting import lost_value


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
