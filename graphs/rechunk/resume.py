"""Resuming an interrupted rechunk: the content of its journal, and the trust placed in it.

begin     plan, source and its fingerprint, scratch location      ─► journal
resume    journal ─► the same plan, without the parts recorded as done and still as they were stored; or another plan
                     for other resources, without the chunks that have been stored
          error: a plan, source or target other than those that the journal was written for

Records of assembled chunks are compared with the chunks as stored now:

    recorded    c/0/3   [4194304, 991]     a part has placed pieces in it: the sum covers its pieces alone
    now         c/0/3.4f1c….partial        while the chunk does not have its final name

If the pieces of one part are not as they were placed, the chunk counts as changed for all parts.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import zarr

from oocarrays.errors import JournalError, NotFoundError
from oocarrays.graphs.rechunk.assembly import MOST_SUM
from oocarrays.graphs.rechunk.run import Destination, Part, journal_content, usable_parts
from oocarrays.graphs.rechunk.tasks import RechunkRun
from oocarrays.graphs.run.looking import (
    CHUNKS_READ,
    TRUSTED,
    Found,
    Stored,
    Trust,
    at_least,
    check_sources,
    is_of,
    look,
)
from oocarrays.graphs.run.recovery import (
    KEPT,
    Left,
    Remains,
    check_known,
    journal_of,
    remaining,
    whole_chunks,
    with_kept,
)
from oocarrays.graphs.settings import missing as policy_of
from oocarrays.graphs.settings import past_cache_above
from oocarrays.mapping.grid import Index
from oocarrays.plan.documents import Document, read_as
from oocarrays.plan.memory import Resources
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.plan.rechunk.plan import RechunkPlan, plan_rechunk
from oocarrays.storage.chunks.assembling import Assembler
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.chunk_names import mark_of_plan
from oocarrays.storage.files.creating import is_scratch
from oocarrays.storage.files.places import StoreLike, in_files
from oocarrays.storage.files.target import written_file
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.leftovers import scratch_below, trusted_scratch
from oocarrays.storage.journal.receipts import Receipt
from oocarrays.storage.journal.texts import BEGINNING
from oocarrays.storage.local.blobs import byte_view, checksum
from oocarrays.storage.local.names import partial_name
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.remote import RemoteStore, place_below
from oocarrays.storage.stores.urls import scratch_place

T = TypeVar("T")
Run = TypeVar("Run", bound=RechunkRun)
Terms = Callable[[Any], tuple[Any, Resources | None]]
"""Function of an earlier plan that returns where it continues, and the resources for a new plan; None keeps the plan.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoingOn:
    """Options for resuming a rechunk, besides the content of its journal."""

    source: Any
    """Source, if it has moved; None for the location in the journal."""
    place: Callable[[Any], Any]
    """Function that makes stores from URLs."""
    scratch: str | RemoteStore
    """Location for scratch, if the location in the journal has none."""
    terms: Terms
    """Where a plan continues, and with which resources."""
    missing: str | None = None
    """Policy for chunks that the source lacks; None for the policy of the interrupted run."""
    trust: Trust = TRUSTED
    """Degree of trust in the state left by the run."""


def resumed(
    target: StoreLike,
    asked: GoingOn,
    kind: type[Run] = RechunkRun,  # type: ignore[assignment]
) -> tuple[Run, Any]:
    """Return an interrupted run without its finished parts, and where it continues."""
    journal, id, content = journal_of(target, "array")
    before, trust = _plan(content, target), asked.trust
    file = _source(content, asked.source, target, asked.place, asked.missing)
    blocks = bool(content.get("blocks"))
    if blocks and trust.again:
        raise JournalError(
            f"{target} was being written from a lazy array: to start over, pass overwrite=True (--overwrite)"
        )
    notices = [] if blocks else check_sources([file.zarr], content, target, trust)
    written = written_file(target)
    if written.stored.grid != before.target.grid or file.stored.grid != before.source.grid:
        raise JournalError(
            f"the journal in {target} plans for chunks {before.target.grid.chunks}, which differ from the target's"
        )
    destination = Destination(
        store=target,
        scratch=trusted_scratch(scratch_place(asked.place(content["scratch"])), id, asked.scratch),
        past_cache_above=past_cache_above(),
    )
    where, resources = asked.terms(before)
    plan = before if resources is None else replanned(before, file, destination, resources)
    stored, chunks = ({}, {}) if trust.again else _recorded(journal)
    left = StoppedRechunk(
        id=id, content=content, stored=stored, kept=chunks, trust=trust, notices=tuple(notices), plan=before,
        target=target, scratch=scratch_below(destination.scratch, id),
    )  # fmt: skip
    remains = left.remaining(plan, written)
    if remains.anew:
        kept = {name: each for name, each in content.items() if name != CHUNKS_READ or not trust.again}
        content = kept | journal_content(plan, file, destination)
    return kind(plan, file, destination, content, remains=remains), where


def replanned(before: RechunkPlan, file: ArrayFile, destination: Destination, resources: Resources) -> RechunkPlan:
    """Plan the same work with other resources; return the earlier plan if the new one does not differ."""
    remote = not in_files(destination.scratch)
    plan = plan_rechunk(file.stored, before.target, resources, remote_scratch=remote)
    told = ("passes", "budget", "processes")
    same = all(getattr(plan, name) == getattr(before, name) for name in told)
    return before if same else plan


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedRechunk(Left):
    """Journal of an interrupted rechunk of an array."""

    plan: RechunkPlan
    """Plan in the journal."""
    target: StoreLike
    """Location of the target."""
    scratch: str | RemoteStore
    """Location of the scratch arrays."""

    def remaining(self, plan: RechunkPlan, written: ArrayFile) -> Remains:
        """Check the recorded state, and return the state that a plan can reuse, the same plan or another one."""
        parts = chain.from_iterable(step.parts(number) for number, step in enumerate(self.plan.passes))
        check_known(self.stored, parts, self.target)
        found = self._checked()
        anew = plan is not self.plan or KEPT in found.lost
        kept = self._stored_chunks(written, found) if anew else self.kept.get("", {})
        last = len(plan.passes) - 1
        covered = {
            (last, *part)
            for _, *part in (plan.passes[last].parts(last) if kept and plan.passes else ())
            if all(written.chunk_key(index) in kept for index in plan.passes[last].written(*part))
        }
        known = covered if anew else covered.union(self.stored) - found.lost
        remains = remaining(
            self.content, self.trust, anew=anew, id=self.id, notices=self.notices,
            done=frozenset(usable_parts(plan, known, self.scratch)), lost=frozenset() if anew else found.lost,
            kept={"": kept} if kept else {},
        )  # fmt: skip
        return remains.told(found.notice, *(self._of_another(plan, kept) if anew and not self.trust.again else ()))

    def _checked(self) -> Found:
        """Return the recorded chunks that are not as they were stored, in the target and in existing scratch."""
        last, opened = len(self.plan.passes) - 1, cache(written_file)

        def place(part: Part, name: str = "") -> Any:
            here = part == KEPT or part[0] == last
            folder = self.target if here else place_below(self.scratch, str(part[0]))
            return folder if here or is_scratch(folder) else None  # type: ignore[arg-type]

        def file(number: int) -> ArrayFile | None:
            where = place((number,))
            return None if where is None else opened(where)

        def expected(part: Part) -> tuple[StoreLike | None, Document]:
            there = file(part[0])
            return place(part), {} if there is None else at_least(there, self.plan.passes[part[0]].written(*part[1:]))

        mark = partial(mark_of_plan, self.id, self.content.get(BEGINNING, ""))
        now = as_named_now(self.plan, self.stored, file, mark, self.trust.verify)
        return look(with_kept(now, self.kept), place, expected, verify=self.trust.verify)

    def _stored_chunks(self, written: ArrayFile, found: Found) -> dict[str, Receipt]:
        """Return the receipts of all complete chunks, stored under any plan."""
        last, odd = len(self.plan.passes) - 1, found.odd.get(str(self.target), ())
        parts = [part for part in self.stored if part[0] == last]
        sections = {part: self.plan.passes[last].sections(*part[1:]) for part in parts}
        whole = whole_chunks(written, self.stored, "", sections, odd, self.kept.get("", {}))
        if not (self.plan.passes and self.plan.passes[last].assembled):
            return whole
        folder = written.folder or ""
        return {key: told for key, told in whole.items() if (told is None) != os.path.exists(os.path.join(folder, key))}

    def _of_another(self, plan: RechunkPlan, kept: Mapping[str, Receipt]) -> Iterator[str]:
        count = plan.target.grid.count
        yield f"planned anew: {len(kept)} of {count} chunks that have been written stay as they are"
        if any(part[0] < len(self.plan.passes) - 1 for part in self.stored) and len(kept) < count:
            yield "what was staged in scratch is of another plan: it is done again"


def _recorded(journal: Journal) -> tuple[dict[Part, Stored | None], dict[str, dict[str, Receipt]]]:
    """Return the receipts of finished parts, and those of kept chunks: from earlier plans and from unfinished parts."""
    stored: dict[Part, Stored | None] = {**journal.stored()}
    kept = journal.kept()
    some = [part for part in stored if len(part) > 3]  # the fourth number is the progress of an unfinished part
    chunks = {key: receipt for part in some for key, receipt in (stored.pop(part) or {}).get("", {}).items()}
    return stored, kept | ({"": kept.get("", {}) | chunks} if chunks else {})


def planned(target: StoreLike) -> RechunkPlan:
    """Return the plan in the journal of an unfinished array."""
    return _plan(journal_of(target, "array")[2], target)


def _plan(content: Document, target: StoreLike) -> RechunkPlan:
    if "pass" in content:
        again = f"{content['pass']}(..., resume=True)"
        raise JournalError(f"{target} was being written by a kernel: call {again} as before to continue")
    missing = {"plan", "source", "source_metadata", "scratch"} - content.keys()
    if missing:
        raise JournalError(f"the journal in {target} lacks {', '.join(sorted(missing))}")
    plan: RechunkPlan = read_as(RechunkPlan, content["plan"], "plan")
    return plan


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
    if there is None:
        raise NotFoundError(f"the source of {target} is not a path or URL: pass source=")
    policy = policy_of(content.get("missing") if missing is None else missing)
    file = array_file.describe_source(array_file.open_array(place(there)), policy)
    if not is_of(file, content["source_metadata"], content["source"]):
        raise JournalError(f"the journal in {target} does not belong to {file.name} as it is now")
    return file


# ---------------------------------------------------------------------- records of assembled chunks


Recorded = Mapping[Part, Stored | None]


def as_named_now(
    plan: RechunkPlan,
    stored: Recorded,
    opened: Callable[[int], ArrayFile | None],
    mark: Callable[[int], str],
    verify: bool,
) -> Recorded:
    """Return the records under the current keys of the chunks, with checksums of whole chunks."""
    now = dict(stored)
    for number, step in enumerate(plan.passes):
        mine = {part: told for part, told in stored.items() if part and part[0] == number and told is not None}
        file = opened(number) if step.assembled and mine else None
        if file is not None:
            assembler = Assembler(file, Meter(), mark(number), past_cache=False)
            now.update(_of_pass(step, assembler, {part: told.get("", {}) for part, told in mine.items()}, verify))
    return now


def _of_pass(
    step: Pass, assembler: Assembler, told: Mapping[Part, Mapping[str, Receipt]], verify: bool
) -> dict[Part, Stored]:
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
    return {part: {"": receipts} for part, receipts in now.items()}


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
    pieces = (dict(step.places(unit)).get(index) for unit in step.batch_units(*part[1:]))
    sums = (assembler.sum_of(chunk, piece, step.tile) for piece in pieces if piece is not None)
    return len(receipt) == 2 and sum(sums) % MOST_SUM == receipt[1]
