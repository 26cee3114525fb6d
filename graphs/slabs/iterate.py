"""Passes of fused sweeps, as tasks: each is a pass over slabs, and reads the output of the previous one.

    create ─► slabs ─► end pass 0 ─► create ─► slabs ─► end pass 1 ─► … ─► finish
                          ╰ the largest residual decides whether another pass is run

The input of a pass is removed when the pass is over: an interrupted run resumes in the pass that it was in. Arrays that
evolve together are read, swept and written together, slab by slab.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import zarr

from oocarrays.errors import JournalError
from oocarrays.graphs.run.journaled import check_room
from oocarrays.graphs.run.recovery import CHUNKS_READ
from oocarrays.graphs.run.tasks import Sealed
from oocarrays.graphs.slabs.course import Course, Progress, field_name
from oocarrays.graphs.slabs.gathering import as_bits, as_residual, largest, residual_of
from oocarrays.graphs.slabs.sweeps import Fused
from oocarrays.graphs.slabs.tasks import SlabFiles, SlabRun
from oocarrays.plan.slabs.geometry import Slab
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import create_scratch, remove_scratch
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.journal.leftovers import hold
from oocarrays.storage.journal.lock import Hold
from oocarrays.storage.sections.windows import Blocks
from oocarrays.storage.stores.remote import RemoteStore


class SweepRun(SlabRun):
    """One pass of an iteration, shared by its tasks."""

    merges: ClassVar[bool] = False
    iterates: ClassVar[bool] = True
    resumes = False
    scratch: str | RemoteStore

    def __init__(self, course: Course, progress: Progress, *, resumes: bool = False) -> None:
        step, self.last = course.step(progress.residuals)
        self.number, self.sweeps, self.between = len(progress.residuals), step.sweeps.count, course.scratch
        self.scratch = self.between.folders[0]
        self.stored = step.slabs.targets
        self.before, self.gone = dict(progress.done or {}), progress.gone
        self.room, self.beside = course.room(), len(course.beside)
        fused = Fused(kernel=course.kernel, sweeps=step.sweeps, threads=step.threads, fields=len(course.targets))
        super().__init__(
            step.slabs,
            (fused, course.residual),  # type: ignore[arg-type]
            SlabFiles(
                sources=course.beside if self.number else (*course.sources, *course.beside), targets=course.targets
            ),
            course.content,
            processes=course.processes,
            remains=replace(course.remains, id=course.id, done=progress.parts, kept=progress.kept),
        )
        self.resumes = resumes

    def _here(self) -> None:
        super()._here()
        self._holds: dict[int, Hold] = {}

    @property
    def given(self) -> tuple[Any, tuple[ArrayFile, ...]]:
        """Return the sweeps with their residual, and the sources, which later passes read from scratch."""
        sweeps, sources = super().given
        if len(sources) == self.beside:
            sources = (*self._scratch_arrays(self.number - 1), *sources)
            self._given = Sealed((sweeps, sources))
        return sweeps, sources

    @property
    def written_places(self) -> list[StoreLike]:
        """Return the targets, and scratch."""
        folders: list[Any] = list(self.between.folders)
        return [*super().written_places, *folders]

    def _presumed(self) -> Sequence[Any]:
        """Return the sources; in later passes only those that are not swept, as this run makes the others."""
        return self._beside() if self.number else self.given[1]

    def _beside(self) -> tuple[ArrayFile, ...]:
        """Return the arrays that no sweep changes."""
        _, sources = super().given
        return sources[len(sources) - self.beside :]

    # ------------------------------------------------------------------ beginning and end

    def _create(self, *probes: tuple[int, str, str]) -> Any:
        self._let_go_of_scratch(keep=True)
        super()._create(*probes)
        if not (self.last or self.has_ended()):
            self._make_scratch()
        return self

    def _make_scratch(self) -> None:
        self._hold_scratch()
        for place, like, stored in zip(self._places(self.number), self.given[1], self.stored, strict=False):
            create_scratch(place, like, stored, durable=self.durable)

    def _check_room(self) -> None:
        check_room(self.room)

    def _forget_what_is_gone(self) -> None:
        super()._forget_what_is_gone()
        self.journal.forget(self.gone)

    def _changed_places(self) -> Sequence[StoreLike | RemoteStore]:
        return super()._changed_places() if self.last else self._places(self.number)

    @property
    def read_from(self) -> Sequence[zarr.Array]:
        """Return the sources; swept ones only in the first pass, which reads them."""
        return [each.zarr for each in self._beside()] if self.number else super().read_from

    def read_now(self) -> Any:
        return [*[None] * len(self.targets), *super().read_now()] if self.number else super().read_now()

    def _refused(self, content: Mapping[str, Any]) -> JournalError | None:
        if self.number and content.get(CHUNKS_READ):
            content = {**content, CHUNKS_READ: content[CHUNKS_READ][len(self.targets) :]}
        return super()._refused(content)

    def _finish(self, *residuals: float | None) -> Any:
        """End the pass, and return the largest residual of its slabs."""
        most = largest([*self.before.values(), *(each for each in residuals if each is not None)])
        if self.last:
            most = self._end(most)
        else:
            self._check_read()
            self.syncer.wait()  # a resumed run needs either the input of this pass or its completed output
            self._remove_read()
        self.journal.release()
        self._let_go_of_scratch(keep=not self.last)
        return most

    def _remove_read(self) -> None:
        for place in self._places(self.number - 1) if self.number else ():
            remove_scratch(place)

    def settle(self, *, resumable: bool = False) -> None:
        """Wait for running tasks; remove scratch unless a resumed run can use it."""
        self._wait()
        self._let_go_of_scratch(keep=resumable)
        self.journal.release()

    def _let_go_of_scratch(self, *, keep: bool = False) -> None:
        with self._opening:
            holds, self._holds = self._holds, {}
        for held in holds.values():
            held.close()
        self._let_go_of_memory()
        if not keep:
            self.between.remove()

    def _hold_scratch(self, rank: int = 0) -> None:
        """Mark scratch, of a rank if each has its own, as in use by this process."""
        folder = self.between.folders[rank]
        with self._opening:
            if rank not in self._holds and isinstance(folder, str):
                self._holds[rank] = hold(folder, None if self.own_files else self.destination.store)

    def _open_targets(self) -> list[ArrayFile]:
        with self._opening:
            if self._written is None and not self.last:
                self.journal.join()
                self._written = self._scratch_arrays(self.number)
            return super()._open_targets()

    def _scratch_arrays(self, number: int) -> list[ArrayFile]:
        self._hold_scratch()
        opened = (array_file.open_array(place, mode="r+") for place in self._places(number))
        return [array_file.describe(array, written=True) for array in opened]

    def _places(self, number: int) -> list[str | RemoteStore]:
        """Return the locations of a pass's scratch, array by array."""
        return [place for field in range(len(self.targets)) for place in self.between.places(number, field)]

    # ------------------------------------------------------------------ slabs

    def is_done(self, part: tuple[int, ...]) -> bool:
        """Return whether a slab was written before the run was resumed or a worker was lost."""
        return part in self.done or (self.processes is not None and super().is_done((self.number, *part)))

    def _results(self, slab: Slab, blocks: Blocks) -> Blocks:
        """Sweep a window; return the results, and the residual of the last sweep."""
        made: Blocks = self._called(slab, blocks)
        return made

    def _apply(self, slab: Slab, blocks: Blocks) -> Blocks:
        (fused, residual), _ = self.given
        ends = [
            list(zip(each.lower, each.upper, strict=True)) for each in (self.plan.window(slab), self.plan.core(slab))
        ]
        found: list[float] = []
        watch = None if residual is None else lambda before, after: found.append(residual_of(residual, before, after))
        shape, dtypes = self.plan.core(slab).shape, [each.dtype.newbyteorder("=") for each in blocks[: fused.fields]]
        out = [self._pool.lend(shape, dtype, elements=self.plan.window_elements) for dtype in dtypes]
        return [*fused(blocks, *ends, out=out, watch=watch), np.array(largest(found))]

    def _place_name(self, number: int, rank: int) -> str:
        return field_name(super()._place_name(number, rank))

    def _place_of(self, part: tuple[int, ...], name: str) -> StoreLike | None:
        places = {field_name(str(number)): target.store for number, target in enumerate(self.targets)}
        return places.get(name) if part[0] == self.number else None

    def _write(self, number: int, rank: int, results: Blocks | None) -> float | None:
        """Write the chunks of a slab, and return its residual."""
        part = (self.number, number, rank)
        watched = self.given[0][1] is not None
        if results is None and not self.journal.is_there():
            return None
        if results is None:
            known = (each for each in self.journal.parts() if watched and len(each) == 4 and each[:3] == part)
            return next((as_residual(each[3]) for each in known), None)
        *made, residual = results
        stored = self._stored(Slab(number, rank), made)
        if watched:
            self.record((*part, as_bits(float(residual))))
        self.record(part, stored)
        return float(residual)


def looked_back(course: Course, kind: type[SweepRun] = SweepRun) -> Course:
    """Return a course before it is run again; start anew if the first pass reads a source that has changed."""
    if course.progress().residuals:
        return course
    run = kind(course, Progress(), resumes=course.resumes)
    run.look_back()
    same = run.remains.beginning == course.remains.beginning
    return course if same else replace(course, remains=run.remains, so_far=Progress())
