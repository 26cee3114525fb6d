"""Casts of results to the type of their target: which of them lose values."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from oocarrays.graphs.run.missing import warn_person
from oocarrays.mapping.selection import Axes
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.sections.write import write_section

PIECE = 2**16
"""Elements that are cast at a time, to see whether they can be: they stay in a cache, and hold next to nothing."""


def lost_value(values: np.ndarray, dtype: np.dtype) -> object | None:
    """Return a value that another type has no number for; None where it has one, or the nearest, for all of them.

    >>> lost_value(np.array([1.0, 1e300]), np.dtype("f4")), lost_value(np.array([300, 2]), np.dtype("i1"))
    (1e+300, 300)
    >>> lost_value(np.array([0.1, np.inf, np.nan]), np.dtype("f4")) is None
    True
    """
    if np.can_cast(values.dtype, dtype, "safe") or not values.size:
        return None
    if values.dtype.kind in "iu" and dtype.kind in "iu":
        ends, limits = (int(values.min()), int(values.max())), np.iinfo(dtype)
        return next((each for each in ends if not limits.min <= each <= limits.max), None)
    if dtype.kind not in "fc":
        return None
    each = values.reshape(-1) if values.flags.c_contiguous else values.flat
    for start in range(0, values.size, PIECE):
        piece = each[start : start + PIECE]
        with np.errstate(over="ignore"):
            lost = np.isfinite(piece) & ~np.isfinite(piece.astype(dtype))
        if lost.any():
            found: object = piece[lost][0].item()
            return found
    return None


def loss(values: np.ndarray, dtype: np.dtype) -> str | None:
    """Say what a value becomes that another type has no number for; None where it has one for all of them.

    >>> loss(np.array([300, 2]), np.dtype("i1"))
    '300 (int64), which is 44 (int8)'
    """
    value = lost_value(values, dtype)
    if value is None:
        return None
    with np.errstate(over="ignore"):
        cast = np.array([value], values.dtype).astype(dtype)[0]
    return f"{value} ({values.dtype}), which is {cast} ({dtype})"


class Losses:
    """Values that casts lose, as a person is told of them: once."""

    def __init__(self) -> None:
        self._telling = threading.Lock()
        self._told = False

    def tell(self, made: np.ndarray, target: TargetSpec, where: str) -> None:
        """Say what becomes of a value for which the type of a target has no number, if nothing has been said yet."""
        lost = None if self._told else loss(made, np.dtype(target.settings["dtype"]))
        if lost is None:
            return
        with self._telling:
            first, self._told = not self._told, True
        if first:
            told = f"the kernel gave {lost} in {target.store}, for {where}"
            warn_person(f"{told}, which may not be all: give dtype=", RuntimeWarning)


def write_cast(file: ArrayFile, axes: Axes, values: np.ndarray, **how: Any) -> None:
    """Write some elements; what their cast loses is said by `loss`, and not by numpy."""
    with np.errstate(over="ignore"):
        write_section(file, axes, values, **how)
