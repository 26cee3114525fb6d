"""What the tasks of a group do: its beginning and end, and the copies of what is not rewritten.

Every array that is rewritten has a run of its own, of the same id, with a journal beside its target: all targets are
made at the beginning, so that whatever stops later leaves arrays of which each can be gone on with.
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oocarrays.graphs import journaled
from oocarrays.graphs.journaled import EndingRun
from oocarrays.graphs.looking import CHUNKS_READ, TRUSTED, Trust, fingerprints
from oocarrays.graphs.rechunk_tasks import ONE_PROCESS, Part, RechunkRun

from oocarrays.errors import DiskFullError, RunError, UnsupportedError
from oocarrays.plan.group import CopyPlan, GroupPlan
from oocarrays.storage import array_file, group_file
from oocarrays.storage.array_file import StoreLike
from oocarrays.storage.copies import copy_part
from oocarrays.storage.group_file import GroupFile, member_store
from oocarrays.storage.journal import Journal
from oocarrays.storage.meter import Meter
from oocarrays.storage.presence import Presence
from oocarrays.storage.receipts import Receipt, Receipts


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDestination:
    """Where a group is written."""

    store: StoreLike
    """Path or store of the target group."""
    overwrite: bool
    """Whether a group that is there may be replaced."""
    resumed: bool
    """Whether it is there, left by the run that is resumed."""


class MemberRun(RechunkRun):
    """The run of one array of a group, whose target is made when the group's is."""

    group: weakref.ref[GroupRun] | None = None
    """The group's run, in the process that planned it."""
    _finished = False

    @property
    def ends(self) -> list[tuple[Journal, str]]:
        """Nowhere: the group says for all that they have ended."""
        return []

    def prepare(self) -> None:
        """Make the target and begin the journal, where that was not done before."""
        if self.destination.settings is None or array_file.is_finished(self.destination.store):
            return
        if array_file.unfinished_run(self.destination.store) != self.id:
            array_file.create_target(
                self.destination.store, self.destination.settings, self.id, overwrite=False, durable=self.durable
            )
        if not self.journal.is_there():
            self.journal.begin(self.id, self._content_now())

    def _begin_anew(self) -> None:
        """The meter is that of the whole group."""
        meter = self.meter
        super()._begin_anew()
        self.meter = meter

    def _create(self, *probes: tuple[int, str, str]) -> RechunkRun:
        """Nothing is left to do for an array that was finished before a worker was lost, or the group's run failed."""
        self._finished = array_file.is_finished(self.destination.store)
        return self if self._finished else super()._create(*probes)

    def is_done(self, part: Part) -> bool:
        """Whether a part was done before."""
        return self._finished or super().is_done(part)

    def _finish(self) -> str:
        """What this array was read and written with is let go before the next one begins."""
        name = super()._finish()
        self._passes.clear()
        return name

    def _let_go(self) -> None:
        super()._let_go()
        group = self.group and self.group()
        if group and self.failure and not self._running:
            group.stop(self.failure)


class GroupRun(EndingRun):
    """One run of a group's plan, shared by the tasks that belong to no single array.

    Parameters
    ----------
    members : mapping
        The runs of the arrays that are rewritten, by their paths.
    content : dict
        What the journal keeps of it.
    id : str, optional
        The id of the run that is resumed, or that the members have.
    done : iterable of int
        The batches of copies that were done before.
    finished_bytes : int
        Bytes of the arrays that were rewritten before.
    lost : iterable of parts
        Batches of copies that are recorded, and are not as they were stored.
    trust : Trust
        How far what the run that is resumed has left is trusted.
    notices : sequence of str
        What a person is to know of that.
    """

    plan: GroupPlan
    destination: GroupDestination

    def __init__(
        self,
        plan: GroupPlan,
        source: GroupFile,
        destination: GroupDestination,
        members: Mapping[str, MemberRun],
        content: dict[str, Any],
        *,
        id: str,
        done: Iterable[int] = (),
        finished_bytes: int = 0,
        lost: Iterable[Part] = (),
        trust: Trust = TRUSTED,
        notices: Sequence[str] = (),
    ) -> None:
        self.plan = plan
        self.destination = destination
        self.members = dict(members)
        self.content = content
        self.done = frozenset(done)
        self.finished_bytes = finished_bytes
        self.lost, self.trust, self.notices = frozenset(lost), trust, tuple(notices)
        self._source: GroupFile | bytes = source
        super().__init__(destination.store, plan.processes, id)
        for member in self.members.values():
            member.group = weakref.ref(self)

    def __getstate__(self) -> dict[str, Any]:
        """Members travel by themselves."""
        if self.processes is None:
            raise UnsupportedError(ONE_PROCESS)
        names = ("destination", "content", "id", "processes", "done", "journal", "lost", "trust", "notices")
        source = self._source if isinstance(self._source, bytes) else pickle.dumps(self._source)
        copies = GroupPlan(members=(), copies=self.copies, budget=self.plan.budget, processes=self.processes)
        return {name: getattr(self, name) for name in names} | {"_source": source, "plan": copies, "members": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._here()

    @property
    def stores(self) -> dict[str, Any]:
        """Where it reads and writes."""
        return {"source": self.source.zarr.store_path.store, "target": self.destination.store}

    def reads(self) -> Iterable[Presence]:
        """The arrays that are copied as they are; those that are rewritten have runs of their own."""
        names = {piece.name for batch in self.copies.batches for piece in batch}
        return [self.source.presences[name] for name in sorted(names)]

    @property
    def source(self) -> GroupFile:
        """The source; on a cluster opened when it is used, for the scheduler may not see it."""
        if isinstance(self._source, bytes):
            source: GroupFile = pickle.loads(self._source)  # our own bytes
            self._source = source
        return self._source

    @property
    def copies(self) -> CopyPlan:
        """How arrays are copied as they are."""
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
        mine = array_file.unfinished_run(self.destination.store) == self.id
        if not mine:
            self._create_group(members)
        alone = self.processes is None or self.destination.resumed or not mine
        self.journal.claim(journaled.CLAIM_SECONDS) if alone else self.journal.join()
        if self.destination.resumed:
            self._tidy(members)
            self.journal.forget(self.lost)
        for member in members:
            member.prepare()
        if not self.journal.is_there():
            self.journal.begin(self.id, self._content_now())
        elif self.trust.again and self.journal.read()[1].get("again") != self.trust.again:
            self.journal.replace(self.id, self._content_now())
        return self

    def _content_now(self) -> dict[str, Any]:
        """What the journal keeps, with how the arrays are that are read."""
        arrays = self.source.arrays
        read = dict(zip(arrays, fingerprints(arrays.values()), strict=True))
        return self.content | {CHUNKS_READ: read, "again": self.trust.again}

    def _tidy(self, members: Sequence[MemberRun]) -> None:
        """Remove what a dead run left of arrays that it had finished: partial files, journals, scratch."""
        array_file.remove_partials(self.destination.store)
        for name in self.content["members"]:
            store = member_store(self.destination.store, name)
            if array_file.is_finished(store):
                Journal(store).remove()
        if members and not any(member.done for member in members):
            array_file.remove_scratch(members[0].scratch)  # they have one, in turn

    def _begin_anew(self, members: Sequence[MemberRun]) -> None:
        with self._idle:
            self.failure, self.meter = None, Meter()
        for member in members:
            member.meter, member.failure = self.meter, None

    def _create_group(self, members: Sequence[MemberRun]) -> None:
        destination = self.destination
        if destination.resumed:
            raise RunError(f"{destination.store} is no longer what run {self.id} left")
        group_file.check_group_target(self.source.zarr, destination.store, overwrite=destination.overwrite)
        self._check_room(members)
        if array_file.unfinished_run(destination.store) is not None:
            self.journal.claim()
            self.journal.release()
        group_file.create_group(
            destination.store, self.source, self.id, overwrite=destination.overwrite, durable=self.durable
        )

    def _check_room(self, members: Sequence[MemberRun]) -> None:
        """Refuse to begin where the bytes that are known beforehand do not fit the device."""
        folder = array_file.local_folder(self.destination.store)
        targets = [member.plan.target for member in members]
        wanted = sum(target.grid.count * target.chunk_bytes for target in targets if not target.coded)
        if folder and wanted > array_file.free_bytes(folder):
            free = array_file.free_bytes(folder)
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
                receipts = Receipts()
                copy_part(
                    array, store, piece.part, piece.parts, at_once=self.copies.at_once, meter=self.meter,
                    receipts=receipts,
                )  # fmt: skip
                stored.setdefault(piece.name, {}).update(receipts.kept)
        self.record((batch,), stored)

    def _is_done(self, batch: int) -> bool:
        """Whether a batch was copied, before the run was resumed or a worker was lost; when it has ended, all are."""
        if batch in self.done or self.processes is None:
            return batch in self.done
        if self.journal.is_there():
            return self.journal.has((batch,))
        return array_file.unfinished_run(self.destination.store) is None

    def _finish(self) -> str:
        self._end(None)
        self.journal.release()
        return array_file.name_of(self.destination.store)

    def _finish_targets(self) -> None:
        group_file.finish_group(self.destination.store, self.source.consolidated, durable=self.durable)

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
        return left / max(sum(sizes.values()) + self.finished_bytes, 1)

    @property
    def expected(self) -> tuple[float, float]:
        """Requests that read, and chunks that are written, in what is left of all arrays."""
        each = [member.expected for member in self.members.values()]
        return sum(reads for reads, _ in each), sum(writes for _, writes in each)
