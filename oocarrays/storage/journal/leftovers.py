"""Leftovers of runs that died, on a disk, and what of it may go.

    data/  .oocarrays-0123456789ab/     scratch          of a run
           .oocarrays-calibrate-…/      calibration      its work folder
           a.zarr/  .oocarrays/         unfinished       the array or group, where it carries the mark
                    .oocarrays/         journal          where nothing carries the mark
                    .oocarrays.json     journal          what was to be written to an array that is there
                    c/0/3.….partial     partial          a chunk that was being written

What a living process holds by its lock is listed as alive and never removed. Where there is no lock to ask, what was
written to in the last minute counts as alive.

data/  .oocarrays-0123456789ab/  lock           held by those who use it
                                     0/  1/         a scratch array of each pass
                                     copy/ blocks/  of lazy arrays

What says where one is may be wrong, or written by others. So a folder is a run's scratch only where both fit, and
symbolic links are not followed out of it.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from zarr.core.sync import sync

from oocarrays.errors import InputError, JournalError, NotFoundError, OocError, TargetError
from oocarrays.mapping.given import from_home
from oocarrays.plan.rechunk.ways import STAGES
from oocarrays.storage.files.chunk_names import mark_of_plan
from oocarrays.storage.files.creating import remove_scratch
from oocarrays.storage.files.documents import node_documents, unfinished_run
from oocarrays.storage.files.places import StoreLike, local_folder, store_path
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.lock import Busy, Hold, is_locked, try_lock
from oocarrays.storage.journal.texts import BEGINNING, FOLDER, LOCK, NOTE, PLAN
from oocarrays.storage.local.fs import remove_file, remove_tree, translated
from oocarrays.storage.local.names import ARRAY_2, ATTRIBUTES_2, GROUP_2, METADATA, PARTIAL
from oocarrays.storage.stores.remote import RemoteStore, place_below
from oocarrays.storage.stores.urls import check_path

ID = re.compile(r"[0-9a-f]{12}")
"""Of a run."""
NAME = re.compile(r"\.oocarrays-[0-9a-f]{12}")
INSIDE = re.compile(r"lock|[0-9]+|kept|copy|blocks(\.partial)?|\.nfs[0-9a-f]+")
"""What runs put there, and the remains of open files that network file systems leave."""


def scratch_below(place: str | RemoteStore, id: str) -> str | RemoteStore:
    """The scratch of a run, in a folder or below a prefix."""
    return place_below(place, f".oocarrays-{id}")


def is_scratch_folder(folder: str) -> bool:
    """Whether a folder has the name of a run's scratch, and nothing in it but what runs put there."""
    if not NAME.fullmatch(os.path.basename(folder)) or os.path.islink(folder):
        return False
    with suppress(OSError), os.scandir(folder) as entries:
        return all(INSIDE.fullmatch(entry.name) and not entry.is_symlink() for entry in entries)
    return False


def trusted_scratch(named: str | RemoteStore, id: str, otherwise: str | RemoteStore) -> str | RemoteStore:
    """Return the scratch place of a resumed run: the one its journal names if it exists, else `otherwise`."""
    if isinstance(named, RemoteStore):
        same = isinstance(otherwise, RemoteStore) and otherwise.name == named.name
        return named if same or isinstance(otherwise, str) else otherwise
    folder = str(scratch_below(named, id))
    if not os.path.lexists(folder):
        return otherwise
    if not is_scratch_folder(folder):
        raise JournalError(f"the journal names {folder} as scratch, which holds what no run has put there")
    return named


def check_scratch_place(scratch: str | RemoteStore, **arrays: str | None) -> None:
    """Refuse scratch in an array: whoever reads, copies or removes the array would meet it there."""
    there = scratch.name if isinstance(scratch, RemoteStore) else os.path.realpath(scratch)
    for what, array in arrays.items():
        if array and f"{there}/".startswith(f"{array.rstrip('/')}/"):
            raise InputError(f"scratch={there} lies in the {what} {array}: name a folder outside of it")


Kind = Literal["scratch", "calibration", "partial", "journal", "note", "unfinished"]
CHUNKS = "c"
FORMAT_2 = {ARRAY_2: "array", GROUP_2: "group"}
"""The documents that make a folder an array or a group in Zarr format 2, which keeps attributes in another one."""
CALIBRATION = re.compile(r"\.oocarrays-calibrate-.+")
YOUNG_SECONDS = 60.0
"""What was written to no longer ago may be at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something that a run made for itself and did not remove."""

    path: str
    """Its full path."""
    kind: Kind
    """``"scratch"``: a folder of scratch arrays. ``"calibration"``: a folder in which speeds were
    measured. ``"partial"``: a file of an array, the beginning of a chunk. ``"journal"``: what a run had finished, in
    an array that is finished or was written anew. ``"note"``: what it was to write to an array that was there, and
    has written in part. ``"unfinished"``: a whole array, or group, that lacks parts. Runs of the last two can be
    resumed only while these are there."""
    nbytes: int
    """Bytes of all files in it; those of an unfinished array's partial files, which are listed too, are among them."""
    alive: bool
    """Whether a living run uses it, or may."""

    def remove(self) -> None:
        """Remove it from the disk, with all that is in it; fine where it has gone."""
        if self.alive:
            raise TargetError(f"{self.path} is not removed: a run is at work on it")
        try:
            with translated("remove", self.path):
                remove_file(self.path) if self.kind in ("partial", "note") else self._remove_folder()
        except Busy:
            raise TargetError(f"{self.path} is not removed: a run is at work on it") from None

    def _remove_folder(self) -> None:
        """Keep others out meanwhile, and look again before."""
        file = try_lock(_lock_of(self.path, self.kind), fcntl.LOCK_EX)
        try:
            if file is None and _young(self.path):
                raise Busy(self.path)
            self._check_unchanged()
            _remove_array(self.path) if self.kind == "unfinished" else remove_tree(self.path)
        finally:
            if file is not None:
                os.close(file)

    def _check_unchanged(self) -> None:
        array = self.path if self.kind == "unfinished" else os.path.dirname(self.path)
        marked = self.kind == "unfinished"
        changed = self.kind in ("journal", "unfinished") and (unfinished_run(array) is not None) != marked
        changed |= self.kind == "scratch" and not is_scratch_folder(self.path)
        if os.path.lexists(self.path) and (changed or os.path.islink(self.path)):
            raise TargetError(f"{self.path} is not removed: it has changed since it was found")


def find_leftovers(path: str | os.PathLike[str]) -> list[Leftover]:
    """All that runs have left in a folder and the folders below it, by path.

    Symbolic links are not followed, and what may not be read is passed over. Chunks are not looked into.
    """
    check_path(path, "the folder")
    root = os.path.realpath(from_home(path))
    if not os.path.isdir(root):
        raise NotFoundError(f"no such folder: {path}")
    return sorted(_leftovers(root, None), key=lambda leftover: leftover.path)


def hold(folder: str) -> Hold:
    """Say that this process uses ``folder``, until the result is closed or collected, or the process dies."""
    held = Hold(os.path.join(os.path.realpath(folder), LOCK))
    try:
        with translated("write", folder):
            held.share(make=True)
    except Busy:
        raise TargetError(f"{folder} is being removed") from None
    return held


def discard(scratch: str, held: Hold) -> None:
    """Remove the scratch of a run that nobody waits for, unless another goes on with it."""
    held.close()
    with suppress(Busy):
        lock = try_lock(held.path, fcntl.LOCK_EX)
        remove_scratch(scratch)
        if lock is not None:
            os.close(lock)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Array:
    """The array or group in which a folder lies."""

    folder: str
    """Where its metadata is."""
    group: bool
    """Whether it is a group."""
    unfinished: bool
    """Whether it carries the mark."""
    held: bool | None
    """Whether a living run holds it; None where there is no lock to ask."""
    marks: frozenset[str] = frozenset()
    """What is in the names of chunks that its run has not finished, and goes on with where it is resumed."""


def _leftovers(folder: str, array: _Array | None) -> Iterator[Leftover]:
    entries = _entries(folder)
    found = _array_at(folder, {entry.name for entry in entries})
    if array is None or not array.unfinished:  # what is in an unfinished group goes with it
        yield from _of_array(folder, found)
        array = array if found is None or (found.group and not found.unfinished) else found
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            yield from _note(entry) if entry.name == NOTE else _partial(entry, array)
        elif kind := _kind(entry.name):
            if kind != "scratch" or is_scratch_folder(entry.path):
                yield _folder(entry.path, kind)
        elif array is not None and found is not None and not found.group and entry.name == CHUNKS:
            yield from _partials(entry.path, array)
        elif entry.name != FOLDER:
            yield from _leftovers(entry.path, array)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _kind(name: str) -> Kind | None:
    """Tell what a folder of this name is."""
    if NAME.fullmatch(name):
        return "scratch"
    return "calibration" if CALIBRATION.fullmatch(name) else None


def _array_at(folder: str, names: set[str]) -> _Array | None:
    kind = _node_kind(folder, names)
    if kind is None:
        return None
    held = is_locked(os.path.join(folder, FOLDER, LOCK))
    unfinished = unfinished_run(folder) is not None
    marks = _marks(folder) if unfinished else frozenset()
    return _Array(folder=folder, group=kind == "group", unfinished=unfinished, held=held, marks=marks)


def _marks(folder: str) -> frozenset[str]:
    """Return the marks in the names of chunks that the run in the journal of an array has not finished."""
    with suppress(OocError):
        run, content = Journal(folder).read()
        return frozenset(mark_of_plan(run, content.get(BEGINNING, ""), number) for number in range(STAGES.stop))
    return frozenset()


def _node_kind(folder: str, names: set[str]) -> str | None:
    """Whether there is an ``"array"`` or a ``"group"`` in a folder, or the draft of one, in Zarr format 3 or 2."""
    if not names.intersection((METADATA, FOLDER, *FORMAT_2)):
        return None
    with suppress(OSError):
        in_format_3, *in_format_2 = node_documents(folder, (METADATA, *FORMAT_2))
        if in_format_3 is not None:
            kind = in_format_3.get("node_type")
            return kind if kind in ("array", "group") else None
        return next(
            (kind for kind, found in zip(FORMAT_2.values(), in_format_2, strict=True) if found is not None), None
        )
    return None


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


def _partials(folder: str, array: _Array) -> Iterator[Leftover]:
    """The partial files among the chunks."""
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _partials(entry.path, array)
        else:
            yield from _partial(entry, array)


def _partial(entry: os.DirEntry[str], array: _Array | None) -> Iterator[Leftover]:
    """The file, where it is partial and nobody seems to write it: a dead run does not, and others write on."""
    if array is None or not PARTIAL.search(entry.name) or not entry.is_file(follow_symlinks=False):
        return
    if entry.name.split(".")[-2] in array.marks:  # they go with the array
        return
    with suppress(FileNotFoundError):
        status = entry.stat(follow_symlinks=False)
        dead = array.unfinished and array.held is False
        if dead or not _is_young(status.st_mtime):
            yield Leftover(path=entry.path, kind="partial", nbytes=status.st_size, alive=array.held is True)


def _note(entry: os.DirEntry[str]) -> Iterator[Leftover]:
    """Find the note of a run that seems to be dead: without it nobody would know that it has written a part."""
    with suppress(FileNotFoundError):
        status = entry.stat(follow_symlinks=False)
        yield Leftover(path=entry.path, kind="note", nbytes=status.st_size, alive=_is_young(status.st_mtime))


def _tree(folder: str) -> tuple[int, float]:
    """Bytes of all files in a folder, and when something in it was last written to."""
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


def _young(folder: str) -> bool:
    return _is_young(_tree(folder)[1])


def remove_unfinished(store: StoreLike) -> None:
    """Remove an array or a group that its own run has only begun."""
    folder = local_folder(store)
    with translated("remove", store):
        if folder is not None:
            _remove_array(folder)
        else:
            place = store_path(store)
            sync(place.store.delete_dir(place.path))


def _remove_array(folder: str) -> None:
    """Remove an array, its mark last: what is left by a removal cut short is still unfinished."""
    last = ["", FOLDER, GROUP_2, ARRAY_2, ATTRIBUTES_2, METADATA]
    for entry in sorted(_entries(folder), key=lambda entry: last.index(entry.name) if entry.name in last else 0):
        remove_tree(entry.path) if entry.is_dir(follow_symlinks=False) else remove_file(entry.path)
    remove_tree(folder)
