"""What each disk says of the part that it has, so that disks are found in any order, and a wrong one by its name.

    /a/field.striped   {"name": "field", "id": "5f…", "disks": 3, "block": 1048576, "number": 2, "generation": 7, …}

The table of a PIO file (Wang and Leiss, section 3) is in the memory of the process that has opened it. This one is on
the disks, and says beside D and B which of them this is, what it belongs to, and how often that has been written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, get_args

from oocarrays.errors import DescriptorError, NotFoundError
from oocarrays.plan.documents import Document

Kind = Literal["file", "store"]
"""What is striped."""
Phase = Literal["", "opening", "open"]
"""Phase of a writer: it writes data only when all disks have been told that it is opening."""
FORMATS = (1, 2)
"""Formats of descriptors: 0.5.0 reads the first."""
LATER = {"phase": "", "replaces": None}
"""Fields of the second, with the values that are not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskDescriptor:
    """The part of a striped file or store that one disk has."""

    name: str
    """What a person calls the whole."""
    id: str
    """What tells it from another one of that name."""
    kind: Kind
    """What is striped."""
    disks: int
    """Disks in all: D."""
    block: int | None
    """Bytes of a block: B; None where chunks are never split."""
    number: int
    """Which of the disks this is, from 0."""
    generation: int = 0
    """How often the whole has been opened to be written, or been laid out anew."""
    closed: bool = True
    """Whether nobody was writing when this was written."""
    phase: Phase = ""
    """Phase of the writer, where not closed: announced on some disks, or on all; empty in descriptors of 0.5.0."""
    replaces: str | None = None
    """While the file is being made, the id of the file it replaces, or "" for none; None once it is made."""
    length: int = 0
    """Bytes of the whole file then."""
    part: int = 0
    """Bytes of it on this disk then."""
    cycle: tuple[int, ...] = ()
    """Of a store, which disk takes each turn."""
    before: tuple[int, ...] = ()
    """The cycle by which chunks lie that have not been moved yet; empty where none has to be."""

    @property
    def members(self) -> tuple[int, ...]:
        """The numbers of all disks: of a store those that have turns, or had."""
        return tuple(sorted({*self.cycle, *self.before})) if self.cycle else tuple(range(self.disks))

    def to_json(self) -> bytes:
        said = {key: value for key, value in asdict(self).items() if value != LATER.get(key, self)}
        format = FORMATS[any(key in said for key in LATER)]
        return json.dumps({"oocarrays": f"striped {self.kind}", "format": format, **said}).encode()

    @classmethod
    def from_json(cls, text: bytes, where: str) -> DiskDescriptor:
        try:
            said: Document = json.loads(text)
            if said.pop("format") not in FORMATS:
                raise DescriptorError(f"{where} is of a newer format of striped files than this version reads")
            said.pop("oocarrays")
            made = cls(**{**said, "cycle": tuple(said["cycle"]), "before": tuple(said["before"])})
            made.check(where)
            return made
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, DescriptorError):
                raise
            raise DescriptorError(f"{where} is no descriptor of a striped file or store") from None

    def check(self, where: str) -> None:
        numbers = (self.disks, self.number, self.generation, self.length, self.part, *self.cycle, *self.before)
        fits = all(isinstance(n, int) and n >= 0 for n in numbers)
        block = self.block is None if self.kind == "store" and self.block is None else (self.block or 0) > 0
        cycles = bool(self.cycle) == (self.kind == "store")
        if not (fits and block and cycles and self.disks and (self.kind == "store" or self.number < self.disks)):
            raise DescriptorError(f"{where} is damaged: its numbers do not fit each other")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDescriptor:
    """Descriptor as it was found on one disk."""

    label: str
    """What a person calls the disk."""
    descriptor: DiskDescriptor | None
    """What it says; None where nothing is said of this file or store."""


def in_order(what: str, found: Sequence[FoundDescriptor]) -> list[int] | None:
    """The place of each disk, by its number, among those that are given; None where none has a part."""
    parts = [each.descriptor for each in found if each.descriptor is not None]
    if not parts:
        return None
    (id, _), *_ = Counter(part.id for part in parts).most_common()
    one = max((part for part in parts if part.id == id), key=lambda part: (part.generation, part.closed))
    numbers: dict[int, int] = {}
    for place, each in enumerate(found):
        _take(what, found, numbers, place, each, one)
    missing = [number for number in one.members if number not in numbers]
    if missing or len(one.members) < len(found):
        _refuse_missing(what, found, one, missing)
    order = [numbers[number] for number in one.members]
    _check_generations(what, [found[place] for place in order])
    return order


def _take(
    what: str,
    found: Sequence[FoundDescriptor],
    numbers: dict[int, int],
    place: int,
    each: FoundDescriptor,
    one: DiskDescriptor,
) -> None:
    """Take one disk in, unless it is foreign or there twice."""
    part = each.descriptor
    if part is None:
        return
    if part.id != one.id:
        raise DescriptorError(
            f"{each.label} has a part of another striped {part.kind}, {part.name!r}, and not of {what}"
        )
    if part.number in numbers:
        other = found[numbers[part.number]].label
        raise DescriptorError(f"{other} and {each.label} both have number {part.number} of {what}: give each disk once")
    if part.disks != one.disks and part.closed and one.closed and part.generation == one.generation:
        raise DescriptorError(f"{each.label} says that {what} has {part.disks} disks; others say {one.disks}")
    numbers[part.number] = place


def _refuse_missing(what: str, found: Sequence[FoundDescriptor], one: DiskDescriptor, missing: Sequence[int]) -> None:
    empty = [each.label for each in found if each.descriptor is None or each.descriptor.number not in one.members]
    named = f"number{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
    which = f"{named} {'are' if missing[1:] else 'is'} missing" if missing else "leave it out"
    if empty:
        has = f"{', '.join(empty)} {'have' if empty[1:] else 'has'} no part of it"
    else:
        has = f"{len(found)} {'is' if len(found) == 1 else 'are'} given"
    raise DescriptorError(f"{what} has {len(one.members)} disks, and {has}: {which}")


def _check_generations(what: str, found: Sequence[FoundDescriptor]) -> None:
    """Raise if a disk is an old copy: a crash while descriptors are written leaves two adjacent states at most.

    closed 7  closed 7  ─►  opening 8  closed 7  ─►  open 8  opening 8  ─►  closed 8  open 8  ─►  closed 8  closed 8
    """
    states = {_state(d) for each in found if (d := each.descriptor) is not None}
    newest = max(generation for generation, _ in states)
    allowed = (
        {(newest - 1, "closed"), (newest, "opening")},
        {(newest - 1, "closed"), (newest, "")},  # a writer of 0.5.0 announced itself once
        {(newest, "opening"), (newest, "open")},
        {(newest, "closed"), (newest, "open")},
        {(newest, "closed"), (newest, "")},
    )
    if len(states) == 1 or states in allowed:
        return
    stale = [(e.label, d.generation) for e in found if (d := e.descriptor) is not None and d.generation < newest]
    if not stale:
        raise DescriptorError(f"disks of {what} disagree in generation {newest}: one of them is an old copy")
    label, generation = stale[0]
    raise DescriptorError(
        f"{label} has generation {generation} of its part of {what}, and others have {newest}: it is an old copy"
    )


def _state(said: DiskDescriptor) -> tuple[int, str]:
    return said.generation, "closed" if said.closed else said.phase


def newest_of(found: Sequence[FoundDescriptor]) -> DiskDescriptor:
    parts = [each.descriptor for each in found if each.descriptor is not None]
    if not parts:
        raise NotFoundError("no descriptor")
    return max(parts, key=lambda part: (part.generation, part.closed))


def announced(said: Sequence[DiskDescriptor]) -> Iterator[list[DiskDescriptor]]:
    """Yield the descriptors a writer writes on all disks, twice: when the first are everywhere, the second follow.

    A disk that is closed one generation behind disks on which a writer is open is therefore an old copy.
    """
    newest = max(each.generation for each in said) + all(each.closed for each in said)
    for phase in get_args(Phase)[1:]:
        yield [replace(each, generation=newest, closed=False, phase=phase) for each in said]
