"""Course of an iteration: the common data of its passes, and their progress as recorded in a journal.

    residuals of the finished passes ─► the next pass ─► its written slabs

One journal, beside the first target, serves all passes: for every written slab it keeps pass, number, rank and
residual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from oocarrays.errors import NotFoundError
from oocarrays.graphs.run.looking import Part, Stored, at_least, look
from oocarrays.graphs.run.remains import KEPT, NOTHING_LEFT, Remains, remaining, whole_chunks, with_kept
from oocarrays.graphs.slabs.gathering import Residual, as_bits, as_residual, largest
from oocarrays.graphs.slabs.resume import StoppedPass
from oocarrays.graphs.slabs.tasks import Kernel
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.plan.slabs.geometry import Slab
from oocarrays.plan.slabs.iterate import IteratePlan, SweptPass
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.storage.files.creating import is_scratch
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.files.target import TargetSpec, written_file
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.texts import BEGINNING, Kept
from oocarrays.storage.stores.remote import RemoteStore, place_below


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a run."""

    residuals: tuple[float, ...] = ()
    """Residuals of the finished passes."""
    done: Mapping[Slab, float] | None = None
    """Written slabs of the next pass, and their residuals."""
    gone: frozenset[tuple[int, ...]] = frozenset()
    """Journal parts with scratch that no longer exists."""
    kept: Kept = field(default_factory=dict)
    """Chunks of the next pass written under earlier plans."""
    made: frozenset[int] = frozenset()
    """Ranks with existing files, if targets are local array files."""

    def after(self, residual: float) -> Progress:
        """Return the progress after one more pass."""
        return Progress(residuals=(*self.residuals, residual), made=self.made)

    @property
    def parts(self) -> frozenset[Part]:
        return frozenset(self.done or {}) | {(rank,) for rank in self.made}


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Common data of the passes of an iteration."""

    plan: IteratePlan
    """Plan of the passes."""
    kernel: Kernel
    """Kernel of one sweep."""
    residual: Residual | None
    """Measure computed after each pass; None to compute none."""
    until: float | None
    """Residual at which sweeping ends."""
    sources: tuple[Any, ...]
    """Input of the first pass: an `ArrayFile` for each swept array, or the `RankFiles` of all ranks."""
    beside: tuple[Any, ...]
    """Arrays that every pass reads and no sweep changes."""
    targets: tuple[TargetSpec, ...]
    """Output of the last pass, one for each swept array; the journal is beside the first."""
    scratch: str | RemoteStore
    """Location of the output of the other passes."""
    content: Document
    """Content of the journal."""
    id: str
    """Id of the run."""
    resumes: bool
    """Whether the run resumes work of another process."""
    processes: int | None
    """Number of workers in the plan; None for threads of one process."""
    remains: Remains = NOTHING_LEFT
    """State recovered from an interrupted run, if any."""
    so_far: Progress = Progress()
    """Progress when the run was last replanned."""

    def gone_on_with(self, left: StoppedPass) -> Self:
        """Return the course of the resumed run, after checking the output of the next pass and its input."""
        began = replace(self, plan=_recut(self.plan, left.slabs), remains=replace(self.remains, kept=left.kept))
        began = replace(began, so_far=began._begun_at({} if left.trust.again else left.content.get("so_far", {})))
        looked = replace(began, remains=began._looked(left))
        here, cut_so = looked._known(set(left.stored)), left.is_cut_so(self.plan.passes[0].slabs)
        anew = bool(looked.remains.lost) or not cut_so
        remains = remaining(
            left.content, left.trust, anew=anew, id=left.id, odd=looked.remains.odd,
            kept=looked._chunks(left, here) if anew else left.kept,
        ).told(*left.notices, *looked.remains.notices)  # fmt: skip
        if not anew:
            return replace(self, remains=remains, so_far=looked.so_far)
        told = {
            "residuals": list(map(as_bits, here.residuals)),
            "residual": as_bits(largest((here.done or {}).values())),
        }
        chunks = sum(map(len, remains.kept.values()))
        stays = f"planned anew: {chunks} chunks of pass {len(here.residuals) + 1} stay as they are"
        course = replace(self, remains=remains.told("" if cut_so else stays))
        content = self.content | {"so_far": told}
        return replace(course, so_far=course._begun_at(told), content=content)

    @property
    def target(self) -> TargetSpec:
        """First target."""
        return self.targets[0]

    @property
    def _names(self) -> list[str]:
        """Names of the places at which a pass writes."""
        return list(map(field_name, range(len(self.targets))))

    def _place(self, number: int, name: str, *, last: bool) -> StoreLike | RemoteStore | None:
        """Return the location of a pass's output; None if it does not exist."""
        if name not in self._names:
            return None
        field = self._names.index(name)
        if last:
            store = self.targets[field].store
            return store if unfinished_run(store) == self.id else None
        folder = place_of_pass(self.scratch, number, field, len(self.targets))
        return folder if is_scratch(folder) else None

    def _next_places(self, here: Progress) -> dict[str, StoreLike | RemoteStore]:
        """Return the existing locations of the next pass's output."""
        last = self.step(here.residuals)[1]
        each = ((name, self._place(len(here.residuals), name, last=last)) for name in self._names)
        return {name: place for name, place in each if place is not None}

    def _is_handed_on(self, number: int) -> bool:
        """Return whether all scratch that a pass writes for the next one exists, complete or not."""
        return all(self._place(number, name, last=False) is not None for name in self._names)

    def _boxes(self, slabs: SlabPlan, slab: Slab) -> dict[str, Section]:
        """Return the elements of a slab in each file to which it is written."""
        return dict.fromkeys(self._names, slabs.core(slab))

    def _grid(self, slabs: SlabPlan, name: str) -> ChunkGrid:
        return slabs.targets[self._names.index(name)].grid

    def _begun_at(self, told: Mapping[str, Any]) -> Progress:
        """Return the progress when the run was last replanned, from its journal."""
        here = Progress(residuals=tuple(map(as_residual, told.get("residuals", ()))))
        if not self.remains.kept:
            return here
        places, slabs = self._next_places(here), self.step(here.residuals)[0].slabs
        keys = {name: written_file(place).chunk_key for name, place in places.items()}

        def is_whole(slab: Slab) -> bool:
            return all(
                keys.get(name, scratch_key)(index) in self.remains.kept.get(name, {})  # used chunks are removed
                for name, box in self._boxes(slabs, slab).items()
                for index in self._grid(slabs, name).indices(box)
            )

        whole = filter(is_whole, slabs.all_slabs())
        return replace(here, done=dict.fromkeys(whole, as_residual(told["residual"])), kept=self.remains.kept)

    def _chunks(self, left: StoppedPass, here: Progress) -> Kept:
        """Return the stored chunks of the next pass, whichever plan wrote them."""
        number, slabs = len(here.residuals), self.step(here.residuals)[0].slabs
        parts = [part for part in left.stored if len(part) == 3 and part[0] == number]
        boxes = {part: self._boxes(slabs, Slab(*part[1:])) for part in parts}
        kept = {}
        for name, where in self._next_places(here).items():
            odd = frozenset(self.remains.odd.get(str(where), ()))
            sections: dict[Part, list[Section]] = {part: [each[name]] for part, each in boxes.items() if name in each}
            kept[name] = whole_chunks(written_file(where), left.stored, name, sections, odd, here.kept.get(name))
        return kept

    def _looked(self, left: StoppedPass) -> Remains:
        """Check the recorded parts against the stored ones, and note differences."""
        stored: dict[Part, Stored | None] = {part: receipts for part, receipts in left.stored.items() if len(part) == 3}
        here = self._known(set(left.stored))
        _, last = self.step(here.residuals)

        def place(part: Part, name: str = "") -> StoreLike | RemoteStore | None:
            if part == KEPT:
                return self._next_places(self.so_far).get(name)
            return self._place(part[0], name, last=last and part[0] == len(here.residuals))

        def expected(part: Part) -> tuple[StoreLike | RemoteStore | None, Document]:
            where = place(part)
            if where is None:
                return None, {}
            file = written_file(where)
            core = self.plan.passes[min(part[0], len(self.plan.passes) - 1)].slabs.core(Slab(*part[1:]))
            return where, at_least(file, file.stored.grid.indices(core))

        found = look(with_kept(stored, left.kept), place, expected, verify=left.trust.verify)
        return replace(self.remains, lost=found.lost, odd=found.odd).told(found.notice)

    def room(self) -> dict[str, int]:
        """Return the bytes to write, by folder."""
        plain = zip(self.targets, self.plan.passes[-1].slabs.targets, strict=True)
        folders = [(local_folder(target.store), stored) for target, stored in plain if not stored.coded]
        wants = {folder: stored.grid.count * stored.chunk_bytes for folder, stored in folders if folder is not None}
        return wants | ({self.scratch: self.plan.scratch_bytes} if isinstance(self.scratch, str) else {})

    def step(self, residuals: Sequence[float]) -> tuple[SweptPass, bool]:
        """Return the next pass, and whether it is the last; a copy if no sweep remains."""
        number = len(residuals)
        if self.until is not None and self.plan.copy and residuals and residuals[-1] <= self.until:
            return self.plan.copy, True
        return self.plan.passes[number], number == len(self.plan.passes) - 1

    def progress(self) -> Progress:
        """Return the progress of the run with this id, if its target exists."""
        if unfinished_run(self.target.store) != self.id:
            return Progress()
        journal = Journal(self.target.store)
        try:
            of_this = journal.read()[1].get(BEGINNING, "") == self.remains.beginning
            return self._known({part for part in journal.parts() if of_this or len(part) == 1})
        except NotFoundError:
            return Progress()

    def _known(self, parts: set[tuple[int, ...]]) -> Progress:
        parts = parts - self.remains.lost
        written = [part for part in parts if len(part) == 3]
        residuals = {part[:3]: as_residual(part[3]) for part in parts if len(part) == 4}
        start = len(self.so_far.residuals)
        passes: dict[int, dict[Slab, float]] = {start: dict(self.so_far.done or {})}
        for part in written:
            number, *slab = part
            passes.setdefault(number, {})[Slab(*slab)] = residuals.get(part, -np.inf)
        made = frozenset(rank for rank, *more in parts if not more)
        here = Progress(residuals=self.so_far.residuals, made=made)
        while True:
            number, (step, last) = len(here.residuals), self.step(here.residuals)
            there = passes.get(number, {})
            if last or len(there) < step.slabs.count:
                kept = self.so_far.kept if number == start else {}
                return self._usable(replace(here, done=there, kept=kept), last, parts)
            here = here.after(largest(there.values()))

    def _usable(self, here: Progress, last: bool, parts: Iterable[tuple[int, ...]]) -> Progress:
        """Return the progress without slabs in scratch that no longer exists."""
        number, count = len(here.residuals), self.step(here.residuals)[0].slabs.count
        if last and len(here.done or {}) == count:  # no more reads
            return here
        if number and not self._is_handed_on(number - 1):
            return Progress(gone=frozenset(part for part in parts if len(part) > 1), made=here.made)
        if last or not here.done or self._is_handed_on(number):
            return here
        return replace(here, done=None, kept={}, gone=frozenset(part for part in parts if part[0] == number))


def _recut(plan: IteratePlan, cut: Mapping[str, Any]) -> IteratePlan:
    """Return a plan with recorded cuts of slabs."""

    def recut(step: SweptPass) -> SweptPass:
        return replace(step, slabs=replace(step.slabs, **cut))

    return replace(plan, passes=tuple(map(recut, plan.passes)), copy=plan.copy and recut(plan.copy))


def place_of_pass(scratch: str | RemoteStore, number: int, field: int, fields: int) -> str | RemoteStore:
    """Return the scratch location of one swept array for a pass."""
    return place_below(scratch, str(number * fields + field))


def field_name(number: int) -> str:
    """Return the name of a swept array's location, as in journals."""
    return str(number or "")


def scratch_key(index: tuple[int, ...]) -> str:
    """Return the key of a chunk in scratch."""
    return "/".join(("c", *map(str, index)))
