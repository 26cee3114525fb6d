"""Layouts as a person asks for them: words, distributions, or a layout."""

from __future__ import annotations

import math
from collections.abc import Sequence

from oocarrays.errors import LayoutError
from oocarrays.mapping.given import extents
from oocarrays.mapping.given import whole as whole_number
from oocarrays.mapping.layouts.distribution import Block, Cyclic, GenBlock
from oocarrays.mapping.layouts.hpf import Asked, parse_layout
from oocarrays.mapping.layouts.layout import Layout

LayoutLike = Layout | Asked
"""A layout, or distributions as `Layout.of` takes them."""


def layout_for(
    shape: Sequence[int], layout: LayoutLike, *, ranks: int | None, grid: Sequence[int] | None, about: int
) -> Layout:
    """The layout that is asked for, over ``about`` as many ranks as there are, if nothing is said of them."""
    shape = extents(shape, error=LayoutError)
    ranks = None if ranks is None else whole_number(ranks, "ranks", 1, error=LayoutError)
    if isinstance(layout, Layout):
        if layout.shape != shape:
            raise LayoutError(f"the layout {layout} is of shape {layout.shape}; the array has shape {shape}")
        if grid is not None or ranks not in (None, layout.ranks):
            asked = f"grid={grid}" if grid is not None else f"ranks={ranks}"
            raise LayoutError(f"the layout {layout} has its own ranks: leave {asked} out")
        return layout
    distributions, named = parse_layout(layout)
    if ranks is None and grid is None and named is None and any(isinstance(d, Block | Cyclic) for d in distributions):
        known = math.prod(len(d.sizes) for d in distributions if isinstance(d, GenBlock))
        ranks = known * max(about // max(known, 1), 1)
    return Layout.of(shape, layout, ranks=ranks, grid=grid)
