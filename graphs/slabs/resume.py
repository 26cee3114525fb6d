"""Going on with a pass over slabs that stopped: how arrays were cut, and what was asked for.

begin     regions, axis and heights; kernel, sources, depth, …    ─► journal
resume    journal ─► the same slabs, less those that are recorded as done; or others, where memory or ranks are, less
                     the chunks that have been stored
          refused: a pass that was asked for otherwise; the code of the kernel is its writer's word
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from oocarrays.errors import BudgetError, InputError, JournalError
from oocarrays.graphs.run.looking import (
    CHUNKS_READ,
    TRUSTED,
    Found,
    Part,
    Stored,
    Trust,
    at_least,
    check_sources,
    is_of,
    look,
    metadata_digest,
)
from oocarrays.graphs.run.remains import Remains, check_known, journal_of, remaining, whole_chunks, with_kept
from oocarrays.mapping.section import Section
from oocarrays.plan.slabs.bands import longest
from oocarrays.plan.slabs.geometry import Slab
from oocarrays.plan.slabs.options import SlabOptions
from oocarrays.plan.slabs.plan import CUT, SlabPlan
from oocarrays.storage.files.array_file import ArrayFile, StoreLike, name_of, unfinished_run
from oocarrays.storage.files.target import TargetSpec, written_file
from oocarrays.storage.journal.journal import Kept
from oocarrays.storage.journal.receipts import Receipt

T = TypeVar("T")
Options = TypeVar("Options", bound=SlabOptions)


class Cut(Protocol):
    """A plan that knows how it was cut."""

    @property
    def cut(self) -> dict[str, Any]:
        """Which slab is which, as options take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A pass that stopped, as its journal tells it."""

    id: str
    """Of the run."""
    cut: dict[str, Any]
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
    def begun_with(self) -> dict[str, Any]:
        """How that was which is read, as a journal keeps it."""
        return {CHUNKS_READ: self.content[CHUNKS_READ]} if CHUNKS_READ in self.content else {}

    def is_cut_so(self, plan: SlabPlan) -> bool:
        """Whether the slabs of a plan are those that are recorded."""
        return plan.cut == self.slabs

    @property
    def slabs(self) -> dict[str, Any]:
        """The cut of a pass, as its plan has it."""
        return {name: self.cut[name] for name in CUT}

    def remains(self, plan: Any, targets: Sequence[TargetSpec]) -> Remains:
        """What a run is given that goes on with it.

        Raises
        ------
        JournalError
            Where something is recorded that its plan has not.
        """
        before = replace(plan, **self.slabs)
        check_known(self.stored, before.all_slabs(), targets[0].store, each="slab")
        files, places = self._files(targets), {str(n): target.store for n, target in enumerate(targets)}
        found = self._looked(before, files, places)
        anew = bool(found.lost) or not self.is_cut_so(plan)
        odd = {name: found.odd.get(str(store), ()) for name, store in places.items()}
        kept = self._chunks(before, files, odd) if anew else self.kept
        covered = (slab for slab in plan.all_slabs() if _is_covered(plan.core(slab), files, kept)) if kept else ()
        recorded = () if anew else (Slab(*part) for part in self.stored)
        told = f"planned anew: {sum(map(len, kept.values()))} chunks that have been written stay as they are"
        return remaining(
            self.content, self.trust, anew=anew, id=self.id, done=frozenset([*covered, *recorded]),
            odd=found.odd, kept=kept, notices=self.notices,
        ).told(found.notice, "" if self.is_cut_so(plan) else told)  # fmt: skip

    def _files(self, targets: Sequence[TargetSpec]) -> dict[str, ArrayFile]:
        """The targets that are there, by their numbers."""
        stores = enumerate(target.store for target in targets)
        return {str(n): written_file(store) for n, store in stores if unfinished_run(store) == self.id}

    def _looked(self, plan: SlabPlan, files: Mapping[str, ArrayFile], places: Mapping[str, StoreLike]) -> Found:
        """What of all that is recorded is not as it was stored."""

        def expected(part: Part) -> tuple[StoreLike, dict[str, Any]]:
            return places["0"], at_least(files["0"], files["0"].stored.grid.indices(plan.core(Slab(*part))))

        return look(
            with_kept(self.stored, self.kept), lambda _, name: places[name] if name in files else None, expected,
            verify=self.trust.verify,
        )  # fmt: skip

    def _chunks(
        self, plan: SlabPlan, files: Mapping[str, ArrayFile], odd: Mapping[str, Sequence[str]]
    ) -> dict[str, dict[str, Receipt]]:
        """All chunks that are stored, whichever plan did it, by the number of the target."""
        sections = {part: [plan.core(Slab(*part))] for part in self.stored}
        return {
            name: whole_chunks(file, self.stored, name, sections, odd[name], self.kept.get(name))
            for name, file in files.items()
        }


def _is_covered(core: Section, files: Mapping[str, ArrayFile], kept: Kept) -> bool:
    """Whether all chunks in which some elements are, are kept."""
    return all(
        file.chunk_key(index) in kept.get(name, {})
        for name, file in files.items()
        for index in file.stored.grid.indices(core)
    )


def asked_of(
    kernel: Callable[..., Any], sources: Sequence[ArrayFile], targets: Iterable[TargetSpec], **options: Any
) -> dict[str, Any]:
    """What was asked for, as it must be again: plain values that JSON keeps."""
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
    plain: dict[str, Any] = json.loads(json.dumps(asked, default=repr))
    return plain


def kernel_name(kernel: Any) -> str:
    """The name of a kernel; of one whose arguments are bound, that of its function.

    >>> from functools import partial
    >>> kernel_name(json.dumps), kernel_name(partial(json.dumps, indent=1)), kernel_name(json.JSONEncoder())
    ('json.dumps', 'json.dumps', 'json.encoder.JSONEncoder')
    """
    named = getattr(kernel, "func", kernel)
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{named.__module__}.{named.__qualname__}"


def slab_content(plan: Cut, asked: Mapping[str, Any], by: str = "map_slabs") -> dict[str, Any]:
    """What the journal of a pass keeps.

    Parameters
    ----------
    by : str
        The function that was called.
    """
    return {"pass": by, "asked": dict(asked), "cut": plan.cut}


def left_by(
    target: StoreLike,
    asked: Mapping[str, Any],
    by: str = "map_slabs",
    *,
    sources: Sequence[ArrayFile] = (),
    resume: Any = True,
    kind: type[Stopped] = Stopped,
) -> Stopped:
    """What a pass that stopped has left at a target.

    Parameters
    ----------
    sources : sequence of ArrayFile
        What it reads, as far as everybody sees it.
    resume : bool or str
        How far what is left is trusted: as `trust_of` takes it.
    kind : type
        Of what is left.

    Raises
    ------
    NotFoundError
        Where nothing unfinished is there, or no journal.
    JournalError
        Where it was asked for otherwise: it names the first difference.
    """
    journal, id, content = journal_of(target, "array")
    if content.get("pass") != by:
        raise JournalError(f"{target} was not being written by {by}: it cannot go on with that")
    for name, wanted in asked.items():
        was = content["asked"].get(name)
        if was != wanted and not (name == "source" and sources and _are_of(sources, was)):
            told = "another source" if name == "source" else f"{name}={was}, not {wanted}"
            raise JournalError(f"{target} was begun with {told}: to go on, ask for the same; else ask for overwrite")
    trust, cut = trust_of(resume) or TRUSTED, content["cut"]
    notices = check_sources([file.zarr for file in sources], content, target, trust) if sources else ()
    return kind(
        id=id, cut=_as_cut(cut), content=content, stored=journal.stored(), kept=journal.kept(), trust=trust,
        notices=tuple(notices),
    )  # fmt: skip


def _as_cut(kept: Mapping[str, Any]) -> dict[str, Any]:
    """How slabs were cut, as a plan has it: versions before 0.6 kept the height along their axis alone.

    >>> _as_cut({"edges": [[0, 4, 6], [0, 5]], "axis": 0, "height": 2})
    {'edges': ((0, 4, 6), (0, 5)), 'axis': 0, 'heights': (2, 5)}
    """
    cut = dict(kept) | {"edges": tuple(tuple(each) for each in kept["edges"])}
    height = cut.pop("height", None)
    if height is not None:
        cut["heights"] = [height if a == cut["axis"] else longest(each) for a, each in enumerate(cut["edges"])]
    return cut | {"heights": tuple(cut["heights"])}


def _are_of(sources: Sequence[ArrayFile], digests: Any) -> bool:
    """Whether sources are those of which a version before 0.6 kept digests, where they were then."""
    return len(sources) == len(digests) and all(map(is_of, sources, digests))


def trust_of(resume: Any) -> Trust | None:
    """How far a pass trusts what is left, as its option ``resume`` says it; None where it is to go on with nothing.

    >>> trust_of(True) == TRUSTED, trust_of("verify"), trust_of(False)
    (True, Trust(as_is=False, again='', verify=True), None)

    Raises
    ------
    InputError
        Where it is no bool, ``"verify"`` or ``"as-is"``.
    """
    if not isinstance(resume, bool) and resume not in ("verify", "as-is"):
        raise InputError(f"resume={resume!r} is not True, False, 'verify' or 'as-is'")
    return Trust(verify=resume == "verify", as_is=resume == "as-is") if resume else None
