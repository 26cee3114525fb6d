"""Steps of runs that keep a journal: see `recording`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import zarr

from oocarrays.errors import DiskFullError, JournalError, OocError, RunError, UnsupportedError
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.run.recovery import CHUNKS_READ, Recovered, Trust, check_sources
from oocarrays.plan.documents import Document
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.places import StoreLike, free_bytes, local_folder, name_of
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.leftovers import remove_unfinished
from oocarrays.storage.journal.notes import Notes
from oocarrays.storage.journal.receipts import Receipt, Store
from oocarrays.storage.journal.sources import Source, can_keep, changed, drop_source, keep_source
from oocarrays.storage.journal.texts import BEGINNING, REQUEST
from oocarrays.storage.journal.versions import Versions
from oocarrays.storage.local.syncing import Syncer
from oocarrays.storage.stores.remote import RemoteStore, is_remote, tells_versions
from oocarrays.storage.stores.store_blobs import blobs_of

CLAIM_SECONDS = 5
"""Seconds that a run waits for the tasks of a dead run at the same target to end."""


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


def is_another_plan(journal: Journal, run: str, recovered: Recovered) -> bool:
    """Return whether a journal must be rewritten: the user has started over, or planned the rest differently."""
    now = journal.read()[1].get(BEGINNING, "")
    if now not in (recovered.beginning, recovered.found):
        raise RunError(f"{journal.store} has changed since run {run} stopped: resume it again")
    return bool(now != recovered.beginning)


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
