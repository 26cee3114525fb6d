"""How often the tasks of a layer of blocks read each chunk: once for each block along the indices that a read has not.

out[i, j, k] = a[k, i] · b[k, j]       a is read for every j: as often as b has blocks along that axis
out[i, j, k] = a[k, i] · a[k, j]       both reads of a are repeated as a itself is cut
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dask.blockwise import Blockwise
from dask.layers import ArraySliceDep

from oocarrays.plan.advice.access import Repeat


class BlockRead(NamedTuple):
    """A read of a layer of blocks."""

    name: str
    """Of the array."""
    indices: set[str]
    """Of its blocks."""
    axes: dict[str, int]
    """Axes of the array by the indices of their blocks, where all of them are read."""


def reads_blocks(layer: Any) -> bool:
    """Whether a layer of blocks reads by slices."""
    return isinstance(layer, Blockwise) and any(isinstance(dep, ArraySliceDep) for dep in layer.io_deps.values())


def repeat_of(layer: Blockwise, read: BlockRead, reads: Sequence[BlockRead]) -> Repeat:
    """Return how often one read of a layer is done: for each block along the indices that it has not."""
    times, axes = 1, []
    of: set[str] = set()
    for index in layer.output_indices:
        if index in read.indices:
            continue
        owners = {each.name: each.axes[index] for each in reads if index in each.axes}
        if read.name in owners:
            axes.append(owners[read.name])
        else:
            times *= layer.dims[index]
            of |= owners.keys()
    return Repeat(times, tuple(axes), tuple(sorted(of)))
