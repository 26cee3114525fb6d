"""Passes over the slabs of local array files: each rank reads and writes its own file, and borders pass in memory.

    create ─┬─► make ─┬─► ready ┬─► a rank's slabs, as in `slabs` ─► close ─┬─► finish
            ├─► make ─┤         ├─► …      ▲ give                  close ─┤
            ╰─► make ─╯         ╰─► …      ▼ give                  close ─╯

Thakur 1995, sections 5.4 (the local placement model) and 5.5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import zarr

from oocarrays.errors import DescriptorError, RunError
from oocarrays.graphs.run.journaled import check_folder
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.slabs.graph import SlabBuilder
from oocarrays.graphs.slabs.tasks import SlabRun
from oocarrays.storage.files.creating import finish_target
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.target import LocalTarget, file_name


class LocalSlabRun(SlabRun):
    """One pass over local array files, shared by its tasks."""

    merges: ClassVar[bool] = False
    targets: tuple[LocalTarget, ...]

    @property
    def read_from(self) -> Sequence[zarr.Array]:
        """Return the files of all ranks, except those on workers' own disks."""
        return [file.zarr for source in self.given[1] for file in source.shared]

    @property
    def made_place(self) -> StoreLike | None:
        """Return the file of the first rank; None on workers' own disks."""
        files = self.targets[0].files
        return None if files.descriptor.folders else files.place(0)

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

    def _place_name(self, number: int, rank: int) -> str:
        return file_name(number, rank)

    def take_back(self) -> None:
        """Remove empty targets, unless any is on a worker's own disk or may replace a group of other arrays."""
        if not any(target.files.descriptor.folders or target.overwrite for target in self.targets):
            super().take_back()

    def _close(self, rank: int) -> None:
        """Remove the unfinished marks of a rank's files, which are complete."""
        self.syncer.wait()
        for target in self._open_targets():
            finish_target(target.file(rank), durable=self.durable)


class LocalSlabBuilder(SlabBuilder):
    """Builder of the tasks of one pass over local array files."""

    def create(self, addresses: Sequence[str], after: Iterable[Key] = ()) -> Key:
        """Add the tasks that begin a run: no read precedes the creation of every file."""
        created = super().create(addresses, after)
        made = [self.add("make", rank, after=[created]) for rank in range(self.plan.ranks)]
        return self.add("ready", after=made, rank=0)

    def _end(self, created: Key, written: Sequence[Key]) -> Key:
        ranks = range(self.plan.ranks)
        closed = [self.add("close", r, after=[created, *(key for key in written if key[-1] == r)]) for r in ranks]
        return self.add("finish", after=closed, rank=0)
