"""Journal of a group, and its resumption; each rewritten array has a journal of its own.

begin     source, arrays to rewrite, batches of copies     ─► journal
resume    journal ─► the same copies, without the batches recorded as done; or others, for other resources, without
                     the objects that have been stored; and the run of each array that is not finished
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from oocarrays.errors import JournalError, NotFoundError
from oocarrays.graphs.rechunk.group import CopiedGroup, Group, group_run, planned_copies
from oocarrays.graphs.rechunk.resume import planned, resumed
from oocarrays.graphs.run.recovery import CHUNKS_READ, Interrupted
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.settings import missing as policy_of
from oocarrays.plan.documents import Document
from oocarrays.plan.memory import Resources
from oocarrays.plan.rechunk.group import CopyPlan, GroupPlan, MemberPiece
from oocarrays.storage.files import group_file
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.group_file import GroupFile, member_store
from oocarrays.storage.files.places import StoreLike, place_name
from oocarrays.storage.journal.journal import Journal, way_out
from oocarrays.storage.stores.remote import RemoteStore


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
    left: Interrupted,
    terms: Callable[[], Resources | None],
    source: Any,
    *,
    missing: str | None = None,
    place: Callable[[Any], Any],
    scratch: str | RemoteStore,
) -> Run[Group]:
    """Return the interrupted run of a group without its finished parts; arguments are those of `resumed`."""
    content, target, again = left.content, left.target, left.trust.again
    file = _source(content, source, target, place).in_format(content.get("zarr_format"))
    file = file.with_policy(policy_of(content.get("missing") if missing is None else missing))
    names = _unfinished(left)
    if again and len(names) < len(content["members"]):
        raise JournalError(f"some arrays of {target} are finished: to start over, pass overwrite=True (--overwrite)")
    resources, members = terms(), {}
    for name in names:
        if name not in file.arrays:
            raise JournalError(f"the journal in {target} is for {name}, which {file.name} no longer has")
        one = Interrupted.at(member_store(target, name), left.trust)
        members[name] = resumed(
            one, lambda: resources, file.arrays[name], place=place, scratch=scratch, missing=missing, member=name
        )
    left = left.recorded(file.arrays)
    unknown = frozenset(part for part, receipts in left.stored.items() if receipts is None)
    known = replace(left, stored={part: each for part, each in left.stored.items() if part not in unknown})
    before = _copies(content)
    copies = before if resources is None else planned_copies(file, target, content["members"], resources)
    places = {name: member_store(target, name) for name in file.arrays}
    recovered = known.recover(before, places, before=None if resources is None else before, rewrites=False)
    recovered = replace(recovered, lost=recovered.lost if recovered.anew else recovered.lost | unknown)
    content = {name: each for name, each in content.items() if name != CHUNKS_READ} | left.begun_with
    plan = GroupPlan(
        members=tuple((name, run.program.plan) for name, run in members.items()), copies=copies,
        budget=content["budget"] if resources is None else resources.budget,
        processes=content["processes"] if resources is None else resources.workers,
    )  # fmt: skip
    if resources is not None:
        content |= {name: each for name, each in group_content(plan, file).items() if name not in ("source", "members")}
    notices = (notice for run in members.values() for notice in run.notices)
    return group_run(
        plan, CopiedGroup(store=target, source=file), members, content, id=left.id, recovered=recovered.told(*notices)
    )


def planned_group(left: Interrupted) -> GroupPlan:
    """Return the plan in the journal of a group, with the plans of its unfinished arrays."""
    content, target = left.content, left.target
    for name in [*content["members"], *(name for batch in content["batches"] for name, *_ in batch)]:
        if not isinstance(name, str) or {"", ".", ".."} & set(name.split("/")):
            raise JournalError(f"the journal in {target} has {name!r}, which does not name a part of a group")
    stores = {name: member_store(target, name) for name in _unfinished(left)}
    if not all(unfinished_run(store) and Journal(store).is_there() for store in stores.values()):
        raise JournalError(f"the run in {target} stopped before it had created all arrays; {way_out(target)}")
    members = ((name, planned(Interrupted.at(store, left.trust))) for name, store in stores.items())
    return GroupPlan(
        members=tuple(members), copies=_copies(content), budget=content["budget"], processes=content["processes"]
    )


def _unfinished(left: Interrupted) -> list[str]:
    """Return the names of the arrays that are still to be rewritten."""
    return [name for name in left.content["members"] if not is_finished(member_store(left.target, name))]


def _source(content: Mapping[str, Any], given: Any, target: StoreLike, place: Callable[[Any], Any]) -> GroupFile:
    there = content["source"] if given is None else getattr(given, "zarr", given)
    if there is None:
        raise NotFoundError(f"the source of {target} is not a path or URL: pass source=")
    return group_file.describe_group(group_file.open_group(place(there)))


def _copies(content: Mapping[str, Any]) -> CopyPlan:
    batches = (
        tuple(MemberPiece(name=name, part=part, parts=parts) for name, part, parts in pieces)
        for pieces in content["batches"]
    )
    return CopyPlan(batches=tuple(batches), **content["copies"])
