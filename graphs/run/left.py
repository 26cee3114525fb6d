"""Parts that write sections of arrays, of a run that stopped: what of them is of use to a plan, the same or another.

    parts that are recorded ─► receipts ─► looked at ─► the same plan: done
                                                   └─► another plan: whole chunks, kept ─► parts that write no others

A part's receipts stand under the names of the places that it writes to: an array, or the file of a rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from oocarrays.graphs.run.looking import Found, Part, Stored, Trust, at_least, look
from oocarrays.graphs.run.remains import Remains, check_known, remaining, whole_chunks, with_kept
from oocarrays.mapping.section import Section
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.journal.receipts import Receipt
from oocarrays.storage.journal.texts import Kept

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
