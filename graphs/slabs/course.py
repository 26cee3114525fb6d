"""Course of an iteration: all that its passes have in common, and how far they have come, as a journal tells it.

    residuals of the passes that are over ─► the pass that comes next ─► its slabs that are written

One journal, beside the first target, is for all passes: of every slab that is written it keeps pass, number, rank and
the residual.
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

SO_FAR = "so_far"
"""Where a journal keeps how far its run was when it was planned anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come."""

    residuals: tuple[float, ...] = ()
    """Of the passes that are over."""
    done: Mapping[Slab, float] | None = None
    """Slabs of the next one that are written, and their residuals."""
    gone: frozenset[tuple[int, ...]] = frozenset()
    """What the journal has of scratch that is no longer there."""
    kept: Kept = field(default_factory=dict)
    """Chunks of the next one that plans before this one have written."""
    made: frozenset[int] = frozenset()
    """Ranks whose files are made, where targets are local array files."""

    def after(self, residual: float) -> Progress:
        """The same when one more pass is over."""
        return Progress(residuals=(*self.residuals, residual), made=self.made)

    @property
    def parts(self) -> frozenset[Part]:
        return frozenset(self.done or {}) | {(rank,) for rank in self.made}


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Course of an iteration: all that its passes have in common."""

    plan: IteratePlan
    """The passes."""
    kernel: Kernel
    """One sweep."""
    residual: Residual | None
    """What is looked at after each pass; None where nothing is."""
    until: float | None
    """The residual at which sweeping ends."""
    sources: tuple[Any, ...]
    """What the first pass sweeps: an `ArrayFile` each, or the `RankFiles` of all ranks."""
    beside: tuple[Any, ...]
    """What every pass reads, and every sweep sees as it is."""
    targets: tuple[TargetSpec, ...]
    """What the last pass writes: one for each that is swept; the journal is beside the first."""
    scratch: str | RemoteStore
    """Where what the others write is."""
    content: Document
    """What the journal keeps of it."""
    id: str
    """The id of the run."""
    resumes: bool
    """Whether it goes on with what another process has left."""
    processes: int | None
    """Workers that it is planned for; None for threads of one process."""
    remains: Remains = NOTHING_LEFT
    """What a run that stopped has left, if one has."""
    so_far: Progress = Progress()
    """How far it was when it was planned as it is."""

    def gone_on_with(self, left: StoppedPass) -> Self:
        """The same when what is left has been looked at: what the next pass writes, and what it reads."""
        began = replace(self, plan=_recut(self.plan, left.slabs), remains=replace(self.remains, kept=left.kept))
        began = replace(began, so_far=began._begun_at({} if left.trust.again else left.content.get(SO_FAR, {})))
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
        content = self.content | {SO_FAR: told}
        return replace(course, so_far=course._begun_at(told), content=content)

    @property
    def target(self) -> TargetSpec:
        """The first of the targets."""
        return self.targets[0]

    @property
    def _names(self) -> list[str]:
        """Names of the places where a pass writes."""
        return list(map(field_name, range(len(self.targets))))

    def _place(self, number: int, name: str, *, last: bool) -> StoreLike | RemoteStore | None:
        """Where a pass writes; None where that is not there."""
        if name not in self._names:
            return None
        field = self._names.index(name)
        if last:
            store = self.targets[field].store
            return store if unfinished_run(store) == self.id else None
        folder = place_of_pass(self.scratch, number, field, len(self.targets))
        return folder if is_scratch(folder) else None

    def _next_places(self, here: Progress) -> dict[str, StoreLike | RemoteStore]:
        """Where the pass writes that comes next, as far as that is there."""
        last = self.step(here.residuals)[1]
        each = ((name, self._place(len(here.residuals), name, last=last)) for name in self._names)
        return {name: place for name, place in each if place is not None}

    def _is_handed_on(self, number: int) -> bool:
        """Whether all is there that a pass has made, or makes, for the next one."""
        return all(self._place(number, name, last=False) is not None for name in self._names)

    def _boxes(self, slabs: SlabPlan, slab: Slab) -> dict[str, Section]:
        """The elements of a slab, as they stand in the file of each place where it is written."""
        return dict.fromkeys(self._names, slabs.core(slab))

    def _grid(self, slabs: SlabPlan, name: str) -> ChunkGrid:
        return slabs.targets[self._names.index(name)].grid

    def _begun_at(self, told: Mapping[str, Any]) -> Progress:
        """How far the run was when it was planned as it is, as the journal tells it."""
        here = Progress(residuals=tuple(map(as_residual, told.get("residuals", ()))))
        if not self.remains.kept:
            return here
        places, slabs = self._next_places(here), self.step(here.residuals)[0].slabs
        keys = {name: written_file(place).chunk_key for name, place in places.items()}

        def is_whole(slab: Slab) -> bool:
            return all(
                keys.get(name, scratch_key)(index) in self.remains.kept.get(name, {})  # what has been used is gone
                for name, box in self._boxes(slabs, slab).items()
                for index in self._grid(slabs, name).indices(box)
            )

        whole = filter(is_whole, slabs.all_slabs())
        return replace(here, done=dict.fromkeys(whole, as_residual(told["residual"])), kept=self.remains.kept)

    def _chunks(self, left: StoppedPass, here: Progress) -> Kept:
        """The chunks of the next pass that are stored, whichever plan did it."""
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
        """Find what of the record is not as it was stored."""
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
        """Bytes that are written, by the folder in which they are to be."""
        plain = zip(self.targets, self.plan.passes[-1].slabs.targets, strict=True)
        folders = [(local_folder(target.store), stored) for target, stored in plain if not stored.coded]
        wants = {folder: stored.grid.count * stored.chunk_bytes for folder, stored in folders if folder is not None}
        return wants | ({self.scratch: self.plan.scratch_bytes} if isinstance(self.scratch, str) else {})

    def step(self, residuals: Sequence[float]) -> tuple[SweptPass, bool]:
        """The pass that comes next, and whether it is the last: a copy where nothing is to be swept any more."""
        number = len(residuals)
        if self.until is not None and self.plan.copy and residuals and residuals[-1] <= self.until:
            return self.plan.copy, True
        return self.plan.passes[number], number == len(self.plan.passes) - 1

    def progress(self) -> Progress:
        """How far a run of this id has come, where there is one."""
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
        """The same less what was in scratch that is no longer there."""
        number, count = len(here.residuals), self.step(here.residuals)[0].slabs.count
        if last and len(here.done or {}) == count:  # nothing is read any more
            return here
        if number and not self._is_handed_on(number - 1):
            return Progress(gone=frozenset(part for part in parts if len(part) > 1), made=here.made)
        if last or not here.done or self._is_handed_on(number):
            return here
        return replace(here, done=None, kept={}, gone=frozenset(part for part in parts if part[0] == number))


def _recut(plan: IteratePlan, cut: Mapping[str, Any]) -> IteratePlan:
    """A plan with slabs as they were cut before."""

    def recut(step: SweptPass) -> SweptPass:
        return replace(step, slabs=replace(step.slabs, **cut))

    return replace(plan, passes=tuple(map(recut, plan.passes)), copy=plan.copy and recut(plan.copy))


def place_of_pass(scratch: str | RemoteStore, number: int, field: int, fields: int) -> str | RemoteStore:
    """Where a pass hands on one of so many arrays that are swept."""
    return place_below(scratch, str(number * fields + field))


def field_name(number: int) -> str:
    """Name the place where one of the arrays is written that are swept, as journals have it."""
    return str(number or "")


def scratch_key(index: tuple[int, ...]) -> str:
    """The key of a chunk of what passes hand on."""
    return "/".join(("c", *map(str, index)))
