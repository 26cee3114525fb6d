"""Values along axes, as a person states them: how much coarser a target is, distances of elements and their units.

factor=2             of every axis                {"time": 24}        of some axes, by name or number
factor=(1, 2, 2)     of each axis                 {0: [31, 28, …]}    groups of unlike lengths: months
scale=0.325          of every axis in space       {"z": 1.0}          of some axes, by name or number
unit="µm"            of every axis in space       {"t": "second"}     of some axes, by name or number
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from oocarrays.errors import InputError
from oocarrays.plan.files.multiscales import ImageAxis

FactorLike = int | Sequence[Any] | Mapping[Any, Any]
"""A number for every axis, or for each, or a mapping: elements of a group, or the lengths of all groups of an axis."""

ScaleLike = float | Sequence[float | None] | Mapping[Any, float]
"""A number for all axes in space, or for each axis, or a mapping of names or numbers of axes."""
UnitLike = str | Sequence[str | None] | Mapping[Any, str]
"""A unit for all axes in space, or for each axis, or a mapping of names or numbers of axes."""


def factors_of(
    asked: FactorLike | Any,
    ndim: int,
    names: Sequence[str | None] | None = None,
    axes: Sequence[int] | None = None,
    *,
    word: str = "factor",
    rest: Any = 1,
) -> tuple[Any, ...]:
    """Return the factor of each axis, or another value that is given in the same ways.

    Examples
    --------
    >>> factors_of(2, 3, axes=[1, 2]), factors_of({"x": 4, 0: 2}, 2, "yx"), factors_of((1, 3), 2)
    ((1, 2, 2), (2, 4), (1, 3))
    """
    if isinstance(asked, Mapping):
        known: dict[Any, int] = {axis: axis for axis in range(ndim)}
        known |= {name: axis for axis, name in enumerate(names or ())}
        unknown = next((each for each in asked if each not in known), None)
        if unknown is not None:
            told = ", ".join(map(str, names)) if names else f"0 to {ndim - 1}"
            raise InputError(f"{word}={asked!r}: {unknown!r} is none of the axes {told}")
        given = {known[name]: each for name, each in asked.items()}
        return tuple(given.get(axis, rest) for axis in range(ndim))
    if isinstance(asked, Sequence) and not isinstance(asked, str):
        return tuple(asked)
    return tuple(asked if axes is None or axis in axes else rest for axis in range(ndim))


def scaled(axes: Sequence[ImageAxis], scale: ScaleLike | None, unit: UnitLike | None) -> tuple[ImageAxis, ...]:
    """Return axes with the scales and units that are given; None keeps those of the axes.

    >>> y, x = scaled([ImageAxis(name=name, type="space") for name in "yx"], {"x": 0.5}, "µm")
    >>> (y.scale, y.unit), (x.scale, x.unit)
    ((1.0, 'micrometer'), (0.5, 'micrometer'))
    """
    scales, units = _each(axes, scale, "scale"), _each(axes, unit, "unit")
    for each in scales:
        real = isinstance(each, Real) and not isinstance(each, bool)
        if each is not None and not (real and 0 < float(each) < math.inf):
            raise InputError(f"scale={scale!r}: {each!r} is not a positive number; give the distance of two elements")
    for each in units:
        if each is not None and not (isinstance(each, str) and each.strip()):
            raise InputError(f"unit={unit!r}: {each!r} is not the name of a unit, such as 'micrometer'")
    return tuple(axis.measured(*given) for axis, *given in zip(axes, scales, units, strict=True))


def _each(axes: Sequence[ImageAxis], asked: Any, word: str) -> tuple[Any, ...]:
    names, space = [axis.name for axis in axes], [n for n, axis in enumerate(axes) if axis.type == "space"]
    found = factors_of(asked, len(axes), names, space, word=word, rest=None)
    if len(found) != len(axes):
        raise InputError(f"{word}={asked!r} has {len(found)} axes; the levels have {len(axes)}: {', '.join(names)}")
    return found
