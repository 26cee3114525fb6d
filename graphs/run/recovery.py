"""State recovered from an interrupted run, for every kind of run.

the same plan    recorded parts ─► done
another plan     recorded parts ─► chunks that they stored ─► kept: no part writes them again, and a part with only
                                   kept chunks is done

recorded parts ─► receipts ─► checked ─► the same plan: done
                                     └─► another plan: complete chunks, kept ─► parts that write no others

The receipts of a part are filed under the names of the locations that it writes to: an array, or the file of a rank.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from oocarrays.errors import InputError, JournalError, NotFoundError, OocError
from oocarrays.graphs.run.looking import CHUNKS_READ, TRUSTED, Found, Part, Stored, Trust, at_least, look
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import is_empty
from oocarrays.storage.files.documents import documents, is_finished, unfinished_run
from oocarrays.storage.files.places import StoreLike, name_of
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.leftovers import ID
from oocarrays.storage.journal.receipts import Receipt
from oocarrays.storage.journal.sources import can_keep, kept_source
from oocarrays.storage.journal.texts import BEGINNING, Kept
from oocarrays.storage.local.names import NODES

Sections = Mapping[str, Sequence[Section]]
"""Elements that a part writes, by location name, in the coordinates of that location's file."""


class JournaledPlan(Protocol):
    """Plan as seen by its journal."""

    def parts(self) -> Iterable[Part]:
        """Return all parts that the plan writes."""

    def sections(self, part: Part) -> Sections:
        """Return the elements that a part writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Interrupted run: the content of its journal."""

    id: str
    """Run id."""
    content: Mapping[str, Any]
    """Content of the journal."""
    stored: Mapping[Part, Stored | None]
    """Parts recorded as done, with their receipts; None for a part without receipts."""
    kept: Kept
    """Receipts of chunks stored under earlier plans, by location name."""
    trust: Trust
    """Degree of trust in the recorded state."""
    notices: tuple[str, ...]
    """Notices for the user about the sources."""

    @property
    def begun_with(self) -> Document:
        """Recorded versions of the sources, as in a journal."""
        known = CHUNKS_READ in self.content and not self.trust.again
        return {CHUNKS_READ: self.content[CHUNKS_READ]} if known else {}

    def reused(
        self,
        before: JournaledPlan,
        plan: JournaledPlan,
        places: Mapping[str, StoreLike],
        files: Mapping[str, ArrayFile],
        *,
        same: bool,
        each: str = "part",
    ) -> Remains:
        """Check the recorded state, and return the state that ``plan`` can reuse.

        The run has written to ``places``, by name, of which some exist as ``files``.
        """
        check_known(self.stored, before.parts(), next(iter(places.values())), each=each)
        found = self._looked(before, places, files)
        anew = bool(found.lost) or not same
        kept = self._chunks(before, found, places, files) if anew else self.kept
        told = f"planned anew: {sum(map(len, kept.values()))} chunks that have been written stay as they are"
        sections = ((part, plan.sections(part)) for part in plan.parts())
        done = frozenset(part for part, there in sections if self._is_done(part, there, files, kept, anew=anew))
        return remaining(
            self.content, self.trust, anew=anew, id=self.id, done=done, odd=found.odd, kept=kept, notices=self.notices
        ).told(found.notice, "" if same or self.trust.again else told)

    def _looked(self, plan: JournaledPlan, places: Mapping[str, StoreLike], files: Mapping[str, ArrayFile]) -> Found:
        """Return the recorded chunks that are not as they were stored."""

        def place(part: Part, name: str) -> StoreLike | None:
            return places[name] if name in files else None

        def expected(part: Part) -> tuple[StoreLike | None, dict[str, Receipt]]:
            wanted = ((name, boxes) for name, boxes in plan.sections(part).items() if name in files)
            for name, boxes in wanted:  # one location: versions without receipts check only the first target
                file = files[name]
                return places[name], at_least(file, (index for b in boxes for index in file.stored.grid.indices(b)))
            return None, {}

        return look(with_kept(self.stored, self.kept), place, expected, verify=self.trust.verify)

    def _chunks(
        self, plan: JournaledPlan, found: Found, places: Mapping[str, StoreLike], files: Mapping[str, ArrayFile]
    ) -> dict[str, dict[str, Receipt]]:
        """Return the receipts of all complete chunks, stored under any plan, by location name."""
        of_place: dict[str, dict[Part, Sequence[Section]]] = {name: {} for name in files}
        for part in self.stored:
            for name, boxes in plan.sections(part).items():
                if name in of_place:
                    of_place[name][part] = boxes
        return {
            name: whole_chunks(
                file, self.stored, name, of_place[name], found.odd.get(str(places[name]), ()), self.kept.get(name)
            )
            for name, file in files.items()
        }

    def _is_done(
        self, part: Part, sections: Sections, files: Mapping[str, ArrayFile], kept: Kept, *, anew: bool
    ) -> bool:
        """Return whether a part is not repeated: it is recorded under this plan, or all its chunks are kept."""
        if part in self.stored and not (anew and sections):  # a part without sections has made a file, which stays
            return True
        return (
            files.keys() >= sections.keys()
            and bool(sections)
            and all(
                files[name].chunk_key(index) in kept.get(name, {})
                for name, boxes in sections.items()
                for box in boxes
                for index in files[name].stored.grid.indices(box)
            )
        )


KEPT: Part = ()
"""Key, among parts, of the chunks stored under earlier plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """State recovered from an interrupted run; empty for a new run."""

    id: str | None = None
    """Run id; None for a new run."""
    done: frozenset[Part] = frozenset()
    """Parts that are not repeated."""
    lost: frozenset[Part] = frozenset()
    """Recorded parts with a chunk that is not as it was stored."""
    odd: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Keys of the chunks that are not as they were stored, by location."""
    kept: Kept = field(default_factory=dict)
    """Receipts of chunks stored under earlier plans, by location name."""
    trust: Trust = TRUSTED
    """Degree of trust in the recorded state."""
    notices: tuple[str, ...] = ()
    """Notices for the user."""
    found: str = ""
    """Beginning recorded in the journal; empty for a run's first beginning."""
    beginning: str = ""
    """Beginning to continue with; if it differs from ``found``, the journal is rewritten."""

    @property
    def anew(self) -> bool:
        return self.beginning != self.found

    def begun_again(self) -> Remains:
        """Return the state for starting over, with nothing reused."""
        return replace(
            self, found=self.beginning, beginning=new_beginning(), done=frozenset(), lost=frozenset(), kept={}
        )  # fmt: skip

    def told(self, *notices: str) -> Remains:
        """Return the same state with further notices, without duplicates."""
        return replace(self, notices=tuple(dict.fromkeys((*self.notices, *filter(None, notices)))))


NOTHING_LEFT = Remains()


def new_beginning() -> str:
    """Return a unique id for a beginning."""
    return uuid.uuid4().hex


def remaining(content: Mapping[str, Any], trust: Trust, *, anew: bool, **left: Any) -> Remains:
    """Return the state recovered from a journal's ``content``; ``anew`` makes a new beginning, for a changed plan."""
    found = content.get(BEGINNING, "")
    beginning = trust.again or (new_beginning() if anew else found)
    return Remains(found=found, beginning=beginning, trust=trust, **left)


def journal_of(target: StoreLike, kind: str) -> tuple[Journal, str, Document]:
    """Return the journal of an unfinished array or group, its run id and its content; raise if it is unusable."""
    mark, there = unfinished_run(target), Journal(target)
    if mark is None:
        there.sweep()
        begun = not (is_finished(target) or is_empty(target))
        raise NotFoundError(
            f"nothing to resume: no unfinished {kind} in {target}" + (f"; {way_out(target)}" if begun else "")
        )
    try:
        id, content = there.read()
    except InputError as error:
        raise type(error)(f"{error}; {way_out(target)}") from None
    if not ID.fullmatch(id):
        raise JournalError(f"the journal in {target} names an invalid run id {id!r}; {way_out(target)}")
    if id != mark:
        raise JournalError(f"the journal in {target} is of run {id}, the {kind} of run {mark}; {way_out(target)}")
    return there, id, content


def way_out(target: StoreLike) -> str:
    """Return advice for starting over at a target with an unusable journal."""
    if can_update(target):
        return f"bring it up to date again: update({name_of(target)!r}) (oocarrays update)"
    return "start over: make the same call with overwrite=True (--overwrite)"


def can_update(target: StoreLike) -> bool:
    """Return whether an array was complete before a run changed it, and keeps its source.

    Its data remain usable even if the journal is lost.
    """
    marked = any(found is not None for found in documents(target, NODES))
    with suppress(OocError):
        return marked and can_keep(target) and kept_source(target) is not None
    return False


def check_known(stored: Iterable[Part], planned: Iterable[Part], target: StoreLike, *, each: str = "part") -> None:
    """Raise if the journal records a part that its plan does not contain."""
    strange = set(stored).difference(planned)
    if strange:
        raise JournalError(f"the journal in {target} has {each} {min(strange)}, which is not in its plan")


# ---------------------------------------------------------------------- complete chunks, from any plan


def with_kept(stored: Mapping[Part, Stored | None], kept: Kept) -> dict[Part, Stored | None]:
    """Return the recorded parts, with the chunks of earlier plans under `KEPT`."""
    return {**stored, **({KEPT: kept} if kept else {})}


def whole_chunks(
    file: ArrayFile,
    stored: Mapping[Part, Stored | None],
    name: str,
    sections: Mapping[Part, Iterable[Section]],
    odd: Iterable[str] = (),
    kept: Mapping[str, Receipt] | None = None,
) -> dict[str, Receipt]:
    """Return the receipts of complete chunks: recorded parts cover all elements, or an earlier plan stored the chunk.

    Chunks that are not as they were stored are left out.
    """
    grid, bad = file.stored.grid, frozenset(odd)
    missing: dict[str, int] = {}
    receipts: dict[str, Receipt] = {}
    for part, boxes in sections.items():
        indices = [(index, box) for box in boxes for index in grid.indices(box)]
        told = stored[part]
        mine = at_least(file, (index for index, _ in indices)) if told is None else told.get(name, {})
        for index, box in indices:
            key, whole = file.chunk_key(index), grid.section(index)
            common = whole.intersection(box)
            if key in bad or key not in mine or common is None:
                continue
            receipts[key] = mine[key] if receipts.get(key, mine[key]) == mine[key] else []
            missing[key] = missing.get(key, whole.size) - common.size
    before = {key: receipt for key, receipt in (kept or {}).items() if key not in bad}
    return before | {key: receipt for key, receipt in receipts.items() if not missing[key]}
