"""Halo exchange and multicast of arrays that ranks hold, in memory or in local array files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, overload

from distributed import Client

from oocarrays.arrays.local_array import LocalArrays
from oocarrays.distributed.distributed_array import DistributedArray
from oocarrays.distributed.rank_arrays import RankBlocks
from oocarrays.errors import InputError, LayoutError, TargetError
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.placement import Cluster, Where
from oocarrays.graphs.collective.multicast import cast
from oocarrays.graphs.files.shift import Shift
from oocarrays.graphs.layouts.redistribution import pieces_exchanged
from oocarrays.graphs.run.execution import check_reach
from oocarrays.graphs.run.run import Run
from oocarrays.jobs.job import Job
from oocarrays.mapping.given import refuse
from oocarrays.mapping.grid import Stored
from oocarrays.mapping.layouts.halo import Boundaries, checked_boundary
from oocarrays.mapping.layouts.local import depths
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Selection
from oocarrays.options.asked import cluster_of, ranks_on, resources_of
from oocarrays.options.given import Resources, means_of, stated_in, verb
from oocarrays.plan.documents import Document
from oocarrays.plan.exchange import ordering
from oocarrays.plan.files.shift import ShiftPlan
from oocarrays.plan.layouts.halos import HaloPlan
from oocarrays.plan.layouts.multicast import MulticastPlan, plan_multicast
from oocarrays.plan.plan import first_fitting
from oocarrays.plan.slabs.options import DepthLike
from oocarrays.requests import noted_parts
from oocarrays.storage.files.formats import dimension_names
from oocarrays.storage.files.local_files import LocalFiles
from oocarrays.storage.files.places import named
from oocarrays.storage.journal.calls import call_content

NO_FILES = "goes with local array files; a distributed array is where its ranks are"


class ShiftJob(Job[Run[Shift], LocalArrays, ShiftPlan]):
    """Planned halo refresh of local array files: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""

    def __init__(self, run: Run[Shift], a: LocalArrays, cluster: Cluster | None) -> None:
        self._array = a
        super().__init__(run, lambda name: a, cluster, a.disks)

    def _title(self) -> str:
        return f"oocarrays.ShiftJob of {self._array.store}"


@overload
def shift(
    x: DistributedArray, depth: DepthLike | None = None, *, boundary: Any = "none", resources: Resources | None = None
) -> RankBlocks[HaloPlan]: ...
@overload
def shift(
    x: LocalArrays,
    depth: DepthLike | None = None,
    *,
    boundary: Any = "none",
    memory: int | float | str | None = None,
    resume: bool | Literal["verify", "as-is"] = False,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
) -> ShiftJob: ...
@verb(resources=("workers", "schedule"))
def shift(
    x: DistributedArray | LocalArrays,
    depth: DepthLike | None = None,
    *,
    boundary: Any = "none",
    memory: int | float | str | None = None,
    resume: bool | Literal["verify", "as-is"] = False,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
) -> RankBlocks[HaloPlan] | ShiftJob:
    """Add to every rank's part the border rows of its neighbours, with corners. Computes nothing yet.

    Parameters
    ----------
    x : DistributedArray or LocalArrays
        In blocks: block, gen_block or ``*`` along each axis with a halo. Local array files have their halos on disk:
        these are refreshed, and the ranks' own elements stay unchanged.
    depth : int, sequence of int or mapping
        Halo width on each side in elements, in all axes or in each; by default 1, or that of the files. If it exceeds a
        rank's part, ranks farther away send their rows, too.
    boundary : "none", "reflect", "nearest", "periodic" or a number, or such by axis
        Values beyond the array's edges, as in `map_slabs`. "none" adds nothing there; halos in files keep their values.
    memory, scheduler
        For local array files, as in `rechunk`; files on workers' own disks are read and written there.
    resume : bool or str
        For local array files, as in `write_sections`: all halos are refreshed.
    resources : Resources
        ``schedule`` of the messages between workers; ``workers``, for local array files.

    Returns
    -------
    RankBlocks or ShiftJob
        Of a distributed array each rank's part with its halo, lazy: ``.plan.inside(rank)`` locates its own elements in
        it, and an empty rank receives nothing. Of local array files a job; its ``.run()`` returns ``x``. An interrupted
        run leaves some halos old; `resume` refreshes them all.

    Raises
    ------
    InputError
        `LayoutError` if the depth is invalid, or a rank holds more than one block along an axis with a halo;
        `TargetError` if files are open for reading only; `BudgetError` if their borders do not fit the memory.

    Notes
    -----
    Thakur 1995, section 5.4 (PASSION_oc_shift).

    Examples
    --------
    >>> import numpy as np
    >>> import oocarrays as ooc
    >>> x = ooc.ranks.distribute(np.arange(6), "block", ranks=3, scheduler="threads")
    >>> shift(x, 1, boundary="periodic").compute()
    [array([5, 0, 1, 2]), array([1, 2, 3, 4]), array([3, 4, 5, 0])]
    """
    if not isinstance(x, DistributedArray | LocalArrays):
        raise InputError(f"x={type(x).__name__} is neither a DistributedArray nor LocalArrays")
    names = dimension_names(x.like()) if isinstance(x, LocalArrays) else None
    stands = checked_boundary(boundary, x.ndim, x.dtype, names=names)
    if isinstance(x, LocalArrays):
        return _shift_files(x, depth, stands, means_of(resources, shift, memory=memory, scheduler=scheduler), resume)
    others = stated_in(resources, ("schedule",))
    refuse(NO_FILES, resume=resume or None, memory=memory, scheduler=scheduler, **others)
    schedule = means_of(resources, shift).schedule
    wide, where, order = depths(1 if depth is None else depth, x.ndim), Where(x.cluster, x.workers), None
    plan = HaloPlan(layout=x.layout, depth=wide, boundary=stands, itemsize=x.dtype.itemsize)
    if x.cluster:
        order, _ = settings.carrier(plan.ranks).cheapest(plan.between, settings.schedule(schedule))
        plan = replace(plan, schedule=order)
    build = lambda: pieces_exchanged("windows", x.tasks, plan, order, x.workers, where.meter)  # noqa: E731
    return RankBlocks(plan, x.dtype, build, where)


def _shift_files(
    a: LocalArrays, depth: DepthLike | None, boundary: Boundaries, means: Resources, resume: Any
) -> ShiftJob:
    if depth is not None and depths(depth, a.ndim, dimension_names(a.like())) != a.depth:
        raise LayoutError(f"depth={depth!r}: the files of {a.store} have halos of depth {a.depth}: omit depth")
    if not any(a.depth):
        raise InputError(f"the files of {a.store} have no halo: pass depth= to create_array or scatter_files")
    if not a.is_writable:
        raise TargetError(f"{a.store} is open for reading only: open it with mode='r+' to write to it")
    cluster = cluster_of(a.disks.client or means.scheduler, means.workers)
    resources = resources_of(cluster, means.memory, means.schedule)
    order = ordering.schedule_for(resources.schedule, a.ranks)
    plan = ShiftPlan(
        halos=HaloPlan(layout=a.layout, depth=a.depth, boundary=boundary, itemsize=a.dtype.itemsize),
        read=a.stored,
        written=tuple(a.disks.call(rank, _written, a.files, rank) for rank in range(a.ranks)),
        schedule=order,
        budget=resources.budget,
        processes=resources.workers,
        costs=resources.costs,
    )
    note: Document = {}
    if named(a.files.store) is not None:
        how: Any = {"boundary": boundary, "schedule": means.schedule}
        note = call_content("shift", [], memory=resources.budget, processes=resources.workers, **how)
    noted_parts(a.files.store, note, resume)
    first_fitting([plan], resources.budget, "this shift")
    return ShiftJob(Run(Shift(plan=plan, files=a.before_changes(), note=note)), a, cluster)


def _written(files: LocalFiles, rank: int) -> Stored:
    return files.file(rank, written=True).stored


@verb(resources=("workers",))
def multicast(
    x: DistributedArray | LocalArrays,
    section: Any,
    *,
    root: int | None = None,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
) -> RankBlocks[MulticastPlan]:
    """Send one section of an array to every rank: it is read once and forwarded in a tree. Computes nothing.

    Parameters
    ----------
    x : DistributedArray or LocalArrays
        The array to take the section from; several ranks may hold parts of it.
    section : numpy index or Section
        The section that all ranks receive; the product is taken of sequences of indices.
    root : int, optional
        The rank that assembles the section first; by default the rank that holds most of it.
    scheduler, resources
        For local array files, as in `rechunk`: ``workers``; files on workers' own disks are read there.

    Returns
    -------
    RankBlocks
        The same block for each rank, lazy; do not change it: on threads all ranks share one array.

    Raises
    ------
    InputError
        `SelectionError` if the section is not inside the array, `LayoutError` if there is no such rank.

    Notes
    -----
    Thakur 1995, section 5.4 (PASSION_oc_multicast).

    Examples
    --------
    >>> import numpy as np
    >>> import oocarrays as ooc
    >>> x = ooc.ranks.distribute(np.arange(6), "block", ranks=3, scheduler="threads")
    >>> multicast(x, np.s_[1:4]).compute()
    [array([1, 2, 3]), array([1, 2, 3]), array([1, 2, 3])]
    """
    if not isinstance(x, DistributedArray | LocalArrays):
        raise InputError(f"x={type(x).__name__} is neither a DistributedArray nor LocalArrays")
    key = tuple(map(slice, section.lower, section.upper, section.stride)) if isinstance(section, Section) else section
    plan = plan_multicast(x.layout, Selection.of(key, x.shape), root, x.dtype.itemsize)
    if isinstance(x, DistributedArray):
        refuse(NO_FILES, scheduler=scheduler, **stated_in(resources))
        here = Where(x.cluster, x.workers)
        return RankBlocks(plan, x.dtype, lambda: cast(plan, x.dtype, x.workers, parts=x.tasks, meter=here.meter), here)
    means = means_of(resources, multicast, scheduler=scheduler)
    known = ranks_on(x.disks.client or means.scheduler, means.workers)
    if known.cluster:
        check_reach({"store": x.files.store})
    where = Where(known.cluster, tuple(x.disks.homes(known.workers)))
    build = lambda: cast(plan, x.dtype, where.workers, files=x.files, meter=where.meter)  # noqa: E731
    return RankBlocks(plan, x.dtype, build, where)
