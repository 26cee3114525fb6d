"""Sections: regular parts of an array, half open in every axis.

    lower              upper              lower  stride    upper
      │                  │                  │     │         │
    ──[██████████████████)────► one axis  ──[█····█····█····█)────►

N-d is the product of one-axis results: a section is a range along each axis.

n = 4, a = 3, b = 1, m = 5       ⌊1/5⌋ + ⌊4/5⌋ + ⌊7/5⌋ + ⌊10/5⌋ = 3       points of a lattice below a line

As in Euclid's algorithm, axes are exchanged until no point is left: the number of turns grows with that of digits.
(Graham, Knuth, Patashnik 1994, section 3.5.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import lt, sub
from typing import Any, TypeVar

import numpy as np

from oocarrays.errors import LayoutError, SelectionError
from oocarrays.mapping.along import ascending, common_range, hull
from oocarrays.mapping.given import listed, wholes

Numbers = TypeVar("Numbers", int, np.ndarray)


def floor_sum(n: int, a: int, b: Numbers, m: int) -> Numbers:
    """Return the sum of ``(a * i + b) // m`` for ``i`` in ``range(n)``; an array ``b`` is unsigned, modulo 2**64."""
    total, left = 0 * b, 0 * b + n
    while np.any(left):
        total = total + left // 2 * ((left - 1) | 1) * (a // m) + left * (b // m)  # an array may also compute 0 - 1
        a, b = a % m, b % m
        reached = left * a + b
        left, b = reached // m, reached % m
        a, m = m, max(a, 1)
    return total


@dataclass(frozen=True, slots=True, repr=False)
class Section:
    """The elements ``lower[i] <= x[i] < upper[i]`` in every axis ``i``, or each ``stride[i]``-th of them.

    `of` returns the canonical form of a set of elements along each axis; sections made with it are equal if their
    elements are.

    >>> a = Section((0, 2), (4, 6))
    >>> a.shape, a.size
    ((4, 4), 16)
    >>> a.intersection(Section((3, 0), (9, 3)))
    Section(lower=(3, 2), upper=(4, 3))
    >>> a.intersection(Section((4, 0), (9, 3))) is None
    True
    >>> a.intersection(Section.of([range(1, 9, 2), range(0, 9, 3)]))
    Section(lower=(1, 3), upper=(4, 4), stride=(2, 1))
    """

    lower: tuple[int, ...]
    """First element in each axis."""
    upper: tuple[int, ...]
    """One past the last element in each axis."""
    _strides: tuple[int, ...] = ()
    """Distance between consecutive elements in each axis; empty if it is 1 in all of them."""

    @classmethod
    def of(cls, axes: Iterable[range]) -> Section:
        """Return the section with these ranges along each axis; the elements of a descending range are reversed.

        >>> Section.of([range(0, 9, 3), range(4, 1, -1)])
        Section(lower=(0, 2), upper=(7, 5), stride=(3, 1))
        >>> Section.of([range(0, 2, 3)]) == Section((0,), (1,))
        True
        """
        given = tuple(axes) if isinstance(axes, Iterable) else None
        if given is None or not all(isinstance(axis, range) for axis in given):
            raise SelectionError(f"axes={axes!r} are not ranges, one for each axis")
        axes = tuple(map(ascending, given))
        strides = tuple(axis.step for axis in axes)
        lower, upper = tuple(axis.start for axis in axes), tuple(axis.stop for axis in axes)
        return cls(lower, upper, () if all(step == 1 for step in strides) else strides)

    @property
    def stride(self) -> tuple[int, ...]:
        """Distance between consecutive elements in each axis."""
        return self._strides or (1,) * len(self.lower)

    @property
    def axes(self) -> tuple[range, ...]:
        """The elements along each axis.

        >>> Section((1,), (4,)).axes
        (range(1, 4),)
        """
        return tuple(map(range, self.lower, self.upper, self.stride))

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements in each axis: ``ceil((upper - lower) / stride)``."""
        if self._strides:
            return tuple(map(len, self.axes))
        return tuple(map(sub, self.upper, self.lower))

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
        if self._strides:
            return (*map(slice, self.lower, self.upper, self._strides), ...)
        return (*map(slice, self.lower, self.upper), ...)

    def intersection(self, other: Section) -> Section | None:
        """Return the elements in both sections, or None if they are disjoint."""
        try:
            if self._strides or other._strides:
                shared = Section.of(map(common_range, self.axes, other.axes))
                return shared if shared.size else None
            lower = tuple(map(max, self.lower, other.lower))
            upper = tuple(map(min, self.upper, other.upper))
        except AttributeError:
            raise SelectionError(f"{other!r} is not a section") from None
        return Section(lower, upper) if all(map(lt, lower, upper)) else None

    def relative_to(self, origin: tuple[int, ...]) -> Section:
        """Return the same elements, counted from ``origin``.

        >>> Section((4, 5), (6, 9)).relative_to((4, 4))
        Section(lower=(0, 1), upper=(2, 5))
        """
        try:
            return Section(tuple(map(sub, self.lower, origin)), tuple(map(sub, self.upper, origin)), self._strides)
        except TypeError:
            raise SelectionError(f"origin={origin!r} is not a whole number for each axis") from None

    def hull(self, *others: Section) -> Section:
        """Return the smallest section with all elements of these; the sieve uses the same with strides of 1.

        >>> Section((3, 2), (4, 3)).hull(Section((7, 2), (8, 4)))
        Section(lower=(3, 2), upper=(8, 4), stride=(4, 1))
        """
        held = [section.axes for section in (self, *others) if section.size]
        return Section.of(map(hull, zip(*held, strict=True)) if held else [range(0)] * len(self.lower))

    def runs(self, shape: Sequence[int], orientation: str | Sequence[int] = "row") -> tuple[int, int]:
        """Return the number of contiguous runs of the section in a stored array, and the elements of each.

        Runs are maximal with equal lengths: if a section has both ends of an axis but not the elements between, the
        end of one row and the start of the next are not joined.

        Parameters
        ----------
        shape : sequence of int
            Extent of each axis of the array, in elements.
        orientation : str or sequence of int
            Storage order: ``"row"`` (C), ``"column"`` (Fortran), or its axes from the slowest to the fastest.

        Raises
        ------
        LayoutError
            If that is not an order of the axes.

        Examples
        --------
        >>> rows = Section((2, 0), (4, 8))
        >>> rows.runs((6, 8)), rows.runs((6, 8), "column")
        ((1, 16), (8, 2))
        """
        shape = wholes(shape, "shape", 0, error=LayoutError)
        if len(shape) != len(self.lower):
            raise LayoutError(f"shape={shape} has {len(shape)} axes; the section has {len(self.lower)}")
        if not self.size:
            return 0, 0
        axes, length = self.axes, 1
        for axis in reversed(axis_order(orientation, len(shape))):
            if axes[axis].step > 1:
                break
            length *= len(axes[axis])
            if len(axes[axis]) < shape[axis]:
                break
        return self.size // length, length

    def __repr__(self) -> str:
        stride = f", stride={self._strides}" if self._strides else ""
        return f"Section(lower={self.lower}, upper={self.upper}{stride})"


def axis_order(
    orientation: str | Sequence[Any], axes: int, names: Sequence[str | None] | None = None
) -> tuple[int, ...]:
    """Return the axes of a stored array, given by number or name, from the slowest to the fastest."""
    forward, known = tuple(range(axes)), {name: axis for axis, name in enumerate(names or ()) if name is not None}
    words = {"row": forward, "column": forward[::-1]}
    if isinstance(orientation, str) and orientation in words:
        return words[orientation]
    with suppress(LayoutError):
        each = listed(orientation, "orientation", error=LayoutError)
        numbers = [known.get(axis, axis) if isinstance(axis, str) else axis for axis in each]
        order = wholes(numbers, "orientation", 0, error=LayoutError)
        if sorted(order) == list(forward):
            return order
    told = f"{forward}{f', or {tuple(known)}' if known else ''}"
    raise LayoutError(f"orientation={orientation!r} is not 'row', 'column' or an order of {axes} axes: {told}")


def in_one_piece(inside: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return True if a box of the given lengths is contiguous in a C-ordered array of the given shape."""
    apart = [i for i, (n, whole) in enumerate(zip(inside, shape, strict=True)) if n != whole]
    return not apart or math.prod(inside[: apart[-1]]) <= 1 or 0 in inside
