"""Runs that keep a journal: begun with care, and gone on with after a worker was lost, or the run itself.

probe ─► create ─► …        create begins the journal, then makes the draft of the target, which carries the mark; or
                            finds both, of this very run, and goes on with what is not recorded as done
finish                      says in the journal that the run ends, puts the target's documents, removes the journal

A worker may die when its last task is done and nobody has heard of it: all tasks are then done again, and find that
the run has ended. The client takes away what says so.
"""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import zarr

from oocarrays.errors import DiskFullError, JournalError, OocError, RunError, StoreFailure, UnsupportedError
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.run.looking import CHUNKS_READ, Trust, check_sources, fingerprints
from oocarrays.graphs.run.remains import NOTHING_LEFT, Remains
from oocarrays.graphs.run.telling import warn_person
from oocarrays.graphs.run.work import Work, was_ended
from oocarrays.plan.documents import Document
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.documents import is_finished, remove_partials, unfinished_run
from oocarrays.storage.files.places import StoreLike, free_bytes, local_folder, name_of
from oocarrays.storage.files.target import written_file
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.leftovers import remove_unfinished
from oocarrays.storage.journal.notes import Notes
from oocarrays.storage.journal.receipts import Receipt, Store
from oocarrays.storage.journal.sources import Source, can_keep, changed, drop_source, keep_source
from oocarrays.storage.journal.texts import BEGINNING, FOLDER, REQUEST
from oocarrays.storage.journal.versions import Versions
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.remote import RemoteStore, is_remote, tells_versions
from oocarrays.storage.stores.responses import ResponseCheck
from oocarrays.storage.stores.store_blobs import blobs_of

AFTER_A_CHANGE = "run the job again, or start over (again=True, --again)"
"""What to do when a source has changed under a job."""
CLAIM_SECONDS = 5
"""Seconds that a run waits for tasks of a dead run at the same target to end."""


class EndingRun(Work):
    """One run that says that it ends, and takes the mark off its target: once, however often its tasks are done."""

    @property
    def written_places(self) -> list[StoreLike]:
        return [self.destination.store]

    @property
    def ends(self) -> list[tuple[Journal, str]]:
        """Where it writes down that it ends, and as which run; threads die together."""
        return [] if self.processes is None else [(Journal(self.destination.store), self.id)]

    def has_ended(self) -> bool:
        """Whether this very run has finished its target, and its last task is to be done again."""
        if self.processes is None or not is_finished(self.destination.store):
            return False
        return self.journal.notes.ended(self.id) is not None or was_ended()

    def _end(self, gives: Any) -> Any:
        """End the run, once: the mark goes, and the journal but for the word that it has ended; returns ``gives``."""
        if self.has_ended():
            (gives,) = self.journal.notes.ended(self.id) or (gives,)
        else:
            self._check_read()
            self._check_written()
            self._keep_request()
            finish_targets = self._finishing()
            self.syncer.finish()
            if self.failure:  # while that took its time
                raise self.failure
            if self.ends:
                self.journal.notes.say_ended(self.id, gives)
            finish_targets()
        self.syncer.drop()
        self._remove_journal()
        return gives

    def _remove_journal(self) -> None:
        """Remove the journal but for the word that the run has ended; the target is right where that cannot be."""
        try:
            self.journal.remove(ended=self.id if self.ends else None)
        except (DiskFullError, StoreFailure) as error:
            left = f"{name_of(self.destination.store)} is finished, and {FOLDER} in it is left: {error}"
            warn_person(f"{left}; resume it, and that is removed", RuntimeWarning)

    def _check_read(self) -> None:
        """Refuse to end where what was read has changed meanwhile."""

    def _check_written(self) -> None:
        """Refuse to end where a store does not have what it acknowledged."""

    def _keep_request(self) -> None:
        """Keep the request beside the target, for a second call that asks for the same."""

    def _finishing(self) -> Callable[[], None]:
        """Write what can be written before all is synced; what is returned takes the marks away."""
        return self._finish_targets

    def _finish_targets(self) -> None:
        """Take the marks away."""
        raise NotImplementedError


class KeptRun(EndingRun):
    """One run that keeps a journal: of what it reads, and of what it has done."""

    content: Document
    """What the journal keeps of it."""
    versions: Sequence[tuple[ArrayFile, Versions]] = ()
    """What it reads of object stores, as it was listed when this graph began."""
    remains: Remains = NOTHING_LEFT
    """What the run has left with which it goes on."""
    resumes = False
    """Whether it goes on with what another process has left."""
    made = False
    """Whether its target was made by this graph: nothing can be there that an earlier one has written."""

    def _here(self) -> None:
        super()._here()
        self._responses: list[ResponseCheck | None] = []

    @contextmanager
    def _during(self, verb: str, args: tuple[int, ...]) -> Iterator[None]:
        with super()._during(verb, args):
            if self.versions and not self._responses:
                self._responses = [versions.responses(file) for file, versions in self.versions]
            yield
            for (file, versions), responses in zip(self.versions, self._responses, strict=False):
                versions.check_responses(file, responses, then=AFTER_A_CHANGE)

    def _list_sources(self) -> None:
        """List what is read of object stores: responses of chunks are compared with that."""
        seen: list[tuple[ArrayFile, Versions]] = []
        for array in () if self.remains.trust.as_is else self.read_from:
            with suppress(UnsupportedError):  # what has no fixed size is compared at the end
                file = array_file.describe(array)
                versions = Versions.of(file) if tells_versions(array.store_path.store) else None
                seen += [] if versions is None else [(file, versions)]
        self.versions, self._responses = seen, []

    @property
    def notices(self) -> tuple[str, ...]:
        """Return notices about what was left by an earlier run."""
        return self.remains.notices

    @property
    def read_from(self) -> Sequence[zarr.Array]:
        """The arrays that are not to change while the run lasts."""
        return ()

    def read_now(self) -> Any:
        """How that is which is read."""
        return fingerprints(self.read_from)

    def _content_now(self) -> Document:
        """Return the journal's content, with the state of the sources when the run began."""
        read = {CHUNKS_READ: self.read_now()} if CHUNKS_READ not in self.content else {}
        return self.content | read | {BEGINNING: self.remains.beginning}

    def _begin(self, make: Callable[[], None], *, instead: bool = False) -> None:
        """Begin the journal, ``instead`` of one that is there, then make the targets; or leave neither."""
        instead |= self.journal.is_locked or bool(getattr(self.destination, "overwrite", False))
        try:
            self.journal.begin(self.id, self._content_now(), instead=instead)
            make()
        except BaseException:
            with suppress(OocError):
                if unfinished_run(self.destination.store) is None:
                    self.journal.withdraw(self.id)
            raise

    def _is_another_plan(self) -> bool:
        """Whether the journal is to be written anew: a person has started over, or planned the rest otherwise."""
        now = self.journal.read()[1].get(BEGINNING, "")
        if now not in (self.remains.beginning, self.remains.found):
            raise RunError(f"{self.destination.store} is no longer what run {self.id} left: resume it again")
        return bool(now != self.remains.beginning)

    def _restart(self) -> None:
        """Have nothing done but what is kept; all else is written again, or removed where it is the fill value now."""
        self.journal.replace(self.id, self._content_now(), self.remains.kept)

    def look_back(self) -> None:
        """Start over if the source has changed since the job failed, or cannot be checked."""
        content = self._begun_with()
        if content is None or content.get(BEGINNING, "") != self.remains.beginning:
            return
        self.look()
        refused = self._refused(content)
        if refused and self.resumes:
            raise refused
        if refused or not (self.resumes or self._is_seen(content)):
            self._start_over()

    def _start_over(self) -> None:
        """Have the next graph begin again."""
        self.remains = self.remains.begun_again()

    def _check_read(self) -> None:
        """Refuse to finish with a source that has changed while it was read."""
        listed = {id(file.zarr.store_path) for file, _ in self.versions}
        again = [array for array in self.read_from if id(array.store_path) not in listed]
        content = self._begun_with() if again else None
        refused = self._refused(content) if content else None
        if refused:
            raise RunError(str(refused))

    def _check_written(self) -> None:
        """Compare receipts with a listing of each target in a store."""
        if not is_remote(self.destination.store):
            return
        wanted: dict[str, tuple[StoreLike, dict[str, list[Receipt]]]] = {}
        unsaid = [prepare.args for prepare in self.syncer.unsaid() if isinstance(prepare, partial)]
        for part, stored in (*unsaid, *self.journal.stored().items()):
            for name, receipts in (stored or {}).items():
                place = self._place_of(part, name)
                if place is None:
                    continue
                for key, receipt in receipts.items():
                    wanted.setdefault(name, (place, {}))[1].setdefault(key, []).append(receipt)
        for place, receipts in wanted.values():
            if odd := Store(place).unlike(receipts, verify=False):
                raise RunError(
                    f"{name_of(place)} acknowledged {len(odd)} chunk{'s' * (len(odd) > 1)} that it does not have now, "
                    f"{odd[0]} among them: resume it, and they are written again"
                )

    def _place_of(self, part: tuple[int, ...], name: str) -> StoreLike | None:
        """Return the target in which a part has written what is recorded under a name; None of other places."""
        return None if name else self.destination.store

    def _begun_with(self) -> Document | None:
        """Return the journal's content, where this run has begun and cares for what it read."""
        mine = unfinished_run(self.destination.store) == self.id
        return self.journal.read()[1] if mine and not self.remains.trust.as_is and self.journal.is_there() else None

    def _refused(self, content: Mapping[str, Any]) -> JournalError | None:
        """Why it does not go on with what it reads, if it does not."""
        return self._changed(self.read_from, content)

    def _changed(self, arrays: Sequence[zarr.Array], content: Mapping[str, Any]) -> JournalError | None:
        try:
            check_sources(arrays, content, self.destination.store, Trust(moved=self.remains.trust.moved))
        except JournalError as error:
            return error
        return None

    def _is_seen(self, content: Mapping[str, Any]) -> bool:
        """Whether somebody would see that what is read has changed."""
        return None not in (content.get(CHUNKS_READ) or [None] * len(self.read_from))

    @property
    def made_place(self) -> StoreLike | None:
        """The array beside which the request is kept; None where no process but a worker sees it."""
        place: StoreLike = self.destination.store
        return place

    def _keep_request(self) -> None:
        """As of every run; a target that is changed by another request keeps none."""
        if (place := self.made_place) is None or not can_keep(place) or not self.journal.is_there():
            return
        content = self.journal.read()[1]
        if REQUEST in content:
            Notes(place).keep_made(self.id, {name: content.get(name) for name in (REQUEST, CHUNKS_READ)})
        else:
            Notes(place).drop_made()

    def _keep_source(self, *, durable: bool = False) -> None:
        """Keep beside the target how that was which was read, unless it has changed meanwhile.

        What the target kept before stays then: it is made of that, and of something newer.
        """
        store = self.destination.store
        if not can_keep(store) or not self.journal.is_there():  # it was finished before, and is looked at again
            return
        if not setting("fingerprints"):
            drop_source(store)
            return
        begun = (self.journal.read()[1].get(CHUNKS_READ) or [None])[0]
        seen = Source.seen(self.read_from[0]) if begun and self.read_from else None
        if seen is not None and seen[0].place is not None and not changed(begun, seen[1]):
            keep_source(store, seen[0], durable=durable)


class JournaledRun(KeptRun):
    """One run whose parts are recorded when they are done."""

    @property
    def done(self) -> frozenset[tuple[int, ...]]:
        """The parts that had been done before it was resumed."""
        return self.remains.done

    # ------------------------------------------------------------------ beginning

    def _create(self, *probes: tuple[int, str, str]) -> Any:
        """Make the target, marked unfinished, unless this run has: before a worker was lost, or it was itself."""
        self.check_placement(probes)
        self._list_sources()
        mark = unfinished_run(self.destination.store)
        mine = mark == self.id
        if self.processes is None or not mine:
            self._begin_anew()
        self.made = False
        if mine:
            self._go_on()
            return self
        if self.has_ended():
            return self
        if self.resumes:
            raise RunError(f"{self.destination.store} is no longer what run {self.id} left")
        self._check_target()
        self._check_room()
        self.journal.claim()
        self._begin(self._make_targets, instead=mark is not None)
        self.made = True
        if self.processes is not None:
            self.syncer.finish()  # what this worker has made; the others sync what they make themselves
        return self

    def _begin_anew(self) -> None:
        with self._idle:
            self.failure, self.meter = None, Meter()
            self.journal = Journal(self.destination.store, durable=self.durable)
            self.syncer.begin_anew()

    def _go_on(self) -> None:
        """Go on with what this run has made."""
        alone = self.processes is None or self.resumes
        self.journal.claim(CLAIM_SECONDS) if alone else self.journal.join()
        if self._is_another_plan():
            self._restart()
        self._forget_what_is_gone()
        if alone:
            self._remove_partials()

    def _forget_what_is_gone(self) -> None:
        """Take back what is recorded and cannot be used any more."""
        self.journal.forget(self.remains.lost)

    def _restart(self) -> None:
        """As of every run; a chunk of which a part is written must be as it was stored, or not there."""
        for place in self._changed_places():
            self._remove_odd(place)
        super()._restart()

    def _changed_places(self) -> Sequence[StoreLike | RemoteStore]:
        """Where it writes chunks of which a part may be there."""
        return ()

    def _remove_odd(self, place: StoreLike | RemoteStore) -> None:
        """Remove chunks that are not as they were stored."""
        odd = self.remains.odd.get(str(place), ())
        if odd:
            blobs = blobs_of(array_file.open_array(place, mode="r+", unfinished=True))
            for key in odd:
                blobs.remove(key)

    def _remove_partials(self) -> None:
        remove_partials(self.destination.store)

    def _check_target(self) -> None:
        """Refuse a target that has appeared since the run was planned."""

    def _check_room(self) -> None:
        """Refuse to begin where the bytes that are known beforehand do not fit the devices."""

    def _remove_begun(self, places: Sequence[StoreLike], writes: Callable[[tuple[int, ...]], bool]) -> None:
        """Remove what this run has made, the first place last, where no part is recorded that writes something."""
        with suppress(OocError):
            if any(map(writes, self.journal.parts())):
                return
            for place in reversed(places):
                if unfinished_run(place) == self.id:
                    remove_unfinished(place)

    @abstractmethod
    def _make_targets(self) -> None:
        """Make them, marked unfinished."""

    def is_done(self, part: tuple[int, ...]) -> bool:
        """Whether a part was done, before the run was resumed or a worker was lost; when it has ended, all are."""
        if part in self.done or self.processes is None:
            return part in self.done
        return self.journal.has(part) if self.journal.is_there() else is_finished(self.destination.store)


class OneTarget(JournaledRun):
    """One run that writes one array, which each of its processes opens when it first writes to it."""

    def _here(self) -> None:
        super()._here()
        self._opening = threading.RLock()
        self._target: ArrayFile | None = None

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._target = None

    @property
    def target(self) -> ArrayFile:
        with self._opening:
            if self._target is None:
                self.journal.join()
                self._target = written_file(self.destination.store, mode="r+")
            return self._target


def check_folder(store: StoreLike) -> None:
    """Refuse a worker that does not see the folder in which a target is to be."""
    folder = local_folder(store)
    if folder and not os.path.isdir(os.path.dirname(folder)):
        raise RunError(f"the folder of {folder} is not there on this worker: sources and targets must be shared")


def check_room(wants: Mapping[str, int]) -> None:
    """Refuse to write more bytes to folders than their devices have left."""
    for place, wanted in wants.items():
        free = free_bytes(place)
        if sum(wants.values()) > free and wanted:
            raise DiskFullError(f"{place} needs {sum(wants.values())} bytes; its device has {free} left")
