"""Passes over the slabs of local array files: each rank reads and writes its own file, and borders pass in memory.

    create ─┬─► make ─┬─► ready ┬─► a rank's slabs, as in `slabs` ─► close ─┬─► finish
            ├─► make ─┤         ├─► …      ▲ give                  close ─┤
            ╰─► make ─╯         ╰─► …      ▼ give                  close ─╯

Thakur 1995, sections 5.4 (the local placement model) and 5.5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import zarr

from oocarrays.errors import DescriptorError, RunError
from oocarrays.graphs.run.journaled import check_folder
from oocarrays.graphs.run.looking import Part
from oocarrays.graphs.run.remains import Remains, remaining
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.slabs.graph import SlabBuilder
from oocarrays.graphs.slabs.resume import Options, SlabParts, StoppedPass, T
from oocarrays.graphs.slabs.tasks import SlabRun
from oocarrays.mapping.section import Section
from oocarrays.plan.slabs.geometry import Slab
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import finish_target
from oocarrays.storage.files.documents import is_finished
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.rank_files import LocalTarget, RankFiles
from oocarrays.storage.files.target import TargetSpec, written_file

NOT_LOOKED_AT = "what local array files on workers' own disks hold is not looked at: the journal is trusted"
"""Notice of a run that resumes work on workers' own disks."""


class LocalStopped(StoppedPass):
    """Interrupted pass over local array files; files on workers' own disks are neither checked nor cut anew."""

    __slots__ = ()

    def planned(self, plan: Callable[[Options], T], asked: Options) -> T:
        """Return a plan with the recorded cut; on shared disks, another one if that exceeds the memory budget."""
        return plan(asked.cut_as(**self.cut)) if self._is_on_own_disks else super().planned(plan, asked)

    @property
    def _is_on_own_disks(self) -> bool:
        return any(self.content["asked"]["folders"])

    def remains(self, plan: Any, targets: Sequence[TargetSpec]) -> Remains:
        """Return the recovered state for a run that resumes the pass; on own disks, all recorded parts."""
        if not self._is_on_own_disks:
            return super().remains(plan, targets)
        return remaining(
            self.content, self.trust, anew=False, id=self.id, done=frozenset(self.stored), notices=(NOT_LOOKED_AT,)
        )  # fmt: skip

    def _places(self, plan: SlabPlan, targets: Sequence[TargetSpec]) -> dict[str, StoreLike]:
        assert all(isinstance(target, LocalTarget) for target in targets), "a pass over local files writes local files"
        files = [target.files for target in targets if isinstance(target, LocalTarget)]
        return {file_name(n, rank): each.place(rank) for n, each in enumerate(files) for rank in range(each.ranks)}

    def _files(self, places: Mapping[str, StoreLike]) -> dict[str, ArrayFile]:
        """Return the existing files of the run, including closed ones."""
        made = {part[0] for part in self.stored if len(part) == 1}
        there = super()._files(places)
        closed = [name for name in places if name not in there and int(name.rpartition("/")[2]) in made]
        more = {name: written_file(places[name]) for name in closed if is_finished(places[name])}
        return there | more

    def _parts(self, plan: SlabPlan, targets: Sequence[TargetSpec]) -> SlabParts:
        return LocalParts(plan=plan, targets=targets)


class LocalParts(SlabParts):
    """Slabs of local array files as parts, beside one part for the file of each rank."""

    __slots__ = ()

    def parts(self) -> Iterator[Part]:
        """Yield the parts: the files of all ranks, and all slabs."""
        yield from ((rank,) for rank in range(self.plan.ranks))
        yield from super().parts()

    def sections(self, part: Part) -> dict[str, list[Section]]:
        """Return the elements of a slab in its rank's file of every target."""
        if len(part) == 1:
            return {}
        slab, found = Slab(*part), {}
        for n, target in enumerate(self.targets):
            assert isinstance(target, LocalTarget), "a pass over local files writes local files"
            places = RankFiles(target.files).places(slab.rank, self.plan.core(slab).axes)
            found[file_name(n, slab.rank)] = [Section.of(axis for axis in places if isinstance(axis, range))]
        return found


def file_name(number: int, rank: int) -> str:
    """Return the name of the place at which a rank writes a target, as in the journal."""
    return f"{number}/{rank}"


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
                raise RunError(f"{error} on this worker: files that are on no own disks must be shared") from error
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
