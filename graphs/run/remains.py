"""What a run that stopped has left, as the run takes it that goes on with it: of every kind the same.

the same plan    parts that are recorded ─► done
another plan     parts that are recorded ─► chunks that they stored ─► kept: nobody writes them again, and a part all
                                            of whose chunks are kept is done
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from oocarrays.errors import InputError, JournalError, NotFoundError, OocError
from oocarrays.graphs.run.looking import TRUSTED, Part, Stored, Trust, at_least
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import is_empty
from oocarrays.storage.files.documents import NODES, documents, is_finished, unfinished_run
from oocarrays.storage.files.places import StoreLike, name_of
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.leftovers import ID
from oocarrays.storage.journal.receipts import Receipt
from oocarrays.storage.journal.sources import can_keep, kept_source
from oocarrays.storage.journal.texts import BEGINNING, Kept

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
        """Whether the journal is to be written anew."""
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
