"""Course of an iteration: the common data of its passes, and their progress as recorded in a journal.

    residuals of the finished passes ─► the next pass ─► its written slabs

One journal, beside the first target, serves all passes: for every written slab it keeps pass, number, rank and
residual. Arrays that evolve together are read, swept and written together, slab by slab.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np

from oocarrays.errors import NotFoundError
from oocarrays.graphs.cluster.placement import Disks
from oocarrays.graphs.run.recovery import CHUNKS_READ, NOTHING_LEFT, Interrupted, Part, Recovered, Sections, Written
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.slabs.kernel import Kernel
from oocarrays.graphs.slabs.program import SlabPass, field_name, room_for
from oocarrays.graphs.slabs.resume import NOT_LOOKED_AT, recorded_slabs
from oocarrays.graphs.slabs.scratch import PassScratch, Sweep
from oocarrays.graphs.slabs.sweeps import Fused, Residual, as_bits, as_residual, largest
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.plan.slabs.geometry import Slab
from oocarrays.plan.slabs.iterate import IteratePlan, SweptPass
from oocarrays.plan.slabs.plan import SlabPlan, rank_file
from oocarrays.storage.files.creating import is_scratch
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.target import TargetSpec, written_file
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.texts import BEGINNING, Kept
from oocarrays.storage.stores.remote import RemoteStore

T = TypeVar("T")


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
        """Parts of the next pass that need not be done."""
        return frozenset((len(self.residuals), *slab) for slab in self.done or {}) | {(rank,) for rank in self.made}


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
    scratch: PassScratch
    """Output of the other passes."""
    content: Document
    """Content of the journal."""
    id: str
    """Id of the run."""
    processes: int | None
    """Number of workers in the plan; None for threads of one process."""
    recovered: Recovered = NOTHING_LEFT
    """State recovered from an interrupted run, if any."""
    so_far: Progress = Progress()
    """Progress when the run was last replanned."""
    disks: Disks = field(default_factory=Disks)
    """Locations at which each rank's scratch can be checked."""

    def run(self, progress: Progress, *, resumes: bool = False) -> Run[SlabPass]:
        """Return the run of the next pass, which may be the first one of a resumed run."""
        (step, last), first = self.step(progress.residuals), not progress.residuals
        sweep = Sweep(
            number=len(progress.residuals), last=last, residual=self.residual, scratch=self.scratch, room=self.room(),
            before=largest((progress.done or {}).values()), gone=progress.gone,
        )  # fmt: skip
        program = SlabPass(
            plan=step.slabs, reads=(*self.sources, *self.beside) if first else self.beside, writes=self.targets,
            kernel=Fused(kernel=self.kernel, sweeps=step.sweeps, threads=step.threads, fields=len(self.targets)),
            workers=self.processes, sweep=sweep,
        )  # fmt: skip
        id = self.recovered.id if resumes else None
        recovered = replace(self.recovered, id=id, done=progress.parts, kept=progress.kept)
        return Run(program, self.content, recovered, self.id)

    def looked_back(self) -> Self:
        """Return the course before it is run again; start anew if the first pass reads a source that has changed."""
        if self.progress().residuals:
            return self
        (run := self.run(Progress(), resumes=self.resumes)).look_back()
        anew = run.state.recovered.beginning != self.recovered.beginning
        return replace(self, recovered=run.state.recovered, so_far=Progress()) if anew else self

    def resumed(self, left: Interrupted) -> Self:
        """Return the course of the resumed run, after checking the output of the next pass and its input.

        Files on workers' own disks are not checked.
        """
        slabs = recorded_slabs(left)
        began = replace(self, plan=_recut(self.plan, slabs), recovered=left.recovered(kept=left.kept))
        began = replace(began, so_far=began._begun_at({} if left.trust.again else left.content.get("so_far", {})))
        located, there = began._located(left), Written(began._existing(left))
        found = located.check(began._sections, there)
        looked = replace(began, recovered=replace(began.recovered, lost=found.lost))
        here, same = looked._known(set(left.stored)), self.plan.passes[0].slabs.cut == slabs
        anew, kept = bool(found.lost) or not same, left.kept
        if anew:
            names = {f"{len(here.residuals)}:{name}": name for name in self._names}
            known = located if here.kept else replace(located, kept={})
            whole = known.complete(began._sections, there, there.places.keys() & names.keys(), found.odd)
            kept = {names[name]: chunks for name, chunks in whole.items()}
        recovered = left.recovered(anew=anew, odd=there.by_place(found.odd), kept=kept).told(
            found.notice, NOT_LOOKED_AT if self.on_own_disks else ""
        )
        if not anew:
            return replace(self, recovered=recovered, so_far=looked.so_far)
        told = {
            "residuals": list(map(as_bits, here.residuals)),
            "residual": as_bits(largest((here.done or {}).values())),
        }
        chunks = sum(map(len, kept.values()))
        stays = f"planned anew: {chunks} chunks of pass {len(here.residuals) + 1} stay as they are"
        course = replace(self, recovered=recovered.told("" if same else stays))
        begun = {CHUNKS_READ: None} if here.residuals else {}  # an older journal has none, and the first pass is over
        return replace(course, so_far=course._begun_at(told), content=begun | self.content | {"so_far": told})

    def _located(self, left: Interrupted) -> Interrupted:
        """Return a journal with the slabs alone, and with the number of the pass in the names of locations."""
        start = len(self.so_far.residuals)
        slabs = ((part, told) for part, told in left.stored.items() if len(part) == 3)
        stored: dict[Part, Kept | None] = {part: told and _in_pass(part[0], told) for part, told in slabs}
        return replace(left, stored=stored, kept=_in_pass(start, left.kept))

    def _existing(self, left: Interrupted) -> dict[str, StoreLike | RemoteStore]:
        """Return the existing locations of the recorded passes, with the number of the pass in their names."""
        here = self._known(set(left.stored))
        number, (_, last) = len(here.residuals), self.step(here.residuals)
        passes = {number, len(self.so_far.residuals), *(part[0] for part in left.stored if len(part) == 3)}
        each = (_in_pass(n, self._places(n, last=last and n == number)) for n in passes)
        return {name: place for places in each for name, place in places.items()}

    def _sections(self, part: Part) -> Sections:
        """Return the elements that a slab writes in each location."""
        number, *slab = part
        slabs = self.plan.passes[min(number, len(self.plan.passes) - 1)].slabs
        return _in_pass(number, {name: [box] for name, box in self._boxes(slabs, Slab(*slab)).items()})

    @property
    def resumes(self) -> bool:
        """Whether the run resumes work of another process."""
        return self.recovered.id is not None

    @property
    def on_own_disks(self) -> bool:
        return any(target.on_own_disks for target in self.targets)

    @property
    def _names(self) -> dict[str, tuple[int, int]]:
        """Array and rank of each location at which a pass writes, by its name in the journal."""
        names = (target.named(field) for field, target in enumerate(self.targets))
        return {field_name(n): (field, rank) for field, each in enumerate(names) for rank, n in enumerate(each)}

    def _places(self, number: int, *, last: bool) -> dict[str, StoreLike | RemoteStore]:
        """Return the existing locations of a pass's output by name, without those on workers' own disks."""
        names = {} if self.on_own_disks else self._names
        if last:
            targets = ((name, self.targets[field].place(rank)) for name, (field, rank) in names.items())
            return {name: place for name, place in targets if unfinished_run(place) == self.id}
        scratch = ((name, self.scratch.place(number, *where)) for name, where in names.items())
        return {name: place for name, place in scratch if is_scratch(place)}

    def _is_handed_on(self, number: int) -> bool:
        """Return whether all scratch that a pass writes for the next one exists, complete or not."""
        ranks = range(len(self.scratch.folders))
        return all(self.disks.call(rank, self.scratch.is_there, number, rank) for rank in ranks)

    def _boxes(self, slabs: SlabPlan, slab: Slab) -> dict[str, Section]:
        """Return the elements of a slab in each file to which it is written."""
        core = slabs.core(slab)
        shares = (target.share(field, slab.rank, core) for field, target in enumerate(self.targets))
        return {field_name(name): section for name, section in shares}

    def _begun_at(self, told: Mapping[str, Any]) -> Progress:
        """Return the progress when the run was last replanned, from its journal."""
        here = Progress(residuals=tuple(map(as_residual, told.get("residuals", ()))))
        if not self.recovered.kept:
            return here
        (step, last), names = self.step(here.residuals), self._names
        slabs, places = step.slabs, self._places(len(here.residuals), last=last)
        keys = {name: written_file(place).chunk_key for name, place in places.items()}

        def grid(name: str) -> ChunkGrid:
            field, rank = names[name]
            return rank_file(slabs, slabs.targets[field], rank).grid

        def is_whole(slab: Slab) -> bool:
            return all(
                keys.get(name, scratch_key)(index) in self.recovered.kept.get(name, {})  # used chunks are removed
                for name, box in self._boxes(slabs, slab).items()
                for index in grid(name).indices(box)
            )

        whole = filter(is_whole, slabs.all_slabs())
        return replace(here, done=dict.fromkeys(whole, as_residual(told["residual"])), kept=self.recovered.kept)

    def room(self) -> dict[str, int]:
        """Return the bytes to write, by folder, without files of ranks and scratch on workers' own disks."""
        scratch, wants = self.scratch.folders[0], room_for(self.targets, self.plan.passes[-1].slabs)
        counted = isinstance(scratch, str) and not self.on_own_disks
        return wants | ({str(scratch): self.plan.scratch_bytes} if counted else {})

    def step(self, residuals: Sequence[float]) -> tuple[SweptPass, bool]:
        """Return the next pass, and whether it is the last; a copy if no sweep remains."""
        number = len(residuals)
        if self.until is not None and self.plan.copy and residuals and residuals[-1] <= self.until:
            return self.plan.copy, True
        return self.plan.passes[number], number == len(self.plan.passes) - 1

    def progress(self) -> Progress:
        """Return the progress of the run with this id, if its target exists."""
        if unfinished_run(store := self.targets[0].store) != self.id:
            return Progress()
        journal = Journal(store)
        try:
            of_this = journal.read()[1].get(BEGINNING, "") == self.recovered.beginning
            return self._known({part for part in journal.parts() if of_this or len(part) == 1})
        except NotFoundError:
            return Progress()

    def _known(self, parts: set[tuple[int, ...]]) -> Progress:
        parts = parts - self.recovered.lost
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


def _in_pass(number: int, names: Mapping[str, T]) -> dict[str, T]:
    """Return values by location name, with the number of the pass in the names."""
    return {f"{number}:{name}": each for name, each in names.items()}


def scratch_key(index: tuple[int, ...]) -> str:
    """Return the key of a chunk in scratch."""
    return "/".join(("c", *map(str, index)))
