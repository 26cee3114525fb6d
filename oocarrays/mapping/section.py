"""A section: a regular part of an array, half open in every axis.

    lower              upper
      │                  │
──────[──────────────────)──────► one axis
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Section:
    """The elements ``lower[i] <= x[i] < upper[i]`` in every axis ``i``.

    >>> a = Section((0, 2), (4, 6))
    >>> a.shape, a.size
    ((4, 4), 16)
    >>> a.intersection(Section((3, 0), (9, 3)))
    Section(lower=(3, 2), upper=(4, 3))
    >>> a.intersection(Section((4, 0), (9, 3))) is None
    True
    """

    lower: tuple[int, ...]
    """First element in each axis."""
    upper: tuple[int, ...]
    """One past the last element in each axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements in each axis: ``upper - lower``."""
        return tuple(u - l for l, u in zip(self.lower, self.upper, strict=True))

    @property
    def size(self) -> int:
        """Number of elements: the product of ``shape``."""
        return math.prod(self.shape)

    @property
    def slices(self) -> tuple[Any, ...]:
        """The section as a numpy index that gives an array, without axes too.

        >>> Section((1,), (3,)).slices
        (slice(1, 3, None), Ellipsis)
        """
        return (*map(slice, self.lower, self.upper), ...)

    def intersection(self, other: Section) -> Section | None:
        """The elements in both sections, or None where there are none."""
        lower = tuple(map(max, self.lower, other.lower))
        upper = tuple(map(min, self.upper, other.upper))
        return Section(lower, upper) if all(l < u for l, u in zip(lower, upper, strict=True)) else None

    def relative_to(self, origin: tuple[int, ...]) -> Section:
        """The same elements, counted from ``origin``.

        >>> Section((4, 5), (6, 9)).relative_to((4, 4))
        Section(lower=(0, 1), upper=(2, 5))
        """
        return Section(
            tuple(l - o for l, o in zip(self.lower, origin, strict=True)),
            tuple(u - o for u, o in zip(self.upper, origin, strict=True)),
        )
