"""Casts of values to the type of a target array: a value without a counterpart in that type is rejected.

    computed results     ``same_kind`` by numpy, and every value has a counterpart       `misfit`
    values in hand       every value has a counterpart, for any two types                `lost_value`
    values in JSON       as xarray encodes them in attributes                            `mask_as_text`

Rounding of floating-point numbers, and of times to a coarser unit, is no loss.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

PIECE = 2**16
"""Elements that are compared at a time: they stay in a cache, and temporary arrays are small."""
INTEGERS, FLOATS, TIMES, TEXTS = "biu", "fc", "mM", "SU"
Lost = Callable[[np.ndarray, np.dtype], np.ndarray]
"""Function of a piece and a type that returns a mask of values without a counterpart."""


def lost_value(values: np.ndarray, dtype: np.dtype) -> object | None:
    """Return a value without a counterpart in another type; None if all have one, or a nearest number."""
    if dtype.names and values.dtype.kind not in "VO":
        return next((lost for name in dtype.names if (lost := lost_value(values, dtype[name].base)) is not None), None)
    if values.dtype.names and dtype.names:
        fields = ((values[a], dtype[b].base) for a, b in zip(values.dtype.names, dtype.names, strict=False))
        return next((each_lost for each in fields if (each_lost := lost_value(*each)) is not None), None)
    lost = _check_of(values.dtype, dtype)
    if lost is None or not values.size:
        return None
    if values.dtype.kind in INTEGERS and dtype.kind in INTEGERS:
        least, most = _limits(dtype)
        return next((each for each in (int(values.min()), int(values.max())) if not least <= each <= most), None)
    each = values.reshape(-1) if values.flags.c_contiguous else values.flat
    for start in range(0, values.size, PIECE):
        piece = each[start : start + PIECE]
        with np.errstate(all="ignore"):
            found = lost(piece, dtype)
        if found.any():
            value: object = piece[found][0]
            return value.item() if piece.dtype.kind in INTEGERS + FLOATS else value  # type: ignore[attr-defined]
    return None


def misfit(values: np.ndarray, dtype: np.dtype) -> str | None:
    """Return why computed values cannot be elements of a type, by ``same_kind`` and by value; None if they can."""
    if not np.can_cast(values.dtype, dtype, "same_kind"):
        return f"dtype {values.dtype}"
    lost = lost_value(values, dtype)
    return None if lost is None else f"{lost} ({values.dtype})"


def has_number(dtype: np.dtype, number: object) -> bool:
    """Return whether a type can represent a number, up to rounding for floating-point types."""
    value = np.asarray(number)
    kinds = {value.dtype.kind, dtype.kind}
    return kinds <= {*INTEGERS, *FLOATS} and lost_value(value, dtype) is None


def _check_of(given: np.dtype, dtype: np.dtype) -> Lost | None:
    """Return the check of a cast; None if it is lossless, or numpy itself rejects it."""
    number = given.kind in INTEGERS + FLOATS
    if given.kind == dtype.kind and dtype.kind in TIMES:
        return _overflows if np.can_cast(given, dtype, "safe") and given != dtype else None  # to a finer unit
    if np.can_cast(given, dtype, "safe"):
        return None
    if number and dtype.kind in TIMES:
        return _no_count
    if given.kind in TIMES and dtype.kind in INTEGERS + FLOATS:
        return _no_number
    if number and dtype.kind in FLOATS:
        return _infinite
    if number and dtype.kind in INTEGERS:
        return _no_integer
    return _overflows if given.kind in TEXTS and dtype.kind in TEXTS else None


def _limits(dtype: np.dtype) -> tuple[int, int]:
    return (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def _infinite(piece: np.ndarray, dtype: np.dtype) -> np.ndarray:
    real = piece.real if dtype.kind == "f" else piece
    lost: np.ndarray = np.isfinite(real) & ~np.isfinite(real.astype(dtype))
    return lost if real is piece or piece.dtype.kind != "c" else lost | (piece.imag != 0)


def _no_integer(piece: np.ndarray, dtype: np.dtype) -> np.ndarray:
    (least, most), real = _limits(dtype), piece.real
    held: np.ndarray = np.isfinite(real) & (real == np.trunc(real))  # the limits of i8 are infinite in f2
    held &= (real >= float(least)) & (real < float(most + 1))
    return ~held | (piece.imag != 0) if piece.dtype.kind == "c" else ~held


def _no_count(piece: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a mask of numbers that a time cannot count; NaN is NaT."""
    return _no_integer(piece, np.dtype(np.int64)) & (piece == piece)


def _no_number(piece: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a mask of times whose count of units a type does not have."""
    check = _infinite if dtype.kind in FLOATS else _no_integer
    return check(piece.astype(np.int64), dtype) | np.isnat(piece)


def _overflows(piece: np.ndarray, dtype: np.dtype) -> np.ndarray:
    try:
        changed: np.ndarray = piece.astype(dtype).astype(piece.dtype) != piece
    except OverflowError:  # some versions of numpy wrap times around, others raise
        counts = np.abs(piece.astype(np.int64))
        return np.asarray(counts == counts.max())
    return changed & ~np.isnat(piece) if piece.dtype.kind in TIMES else changed


def mask_as_text(value: Any, dtype: np.dtype) -> Any:
    """Return a value as xarray encodes it in the attribute of format 3."""
    if dtype.kind == "c":
        return [mask_as_text(part, np.dtype("f8")) for part in (value.real, value.imag)]
    if dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", float(value))).decode()
    if dtype.kind == "S":
        return base64.standard_b64encode(bytes(value)).decode()
    kinds: dict[str, Any] = {"b": bool, "U": str, "V": np.void.item}
    return kinds.get(dtype.kind, int)(value)


def mask_of_text(value: Any, dtype: np.dtype) -> Any:
    """Return the value that xarray encoded in the attribute of format 3; other writers store the value itself."""
    if dtype.kind == "c" and isinstance(value, list):
        return complex(*(mask_of_text(part, np.dtype("f8")) for part in value))
    if dtype.kind == "f" and isinstance(value, str):
        return struct.unpack("<d", base64.standard_b64decode(value))[0]
    return base64.standard_b64decode(value) if dtype.kind == "S" else value
