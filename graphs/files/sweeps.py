"""Iterated sweeps over local array files: each rank reads and writes its own file and its own scratch in every pass.

    create ─┬─► make ─┬─► ready ┬─► a rank's slabs ─┬─► over ─┬─► close ─┬─► finish
            ├─► make ─┤         ├─► …  ▲ give       │         ├─► close ─┤
            ╰─► make ─╯         ╰─► …  ▼ give       ╯         ╰─► close ─╯
        target, scratch                                    scratch that was read is removed

A rank's scratch is beside its file, on the same disk. Only its worker makes it, looks for it and removes it. No scratch
is removed before all ranks have written: a repeated task receives from other ranks the data that they read. Thakur
1995, section 5.4: the local placement model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import zarr

from oocarrays.errors import JournalError
from oocarrays.graphs.cluster.placement import Disks
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.slabs.course import Course, Progress, place_of_pass
from oocarrays.graphs.slabs.iterate import SweepRun
from oocarrays.graphs.slabs.local import LocalSlabBuilder, LocalSlabRun
from oocarrays.graphs.slabs.resume import NOT_LOOKED_AT, StoppedPass
from oocarrays.graphs.slabs.tasks import SlabRun
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.section import Section
from oocarrays.plan.slabs.geometry import Slab
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.storage.files.creating import is_scratch, remove_scratch
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.local_files import LocalFiles, RankFiles, ScratchFiles
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.target import LocalTarget, file_name
from oocarrays.storage.journal.leftovers import hold
from oocarrays.storage.journal.lock import Hold
from oocarrays.storage.stores.remote import RemoteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class RankScratch:
    """Scratch of all ranks: for each rank, the files that a pass leaves for the next one."""

    folders: tuple[str | RemoteStore, ...]
    """Scratch folder of each rank, on its worker's own disk or shared."""
    fields: int
    """Number of swept arrays."""

    def place(self, number: int, field: int, rank: int) -> str | RemoteStore:
        """Return the scratch of a rank for an array in a pass."""
        ranks = len(self.folders)
        return place_of_pass(self.folders[rank], number, field * ranks + rank, self.fields * ranks)

    def places(self, number: int, field: int) -> tuple[str | RemoteStore, ...]:
        """Return the scratch of all ranks for an array in a pass."""
        return tuple(self.place(number, field, rank) for rank in range(len(self.folders)))

    def is_there(self, number: int, rank: int) -> bool:
        """Return whether all scratch of a rank in a pass exists, complete or not."""
        return all(is_scratch(self.place(number, field, rank)) for field in range(self.fields))

    def remove(self) -> None:
        """Remove all scratch that this process can reach."""
        for folder in {str(each): each for each in self.folders}.values():
            remove_scratch(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCourse(Course):
    """Course of an iteration over local array files."""

    handed: RankScratch
    """Scratch between passes."""
    disks: Disks
    """Locations at which each rank's scratch can be checked."""

    @property
    def files(self) -> list[LocalFiles]:
        assert all(isinstance(target, LocalTarget) for target in self.targets), "local files are written"
        return [target.files for target in self.targets if isinstance(target, LocalTarget)]

    @property
    def is_on_own_disks(self) -> bool:
        """Return whether the written files are on workers' own disks, unreachable for other processes."""
        return any(files.descriptor.folders for files in self.files)

    def gone_on_with(self, left: StoppedPass) -> Self:
        """Return the course of the resumed run; files on workers' own disks are not checked."""
        course = super(LocalCourse, self).gone_on_with(left)
        return replace(course, remains=course.remains.told(NOT_LOOKED_AT)) if self.is_on_own_disks else course

    def room(self) -> dict[str, int]:
        """Return the bytes of scratch by shared folder; targets and own disks are not counted."""
        shared = isinstance(self.scratch, str) and not self.is_on_own_disks
        return {str(self.scratch): self.plan.scratch_bytes} if shared else {}

    @property
    def _names(self) -> list[str]:
        return [file_name(field, rank) for field in range(len(self.targets)) for rank in range(self.plan.ranks)]

    def _place(self, number: int, name: str, *, last: bool) -> StoreLike | RemoteStore | None:
        """Return the location of a pass's output, as for every iteration; None on workers' own disks."""
        if self.is_on_own_disks or name not in self._names:
            return None
        field, rank = map(int, name.split("/"))
        place = self.files[field].place(rank) if last else self.handed.place(number, field, rank)
        there = unfinished_run(place) == self.id if last else is_scratch(place)  # type: ignore[arg-type]
        return place if there else None

    def _is_handed_on(self, number: int) -> bool:
        return all(self.disks.call(rank, self.handed.is_there, number, rank) for rank in range(self.plan.ranks))

    def _boxes(self, slabs: SlabPlan, slab: Slab) -> dict[str, Section]:
        return dict(target.share(n, slab.rank, slabs.core(slab)) for n, target in enumerate(self.targets))

    def _grid(self, slabs: SlabPlan, name: str) -> ChunkGrid:
        field, rank = map(int, name.split("/"))
        shape = self.files[field].descriptor.part(rank).shape
        chunks = zip(slabs.targets[field].grid.chunks, shape, strict=True)
        return ChunkGrid.of(shape, tuple(max(min(c, n), 1) for c, n in chunks))


class LocalSweepRun(SweepRun, LocalSlabRun):
    """One pass of an iteration over local array files, shared by its tasks."""

    targets: tuple[LocalTarget, ...]

    def __init__(self, course: LocalCourse, progress: Progress, *, resumes: bool = False) -> None:
        self.handed = course.handed
        super().__init__(course, progress, resumes=resumes)

    def _here(self) -> None:
        super()._here()
        self._holds: dict[int, Hold] = {}

    @property
    def _scratch_folders(self) -> list[Any]:
        return list(self.handed.folders)

    @property
    def read_from(self) -> Sequence[zarr.Array]:
        """Return the files of all ranks, except those on workers' own disks; none after the first pass."""
        return [] if self.number else super().read_from

    def read_now(self) -> Any:
        return [] if self.number else super().read_now()

    def _refused(self, content: Mapping[str, Any]) -> JournalError | None:
        return None if self.number else super()._refused(content)

    def is_done(self, part: tuple[int, ...]) -> bool:
        """Return whether a slab was written, or the files of a rank were made, which holds in all passes."""
        return SlabRun.is_done(self, part) if len(part) == 1 else super().is_done(part)

    # ------------------------------------------------------------------ beginning and end

    def _make_scratch(self) -> None:
        """Do nothing: each rank makes its own scratch."""

    def _make(self, rank: int) -> None:
        """Make the files of a rank unless this run has made them, and its scratch."""
        super()._make(rank)
        if self.has_ended():
            return
        if self.number or not self.last:
            self._hold_scratch_of(rank)
        each = zip(self.targets, self.stored, self._scratch_files(self.number), strict=True)
        for target, stored, files in () if self.last else each:
            files.make(rank, RankFiles(target.files, written=True).file(rank), stored, durable=self.durable)

    def _over(self) -> None:
        """Mark all slabs as written."""
        self.syncer.wait()

    def _close(self, rank: int) -> None:
        """Finish the files of a rank in the last pass, and remove the scratch that the pass has read."""
        with self._opening:
            held = self._holds.pop(rank, None)
        if held:
            held.close()
        if self.last:
            super()._close(rank)
            remove_scratch(self.handed.folders[rank])
        elif self.number:
            for field in range(self.handed.fields):
                remove_scratch(self.handed.place(self.number - 1, field, rank))

    def _remove_read(self) -> None:
        """Do nothing: each rank removes its own scratch."""

    def _let_go_of_scratch(self, *, keep: bool = False) -> None:
        with self._opening:
            holds, self._holds = self._holds, {}
        for held in holds.values():
            held.close()
        self._let_go_of_memory()
        if not keep:
            self.handed.remove()

    def _hold_scratch_of(self, rank: int) -> None:
        """Mark the scratch of a rank as in use by this process."""
        folder = self.handed.folders[rank]
        with self._opening:
            if rank not in self._holds and isinstance(folder, str):
                self._holds[rank] = hold(folder)

    def _places(self, number: int) -> list[Any]:
        return [place for files in self._scratch_files(number) for place in files.places]

    def _scratch_files(self, number: int) -> list[ScratchFiles]:
        """Return the scratch files that a pass writes."""
        return [
            ScratchFiles(
                store=target.store, descriptor=target.files.descriptor, name=f"scratch of {target.files.name}",
                places=self.handed.places(number, field),
            )
            for field, target in enumerate(self.targets)
        ]  # fmt: skip

    def _scratch_arrays(self, number: int) -> list[Any]:
        return [RankFiles(files, written=True) for files in self._scratch_files(number)]

    def _place_name(self, number: int, rank: int) -> str:
        return file_name(number, rank)


class LocalSweepBuilder(LocalSlabBuilder):
    """Builder of the tasks of one pass over local array files."""

    def _end(self, created: Key, written: Sequence[Key]) -> Key:
        over = self.add("over", after=[created, *written], rank=0)
        closed = [self.add("close", rank, after=[over]) for rank in range(self.plan.ranks)]
        return self.add("finish", buffers=tuple(written), after=closed, rank=0)
