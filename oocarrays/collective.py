"""Collective reads: what every rank wants of one array on disk, read once for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dask.highlevelgraph import HighLevelGraph

from oocarrays.array import OutOfCoreArray, open_array
from oocarrays.asked import cluster_of
from oocarrays.distributed_array import DistributedArray, LayoutLike, layout_for
from oocarrays.graphs import settings
from oocarrays.graphs.collective import collective_read
from oocarrays.graphs.parts import Parts, layered
from oocarrays.plan.collective import plan_collective, requests_of
from oocarrays.plan.schedule import complete_exchange
from oocarrays.storage.array_file import describe

if TYPE_CHECKING:
    from distributed import Client


def read_layout(
    a: OutOfCoreArray | Any,
    layout: LayoutLike,
    *,
    ranks: int | None = None,
    scheduler: Client | str | None = None,
    workers: Sequence[str] | None = None,
) -> DistributedArray:
    """The parts of a layout, read collectively. The spine of ``read_sections``."""
    a = a if isinstance(a, OutOfCoreArray) else open_array(a)
    cluster = cluster_of(scheduler, workers)
    there = [worker.address for worker in cluster.workers()] if cluster else []
    wanted = layout_for(a.shape, layout, ranks=ranks, grid=None, about=len(there) or settings.local_cores())
    file = describe(a.zarr)
    plan = plan_collective(file.stored, requests_of(wanted))

    def build() -> Parts:
        schedule = complete_exchange(wanted.ranks) if there else None
        made = collective_read(file, plan, schedule, there)
        name = f"parts-{made.suffix}"
        return Parts(
            layout=wanted,
            dtype=file.dtype,
            graph=layered(HighLevelGraph({}, {}), name, made.tasks),
            name=name,
            keys=made.keys,
            homes=made.homes,
        )

    return DistributedArray(wanted, file.dtype, build, cluster=cluster, workers=there)
