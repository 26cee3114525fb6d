"""Course of passes over slabs: how arrays were cut, the options of a pass, and the progress recorded in a journal.

begin     regions, axis and heights; kernel, sources, depth, …    ─► journal
resume    journal ─► the same slabs, without those recorded as done; or, with other memory or ranks, other
                     slabs, without the stored chunks
          refused: a pass with other options; the kernel's code is not compared
iterate   residuals of the finished passes ─► the next pass ─► its written slabs

One journal, beside the first target, serves all passes of an iteration: for every written slab it keeps pass, number,
rank and residual. Arrays that evolve together are read, swept and written together, slab by slab.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from oocarrays.errors import JournalError, NotFoundError
from oocarrays.graphs.cluster.placement import Disks
from oocarrays.graphs.run.recovery import KEPT, NOTHING_LEFT, Interrupted, Part, Recovered, Written
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.slabs.kernel import Kernel
from oocarrays.graphs.slabs.program import SlabPass, room_for
from oocarrays.graphs.slabs.scratch import PassScratch, Sweep
from oocarrays.graphs.slabs.sweeps import Residual, as_bits, as_residual, largest
from oocarrays.plan.documents import Document
from oocarrays.plan.slabs.bands import longest
from oocarrays.plan.slabs.iterate import IteratePlan
from oocarrays.plan.slabs.plan import CUT, SlabPlan
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import TargetSpec, is_scratch
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.places import StoreLike, name_of
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.sources import CHUNKS_READ, TRUSTED, is_of, metadata_digest, trust_of
from oocarrays.storage.journal.texts import BEGINNING, Kept

CHANGE = "oocarrays.graphs.slabs.gathering.change"
"""Name of the default residual in journals, as versions since 0.6.0 write it."""


def recorded_slabs(left: Interrupted) -> Document:
    """Return the edges of regions, the axis and the heights of the recorded slabs, as a plan has them."""
    return {name: value for name, value in recorded_cut(left).items() if name in CUT}


def recorded_cut(left: Interrupted) -> Document:
    """Return the cut in a journal as a plan has it: versions before 0.6 kept only the height along the axis."""
    kept = left.content["cut"]
    cut = dict(kept) | {"edges": tuple(tuple(each) for each in kept["edges"])}
    height = cut.pop("height", None)
    if height is not None:
        cut["heights"] = [height if a == cut["axis"] else longest(each) for a, each in enumerate(cut["edges"])]
    return cut | {"heights": tuple(cut["heights"])}


def is_on_own_disks(left: Interrupted) -> bool:
    """Return whether local array files on workers' own disks were written, which are neither checked nor cut anew."""
    return any(left.content["asked"].get("folders") or ())


def recover_pass(left: Interrupted, program: SlabPass) -> Recovered:
    """Return the recovered state for a run that resumes a pass; on own disks, all recorded parts."""
    if is_on_own_disks(left):
        notice = "what local array files on workers' own disks hold is not looked at: the journal is trusted"
        return left.recovered(done=frozenset(left.stored), kept=left.kept).told(notice)
    plan, slabs = program.plan, recorded_slabs(left)
    before = None if plan.cut == slabs else replace(program, plan=replace(plan, **slabs))
    return left.recover(program, existing(left, program), before=before)


def existing(left: Interrupted, program: SlabPass) -> dict[str, StoreLike]:
    """Return the files of a pass that its run has made, and perhaps closed, by name; none on workers' own disks."""

    def is_there(rank: int, place: Any) -> bool:
        if not program.is_last:
            return is_scratch(place)
        return unfinished_run(place) == left.id or ((rank,) in left.stored and is_finished(place))

    located = {} if is_on_own_disks(left) else program.located
    return {name: place for name, (rank, place) in located.items() if is_there(rank, place)}


def asked_of(
    kernel: Callable[..., Any], sources: Sequence[ArrayFile], targets: Iterable[TargetSpec], **options: Any
) -> Document:
    """Return the options that a resumed pass must repeat, as plain JSON values."""
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
    return json.loads(json.dumps(asked, default=repr))


def kernel_name(kernel: Any) -> str:
    """Return the qualified name of a kernel, or of the function of a partial one."""
    named = getattr(kernel, "func", kernel)
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{named.__module__}.{named.__qualname__}"


def interrupted_pass(
    target: StoreLike,
    asked: Mapping[str, Any],
    by: str = "map_slabs",
    *,
    sources: Sequence[ArrayFile] = (),
    resume: Any = True,
) -> Interrupted:
    """Return the journal of an interrupted pass at a target; raise if its options differ."""
    left = Interrupted.at(target, trust_of(resume) or TRUSTED)
    content, trust = left.content, left.trust
    if content.get("pass") != by:
        raise JournalError(f"{target} was not being written by {by}: it cannot continue that run")
    for name, wanted in asked.items():
        was = content["asked"].get(name)
        moved = trust.moved and bool(content.get(CHUNKS_READ))
        if was != wanted and not (name == "source" and sources and _are_of(sources, wanted, was, moved=moved)):
            told = "another source" if name == "source" else f"{name}={was}, not {wanted}"
            raise JournalError(
                f"{target} was begun with {told}: pass the same arguments to continue, or overwrite=True "
                "(--overwrite) to start over"
            )
    return left.recorded([file.zarr for file in sources] or None, files=True)


def _are_of(sources: Sequence[ArrayFile], wanted: Any, kept: Any, *, moved: bool) -> bool:
    """Return whether the sources match digests kept by a version before 0.6, or are local array files elsewhere."""
    if all(isinstance(each, list) for each in wanted):
        return moved and [each[1:] for each in wanted] == [each[1:] for each in kept]
    return len(sources) == len(kept) and all(map(is_of, sources, kept))


# ---------------------------------------------------------------------- course of several passes


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    residuals: tuple[float, ...] = ()
    """Residuals of the finished passes."""
    parts: frozenset[Part] = frozenset()
    """Written slabs of the next pass, and ranks with existing files: the parts that need not be done."""
    residual: float = -np.inf
    """Largest residual of these slabs."""
    gone: frozenset[Part] = frozenset()
    """Journal parts with scratch that no longer exists."""
    kept: Kept = field(default_factory=dict)
    """Chunks of the next pass written under earlier plans."""

    @property
    def slabs(self) -> int:
        """Number of written slabs of the next pass."""
        return sum(len(part) > 1 for part in self.parts)

    def after(self, residual: float) -> Progress:
        """Return the progress after one more pass."""
        return Progress(residuals=(*self.residuals, residual), parts=_files(self.parts))

    def of_pass(self, left: Interrupted) -> Interrupted:
        """Return a journal with the parts of the next pass alone."""
        stored = {part: told for part, told in left.stored.items() if part in self.parts}
        return replace(left, stored=stored, kept=self.kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Common data of the passes of an iteration."""

    plan: IteratePlan
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
    processes: int | None
    """Number of workers in the plan; None for threads of one process."""
    recovered: Recovered = NOTHING_LEFT
    """State recovered from an interrupted run, if any: of the pass in which it stopped."""
    so_far: Progress = Progress()
    """Residuals when the run was last replanned: of the finished passes, and of slabs of the next."""
    disks: Disks = field(default_factory=Disks)
    """Locations at which each rank's scratch can be checked."""

    def run(self, progress: Progress, *, resumes: bool = False) -> Run[SlabPass]:
        """Return the run of the next pass, which may be the first one of a resumed run."""
        id = self.recovered.id if resumes else None
        recovered = replace(self.recovered, id=id, done=progress.parts, kept=progress.kept)
        return Run(self._program(progress), self.content, recovered, self.id)

    def _program(self, progress: Progress) -> SlabPass:
        (step, last), number = self.step(progress.residuals), len(progress.residuals)
        return SlabPass(
            plan=step, reads=self.beside if number else (*self.sources, *self.beside), writes=self.targets,
            kernel=self.kernel, workers=self.processes, sweep=Sweep(
                number=number, last=last, residual=self.residual, scratch=self.scratch, room=self.room(),
                before=progress.residual, gone=progress.gone,
            ),
        )  # fmt: skip

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
        told = {} if left.trust.again else left.content.get("so_far", {})
        so_far = Progress(residuals=tuple(map(as_residual, told.get("residuals", ()))))
        so_far = replace(so_far, residual=as_residual(told["residual"])) if told else so_far
        began = replace(self, plan=_recut(self.plan, recorded_slabs(left)), so_far=so_far)
        began = replace(began, recovered=left.recovered(kept=left.kept))
        here = began._known(left.stored)
        lost = began._lost_input(left, here) if here.residuals else frozenset()
        if lost:
            here = replace(began, recovered=replace(began.recovered, lost=lost))._known(left.stored)
            mine = () if here.gone else (part for part in lost if part[:1] == (len(here.residuals),))
            here = replace(here, parts=here.parts.union(mine))  # they are found to be lost again
        recovered = recover_pass(here.of_pass(left), self._program(here))
        if not recovered.anew:
            return replace(self, recovered=replace(recovered, lost=lost - {KEPT}), so_far=so_far)
        so_far = Progress(residuals=here.residuals, residual=here.residual)
        bits = {"residuals": list(map(as_bits, here.residuals)), "residual": as_bits(here.residual)}
        begun = {CHUNKS_READ: None} if here.residuals else {}  # an older journal has none, and the first pass is over
        return replace(self, recovered=recovered, so_far=so_far, content=begun | self.content | {"so_far": bits})

    def _lost_input(self, left: Interrupted, here: Progress) -> frozenset[Part]:
        """Return the slabs of the pass before with a chunk that is not as it was stored."""
        number = len(here.residuals) - 1
        before = Progress(
            residuals=here.residuals[:-1], kept=left.kept if number == len(self.so_far.residuals) else {},
            parts=frozenset(part for part in left.stored if len(part) == 3 and part[0] == number),
        )  # fmt: skip
        program = self._program(before)
        return before.of_pass(left).check(program.sections, Written(existing(left, program))).lost

    @property
    def resumes(self) -> bool:
        """Whether the run resumes work of another process."""
        return self.recovered.id is not None

    def room(self) -> dict[str, int]:
        """Return the bytes to write, by folder, without files of ranks and scratch on workers' own disks."""
        scratch, wants = self.scratch.folders[0], room_for(self.targets, self.plan.passes[-1])
        counted = isinstance(scratch, str) and not self.targets[0].on_own_disks
        return wants | ({str(scratch): self.plan.scratch_bytes} if counted else {})

    def step(self, residuals: Sequence[float]) -> tuple[SlabPlan, bool]:
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
            parts = journal.parts()
            return self._known(parts if of_this else _files(parts))
        except NotFoundError:
            return Progress()

    def _known(self, recorded: Collection[Part]) -> Progress:
        """Return the progress of a run that has recorded these parts, and recovered others."""
        start, lost = len(self.so_far.residuals), self.recovered.lost
        parts, again = {*recorded, *self.recovered.done} - lost, {part[0] if part else start for part in lost}
        found: dict[Part, float] = {part[:3]: as_residual(part[3]) for part in parts if len(part) == 4}
        passes: defaultdict[int, set[Part]] = defaultdict(set)
        for part in parts:
            if len(part) == 3:
                passes[part[0]].add(part)
        latest, here = max(passes, default=0), self.so_far
        while True:
            number, (step, last) = len(here.residuals), self.step(here.residuals)
            slabs = passes.get(number, set())
            most = largest([here.residual, *(found.get(part, -np.inf) for part in slabs)])
            is_over = number not in again and (number < latest or len(slabs) == step.count)
            if last or not is_over:
                kept = self.recovered.kept if number == start else {}
                here = replace(here, parts=_files(parts) | slabs, residual=most, kept=kept)
                return self._usable(here, frozenset(part for part in parts if len(part) > 1))
            here = Progress(residuals=(*here.residuals, most))

    def _usable(self, here: Progress, slabs: frozenset[Part]) -> Progress:
        """Return the progress without slabs in scratch that no longer exists."""
        number, (step, last) = len(here.residuals), self.step(here.residuals)
        if last and here.slabs == step.count:  # no more reads
            return here
        if number and not self._is_handed_on(number - 1):
            return Progress(gone=slabs, parts=_files(here.parts))
        if last or not here.slabs or self._is_handed_on(number):
            return here
        gone = frozenset(part for part in slabs if part[0] == number)
        return Progress(residuals=here.residuals, gone=gone, parts=_files(here.parts))

    def _is_handed_on(self, number: int) -> bool:
        """Return whether all scratch that a pass writes for the next one exists, complete or not."""
        ranks = range(len(self.scratch.folders))
        return all(self.disks.call(rank, self.scratch.is_there, number, rank) for rank in ranks)


def _files(parts: Collection[Part]) -> frozenset[Part]:
    return frozenset(part for part in parts if len(part) == 1)


def _recut(plan: IteratePlan, cut: Mapping[str, Any]) -> IteratePlan:
    """Return a plan with recorded cuts of slabs."""
    passes = tuple(replace(step, **cut) for step in plan.passes)
    return replace(plan, passes=passes, copy=plan.copy and replace(plan.copy, **cut))
