"""Passes of fused sweeps, as tasks: each is a pass over slabs, and reads what the one before has written.

    create ─► slabs ─► end pass 0 ─► create ─► slabs ─► end pass 1 ─► … ─► finish
                          ╰ the largest residual, by which the next pass is begun or left out

One journal, beside the target, is for all passes: of every slab that is written it keeps pass, number, rank and the
residual. What a pass reads is removed when the pass is over: a run that stopped goes on with the pass that it was in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import zarr

from oocarrays.errors import NotFoundError
from oocarrays.graphs.run.journaled import check_room
from oocarrays.graphs.run.looking import Part, Stored, at_least, look
from oocarrays.graphs.run.remains import KEPT, NOTHING_LEFT, Remains, remaining, whole_chunks, with_kept
from oocarrays.graphs.run.sealed import Sealed
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.slabs.graph import SlabBuilder
from oocarrays.graphs.slabs.resume import Stopped
from oocarrays.graphs.slabs.sweeps import Fused
from oocarrays.graphs.slabs.tasks import Kernel, SlabRun
from oocarrays.mapping.section import Section
from oocarrays.plan.slabs.geometry import Slab
from oocarrays.plan.slabs.iterate import IteratePlan, SweptPass
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import create_scratch, is_scratch, remove_scratch
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.files.target import TargetSpec, written_file
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.leftovers import hold
from oocarrays.storage.journal.lock import Hold
from oocarrays.storage.journal.texts import BEGINNING, Kept
from oocarrays.storage.sections.windows import Blocks
from oocarrays.storage.stores.remote import RemoteStore, place_below

SO_FAR = "so_far"
"""Where a journal keeps how far its run was when it was planned anew."""
Residual = Callable[[np.ndarray, np.ndarray], float]
"""What the last sweep of a pass has changed, of a part of the array before and after it."""


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

    def after(self, residual: float) -> Progress:
        """The same when one more pass is over."""
        return Progress(residuals=(*self.residuals, residual))


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
    source: ArrayFile
    """What the first pass reads."""
    target: TargetSpec
    """What the last pass writes."""
    scratch: str | RemoteStore
    """Where what the others write is."""
    content: dict[str, Any]
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

    def gone_on_with(self, left: Stopped) -> Course:
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

    def _place(self, here: Progress) -> StoreLike | RemoteStore | None:
        """Where the pass writes that comes next; None where that is not there."""
        if self.step(here.residuals)[1]:
            return self.target.store
        folder = place_below(self.scratch, str(len(here.residuals)))
        return folder if is_scratch(folder) else None

    def _begun_at(self, told: Mapping[str, Any]) -> Progress:
        """How far the run was when it was planned as it is, as the journal tells it."""
        here = Progress(residuals=tuple(map(as_residual, told.get("residuals", ()))))
        if not self.remains.kept:
            return here
        where, slabs = self._place(here), self.step(here.residuals)[0].slabs
        file, grid = (written_file(where) if where else None), slabs.targets[0].grid
        key = file.chunk_key if file else scratch_key  # what has been used is gone
        kept = self.remains.kept.get("", {})
        whole = (slab for slab in slabs.all_slabs() if all(key(i) in kept for i in grid.indices(slabs.core(slab))))
        return replace(here, done=dict.fromkeys(whole, as_residual(told["residual"])), kept=self.remains.kept)

    def _chunks(self, left: Stopped, here: Progress) -> Kept:
        """The chunks of the next pass that are stored, whichever plan did it."""
        where, number = self._place(here), len(here.residuals)
        if where is None:
            return {}
        odd, slabs = frozenset(self.remains.odd.get(str(where), ())), self.step(here.residuals)[0].slabs
        parts = [part for part in left.stored if len(part) == 3 and part[0] == number]
        sections: dict[Part, list[Section]] = {part: [slabs.core(Slab(*part[1:]))] for part in parts}
        return {"": whole_chunks(written_file(where), left.stored, "", sections, odd, here.kept.get(""))}

    def _looked(self, left: Stopped) -> Remains:
        """Find what of the record is not as it was stored."""
        stored: dict[Part, Stored | None] = {part: receipts for part, receipts in left.stored.items() if len(part) == 3}
        here = self._known(set(left.stored))
        _, last = self.step(here.residuals)

        def place(part: Part, name: str = "") -> StoreLike | RemoteStore | None:
            if part == KEPT:
                return self._place(self.so_far)
            if last and part[0] == len(here.residuals):
                return self.target.store
            folder = place_below(self.scratch, str(part[0]))
            return folder if is_scratch(folder) else None

        def expected(part: Part) -> tuple[StoreLike | RemoteStore | None, dict[str, Any]]:
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
        target, folder = self.plan.passes[-1].slabs.targets[0], local_folder(self.target.store)
        wants = {} if folder is None or target.coded else {folder: target.grid.count * target.chunk_bytes}
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
            return self._known(journal.parts() if of_this else set())
        except NotFoundError:
            return Progress()

    def looked_back(self) -> Course:
        """The same before it is run once more: begun again, where the first pass reads a source that has changed.

        Raises
        ------
        JournalError
            As `look_back` of a run does.
        """
        if self.progress().residuals:
            return self
        run = SweepRun(self, Progress(), resumes=self.resumes)
        run.look_back()
        same = run.remains.beginning == self.remains.beginning
        return self if same else replace(self, remains=run.remains, so_far=Progress())

    def _known(self, parts: set[tuple[int, ...]]) -> Progress:
        parts = parts - self.remains.lost
        written = [part for part in parts if len(part) == 3]
        residuals = {part[:3]: as_residual(part[3]) for part in parts if len(part) == 4}
        start = len(self.so_far.residuals)
        passes: dict[int, dict[Slab, float]] = {start: dict(self.so_far.done or {})}
        for part in written:
            number, *slab = part
            passes.setdefault(number, {})[Slab(*slab)] = residuals.get(part, -np.inf)
        here = Progress(residuals=self.so_far.residuals)
        while True:
            number, (step, last) = len(here.residuals), self.step(here.residuals)
            there = passes.get(number, {})
            if last or len(there) < step.slabs.count:
                kept = self.so_far.kept if number == start else {}
                return self._usable(replace(here, done=there, kept=kept), last, parts)
            here = here.after(largest(there.values()))

    def _usable(self, here: Progress, last: bool, parts: Iterable[tuple[int, ...]]) -> Progress:
        """The same less what was in scratch that is no longer there."""
        number = len(here.residuals)
        if number and not is_scratch(place_below(self.scratch, str(number - 1))):
            return Progress(gone=frozenset(parts))
        if last or not here.done or is_scratch(place_below(self.scratch, str(number))):
            return here
        return replace(here, done=None, kept={}, gone=frozenset(part for part in parts if part[0] == number))


def _recut(plan: IteratePlan, cut: Mapping[str, Any]) -> IteratePlan:
    """A plan with slabs as they were cut before."""

    def recut(step: SweptPass) -> SweptPass:
        return replace(step, slabs=replace(step.slabs, **cut))

    return replace(plan, passes=tuple(map(recut, plan.passes)), copy=plan.copy and recut(plan.copy))


class SweepRun(SlabRun):
    """One pass of an iteration, shared by its tasks.

    Parameters
    ----------
    resumes : bool
        Whether it is the first pass of a run that goes on with what another process has left.
    """

    def __init__(self, course: Course, progress: Progress, *, resumes: bool = False) -> None:
        step, self.last = course.step(progress.residuals)
        self.number, self.sweeps, self.scratch = len(progress.residuals), step.sweeps.count, course.scratch
        self.stored = step.slabs.targets[0]
        self.before, self.gone = dict(progress.done or {}), progress.gone
        self.room = course.room()
        fused = Fused(kernel=course.kernel, sweeps=step.sweeps, threads=step.threads)
        super().__init__(
            step.slabs,
            (fused, course.residual),  # type: ignore[arg-type]
            () if self.number else (course.source,),
            (course.target,),
            course.content,
            processes=course.processes,
            remains=replace(course.remains, id=course.id, done=frozenset(self.before), kept=progress.kept),
        )
        self.resumes = resumes

    def _here(self) -> None:
        super()._here()
        self._hold: Hold | None = None

    @property
    def given(self) -> tuple[Any, tuple[ArrayFile, ...]]:
        """The sweeps and what is looked at after them; and what is read, which for most passes another one makes."""
        sweeps, sources = super().given
        if not sources:
            sources = (self._scratch_array(self.number - 1),)
            self._given = Sealed((sweeps, sources))
        return sweeps, sources

    @property
    def written_places(self) -> list[StoreLike]:
        """The target, or scratch."""
        return [*super().written_places, self.scratch]

    @property
    def stores(self) -> dict[str, Any]:
        """Where it reads and writes."""
        return {"target": self.destination.store} if self.number else super().stores

    def reads(self) -> Iterable[Presence]:
        """The source, which the first pass reads; what later ones read this run makes."""
        return () if self.number else super().reads()

    # ------------------------------------------------------------------ beginning and end

    def _create(self, *probes: tuple[int, str, str]) -> Any:
        self._close(keep_scratch=True)
        super()._create(*probes)
        if not (self.last or self.has_ended()):
            self._hold_scratch()
            create_scratch(self._place(self.number), self.given[1][0], self.stored, durable=self.durable)
        return self

    def _check_room(self) -> None:
        check_room(self.room)

    def _forget_what_is_gone(self) -> None:
        self.journal.forget(self.gone)

    def _changed_places(self) -> Sequence[StoreLike | RemoteStore]:
        """The target, or scratch."""
        return [self.destination.store if self.last else self._place(self.number)]

    @property
    def read_from(self) -> Sequence[zarr.Array]:
        """The source, as long as the first pass reads it."""
        return () if self.number else super().read_from

    def _finish(self, *residuals: float | None) -> Any:
        """End the pass; gives the largest residual of its slabs."""
        most = largest([*self.before.values(), *(each for each in residuals if each is not None)])
        if self.last:
            most = self._end(most)
        else:
            self._check_read()
            self.syncer.wait()  # who goes on needs either what a pass has read or that it is done
            remove_scratch(self._place(self.number - 1))
        self.journal.release()
        self._close(keep_scratch=not self.last)
        return most

    def settle(self, *, resumable: bool = False) -> None:
        """Wait until tasks that had begun are done; scratch goes, too, unless what it holds can be of use."""
        self._wait()
        self._close(keep_scratch=resumable)
        self.journal.release()

    def _close(self, *, keep_scratch: bool = False) -> None:
        if self._hold:
            self._hold.close()
        self._hold = None
        self._let_go_of_memory()
        if not keep_scratch:
            remove_scratch(self.scratch)

    def _hold_scratch(self) -> None:
        """Say that scratch is in use, until this process has done with it."""
        with self._opening:
            if self._hold is None and isinstance(self.scratch, str):
                self._hold = hold(self.scratch)

    def _open_targets(self) -> list[ArrayFile]:
        """The target of this pass, open in this process."""
        with self._opening:
            if self._written is None and not self.last:
                self.journal.join()
                self._written = [self._scratch_array(self.number)]
            return super()._open_targets()

    def _scratch_array(self, number: int) -> ArrayFile:
        self._hold_scratch()
        return array_file.describe(array_file.open_array(self._place(number), mode="r+"), written=True)

    def _place(self, number: int) -> str | RemoteStore:
        return place_below(self.scratch, str(number))

    # ------------------------------------------------------------------ slabs

    def is_done(self, part: tuple[int, ...]) -> bool:
        """Whether a slab was written, before the run was resumed or a worker was lost."""
        return part in self.done or (self.processes is not None and super().is_done((self.number, *part)))

    def _results(self, slab: Slab, blocks: Blocks) -> Blocks:
        """Sweep a window; returned are the results, and the residual of the last sweep."""
        made: Blocks = self._called(slab, blocks)
        return made

    def _apply(self, slab: Slab, blocks: Blocks) -> Blocks:
        (fused, residual), _ = self.given
        ends = [
            list(zip(each.lower, each.upper, strict=True)) for each in (self.plan.window(slab), self.plan.core(slab))
        ]
        found: list[float] = []
        watch = None if residual is None else lambda before, after: found.append(float(residual(before, after)))
        shape, dtype = self.plan.core(slab).shape, blocks[0].dtype.newbyteorder("=")
        out = self._pool.lend(shape, dtype, elements=self.plan.window_elements)
        return [fused(blocks[0], *ends, out=out, watch=watch), np.array(largest(found))]

    def _write(self, number: int, rank: int, results: Blocks | None) -> float | None:
        """Write the chunks of a slab; gives its residual."""
        part = (self.number, number, rank)
        watched = self.given[0][1] is not None
        if results is None and not self.journal.is_there():
            return None
        if results is None:
            known = (each for each in self.journal.parts() if watched and len(each) == 4 and each[:3] == part)
            return next((as_residual(each[3]) for each in known), None)
        (file,), (made, residual) = self._open_targets(), results
        axes = self.plan.core(Slab(number, rank)).axes
        stored = {"": self._put(rank, file, axes, made, self.remains.kept.get("", {}))}
        if watched:
            self.record((*part, as_bits(float(residual))))
        self.record(part, stored)
        return float(residual)


class SweepBuilder(SlabBuilder):
    """Adds the tasks of one pass of an iteration."""

    def _end(self, created: Key, written: Sequence[Key]) -> Key:
        return self.add("finish", buffers=tuple(written), after=[created], rank=0)


def change(before: np.ndarray, after: np.ndarray) -> float:
    """The most that an element changes; one that stays NaN, or infinite, does not change.

    >>> change(np.array([1.0, np.nan, np.inf]), np.array([1.5, np.nan, np.inf])), change(np.uint8([3]), np.uint8([1]))
    (0.5, 2.0)
    """
    if not after.size:
        return 0.0
    exact = after.dtype if after.dtype.kind in "fc" else np.float64
    with np.errstate(invalid="ignore"):
        differences = np.abs(np.subtract(after, before, dtype=exact))
    most = differences.max()
    if np.isnan(most):
        same = (before == after) | (np.isnan(before) & np.isnan(after))
        most = differences.max(where=~same, initial=0)
    return float(most)


def largest(residuals: Iterable[float]) -> float:
    """The largest of them, NaN where one is.

    >>> largest([1.0, 3.0, 2.0]), largest([1.0, float("nan")]), largest([])
    (3.0, nan, -inf)
    """
    return float(np.max([-np.inf, *residuals]))


def scratch_key(index: tuple[int, ...]) -> str:
    """The key of a chunk of what passes hand on.

    >>> scratch_key((3, 0))
    'c/3/0'
    """
    return "/".join(("c", *map(str, index)))


def as_bits(residual: float) -> int:
    """A residual as the journal keeps it: a whole number.

    >>> as_residual(as_bits(-0.1))
    -0.1
    """
    return int(np.float64(residual).view(np.uint64))


def as_residual(bits: int) -> float:
    """Undo `as_bits`."""
    return float(np.uint64(bits).view(np.float64))
