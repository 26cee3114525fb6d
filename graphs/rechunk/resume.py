"""Resuming an interrupted rechunk of an array or a group: the content of its journal, and the trust placed in it.

begin     plan, source and its fingerprint, scratch location      ─► journal
resume    journal ─► the same plan, without the parts recorded as done and still as they were stored; or another plan
                     for other resources, without the chunks that have been stored
          error: a plan, source or target other than those that the journal was written for

group     source, arrays to rewrite, batches of copies            ─► its journal; each rewritten array has its own
resume    journal ─► copies, without the batches recorded as done; or others, for other resources, without the objects
                     that have been stored; and the run of each array that is not finished

Records of assembled chunks are compared with the chunks as stored now:

    recorded    c/0/3   [4194304, 991]     a part has placed pieces in it: the sum covers its pieces alone
    now         c/0/3.4f1c….partial        while the chunk does not have its final name

If the pieces of one part are not as they were placed, the chunk counts as changed for all parts.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import zarr

from oocarrays.errors import JournalError, NotFoundError
from oocarrays.graphs.rechunk.group import CopiedGroup, Group, group_content, group_run, planned_copies
from oocarrays.graphs.rechunk.passes import MOST_SUM, usable_parts
from oocarrays.graphs.rechunk.program import Destination, Rechunk, journal_content, rechunk_run
from oocarrays.graphs.run.recovery import Interrupted, Part, Recovered
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.settings import missing as policy_of, past_cache_above
from oocarrays.mapping.given import Policy
from oocarrays.mapping.grid import Index
from oocarrays.plan.documents import Document, read_as
from oocarrays.plan.plan import Resources
from oocarrays.plan.rechunk.group import CopyPlan, GroupPlan, MemberPiece
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.plan.rechunk.plan import RechunkPlan, plan_rechunk
from oocarrays.storage.chunks.assembling import Assembler
from oocarrays.storage.files import array_file, group_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import is_scratch, written_file
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.places import StoreLike, in_files, member_store, place_below
from oocarrays.storage.journal.journal import Journal, way_out
from oocarrays.storage.journal.leftovers import scratch_below, trusted_scratch
from oocarrays.storage.journal.sources import CHUNKS_READ, is_of
from oocarrays.storage.journal.texts import BEGINNING, Kept, Receipt
from oocarrays.storage.local.blobs import byte_view, checksum
from oocarrays.storage.local.fs import mark_of_plan, partial_name
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.urls import scratch_place


def resumed(
    left: Interrupted,
    terms: Callable[[], Resources | None],
    source: Any,
    *,
    place: Callable[[Any], Any],
    scratch: str | RemoteStore,
    missing: str | None = None,
    member: str = "",
) -> Run[Rechunk]:
    """Return an interrupted run without its finished parts.

    ``terms`` returns the resources for another plan, or None to keep the plan; it is called if the source is intact.
    ``source`` and ``scratch`` stand for locations that the journal does not name, ``missing`` for the run's own policy.
    """
    before, content, target = planned(left), left.content, left.target
    file = _source(content, source, target, place, missing)
    if content.get("blocks") and left.trust.again:
        raise JournalError(
            f"{target} was being written from a lazy array: to start over, pass overwrite=True (--overwrite)"
        )
    written = written_file(target)
    if written.stored.grid != before.target.grid or file.stored.grid != before.source.grid:
        raise JournalError(
            f"the journal in {target} plans for chunks {before.target.grid.chunks}, which differ from the target's"
        )
    left = left.recorded(None if content.get("blocks") else [file.zarr])
    destination = Destination(
        store=target,
        scratch=trusted_scratch(scratch_place(place(content["scratch"])), left.id, scratch),
        past_cache_above=past_cache_above(),
    )
    resources = terms()
    plan = before if resources is None else replanned(before, file, destination, resources)
    recovered = _recovered(left, before, plan, scratch_below(destination.scratch, left.id))
    if recovered.anew:
        kept = {name: each for name, each in content.items() if name != CHUNKS_READ}
        content = kept | left.begun_with | journal_content(plan, file, destination)
    return rechunk_run(plan, file, destination, content, recovered, member=member)


def replanned(before: RechunkPlan, file: ArrayFile, destination: Destination, resources: Resources) -> RechunkPlan:
    """Plan the same work with other resources; return the earlier plan if the new one does not differ."""
    remote = not in_files(destination.scratch)
    plan = plan_rechunk(file.stored, before.target, resources, remote_scratch=remote)
    told = ("passes", "budget", "processes")
    same = all(getattr(plan, name) == getattr(before, name) for name in told)
    return before if same else plan


def _recovered(left: Interrupted, before: RechunkPlan, plan: RechunkPlan, scratch: str | RemoteStore) -> Recovered:
    """Check the target and existing scratch, and return the state that a plan can reuse, the same plan or another."""
    below = ((before.place_name(number), place_below(scratch, str(number))) for number in range(len(before.passes) - 1))
    target, between = {"": left.target}, {name: folder for name, folder in below if is_scratch(folder)}
    left = _located(left, before)
    mark = partial(mark_of_plan, left.id, left.content.get(BEGINNING, ""))
    now = replace(left, stored=as_named_now(before, left.stored, target | between, mark, left.trust.verify))
    other, count = None if plan is before else before, plan.target.grid.count
    recovered = now.recover(plan, target, scratch=between, before=other, rewrites=False, count=f" of {count}")
    staged = any(part[0] < len(before.passes) - 1 for part in left.stored)
    again = recovered.anew and not left.trust.again and staged and len(recovered.kept.get("", {})) < count
    return replace(recovered, done=frozenset(usable_parts(plan, recovered.done, scratch))).told(
        "what was staged in scratch is of another plan: it is done again" if again else ""
    )


def _located(left: Interrupted, plan: RechunkPlan) -> Interrupted:
    """Return a journal with the names of scratch locations, and with chunks of unfinished parts as kept ones."""
    stored: dict[Part, Kept | None] = {}
    kept = dict(left.kept.get("", {}))
    for part, told in left.stored.items():
        receipts = (told or {}).get("", {})
        if len(part) > 3:  # the fourth number is the progress of an unfinished part
            kept |= receipts
        else:
            stored[part] = told if told is None else {plan.place_name(*part[:1]): receipts}
    return replace(left, stored=stored, kept={"": kept} if kept else {})


def planned(left: Interrupted) -> RechunkPlan:
    content, target = left.content, left.target
    if "pass" in content:
        again = f"{content['pass']}(..., resume=True)"
        raise JournalError(f"{target} was being written by a kernel: call {again} as before to continue")
    missing = {"plan", "source", "source_metadata", "scratch"} - content.keys()
    if missing:
        raise JournalError(f"the journal in {target} lacks {', '.join(sorted(missing))}")
    return read_as(RechunkPlan, content["plan"], "plan")


def _source(
    content: Document,
    given: StoreLike | zarr.Array | None,
    target: StoreLike,
    place: Callable[[Any], Any],
    missing: str | None,
) -> ArrayFile:
    there = content["source"] if given is None else getattr(given, "zarr", given)
    if content.get("blocks") and not (isinstance(there, str) and os.path.isdir(there)):
        raise NotFoundError(
            f"{target} was being written from a lazy array, whose blocks are not kept: pass overwrite=True "
            "(--overwrite) to write it again"
        )
    opened = array_file.open_array(place(_named(there, target)))
    file = array_file.describe_source(opened, _policy(content, missing))
    if not is_of(file, content["source_metadata"], content["source"]):
        raise JournalError(f"the journal in {target} does not belong to {file.name} as it is now")
    return file


def _named(there: Any, target: StoreLike) -> Any:
    if there is None:
        raise NotFoundError(f"the source of {target} is not a path or URL: pass source=")
    return there


def _policy(content: Mapping[str, Any], missing: str | None) -> Policy:
    return policy_of(content.get("missing") if missing is None else missing)


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
    there = content["source"] if source is None else getattr(source, "zarr", source)
    file = group_file.describe_group(group_file.open_group(place(_named(there, target))))
    file = file.in_format(content.get("zarr_format")).with_policy(_policy(content, missing))
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
    notices = (notice for run in members.values() for notice in run.state.recovered.notices)
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
    return [name for name in left.content["members"] if not is_finished(member_store(left.target, name))]


def _copies(content: Mapping[str, Any]) -> CopyPlan:
    batches = (
        tuple(MemberPiece(name=name, part=part, parts=parts) for name, part, parts in pieces)
        for pieces in content["batches"]
    )
    return CopyPlan(batches=tuple(batches), **content["copies"])


Recorded = Mapping[Part, Kept | None]


def as_named_now(
    plan: RechunkPlan, stored: Recorded, places: Mapping[str, StoreLike], mark: Callable[[int], str], verify: bool
) -> Recorded:
    """Return the records under the current keys of the chunks, with checksums of whole chunks."""
    now = dict(stored)
    for number, step in enumerate(plan.passes):
        name = plan.place_name(number)
        mine = {part: told for part, told in stored.items() if part[:1] == (number,) and told is not None}
        if step.assembled and mine and name in places:
            assembler = Assembler(written_file(places[name]), Meter(), mark(number), past_cache=False)
            found = _of_pass(step, assembler, {part: told.get(name, {}) for part, told in mine.items()}, verify)
            now.update({part: {name: receipts} for part, receipts in found.items()})
    return now


def _of_pass(
    step: Pass, assembler: Assembler, told: Mapping[Part, Mapping[str, Receipt]], verify: bool
) -> dict[Part, dict[str, Receipt]]:
    """Return the current receipts of each part, for the chunks in which it has placed pieces."""
    by_chunk: defaultdict[Index, list[tuple[Part, list[int]]]] = defaultdict(list)
    for part, receipts in told.items():
        for index in dict.fromkeys(step.written(*part[1:])):
            receipt = receipts.get(assembler.key(index))
            if receipt is not None:
                by_chunk[index].append((part, receipt))
    now: dict[Part, dict[str, Receipt]] = {part: {} for part in told}
    for index, parts in by_chunk.items():
        key, receipt = _chunk_now(step, assembler, index, parts, verify)
        for part, _ in parts:
            now[part][key] = receipt
    return now


def _chunk_now(
    step: Pass, assembler: Assembler, index: Index, parts: list[tuple[Part, list[int]]], verify: bool
) -> tuple[str, list[int]]:
    """Return the current key of a chunk, and the receipt that it must match."""
    key, nbytes = assembler.key(index), step.target.chunk_bytes
    named = os.path.exists(assembler.chunks.final(key))
    here = key if named else partial_name(key, assembler.chunks.mark)
    if not verify:
        return here, [nbytes]
    chunk = assembler.read(index)
    if chunk is None or not all(_is_as_placed(step, assembler, chunk, index, *each) for each in parts):
        return here, [nbytes, -1]  # a checksum that no chunk has
    return here, [nbytes, checksum(byte_view(chunk))]


def _is_as_placed(
    step: Pass, assembler: Assembler, chunk: np.ndarray, index: Index, part: Part, receipt: list[int]
) -> bool:
    """Return whether the pieces that a part has placed in a chunk are unchanged."""
    pieces = (step.place(unit, index) for unit in step.batch_units(*part[1:]))
    sums = (assembler.sum_of(chunk, piece, step.tile) for piece in pieces if piece is not None)
    return len(receipt) == 2 and sum(sums) % MOST_SUM == receipt[1]
