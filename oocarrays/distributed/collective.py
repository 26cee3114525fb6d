"""Collective reads of one stored array: each chunk is read once for all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import zarr
from dask.utils import format_bytes
from distributed import Client

from oocarrays.distributed.distributed_array import DistributedArray
from oocarrays.distributed.rank_arrays import RankLists
from oocarrays.errors import BudgetError, InputError, LayoutError, SelectionError, in_number
from oocarrays.graphs import settings
from oocarrays.graphs.collective.sections import collective_read
from oocarrays.graphs.run.execution import check_reach
from oocarrays.graphs.settings import setting
from oocarrays.mapping.given import whole as whole_number
from oocarrays.mapping.layouts.distribution import Block, Collapsed, Cyclic, GenBlock
from oocarrays.mapping.layouts.layout import Layout, LayoutLike, layout_for
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Selection
from oocarrays.options.asked import cluster_of, ranks_on, resources_of
from oocarrays.options.chunks import method_for
from oocarrays.options.given import Resources, means_of, verb
from oocarrays.plan.collective.domains import Dealing
from oocarrays.plan.collective.read import CollectivePlan
from oocarrays.plan.collective.search import plan_collective
from oocarrays.plan.collective.wanted import requests_of
from oocarrays.plan.files import partitions as file_order
from oocarrays.plan.machine import Costs
from oocarrays.show import report
from oocarrays.show.exchanges import collective_text
from oocarrays.storage.files.array_file import ArrayFile, as_planned
from oocarrays.storage.files.places import StoreLike
from oocarrays.stored.array import StoredArray, opened


def partitions(
    source: StoredArray | zarr.Array[Any] | np.ndarray | StoreLike, layout: Any = None, *, grid: Any = None, **how: Any
) -> Iterator[DistributedArray]:
    """Iterate over an array in partitions that fit in memory, each a lazy `DistributedArray`.

    Parameters
    ----------
    source : OutOfCoreArray, zarr.Array, path, URL or store
        The array to read.
    layout : Layout, str, Distribution or sequence of them
        Layout of each partition over its ranks; by default that of the array's descriptor.
    grid : sequence of int
        Ranks along each axis.
    how
        As in `read_sections`: ``ranks``, ``memory``, ``method``, ``scheduler``, ``resources`` and others. Partitions
        are as large as fit in ``memory`` bytes of all processes together.

    Yields
    ------
    DistributedArray
        Its ``.section`` locates it: whole chunks of the array, in file order.

    Raises
    ------
    InputError
        `BudgetError` if not one chunk fits, `LayoutError` without a layout: before the first partition.

    Notes
    -----
    Thakur 1995, section 5.3.2: the partitioned in-core model.

    Examples
    --------
    >>> import zarr
    >>> z = zarr.create_array({}, data=np.arange(48).reshape(8, 6), chunks=(2, 6))
    >>> parts = partitions(z, "(block, *)", ranks=2, memory="1GiB", scheduler="threads")
    >>> [(part.section.lower, part.local(1).compute().shape) for part in parts]
    [((0, 0), (4, 6))]
    """
    a: Any = source if isinstance(source, StoredArray) else StoredArray(opened(source))
    wanted: Any = a.layout if layout is None else layout
    if wanted is None:
        raise LayoutError(f"{a.store} has no layout: pass one, such as '(block, *)', and ranks=")
    if isinstance(wanted, Layout):
        wanted, grid = list(wanted.distributions), wanted.grid if grid is None else grid
    read = partial(read_sections, a, wanted, grid=grid, **how)
    means = means_of(how.get("resources"), read_sections, memory=how.get("memory"), scheduler=how.get("scheduler"))
    cut = _fitting(a, read, means)
    return (read(within=section).as_partition(section) for section in cut)


def _fitting(a: StoredArray, read: Any, means: Resources) -> file_order.Partitions:
    """Return boxes of whole chunks that use up to half of the memory: the rest is for reading them."""
    stored = a._file.stored
    resources = resources_of(cluster_of(means.scheduler, means.workers), means.memory)
    room = min(stored.grid.count, resources.budget * (resources.workers or 1) // (2 * stored.chunk_bytes))
    while True:
        cut = file_order.partitions(stored.grid, max(room, 1))
        try:
            if len(cut):
                read(within=cut[0])
            return cut
        except BudgetError:
            if room <= 1:
                raise
            room //= 2


class SectionArrays(RankLists[CollectivePlan]):
    """Arrays of any shapes, one a rank: a lazy Dask collection. Created by `read_sections`.

    ``compute`` returns a list of numpy arrays; ``persist`` keeps each rank's array on its worker.
    """

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(self._plan.part_bytes)

    @property
    def peak_bytes(self) -> int:
        """Peak memory during the read of this process, or of the worker with the highest peak, in bytes."""
        return self._plan.peak_bytes if self._plan.price else max(self._plan.part_bytes)

    @property
    def seconds(self) -> float:
        """Predicted wall time in seconds."""
        return self._plan.seconds

    def _named(self) -> str:
        return f"{self.ranks} sections"

    def _title(self) -> str:
        return in_number(f"oocarrays.SectionArrays of {self.ranks} ranks, {self.dtype}, {format_bytes(self.nbytes)}")

    def _rows(self) -> list[tuple[str, str]]:
        return [("a rank holds", self._held()), ("ranks are", self._where()), *report.plan_rows(self._plan)]

    def explain(self) -> str:
        """Describe each rank's section, the reading ranks, and the cost of other methods."""
        return f"{super().explain()}\n\n{collective_text(self._plan)}"


SectionsLike = LayoutLike | Sequence[Any]
"""A layout, or one section a rank."""


@verb(resources=("workers", "schedule", "disks"), old={"partition": "domains=", "a": "source="})
def read_sections(
    source: StoredArray | zarr.Array[Any] | np.ndarray | StoreLike,
    sections: SectionsLike,
    *,
    ranks: int | None = None,
    grid: Sequence[int] | None = None,
    within: Section | None = None,
    method: str = "auto",
    domains: str = "auto",
    deal: str = "block",
    aggregators: str | int | Sequence[int] = "auto",
    memory: int | float | str | None = None,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
) -> Any:
    """Read a section of a stored array for each rank, each chunk read and decoded once for all. Lazy.

    Parameters
    ----------
    source : OutOfCoreArray, zarr.Array, path, URL or store
        The array to read.
    sections : Layout, str, or sequence of one section a rank
        A layout, such as ``"(block, *)"``; or for each rank a numpy index (the product is taken of sequences of
        indices), a `Section`, or None for a rank without one. They may overlap.
    ranks, grid : int, sequence of int
        Ranks in all, or along each axis, of a layout, as `distribute` takes them.
    within : Section, optional
        The section of the array that a layout divides; by default all of it.
    method : "auto", "two-phase" or "independent"
        Two-phase: some ranks, the aggregators, read for all and send each rank its section. Independent: each rank
        reads for itself. By default the advised method in a ``with`` statement of an `Advice`, else the one of less
        predicted time.
    domains : "auto", "dynamic" or "static"
        Section to divide among the aggregators: the bounding section of all requests, or the whole array.
    deal : "block" or "cyclic"
        Assignment of chunks to aggregators: consecutive in the file, or in turn.
    aggregators : "auto", int or sequence of int
        Number of aggregators, or their ranks; by default the number of least predicted time.
    memory : int, float or str, optional
        Budget of this process, or of each worker, in bytes, parts included: ``"1GiB"``. The buffer of an aggregator
        fits in it, and does not exceed the setting ``oocarrays.collective-buffer``.
    scheduler : Client, address or "threads"
        As in `rechunk`. There may be more ranks than workers.
    resources : Resources
        ``workers``; ``disks``, the disk of each chunk, if known; ``schedule`` of the messages of a round between
        workers, as in `redistribute`: ``"unordered"`` sends all at once; ``missing`` and ``storage_options``.

    Returns
    -------
    DistributedArray or SectionArrays
        One array a rank, on its worker: ``.local(rank)``, ``.compute()``, ``.persist()``, ``.plan``, ``.explain()``.
        For a layout a `DistributedArray`, which computes to the whole; for sections a `SectionArrays`, which computes
        to a list.

    Raises
    ------
    InputError
        Before anything is read: `SelectionError` for an index out of range or with too many axes, or for sections of
        another number of ranks; `LayoutError`; `BudgetError` if the parts and one chunk do not fit.

    Examples
    --------
    >>> import zarr
    >>> z = zarr.create_array({}, data=np.arange(24).reshape(4, 6), chunks=(2, 6))
    >>> tiles = read_sections(z, [np.s_[:3, ::3], np.s_[1:, [5, 0]]], method="two-phase", scheduler="threads")
    >>> tiles.local(1).compute()
    array([[11,  6],
           [17, 12],
           [23, 18]])
    >>> tiles.plan
    <CollectivePlan two-phase: 2 chunks read by 1 of 2 ranks in 1 round, 48 bytes for others>
    """
    means = means_of(resources, read_sections, memory=memory, scheduler=scheduler)
    a = source
    if not isinstance(a, StoredArray):
        a = StoredArray(opened(a, storage_options=means.storage_options), means.missing)
    where = ranks_on(means.scheduler, means.workers)
    if where.cluster:
        check_reach({"array": a.zarr.store_path.store})
    wanted = wanted_by_ranks(a.shape, sections, ranks, grid, within, len(where.workers) or settings.local_cores())
    within_means = resources_of(where.cluster, means.memory, means.schedule)
    file = as_planned(a._file) if a.zarr.read_only else a._file  # a writable array may lose chunks
    share = dealt(file, domains, deal, means.disks, within_means.costs)
    chosen: Any = {"method": method_for(method, a.zarr, wanted.requests), "aggregators": aggregators}
    plan = plan_collective(file.stored, wanted.requests, within_means, **chosen, **share)
    how: Any = {"under_way": within_means.requests, "costs": within_means.costs}
    build = partial(collective_read, file, plan, where.workers, where.meter, wanted.selections, **how)
    if wanted.layout is not None:
        return DistributedArray(wanted.layout, file.dtype, build, where, plan=plan)
    shapes = [selection.shape for selection in wanted.selections]
    return SectionArrays(shapes.__getitem__, plan.ranks, file.dtype, build, where, plan)


def dealt(file: ArrayFile, domains: str, deal: str, disks: Any, costs: Costs) -> dict[str, Any]:
    """Return the assignment of chunks to aggregators, and the bytes of an aggregator's buffer, for a planner."""
    if disks is not None and not isinstance(disks, Mapping) and not callable(disks):
        raise InputError(f"disks={disks!r} is neither a mapping from a chunk's index nor a function of it")
    disk_of = file.disk_of if disks is None else disks.get if isinstance(disks, Mapping) else disks
    times = None
    if file.disks:  # a striped store, whose disks `oocarrays calibrate --disks` has measured
        times = settings.chunk_times(file.disks, file.stored.chunk_bytes * costs.stored_ratio(file.stored))
    return {
        "dealing": Dealing(partition=domains, deal=deal, disk_of=disk_of, times=times),  # type: ignore[arg-type]
        "buffer_bytes": settings.size_in_bytes(setting("collective-buffer"), "oocarrays.collective-buffer"),
    }


class RankSelections(NamedTuple):
    """Sections requested by all ranks."""

    requests: tuple[Any, ...]
    layout: Layout | None
    """Layout of the sections, if they are its parts."""
    selections: tuple[Selection, ...]
    """Position of the section in each rank's array, without a layout."""


def wanted_by_ranks(
    shape: tuple[int, ...],
    sections: SectionsLike,
    ranks: int | None,
    grid: Sequence[int] | None,
    within: Section | None,
    about: int,
) -> RankSelections:
    words, listed = (Block, Cyclic, GenBlock, Collapsed, str), sections if isinstance(sections, Sequence) else ()
    if isinstance(sections, (Layout, *words)) or any(isinstance(each, words) for each in listed):
        whole = _inside(within, shape)
        layout = layout_for(whole.shape, sections, ranks=ranks, grid=grid, about=about)  # type: ignore[arg-type]
        return RankSelections(requests=requests_of(layout, whole), layout=layout, selections=())
    if grid is not None or within is not None:
        raise SelectionError(f"{'grid' if within is None else 'within'}= applies to a layout, not to sections")
    ranks = None if ranks is None else whole_number(ranks, "ranks", 1, error=SelectionError)
    given = list(listed)
    if not given or ranks not in (None, len(given)):
        what = f"{len(given)} sections" if given else f"sections={sections!r}"
        raise SelectionError(f"{what}: a layout, or a sequence of one section for each of {ranks or 'some'} ranks")
    selections = tuple(_selection(section, shape, rank) for rank, section in enumerate(given))
    return RankSelections(requests=tuple(s.axes for s in selections), layout=None, selections=selections)


def _inside(within: Section | None, shape: tuple[int, ...]) -> Section:
    whole = Section((0,) * len(shape), shape)
    if within is None:
        return whole
    if not isinstance(within, Section):
        raise SelectionError(f"within={within!r} is not a Section: pass oocarrays.Section(lower, upper)")
    inside = len(within.lower) == len(shape) and all(l >= 0 for l in within.lower)
    if not inside or any(axis and axis[-1] >= n for axis, n in zip(within.axes, shape, strict=True)):
        raise SelectionError(f"within={within} is not inside an array of shape {shape}")
    return within


def _selection(section: Any, shape: tuple[int, ...], rank: int) -> Selection:
    if section is None:
        return Selection.of(np.s_[(slice(0, 0),) * len(shape)], shape)
    try:
        if isinstance(section, Section):
            return Selection.of_section(_inside(section, shape))
        return Selection.of(section, shape)
    except SelectionError as error:
        raise SelectionError(f"the section of rank {rank}: {error}") from None
