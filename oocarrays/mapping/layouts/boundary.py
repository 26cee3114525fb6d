"""Boundaries: which of an axis's own elements stand beyond its edges, or which constant.

reflect     c b a │ a b c d │ d c b        as scipy's "reflect", numpy's "symmetric"
nearest     a a a │ a b c d │ d d d
periodic    b c d │ a b c d │ a b c        scipy's "wrap"
a number    x x x │ a b c d │ x x x
none              │ a b c d │              nothing: a block ends there
"""

from __future__ import annotations

from numbers import Number
from typing import Any, Literal, cast

import numpy as np

from oocarrays.errors import InputError

Boundary = Literal["none", "reflect", "nearest", "periodic"] | float
"""Its names are those of Dask's ``map_overlap``."""
NAMES = ("none", "reflect", "nearest", "periodic")


def checked_boundary(boundary: object, *dtypes: np.dtype) -> Boundary:
    """Return a boundary that there is, for arrays of these types.

    Raises
    ------
    InputError
        Where it is neither one of the names nor a number, or a number that such an array cannot hold.
    """
    if isinstance(boundary, Number) and not isinstance(boundary, bool):
        other = next((dtype for dtype in dtypes if not _holds(dtype, boundary)), None)
        if other is not None:
            raise InputError(f"boundary={boundary!r} is no value that an array of {other} can have")
    elif not isinstance(boundary, str) or boundary not in NAMES:
        raise InputError(f"boundary={boundary!r} is not 'none', 'reflect', 'nearest', 'periodic' or a number")
    return cast(Boundary, boundary)


def _holds(dtype: np.dtype, number: Any) -> bool:
    """Return whether elements of a type can have a number, cut to a whole one where they are."""
    if dtype.kind in "fc":
        return np.can_cast(np.min_scalar_type(number), dtype, "same_kind")
    if dtype.kind not in "biu" or not np.isrealobj(number):
        return False
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(least <= number <= most)


def standing(boundary: Boundary, extent: int, lower: int, upper: int) -> np.ndarray:
    """Return the elements of an axis that stand at ``lower <= x < upper``, also beyond its edges; -1 for a constant.

    >>> for boundary in ("reflect", "nearest", "periodic", 0.0): print(standing(boundary, 3, -4, 5))
    [2 2 1 0 0 1 2 2 1]
    [0 0 0 0 0 1 2 2 2]
    [2 0 1 2 0 1 2 0 1]
    [-1 -1 -1 -1  0  1  2 -1 -1]
    """
    places = np.arange(lower, upper)
    if boundary == "reflect":
        turned = places % (2 * extent)
        return np.minimum(turned, 2 * extent - 1 - turned)
    if boundary == "nearest":
        return np.clip(places, 0, extent - 1)
    if boundary == "periodic":
        return places % extent
    return np.where((places < 0) | (places >= extent), -1, places)
