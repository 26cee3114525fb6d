"""Runs that keep a journal, and can continue after the loss of a worker or of the run itself.

probe ─► create ─► …        create begins the journal, then makes the draft of the target, which carries the mark; or
                            it finds both, made by this run, and continues with the parts not recorded as done
finish                      records the end of the run in the journal, writes the target's documents, removes the
                            journal

A worker may die after its last task, before the client has the result. Then all tasks are run again, and find that the
run has ended. The client deletes the end-of-run marker.
"""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar

import zarr

from oocarrays.errors import DiskFullError, JournalError, OocError, RunError, UnsupportedError
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.run.recovery import CHUNKS_READ, NOTHING_LEFT, Recovered, Trust, check_sources
from oocarrays.graphs.run.tasks import Sealed
from oocarrays.graphs.run.work import EndingRun
from oocarrays.plan.documents import Document
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.documents import is_finished, remove_partials, unfinished_run
from oocarrays.storage.files.places import StoreLike, free_bytes, local_folder, name_of
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.leftovers import remove_dead_scratch, remove_unfinished
from oocarrays.storage.journal.notes import Notes
from oocarrays.storage.journal.receipts import Receipt, Store
from oocarrays.storage.journal.sources import Source, can_keep, changed, drop_source, fingerprints, keep_source
from oocarrays.storage.journal.texts import BEGINNING, REQUEST
from oocarrays.storage.journal.versions import Versions
from oocarrays.storage.local.syncing import Syncer
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.remote import RemoteStore, is_remote, tells_versions
from oocarrays.storage.stores.responses import ResponseCheck
from oocarrays.storage.stores.store_blobs import blobs_of

CLAIM_SECONDS = 5
"""Seconds that a run waits for the tasks of a dead run at the same target to end."""


class KeptRun(EndingRun):
    """Run that keeps a journal of its sources and of its finished parts."""

    content: Document
    """Content of the run's journal."""
    versions: Sequence[tuple[ArrayFile, Versions]] = ()
    """Files read from object stores, with their chunks as listed when this graph began."""
    remains: Recovered = NOTHING_LEFT
    """State recovered from an earlier attempt at this run."""
    made = False
    """Whether this graph made the target, so that no chunk in it comes from an earlier attempt."""

    def _here(self) -> None:
        super()._here()
        self._responses: list[ResponseCheck | None] = []

    @contextmanager
    def _during(self, verb: str, args: tuple[int, ...]) -> Iterator[None]:
        with super()._during(verb, args):
            if self.versions and not self._responses:
                self._responses = [versions.responses(file) for file, versions in self.versions]
            yield
            then = "run the job again, or start over (again=True, --again)"
            for (file, versions), responses in zip(self.versions, self._responses, strict=False):
                versions.check_responses(file, responses, then=then)

    def _list_sources(self) -> None:
        """List the chunks read from object stores, to compare later responses with that list."""
        self.versions = [] if self.remains.trust.as_is else listed_versions(self.read_from)
        self._responses = []

    @property
    def resumes(self) -> bool:
        """Whether the run continues from the state left by another process."""
        return self.remains.id is not None

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices about the state left by an earlier run."""
        return self.remains.notices

    @property
    def done(self) -> frozenset[tuple[int, ...]]:
        """Parts done before the run was resumed."""
        return self.remains.done

    @property
    def read_from(self) -> Sequence[zarr.Array]:
        """Arrays that must not change during the run."""
        return ()

    def read_now(self) -> Any:
        """Return the current state of the sources."""
        return fingerprints(self.read_from)

    def _content_now(self) -> Document:
        """Return the journal's content, with the state of the sources when the run began."""
        read = {CHUNKS_READ: self.read_now()} if CHUNKS_READ not in self.content else {}
        return self.content | read | {BEGINNING: self.remains.beginning}

    def _begin(self, make: Callable[[], None], *, instead: bool = False) -> None:
        """Begin the journal, ``instead`` of an existing one, then make the targets; on failure leave neither."""
        instead |= bool(getattr(self.destination, "overwrite", False))
        begin_journal(self.journal, self.id, self._content_now(), make, instead=instead)

    def _is_another_plan(self) -> bool:
        return is_another_plan(self.journal, self.id, self.remains)

    def _restart(self) -> None:
        """Rewrite the journal with kept chunks only; others are written again, or removed if now the fill value."""
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
        """Make the next graph begin again."""
        self.remains = self.remains.begun_again()

    def _check_read(self) -> None:
        """Raise if a source has changed during the run."""
        listed = {id(file.zarr.store_path) for file, _ in self.versions}
        again = [array for array in self.read_from if id(array.store_path) not in listed]
        content = self._begun_with() if again else None
        refused = self._refused(content) if content else None
        if refused:
            raise RunError(str(refused))

    def _check_written(self) -> None:
        """Compare receipts with a listing of each target in a store."""
        check_written(self.journal, self.syncer, self._place_of)

    def _place_of(self, part: tuple[int, ...], name: str) -> StoreLike | None:
        """Return the target that holds a part's receipts under a name; None for other locations."""
        return None if name else self.destination.store

    def _begun_with(self) -> Document | None:
        """Return the journal's content if this run has begun and must check its sources; otherwise None."""
        mine = unfinished_run(self.destination.store) == self.id
        return self.journal.read()[1] if mine and not self.remains.trust.as_is and self.journal.is_there() else None

    def _refused(self, content: Mapping[str, Any]) -> JournalError | None:
        """Return the error that forbids reading the sources; None if they are unchanged."""
        return self._changed(self.read_from, content)

    def _changed(
        self, arrays: Sequence[zarr.Array] | Mapping[str, zarr.Array], content: Mapping[str, Any]
    ) -> JournalError | None:
        return changed_since(arrays, content, self.destination.store, self.remains.trust)

    def _is_seen(self, content: Mapping[str, Any]) -> bool:
        """Return whether fingerprints exist for all sources, so that a change would be detected."""
        return None not in (content.get(CHUNKS_READ) or [None] * len(self.read_from))

    @property
    def made_place(self) -> StoreLike | None:
        """Array beside which the request is kept; None where no process but a worker sees it."""
        place: StoreLike = self.destination.store
        return place

    def _keep_request(self) -> None:
        """Keep the request beside the target; delete an earlier one if this run has no request of its own."""
        if (place := self.made_place) is not None:
            keep_request(place, self.journal, self.id)

    def _keep_source(self, *, durable: bool = False) -> None:
        keep_source_of(self.journal, self.read_from, durable=durable)

    def is_done(self, part: tuple[int, ...]) -> bool:
        """Return whether a part was done before a resume or the loss of a worker; after the run's end, all are."""
        if part in self.done or self.processes is None:
            return part in self.done
        return self.journal.has(part) if self.journal.is_there() else is_finished(self.destination.store)


class JournaledRun(KeptRun):
    """Run that makes targets, or continues with those that it has made."""

    shares_meter: ClassVar[bool] = False
    """Whether its meter counts for other runs, too, and is kept when the run begins again."""
    scratch: str | RemoteStore | None = None
    """Folder or store for temporary arrays; None for runs without any."""

    # ------------------------------------------------------------------ start of the run

    def _create(self, *probes: tuple[int, str, str]) -> Any:
        """Make the target, marked unfinished; or continue with the target if this run has made it already."""
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
            raise RunError(f"{self.destination.store} has changed since run {self.id} stopped")
        self._check_target()
        self._check_room()
        self.journal.claim()
        self._begin(self._make_targets, instead=mark is not None)
        self.made = True
        remove_dead_scratch(self.destination.store, self.scratch)
        if self.processes is not None:
            self.syncer.finish()  # files made by this worker; the others sync their own
        return self

    def _begin_anew(self) -> None:
        with self._idle:
            self.failure, self.meter = None, self.meter if self.shares_meter else Meter()
            self.journal = Journal(self.destination.store, durable=self.durable)
            self.syncer.begin_anew()

    def _go_on(self) -> None:
        """Continue with the target that this run has made."""
        alone = self.processes is None or self.resumes
        self.journal.claim(CLAIM_SECONDS) if alone else self.journal.join()
        if self._is_another_plan():
            self._restart()
        self._forget_what_is_gone()
        if alone:
            self._remove_partials()

    def _forget_what_is_gone(self) -> None:
        """Delete records of parts that are no longer usable."""
        self.journal.forget(self.remains.lost)

    def _restart(self) -> None:
        """Remove changed chunks, then rewrite the journal: a partly written chunk must be as stored, or absent."""
        for place in self._changed_places():
            self._remove_odd(place)
        super()._restart()

    def _changed_places(self) -> Sequence[StoreLike | RemoteStore]:
        """Return the locations that may hold partly written chunks."""
        return ()

    def _remove_odd(self, place: StoreLike | RemoteStore) -> None:
        """Remove chunks that are not as they were stored."""
        remove_chunks(place, self.remains.odd.get(str(place), ()))

    def _remove_partials(self) -> None:
        remove_partials(self.destination.store)

    def _check_visible(self) -> None:
        check_folder(self.destination.store)

    def _check_target(self) -> None:
        """Raise if a target has appeared since the run was planned."""

    def _check_room(self) -> None:
        """Raise if the sizes known beforehand exceed the free space of the devices."""

    def _remove_begun(self, places: Sequence[StoreLike], writes: Callable[[tuple[int, ...]], bool]) -> None:
        """Remove this run's targets, the first one last, unless a recorded part has written to them."""
        with suppress(OocError):
            if not any(map(writes, self.journal.parts())):
                remove_targets(places, self.id)

    @abstractmethod
    def _make_targets(self) -> None:
        """Make the targets, marked unfinished."""


class OneTarget(JournaledRun):
    """Run that reads one array and writes another, which each of its processes opens at its first write."""

    destination: TargetSpec
    _source: Sealed[ArrayFile] | None = None

    def _here(self) -> None:
        super()._here()
        self._opening = threading.RLock()
        self._target: ArrayFile | None = None

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._target = None

    @property
    def source(self) -> ArrayFile:
        assert self._source is not None, "what has no source yet opens it itself"
        return self._source.value

    @property
    def read_from(self) -> Sequence[zarr.Array]:
        return (self.source.zarr,)

    @property
    def stores(self) -> dict[str, Any]:
        return {"source": self.source.zarr.store_path.store, "target": self.destination.store}

    def reads(self) -> Iterable[Presence]:
        return (self.source.presence,)

    @property
    def target(self) -> ArrayFile:
        with self._opening:
            if self._target is None:
                self.journal.join()
                self._target = self.destination.open()
            return self._target

    def _check_target(self) -> None:
        self.destination.check(self.source)

    def _make_targets(self) -> None:
        self._target = self.destination.create(self.id, durable=self.durable)

    def _finishing(self) -> Callable[[], None]:
        return self.destination.finishing(self.target, durable=self.durable)


# ---------------------------------------------------------------------- steps, for this ladder and for `Run`


def listed_versions(arrays: Iterable[zarr.Array]) -> list[tuple[ArrayFile, Versions]]:
    """Return the arrays in stores whose responses carry versions, with the versions of their chunks."""
    seen: list[tuple[ArrayFile, Versions]] = []
    for array in arrays:
        with suppress(UnsupportedError):  # arrays of elements without a fixed size are compared at the end
            file = array_file.describe(array)
            versions = Versions.of(file) if tells_versions(array.store_path.store) else None
            seen += [] if versions is None else [(file, versions)]
    return seen


def begin_journal(
    journal: Journal, run: str, content: Document, make: Callable[[], None], *, instead: bool = False
) -> None:
    """Begin a journal, ``instead`` of an existing one, then make the targets; on failure leave neither."""
    try:
        journal.begin(run, content, instead=instead or journal.is_locked)
        make()
    except BaseException:
        with suppress(OocError):
            if unfinished_run(journal.store) is None:
                journal.withdraw(run)
        raise


def is_another_plan(journal: Journal, run: str, remains: Recovered) -> bool:
    """Return whether a journal must be rewritten: the user has started over, or planned the rest differently."""
    now = journal.read()[1].get(BEGINNING, "")
    if now not in (remains.beginning, remains.found):
        raise RunError(f"{journal.store} has changed since run {run} stopped: resume it again")
    return bool(now != remains.beginning)


def changed_since(
    arrays: Sequence[zarr.Array] | Mapping[str, zarr.Array], content: Mapping[str, Any], target: StoreLike, trust: Trust
) -> JournalError | None:
    """Return the error that forbids reading sources that have changed since a run began; None if they have not."""
    try:
        check_sources(arrays, content, target, Trust(moved=trust.moved))
    except JournalError as error:
        return error
    return None


def check_written(
    journal: Journal, syncer: Syncer, place_of: Callable[[tuple[int, ...], str], StoreLike | None]
) -> None:
    """Compare receipts with a listing of each target in a store."""
    if not is_remote(journal.store):
        return
    wanted: dict[str, tuple[StoreLike, dict[str, list[Receipt]]]] = {}
    unsaid = [prepare.args for prepare in syncer.unsaid() if isinstance(prepare, partial)]
    for part, stored in (*unsaid, *journal.stored().items()):
        for name, receipts in (stored or {}).items():
            place = place_of(part, name)
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


def keep_request(place: StoreLike, journal: Journal, run: str) -> None:
    """Keep a run's request beside its target; delete an earlier one if the run has none."""
    if not can_keep(place) or not journal.is_there():
        return
    content = journal.read()[1]
    if REQUEST in content:
        Notes(place).keep_made(run, {name: content.get(name) for name in (REQUEST, CHUNKS_READ)})
    else:
        Notes(place).drop_made()


def keep_source_of(journal: Journal, arrays: Sequence[zarr.Array], *, durable: bool = False) -> None:
    """Keep the fingerprint of the source beside the target, unless the source has changed during the run.

    If it has changed, the earlier fingerprint stays: the target holds data of that state and of a newer one.
    """
    store = journal.store
    if not can_keep(store) or not journal.is_there():  # the target was finished before, and is being checked
        return
    if not setting("fingerprints"):
        drop_source(store)
        return
    begun = (journal.read()[1].get(CHUNKS_READ) or [None])[0]
    seen = Source.seen(arrays[0]) if begun and arrays else None
    if seen is not None and seen[0].place is not None and not changed(begun, seen[1]):
        keep_source(store, seen[0], durable=durable)


def remove_chunks(place: StoreLike | RemoteStore, keys: Sequence[str]) -> None:
    """Remove chunks of an unfinished array."""
    if keys:
        blobs = blobs_of(array_file.open_array(place, mode="r+", unfinished=True))
        for key in keys:
            blobs.remove(key)


def remove_targets(places: Sequence[StoreLike], run: str) -> None:
    """Remove the unfinished targets of a run, the first one last."""
    for place in reversed(places):
        if unfinished_run(place) == run:
            remove_unfinished(place)


def check_folder(store: StoreLike) -> None:
    """Raise if this worker does not see the folder that is to contain the target."""
    folder = local_folder(store)
    if folder and not os.path.isdir(os.path.dirname(folder)):
        raise RunError(
            f"the folder of {folder} does not exist on this worker: sources and targets must be on a shared disk"
        )


def check_room(wants: Mapping[str, int]) -> None:
    """Raise if the bytes to be written to folders exceed the free space of their devices."""
    for place, wanted in wants.items():
        free = free_bytes(place)
        if sum(wants.values()) > free and wanted:
            raise DiskFullError(f"{place} needs {sum(wants.values())} bytes; its device has {free} left")
