"""Partitions of an array on disk, each in the memory of all ranks together: the partitioned in-core model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from oocarrays.distributed.collective import read_sections
from oocarrays.distributed.distributed_array import DistributedArray
from oocarrays.errors import BudgetError, LayoutError
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.section import Section
from oocarrays.options.asked import cluster_of, resources_of
from oocarrays.plan.files.partitions import partitions
from oocarrays.stored.array import StoredArray


def partitions_of(a: StoredArray, layout: Any = None, *, grid: Any = None, **how: Any) -> Iterator[DistributedArray]:
    """The array in partitions, as `OutOfCoreArray.partitions` says."""
    wanted: Any = a.layout if layout is None else layout
    if wanted is None:
        raise LayoutError(f"{a.store} has no layout: give one, such as '(block, *)', and ranks=")
    if isinstance(wanted, Layout):
        wanted, grid = list(wanted.distributions), wanted.grid if grid is None else grid
    read = partial(read_sections, a, wanted, grid=grid, **how)
    cut = _fitting(a, read, **{name: how.get(name) for name in ("memory", "scheduler", "workers")})
    return (read(within=section).as_partition(section) for section in cut)


def _fitting(a: StoredArray, read: Any, *, memory: Any, scheduler: Any, workers: Any) -> Sequence[Section]:
    """Boxes of whole chunks that take half of the memory, or as much as can be: the rest is for reading them."""
    stored = a._file.stored
    resources = resources_of(cluster_of(scheduler, workers), memory)
    room = min(stored.grid.count, resources.budget * (resources.workers or 1) // (2 * stored.chunk_bytes))
    while True:
        cut = partitions(stored.grid, max(room, 1))
        try:
            for section in cut[:1]:
                read(within=section)
            return cut
        except BudgetError:
            if room <= 1:
                raise
            room //= 2
