"""Recovery of interrupted runs of every kind, from their journals.

source    ─► fingerprint now ─► as when the run began?   else an error, unless the caller accepts the change
journal   ─► receipts ─► sizes ─► as they were stored?   else the chunks are written again, with a warning

recorded parts ─► checked chunks ─┬─► the same plan: recorded parts are done
                                  └─► another plan: complete chunks are kept ─► a part with only kept chunks is done

The receipts of a part are filed under the names of the locations that it writes to: an array, or the file of a rank.
"""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, Self

import zarr

from oocarrays.errors import JournalError, in_number
from oocarrays.mapping.grid import Index
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import written_file
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.journal.journal import Journal, journal_of
from oocarrays.storage.journal.sources import CHUNKS_READ, TRUSTED, Trust, check_sources
from oocarrays.storage.journal.texts import BEGINNING, Kept, Receipt, Store

Part = tuple[int, ...]
KEPT: Part = ()
"""Key, among parts, of the chunks stored under earlier plans."""
Sections = Mapping[str, Sequence[Section]]
"""Elements that a part writes, by location name, in the coordinates of that location's file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
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
    notices: tuple[str, ...] = ()
    found: str = ""
    """Beginning recorded in the journal; empty for a run's first beginning."""
    beginning: str = ""
    """Beginning to continue with; if it differs from ``found``, the journal is rewritten."""

    @property
    def anew(self) -> bool:
        return self.beginning != self.found

    def begun_again(self) -> Recovered:
        """Return the state for starting over, with nothing reused."""
        return replace(
            self, found=self.beginning, beginning=uuid.uuid4().hex, done=frozenset(), lost=frozenset(), kept={}
        )  # fmt: skip

    def told(self, *notices: str) -> Recovered:
        """Return the same state with further notices, without duplicates."""
        return replace(self, notices=tuple(dict.fromkeys((*self.notices, *filter(None, notices)))))


NOTHING_LEFT = Recovered()


class JournaledPlan(Protocol):
    """Plan as seen by its journal."""

    def parts(self) -> Iterable[Part]:
        """Return all parts that the plan writes."""

    def sections(self, part: Part) -> Sections:
        """Return the elements that a part writes; without those of a location, it stores whole objects there."""


class Written(dict[str, ArrayFile]):
    """Existing locations of a run by name, and their files, opened on first use."""

    def __init__(self, places: Mapping[str, StoreLike]) -> None:
        super().__init__()
        self.places = places

    def __missing__(self, name: str) -> ArrayFile:
        self[name] = written_file(self.places[name])
        return self[name]

    def by_place(self, odd: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
        return {str(self.places[name]): keys for name, keys in odd.items()}


class Found(NamedTuple):
    """Recorded chunks that are not as they were stored."""

    lost: frozenset[Part]
    """Parts with such a chunk."""
    odd: Mapping[str, Sequence[str]]
    """Keys of these chunks, by location name."""
    notice: str
    """Notice for the user; empty if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """Interrupted run: the content of its journal."""

    target: StoreLike
    """Location of the journal."""
    id: str
    content: Document
    trust: Trust
    stored: Mapping[Part, Kept | None] = field(default_factory=dict)
    """Parts recorded as done, with their receipts; None for a part without receipts."""
    kept: Kept = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    """Notices for the user about the sources."""

    @classmethod
    def at(cls, target: StoreLike, trust: Trust) -> Self:
        """Read the plan in the journal of an unfinished target."""
        _, id, content = journal_of(target)
        return cls(target=target, id=id, content=content, trust=trust)

    def recorded(
        self, arrays: Sequence[zarr.Array] | Mapping[str, zarr.Array] | None = None, *, files: bool = False
    ) -> Self:
        """Check the sources, by name or in order, and read the recorded parts; to start over, only ``files`` of ranks.

        Without ``arrays``, no source is checked.
        """
        notices = () if arrays is None else check_sources(arrays, self.content, self.target, self.trust)
        journal, again = Journal(self.target), bool(self.trust.again)
        stored = {part: told for part, told in journal.stored().items() if not again or (files and len(part) == 1)}
        return replace(self, stored=stored, kept={} if again else journal.kept(), notices=tuple(notices))

    @property
    def begun_with(self) -> Document:
        """Recorded versions of the sources, as in a journal."""
        known = CHUNKS_READ in self.content and not self.trust.again
        return {CHUNKS_READ: self.content[CHUNKS_READ]} if known else {}

    def recover(
        self,
        plan: JournaledPlan,
        places: Mapping[str, StoreLike],
        *,
        scratch: Mapping[str, StoreLike] | None = None,
        before: JournaledPlan | None = None,
        rewrites: bool = True,
        count: str = "",
    ) -> Recovered:
        """Check the recorded chunks, and return the state that ``plan`` can reuse.

        ``places`` are existing locations that the run writes to, ``scratch`` those of intermediate data, which another
        plan cannot use; ``before`` is the journal's plan, if it differs. If ``rewrites``, the journal is rewritten
        where chunks are lost, so that other chunks of their parts are kept; otherwise these parts are repeated.
        ``count`` is the number of all chunks, for the notice of another plan.
        """
        was, there = plan if before is None else before, Written({**places, **(scratch or {})})
        if strange := set(self.stored).difference(was.parts()):
            raise JournalError(f"the journal in {self.target} has part {min(strange)}, which is not in its plan")
        found = self.check(was.sections, there)
        anew = before is not None or (bool(found.lost) if rewrites else KEPT in found.lost)
        kept = self.complete(was.sections, there, places, found.odd) if anew else self.kept
        stored = ((part, told) for part, told in self.stored.items() if part not in found.lost)
        done = {part for part, told in stored if not (anew and (told or was.sections(part)))}
        if any(kept.values()):
            rest = ((part, plan.sections(part)) for part in plan.parts() if part not in done)
            done |= {part for part, sections in rest if sections and _are_kept(sections, there, kept)}
        many = f"{sum(map(len, kept.values()))}{count}"
        stay = in_number(f"planned anew: {many} chunks that have been written stay as they are")
        return self.recovered(
            anew=anew, done=frozenset(done), lost=frozenset() if anew else found.lost, kept=kept,
            odd=there.by_place(found.odd),
        ).told(found.notice, "" if before is None or self.trust.again else stay)  # fmt: skip

    def recovered(self, *, anew: bool = False, **state: Any) -> Recovered:
        """Return a recovered state; ``anew`` makes a new beginning, for a changed plan."""
        found = self.content.get(BEGINNING, "")
        beginning = self.trust.again or (uuid.uuid4().hex if anew else found)
        return Recovered(
            id=self.id, found=found, beginning=beginning, trust=self.trust, notices=self.notices, **state
        )  # fmt: skip

    def check(self, sections_of: Callable[[Part], Sections], there: Written) -> Found:
        """Return the recorded chunks that are missing or changed, and warn if there are any.

        A chunk that two parts have written is as the later part left it, so either receipt may match.
        """
        told: dict[str, dict[str, list[tuple[Part, Receipt]]]] = {}
        for part, recorded in {**self.stored, KEPT: self.kept}.items():
            for name, receipts in (self._least(sections_of(part), there) if recorded is None else recorded).items():
                by_key = told.setdefault(name, {}) if name in there.places else {}
                for key, receipt in receipts.items():
                    by_key.setdefault(key, []).append((part, receipt))
        lost: set[Part] = set()
        odd: dict[str, list[str]] = {}
        for name, by_key in told.items():
            wanted = {key: [receipt for _, receipt in each] for key, each in by_key.items()}
            odd[name] = Store(there.places[name]).unlike(wanted, self.trust.verify)
            lost.update(part for key in odd[name] for part, _ in by_key[key])
        if not lost:
            return Found(frozenset(), odd, "")
        of = sum(any(receipt is not None for _, receipt in each) for keys in told.values() for each in keys.values())
        again = f"{sum(map(len, odd.values()))} of {of} chunks that had been written are not as they were"
        warnings.warn(notice := f"{again}: they are written again", RuntimeWarning, stacklevel=2)
        return Found(frozenset(lost), odd, notice)

    @staticmethod
    def _least(sections: Sections, there: Written) -> Kept:
        """Return minimal receipts for a part without receipts, of a version that wrote to one location."""
        each = ((name, boxes) for name, boxes in sections.items() if name in there.places)
        return {name: at_least(there[name], _indices(there[name], boxes)) for name, boxes in [*each][:1]}

    def complete(
        self,
        sections_of: Callable[[Part], Sections],
        there: Written,
        names: Iterable[str],
        odd: Mapping[str, Sequence[str]],
    ) -> Kept:
        """Return the receipts of complete chunks by location name, whichever plan stored them, except ``odd`` ones.

        A chunk is complete if recorded parts cover all its elements, and it is stored under its own name.
        """
        sections = {part: sections_of(part) for part in self.stored}
        found = {name: self._complete_at(name, sections, there) for name in names}
        bad = {name: frozenset(odd.get(name, ())) for name in found}
        return {name: {key: each for key, each in kept.items() if key not in bad[name]} for name, kept in found.items()}

    def _complete_at(self, name: str, sections: Mapping[Part, Sections], there: Written) -> dict[str, Receipt]:
        missing: dict[str, int] = {}
        receipts: dict[str, Receipt] = dict(self.kept.get(name, {}))
        for part, told in self.stored.items():
            if name not in sections[part]:
                receipts.update((told or {}).get(name, {}))
                continue
            file, boxes = there[name], sections[part][name]
            mine = at_least(file, _indices(file, boxes)) if told is None else told.get(name, {})
            for box in boxes:
                for index in file.stored.grid.indices(box):
                    key, whole = file.chunk_key(index), file.stored.grid.section(index)
                    common = whole.intersection(box)
                    if key in mine and common is not None:
                        known = key not in missing or receipts[key] == mine[key]
                        receipts[key] = mine[key] if known else []
                        missing[key] = missing.get(key, whole.size) - common.size
        before = self.kept.get(name, {})
        for key in [key for key, left in missing.items() if left or not _is_named(there[name], key, receipts[key])]:
            receipts.pop(key)
            receipts.update({key: before[key]} if key in before else {})
        return receipts


def _is_named(file: ArrayFile, key: str, receipt: Receipt) -> bool:
    """Return whether a chunk of a local file is stored under its own name if at all: one being assembled is not."""
    return file.folder is None or os.path.exists(os.path.join(file.folder, key)) is (receipt is not None)


def _are_kept(sections: Sections, there: Written, kept: Kept) -> bool:
    return there.places.keys() >= sections.keys() and all(
        there[name].chunk_key(index) in kept.get(name, {})
        for name, boxes in sections.items()
        for index in _indices(there[name], boxes)
    )


def _indices(file: ArrayFile, boxes: Iterable[Section]) -> Iterator[Index]:
    """Yield the chunks with an element of some sections."""
    return (index for box in boxes for index in file.stored.grid.indices(box))


def at_least(file: ArrayFile, indices: Iterable[Index]) -> dict[str, Receipt]:
    """Return minimal receipts for chunks without receipts: the chunk exists, with its full size if not encoded."""
    exact = [file.stored.chunk_bytes] if file.chain.pipeline == "plain" and file.chain.shard is None else []
    return {file.chunk_key(index): list(exact) for index in indices}
