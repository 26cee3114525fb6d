"""Multicasts: a section that one rank has, or several, to all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oocarrays.arrays.local_array import LocalArrays
from oocarrays.distributed.distributed_array import DistributedArray
from oocarrays.distributed.rank_arrays import Where
from oocarrays.distributed.rank_blocks import RankBlocks
from oocarrays.errors import InputError
from oocarrays.graphs.cluster.workers import check_reach
from oocarrays.graphs.collective.multicast import cast
from oocarrays.jobs.shifting import refuse_means
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Selection
from oocarrays.options.asked import cluster_of
from oocarrays.plan.layouts.multicast import MulticastPlan, plan_multicast

if TYPE_CHECKING:
    from distributed import Client


def multicast(
    x: DistributedArray | LocalArrays,
    section: Any,
    *,
    root: int | None = None,
    scheduler: Client | str | None = None,
    workers: Sequence[str] | None = None,
) -> RankBlocks[MulticastPlan]:
    """Give every rank a section of what ranks have, read once, and sent on in a tree. Computes nothing.

    Parameters
    ----------
    x : DistributedArray or LocalArrays
        What the section is of; it may lie with several ranks.
    section : numpy index or Section
        What all ranks get: sequences of indices take their product.
    root : int, optional
        The rank that has it first; by default the one that has most of it.
    scheduler, workers
        Of local array files, as in `rechunk`; those on workers' own disks are read there.

    Returns
    -------
    RankBlocks
        Of each rank the same, lazy, and not to be changed: on threads it is one array.

    Raises
    ------
    InputError
        `SelectionError` where the section is not inside the array, `LayoutError` where there is no such rank.

    Notes
    -----
    Thakur 1995, section 5.4 (PASSION_oc_multicast).

    Examples
    --------
    >>> import numpy as np
    >>> import oocarrays as ooc
    >>> x = ooc.distribute(np.arange(6), "block", ranks=3, scheduler="threads")
    >>> multicast(x, np.s_[1:4]).compute()
    [array([1, 2, 3]), array([1, 2, 3]), array([1, 2, 3])]
    """
    if not isinstance(x, DistributedArray | LocalArrays):
        raise InputError(f"x={type(x).__name__} is neither a DistributedArray nor LocalArrays")
    key = tuple(map(slice, section.lower, section.upper, section.stride)) if isinstance(section, Section) else section
    plan = plan_multicast(x.layout, Selection.of(key, x.shape), root, x.dtype.itemsize)
    if isinstance(x, DistributedArray):
        refuse_means(scheduler=scheduler, workers=workers)
        here = Where(x.cluster, x.workers)
        return RankBlocks(plan, x.dtype, lambda: cast(plan, x.dtype, x.workers, parts=x.tasks, meter=here.meter), here)
    cluster = cluster_of(x.disks.client or scheduler, workers)
    there = x.disks.addresses() if x.disks.workers else [w.address for w in cluster.workers()] if cluster else []
    if cluster:
        check_reach({"store": x.files.store})
    where = Where(cluster, tuple(there))
    return RankBlocks(plan, x.dtype, lambda: cast(plan, x.dtype, there, files=x.files, meter=where.meter), where)
