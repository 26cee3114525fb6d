"""Tasks of a group: its beginning and end, and the copies of arrays that are not rewritten.

Every rewritten array has a run of its own, with the same id, and a journal beside its target. All targets are made at
the beginning, so that each array can be resumed after any interruption.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import zarr

from oocarrays.errors import JournalError, OocError, RunError
from oocarrays.graphs.rechunk.run import Part
from oocarrays.graphs.rechunk.tasks import RechunkRun
from oocarrays.graphs.run import journaled
from oocarrays.graphs.run.journaled import KeptRun, check_room
from oocarrays.graphs.run.recovery import CHUNKS_READ, NOTHING_LEFT, Recovered
from oocarrays.graphs.run.tasks import Sealed
from oocarrays.plan.documents import Document
from oocarrays.plan.rechunk.group import CopyPlan, GroupPlan
from oocarrays.storage.chunks.copies import begin_conversion, convert_part, copy_documents, copy_part
from oocarrays.storage.files import group_file
from oocarrays.storage.files.creating import create_target, remove_scratch
from oocarrays.storage.files.documents import is_finished, remove_partials, unfinished_run
from oocarrays.storage.files.group_file import GroupFile, member_store
from oocarrays.storage.files.places import StoreLike, local_folder, name_of
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.leftovers import remove_dead_scratch, remove_unfinished
from oocarrays.storage.journal.receipts import Receipt, Receipts
from oocarrays.storage.journal.sources import fingerprints
from oocarrays.storage.journal.texts import BEGINNING
from oocarrays.storage.meter import Meter


class MemberRun(RechunkRun):
    """Run of one array of a group, with its meter; its target is made together with the group's."""

    shares_meter: ClassVar[bool] = True
    unsent: ClassVar[tuple[str, ...]] = ("group", "_finished")
    group: weakref.ref[GroupRun] | None = None
    """Run of the group, in the process that planned it."""
    reopens = False
    """Whether the array is written again although it was finished, because its source may have changed since."""
    _finished = False

    @property
    def ends(self) -> list[tuple[Journal, str]]:
        """Empty: the group's run records the end of all its arrays."""
        return []

    def prepare(self) -> None:
        """Make the target and begin the journal, unless that was done before."""
        if self.resumes or is_finished(self.destination.store):
            return
        if not self.journal.is_there():
            self.journal.begin(self.id, self._content_now())
        if unfinished_run(self.destination.store) != self.id:
            create_target(
                self.destination.store, self.destination.settings, self.id, overwrite=False, durable=self.durable
            )

    def reopen(self) -> None:
        """Mark a finished array as unfinished if it is to be written again."""
        store = self.destination.store
        if self.reopens and not self.resumes and is_finished(store):
            create_target(store, self.destination.settings, self.id, overwrite=True, durable=self.durable)

    def _create(self, *probes: tuple[int, str, str]) -> RechunkRun:
        """Create the target, unless the array was finished before a worker was lost or the group's run failed."""
        self._finished = is_finished(self.destination.store)
        return self if self._finished else super()._create(*probes)

    def is_done(self, part: Part) -> bool:
        return self._finished or super().is_done(part)

    def _finish(self) -> str:
        """Finish the array, and release its open files before the next array begins."""
        name = super()._finish()
        self._passes.clear()
        return name

    def _let_go(self) -> None:
        super()._let_go()
        group = self.group and self.group()
        if group and self.failure and not self._running:
            group.stop(self.failure)


class GroupRun(KeptRun):
    """Run of a group's plan, shared by the tasks that belong to no single array."""

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
        remains: Recovered = NOTHING_LEFT,
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
        """Return the state without the members, which travel by themselves."""
        copies = GroupPlan(members=(), copies=self.copies, budget=self.plan.budget, processes=self.processes)
        return super().__getstate__() | {"plan": copies, "members": {}}

    @property
    def stores(self) -> dict[str, Any]:
        return {"source": self.source.zarr.store_path.store, "target": self.destination.store}

    def reads(self) -> Iterable[Presence]:
        """Return the arrays that are copied unchanged; rewritten arrays have runs of their own."""
        return [self.source.presences[name] for name in self.copied]

    @property
    def source(self) -> GroupFile:
        return self._source.value

    @property
    def made_place(self) -> StoreLike | None:
        """First rewritten array, else the first copied one, beside which the request is kept.

        Beside a group's metadata, Zarr would take the request for a member.
        """
        copied = (piece[0] for batch in self.content["batches"] for piece in batch)
        first = min(self.content["members"], default=min(copied, default=None))
        return None if first is None else member_store(self.destination.store, first)

    @property
    def copies(self) -> CopyPlan:
        return self.plan.copies

    # ------------------------------------------------------------------ work of the tasks

    def _create(self, members: Sequence[MemberRun]) -> GroupRun:
        """Make the target with all its groups, and the arrays that are to be rewritten."""
        if self.processes is None:
            self._begin_anew(members)
        if self.has_ended():
            return self
        for member in members:
            member.look()  # a missing array has no fingerprint
        for presence in self.reads():
            presence.look_for_missing(self.meter)
        for run in (self, *members):
            run._list_sources()
        mine = unfinished_run(self.destination.store) == self.id
        self.made = not mine
        if not mine:
            self._check_new(members)
        alone = self.processes is None or self.resumes or not mine
        self.journal.claim(journaled.CLAIM_SECONDS) if alone else self.journal.join()
        if not mine:
            self._make_all(members)
            return self
        if self.resumes:
            self._tidy(members)
            self.journal.forget(self.remains.lost)
        if self.journal.is_there() and self._is_another_plan():
            for member in members:
                member.reopen()
            self._restart()
        self._make_members(members)
        return self

    def _make_all(self, members: Sequence[MemberRun]) -> None:
        """Make the group and all arrays, or nothing: a resumed run must find all of them."""
        try:
            make = partial(group_file.create_group, overwrite=self.destination.overwrite, durable=self.durable)
            self._begin(partial(make, self.destination.store, self.source, self.id))
            self._make_members(members)
            for member in members[:1]:
                remove_dead_scratch(self.destination.store, member.scratch)
        except BaseException:
            with suppress(OocError):
                if unfinished_run(self.destination.store) == self.id:
                    remove_unfinished(self.destination.store)
            raise

    def _make_members(self, members: Sequence[MemberRun]) -> None:
        """Make the missing arrays."""
        for member in members:
            member.prepare()
        for name in self._converted:
            store = member_store(self.destination.store, name)
            begin_conversion(self.source.arrays[name], store, self.source.zarr_format, durable=self.durable)

    # ------------------------------------------------------------------ sources

    def read_now(self) -> Document:
        """Return the fingerprints of all source arrays, by path."""
        return dict(zip(self.source.arrays, fingerprints(self.source.arrays.values()), strict=True))

    @property
    def _converted(self) -> list[str]:
        """Names of the arrays that are copied into another Zarr format; their drafts are made at the beginning."""
        return self.copied if self.source.changes_format else []

    @property
    def copied(self) -> list[str]:
        """Names of the arrays that are copied unchanged; rewritten arrays have runs of their own."""
        return sorted({piece.name for batch in self.copies.batches for piece in batch})

    @property
    def read_from(self) -> Sequence[zarr.Array]:
        """Arrays that are copied unchanged."""
        return [self.source.arrays[name] for name in self.copied]

    def _refused(self, content: Mapping[str, Any], names: Sequence[str] | None = None) -> JournalError | None:
        """Return the error that forbids reading some arrays, by default the copied ones; None if they are unchanged."""
        return self._changed(
            {name: self.source.arrays[name] for name in (self.copied if names is None else names)}, content
        )

    def look_back(self) -> None:
        """Start over with all copies, and with the arrays that have changed since the job failed, or may have."""
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
        """Remove a dead run's partial files, its journals of finished arrays, and scratch without finished parts."""
        remove_partials(self.destination.store, set().union(*(member.marks for member in members)))
        for name in self.content["members"]:
            store = member_store(self.destination.store, name)
            if is_finished(store):
                Journal(store).remove()
        if members and not any(member.done for member in members):
            remove_scratch(members[0].scratch)  # all arrays use the same scratch, in turn

    def _begin_anew(self, members: Sequence[MemberRun]) -> None:
        with self._idle:
            self.failure, self.meter = None, Meter()
        for member in members:
            member.meter, member.failure = self.meter, None

    def _check_new(self, members: Sequence[MemberRun]) -> None:
        """Raise if the target must not be made."""
        destination = self.destination
        if self.resumes:
            raise RunError(f"{destination.store} has changed since run {self.id} stopped")
        group_file.check_group_target(self.source.zarr, destination.store, overwrite=destination.overwrite)
        self._check_room(members)

    def _check_room(self, members: Sequence[MemberRun]) -> None:
        """Raise if the sizes known beforehand exceed the free space of the device."""
        folder = local_folder(self.destination.store)
        targets = [member.plan.target for member in members]
        wanted = sum(target.grid.count * target.chunk_bytes for target in targets if not target.coded)
        check_room({folder: wanted} if folder else {})

    def _copy(self, batch: int, rank: int) -> None:
        """Copy some arrays, or a part of one, unchanged."""
        if self.is_done((batch,)):
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

    def _finish(self) -> str:
        self._end(None)
        return name_of(self.destination.store)

    def _finish_targets(self) -> None:
        """Write the documents of the copied arrays, then those of the groups."""
        for name in () if self.source.changes_format else self.copied:
            store = member_store(self.destination.store, name)
            copy_documents(self.source.arrays[name], store, meter=self.meter, durable=self.durable)
        group_file.finish_group(
            self.destination.store, self.source.consolidated_copy, nodes=[*self._converted, *self.source.groups],
            durable=self.durable,
        )  # fmt: skip

    # ------------------------------------------------------------------ failure and progress

    def abort(self, error: BaseException) -> BaseException:
        """Stop: tasks that have not begun will not run, in any array."""
        first = super().abort(error)
        for member in self.members.values():
            member.abort(first)
        return first

    def settle(self, *, resumable: bool = False) -> None:
        """Wait until running tasks have ended, in all arrays too."""
        self._wait()
        for member in self.members.values():
            member.settle(resumable=resumable)
        self.journal.release()

    @property
    def left(self) -> float:
        """Share of the rewritten bytes that is still to be written."""
        sizes = {name: member.plan.target.nbytes for name, member in self.members.items()}
        left = sum(member.left * sizes[name] for name, member in self.members.items())
        every: int = sum(self.content["members"].values())
        return left / max(every, 1)

    @property
    def expected(self) -> tuple[float, float]:
        """Numbers of read requests and of chunk writes that remain in all arrays."""
        each = [member.expected for member in self.members.values()]
        return sum(reads for reads, _ in each), sum(writes for _, writes in each)
