"""Descriptors of striped disks, which allow disks in any order and identify a wrong one by name.

    /a/field.striped   {"name": "field", "id": "5f…", "disks": 3, "block": 1048576, "number": 2, "generation": 7, …}

The table of a PIO file (Wang and Leiss, section 3) is in the memory of the process that opened it. This one is on the
disks. It holds D and B, the disk's number, the id of the file or store, and its write generation.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, NamedTuple, get_args

from oocarrays.errors import DescriptorError
from oocarrays.plan.documents import Document

Kind = Literal["file", "store"]
"""Kind of a striped object."""
Phase = Literal["", "opening", "open"]
"""Phase of a writer; data is written only after all disks have the phase "opening"."""
FORMATS = (1, 2)
"""Descriptor formats; 0.5.0 reads only the first."""
LATER = {"phase": "", "replaces": None}
"""Fields of the second format, with the default values that are omitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskDescriptor:
    """Descriptor of one disk's part of a striped file or store."""

    name: str
    """Name of the file or store."""
    id: str
    """Unique id, to distinguish objects of the same name."""
    kind: Kind
    """Kind of the object."""
    disks: int
    """Number of disks: D."""
    block: int | None
    """Bytes of a block: B; None if chunks are never split."""
    number: int
    """Number of this disk, from 0."""
    generation: int = 0
    """Number of times the object has been opened for writing or laid out anew."""
    closed: bool = True
    """Whether no writer was active when this was written."""
    phase: Phase = ""
    """Phase of the active writer: announced on some disks, or on all; empty in descriptors of 0.5.0."""
    replaces: str | None = None
    """Id of the file to be replaced, or "" for none, while the file is created; None afterwards."""
    length: int = 0
    """Bytes of the whole file when closed."""
    part: int = 0
    """Bytes of this part when closed."""
    cycle: tuple[int, ...] = ()
    """Disk number of each turn, for a store."""
    before: tuple[int, ...] = ()
    """Previous cycle, for chunks not yet moved; empty if none remain."""

    @property
    def members(self) -> tuple[int, ...]:
        """Numbers of all disks; for a store, those with turns in either cycle."""
        return tuple(sorted({*self.cycle, *self.before})) if self.cycle else tuple(range(self.disks))

    def to_json(self) -> bytes:
        fields = {key: value for key, value in asdict(self).items() if value != LATER.get(key, self)}
        format = FORMATS[any(key in fields for key in LATER)]
        return json.dumps({"oocarrays": f"striped {self.kind}", "format": format, **fields}).encode()

    @classmethod
    def from_json(cls, text: bytes, where: str, kind: Kind) -> DiskDescriptor:
        try:
            fields: Document = json.loads(text)
            if fields.pop("format") not in FORMATS:
                raise DescriptorError(f"{where} is of a newer format of striped files than this version reads")
            fields.pop("oocarrays")
            made = cls(**{**fields, "cycle": tuple(fields["cycle"]), "before": tuple(fields["before"])})
            made.check(where)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, DescriptorError):
                raise
            raise DescriptorError(f"{where} is no descriptor of a striped file or store") from None
        if made.kind != kind:
            raise DescriptorError(f"{where} is of a striped {made.kind}, not of a {kind}")
        return made

    def check(self, where: str) -> None:
        numbers = (self.disks, self.number, self.generation, self.length, self.part, *self.cycle, *self.before)
        fits = all(isinstance(n, int) and n >= 0 for n in numbers)
        block = self.block is None if self.kind == "store" and self.block is None else (self.block or 0) > 0
        cycles = bool(self.cycle) == (self.kind == "store")
        if not (fits and block and cycles and self.disks and (self.kind == "store" or self.number < self.disks)):
            raise DescriptorError(f"{where} is damaged: its numbers do not fit each other")


class FoundDescriptor(NamedTuple):
    """Descriptor found on one disk."""

    label: str
    """Label of the disk."""
    descriptor: DiskDescriptor | None
    """Its descriptor; None if the disk has none for this file or store."""


def descriptors_in(
    texts: Iterable[bytes | None], labels: Iterable[str], document: str, kind: Kind
) -> list[FoundDescriptor]:
    """Return the descriptor of each disk from the bytes of its document, if it has one."""
    return [
        FoundDescriptor(label, text if text is None else DiskDescriptor.from_json(text, f"{label}/{document}", kind))
        for text, label in zip(texts, labels, strict=True)
    ]


def in_order(what: str, found: Sequence[FoundDescriptor]) -> list[int] | None:
    """Return the position of each disk among those given, by number; None if no disk has a part."""
    parts = [each.descriptor for each in found if each.descriptor is not None]
    if not parts:
        return None
    (id, _), *_ = Counter(part.id for part in parts).most_common()
    one = max((part for part in parts if part.id == id), key=lambda part: (part.generation, part.closed))
    numbers: dict[int, int] = {}
    for place, (label, part) in enumerate(found):
        if part is None:
            continue
        if part.id != one.id:
            raise DescriptorError(
                f"{label} has a part of another striped {part.kind}, {part.name!r}, and not of {what}"
            )
        if part.number in numbers:
            other = found[numbers[part.number]].label
            raise DescriptorError(f"{other} and {label} both have number {part.number} of {what}: give each disk once")
        if part.disks != one.disks and part.closed and one.closed and part.generation == one.generation:
            raise DescriptorError(f"{label} states that {what} has {part.disks} disks; others state {one.disks}")
        numbers[part.number] = place
    missing = [number for number in one.members if number not in numbers]
    if missing or len(one.members) < len(found):
        _refuse_missing(what, found, one, missing)
    order = [numbers[number] for number in one.members]
    _check_generations(what, [found[place] for place in order])
    return order


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
    """Raise if a disk is an old copy: a crash while descriptors are written leaves at most two adjacent states.

    closed 7  closed 7  ─►  opening 8  closed 7  ─►  open 8  opening 8  ─►  closed 8  open 8  ─►  closed 8  closed 8
    """
    present = [(label, d) for label, d in found if d is not None]
    states = {(d.generation, "closed" if d.closed else d.phase) for _, d in present}
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
    stale = [(label, d.generation) for label, d in present if d.generation < newest]
    if not stale:
        raise DescriptorError(f"disks of {what} disagree in generation {newest}: one of them is an old copy")
    label, generation = stale[0]
    raise DescriptorError(
        f"{label} has generation {generation} of its part of {what}, and others have {newest}: it is an old copy"
    )


def newest_of(found: Sequence[FoundDescriptor]) -> DiskDescriptor:
    parts = [each.descriptor for each in found if each.descriptor is not None]
    return max(parts, key=lambda part: (part.generation, part.closed))


def announced(descriptors: Sequence[DiskDescriptor]) -> Iterator[list[DiskDescriptor]]:
    """Yield a writer's descriptors for all disks, in two rounds; write the second after the first is on all disks.

    A closed disk one generation behind disks with an open writer is therefore an old copy.
    """
    newest = max(each.generation for each in descriptors) + all(each.closed for each in descriptors)
    for phase in get_args(Phase)[1:]:
        yield [replace(each, generation=newest, closed=False, phase=phase) for each in descriptors]
