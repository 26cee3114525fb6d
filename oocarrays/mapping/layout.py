"""Which rank holds which element of an N-d array: a distribution for each axis, over a grid of ranks.

    (block, *) on 4 × 1        (block, cyclic) on 2 × 2
    ┌───────────────┐          ┌─┬─┬─┬─┬─┬─┐
    │ 0 0 0 0 0 0 0 │          │0│1│0│1│0│1│
    │ 1 1 1 1 1 1 1 │          │0│1│0│1│0│1│
    │ 2 2 2 2 2 2 2 │          │2│3│2│3│2│3│
    │ 3 3 3 3 3 3 3 │          │2│3│2│3│2│3│
    └───────────────┘          └─┴─┴─┴─┴─┴─┘

N-d is the product of one-axis answers. Ranks are numbered along the grid, its last axis fastest (as MPI's
Cartesian topologies are).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from oocarrays.errors import LayoutError
from oocarrays.mapping.axis import Axis, Ints
from oocarrays.mapping.distribution import Block, Collapsed, Cyclic, Distribution, GenBlock
from oocarrays.mapping.grid import unravel


@dataclass(frozen=True, slots=True)
class Layout:
    """Distributions × process grid.

    >>> layout = Layout.of((8, 6), "(block, cyclic)", ranks=4)
    >>> layout.grid, layout.local_shape(1), layout.owner((5, 2))
    ((2, 2), (4, 3), 2)
    >>> print(layout)
    (block, cyclic) on 2 × 2
    """

    shape: tuple[int, ...]
    """Extent of each axis, in elements."""
    distributions: tuple[Distribution, ...]
    """Of each axis."""
    grid: tuple[int, ...]
    """Ranks along each axis."""

    @classmethod
    def of(
        cls,
        shape: Sequence[int],
        distributions: str | Distribution | Sequence[Distribution | str],
        *,
        ranks: int | None = None,
        grid: Sequence[int] | None = None,
    ) -> Layout:
        """A layout, checked.

        Parameters
        ----------
        shape : sequence of int
            Extent of each axis, in elements.
        distributions : str, Distribution or sequence of them
            One for each axis: ``"(block, *)"``, ``"cyclic(3)"``, ``[Cyclic(3), Collapsed()]``.
        ranks : int
            Ranks in all, where no grid is given: they are dealt out over the distributed axes as evenly as can be.
        grid : sequence of int
            Ranks along each axis; 1 where an axis is not distributed. One number an axis, or one a distributed axis.

        Raises
        ------
        LayoutError
            Where they do not fit each other, the array or the ranks.
        """
        shape = tuple(int(n) for n in shape)
        parsed = parse_distributions(distributions)
        if len(parsed) != len(shape):
            raise LayoutError(f"({_listed(parsed)}) has {len(parsed)} axes; the array has {len(shape)}: shape {shape}")
        made = cls(shape, parsed, _grid(parsed, ranks, grid))
        if made.axes and ranks is not None and made.ranks != ranks:
            raise LayoutError(f"a grid of {_times(made.grid)} has {made.ranks} ranks; {ranks} are asked for")
        return made

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Each axis over its ranks."""
        return tuple(d.over(n, p) for d, n, p in zip(self.distributions, self.shape, self.grid, strict=True))

    @property
    def ranks(self) -> int:
        """Ranks in all."""
        return math.prod(self.grid)

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """The place of ``rank`` in the grid."""
        return unravel(rank, self.grid)

    def rank(self, coordinates: Sequence[Ints]) -> Ints | int:
        """The rank at a place of the grid."""
        rank: Ints | int = 0
        for count, coordinate in zip(self.grid, coordinates, strict=True):
            rank = rank * count + coordinate
        return rank

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """Elements in each axis of what ``rank`` holds."""
        return tuple(axis.size(c) for axis, c in zip(self.axes, self.coordinates(rank), strict=True))

    def local_size(self, rank: int) -> int:
        """Elements that ``rank`` holds."""
        return math.prod(self.local_shape(rank))

    def owner(self, index: Sequence[Ints]) -> Ints | int:
        """The rank that holds an element, or elements."""
        return self.rank([axis.owner(i) for axis, i in zip(self.axes, index, strict=True)])

    def sections(self, rank: int) -> tuple[list[range], ...]:
        """What ``rank`` holds along each axis, as regular sections; their product is what it holds."""
        return tuple(axis.sections(c) for axis, c in zip(self.axes, self.coordinates(rank), strict=True))

    def __str__(self) -> str:
        return f"({_listed(self.distributions)}) on {_times(self.grid)}"


def parse_distributions(asked: str | Distribution | Sequence[Distribution | str]) -> tuple[Distribution, ...]:
    """Distributions as HPF writes them.

    >>> parse_distributions("(BLOCK, cyclic(3), *)")
    (Block(length=None), Cyclic(length=3), Collapsed())
    >>> parse_distributions("gen_block(1, 2)")
    (GenBlock(sizes=(1, 2)),)

    Raises
    ------
    LayoutError
        Where a word is none of HPF's.
    """
    if isinstance(asked, Distribution):
        return (asked,)
    if isinstance(asked, str):
        text = asked.strip()
        inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
        return tuple(_parse(word, asked) for word in re.split(r",(?![^()]*\))", inner) if word.strip())
    return tuple(each if isinstance(each, Distribution) else _parse(each, each) for each in asked)


def _parse(word: str, whole: str) -> Distribution:
    match = re.fullmatch(r"\s*(block|cyclic|gen_block|\*)\s*(?:\(([\d\s,]*)\))?\s*", word.lower())
    numbers = [int(n) for n in (match[2] or "").replace(",", " ").split()] if match else []
    if match and match[1] == "gen_block":
        return GenBlock(tuple(numbers))
    if match is None or len(numbers) > 1 or (match[1] == "*" and numbers) or (match[2] is not None and not numbers):
        raise LayoutError(f"{whole!r} is not a layout such as 'cyclic(3)' or '(block, *)': {word.strip()!r}")
    made: type[Block] | type[Cyclic] = Block if match[1] == "block" else Cyclic
    return Collapsed() if match[1] == "*" else made(*numbers)


def _grid(distributions: tuple[Distribution, ...], ranks: int | None, grid: Sequence[int] | None) -> tuple[int, ...]:
    """Ranks along each axis."""
    spread = [not isinstance(each, Collapsed) for each in distributions]
    if grid is None:
        known = [len(d.sizes) if isinstance(d, GenBlock) else 0 for d in distributions]
        grid = _even_grid(ranks, known, spread)
    elif len(grid) != len(distributions) and len(grid) == sum(spread):
        given = iter(grid)
        grid = [next(given) if s else 1 for s in spread]
    if len(grid) != len(distributions) or any(n < 1 for n in grid):
        raise LayoutError(f"grid={tuple(grid)} must have one number of at least 1 for each of {len(spread)} axes")
    return tuple(int(n) for n in grid)


def _even_grid(ranks: int | None, known: list[int], spread: list[bool]) -> list[int]:
    """Ranks dealt out over the axes that are spread and have no number of their own, as evenly as can be.

    >>> _even_grid(12, [0, 0, 0], [True, False, True]), _even_grid(6, [2, 0], [True, True])
    ([4, 1, 3], [2, 3])
    """
    grid = [count or 1 for count in known]
    free = [axis for axis, (count, s) in enumerate(zip(known, spread, strict=True)) if s and not count]
    if ranks is None and free:
        raise LayoutError("give ranks=, or grid= with the ranks along each axis")
    counts = [1] * len(free)
    for factor in sorted(_factors((ranks or 1) // math.prod(grid)), reverse=True) if free else ():
        counts[counts.index(min(counts))] *= factor
    for axis, count in zip(free, sorted(counts, reverse=True), strict=True):
        grid[axis] = count
    return grid


def _factors(number: int) -> list[int]:
    """Prime factors.

    >>> _factors(12), _factors(1)
    ([2, 2, 3], [])
    """
    factors, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return factors + ([number] if number > 1 else [])


def _listed(distributions: Sequence[Distribution]) -> str:
    return ", ".join(map(str, distributions))


def _times(grid: Sequence[int]) -> str:
    return " × ".join(map(str, grid)) or "1"
