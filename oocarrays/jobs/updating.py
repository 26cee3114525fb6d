"""Updates of an array from its changed source: the job, and its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.errors import InputError, JournalError, NotFoundError, TargetError
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.placement import Cluster
from oocarrays.graphs.files.update import Growing, Update
from oocarrays.graphs.run.recovery import NOTHING_LEFT, Interrupted, Recovered
from oocarrays.graphs.run.run import Run
from oocarrays.jobs.job import Job, array_at, opener
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.mapping.section import Section
from oocarrays.options.asked import cluster_of, resources_of
from oocarrays.options.given import Resources
from oocarrays.plan.documents import Document
from oocarrays.plan.files.update import UpdatePlan, boxes_of, plan_update
from oocarrays.plan.plan import Resources as PlanResources
from oocarrays.requests import unfinished_text
from oocarrays.show.report import READ_AND_WRITTEN, shape_text
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import written_file
from oocarrays.storage.files.documents import holds_group, unfinished_run
from oocarrays.storage.files.group_file import open_group
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.journal.calls import CALL, call_content
from oocarrays.storage.journal.journal import Journal, can_update
from oocarrays.storage.journal.sources import CHUNKS_READ, TRUSTED, Source, Trust, kept_source, trust_of
from oocarrays.storage.stores.sessions import is_zip
from oocarrays.storage.stores.urls import check_replaces
from oocarrays.stored.array import placer

ANEW = "write it anew, by rechunk with overwrite=True"
"""Advice for an array that cannot be updated."""
CHANGED, LENGTHS = "changed", "lengths"
"""Journal keys for the changed boxes, and for their cut into parts."""


class UpdateJob(Job[Run[Update], OutOfCoreArray, UpdatePlan]):
    """Planned update of an array: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""

    _counted = READ_AND_WRITTEN

    def _beside(self) -> Mapping[str, str]:
        spec = self._run.program.target
        grown = spec.before != spec.after and f", which grows: {shape_text(spec.before)} → {shape_text(spec.after)}"
        return {"replaced": grown or ""}

    def _title(self) -> str:
        return f"oocarrays.UpdateJob {self._run.program.source.name} → {self._run.destination.store}"


def update_array(target: StoreLike, source: Any, means: Resources, *, resume: Any = False) -> UpdateJob:
    place = placer(means.storage_options) if source is None else placer(means.storage_options, target, source)
    target = place(target)
    trust = replace(trust_of(resume) or TRUSTED, moved=source is not None)
    cluster = cluster_of(means.scheduler, means.workers)
    if left := _interrupted(target, trust):
        return resume_update(left, place, source, cluster, means)
    resources = resources_of(cluster, means.memory)
    now = _Now.of(target, place, source, means.missing)
    grid = now.seen.grid
    changed = [grid.block(*box) for box in boxes_of(now.changed())]
    return now.job(plan_update(now.file.stored, now.grown, changed, resources), cluster, resources)


def _interrupted(target: StoreLike, trust: Trust) -> Interrupted | None:
    if is_zip(target):
        raise TargetError(f"{target} is a zip file, in which nothing can be replaced: {ANEW}")
    check_replaces(target)
    if holds_group(target):
        names = sorted(open_group(target, unfinished=True).array_keys())
        raise TargetError(
            f"{target} is a group: update its arrays one by one, those that were copied too, by their paths "
            f"({', '.join(names) or 'it has none'})"
        )
    if unfinished_run(target) is None:
        Journal(target).sweep()
        return None
    try:
        left = Interrupted.at(target, trust)
    except InputError:
        if can_update(target):
            return None  # its journal is lost: all that has changed since it was finished is written again
        raise
    if left.content.get(CALL, {}).get("function") != "update":
        raise TargetError(unfinished_text(target))
    return left


class _Now:
    """Target of an update, with its recorded and its present source."""

    def __init__(self, target: StoreLike, kept: Source, file: ArrayFile, seen: Source, read: Document) -> None:
        self.target, self.kept, self.file, self.seen, self.read = target, kept, file, seen, read
        self.written = written_file(target)
        self._check()

    @classmethod
    def of(cls, target: StoreLike, place: Callable[[Any], Any], source: Any, missing: str | None) -> _Now:
        array_file.open_array(target, unfinished=True)
        kept = kept_source(target)
        if kept is None:
            raise NotFoundError(
                f"{target} has no record of its source: {ANEW}, and with the setting oocarrays.fingerprints"
            )
        there = kept.place if source is None else getattr(source, "zarr", source)
        file = array_file.describe_source(array_file.open_array(place(there)), settings.missing(missing))
        found = Source.seen(file.zarr)
        if found is None:
            raise InputError(f"the chunks of {file.name} cannot be listed to find changed ones: {ANEW}")
        return cls(target, kept, file, *found)

    def _check(self) -> None:
        file, written, kept, seen = self.file, self.written, self.kept, self.seen
        if file.dtype != written.dtype or file.zarr.ndim != written.zarr.ndim:
            raise JournalError(f"{file.name} differs in dtype or axes from {self.target}: {ANEW}")
        try:
            self.changed()
        except JournalError as error:
            raise JournalError(f"{file.name} is not the source of {self.target}: {error}; {ANEW}") from None
        shapes = kept.grid.shape, written.stored.grid.shape, seen.grid.shape
        if any(not small <= here <= large for small, here, large in zip(*shapes, strict=True)):
            raise TargetError(f"{self.target} has shape {shapes[1]}; it was made with {shapes[0]}: {ANEW}")

    def changed(self) -> np.ndarray:
        """Return an array of booleans, True for chunks of the present source to read again."""
        return self.kept.changed(self.seen, self.file.zarr)

    @property
    def grown(self) -> Stored:
        stored = self.written.stored
        return replace(stored, grid=ChunkGrid.of(self.seen.grid.shape, stored.grid.chunks))

    def content(self, plan: UpdatePlan, resources: PlanResources) -> Document:
        call = call_content(
            "update", [self.seen.place], memory=resources.budget, processes=resources.workers,
            missing=self.file.presence.missing,
        )  # fmt: skip
        return call | {
            CHUNKS_READ: [self.read],
            CHANGED: [[box.lower, box.upper] for box in plan.changed],
            LENGTHS: plan.lengths,
        }

    def job(
        self,
        plan: UpdatePlan,
        cluster: Cluster | None,
        resources: PlanResources,
        recovered: Recovered = NOTHING_LEFT,
        content: Document | None = None,
    ) -> UpdateJob:
        shape = self.written.stored.grid.shape
        spec = Growing(store=self.target, before=shape, after=self.seen.grid.shape)
        program = Update(plan=plan, source=self.file, target=spec)
        run = Run(program, content or self.content(plan, resources), recovered)
        return UpdateJob(run, opener(array_at, self.target), cluster)


def resume_update(
    left: Interrupted, place: Callable[[Any], Any], source: Any, cluster: Cluster | None, means: Resources
) -> UpdateJob:
    target, content, trust = left.target, left.content, left.trust
    policy = content[CALL]["options"].get("missing") if means.missing is None else means.missing
    now = _Now.of(target, place, source, policy)
    left = left.recorded([now.file.zarr])
    changed = [Section(tuple(lower), tuple(upper)) for lower, upper in content[CHANGED]]
    if trust.again:
        changed = [now.seen.grid.block(*box) for box in boxes_of(now.changed())]
    elif now.written.stored.grid.shape != now.seen.grid.shape:
        raise JournalError(
            f"{now.file.name} has grown since the update of {target} began: resume with again=True, --again"
        )
    asked = resources_of(cluster, content[CALL]["memory"] if means.memory is None else means.memory)
    before = plan_update(now.file.stored, now.grown, changed, asked, content[LENGTHS])
    same = not trust.again and before.peak_bytes <= asked.budget
    plan = before if same else plan_update(now.file.stored, now.grown, changed, asked)
    recovered = left.recover(plan, {"": target}, before=None if same else before)
    if recovered.anew:
        content = now.content(plan, asked) | left.begun_with
    return now.job(plan, cluster, asked, recovered, content)
