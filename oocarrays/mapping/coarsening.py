"""Coarser arrays: each element represents a group of elements of a finer one, or a whole axis.

    fine      0 1 2 │ 3 4 5 │ 6 7 8 │ 9      factor 3: the last group is the remainder
    coarse      0   │   1   │   2   │ 3

    days      31 of them │ 28 │ 31 │ …       lengths, one a group
    months         0     │  1 │  2 │

    times     0 1 2 3 4 5 6 7 8 9            the whole axis, represented by some elements together; or none, if no
    waves     0   1   2   3   4              axis remains; and new axes, always computed as a whole

N-d is the product of one-axis results.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, product

from oocarrays.errors import InputError
from oocarrays.mapping.along import range_cuts
from oocarrays.mapping.given import index_of
from oocarrays.mapping.grid import ceil_div
from oocarrays.mapping.section import Section


@dataclass(frozen=True, slots=True)
class Together:
    """Elements of an axis that together represent a whole finer axis, or none."""

    length: int


Factor = int | tuple[int, ...] | Together
"""Elements of each group along an axis: one number for all, one for each, or `Together`."""


@dataclass(frozen=True, slots=True)
class Coarsening:
    """Number of elements of a finer array that each element represents, along each axis."""

    factors: tuple[Factor, ...]
    axes: tuple[int | None, ...] = ()
    """Axis of the finer array for each axis, None for a new one; empty if the axes are the same in the same order."""

    @classmethod
    def of(cls, factors: Sequence[int | Sequence[int]], shape: Sequence[int]) -> Coarsening:
        if len(factors) != len(shape):
            raise InputError(f"factor={tuple(factors)!r} has {len(factors)} axes; the array has {len(shape)}")
        return cls(tuple(_checked(each, n) for each, n in zip(factors, shape, strict=True)))

    @property
    def of_axes(self) -> tuple[int | None, ...]:
        """Axis of the finer array for each axis, None for a new one."""
        return self.axes or tuple(range(len(self.factors)))

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self.section(Section((0,) * len(shape), tuple(shape))).upper

    def factor(self, axis: int) -> Factor | None:
        """Return the factor along an axis of the finer array; None if no axis represents it."""
        return self.factors[self.of_axes.index(axis)] if axis in self.of_axes else None

    def unit(self, axis: int, extent: int) -> int:
        """Return the unit of lengths that cut no group; a part must be a multiple of it or extend to the end."""
        factor = self.factor(axis)
        return min(factor, max(extent, 1)) if isinstance(factor, int) else max(extent, 1)

    def chunk(self, axis: int, chunks: Sequence[int]) -> int | None:
        """Return the elements along an axis that a chunk represents; None if a part of the axis has no whole chunk."""
        factor = self.factor(axis)
        return chunks[self.of_axes.index(axis)] * factor if isinstance(factor, int) else None

    def section(self, fine: Section) -> Section:
        """Return the elements that represent a section that cuts no group."""
        ends = zip(self.factors, self.of_axes, strict=True)
        pairs = [_ends_of(factor, fine, axis) for factor, axis in ends]
        return Section(tuple(lower for lower, _ in pairs), tuple(upper for _, upper in pairs))

    def resized(self, lengths: Mapping[int, int]) -> Coarsening:
        """Return the coarsening with these lengths of some axes that represent whole axes."""
        factors = (Together(lengths[axis]) if axis in lengths else own for axis, own in enumerate(self.factors))
        return Coarsening(tuple(factors), self.axes)

    def reshaped(self, dropped: Sequence[int], new: Mapping[int, int]) -> Coarsening:
        """Return the coarsening without some axes of the finer array, and with new axes."""
        pairs = zip(self.factors, self.of_axes, strict=True)
        axes = [(factor, axis) for factor, axis in pairs if axis not in dropped]
        for place in sorted(new):
            axes.insert(place, (Together(new[place]), None))
        return Coarsening(tuple(factor for factor, _ in axes), tuple(axis for _, axis in axes))

    def then(self, factors: Sequence[int]) -> Coarsening:
        """Return the coarsening followed by another one with these factors."""
        pairs = zip(self.factors, factors, strict=True)
        return Coarsening(tuple(math.prod([own, more]) for own, more in pairs if isinstance(own, int)))


def _ends_of(factor: Factor, fine: Section, axis: int | None) -> tuple[int, int]:
    """Return the ends of the elements along an axis that represent a section of the finer array."""
    if isinstance(factor, Together):
        return 0, factor.length
    assert axis is not None, "only elements that stand together can stand for none"
    return _place(factor, fine.lower[axis]), _place(factor, fine.upper[axis])


def _place(factor: int | tuple[int, ...], element: int) -> int:
    return ceil_div(element, factor) if isinstance(factor, int) else bisect_left(_ends(factor), element)


@lru_cache(64)
def _ends(lengths: tuple[int, ...]) -> list[int]:
    return [0, *accumulate(lengths)]


def _checked(factor: int | Sequence[int], extent: int) -> Factor:
    given = list(factor) if isinstance(factor, Sequence) and not isinstance(factor, str) else [factor]
    lengths = [number for each in given if (number := index_of(each)) is not None and number > 0]
    if not lengths or len(lengths) < len(given):
        raise InputError(f"factor={factor!r} is neither a whole number of at least 1 nor a sequence of group lengths")
    if not isinstance(factor, Sequence):
        return lengths[0]
    if sum(lengths) != extent:
        few = ", ".join(map(str, lengths[:4])) + (", …" if len(lengths) > 4 else "")
        raise InputError(f"factor={few} adds up to {sum(lengths)} elements; the axis has {extent}")
    return tuple(lengths)


def pieces(factors: Sequence[int], shape: Sequence[int]) -> Iterator[tuple[tuple[slice, slice, int], ...]]:
    """Split a block into whole groups and the rest along each axis: position, result and factor of each part."""
    along = (range_cuts(range(extent), factor) for factor, extent in zip(factors, shape, strict=True))
    return product(*([(c.out, slice(c.chunks.start, c.chunks.stop), len(c.inside)) for c in cuts] for cuts in along))
