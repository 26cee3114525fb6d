"""Group as a program: a beginning, copies, the rechunks of all arrays one after the other, and an end.

create group ─┬─► copy ─► copy ──┬─► create ─► … ─► finish ─► create ─► … ─► finish ─► finish group
              └─► copy ─► copy ──┘   └── air, as drawn in `program` ┘

Every rewritten array has a run of its own, with the same id, and a journal beside its target. All targets are made at
the beginning, so that each array can be resumed after any interruption. A recorded part is ``(batch,)`` of copies.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import zarr
from dask.task_spec import Task

from oocarrays.errors import OocError, UnsupportedError
from oocarrays.graphs.rechunk.passes import marks
from oocarrays.graphs.rechunk.program import Rechunk
from oocarrays.graphs.run import recording
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Builder, Part, Program, Remaining, new_suffix
from oocarrays.graphs.run.recovery import NOTHING_LEFT, Recovered
from oocarrays.graphs.run.run import Run, call
from oocarrays.graphs.run.steps import PHASES, Key
from oocarrays.plan.documents import Document
from oocarrays.plan.machine import evenly, spread
from oocarrays.plan.plan import Resources
from oocarrays.plan.rechunk.group import CopyPlan, GroupPlan, ToCopy, plan_copies
from oocarrays.storage.chunks.copies import begin_conversion, convert_part, copy_documents, copy_part
from oocarrays.storage.files import group_file
from oocarrays.storage.files.creating import TargetSpec, create_target, remove_scratch
from oocarrays.storage.files.documents import is_finished, remove_partials, unfinished_run
from oocarrays.storage.files.group_file import GroupFile
from oocarrays.storage.files.places import StoreLike, local_folder, member_store, name_of, place_name
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.leftovers import remove_dead_scratch, remove_unfinished
from oocarrays.storage.journal.sources import CHUNKS_READ, can_keep
from oocarrays.storage.journal.texts import Kept, Receipt, Receipts
from oocarrays.storage.meter import Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedGroup(TargetSpec):
    """Target of a group: its groups, and the arrays that are copied unchanged."""

    source: GroupFile
    copied: tuple[str, ...] = ()
    """Names of the arrays that are copied."""

    @property
    def converted(self) -> tuple[str, ...]:
        """Names of the arrays that are copied into another Zarr format; their drafts are made at the beginning."""
        return self.copied if self.source.changes_format else ()

    def check(self, *sources: Any) -> None:
        """Raise if the group would overwrite its source or other data."""
        group_file.check_group_target(self.source.zarr, self.store, overwrite=self.overwrite)

    def create(self, run: str, *, durable: bool) -> None:
        """Create the group, marked unfinished, and its subgroups."""
        made = {"zarr_format": self.source.zarr_format, "attributes": dict(self.source.zarr.attrs.asdict())}
        group_file.make_group(
            self.store, made, run, groups=self.source.groups, overwrite=self.overwrite, durable=durable
        )

    def resume(self, run: str, *, durable: bool) -> None:
        """Do nothing: the group's run knows the unfinished chunks of its arrays."""

    def open(self) -> Meter:
        """Return a counter of the documents that are copied at the end."""
        return Meter()

    def finishing(self, opened: Meter, *, durable: bool) -> Any:
        """Return a function that writes the documents of the copied arrays, and then those of the groups."""

        def finish() -> None:
            for name in () if self.converted else self.copied:
                array, store = self.source.arrays[name], member_store(self.store, name)
                copy_documents(array, store, meter=opened, durable=durable)
            nodes = [*self.converted, *self.source.groups]
            group_file.finish_group(self.store, self.source.consolidated_copy, nodes=nodes, durable=durable)

        return finish


@dataclass(frozen=True, kw_only=True)
class Group(Program):
    """Rechunk of a group, apart from its rewritten arrays, which have runs of their own."""

    phases: ClassVar[Mapping[str, str]] = {**PHASES, "copy": "copy"}
    threads_stay: ClassVar[bool] = True
    plan: GroupPlan
    """Plan without the rewritten arrays: they travel by themselves."""
    target: CopiedGroup
    rewritten: tuple[str, ...]
    """Names of the arrays to rewrite, finished ones too."""
    nbytes: int
    """Bytes of their targets without codecs."""

    @property
    def source(self) -> GroupFile:
        return self.target.source

    @property
    def ranks(self) -> int:
        return self.plan.copies.lanes

    @property
    def presences(self) -> Sequence[Presence]:
        return [self.source.presences[name] for name in self.target.copied]

    @property
    def stores(self) -> dict[str, Any]:
        return {"source": self.source.zarr.store_path.store, "target": self.target.store}

    @property
    def read_from(self) -> Mapping[str, zarr.Array]:
        return {name: self.source.arrays[name] for name in self.target.copied}

    @property
    def fingerprinted(self) -> Mapping[str, zarr.Array]:
        return self.source.arrays

    @property
    def made_place(self) -> StoreLike | None:
        """First rewritten array, else the first copied one, beside which the request is kept.

        Beside a group's metadata, Zarr would take the request for a member.
        """
        first = min(self.rewritten, default=min(self.target.copied, default=None))
        return None if first is None else member_store(self.target.store, first)

    @property
    def room(self) -> Mapping[str, int]:
        folder = local_folder(self.target.store)
        return {folder: self.nbytes} if folder else {}

    def place_of(self, part: Part, name: str) -> StoreLike | None:
        return member_store(self.target.store, name)

    def remaining(self, done: Collection[Part], kept: Kept) -> Remaining:
        """Return no work: only that of the rewritten arrays is counted."""
        return Remaining(1.0, 0.0, 0.0)

    def restart(self, live: Live[Any]) -> None:
        """Mark finished arrays as unfinished if their sources may have changed since: they are written again."""
        content, trust = live.journal.read()[1], live.state.recovered.trust
        known = content.get(CHUNKS_READ) or {}
        for part in () if live.state.recovered.id is not None else live.parts:
            name, target = part.program.member, part.program.target
            changed = recording.changed_since({name: self.source.arrays[name]}, content, live.store, trust)
            if is_finished(target.store) and (changed or not known.get(name)):
                create_target(target.store, target.settings, live.id, overwrite=True, durable=live.state.durable)

    def begin(self, live: Live[Any]) -> None:
        """Make the missing arrays; remove what dead runs have left."""
        if live.state.recovered.id is not None:
            self._tidy(live)
        for part in live.parts:
            _prepare(part)
        for name in self.target.converted:
            store = member_store(self.target.store, name)
            begin_conversion(self.source.arrays[name], store, self.source.zarr_format, durable=live.state.durable)
        if live.state.made and live.parts:
            remove_dead_scratch(live.store, live.parts[0].program.below)

    def _tidy(self, live: Live[Any]) -> None:
        """Remove a dead run's partial files, its journals of finished arrays, and scratch without finished parts."""
        remove_partials(self.target.store, set().union(*map(marks, live.parts)))
        for name in self.rewritten:
            store = member_store(self.target.store, name)
            if is_finished(store):
                Journal(store).remove()
        if live.parts and not any(part.state.recovered.done for part in live.parts):
            remove_scratch(live.parts[0].program.below)  # all arrays use the same scratch, in turn


def _prepare(live: Live[Rechunk]) -> None:
    """Make the target of an array and begin its journal, unless that was done before."""
    target, run, durable = live.program.target, live.id, live.state.durable
    if live.state.recovered.id is not None or is_finished(target.store):
        return
    if not live.journal.is_there():
        live.journal.begin(run, recording.content_now(live))
    if unfinished_run(target.store) != run:
        create_target(target.store, target.settings, run, overwrite=False, durable=durable)


def create(live: Live[Group], members: Sequence[Run[Rechunk]]) -> None:
    """Make the target with all its groups, and the arrays that are to be rewritten, or nothing."""
    live.parts = [member.live for member in members]
    live.shares_meter = True  # missing chunks are counted before the run begins
    for part in live.parts:
        part.look()  # a missing array has no fingerprint
    for presence in live.program.presences:
        presence.look_for_missing(live.meter)
    mine = unfinished_run(live.store) == live.id
    try:
        recording.begin(live)
    except BaseException:
        with suppress(OocError):
            if not mine and unfinished_run(live.store) == live.id:  # a resumed run must find all arrays
                remove_unfinished(live.store)
        raise


def copy(live: Live[Group], batch: int, rank: int) -> None:
    """Copy some arrays, or a part of one, unchanged."""
    if live.is_done((batch,)):
        return
    live.journal.join()
    program, kept = live.program, live.state.recovered.kept
    stored: dict[str, dict[str, Receipt]] = {}
    for piece in program.plan.copies.batches[batch]:
        array, store = program.source.arrays[piece.name], member_store(program.target.store, piece.name)
        receipts, part = Receipts(kept.get(piece.name, {})), (piece.part, piece.parts)
        how: Any = {"meter": live.meter, "receipts": receipts}
        if program.source.changes_format:
            convert_part(array, store, part, **how)
        else:
            copy_part(array, store, part, at_once=program.plan.copies.at_once, fresh=live.state.made, **how)
        stored.setdefault(piece.name, {}).update(receipts.kept)
    live.record((batch,), stored)


def finish(live: Live[Group]) -> str:
    copied: Meter = live.target()
    recording.end(live, then=partial(_keep_sources, live))
    live.meter.put(copied.take())
    return name_of(live.store)


def _keep_sources(live: Live[Group]) -> None:
    """Keep the fingerprints of the arrays that are copied, so that these can be updated by themselves."""
    program = live.program
    known = live.journal.read()[1].get(CHUNKS_READ) or {} if live.journal.is_there() else {}
    for name in program.target.copied if can_keep(program.target.store) else ():
        with suppress(UnsupportedError, NotImplementedError):  # never updated
            store = member_store(program.target.store, name)
            recording.keep_source_of_array(store, program.source.arrays[name], known.get(name))


def planned_copies(file: GroupFile, target: StoreLike, wanted: Collection[str], resources: Resources) -> CopyPlan:
    """Return a plan of copying the arrays that are not rewritten."""
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


def group_run(
    plan: GroupPlan,
    target: CopiedGroup,
    members: Mapping[str, Run[Rechunk]],
    content: Document,
    *,
    id: str,
    recovered: Recovered = NOTHING_LEFT,
) -> Run[Group]:
    plain = [stored for _, member in plan.members if not (stored := member.target).coded]
    program = Group(
        plan=replace(plan, members=()),
        target=replace(target, copied=tuple(sorted(plan.copies.names))),
        rewritten=tuple(content["members"]),
        nbytes=sum(stored.grid.count * stored.chunk_bytes for stored in plain),
    )
    return Run(program, content, recovered, id, tuple(members.values()))


def build_graph(run: Run[Group], addresses: Sequence[str]) -> tuple[dict[Key, Task], Key, dict[str, Sequence[str]]]:
    """Return the tasks, the key of the last one, and the worker of each rank by the suffix in the tasks' keys."""
    builder = Builder(new_suffix(), call, run)
    created = (f"create group-{builder.suffix}", 0)
    builder.graph[created] = Task(created, call, run, create, (), 1, run.parts)
    if addresses:
        builder.receive(created)
    lanes, homes = range(run.program.plan.copies.lanes), {builder.suffix: addresses}
    done = [key for lane in lanes for key in _lane(builder, run, lane, created, len(addresses))] or [created]
    workers = list(dict.fromkeys(addresses))
    for member in run.parts:
        ranks = spread(member.program.plan.ranks, evenly(member.program.plan.ranks, workers))
        graph, last = member.graph(ranks, done)
        builder.graph |= graph
        homes[last[0].rpartition("-")[2]], done = ranks, [last]
    return builder.graph, builder.add(finish, name="finish group", after=done, rank=0), homes


def _lane(builder: Builder, run: Run[Group], lane: int, created: Key, workers: int) -> list[Key]:
    """Add a chain of copies; return the key of the last one, if any."""
    last, rank = created, lane % max(workers, 1)
    for batch in run.program.plan.copies.lane(lane):
        if (batch,) not in run.done:
            last = builder.add(copy, batch, rank, name="copy as it is", after=[last])
    return [] if last == created else [last]


def group_content(plan: GroupPlan, source: GroupFile) -> Document:
    """Return the content of a group's journal; each rewritten array has a journal of its own."""
    copies = plan.copies
    return {
        "source": place_name(source.zarr.store_path),
        "missing": source.missing,
        "zarr_format": source.zarr_format,
        "members": {name: member.target.nbytes for name, member in plan.members},
        "batches": [[[piece.name, piece.part, piece.parts] for piece in batch] for batch in copies.batches],
        "copies": {name: getattr(copies, name) for name in ("lanes", "at_once", "nbytes", "peak_bytes", "seconds")},
        "budget": plan.budget,
        "processes": plan.processes,
    }
