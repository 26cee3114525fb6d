"""How much coarser a target is than its source, as a person asks for it.

2                  of every axis                {"time": 24}        of some axes, by name or number
(1, 2, 2)          of each axis                 {0: [31, 28, …]}    groups of unlike lengths: months
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oocarrays.errors import InputError

FactorLike = int | Sequence[Any] | Mapping[Any, Any]
"""A number for every axis, or for each, or a mapping: elements of a group, or the lengths of all groups of an axis."""


def factors_of(
    asked: FactorLike, ndim: int, names: Sequence[str | None] | None = None, axes: Sequence[int] | None = None
) -> tuple[Any, ...]:
    """The factor of each axis.

    Parameters
    ----------
    names : sequence of str, optional
        Of the axes.
    axes : sequence of int, optional
        Those that a single number is of; by default all.

    Raises
    ------
    InputError
        Where it names an axis that is not there, or is of others.

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
            raise InputError(f"factor={asked!r}: {unknown!r} is none of the axes {told}")
        given = {known[name]: each for name, each in asked.items()}
        return tuple(given.get(axis, 1) for axis in range(ndim))
    if isinstance(asked, Sequence) and not isinstance(asked, str):
        return tuple(asked)
    return tuple(asked if axes is None or axis in axes else 1 for axis in range(ndim))
