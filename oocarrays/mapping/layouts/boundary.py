"""Boundaries: which of an axis's own elements stand beyond its edges, or which constant.

reflect     c b a │ a b c d │ d c b        as scipy's "reflect", numpy's "symmetric"
nearest     a a a │ a b c d │ d d d
periodic    b c d │ a b c d │ a b c        scipy's "wrap"
a number    x x x │ a b c d │ x x x
none              │ a b c d │              nothing: a block ends there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Literal, cast

import numpy as np

from oocarrays.errors import InputError
from oocarrays.mapping.casting import has_number

Boundary = Literal["none", "reflect", "nearest", "periodic"] | float
"""Its names are those of Dask's ``map_overlap``."""
NAMES = ("none", "reflect", "nearest", "periodic")
Boundaries = Boundary | tuple[Boundary, ...]
"""That of all axes, or that of each. Beyond several edges axes are padded in their order: the last constant stands."""


BoundaryLike = str | float | Mapping[int, str | float] | Sequence[str | float]
"""As a person gives them."""


def as_asked(boundary: BoundaryLike) -> Boundaries:
    """Return boundaries that will be checked when the arrays are known."""
    return cast(Boundaries, boundary)


def of_axis(boundary: Boundaries, axis: int) -> Boundary:
    """Return the boundary along an axis."""
    return boundary[axis] if isinstance(boundary, tuple) else boundary


def of_each(boundary: Boundaries, ndim: int) -> tuple[Boundary, ...]:
    """Return the boundary along each of so many axes."""
    return boundary if isinstance(boundary, tuple) else (boundary,) * ndim


def joined(each: tuple[Boundary, ...]) -> Boundaries:
    """Return one boundary where all axes have the same.

    >>> joined(("none", "none")), joined(("none", 0.0))
    ('none', ('none', 0.0))
    """
    return each[0] if each and all(other == each[0] for other in each) else each or "none"


def checked_boundary(boundary: object, ndim: int, *dtypes: np.dtype) -> Boundaries:
    """Return boundaries that there are, for arrays of so many axes and of these types.

    Examples
    --------
    >>> checked_boundary({0: "periodic", -1: 0}, 3), checked_boundary(["nearest", "nearest"], 2)
    (('periodic', 'none', 0), 'nearest')
    """
    if isinstance(boundary, Mapping):
        odd = next((axis for axis in boundary if not _is_axis(axis, ndim)), None)
        if odd is not None:
            raise InputError(f"boundary={boundary!r} names {odd!r}, which is none of the {ndim} axes")
        by_axis = {int(axis) % ndim: each for axis, each in boundary.items()}
        if len(by_axis) < len(boundary):
            raise InputError(f"boundary={boundary!r} names an axis twice: of {ndim} axes the last one is also -1")
        boundary = [by_axis.get(axis, "none") for axis in range(ndim)]
    if not isinstance(boundary, list | tuple):
        return _checked(boundary, dtypes)
    if len(boundary) != ndim:
        raise InputError(f"boundary={boundary!r} has {len(boundary)} entries: one for all {ndim} axes, or one for each")
    return joined(tuple(_checked(each, dtypes) for each in boundary))


def _is_axis(axis: object, ndim: int) -> bool:
    return isinstance(axis, int | np.integer) and not isinstance(axis, bool) and int(axis) in range(-ndim, ndim)


def _checked(boundary: object, dtypes: tuple[np.dtype, ...]) -> Boundary:
    if isinstance(boundary, Number) and not isinstance(boundary, bool):
        other = next((dtype for dtype in dtypes if not has_number(dtype, boundary)), None)
        if other is not None:
            raise InputError(f"boundary={boundary!r} is no value that an array of {other} can have")
    elif not isinstance(boundary, str) or boundary not in NAMES:
        raise InputError(f"boundary={boundary!r} is not 'none', 'reflect', 'nearest', 'periodic' or a number")
    return cast(Boundary, boundary)


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
