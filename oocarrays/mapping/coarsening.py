"""Coarser arrays: each element stands for a group of elements of a finer one, or for all of an axis.

    fine      0 1 2 │ 3 4 5 │ 6 7 8 │ 9      factor 3: the last group is what is left
    coarse      0   │   1   │   2   │ 3

    days      31 of them │ 28 │ 31 │ …       lengths, one a group
    months         0     │  1 │  2 │

    times     0 1 2 3 4 5 6 7 8 9            all of the axis, for which some elements stand together; or none, where no
    waves     0   1   2   3   4              axis is left of it; and axes that stand for none have all of theirs at once

N-d is the product of one-axis answers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from oocarrays.errors import InputError
from oocarrays.mapping.grid import ceil_div
from oocarrays.mapping.section import Section


@dataclass(frozen=True, slots=True)
class Together:
    """Elements of an axis that stand for all of another one together, or for none."""

    length: int
    """How many there are."""


Factor = int | tuple[int, ...] | Together
"""Elements of each group along an axis: the same number for all, or one for each; or those that stand for all."""


@dataclass(frozen=True, slots=True)
class Coarsening:
    """How many elements of a finer array each element stands for, along each axis."""

    factors: tuple[Factor, ...]
    """Of each axis."""
    axes: tuple[int | None, ...] = ()
    """The axis of the finer array that each axis is of; None of one that stands for none. Empty, where they are all of
    those in their order."""

    @classmethod
    def of(cls, factors: Sequence[int | Sequence[int]], shape: Sequence[int]) -> Coarsening:
        """Return the coarsening of an array of this shape, checked."""
        if len(factors) != len(shape):
            raise InputError(f"factor={tuple(factors)!r} has {len(factors)} axes; the array has {len(shape)}")
        return cls(tuple(_checked(each, n) for each, n in zip(factors, shape, strict=True)))

    @property
    def plain(self) -> bool:
        return not self.axes and all(factor == 1 for factor in self.factors)

    @property
    def of_axes(self) -> tuple[int | None, ...]:
        """The axis of the finer array that each axis is of; None of one that stands for none."""
        return self.axes or tuple(range(len(self.factors)))

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self.section(Section((0,) * len(shape), tuple(shape))).upper

    def factor(self, axis: int) -> Factor | None:
        """The factor of what is of an axis of the finer array; None where nothing is."""
        return self.factors[self.of_axes.index(axis)] if axis in self.of_axes else None

    def unit(self, axis: int, extent: int) -> int:
        """Elements of which a part must be a multiple, or go up to the end, so that it cuts no group."""
        factor = self.factor(axis)
        return min(factor, max(extent, 1)) if isinstance(factor, int) else max(extent, 1)

    def chunk(self, axis: int, chunks: Sequence[int]) -> int | None:
        """The elements along an axis for which a chunk stands; None where a part of the axis has no whole chunk."""
        factor = self.factor(axis)
        return chunks[self.of_axes.index(axis)] * factor if isinstance(factor, int) else None

    def section(self, fine: Section) -> Section:
        """The elements that stand for those of a section that cuts no group."""
        ends = zip(self.factors, self.of_axes, strict=True)
        pairs = [_ends_of(factor, fine, axis) for factor, axis in ends]
        return Section(tuple(lower for lower, _ in pairs), tuple(upper for _, upper in pairs))

    def resized(self, lengths: Mapping[int, int]) -> Coarsening:
        """The same with so many elements of some axes that stand for all of theirs."""
        factors = (Together(lengths[axis]) if axis in lengths else own for axis, own in enumerate(self.factors))
        return Coarsening(tuple(factors), self.axes)

    def reshaped(self, dropped: Sequence[int], new: Mapping[int, int]) -> Coarsening:
        """The same without what is of some axes of the finer array, and with axes that stand for none."""
        pairs = zip(self.factors, self.of_axes, strict=True)
        axes = [(factor, axis) for factor, axis in pairs if axis not in dropped]
        for place in sorted(new):
            axes.insert(place, (Together(new[place]), None))
        return Coarsening(tuple(factor for factor, _ in axes), tuple(axis for _, axis in axes))

    def then(self, factors: Sequence[int]) -> Coarsening:
        """The same with groups of its elements, of so many along each axis, for an element."""
        pairs = zip(self.factors, factors, strict=True)
        return Coarsening(tuple(math.prod([own, more]) for own, more in pairs if isinstance(own, int)))


def _ends_of(factor: Factor, fine: Section, axis: int | None) -> tuple[int, int]:
    """The elements along an axis that stand for those of a section of the finer array."""
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
    lengths = list(factor) if isinstance(factor, Sequence) and not isinstance(factor, str) else [factor]
    if not lengths or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in lengths):
        raise InputError(f"factor={factor!r} is neither a whole number from 1 on nor the lengths of an axis's groups")
    if not isinstance(factor, Sequence):
        return factor
    if sum(lengths) != extent:
        raise InputError(f"factor={_few(lengths)} are groups of {sum(lengths)} elements; the axis has {extent}")
    return tuple(lengths)


def _few(lengths: Sequence[int]) -> str:
    return ", ".join(map(str, lengths[:4])) + (", …" if len(lengths) > 4 else "")


def pieces(factors: Sequence[int], shape: Sequence[int]) -> Iterator[tuple[tuple[slice, slice, int], ...]]:
    """Split a block into whole groups and the rest along each axis; yield position, result and factor of each part."""
    if not factors:
        yield ()
        return
    factor, extent = factors[0], shape[0]
    whole = extent // factor
    ends = whole * factor
    parts = [(slice(0, ends), slice(0, whole), factor)] if whole else []
    parts += [(slice(ends, extent), slice(whole, whole + 1), extent - ends)] if ends < extent else []
    for part in parts:
        for rest in pieces(factors[1:], shape[1:]):
            yield (part, *rest)
