"""Coarser arrays: each element stands for a group of elements of a finer one.

    fine      0 1 2 │ 3 4 5 │ 6 7 8 │ 9      factor 3: the last group is what is left
    coarse      0   │   1   │   2   │ 3

    days      31 of them │ 28 │ 31 │ …       lengths, one a group
    months         0     │  1 │  2 │

N-d is the product of one-axis answers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from oocarrays.errors import InputError
from oocarrays.mapping.grid import ceil_div
from oocarrays.mapping.section import Section

Factor = int | tuple[int, ...]
"""Elements of each group along an axis: the same number for all, or one for each."""


@dataclass(frozen=True, slots=True)
class Coarsening:
    """How many elements of a finer array each element stands for, along each axis.

    >>> year = Coarsening(((31, 28, 31), 2))
    >>> year.shape((90, 5)), year.section(Section((0, 2), (90, 5)))
    ((3, 3), Section(lower=(0, 1), upper=(3, 3)))
    """

    factors: tuple[Factor, ...]
    """Of each axis."""

    @classmethod
    def of(cls, factors: Sequence[int | Sequence[int]], shape: Sequence[int]) -> Coarsening:
        """Return the coarsening of an array of this shape, checked.

        Raises
        ------
        InputError
            Where there is not one factor an axis, one is not whole and positive, or lengths are not those of an axis.
        """
        if len(factors) != len(shape):
            raise InputError(f"factor={tuple(factors)!r} has {len(factors)} axes; the array has {len(shape)}")
        return cls(tuple(_checked(each, n) for each, n in zip(factors, shape, strict=True)))

    @property
    def plain(self) -> bool:
        """Whether nothing is coarser."""
        return all(factor == 1 for factor in self.factors)

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of what is made of an array of some shape."""
        pairs = zip(self.factors, shape, strict=True)
        return tuple(ceil_div(n, factor) if isinstance(factor, int) else len(factor) for factor, n in pairs)

    def unit(self, axis: int, extent: int) -> int:
        """Elements of which a part must be a multiple, or go up to the end, so that it cuts no group."""
        factor = self.factors[axis]
        return min(factor, max(extent, 1)) if isinstance(factor, int) else max(extent, 1)

    def section(self, fine: Section) -> Section:
        """The elements that stand for those of a section that cuts no group."""
        ends = zip(self.factors, fine.lower, fine.upper, strict=True)
        pairs = [(_place(factor, lower), _place(factor, upper)) for factor, lower, upper in ends]
        return Section(tuple(lower for lower, _ in pairs), tuple(upper for _, upper in pairs))

    def then(self, factors: Sequence[int]) -> Coarsening:
        """The same with groups of its elements, of so many along each axis, for an element.

        >>> Coarsening((2, 1)).then((2, 3))
        Coarsening(factors=(4, 3))
        """
        pairs = zip(self.factors, factors, strict=True)
        return Coarsening(tuple(math.prod([own, more]) for own, more in pairs if isinstance(own, int)))


def _place(factor: Factor, element: int) -> int:
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
    """Lengths as text, of many the first.

    >>> _few([31, 28]), _few(range(9))
    ('31, 28', '0, 1, 2, 3, …')
    """
    return ", ".join(map(str, lengths[:4])) + (", …" if len(lengths) > 4 else "")


def pieces(factors: Sequence[int], shape: Sequence[int]) -> Iterator[tuple[tuple[slice, slice, int], ...]]:
    """Cut a block into up to two parts an axis, whole groups and the rest: where each is, what it becomes, its factor.

    >>> list(pieces([2], [5]))
    [((slice(0, 4, None), slice(0, 2, None), 2),), ((slice(4, 5, None), slice(2, 3, None), 1),)]
    """
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
