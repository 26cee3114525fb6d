"""Passes over the slabs of local array files: each rank reads and writes its own file, and borders travel in memory.

    create ─┬─► make ─┬─► ready ┬─► a rank's slabs, as in `slabs` ─► close ─┬─► finish
            ├─► make ─┤         ├─► …      ▲ give                  close ─┤
            ╰─► make ─╯         ╰─► …      ▼ give                  close ─╯

Thakur 1995, sections 5.4 (the local placement model) and 5.5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import zarr
from dask.task_spec import Task

from oocarrays.errors import DescriptorError, RunError
from oocarrays.graphs.run.journaled import check_folder
from oocarrays.graphs.run.remains import Remains, remaining
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.slabs.graph import SlabBuilder
from oocarrays.graphs.slabs.resume import Options, Stopped, T
from oocarrays.graphs.slabs.tasks import SlabRun
from oocarrays.mapping.grid import Stored
from oocarrays.storage.files import array_file, local_files
from oocarrays.storage.files.array_file import MARK, StoreLike
from oocarrays.storage.files.local_files import LocalFiles
from oocarrays.storage.files.rank_files import RankFiles
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.journal.journal import Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTarget(TargetSpec):
    """A group of local array files that a pass writes, and how they are made."""

    files: LocalFiles
    """Those that are to be."""

    def preview(self) -> Stored:
        """Describe the largest of them."""
        return array_file.preview(local_files.largest_settings(self.files.descriptor, self.settings), self.store)


class LocalStopped(Stopped):
    """A pass over local array files that stopped: what they hold is not looked at, and slabs stay as they were cut."""

    __slots__ = ()

    def planned(self, plan: Callable[[Options], T], asked: Options) -> T:
        """A plan with the cut that was made."""
        return plan(asked.cut_as(**self.cut))

    def remains(self, plan: Any, targets: Sequence[TargetSpec]) -> Remains:
        """What a run is given that goes on with it: all that is recorded."""
        told = "what local array files hold is not looked at: the journal is trusted"
        return remaining(
            self.content, self.trust, anew=False, id=self.id, done=frozenset(self.stored), notices=(told,)
        )  # fmt: skip


class LocalSlabRun(SlabRun):
    """One pass over local array files, shared by its tasks."""

    targets: tuple[LocalTarget, ...]

    @property
    def read_from(self) -> tuple[zarr.Array, ...]:
        """Nothing that every process sees: files may be on workers' own disks."""
        return ()

    @property
    def written_places(self) -> list[StoreLike]:
        """The groups, and the files of all ranks: those that are here are looked at."""
        files = [target.files for target in self.targets]
        return super().written_places + [each.place(rank) for each in files for rank in range(each.ranks)]

    @property
    def stores(self) -> dict[str, Any]:
        """Where it reads and writes."""
        read = {f"source {number}": source.files.store for number, source in enumerate(self.given[1])}
        return read | {f"target {number}": target.store for number, target in enumerate(self.targets)}

    def _check_visible(self) -> None:
        """Refuse a worker that does not see files that are to be shared; those on own disks are looked at there."""
        for source in self.given[1]:
            try:
                if not source.files.descriptor.folders:
                    source.files.open(0)
            except DescriptorError as error:
                raise RunError(f"{error} on this worker: files that are on no own disks must be shared") from error
        for target in self.targets:
            check_folder(target.store)

    def _check_target(self) -> None:
        for target in self._unmade():
            local_files.check_group_place(target.store, overwrite=target.overwrite)

    def _check_room(self) -> None:
        """Files are made by their ranks, each where it is."""

    def _make_target(self, target: TargetSpec) -> None:
        assert isinstance(target, LocalTarget), "a pass over local files writes local files"
        Journal(target.store).remove()  # of a run that was stopped: the group is not removed when it is replaced
        local_files.create_group(
            target.store,
            target.files.descriptor,
            target.settings,
            self.id,
            overwrite=target.overwrite,
            durable=self.durable,
        )

    def _make(self, rank: int) -> None:
        """Make the files of a rank, unless this run has: before a worker was lost, and maybe closed them since."""
        if self.is_done((rank,)):
            return
        for target in self.targets:
            place = target.files.place(rank)
            if array_file.unfinished_run(place) != self.id:
                own = local_files.rank_settings(target.files.descriptor, target.settings, rank)
                own["attributes"][MARK] = self.id
                local_files.create_file(place, own, target.overwrite, durable=self.durable)
        self.record((rank,))

    def take_back(self) -> None:
        """As of every pass; but workers' own disks are not here, and groups that are replaced may hold other arrays."""
        if not any(target.files.descriptor.folders or target.overwrite for target in self.targets):
            super().take_back()

    def _ready(self) -> None:
        """Say that all files are there."""

    def _open_target(self, target: TargetSpec) -> RankFiles:
        assert isinstance(target, LocalTarget), "a pass over local files writes local files"
        return RankFiles(target.files, written=True)

    def _close(self, rank: int) -> None:
        """Take the mark off the files of a rank: all of them are written."""
        self.syncer.wait()
        for target in self._open_targets():
            array_file.finish_target(target.file(rank), durable=self.durable)

    def _finishing_target(self, number: int) -> Callable[[], None]:
        def finish() -> None:
            local_files.finish_group(self.targets[number].store, durable=self.durable)

        return finish


def local_graph(run: SlabRun, addresses: Sequence[str] = ()) -> tuple[dict[Key, Task], Key]:
    """The graph of a pass, and the key of its last task: as `oocarrays.graphs.slabs.graph.build_graph`."""
    builder = LocalSlabBuilder(run, addresses)
    last = builder.build()
    return builder.graph, last


class LocalSlabBuilder(SlabBuilder):
    """Adds the tasks of one pass over local array files."""

    def create(self, addresses: Sequence[str], after: Iterable[Key] = ()) -> Key:
        """Add the tasks that begin a run: nothing is read before every file is there."""
        created = super().create(addresses, after)
        made = [self.add("make", rank, after=[created]) for rank in range(self.plan.ranks)]
        return self.add("ready", after=made, rank=0)

    def _end(self, created: Key, written: Sequence[Key]) -> Key:
        ranks = range(self.plan.ranks)
        closed = [self.add("close", r, after=[created, *(key for key in written if key[-1] == r)]) for r in ranks]
        return self.add("finish", after=closed, rank=0)
