"""Passes over the slabs of local array files: each rank reads and writes its own file, and borders pass in memory.

Thakur 1995, sections 5.4 (the local placement model) and 5.5.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import zarr

from oocarrays.errors import DescriptorError, JournalError, RunError
from oocarrays.graphs.run.journaled import check_folder
from oocarrays.graphs.slabs.iterate import SweepRun
from oocarrays.graphs.slabs.tasks import SlabRun
from oocarrays.storage.files.creating import finish_target, remove_scratch
from oocarrays.storage.files.local_files import RankFiles, ScratchFiles
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.target import LocalTarget


class LocalSlabRun(SlabRun):
    """One pass over local array files, shared by its tasks."""

    merges: ClassVar[bool] = False
    own_files: ClassVar[bool] = True
    targets: tuple[LocalTarget, ...]

    @property
    def read_from(self) -> Sequence[zarr.Array]:
        """Return the files of all ranks, except those on workers' own disks."""
        return [file.zarr for source in self.given[1] for file in source.shared]

    @property
    def made_place(self) -> StoreLike | None:
        """Return the file of the first rank; None on workers' own disks."""
        target = self.targets[0]
        return None if target.on_own_disks else target.place(0)

    @property
    def written_places(self) -> list[StoreLike]:
        """Return the groups, and the files of all ranks; only local ones are checked."""
        return [*super().written_places, *(place for target in self.targets for place in target.places)]

    def _check_visible(self) -> None:
        """Raise if this worker cannot open shared files; files on own disks are opened on their workers only."""
        for source in self.given[1]:
            try:
                if not source.files.descriptor.folders:
                    source.files.open(0)
            except DescriptorError as error:
                raise RunError(
                    f"{error} on this worker: files must be on a shared disk or on workers' own disks"
                ) from error
        for target in self.targets:
            check_folder(target.store)

    def _check_room(self) -> None:
        """Do nothing: each rank makes its own files."""

    def _make(self, rank: int) -> None:
        """Make the files of a rank, unless this run has made them, and perhaps closed them."""
        made = self.is_done((rank,))
        for target in () if made else self.targets:
            target.make(rank, self.id, durable=self.durable)
        if not made or (self.remains.anew and self.journal.is_there()):
            self.record((rank,))

    def take_back(self) -> None:
        """Remove empty targets, unless any is on a worker's own disk or may replace a group of other arrays."""
        if not any(target.on_own_disks or target.overwrite for target in self.targets):
            super().take_back()

    def _close(self, rank: int) -> None:
        """Remove the unfinished marks of a rank's files, which are complete."""
        self.syncer.wait()
        for target in self._open_targets():
            finish_target(target.file(rank), durable=self.durable)


class LocalSweepRun(SweepRun, LocalSlabRun):
    """One pass of an iteration over local array files, shared by its tasks."""

    targets: tuple[LocalTarget, ...]

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

    def _make_scratch(self) -> None:
        """Do nothing: each rank makes its own scratch."""

    def _make(self, rank: int) -> None:
        """Make the files of a rank unless this run has made them, and its scratch."""
        super()._make(rank)
        if self.has_ended():
            return
        if self.number or not self.last:
            self._hold_scratch(rank)
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
            remove_scratch(self.between.folders[rank])
        elif self.number:
            for field in range(len(self.targets)):
                remove_scratch(self.between.place(self.number - 1, field, rank))

    def _remove_read(self) -> None:
        """Do nothing: each rank removes its own scratch."""

    def _scratch_files(self, number: int) -> list[ScratchFiles]:
        """Return the scratch files that a pass writes."""
        return [
            ScratchFiles(
                store=target.store, descriptor=target.files.descriptor, name=f"scratch of {target.files.name}",
                places=self.between.places(number, field),
            )
            for field, target in enumerate(self.targets)
        ]  # fmt: skip

    def _scratch_arrays(self, number: int) -> list[Any]:
        return [RankFiles(files, written=True) for files in self._scratch_files(number)]
