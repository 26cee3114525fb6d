"""Going on with a pass over slabs that stopped: how arrays were cut, and what was asked for.

begin     regions, axis and heights; kernel, sources, depth, …    ─► journal
resume    journal ─► the same slabs, less those that are recorded as done; or others, where memory or ranks are, less
                     the chunks that have been stored
          refused: a pass that was asked for otherwise; the code of the kernel is its writer's word
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from oocarrays.errors import BudgetError, InputError, JournalError
from oocarrays.graphs.run.looking import (
    CHUNKS_READ,
    TRUSTED,
    Part,
    Stored,
    Trust,
    check_sources,
    is_of,
    metadata_digest,
)
from oocarrays.graphs.run.remains import Left, Remains, journal_of
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.plan.slabs.bands import longest
from oocarrays.plan.slabs.coarser import written
from oocarrays.plan.slabs.geometry import Slab
from oocarrays.plan.slabs.options import SlabOptions
from oocarrays.plan.slabs.plan import CUT, SlabPlan
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.places import StoreLike, name_of
from oocarrays.storage.files.target import TargetSpec, written_file
from oocarrays.storage.journal.texts import Kept

T = TypeVar("T")
Options = TypeVar("Options", bound=SlabOptions)


class Cut(Protocol):
    """A plan that knows how it was cut."""

    @property
    def cut(self) -> Document:
        """Which slab is which, as options take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedPass:
    """A pass that stopped, as its journal tells it."""

    id: str
    """Of the run."""
    cut: Document
    """Edges of regions, axis and heights, as `plan_slabs` takes them."""
    content: Mapping[str, Any]
    """All that the journal keeps of it."""
    stored: Mapping[tuple[int, ...], Stored | None]
    """What is recorded as done, and what it has stored."""
    kept: Kept
    """What plans before that one have stored, by the number of the target."""
    trust: Trust
    """How far that is trusted."""
    notices: tuple[str, ...]
    """What a person is to know of the sources."""

    def planned(self, plan: Callable[[Options], T], asked: Options) -> T:
        """A plan with the cut that was made; or, where that holds more than there is memory for, as it is ``asked``."""
        with suppress(BudgetError):
            return plan(asked.cut_as(**self.cut))
        return plan(replace(asked, **{name: value for name, value in self.cut.items() if name not in CUT}))

    @property
    def begun_with(self) -> Document:
        """How that was which is read, as a journal keeps it."""
        known = CHUNKS_READ in self.content and not self.trust.again
        return {CHUNKS_READ: self.content[CHUNKS_READ]} if known else {}

    def is_cut_so(self, plan: SlabPlan) -> bool:
        """Whether the slabs of a plan are those that are recorded."""
        return plan.cut == self.slabs

    @property
    def slabs(self) -> Document:
        return {name: self.cut[name] for name in CUT}

    def remains(self, plan: Any, targets: Sequence[TargetSpec]) -> Remains:
        """Return the remains for a run that goes on with it."""
        before = replace(plan, **self.slabs)
        places = self._places(plan, targets)
        left = Left(
            id=self.id, content=self.content, stored=self.stored, kept=self.kept, trust=self.trust,
            notices=self.notices, places=places, files=self._files(places),
        )  # fmt: skip
        parts = (self._parts(each, targets) for each in (before, plan))
        return left.remains(*parts, same=self.is_cut_so(plan), each="slab")

    def _places(self, plan: SlabPlan, targets: Sequence[TargetSpec]) -> dict[str, StoreLike]:
        return {str(n): target.store for n, target in enumerate(targets)}

    def _files(self, places: Mapping[str, StoreLike]) -> dict[str, ArrayFile]:
        """The files that are there, and that this run writes."""
        return {name: written_file(store) for name, store in places.items() if unfinished_run(store) == self.id}

    def _parts(self, plan: SlabPlan, targets: Sequence[TargetSpec]) -> SlabParts:
        return SlabParts(plan=plan, targets=targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabParts:
    """Slabs of a plan as parts, and what each writes of every target."""

    plan: SlabPlan
    """How arrays are cut."""
    targets: Sequence[TargetSpec]
    """What is written."""

    def parts(self) -> Iterator[Part]:
        return self.plan.all_slabs()

    def sections(self, part: Part) -> dict[str, list[Section]]:
        """The elements of a slab, in every target."""
        return {str(n): [self.plan.made(Slab(*part), n)] for n in written(self.plan)}


def asked_of(
    kernel: Callable[..., Any], sources: Sequence[ArrayFile], targets: Iterable[TargetSpec], **options: Any
) -> Document:
    """Return the request, as it must be made again: plain values that JSON keeps."""
    made = [(each.settings["dtype"].str, list(each.settings["chunks"]), name_of(each.store)) for each in targets]
    dtypes, chunks, places = zip(*made, strict=True)
    asked = {
        "kernel": kernel_name(kernel),
        "source": [metadata_digest(file) for file in sources],
        "target": places,
        "dtype": dtypes,
        "chunks": chunks,
        **options,
    }
    plain: Document = json.loads(json.dumps(asked, default=repr))
    return plain


def kernel_name(kernel: Any) -> str:
    """The name of a kernel; of one whose arguments are bound, that of its function."""
    named = getattr(kernel, "func", kernel)
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{named.__module__}.{named.__qualname__}"


def slab_content(plan: Cut, asked: Mapping[str, Any], by: str = "map_slabs") -> Document:
    """Return the content of a pass's journal."""
    return {"pass": by, "asked": dict(asked), "cut": plan.cut}


def left_by(
    target: StoreLike,
    asked: Mapping[str, Any],
    by: str = "map_slabs",
    *,
    sources: Sequence[ArrayFile] = (),
    resume: Any = True,
    kind: type[StoppedPass] = StoppedPass,
) -> StoppedPass:
    """Find what a pass that stopped has left at a target."""
    journal, id, content = journal_of(target, "array")
    if content.get("pass") != by:
        raise JournalError(f"{target} was not being written by {by}: it cannot go on with that")
    for name, wanted in asked.items():
        was = content["asked"].get(name)
        if was != wanted and not (name == "source" and sources and _are_of(sources, was)):
            told = "another source" if name == "source" else f"{name}={was}, not {wanted}"
            raise JournalError(f"{target} was begun with {told}: to go on, ask for the same; else ask for overwrite")
    trust, cut = trust_of(resume) or TRUSTED, content["cut"]
    stored: dict[Part, Stored | None] = {**journal.stored()}
    if trust.again:  # files that ranks have made stay
        stored = {part: receipts for part, receipts in stored.items() if len(part) == 1}
    notices = check_sources([file.zarr for file in sources], content, target, trust) if sources else ()
    return kind(
        id=id, cut=_as_cut(cut), content=content, stored=stored,
        kept={} if trust.again else journal.kept(), trust=trust,
        notices=tuple(notices),
    )  # fmt: skip


def _as_cut(kept: Mapping[str, Any]) -> Document:
    """How slabs were cut, as a plan has it: versions before 0.6 kept the height along their axis alone."""
    cut = dict(kept) | {"edges": tuple(tuple(each) for each in kept["edges"])}
    height = cut.pop("height", None)
    if height is not None:
        cut["heights"] = [height if a == cut["axis"] else longest(each) for a, each in enumerate(cut["edges"])]
    return cut | {"heights": tuple(cut["heights"])}


def _are_of(sources: Sequence[ArrayFile], digests: Any) -> bool:
    """Whether sources are those of which a version before 0.6 kept digests, where they were then."""
    return len(sources) == len(digests) and all(map(is_of, sources, digests))


def trust_of(resume: Any) -> Trust | None:
    """How far a pass trusts what is left, as its option ``resume`` says it; None where it is to go on with nothing."""
    if isinstance(resume, Trust):
        return resume
    if not isinstance(resume, bool) and not (isinstance(resume, str) and resume in ("verify", "as-is")):
        raise InputError(f"resume={resume!r} is not True, False, 'verify' or 'as-is'")
    return Trust(verify=resume == "verify", as_is=resume == "as-is") if resume else None
