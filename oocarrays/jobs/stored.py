"""Job that rewrites some arrays of a group, and copies the others."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import zarr
from dask.utils import format_bytes

from oocarrays.arrays.groups import OutOfCoreGroup, open_group
from oocarrays.errors import BudgetError, ChunksError, UnsupportedError
from oocarrays.graphs.cluster.workers import Cluster
from oocarrays.graphs.rechunk.destination import Destination
from oocarrays.graphs.rechunk.group import GroupGraphBuilder, group_content, resumed_group
from oocarrays.graphs.rechunk.group_tasks import GroupRun, MemberRun
from oocarrays.graphs.rechunk.resume import GoingOn, journal_content
from oocarrays.graphs.run.job import Graph
from oocarrays.graphs.run.looking import array_digest
from oocarrays.jobs.job import Job
from oocarrays.options.rechunks import LINES, Planner, asked_for
from oocarrays.plan.documents import Document
from oocarrays.plan.machine import within_budget
from oocarrays.plan.memory import Resources
from oocarrays.plan.rechunk.group import CopyPlan, GroupPlan, ToCopy, plan_copies
from oocarrays.plan.rechunk.plan import RechunkPlan
from oocarrays.requests.request import checked, form, requested
from oocarrays.show import report
from oocarrays.show.notebook import members_html, rows_html
from oocarrays.storage.files import group_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.group_file import GroupFile, member_store
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.journal.calls import named


class GroupJob(Job[GroupRun, OutOfCoreGroup]):
    """Planned rechunk of a group: as `RechunkJob`."""

    _counted = ("read requests", "write requests")

    @property
    def plan(self) -> GroupPlan:
        """Frozen plan: reads, messages, writes and memory; ``plan["air"]`` is that of one array."""
        return self._run.plan

    def _build(self) -> Graph:
        builder = GroupGraphBuilder(self._run, self._addresses)
        last, self._pinned = builder.build(), builder.homes
        return builder.graph, last

    def _homes(self) -> Mapping[str, Sequence[str]]:
        return self._pinned

    def _sources(self) -> Sequence[Presence]:
        rewritten = [presence for member in self._run.members.values() for presence in member.reads()]
        return [*rewritten, *self._run.reads()]

    def _planned(self) -> str:
        plans = [(name, report.plan_rows(plan), plan.alternatives) for name, plan in self.plan.members]
        each = [f"{name}\n{_indented(report.planned_text(rows, ways))}" for name, rows, ways in plans]
        return "\n\n".join([report.table(self._rows()), *each])

    def _measured(self) -> list[tuple[str, str, str]]:
        m = self.meter
        return [
            *super()._measured(),
            (
                "copied as stored",
                format_bytes(self.plan.copies.nbytes),
                f"{format_bytes(m.copied_bytes)} in {m.copied_objects} objects",
            ),
        ]

    def _title(self) -> str:
        return f"rechunk {self._run.source.name} → {self._run.destination.store}"

    def __repr__(self) -> str:
        members = (
            report.table(report.first_rows(member_rows(self.plan), LINES), indent="  ") if self.plan.members else ""
        )
        ran = "" if self.measured_seconds is None else f", ran in {report.seconds_text(self.measured_seconds)}"
        title = f"<oocarrays.GroupJob {self._title()}{ran}>"
        return f"{title}\n{report.table(self._rows(), indent='  ')}\n\n{members}"

    def _repr_html_(self) -> str:
        each = members_html(self.plan.members)
        title = f"oocarrays.GroupJob {self._title()}"
        return rows_html(self._rows(), title=title, below=each, measured=self._ran())


def member_rows(plan: GroupPlan) -> list[tuple[str, ...]]:
    """Return a row for each array to be rewritten."""
    head = ("array", "chunks", "", "", "strategy", "bytes", "peak memory", "predicted")
    each = [
        (
            name,
            report.shape_text(member.source.grid.chunks),
            "→",
            report.shape_text(member.target.grid.chunks),
            member.strategy if member.passes else "nothing to move",
            format_bytes(member.target.nbytes),
            format_bytes(member.peak_bytes),
            report.seconds_text(member.seconds),
        )
        for name, member in plan.members
    ]
    return [head, *each]


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


# ---------------------------------------------------------------------- plans


def group_job(
    source: StoreLike | zarr.Group,
    target: StoreLike,
    chunks: Any,
    planner: Planner,
    cluster: Cluster | None,
    resume: Any = False,
) -> GroupJob:
    """Plan to rewrite some arrays of a group in other chunks, and to copy the others."""
    resources = planner.resources
    file = group_file.describe_group(group_file.open_group(source)).with_policy(planner.missing)
    file = file.in_format(planner.zarr_format)
    wanted = asked_for(file, chunks)
    checked(group_file.check_group_target, file.zarr, target, overwrite=planner.overwrite, resume=resume)
    id = uuid.uuid4().hex[:12]
    makers: list[Callable[[], Any]] = [
        partial(_planned_copies, file, target, wanted, resources),
        *(partial(_planned_member, file, target, name, lengths, planner) for name, lengths in wanted.items()),
    ]
    copies, *planned = within_budget(makers)
    members = {
        name: MemberRun(made, source_file, place, journal_content(made, source_file, place), id=id)
        for name, (made, source_file, place) in zip(wanted, planned, strict=True)
    }
    plan = GroupPlan(
        members=tuple((name, member.plan) for name, member in members.items()),
        copies=copies,
        budget=resources.budget,
        processes=resources.workers,
    )
    said = tuple(f"{name}: {each}" for name, member in members.items() for each in member.destination.said)
    destination = TargetSpec(store=target, overwrite=planner.overwrite, said=said)
    run = GroupRun(plan, file, destination, members, group_content(plan, file), id=id)
    return _job(run, cluster).asked_for(_requested(run))


def _requested(run: GroupRun) -> Document:
    file, plans = run.source, dict(run.plan.members)
    forms = {name: form(member.destination.settings) for name, member in run.members.items()}
    return requested(
        "rechunk", [named(file.zarr.store_path)], [[name, array_digest(each)] for name, each in file.arrays.items()],
        [], count=sum(plan.target.grid.count for plan in plans.values()), zarr_format=file.zarr_format, chunks=forms,
        arrays={name: plan.target.grid.count for name, plan in plans.items()},
    )  # fmt: skip


def resume_group(target: StoreLike, asked: GoingOn) -> GroupJob:
    """Plan to continue a stopped run of a group."""

    def copying(file: GroupFile, wanted: Mapping[str, Any], resources: Resources) -> CopyPlan:
        return _planned_copies(file, target, wanted, resources)

    return _job(*resumed_group(target, asked, copying))


def _job(run: GroupRun, cluster: Cluster | None) -> GroupJob:
    store = run.destination.store
    return GroupJob(run, open_group if local_folder(store) else lambda name: open_group(store), cluster)


def _planned_copies(file: GroupFile, target: StoreLike, wanted: Mapping[str, Any], resources: Resources) -> CopyPlan:
    files = file.folder is not None and local_folder(target) is not None
    return plan_copies(
        [_to_copy(name, array) for name, array in file.arrays.items() if name not in wanted],
        resources,
        at_once=zarr.config.get("async.concurrency"),
        local=files and not file.changes_format,
    )


def _to_copy(name: str, array: zarr.Array) -> ToCopy:
    try:
        chunk = array.shards or array.chunks
    except NotImplementedError:  # chunks of unequal length
        chunk = array.shape
    return ToCopy(name=name, nbytes=array.nbytes, object_bytes=math.prod(chunk) * max(array.dtype.itemsize, 1))


def _planned_member(
    file: GroupFile, target: StoreLike, name: str, lengths: Any, planner: Planner
) -> tuple[RechunkPlan, ArrayFile, Destination]:
    try:
        return planner.planned(file.arrays[name], member_store(target, name), lengths, member=True)
    except BudgetError as error:
        raise BudgetError(error.budget, error.least, f"rechunking {name}") from None
    except (ChunksError, UnsupportedError) as error:
        raise type(error)(f"{name}: {error}") from None
