"""Leftovers of dead runs on a disk, and which of them may be removed.

    data/  .oocarrays-0123456789ab/     scratch          of a run
           .oocarrays-calibrate-…/      calibration      its work folder
           a.zarr/  .oocarrays/         unfinished       the array or group, where it carries the mark
                    .oocarrays/         journal          where nothing carries the mark
                    .oocarrays.json     journal          a pending write to an existing array
                    c/0/3.….partial     partial          a chunk that was being written

Leftovers locked by a living process are listed as alive and never removed. Without a lock to query, those modified
in the last minute count as alive.

data/  .oocarrays-0123456789ab/  lock           held by the processes that use it
                                     0/  1/         a scratch array of each pass
                                     copy/ blocks/  of lazy arrays

A journal that names a scratch folder may be wrong, or written by another party. So a folder counts as scratch only if
both its name and its contents match, and symbolic links in it are not followed.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from zarr.core.sync import sync

from oocarrays.errors import InputError, JournalError, NotFoundError, OocError, TargetError
from oocarrays.limits import STAGES
from oocarrays.storage.files.creating import remove_scratch
from oocarrays.storage.files.documents import node_kind, unfinished_run
from oocarrays.storage.files.places import (
    StoreLike,
    local_folder,
    name_of,
    place_below,
    place_name,
    place_of,
    store_path,
)
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.lock import Busy, Hold, alone, is_locked
from oocarrays.storage.journal.texts import BEGINNING, FOLDER, ID, LOCK, NOTE, PLAN
from oocarrays.storage.local import fs
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.urls import check_path, scratch_place

NAME = re.compile(rf"\.oocarrays-{ID.pattern}")


def scratch_below(place: str | RemoteStore, id: str) -> str | RemoteStore:
    """Return the scratch location of a run, in a folder or below a prefix."""
    return place_below(place, f".oocarrays-{id}")


def is_scratch_folder(folder: str) -> bool:
    """Return whether a folder has the name of a run's scratch and contains only entries that runs create."""
    if not NAME.fullmatch(os.path.basename(folder)) or os.path.islink(folder):
        return False
    names = r"lock|[0-9]+|kept|copy|blocks(\.partial)?|\.nfs[0-9a-f]+"  # the last: deleted but open, on NFS
    with suppress(OSError), os.scandir(folder) as entries:
        return all(re.fullmatch(names, entry.name) and not entry.is_symlink() for entry in entries)
    return False


def trusted_scratch(named: str | RemoteStore, id: str, otherwise: str | RemoteStore) -> str | RemoteStore:
    """Return the scratch location of a resumed run: the one its journal names if it exists, else `otherwise`."""
    if isinstance(named, RemoteStore):
        same = isinstance(otherwise, RemoteStore) and otherwise.name == named.name
        return named if same or isinstance(otherwise, str) else otherwise
    folder = str(scratch_below(named, id))
    if not os.path.lexists(folder):
        return otherwise
    if not is_scratch_folder(folder):
        raise JournalError(f"the journal names {folder} as scratch, which holds files that no run has created")
    return named


def scratch_of(scratch: Any, target: StoreLike, source: Any = None, *, here: bool = True) -> str | RemoteStore:
    """Return the location of scratch: a folder, or a prefix of a store; by default beside the target.

    Not ``here``: its folder is on a worker's own disk.
    """
    if scratch is not None:
        where = scratch_place(scratch)
        check_scratch_place(where, target=place_name(target), source=place_of(source))
        if here and isinstance(where, str) and not os.path.lexists(parent := os.path.dirname(where)):
            raise InputError(f"scratch={where} cannot be created: folder {parent} does not exist; create it first")
        return where
    folder = local_folder(target)
    return os.path.dirname(folder) if folder else tempfile.gettempdir()


def check_scratch_place(scratch: str | RemoteStore, **arrays: str | None) -> None:
    """Raise if scratch lies in an array, where readers, copies and removals of the array would find it."""
    there = scratch.name if isinstance(scratch, RemoteStore) else os.path.realpath(scratch)
    for what, array in arrays.items():
        if array and f"{there}/".startswith(f"{array.rstrip('/')}/"):
            raise InputError(f"scratch={there} is inside the {what} {array}: choose a folder outside of it")


Kind = Literal["scratch", "calibration", "partial", "journal", "note", "unfinished"]
YOUNG_SECONDS = 60.0
"""Age in seconds below which unlocked leftovers count as alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A file or folder that a run created for itself and did not remove."""

    path: str
    """Its full path."""
    kind: Kind
    """``"scratch"``: a folder of scratch arrays. ``"calibration"``: the work folder of a calibration.
    ``"partial"``: an incomplete chunk file of an array. ``"journal"``: the finished parts of a run, in an array that is
    finished or was rewritten. ``"note"``: the note of a run that has partly written to an existing array.
    ``"unfinished"``: an array or group that lacks parts. Runs of the last two can be resumed only while these exist.
    """
    nbytes: int
    """Bytes of all files in it; an unfinished array includes its partial files, which are also listed separately."""
    alive: bool
    """Whether a living run uses it, or may use it."""

    def remove(self) -> None:
        """Remove it from the disk with its contents; do nothing if it no longer exists."""
        if self.alive:
            raise TargetError(f"{self.path} is not removed: a run is using it")
        try:
            with fs.translated("remove", self.path):
                fs.remove_file(self.path) if self.kind in ("partial", "note") else self._remove_folder()
        except Busy:
            raise TargetError(f"{self.path} is not removed: a run is using it") from None

    def _remove_folder(self) -> None:
        """Lock the folder, check that it is unchanged, and remove it."""
        with alone(_lock_of(self.path, self.kind)) as is_there:
            if not is_there and _is_young(_tree(self.path)[1]):
                raise Busy(self.path)
            self._check_unchanged()
            _remove_array(self.path) if self.kind == "unfinished" else fs.remove_tree(self.path)

    def _check_unchanged(self) -> None:
        array = self.path if self.kind == "unfinished" else os.path.dirname(self.path)
        marked = self.kind == "unfinished"
        changed = self.kind in ("journal", "unfinished") and (unfinished_run(array) is not None) != marked
        changed |= self.kind == "scratch" and not is_scratch_folder(self.path)
        if os.path.lexists(self.path) and (changed or os.path.islink(self.path)):
            raise TargetError(f"{self.path} is not removed: it has changed since it was listed")


def find_leftovers(path: str | os.PathLike[str]) -> list[Leftover]:
    """Return all leftovers in a folder and its subfolders, sorted by path.

    Symbolic links are not followed, and unreadable folders are skipped. Chunk contents are not read.
    """
    root = os.path.realpath(check_path(path, "the folder"))
    if not os.path.isdir(root):
        raise NotFoundError(f"no such folder: {path}")
    return sorted(_leftovers(root, None), key=lambda leftover: leftover.path)


def hold(folder: str, target: StoreLike | None = None) -> Hold:
    """Mark ``folder`` as used by this process until the result is closed or collected, or the process dies.

    Scratch of a target keeps the target's name in its lock file.
    """
    held = Hold(os.path.join(os.path.realpath(folder), LOCK))
    try:
        with fs.translated("write", folder):
            if held.share(make=True) and target is not None:
                with suppress(OSError):
                    Path(held.path).write_text(name_of(target))
    except Busy:
        raise TargetError(f"{folder} is being removed") from None
    return held


def remove_dead_scratch(target: StoreLike, scratch: str | RemoteStore | None) -> None:
    """Remove local scratch that dead runs at a target, or at arrays in it, have left beside its new run's."""
    if not isinstance(scratch, str):
        return
    name, own = name_of(target), os.path.basename(scratch)
    for entry in _entries(os.path.dirname(scratch)):
        if NAME.fullmatch(entry.name) and entry.name != own and is_scratch_folder(entry.path):
            lock = os.path.join(entry.path, LOCK)
            with suppress(OSError, ValueError, OocError):
                is_of_target = f"{Path(lock).read_text()}/".startswith(f"{name}/")
                if is_of_target and is_locked(lock) is False:
                    Leftover(path=entry.path, kind="scratch", nbytes=0, alive=False).remove()


def discard(scratch: str, held: Hold) -> None:
    """Remove the scratch of a run, unless another process uses it."""
    held.close()
    with suppress(Busy), alone(held.path):
        remove_scratch(scratch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Array:
    """The array or group that contains a folder."""

    group: bool
    """Whether it is a group."""
    unfinished: bool
    """Whether it carries the mark."""
    held: bool | None
    """Whether a living run holds it; None without a lock to query."""
    marks: frozenset[str] = frozenset()
    """Marks in the names of its unfinished chunks, which a resumed run continues."""


def _leftovers(folder: str, array: _Array | None) -> Iterator[Leftover]:
    entries = _entries(folder)
    found = _array_at(folder, {entry.name for entry in entries})
    if array is None or not array.unfinished:  # contents of an unfinished group are removed with it
        yield from _of_array(folder, found)
        array = array if found is None or (found.group and not found.unfinished) else found
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            yield from _note(entry) if entry.name == NOTE else _partial(entry, array)
        elif kind := _kind(entry.name):
            if kind != "scratch" or is_scratch_folder(entry.path):
                yield _folder(entry.path, kind)
        elif entry.name != FOLDER:
            yield from _leftovers(entry.path, array)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (*fs.ABSENT, PermissionError):
        return []


def _kind(name: str) -> Kind | None:
    if NAME.fullmatch(name):
        return "scratch"
    return "calibration" if re.fullmatch(r"\.oocarrays-calibrate-.+", name) else None


def _array_at(folder: str, names: set[str]) -> _Array | None:
    kind = None
    if names.intersection((fs.METADATA, FOLDER, fs.ARRAY_2, fs.GROUP_2)):
        with suppress(OSError):
            kind = node_kind(folder)
    if kind is None:
        return None
    held = is_locked(os.path.join(folder, FOLDER, LOCK))
    unfinished = unfinished_run(folder) is not None
    marks = _marks(folder) if unfinished else frozenset()
    return _Array(group=kind == "group", unfinished=unfinished, held=held, marks=marks)


def _marks(folder: str) -> frozenset[str]:
    """Return the marks in the names of chunks left unfinished by the run in an array's journal."""
    with suppress(OocError):
        run, content = Journal(folder).read()
        return frozenset(fs.mark_of_plan(run, content.get(BEGINNING, ""), number) for number in range(STAGES.stop))
    return frozenset()


def _of_array(folder: str, array: _Array | None) -> Iterator[Leftover]:
    journal = os.path.join(folder, FOLDER)
    if array is not None and array.unfinished:
        yield _folder(folder, "unfinished")
    elif not os.path.islink(journal) and os.path.exists(os.path.join(journal, "" if array else PLAN)):
        yield _folder(journal, "journal")


def _folder(path: str, kind: Kind) -> Leftover:
    nbytes, newest = _tree(path)
    held = is_locked(_lock_of(path, kind))
    return Leftover(path=path, kind=kind, nbytes=nbytes, alive=_is_young(newest) if held is None else held)


def _lock_of(path: str, kind: Kind) -> str:
    return os.path.join(path, FOLDER, LOCK) if kind == "unfinished" else os.path.join(path, LOCK)


def _partial(entry: os.DirEntry[str], array: _Array | None) -> Iterator[Leftover]:
    """Yield the partial file if its run is dead, or if it was not modified recently."""
    if array is None or not fs.PARTIAL.search(entry.name) or not entry.is_file(follow_symlinks=False):
        return
    if entry.name.split(".")[-2] in array.marks:  # they are removed with the array
        return
    with suppress(FileNotFoundError):
        status = entry.stat(follow_symlinks=False)
        dead = (array.unfinished and array.held is False) or fs.is_abandoned(entry.name)
        if dead or not _is_young(status.st_mtime):
            yield Leftover(path=entry.path, kind="partial", nbytes=status.st_size, alive=array.held is True)


def _note(entry: os.DirEntry[str]) -> Iterator[Leftover]:
    """Yield the note of a run, the only record that a dead run has written part of an array."""
    with suppress(FileNotFoundError):
        status = entry.stat(follow_symlinks=False)
        yield Leftover(path=entry.path, kind="note", nbytes=status.st_size, alive=_is_young(status.st_mtime))


def _tree(folder: str) -> tuple[int, float]:
    """Return the total size of a folder's files in bytes, and the time of its last modification."""
    nbytes, newest = 0, 0.0
    with suppress(FileNotFoundError):
        newest = os.lstat(folder).st_mtime
    for entry in _entries(folder):
        with suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            is_folder = entry.is_dir(follow_symlinks=False)
            below, latest = _tree(entry.path) if is_folder else (status.st_size, status.st_mtime)
            nbytes, newest = nbytes + below, max(newest, latest)
    return nbytes, newest


def _is_young(written: float) -> bool:
    return time.time() - written < YOUNG_SECONDS


def remove_unfinished(store: StoreLike) -> None:
    """Remove an array or a group that its own run has not finished."""
    folder = local_folder(store)
    with fs.translated("remove", store):
        if folder is not None:
            _remove_array(folder)
        else:
            place = store_path(store)
            sync(place.store.delete_dir(place.path))


def _remove_array(folder: str) -> None:
    """Remove an array, its mark last, so that an interrupted removal leaves an unfinished array."""
    last = ["", FOLDER, fs.GROUP_2, fs.ARRAY_2, fs.ATTRIBUTES_2, fs.METADATA]
    for entry in sorted(_entries(folder), key=lambda entry: last.index(entry.name) if entry.name in last else 0):
        fs.remove_tree(entry.path) if entry.is_dir(follow_symlinks=False) else fs.remove_file(entry.path)
    fs.remove_tree(folder)
