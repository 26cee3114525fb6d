"""The thesis's closed formulas of the runs between two distributions of an axis: Thakur 1995, sections 3.3 to 3.5."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from oocarrays.mapping.layouts.distribution import BlockCyclicAxis
from oocarrays.plan.layouts.runs import Runs, _repeated, block_to_cyclic


def ky_to_y(source: BlockCyclicAxis, target: BlockCyclicAxis) -> Runs:
    """Return the runs from cyclic(k · y) to cyclic(y) (Thakur 1995, 3.5.1, Figure 3.9).

    The k parts of a block go to k ranks in turn. All blocks of a rank have the same sequence of target ranks; in the
    printed formula it does not repeat if k does not divide the number of ranks.
    """
    k = source.block // target.block
    ranks = np.repeat(np.arange(source.ranks), k)
    part = np.arange(source.ranks * k)
    first = Runs(
        source=ranks,
        target=part % target.ranks,
        source_start=part % k * target.block,
        target_start=part // target.ranks * target.block,
        length=np.full_like(part, target.block),
        count=np.ones_like(part),
        source_stride=np.full_like(part, source.block),
        target_stride=np.full_like(part, source.block),
    )
    return _repeated(first, source.extent - part * target.block, source.period)


FORMULAS: dict[str, Callable[..., Runs]] = {
    "block-to-cyclic": block_to_cyclic,
    "cyclic-to-block": lambda source, target: block_to_cyclic(target, source).reversed(),
    "ky-to-y": ky_to_y,
    "x-to-kx": lambda source, target: ky_to_y(target, source).reversed(),
}
"""The formulas, by name; the first two are used."""
