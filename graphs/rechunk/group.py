"""Graph of a group: a beginning, copies, the graphs of all arrays one after the other, an end.

create group ─┬─► copy ─► copy ──┬─► create ─► … ─► finish ─► create ─► … ─► finish ─► finish group
              └─► copy ─► copy ──┘   └── air, as drawn in `graph` ──┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dask.task_spec import Task, TaskRef

from oocarrays.errors import JournalError, NotFoundError
from oocarrays.graphs.rechunk.graph import GraphBuilder
from oocarrays.graphs.rechunk.group_tasks import GroupRun, MemberRun
from oocarrays.graphs.rechunk.resume import GoingOn, planned, resumed
from oocarrays.graphs.run.builder import Builder, new_suffix
from oocarrays.graphs.run.looking import CHUNKS_READ, Found, Part, Stored, Trust, check_sources, look
from oocarrays.graphs.run.recovery import KEPT, journal_of, remaining, way_out, with_kept
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.run.work import Work
from oocarrays.graphs.settings import missing as policy_of
from oocarrays.mapping.layouts.local import evenly, spread
from oocarrays.plan.documents import Document
from oocarrays.plan.memory import Resources
from oocarrays.plan.rechunk.group import CopyPlan, GroupPlan, MemberPiece
from oocarrays.plan.rechunk.plan import RechunkPlan
from oocarrays.storage.files import group_file
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.group_file import GroupFile, member_store
from oocarrays.storage.files.places import StoreLike, place_name
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.receipts import Receipt
from oocarrays.storage.journal.texts import Kept


class GroupGraphBuilder(Builder):
    """Builder of the graph of one run of a group."""

    def __init__(self, run: GroupRun, addresses: Sequence[str] = ()) -> None:
        super().__init__(new_suffix(), Work.task, run)
        self.run = run
        self.homes: dict[str, Sequence[str]] = {self.suffix: addresses}
        """Worker of each rank, by the suffix in the keys of the pinned tasks."""

    def build(self) -> Key:
        """Add all tasks; return the key of the last one. On a cluster, they receive the run from the first."""
        create = (f"create group-{self.suffix}", 0)
        members = tuple(self.run.members.values())
        self.graph[create] = Task(create, Work.task, self.run, "create", (), 1, members)
        self._shared = TaskRef(create) if self.homes[self.suffix] else self.run
        done = [key for lane in range(self.run.copies.lanes) for key in self._lane(lane, create)] or [create]
        for member in members:
            done = [self._member(member, done)]
        return self.add("finish", name="finish group", after=done, rank=0)

    def _lane(self, lane: int, create: Key) -> Iterator[Key]:
        """Add a chain of copies; yield the key of the last one, if any."""
        last = create
        rank = lane % max(len(self.homes[self.suffix]), 1)
        for batch in self.run.copies.lane(lane):
            if (batch,) not in self.run.done:
                last = self.add("copy", batch, rank, name="copy as it is", after=[last])
        if last != create:
            yield last

    def _member(self, member: MemberRun, after: Sequence[Key]) -> Key:
        """Add all tasks of one array; return the key of the last one."""
        workers = list(dict.fromkeys(self.homes[self.suffix]))
        addresses = spread(member.plan.ranks, evenly(member.plan.ranks, workers))
        builder = GraphBuilder(member, new_suffix(), addresses)
        self.homes[builder.suffix] = addresses
        last = builder.build(after)
        self.graph |= builder.graph
        return last


# ---------------------------------------------------------------------- resuming


def group_content(plan: GroupPlan, source: GroupFile) -> Document:
    """Return the content of a group's journal; each rewritten array has a journal of its own."""
    copies = plan.copies
    return {
        "source": place_name(source.zarr.store_path.store, source.zarr.store_path.path),
        "missing": source.missing,
        "zarr_format": source.zarr_format,
        "members": {name: member.target.nbytes for name, member in plan.members},
        "batches": [[[piece.name, piece.part, piece.parts] for piece in batch] for batch in copies.batches],
        "copies": {name: getattr(copies, name) for name in ("lanes", "at_once", "nbytes", "peak_bytes", "seconds")},
        "budget": plan.budget,
        "processes": plan.processes,
    }


def resumed_group(
    target: StoreLike, asked: GoingOn, copying: Callable[[GroupFile, Mapping[str, Any], Resources], CopyPlan]
) -> tuple[GroupRun, Any]:
    """Return the interrupted run of a group without its finished parts, and where it continues."""
    journal, id, content = journal_of(target, "group")
    trust = asked.trust
    _check_names(target, content)
    file = _source(content, asked.source, target, asked.place).in_format(content.get("zarr_format"))
    file = file.with_policy(policy_of(content.get("missing") if asked.missing is None else asked.missing))
    names = [name for name in content["members"] if not is_finished(member_store(target, name))]
    places = [member_store(target, name) for name in names]
    if not all(unfinished_run(place) and Journal(place).is_there() for place in places):
        raise JournalError(f"the run in {target} stopped before it had created all arrays; {way_out(target)}")
    if trust.again and len(names) < len(content["members"]):
        raise JournalError(f"some arrays of {target} are finished: to start over, pass overwrite=True (--overwrite)")
    before = _plan_of(content, {name: planned(member_store(target, name)) for name in names})
    where, resources = asked.terms(before)
    each = replace(asked, terms=lambda _: (where, resources))
    left = {name: _member(target, name, file, each) for name in names}
    notices = _check_arrays(file, content, target, trust)
    stored, kept = ({}, {}) if trust.again else (journal.stored(), journal.kept())
    found = _looked(with_kept(stored, kept), target, verify=trust.verify)
    lost = found.lost.union(part for part, receipts in stored.items() if receipts is None)
    anew = resources is not None or KEPT in found.lost
    if anew:
        stays = [receipts for part, receipts in stored.items() if part not in lost and receipts]
        kept = _joined(
            [*stays, kept], {name: found.odd.get(str(member_store(target, name)), ()) for name in file.arrays}
        )
    if trust.again:
        content = {name: each for name, each in content.items() if name != CHUNKS_READ}
    if resources is not None:
        plan = GroupPlan(
            members=tuple((name, run.plan) for name, run in left.items()),
            copies=copying(file, content["members"], resources),
            budget=resources.budget,
            processes=resources.workers,
        )
        content |= {name: each for name, each in group_content(plan, file).items() if name not in ("source", "members")}
    remains = remaining(
        content, trust, anew=anew, id=id, done=frozenset() if anew else frozenset(stored.keys() - lost),
        lost=frozenset() if anew else lost, kept=kept, notices=tuple(notices),
    ).told(found.notice, *(notice for run in left.values() for notice in run.notices))  # fmt: skip
    return GroupRun(
        _plan_of(content, {name: run.plan for name, run in left.items()}),
        file,
        TargetSpec(store=target),
        left,
        content,
        id=id,
        remains=remains,
    ), where


def _plan_of(content: Mapping[str, Any], members: Mapping[str, RechunkPlan]) -> GroupPlan:
    """Return the plan in a journal's content, with the given plans of its arrays."""
    return GroupPlan(
        members=tuple(members.items()),
        copies=_copies(content),
        budget=content["budget"],
        processes=content["processes"],
    )


def _joined(kept: Sequence[Kept], odd: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Receipt]]:
    """Return the receipts of several parts, by array, without objects that are not as they were stored."""
    all: dict[str, dict[str, Receipt]] = {}
    for name, chunks in (each for part in kept for each in part.items()):
        all.setdefault(name, {}).update({key: r for key, r in chunks.items() if key not in odd.get(name, ())})
    return all


def _check_arrays(source: GroupFile, content: Mapping[str, Any], target: StoreLike, trust: Trust) -> list[str]:
    """Return notices about changed arrays, finished ones too; raise if ``trust`` does not accept a change."""
    kept = content.get(CHUNKS_READ) or {}
    names = [name for name in kept if name in source.arrays]
    before = {CHUNKS_READ: [kept[name] for name in names]}
    return check_sources([source.arrays[name] for name in names], before, target, trust)


def _looked(stored: Mapping[Part, Stored | None], target: StoreLike, *, verify: bool) -> Found:
    """Return the copies that are not as they were stored; parts without receipts are not checked, but copied again."""
    kept = {part: receipts for part, receipts in stored.items() if receipts is not None}
    return look(kept, lambda _, name: member_store(target, name), lambda _: (None, {}), verify=verify)


def _source(content: Mapping[str, Any], given: Any, target: StoreLike, place: Callable[[Any], Any]) -> GroupFile:
    there = content["source"] if given is None else getattr(given, "zarr", given)
    if there is None:
        raise NotFoundError(f"the source of {target} is not a path or URL: pass source=")
    return group_file.describe_group(group_file.open_group(place(there)))


def _check_names(target: StoreLike, content: Mapping[str, Any]) -> None:
    """Raise if a name leads out of the group."""
    names = [*content["members"], *(name for batch in content["batches"] for name, *_ in batch)]
    for name in names:
        if not isinstance(name, str) or {"", ".", ".."} & set(name.split("/")):
            raise JournalError(f"the journal in {target} has {name!r}, which does not name a part of a group")


def _copies(content: Mapping[str, Any]) -> CopyPlan:
    batches = (
        tuple(MemberPiece(name=name, part=part, parts=parts) for name, part, parts in pieces)
        for pieces in content["batches"]
    )
    return CopyPlan(batches=tuple(batches), **content["copies"])


def _member(target: StoreLike, name: str, source: GroupFile, asked: GoingOn) -> MemberRun:
    if name not in source.arrays:
        raise JournalError(f"the journal in {target} is for {name}, which {source.name} no longer has")
    return resumed(member_store(target, name), replace(asked, source=source.arrays[name]), MemberRun)[0]
