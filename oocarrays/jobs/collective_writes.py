"""Collective writes of one stored array: each chunk is written once for all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import zarr
from dask.utils import ensure_dict
from distributed import Client

from oocarrays.arrays.array import OutOfCoreArray, open_array
from oocarrays.distributed.collective import RankSelections, SectionsLike, dealt, wanted_by_ranks
from oocarrays.distributed.rank_arrays import RankArrays
from oocarrays.errors import InputError, JournalError, SelectionError, UnsupportedError, plural
from oocarrays.graphs.cluster.placement import Where
from oocarrays.graphs.collective.sections import Writing, build_graph
from oocarrays.graphs.layouts.parts import Parts, parts_of_arrays
from oocarrays.graphs.run.execution import Graph
from oocarrays.graphs.run.recovery import Interrupted
from oocarrays.graphs.run.run import Run
from oocarrays.jobs.job import Job, suffix_of
from oocarrays.mapping.given import listed
from oocarrays.mapping.selection import Selection, lengths
from oocarrays.options.asked import check_lazy, ranks_on, resources_of
from oocarrays.options.given import Resources, means_of, nested, verb
from oocarrays.plan.collective.write import CollectiveWritePlan, plan_collective_write
from oocarrays.plan.documents import Document
from oocarrays.plan.machine import spread
from oocarrays.plan.plan import Resources as PlanResources
from oocarrays.requests import noted_parts
from oocarrays.show.report import READ_AND_WRITTEN
from oocarrays.storage.files.array_file import ArrayFile, describe
from oocarrays.storage.files.places import StoreLike, named
from oocarrays.storage.journal.calls import CALL, call_content
from oocarrays.storage.journal.sources import metadata_digest
from oocarrays.storage.journal.texts import PARTS, kept_sections, sections_again
from oocarrays.storage.sections.write import check_writable
from oocarrays.stored.array import placer

METADATA = "target_metadata"
"""Key of the note for the metadata that identify the array."""


class CollectiveWriteJob(Job[Run[Writing], OutOfCoreArray, CollectiveWritePlan]):
    """Planned write of sections of an array: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""

    _counted = (*READ_AND_WRITTEN, "messages")

    def __init__(self, a: OutOfCoreArray, run: Run[Writing], held: Parts, where: Where) -> None:
        self._array, self._held = a, held
        super().__init__(run, lambda name: a, where.cluster)
        self._addresses = spread(run.program.plan.ranks, where.workers)

    def _execute(self) -> Any:
        self._run.live.begin_anew()
        return super()._execute()

    def _build(self) -> Graph:
        graph, last = build_graph(self._run, self._held.keys)
        self._pinned = {**self._held.homes, suffix_of(last): self._addresses}
        return {**ensure_dict(self._held.graph), **graph}, last

    def _threads(self) -> int:
        return self.plan.threads

    def _title(self) -> str:
        ranks = plural(self.plan.ranks, "rank")
        return f"oocarrays.CollectiveWriteJob sections of {ranks} → {self._array.store}"


@verb(resources=("workers", "schedule", "disks"), old={"partition": "domains=", "a": "target="})
def write_sections(
    target: OutOfCoreArray | zarr.Array[Any] | StoreLike,
    sections: SectionsLike,
    parts: RankArrays | Sequence[Any],
    *,
    method: str = "auto",
    domains: str = "dynamic",
    deal: str = "block",
    aggregators: str | int | Sequence[int] = "auto",
    memory: int | float | str | None = None,
    resume: bool | Literal["verify", "as-is"] = False,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
) -> CollectiveWriteJob:
    """Plan to write each rank's part of a stored array, each chunk once for all ranks. Writes nothing.

    Where sections overlap, the part of the highest rank wins. A chunk is read first only if the sections leave some of
    it out. Until the run ends, other readers may see old chunks. The journal keeps the sections, but not the parts:
    after a crash, ``resume(a, parts=parts)`` writes all of them again. Nothing is written before all parts exist, so
    parts may be computed from this array; such parts cannot be recomputed once some of the array is new. If a worker is
    lost, its parts are recomputed; replicate parts computed from this array first (``client.replicate``).

    Parameters
    ----------
    target : OutOfCoreArray, zarr.Array, path, URL or store
        The array to write: an existing array, opened with ``"r+"``.
    sections : Layout, str, or sequence of one section a rank
        As in `read_sections`.
    parts : DistributedArray, SectionArrays, or sequence of arrays
        The data of each rank, in the shape of its section: numpy or Dask arrays, one a rank.
    method : "auto", "two-phase" or "independent"
        Two-phase: some ranks, the aggregators, write for all. Independent: each rank writes for itself. By default
        independent if no chunk is written by two ranks.
    domains : "dynamic" or "static"
        Chunks that are divided among the aggregators: those that are written, or those of the whole array.
    deal : "block" or "cyclic"
        Assignment of chunks to aggregators: consecutive in the file, or in turn.
    aggregators : "auto", int or sequence of int
        Number of aggregators, or their ranks; by default the number of least predicted time.
    resume : bool or str
        As in `rechunk`. A written array keeps no record of finished runs, so all is written again. If the sections or
        parts differ from those of an interrupted run, the call fails.
    memory : int, float or str, optional
        Budget of this process, or of each worker, beside the parts, in bytes: ``"1GiB"``.
    scheduler : Client, address or "threads"
        As in `rechunk`; by default the workers that hold the parts.
    resources : Resources
        ``workers``, ``disks`` and ``schedule`` as in `read_sections`; ``"unordered"`` goes in steps here.

    Returns
    -------
    CollectiveWriteJob
        With ``.plan``, ``.explain()`` and ``.run()``, which returns the array; ``dask.compute(job)`` runs it too.

    Raises
    ------
    InputError
        Before anything is written: `SelectionError` for sections or parts of the wrong number or shape,
        `UnsupportedError` for elements that do not fit, `BudgetError`.

    Examples
    --------
    >>> import zarr
    >>> z = zarr.create_array({}, shape=(2, 6), chunks=(2, 3), dtype="i4")
    >>> job = write_sections(z, [np.s_[:, :4], np.s_[0, 2:]], [np.full((2, 4), 1), np.full(4, 2)], scheduler="threads")
    >>> job.plan.traffic.read_requests, job.run()[:]
    (1, array([[1, 1, 2, 2, 2, 2],
           [1, 1, 1, 1, 0, 0]], dtype=int32))
    """
    means = means_of(resources, write_sections, memory=memory, scheduler=scheduler)
    opened = placer(means.storage_options, target)(target)
    a = target if isinstance(target, OutOfCoreArray) else open_array(opened, mode="r+")
    file = describe(a.zarr, written=True)
    check_writable(file)
    aggregators = aggregators if isinstance(aggregators, str | int) else listed(aggregators, "aggregators")
    if isinstance(parts, RankArrays) and means.scheduler is means.workers is None:
        where = Where(parts.cluster, parts.workers)
    else:
        where = ranks_on(means.scheduler, means.workers)
    wanted = wanted_by_ranks(a.shape, sections, None, None, None, _ranks(parts))
    within_means = resources_of(where.cluster, means.memory, means.schedule)
    within_means = replace(within_means, workers=len(where.workers) or None)
    share = dealt(file, domains, deal, means.disks, within_means.costs)
    chosen: Any = {"method": method, "aggregators": aggregators}
    plan = plan_collective_write(file.stored, wanted.requests, within_means, **chosen, **share)
    held = _held(parts, plan, wanted.selections, file.dtype, where.workers)
    how = {"method": method, "domains": domains, "deal": deal, "aggregators": aggregators, "schedule": means.schedule}
    note = _note(file, wanted, within_means, **how)
    program = Writing(plan=plan, file=file, selections=tuple(wanted.selections), note=note)
    if parts_before := noted_parts(program.destination.store, note, resume):
        program = replace(program, note={**note, PARTS: parts_before})
    return CollectiveWriteJob(a, Run(program), held, where)


def _note(file: ArrayFile, wanted: RankSelections, resources: PlanResources, **how: Any) -> Document:
    """Return the note of a call for a repetition after a crash; empty for an array without a name."""
    if named(file.zarr.store_path) is None:
        return {}
    sections = kept_sections(wanted.layout, wanted.selections)
    call = call_content(
        "write_sections", [], memory=resources.budget, processes=resources.workers, sections=sections, **how
    )
    return call | {METADATA: metadata_digest(file)}


def resume_sections(left: Interrupted, parts: Any, means: Resources) -> CollectiveWriteJob:
    target, content = left.target, left.content
    if parts is None:
        raise InputError(
            f"{target} was being written by write_sections, whose parts are not kept: pass them again, as "
            "resume(target, parts=...)"
        )
    a = open_array(target, mode="r+")
    if metadata_digest(describe(a.zarr, written=True)) != content.get(METADATA):
        raise JournalError(f"the journal in {target} belongs to a different array")
    how = dict(content[CALL]["options"])
    sections = sections_again(how.pop("sections"), a.shape)
    how |= {"memory": means.memory, "scheduler": means.scheduler, "workers": means.workers, "resume": left.trust}
    return write_sections(a, sections, parts, **nested(write_sections, None, how)[1])


def _ranks(parts: Any) -> int:
    if isinstance(parts, RankArrays):
        return parts.ranks
    if isinstance(parts, np.ndarray) or not isinstance(parts, Sequence):
        raise InputError(
            f"parts are a {type(parts).__name__}: pass a sequence of arrays, one per rank, or a distributed array"
        )
    return len(parts)


def _held(
    parts: Any, plan: CollectiveWritePlan, selections: Sequence[Selection], dtype: np.dtype, workers: Sequence[str]
) -> Parts:
    if _ranks(parts) != plan.ranks:
        raise SelectionError(f"{_ranks(parts)} parts are not one for each of {plan.ranks} sections")
    shapes = [s.shape for s in selections] if selections else [lengths(axes) for axes in plan.requests]
    if isinstance(parts, RankArrays):
        given = [(parts.local_shape(rank), parts.dtype) for rank in range(parts.ranks)]
        _check(given, shapes, dtype)
        return parts.tasks
    arrays = [part if hasattr(part, "__dask_graph__") else np.asarray(part) for part in parts]
    for part in arrays:
        if not isinstance(part, np.ndarray):
            check_lazy(part)
    _check([(part.shape, part.dtype) for part in arrays], shapes, dtype)
    return parts_of_arrays(arrays, dtype, spread(len(arrays), workers))


def _check(given: Sequence[tuple[tuple[int, ...], np.dtype]], shapes: Sequence[tuple[int, ...]], to: np.dtype) -> None:
    for rank, ((shape, dtype), wanted) in enumerate(zip(given, shapes, strict=True)):
        if shape != wanted:
            raise SelectionError(f"the part of rank {rank} has shape {shape}; its section has {wanted}")
        if not np.can_cast(dtype, to, "same_kind"):
            raise UnsupportedError(f"the part of rank {rank} has dtype {dtype}; the array has {to}")
