"""What a run that stopped has left, as the run takes it that goes on with it: of every kind the same.

the same plan    parts that are recorded ─► done
another plan     parts that are recorded ─► chunks that they stored ─► kept: nobody writes them again, and a part all
                                            of whose chunks are kept is done

parts that are recorded ─► receipts ─► looked at ─► the same plan: done
                                                   └─► another plan: whole chunks, kept ─► parts that write no others

A part's receipts stand under the names of the places that it writes to: an array, or the file of a rank.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from oocarrays.errors import InputError, JournalError, NotFoundError, OocError
from oocarrays.graphs.run.looking import TRUSTED, Found, Part, Stored, Trust, at_least, look
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
"""Elements that a part writes, as they stand in the file of each place."""


class JournaledPlan(Protocol):
    """A plan as its journal sees it."""

    def parts(self) -> Iterable[Part]:
        """All that it writes, part by part."""

    def sections(self, part: Part) -> Sections:
        """Elements that a part writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A run that stopped: the words of its journal, and the files that it wrote to."""

    id: str
    """Of the run."""
    content: Mapping[str, Any]
    """All that the journal keeps of it."""
    stored: Mapping[Part, Stored | None]
    """What is recorded as done, and what it has stored."""
    kept: Kept
    """What plans before that one have stored, by place."""
    trust: Trust
    """How far that is trusted."""
    notices: tuple[str, ...]
    """What a person is to know of the sources."""
    places: Mapping[str, StoreLike]
    """Where it writes, by the names of the places."""
    files: Mapping[str, ArrayFile]
    """The files of those that are there."""

    def remains(self, before: JournaledPlan, plan: JournaledPlan, *, same: bool, each: str = "part") -> Remains:
        """Look at what is left, and say what of it is of use to a plan."""
        check_known(self.stored, before.parts(), next(iter(self.places.values())), each=each)
        found = self._looked(before)
        anew = bool(found.lost) or not same
        kept = self._chunks(before, found) if anew else self.kept
        told = f"planned anew: {sum(map(len, kept.values()))} chunks that have been written stay as they are"
        done = frozenset(part for part in plan.parts() if self._is_done(part, plan.sections(part), kept, anew=anew))
        return remaining(
            self.content, self.trust, anew=anew, id=self.id, done=done, odd=found.odd, kept=kept, notices=self.notices
        ).told(found.notice, "" if same or self.trust.again else told)

    def _looked(self, plan: JournaledPlan) -> Found:
        """Look for what is recorded and is not as it was stored."""

        def place(part: Part, name: str) -> StoreLike | None:
            return self.places[name] if name in self.files else None

        def expected(part: Part) -> tuple[StoreLike | None, dict[str, Receipt]]:
            wanted = ((name, boxes) for name, boxes in plan.sections(part).items() if name in self.files)
            for name, boxes in wanted:  # one place: before there were receipts, a first target was looked at
                file = self.files[name]
                return self.places[name], at_least(
                    file, (index for b in boxes for index in file.stored.grid.indices(b))
                )
            return None, {}

        return look(with_kept(self.stored, self.kept), place, expected, verify=self.trust.verify)

    def _chunks(self, plan: JournaledPlan, found: Found) -> dict[str, dict[str, Receipt]]:
        """All chunks that are stored whole, whichever plan did it, by place."""
        of_place: dict[str, dict[Part, Sequence[Section]]] = {name: {} for name in self.files}
        for part in self.stored:
            for name, boxes in plan.sections(part).items():
                if name in of_place:
                    of_place[name][part] = boxes
        return {
            name: whole_chunks(
                file, self.stored, name, of_place[name], found.odd.get(str(self.places[name]), ()), self.kept.get(name)
            )
            for name, file in self.files.items()
        }

    def _is_done(self, part: Part, sections: Sections, kept: Kept, *, anew: bool) -> bool:
        """Whether a part need not be done: it is recorded, or all chunks in which its elements are, are kept."""
        if part in self.stored and not (anew and sections):  # a file that is made stays
            return True
        return (
            self.files.keys() >= sections.keys()
            and bool(sections)
            and all(
                self.files[name].chunk_key(index) in kept.get(name, {})
                for name, boxes in sections.items()
                for box in boxes
                for index in self.files[name].stored.grid.indices(box)
            )
        )


KEPT: Part = ()
"""Stands among parts for what plans before this one have stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """Remains of a run that stopped; of a run that has not begun nothing."""

    id: str | None = None
    """Of the run; None of a new one."""
    done: frozenset[Part] = frozenset()
    """The parts that are not done again."""
    lost: frozenset[Part] = frozenset()
    """The parts that are recorded, and of which something is not as it was stored."""
    odd: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The keys of what is not, by place."""
    kept: Kept = field(default_factory=dict)
    """Receipts of chunks that plans before this one have stored, by the name of the place."""
    trust: Trust = TRUSTED
    """How far all that is trusted."""
    notices: tuple[str, ...] = ()
    """What a person is to know of it."""
    found: str = ""
    """The beginning of which the journal was found; empty for the first of a run."""
    beginning: str = ""
    """The beginning that is gone on with: where it is another one, the journal is written anew."""

    @property
    def anew(self) -> bool:
        return self.beginning != self.found

    def begun_again(self) -> Remains:
        """The same where nothing of it is of use any more."""
        return replace(
            self, found=self.beginning, beginning=new_beginning(), done=frozenset(), lost=frozenset(), kept={}
        )  # fmt: skip

    def told(self, *notices: str) -> Remains:
        """The same with more for a person to know; nothing is said twice."""
        return replace(self, notices=tuple(dict.fromkeys((*self.notices, *filter(None, notices)))))


NOTHING_LEFT = Remains()


def new_beginning() -> str:
    """Return a name that no other beginning has."""
    return uuid.uuid4().hex


def remaining(content: Mapping[str, Any], trust: Trust, *, anew: bool, **left: Any) -> Remains:
    """Return a run's remains, of which the journal says ``content``; ``anew``, where it is planned otherwise now."""
    found = content.get(BEGINNING, "")
    beginning = trust.again or (new_beginning() if anew else found)
    return Remains(found=found, beginning=beginning, trust=trust, **left)


def journal_of(target: StoreLike, kind: str) -> tuple[Journal, str, Document]:
    """Read the journal of an unfinished array or group, the run that it is of, and what that was asked to do."""
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
    """Name the call that starts over at a target whose journal is of no use."""
    if can_update(target):
        return f"bring it up to date again: update({name_of(target)!r}) (oocarrays update)"
    return "start over: make the same call with overwrite=True (--overwrite)"


def can_update(target: StoreLike) -> bool:
    """Return whether an array was whole before a run changed it, and keeps its source: its data stay, whatever is lost
    of the journal."""
    marked = any(found is not None for found in documents(target, NODES))
    with suppress(OocError):
        return marked and can_keep(target) and kept_source(target) is not None
    return False


def check_known(stored: Iterable[Part], planned: Iterable[Part], target: StoreLike, *, each: str = "part") -> None:
    """Refuse a journal in which something is recorded that its plan has not."""
    strange = set(stored).difference(planned)
    if strange:
        raise JournalError(f"the journal in {target} has {each} {min(strange)}, which its plan has not")


# ---------------------------------------------------------------------- chunks, whoever wrote them


def with_kept(stored: Mapping[Part, Stored | None], kept: Kept) -> dict[Part, Stored | None]:
    """All that is recorded, with what plans before have stored among it."""
    return {**stored, **({KEPT: kept} if kept else {})}


def whole_chunks(
    file: ArrayFile,
    stored: Mapping[Part, Stored | None],
    name: str,
    sections: Mapping[Part, Iterable[Section]],
    odd: Iterable[str] = (),
    kept: Mapping[str, Receipt] | None = None,
) -> dict[str, Receipt]:
    """Receipts of the chunks of which every element is in a part that is recorded, or which plans before have stored,
    and that are as they were stored.
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
