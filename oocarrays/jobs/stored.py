"""Rechunks of stored arrays, and of groups: some arrays are rewritten, and the others copied."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from textwrap import indent
from typing import TYPE_CHECKING, Any

import zarr
from dask.utils import format_bytes

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.arrays.groups import OutOfCoreGroup, open_group
from oocarrays.errors import BudgetError, ChunksError, UnsupportedError
from oocarrays.graphs.cluster.placement import Cluster, Worker
from oocarrays.graphs.rechunk.group import CopiedGroup, Group, build_graph, group_content, group_run, planned_copies
from oocarrays.graphs.rechunk.program import Destination, Rechunk, rechunk_run
from oocarrays.graphs.run.execution import Graph
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.settings import setting
from oocarrays.jobs.job import Job, array_at, opener
from oocarrays.options.asked import resources_of
from oocarrays.options.chunks import LINES
from oocarrays.options.given import Resources, Target
from oocarrays.options.rechunks import Planner, asked_for
from oocarrays.plan.documents import Document
from oocarrays.plan.machine import evenly, within_budget
from oocarrays.plan.rechunk.group import GroupPlan
from oocarrays.plan.rechunk.plan import RechunkPlan
from oocarrays.requests import checked, form, requested, unnamed
from oocarrays.show import report
from oocarrays.show.notebook import members_html, plan_html, rows_html
from oocarrays.show.pictures import load_picture
from oocarrays.show.report import phase_seconds, seconds_outside
from oocarrays.storage.files import array_file, group_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import check_target
from oocarrays.storage.files.formats import dimension_names
from oocarrays.storage.files.group_file import GroupFile
from oocarrays.storage.files.places import StoreLike, member_store, named
from oocarrays.storage.journal.sources import metadata_digest
from oocarrays.stored.array import missing_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class RechunkJob(Job[Run[Rechunk], OutOfCoreArray, RechunkPlan]):
    """Planned rechunk: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""

    def __init__(self, run: Run[Rechunk], cluster: Cluster | None = None) -> None:
        super().__init__(run, opener(array_at, run.destination.store), cluster)

    @property
    def _source(self) -> ArrayFile:
        source = self._run.program.source
        assert isinstance(source, ArrayFile), "blocks of lazy arrays have other jobs"
        return source

    def _put(self, workers: Sequence[Worker]) -> Sequence[str]:
        return super()._put(evenly(self.plan.ranks, workers))

    def draw(self) -> Figure:
        """Draw as ``plan.draw()``, with names of the axes, and after a run measured beside predicted seconds.

        Raises
        ------
        UnsupportedError
            If matplotlib is not installed.
        """
        ran = self.measured_seconds is not None
        seconds = phase_seconds(self.meter, known := self._run.program.phases)
        others = {"others": seconds_outside(self.meter, known), "wall": self.measured_seconds or 0.0}
        phases = seconds | others if ran else None
        names = dimension_names(self._source.zarr)
        return load_picture().draw(self.plan, names=names, measured=phases)

    def __repr__(self) -> str:
        ran = "" if self.measured_seconds is None else f", ran in {report.seconds_text(self.measured_seconds)}"
        title = f"<oocarrays.RechunkJob rechunk {self._source.name} → {self._run.destination.store}{ran}>"
        return f"{title}\n{report.table(self._rows(), indent='  ')}"

    def _repr_html_(self) -> str:
        places = self._source.name, str(self._run.destination.store)
        return plan_html(self.plan, title="oocarrays.RechunkJob", places=places, measured=self._ran())


class GroupJob(Job[Run[Group], OutOfCoreGroup, GroupPlan]):
    """Planned rechunk of a group: as `RechunkJob`."""

    _counted = ("read requests", "write requests")

    def __init__(self, run: Run[Group], cluster: Cluster | None = None) -> None:
        super().__init__(run, opener(open_group, run.destination.store), cluster)

    @cached_property
    def plan(self) -> GroupPlan:
        """Frozen plan: reads, messages, writes and memory; ``plan["air"]`` is that of one array."""
        members = ((part.program.member, part.program.plan) for part in self._run.parts)
        return replace(self._run.program.plan, members=tuple(members))

    def _build(self) -> Graph:
        graph, last, self._pinned = build_graph(self._run, self._addresses)
        return graph, last

    def _left(self) -> float:
        left: float = sum(part.remaining.share * part.program.plan.target.nbytes for part in self._run.parts)
        every: int = sum(self._run.state.content["members"].values())
        return left / max(every, 1)

    def _planned(self) -> str:
        plans = [(name, report.plan_rows(plan), plan.alternatives) for name, plan in self.plan.members]
        each = [f"{name}\n{indent(report.planned_text(rows, ways), '  ')}" for name, rows, ways in plans]
        return "\n\n".join([report.table(self._rows()), *each])

    def _measured(self) -> list[tuple[str, str, str]]:
        copied = f"{format_bytes(self.meter.copied_bytes)} in {self.meter.copied_objects} objects"
        return [*super()._measured(), ("copied as stored", format_bytes(self.plan.copies.nbytes), copied)]

    def _title(self) -> str:
        return f"rechunk {self._run.program.source.name} → {self._run.destination.store}"

    def __repr__(self) -> str:
        rows = report.first_rows(_member_rows(self.plan), LINES)
        members = report.table(rows, indent="  ") if self.plan.members else ""
        ran = "" if self.measured_seconds is None else f", ran in {report.seconds_text(self.measured_seconds)}"
        title = f"<oocarrays.GroupJob {self._title()}{ran}>"
        return f"{title}\n{report.table(self._rows(), indent='  ')}\n\n{members}"

    def _repr_html_(self) -> str:
        each, title = members_html(self.plan.members), f"oocarrays.GroupJob {self._title()}"
        return rows_html(self._rows(), title=title, below=each, measured=self._ran())


def _member_rows(plan: GroupPlan) -> list[tuple[str, ...]]:
    head = ("array", "chunks", "", "", "strategy", "bytes", "peak memory", "predicted")
    rows: list[tuple[str, ...]] = [head]
    for name, member in plan.members:
        before, after = (report.shape_text(stored.grid.chunks) for stored in (member.source, member.target))
        does = member.strategy if member.passes else "nothing to move"
        sizes = format_bytes(member.target.nbytes), format_bytes(member.peak_bytes)
        rows.append((name, before, "→", after, does, *sizes, report.seconds_text(member.seconds)))
    return rows


def array_job(
    source: StoreLike | zarr.Array[Any],
    target: StoreLike,
    planner: Planner,
    cluster: Cluster | None,
    resume: Any,
    means: Resources,
) -> RechunkJob:
    opened = array_file.open_array(source)
    checked(check_target, opened, target, overwrite=planner.overwrite, resume=resume)
    plan, file, destination = planned = planner.planned(opened, target, planner.to.chunks)
    made = destination.settings, plan.target.grid.count
    request = requested("rechunk", [named(file.zarr.store_path)], [metadata_digest(file)], [made])
    job = RechunkJob(rechunk_run(*planned), cluster).asked_for(request)
    return job.again(resume, overwrite=planner.overwrite, source=unnamed(source), means=means)


def scratch_copy(file: ArrayFile, place: str, chunks: tuple[int, ...], budget: int, scratch: str) -> RechunkJob:
    """Return the job that rewrites an array in scratch, in other chunks and without codecs."""
    resources = resources_of(None, budget, ranks=setting("ranks"))
    planner = Planner(
        to=Target(place, compressors=(), filters=()), method="auto", overwrite=False, scratch=scratch,
        missing=missing_of(file.presence), resources=resources,
    )  # fmt: skip
    return RechunkJob(rechunk_run(*planner.planned(file.zarr, place, chunks)))


def group_job(
    source: StoreLike | zarr.Group,
    target: StoreLike,
    planner: Planner,
    cluster: Cluster | None,
    resume: Any,
    means: Resources,
) -> GroupJob:
    resources = planner.resources
    file = group_file.describe_group(group_file.open_group(source)).with_policy(planner.missing)
    file = file.in_format(planner.to.zarr_format)
    wanted = asked_for(file, planner.to.chunks)
    checked(group_file.check_group_target, file.zarr, target, overwrite=planner.overwrite, resume=resume)
    id = uuid.uuid4().hex[:12]
    makers: list[Callable[[], Any]] = [
        partial(planned_copies, file, target, wanted, resources),
        *(partial(_planned_member, file, target, name, lengths, planner) for name, lengths in wanted.items()),
    ]
    copies, *planned = within_budget(makers)
    members = {name: rechunk_run(*made, id=id, member=name) for name, made in zip(wanted, planned, strict=True)}
    plan = GroupPlan(
        members=tuple((name, member.program.plan) for name, member in members.items()),
        copies=copies,
        budget=resources.budget,
        processes=resources.workers,
    )
    said = tuple(f"{name}: {each}" for name, member in members.items() for each in member.program.target.said)
    group = CopiedGroup(store=target, source=file, overwrite=planner.overwrite, said=said)
    run = group_run(plan, group, members, group_content(plan, file), id=id)
    job = GroupJob(run, cluster).asked_for(_requested(run))
    return job.again(resume, overwrite=planner.overwrite, source=unnamed(source), means=means)


def _requested(run: Run[Group]) -> Document:
    file, members = run.program.source, [part.program for part in run.parts]
    counts = {member.member: member.plan.target.grid.count for member in members}
    return requested(
        "rechunk", [named(file.zarr.store_path)], [[name, metadata_digest(each)] for name, each in file.arrays.items()],
        [], count=sum(counts.values()), zarr_format=file.zarr_format,
        chunks={member.member: form(member.target.settings) for member in members}, arrays=counts,
    )  # fmt: skip


def _planned_member(
    file: GroupFile, target: StoreLike, name: str, lengths: Any, planner: Planner
) -> tuple[RechunkPlan, ArrayFile, Destination]:
    try:
        return planner.planned(file.arrays[name], member_store(target, name), lengths, member=True)
    except BudgetError as error:
        raise BudgetError(error.budget, error.least, f"rechunking {name}") from None
    except (ChunksError, UnsupportedError) as error:
        raise type(error)(f"{name}: {error}") from None
