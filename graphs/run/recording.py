"""Beginning and end of a run, with its journal if the program has targets.

    begin     the journal, then the drafts of the targets, which carry the run's mark; or both exist, made by this run,
              and the run continues with the parts that are not recorded as done
    end       the end of the run is recorded, the targets get their documents, and the journal is removed

A worker may die after its last task, before the client has the result. Then all tasks are run again, and find that the
run has ended. The client deletes the end-of-run marker.

A program with a note and no targets writes to an existing array, or to existing local array files:

    begin     a note beside the data: the request, and a checksum of each part to be written   ─► journal
    write     other processes may read meanwhile, so nothing is marked, and no part is recorded
    end       the note is removed; a killed run leaves it, and the same request can be repeated

A repeated run writes the same data again in full, because another process may have written since.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import zarr

from oocarrays.errors import DiskFullError, JournalError, OocError, RunError, StoreFailure, UnsupportedError
from oocarrays.graphs.cluster.placement import Probed, check_placement
from oocarrays.graphs.events import ask_scheduler, this_worker, warn_person
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import SUFFIX, Program
from oocarrays.graphs.settings import setting
from oocarrays.plan.documents import Document
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile, blobs_of
from oocarrays.storage.files.documents import is_finished, remove_partials, unfinished_run
from oocarrays.storage.files.group_file import refresh_consolidated
from oocarrays.storage.files.making_room import remove_stray
from oocarrays.storage.files.places import StoreLike, free_bytes, is_remote, local_folder, name_of
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.leftovers import remove_unfinished
from oocarrays.storage.journal.sources import (
    CHUNKS_READ,
    Source,
    Trust,
    can_keep,
    changed,
    check_sources,
    fingerprint,
    keep_source,
)
from oocarrays.storage.journal.texts import (
    BEGINNING,
    FIRST,
    FOLDER,
    MADE,
    NOTE,
    PARTS,
    REQUEST,
    SOURCE,
    Notes,
    Receipt,
    Store,
)
from oocarrays.storage.journal.versions import Versions
from oocarrays.storage.stores.remote import tells_versions

CLAIM_SECONDS = 5
"""Seconds that a run waits for the tasks of a dead run at the same target to end."""


def begin(live: Live[Any], probes: Sequence[Probed] = ()) -> None:
    """Begin the journal and make the targets, marked unfinished; or continue with those that this run has made."""
    live.look()
    for presence in live.program.presences:
        presence.check_planned()
    if probes:
        check_placement(probes)
    program, state = live.program, live.state
    mark = unfinished_run(live.store) if program.targets else None
    mine = mark == state.id
    if not (live.on_workers and mine):
        live.begin_anew()
    state.begun = True
    if not program.targets:
        list_versions(live)
        begin_note(live)
        return
    state.versions = [] if state.recovered.trust.as_is else _listed_versions(_each(program.read_from))
    live.responses, state.made = [], False
    if mine:
        _continue(live)
    elif has_ended(live):
        live.ended = True
        return
    else:
        _make(live, instead=mark is not None)
    program.begin(live)


def list_versions(live: Live[Any]) -> None:
    """List the versions of the sources' chunks, for a run without targets: `end` compares them."""
    seen = ((file, Versions.of(file)) for source in live.program.sources for file in source.shared)
    live.state.versions = [(file, versions) for file, versions in seen if versions is not None]


def begin_note(live: Live[Any], *parts: int | None) -> None:
    """Write the note of a run in place; raise if the parts differ from those that a killed run began with."""
    note, journal = live.program.note, live.journal
    before = note.get(PARTS) or parts
    other = next((rank for rank, (was, now) in enumerate(zip(before, parts, strict=True)) if was != now), None)
    if other is not None:
        raise JournalError(
            f"the part of rank {other} differs from what the run in {journal.store} began with; where it is "
            "computed of what that run has written to, it cannot be made again: as_is=True writes what is given"
        )
    if note:
        if local_folder(journal.store) and journal.notes.is_noted():
            remove_partials(journal.store, abandoned=True)
        journal.notes.keep(NOTE, live.state.id, {**note, PARTS: parts})


def end_note(live: Live[Any]) -> None:
    if live.program.note:
        live.journal.notes.take(live.state.id)


def _make(live: Live[Any], *, instead: bool) -> None:
    """Begin the journal, ``instead`` of an unfinished run's, and make the targets."""
    program, state = live.program, live.state
    if state.recovered.id is not None:
        raise RunError(f"{live.store} has changed since run {state.id} stopped")
    for target in live.unmade().values():
        target.check(*program.sources)
    check_room(program.room)
    live.journal.claim()
    replaces = instead or program.targets[0].overwrite
    begin_journal(live.journal, state.id, content_now(live), live.make_targets, instead=replaces)
    state.made = True
    if live.on_workers:
        live.syncer.finish()  # files made by this worker; the others sync their own


def _continue(live: Live[Any]) -> None:
    """Continue with the targets that this run has made."""
    recovered, journal, targets = live.state.recovered, live.journal, live.program.targets
    alone = not live.on_workers or recovered.id is not None
    journal.claim(CLAIM_SECONDS) if alone else journal.join()
    now = journal.read()[1].get(BEGINNING, "")
    if now not in (recovered.beginning, recovered.found):
        raise RunError(f"{journal.store} has changed since run {live.state.id} stopped: resume it again")
    if now != recovered.beginning:  # the user has started over, or planned the rest differently
        live.program.restart(live)
        for place in live.program.places:
            if keys := recovered.odd.get(str(place), ()):
                blobs = blobs_of(array_file.open_array(place, mode="r+", unfinished=True))
                for key in keys:
                    blobs.remove(key)
        journal.replace(live.state.id, content_now(live), recovered.kept)
    journal.forget(recovered.lost)
    for target in targets if alone else ():
        for place in target.places:
            remove_stray(place)
        target.resume(live.state.id, durable=live.state.durable)


def content_now(live: Live[Any]) -> Document:
    """Return the journal's content, with the state of the sources when the run began."""
    content = live.state.content
    read = {} if CHUNKS_READ in content else {CHUNKS_READ: read_now(live.program)}
    return content | read | {BEGINNING: live.state.recovered.beginning}


def read_now(program: Program) -> Any:
    """Return the current fingerprints of the sources, in order or by name."""
    arrays = program.fingerprinted
    found = [fingerprint(array) for array in _each(arrays)]
    return dict(zip(arrays, found, strict=True)) if isinstance(arrays, Mapping) else found


def _each(arrays: Sequence[zarr.Array] | Mapping[str, zarr.Array]) -> Collection[zarr.Array]:
    return arrays.values() if isinstance(arrays, Mapping) else arrays


def is_known(arrays: Sequence[zarr.Array] | Mapping[str, zarr.Array], content: Mapping[str, Any]) -> bool:
    """Return whether a journal has fingerprints of all sources, so that a change would be detected."""
    begun_with = content.get(CHUNKS_READ) or [None] * len(arrays)
    return all(map(begun_with.get, arrays)) if isinstance(begun_with, Mapping) else None not in begun_with


def _begun_with(live: Live[Any]) -> Document | None:
    """Return the journal's content if this run has begun and must check its sources; otherwise None."""
    mine = bool(live.program.targets) and unfinished_run(live.store) == live.state.id
    if not mine or live.state.recovered.trust.as_is or not live.journal.is_there():
        return None
    content = live.journal.read()[1]
    if isinstance(begun := content.get(CHUNKS_READ), list):  # a later pass reads the last sources alone
        content[CHUNKS_READ] = begun[len(begun) - len(live.program.fingerprinted) :]
    return content


def look_back(live: Live[Any]) -> None:
    """Start over, before a job is run again, if a source has changed since it failed, or cannot be checked."""
    content, recovered = _begun_with(live), live.state.recovered
    if content is None or content.get(BEGINNING, "") != recovered.beginning:
        return
    live.look()
    refused = changed_since(live.program.fingerprinted, content, live.store, recovered.trust)
    resumes = recovered.id is not None
    if refused and resumes:
        raise refused
    if refused or not (resumes or is_known(live.program.fingerprinted, content)):
        live.state.recovered = recovered.begun_again()


def end(live: Live[Any], gives: Any = None, *, then: Callable[[], Any] | None = None) -> Any:
    """End the run once, even if its last task is repeated, and return ``gives``: remove the marks and the journal.

    ``then`` is called when the targets have no marks any more, and before the journal is removed.
    """
    live.look()
    if not live.program.targets:
        for file, versions in live.state.versions:
            versions.check(file)
        end_note(live)
        return gives
    journal, marker = live.journal, live.state.id if live.on_workers and not live.program.member else None
    if has_ended(live):
        (gives,) = journal.notes.ended(live.state.id) or (gives,)
    else:
        _finish(live, marker, gives)
        for target in live.program.targets:
            if target.overwrite and not live.program.member:  # a group may describe what was there before
                refresh_consolidated(target.store, durable=live.state.durable)
        if then:
            then()
    live.syncer.drop()
    remove_journal(journal, marker)
    return gives


def _finish(live: Live[Any], marker: str | None, gives: Any) -> None:
    """Check sources and targets, and publish the targets, the first one last: its mark shows that some carry one."""
    check_read(live)
    if not live.program.restarts:
        _check_written(live)
    _keep_request(live)
    each = list(enumerate(live.program.targets))
    publish = [target.finishing(live.target(number), durable=live.state.durable) for number, target in each]
    live.syncer.finish()
    if live.failure:  # raised during the sync
        raise live.failure
    if marker:
        live.journal.notes.say_ended(marker, gives)
    for target in live.program.targets[1:]:
        Notes(target.store).drop(FIRST)
    for one in reversed(publish):
        one()


def check_read(live: Live[Any]) -> None:
    """Raise if a source has changed during the run."""
    listed = {id(file.zarr.store_path) for file, _ in live.state.versions}
    again = [array for array in _each(live.program.read_from) if id(array.store_path) not in listed]
    content = _begun_with(live) if again else None
    if content is not None and (
        refused := changed_since(live.program.read_from, content, live.store, live.state.recovered.trust)
    ):
        raise RunError(str(refused))


def has_ended(live: Live[Any]) -> bool:
    """Return whether this run has already finished its targets, and its last task is being repeated.

    A group goes on with its other arrays.
    """
    if live.program.member:
        return is_finished(live.store)
    ended = live.on_workers and is_finished(live.store)
    return ended and (live.journal.notes.ended(live.id) is not None or was_ended())


def remove_journal(journal: Journal, ended: str | None) -> None:
    """Remove the journal of a finished target, except for the end-of-run marker, and release it; failures only warn."""
    try:
        journal.remove(ended=ended)
    except (DiskFullError, StoreFailure) as error:
        left = f"{name_of(journal.store)} is finished, and {FOLDER} in it is left: {error}"
        warn_person(f"{left}; resuming removes it", RuntimeWarning)
    journal.release()


def was_ended() -> bool:
    """Return whether the scheduler has recorded the end of this task's graph, while its result may be wanted again."""
    from oocarrays.graphs.cluster.pins import ended_name

    worker = this_worker()
    found = SUFFIX.search(str(worker.get_current_task())) if worker else None
    return found is not None and bool(ask_scheduler("get_metadata", keys=[ended_name(found[1])], default=False))


def take_back(live: Live[Any]) -> None:
    """Remove the targets of a failed kernel, as if the run had not begun, unless a part has written to them."""
    targets = live.program.targets if live.program.removable else ()
    with suppress(OocError):
        if targets and all(stored is None for stored in live.journal.stored().values()) and not live.journal.kept():
            for target in reversed(targets):  # the first one last
                if unfinished_run(target.store) == live.state.id:
                    remove_unfinished(target.store)


# ---------------------------------------------------------------------- journal and targets


def _listed_versions(arrays: Iterable[zarr.Array]) -> list[tuple[ArrayFile, Versions]]:
    """Return the arrays in stores whose responses carry versions, with the versions of their chunks."""
    seen: list[tuple[ArrayFile, Versions]] = []
    for array in arrays:
        store = array.store_path.store
        if is_remote(store) and tells_versions(store):
            with suppress(UnsupportedError):  # arrays of elements without a fixed size are compared at the end
                file = array_file.describe(array)
                versions = Versions.of(file)
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


def changed_since(
    arrays: Sequence[zarr.Array] | Mapping[str, zarr.Array], content: Mapping[str, Any], target: StoreLike, trust: Trust
) -> JournalError | None:
    """Return the error that forbids reading sources that have changed since a run began; None if they have not."""
    try:
        check_sources(arrays, content, target, Trust(moved=trust.moved))
    except JournalError as error:
        return error
    return None


def _check_written(live: Live[Any]) -> None:
    """Compare receipts with a listing of each target in a store."""
    if not is_remote(live.store):
        return
    wanted: dict[str, tuple[StoreLike, dict[str, list[Receipt]]]] = {}
    unsaid = [prepare.args for prepare in live.syncer.unsaid() if isinstance(prepare, partial)]
    for part, stored in (*unsaid, *live.journal.stored().items()):
        for name, receipts in (stored or {}).items():
            place = live.program.place_of(part, name)
            if place is None:
                continue
            for key, receipt in receipts.items():
                wanted.setdefault(name, (place, {}))[1].setdefault(key, []).append(receipt)
    for place, receipts in wanted.values():
        if odd := Store(place).unlike(receipts, verify=False):
            raise RunError(
                f"{name_of(place)} acknowledged {len(odd)} chunks that it does not have now, "
                f"{odd[0]} among them: resume it, and they are written again"
            )


def _keep_request(live: Live[Any]) -> None:
    """Keep a run's request beside its target; delete an earlier one if the run has none."""
    place, journaled = live.program.made_place, not live.program.restarts
    if place is None or not can_keep(place) or (journaled and not live.journal.is_there()):
        return
    content = live.journal.read()[1] if journaled else live.state.content
    if REQUEST in content:
        Notes(place).keep(MADE, live.state.id, {name: content.get(name) for name in (REQUEST, CHUNKS_READ)})
    else:
        Notes(place).drop(MADE)


def keep_source_of(journal: Journal, arrays: Sequence[zarr.Array], *, durable: bool = False) -> None:
    """Keep the fingerprint of an array's source beside it, unless a finished array is only checked."""
    if can_keep(journal.store) and journal.is_there():
        begun = (journal.read()[1].get(CHUNKS_READ) or [None])[0]
        keep_source_of_array(journal.store, arrays[0] if arrays else None, begun, durable=durable)


def keep_source_of_array(store: StoreLike, array: zarr.Array | None, begun: Any, *, durable: bool = False) -> None:
    """Keep the fingerprint of a source beside its target, unless the source has changed during the run.

    If it has changed, the earlier fingerprint stays: the target holds data of that state and of a newer one.
    """
    if not setting("fingerprints"):
        Notes(store).drop(SOURCE)
        return
    seen = Source.seen(array) if begun and array is not None else None
    if seen is not None and seen[0].place is not None and not changed(begun, seen[1]):
        keep_source(store, seen[0], durable=durable)


def check_folder(store: StoreLike) -> None:
    folder = local_folder(store)
    if folder and not os.path.isdir(os.path.dirname(folder)):
        raise RunError(
            f"the folder of {folder} does not exist on this worker: sources and targets must be on a shared disk"
        )


def check_room(wants: Mapping[str, int]) -> None:
    for place, wanted in wants.items():
        free = free_bytes(place)
        if sum(wants.values()) > free and wanted:
            raise DiskFullError(f"{place} needs {sum(wants.values())} bytes; its device has {free} left")
