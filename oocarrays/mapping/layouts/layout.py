"""Layout of an N-d array over ranks: a distribution for each axis, over a grid of ranks.

    (block, *) on 4 × 1        (block, cyclic) on 2 × 2
    ┌───────────────┐          ┌─┬─┬─┬─┬─┬─┐
    │ 0 0 0 0 0 0 0 │          │0│1│0│1│0│1│
    │ 1 1 1 1 1 1 1 │          │0│1│0│1│0│1│
    │ 2 2 2 2 2 2 2 │          │2│3│2│3│2│3│
    │ 3 3 3 3 3 3 3 │          │2│3│2│3│2│3│
    └───────────────┘          └─┴─┴─┴─┴─┴─┘

N-d is the product of one-axis results. Ranks are numbered along the grid, its last axis fastest (as in MPI's
Cartesian topologies).

    12 ranks over (block, *, block)         4 × 1 × 3
    12 ranks over (gen_block(1,2), block)   2 × 6        a gen_block determines its number of ranks

An axis that is not distributed has one rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from numbers import Integral
from pkgutil import resolve_name
from typing import Any, cast

import numpy as np

from oocarrays.errors import LayoutError
from oocarrays.mapping.given import extents, listed, whole, wholes
from oocarrays.mapping.grid import ravel, unravel
from oocarrays.mapping.layouts.distribution import (
    MOST_RANKS,
    Asked,
    Axis,
    Block,
    Collapsed,
    Cyclic,
    Distribution,
    GenBlock,
    Ints,
    is_block,
    parse_layout,
    written,
)
from oocarrays.mapping.section import Section


def process_grid(
    distributions: Sequence[Distribution], *, ranks: int | None = None, grid: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Return the number of ranks along each axis, 1 if it is not distributed."""
    if ranks is not None:
        ranks = whole(ranks, "ranks", 1, error=LayoutError)
        if ranks > MOST_RANKS:
            raise LayoutError(f"ranks={ranks} exceeds {MOST_RANKS}, the maximum of a layout")
    if grid is None:
        return _dealt_out(distributions, ranks)
    given = wholes(grid, "grid", error=LayoutError)
    spread = [not isinstance(each, Collapsed) for each in distributions]
    if len(given) == sum(spread):
        along = iter(given)
        given = tuple(next(along) if each else 1 for each in spread)
    if len(given) != len(spread) or min(given, default=1) < 1:
        raise LayoutError(f"grid={given} must have a whole number, at least 1, for each of {len(spread)} axes")
    if ranks not in (None, math.prod(given)):
        raise LayoutError(f"grid={given} has {math.prod(given)} ranks, but ranks={ranks}")
    if math.prod(given) > MOST_RANKS:
        raise LayoutError(f"grid={given} has more than {MOST_RANKS} ranks, the maximum of a layout")
    return given


def even_grid(ranks: int, axes: int) -> tuple[int, ...]:
    """Return the ranks along each axis, descending: the first number is minimal, then the next, and so on.

    This is the specification of MPI_Dims_create (MPI 4.0, section 8.5.2), which some implementations do not meet.
    """
    if axes < 2:
        return (ranks,) * axes
    for first in range(1, ranks):
        if ranks % first == 0 and first**axes >= ranks:
            rest = even_grid(ranks // first, axes - 1)
            if rest[0] <= first:
                return (first, *rest)
    return (ranks, *(1,) * (axes - 1))


def _dealt_out(distributions: Sequence[Distribution], ranks: int | None) -> tuple[int, ...]:
    """Return the ranks along each axis, distributing them over axes without a number of their own."""
    own = [_own(each) for each in distributions]
    free, taken = own.count(None), math.prod(n for n in own if n is not None)
    if ranks is None and free:
        raise LayoutError(f"{written(distributions)} works for any number of ranks: pass ranks= or grid=")
    wanted = taken if ranks is None else ranks
    if wanted % taken or (wanted != taken and not free):
        accepted = f"a multiple of {taken}" if free else f"{taken}"
        raise LayoutError(f"ranks={ranks} does not fit {written(distributions)}, which takes {accepted}")
    counts = iter(even_grid(wanted // taken, free))
    return tuple(next(counts) if n is None else n for n in own)


def _own(distribution: Distribution) -> int | None:
    """Return the number of ranks that the distribution itself determines, or None."""
    if isinstance(distribution, GenBlock):
        return max(len(distribution.sizes), 1)
    return 1 if isinstance(distribution, Collapsed) else None


@dataclass(frozen=True, repr=False)
class Layout:
    """Distributions × process grid.

    >>> layout = Layout.of((8, 6), "(block, cyclic)", ranks=4)
    >>> layout
    Layout.of((8, 6), '(block, cyclic) on 2 × 2')
    >>> layout.ranks, layout.local_shape(1), layout.owner((5, 2)), layout.place((5, 2)), layout.index(2, (1, 1))
    (4, (4, 3), 2, (1, 1), (5, 2))
    """

    shape: tuple[int, ...]
    """Extent of each axis, in elements."""
    distributions: tuple[Distribution, ...]
    """Distribution of each axis."""
    grid: tuple[int, ...]
    """Number of ranks along each axis."""

    @classmethod
    def of(
        cls,
        shape: int | Sequence[int],
        distributions: Asked,
        *,
        ranks: int | None = None,
        grid: Sequence[int] | None = None,
    ) -> Layout:
        """Return a validated layout.

        Parameters
        ----------
        shape : int or sequence of int
            Extent of each axis, in elements.
        distributions : str, Distribution or sequence of them
            One for each axis: ``"(block, *)"``, ``"cyclic(3)"``, ``[Cyclic(3), "*", (5, 7)]``, where ``(5, 7)`` are the
            blocks of a `GenBlock`. A string may name the grid too, as a layout's own does: ``"(block, *) on 4 × 1"``.
        ranks : int
            Number of ranks, if no grid is given: they are divided over the distributed axes as evenly as possible.
        grid : sequence of int
            Ranks along each axis, 1 if it is not distributed: a number for each axis, or for each distributed one.

        Raises
        ------
        LayoutError
            If they do not fit each other, the array or the ranks.
        """
        shape = extents(shape, error=LayoutError)
        parsed, named = parse_layout(distributions)
        if len(parsed) != len(shape):
            raise LayoutError(f"{written(parsed)} has {len(parsed)} axes; the array has {len(shape)}: shape {shape}")
        if grid is not None and named is not None:
            raise LayoutError(f"{distributions!r} names a grid, but grid={grid} is another: pass one of them")
        made = cls(shape, parsed, process_grid(parsed, ranks=ranks, grid=named or grid))
        _ = made.axes  # validates distributions early
        return made

    @classmethod
    def from_chunks(cls, chunks: Sequence[Sequence[int]]) -> Layout:
        """Return the layout of a Dask array's ``chunks``, with one block per rank.

        >>> Layout.from_chunks(((5, 5, 2), (6,)))
        Layout.of((12, 6), '(gen_block(5,5,2), *) on 3 × 1')

        Raises
        ------
        LayoutError
            If the blocks' lengths are not known.
        """
        blocks = [listed(each, "chunks", error=LayoutError) for each in listed(chunks, "chunks", error=LayoutError)]
        if not all(isinstance(length, Integral) for lengths in blocks for length in lengths):
            raise LayoutError("chunks have unknown length (nan): call x.compute_chunk_sizes() first")
        return cls.of(list(map(sum, blocks)), [c if len(c) != 1 else Collapsed() for c in blocks])

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Each axis over its ranks."""
        return tuple(d.over(n, p) for d, n, p in zip(self.distributions, self.shape, self.grid, strict=True))

    @cached_property
    def ranks(self) -> int:
        """Number of ranks in all."""
        return math.prod(self.grid)

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Return the coordinates of ``rank`` in the grid."""
        if not 0 <= whole(rank, "rank", error=LayoutError) < self.ranks:
            raise LayoutError(f"rank {rank} is out of range for the {self.ranks} ranks of {self}")
        return unravel(rank, self.grid)

    def rank(self, coordinates: Sequence[Ints]) -> Ints:
        """Return the rank at coordinates of the grid."""
        self._inside(coordinates, self.grid)
        rank: Any = ravel(cast(Any, coordinates), self.grid)
        return cast(Ints, rank)

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """Return the number of elements of ``rank`` along each axis."""
        return tuple(axis.size(c) for axis, c in zip(self.axes, self.coordinates(rank), strict=True))

    def local_size(self, rank: int) -> int:
        """Return the number of elements of ``rank``."""
        return math.prod(self.local_shape(rank))

    def owner(self, index: Sequence[Ints]) -> Ints:
        """Return the rank that holds an element, or elements: an index for each axis, integers or arrays."""
        self._inside(index, self.shape)
        return self.rank([axis.owner(i) for axis, i in zip(self.axes, index, strict=True)])

    def place(self, index: Sequence[Ints]) -> tuple[Ints, ...]:
        """Return the indices of elements in the local arrays of their owners: global to local."""
        self._inside(index, self.shape)
        return tuple(axis.place(i) for axis, i in zip(self.axes, index, strict=True))

    def index(self, rank: int, place: Sequence[Ints]) -> tuple[Ints, ...]:
        """Return the elements at places in the local array of ``rank``: local to global."""
        self._inside(place, self.local_shape(rank))
        along = zip(self.axes, self.coordinates(rank), place, strict=True)
        return tuple(axis.index(coordinate, p) for axis, coordinate, p in along)

    def sections(self, rank: int) -> tuple[list[range], ...]:
        """Return the sections of ``rank`` along each axis; its part is their product."""
        return tuple(axis.sections(c) for axis, c in zip(self.axes, self.coordinates(rank), strict=True))

    def parts(self, rank: int) -> Iterator[Section]:
        """Return the part of ``rank`` as regular sections of the array.

        >>> list(Layout.of((5, 4), "(cyclic, block)", grid=[2, 2]).parts(1))
        [Section(lower=(0, 2), upper=(5, 4), stride=(2, 1))]
        """
        return map(Section.of, product(*self.sections(rank)))

    def _inside(self, numbers: Sequence[Ints], shape: tuple[int, ...]) -> None:
        """Raise if an index is out of range: closed forms would assign it an owner, too."""
        numbers = listed(numbers, "index", error=LayoutError)
        if len(numbers) != len(shape):
            raise LayoutError(f"an index of {len(numbers)} axes is not of an array of shape {shape}")
        for axis, (number, extent) in enumerate(zip(numbers, shape, strict=True)):
            if isinstance(number, int) and 0 <= number < extent:
                continue
            given = np.asarray(number)
            if given.dtype.kind not in "iu":
                raise LayoutError(f"index {number} is out of range for axis {axis} with {extent} elements")
            outside = given[(given < 0) | (given >= extent)]
            if outside.size:
                raise LayoutError(f"index {outside[0]} is out of range for axis {axis} with {extent} elements")

    def __str__(self) -> str:
        return written(self.distributions, self.grid)

    def __repr__(self) -> str:
        return f"Layout.of({self.shape}, {str(self)!r})"

    def _repr_html_(self) -> str:
        html: str = resolve_name("oocarrays.show.notebook:layout_html")(self)  # a layer above
        return html


LayoutLike = Layout | Asked
"""A layout, or distributions as `Layout.of` takes them."""


def layout_for(
    shape: Sequence[int], layout: LayoutLike, *, ranks: int | None, grid: Sequence[int] | None, about: int | None
) -> Layout:
    """Return the given layout; without ranks in it, over ``about`` ranks; raise if that is None."""
    shape = extents(shape, error=LayoutError)
    ranks = None if ranks is None else whole(ranks, "ranks", 1, error=LayoutError)
    if isinstance(layout, Layout):
        if layout.shape != shape:
            raise LayoutError(f"the layout {layout} is of shape {layout.shape}; the array has shape {shape}")
        if grid is not None or ranks not in (None, layout.ranks):
            asked = f"grid={grid}" if grid is not None else f"ranks={ranks}"
            raise LayoutError(f"the layout {layout} has its own ranks: omit {asked}")
        return layout
    distributions, named = parse_layout(layout)
    free = any(isinstance(d, Block | Cyclic) for d in distributions)
    if about is not None and free and ranks is None and grid is None and named is None:
        known = math.prod(len(d.sizes) for d in distributions if isinstance(d, GenBlock))
        ranks = known * max(about // max(known, 1), 1)
    return Layout.of(shape, layout, ranks=ranks, grid=grid)


def is_blocks(layout: Layout) -> bool:
    """Return whether every rank holds one block or nothing, in the order of the ranks, as in Dask's arrays."""
    return all(map(is_block, layout.axes))


def block_lengths(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """Return the lengths of a Dask array's blocks for a block layout, without empty ranks."""
    return tuple(tuple(axis.size(r) for r in held) for axis, held in zip(layout.axes, holders(layout), strict=True))


def holders(layout: Layout) -> list[list[int]]:
    """Return the ranks with elements along each axis; the first rank if all are empty."""
    return [[rank for rank in range(axis.ranks) if axis.size(rank)] or [0] for axis in layout.axes]
