"""The tasks of a group: its beginning and end, and the copies of what is not rewritten.

Every array that is rewritten has a run of its own, of the same id, with a journal beside its target: all targets are
made at the beginning, so that whatever stops later leaves arrays of which each can be gone on with.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import zarr

from oocarrays.errors import DiskFullError, JournalError, OocError, RunError
from oocarrays.graphs.rechunk.destination import Part
from oocarrays.graphs.rechunk.tasks import RechunkRun
from oocarrays.graphs.run import journaled
from oocarrays.graphs.run.journaled import KeptRun
from oocarrays.graphs.run.looking import CHUNKS_READ, fingerprints
from oocarrays.graphs.run.remains import NOTHING_LEFT, Remains
from oocarrays.graphs.run.sealed import Sealed
from oocarrays.plan.documents import Document
from oocarrays.plan.rechunk.group import CopyPlan, GroupPlan
from oocarrays.storage.chunks.copies import begin_conversion, convert_part, copy_documents, copy_part
from oocarrays.storage.files import group_file
from oocarrays.storage.files.creating import create_target, remove_scratch
from oocarrays.storage.files.documents import is_finished, remove_partials, unfinished_run
from oocarrays.storage.files.group_file import GroupFile, member_store
from oocarrays.storage.files.places import StoreLike, free_bytes, local_folder, name_of
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.leftovers import remove_unfinished
from oocarrays.storage.journal.receipts import Receipt, Receipts
from oocarrays.storage.journal.texts import BEGINNING
from oocarrays.storage.meter import Meter


class MemberRun(RechunkRun):
    """The run of one array of a group, whose target is made when the group's is."""

    unsent: ClassVar[tuple[str, ...]] = ("group", "_finished")
    group: weakref.ref[GroupRun] | None = None
    """The group's run, in the process that planned it."""
    reopens = False
    """Whether the array is written again though it was finished: what it was read from may have changed since."""
    _finished = False

    @property
    def ends(self) -> list[tuple[Journal, str]]:
        """Nowhere: the group says for all that they have ended."""
        return []

    def prepare(self) -> None:
        """Make the target and begin the journal, where that was not done before."""
        if self.destination.resumed or is_finished(self.destination.store):
            return
        if not self.journal.is_there():
            self.journal.begin(self.id, self._content_now())
        if unfinished_run(self.destination.store) != self.id:
            create_target(
                self.destination.store, self.destination.settings, self.id, overwrite=False, durable=self.durable
            )

    def reopen(self) -> None:
        """Mark an array unfinished that is to be written again."""
        store = self.destination.store
        if self.reopens and not self.destination.resumed and is_finished(store):
            create_target(store, self.destination.settings, self.id, overwrite=True, durable=self.durable)

    def _begin_anew(self) -> None:
        """The meter is that of the whole group."""
        meter = self.meter
        super()._begin_anew()
        self.meter = meter

    def _create(self, *probes: tuple[int, str, str]) -> RechunkRun:
        """Nothing is left to do for an array that was finished before a worker was lost, or the group's run failed."""
        self._finished = is_finished(self.destination.store)
        return self if self._finished else super()._create(*probes)

    def is_done(self, part: Part) -> bool:
        return self._finished or super().is_done(part)

    def _finish(self) -> str:
        """Let go of what this array was read and written with, before the next one begins."""
        name = super()._finish()
        self._passes.clear()
        return name

    def _let_go(self) -> None:
        super()._let_go()
        group = self.group and self.group()
        if group and self.failure and not self._running:
            group.stop(self.failure)


class GroupRun(KeptRun):
    """One run of a group's plan, shared by the tasks that belong to no single array."""

    phases: ClassVar[Mapping[str, str]] = {**RechunkRun.phases, "copy": "copy"}
    threads_stay: ClassVar[bool] = True
    plan: GroupPlan
    destination: TargetSpec

    def __init__(
        self,
        plan: GroupPlan,
        source: GroupFile,
        destination: TargetSpec,
        members: Mapping[str, MemberRun],
        content: Document,
        *,
        id: str,
        remains: Remains = NOTHING_LEFT,
    ) -> None:
        self.plan = plan
        self.destination = destination
        self.members = dict(members)
        self.content = content
        self.remains = remains
        self._source = Sealed(source)
        super().__init__(destination.store, plan.processes, id)
        for member in self.members.values():
            member.group = weakref.ref(self)

    def __getstate__(self) -> dict[str, Any]:
        """Members travel by themselves."""
        copies = GroupPlan(members=(), copies=self.copies, budget=self.plan.budget, processes=self.processes)
        return super().__getstate__() | {"plan": copies, "members": {}}

    @property
    def resumes(self) -> bool:  # type: ignore[override]
        """Whether it goes on with what another process has left."""
        return self.destination.resumed

    @property
    def done(self) -> frozenset[int]:
        """The batches of copies that were done before it was resumed."""
        return frozenset(batch for (batch,) in self.remains.done)

    @property
    def stores(self) -> dict[str, Any]:
        return {"source": self.source.zarr.store_path.store, "target": self.destination.store}

    def reads(self) -> Iterable[Presence]:
        """The arrays that are copied as they are; those that are rewritten have runs of their own."""
        return [self.source.presences[name] for name in self.copied]

    @property
    def source(self) -> GroupFile:
        return self._source.value

    @property
    def made_place(self) -> StoreLike | None:
        """The first array, if one is rewritten: beside a group's metadata, Zarr would take the request for a member."""
        copied = (piece[0] for batch in self.content["batches"] for piece in batch)
        first = min(self.content["members"], default=min(copied, default=None))
        return None if first is None else member_store(self.destination.store, first)

    @property
    def copies(self) -> CopyPlan:
        return self.plan.copies

    # ------------------------------------------------------------------ what the tasks do

    def _create(self, members: Sequence[MemberRun]) -> GroupRun:
        """Make the target with all its groups and the arrays that are to be rewritten."""
        if self.processes is None:
            self._begin_anew(members)
        if self.has_ended():
            return self
        for member in members:
            member.look()  # what is not there has no fingerprint
        for presence in self.reads():
            presence.look_for_missing(self.meter)
        for run in (self, *members):
            run._list_sources()
        mine = unfinished_run(self.destination.store) == self.id
        self.made = not mine
        if not mine:
            self._check_new(members)
        alone = self.processes is None or self.destination.resumed or not mine
        self.journal.claim(journaled.CLAIM_SECONDS) if alone else self.journal.join()
        if not mine:
            self._make_all(members)
            return self
        if self.destination.resumed:
            self._tidy(members)
            self.journal.forget(self.remains.lost)
        if self.journal.is_there() and self._is_another_plan():
            for member in members:
                member.reopen()
            self._restart()
        self._make_members(members)
        return self

    def _make_all(self, members: Sequence[MemberRun]) -> None:
        """Make the group and all arrays, or nothing: who resumes finds all of them."""
        try:
            self._begin(self._create_group)
            self._make_members(members)
        except BaseException:
            with suppress(OocError):
                if unfinished_run(self.destination.store) == self.id:
                    remove_unfinished(self.destination.store)
            raise

    def _make_members(self, members: Sequence[MemberRun]) -> None:
        """Make the arrays that are not there."""
        for member in members:
            member.prepare()
        for name in self._converted:
            store = member_store(self.destination.store, name)
            begin_conversion(self.source.arrays[name], store, self.source.zarr_format, durable=self.durable)

    # ------------------------------------------------------------------ what is read

    def read_now(self) -> Document:
        """How the arrays are that are read, by their paths."""
        return dict(zip(self.source.arrays, fingerprints(self.source.arrays.values()), strict=True))

    @property
    def _converted(self) -> list[str]:
        """The arrays that are copied into another Zarr format, whose drafts are made at the beginning."""
        return self.copied if self.source.changes_format else []

    @property
    def copied(self) -> list[str]:
        """The arrays that are copied as they are: those that are rewritten have runs of their own."""
        return sorted({piece.name for batch in self.copies.batches for piece in batch})

    @property
    def read_from(self) -> Sequence[zarr.Array]:
        """The arrays that are copied as they are."""
        return [self.source.arrays[name] for name in self.copied]

    def _refused(self, content: Mapping[str, Any], names: Sequence[str] | None = None) -> JournalError | None:
        """Why it does not go on with some arrays, by default those that it copies, if it does not."""
        kept = content.get(CHUNKS_READ) or {}
        names = [name for name in (self.copied if names is None else names) if name in kept]
        before = {CHUNKS_READ: [kept[name] for name in names]}
        return self._changed([self.source.arrays[name] for name in names], before)

    def look_back(self) -> None:
        """Start over with the arrays that have changed since the job failed, or may have, and with all copies."""
        content = self._begun_with()
        if content is None or content.get(BEGINNING, "") != self.remains.beginning:
            return
        self.look()
        for member in self.members.values():
            member.look_back()
        kept = content.get(CHUNKS_READ) or {}
        refused = {name: self._refused(content, [name]) for name in self.source.arrays}
        for error in filter(None, refused.values() if self.resumes else ()):
            raise error
        stale = {name for name, error in refused.items() if error or not (self.resumes or kept.get(name))}
        for name, member in self.members.items():
            member.reopens = name in stale
        if stale:
            self._start_over()

    def _tidy(self, members: Sequence[MemberRun]) -> None:
        """Remove what a dead run left of arrays that it had finished: partial files, journals, scratch."""
        remove_partials(self.destination.store, set().union(*(member.marks for member in members)))
        for name in self.content["members"]:
            store = member_store(self.destination.store, name)
            if is_finished(store):
                Journal(store).remove()
        if members and not any(member.done for member in members):
            remove_scratch(members[0].scratch)  # they have one, in turn

    def _begin_anew(self, members: Sequence[MemberRun]) -> None:
        with self._idle:
            self.failure, self.meter = None, Meter()
        for member in members:
            member.meter, member.failure = self.meter, None

    def _check_new(self, members: Sequence[MemberRun]) -> None:
        """Refuse to begin where the target may not be made."""
        destination = self.destination
        if destination.resumed:
            raise RunError(f"{destination.store} is no longer what run {self.id} left")
        group_file.check_group_target(self.source.zarr, destination.store, overwrite=destination.overwrite)
        self._check_room(members)

    def _create_group(self) -> None:
        destination = self.destination
        group_file.create_group(
            destination.store, self.source, self.id, overwrite=destination.overwrite, durable=self.durable
        )

    def _check_room(self, members: Sequence[MemberRun]) -> None:
        """Refuse to begin where the bytes that are known beforehand do not fit the device."""
        folder = local_folder(self.destination.store)
        targets = [member.plan.target for member in members]
        wanted = sum(target.grid.count * target.chunk_bytes for target in targets if not target.coded)
        if folder and wanted > free_bytes(folder):
            free = free_bytes(folder)
            raise DiskFullError(f"{folder} needs {wanted} bytes; its device has {free} left")

    def _copy(self, batch: int, rank: int) -> None:
        """Copy some arrays, or a part of one, as they are."""
        if self._is_done(batch):
            return
        self.journal.join()
        stored: dict[str, dict[str, Receipt]] = {}
        with self.meter.phase("copy"):
            for piece in self.copies.batches[batch]:
                array, store = self.source.arrays[piece.name], member_store(self.destination.store, piece.name)
                receipts, part = Receipts(self.remains.kept.get(piece.name, {})), (piece.part, piece.parts)
                if self.source.changes_format:
                    convert_part(array, store, part, meter=self.meter, receipts=receipts)
                else:
                    copy_part(
                        array, store, part, at_once=self.copies.at_once, meter=self.meter, receipts=receipts,
                        fresh=self.made,
                    )  # fmt: skip
                stored.setdefault(piece.name, {}).update(receipts.kept)
        self.record((batch,), stored)

    def _place_of(self, part: tuple[int, ...], name: str) -> StoreLike | None:
        return member_store(self.destination.store, name)

    def _is_done(self, batch: int) -> bool:
        """Whether a batch was copied, before the run was resumed or a worker was lost; when it has ended, all are."""
        if batch in self.done or self.processes is None:
            return batch in self.done
        if self.journal.is_there():
            return self.journal.has((batch,))
        return unfinished_run(self.destination.store) is None

    def _finish(self) -> str:
        self._end(None)
        self.journal.release()
        return name_of(self.destination.store)

    def _finish_targets(self) -> None:
        """Put the documents of arrays that were copied, then those of groups."""
        for name in () if self.source.changes_format else self.copied:
            store = member_store(self.destination.store, name)
            copy_documents(self.source.arrays[name], store, meter=self.meter, durable=self.durable)
        group_file.finish_group(
            self.destination.store, self.source.consolidated_copy, nodes=[*self._converted, *self.source.groups],
            durable=self.durable,
        )  # fmt: skip

    # ------------------------------------------------------------------ how it goes

    def abort(self, error: BaseException) -> BaseException:
        """Stop: tasks that have not begun will not, of any array."""
        first = super().abort(error)
        for member in self.members.values():
            member.abort(first)
        return first

    def stop(self, failure: BaseException) -> None:
        """An array has failed: let the group be resumed, also where nobody settles it."""
        self.failure = self.failure or failure
        self._let_go()

    def settle(self, *, resumable: bool = False) -> None:
        """Wait until tasks that had begun are done, those of all arrays too."""
        self._wait()
        for member in self.members.values():
            member.settle(resumable=resumable)
        self.journal.release()

    @property
    def left(self) -> float:
        """The share of what is rewritten, in bytes, that is still to be written."""
        sizes = {name: member.plan.target.nbytes for name, member in self.members.items()}
        left = sum(member.left * sizes[name] for name, member in self.members.items())
        every: int = sum(self.content["members"].values())
        return left / max(every, 1)

    @property
    def expected(self) -> tuple[float, float]:
        """Requests that read, and chunks that are written, in what is left of all arrays."""
        each = [member.expected for member in self.members.values()]
        return sum(reads for reads, _ in each), sum(writes for _, writes in each)
