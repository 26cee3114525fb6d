"""Ranks along each axis of an array, as even as can be.

    12 ranks over (block, *, block)         4 × 1 × 3
    12 ranks over (gen_block(1,2), block)   2 × 6        a gen_block brings its own number

An axis that is not distributed has one rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from oocarrays.errors import LayoutError
from oocarrays.mapping.given import whole, wholes
from oocarrays.mapping.layouts.distribution import MOST_RANKS, Collapsed, Distribution, GenBlock
from oocarrays.mapping.layouts.hpf import written


def process_grid(
    distributions: Sequence[Distribution], *, ranks: int | None = None, grid: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Ranks along each axis, 1 where it is not distributed.

    Examples
    --------
    >>> process_grid([GenBlock((1, 2)), Collapsed()]), process_grid([GenBlock((1, 2)), Collapsed()], grid=[2])
    ((2, 1), (2, 1))
    """
    if ranks is not None:
        ranks = whole(ranks, "ranks", 1, error=LayoutError)
        if ranks > MOST_RANKS:
            raise LayoutError(f"ranks={ranks} are more than the {MOST_RANKS} that a layout can have")
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
        raise LayoutError(f"grid={given} has {math.prod(given)} ranks; ranks={ranks} are asked for")
    if math.prod(given) > MOST_RANKS:
        raise LayoutError(f"grid={given} has more than the {MOST_RANKS} ranks that a layout can have")
    return given


def even_grid(ranks: int, axes: int) -> tuple[int, ...]:
    """Ranks along each of some axes, descending: the greatest number is as small as can be, then the next, and so on.

    What MPI_Dims_create is specified to do (MPI 4.0, section 8.5.2), and what not all its implementations do.

    >>> even_grid(12, 2), even_grid(72, 2), even_grid(12, 3), even_grid(7, 2), even_grid(1, 0)
    ((4, 3), (9, 8), (3, 2, 2), (7, 1), ())
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
    """Ranks over the distributed axes that bring no number of their own."""
    own = [_own(each) for each in distributions]
    free, taken = own.count(None), math.prod(n for n in own if n is not None)
    if ranks is None and free:
        raise LayoutError(f"{written(distributions)} takes any number of ranks: give ranks=, or grid=")
    wanted = taken if ranks is None else ranks
    if wanted % taken or (wanted != taken and not free):
        accepted = f"a multiple of {taken}" if free else f"{taken}"
        raise LayoutError(f"ranks={ranks} cannot be dealt out over {written(distributions)}: it takes {accepted}")
    counts = iter(even_grid(wanted // taken, free))
    return tuple(next(counts) if n is None else n for n in own)


def _own(distribution: Distribution) -> int | None:
    """Return the ranks along its axis where the distribution itself says how many, else None."""
    if isinstance(distribution, GenBlock):
        return max(len(distribution.sizes), 1)
    return 1 if isinstance(distribution, Collapsed) else None
