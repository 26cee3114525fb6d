"""Putting what was written on its device, before anything is said that relies on it.

    chunks and entry written ─► synced ─► entry named ─► … ─► all synced ─► mark taken away ─► journal removed

Where a file system can be asked to write out all that it holds, one such request serves all parts that are finished
when it begins, as a database commits in groups; elsewhere every file is synced, and every folder that names it. An
entry is written under another name before: it is on the device with its chunks, and gets its name then. Stores that are
not folders keep what they have answered for.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from oocarrays.storage.local.fs import sync_path, translated
from oocarrays.storage.local.pages import libc

SYNCED_WHOLE = {
    0xEF53: "ext4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0xF2F52010: "f2fs",
    0x2FC12FC1: "zfs",
    0x794C7630: "overlay",
    0x01021994: "tmpfs",
}
"""File systems, by the number that Linux knows them by, of which ``syncfs`` puts all that it holds on the device."""
START_WRITING = ctypes.c_uint(2)
"""Linux: ``SYNC_FILE_RANGE_WRITE``, ..."""
WHOLE = ctypes.c_int64(0), ctypes.c_int64(0)
"""... of a whole file."""


@functools.cache
def boot() -> str:
    """Return the name of this start of the system, after which the cache holds nothing; empty where none has one."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return ""


def is_synced_whole(folder: str) -> bool:
    """Return whether one request puts all of a folder's file system on its device."""
    if sys.platform != "linux":
        return False
    room = ctypes.create_string_buffer(256)
    if libc().statfs(os.fsencode(folder), room):
        return False
    return ctypes.c_long.from_buffer(room).value & 0xFFFFFFFF in SYNCED_WHOLE


def sync_file_system(folder: str) -> None:
    """Put all of a folder's file system on its device."""
    file = os.open(folder, os.O_RDONLY)
    try:
        if libc().syncfs(file):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)
    finally:
        os.close(file)


def begin_writing(file: int) -> None:
    """Have the system begin to write out what an open file holds, and do not wait."""
    if sys.platform == "linux":
        libc().sync_file_range(file, *WHOLE, START_WRITING)


Say = Callable[[], None]
"""Writes down that something is on its device."""
Prepare = Callable[[], Say]
"""Writes what is to be said where nobody finds it yet."""
GROUP_SECONDS = 1.0
"""Seconds for which a run gathers what it has to say: threads end together, and so nobody asks before."""
MOST_FILES = 2000
"""Files that are synced one by one, where their device holds what need not be; more are synced with all of that."""


def start_writing(file: int) -> None:
    """Have the system begin to write out what an open file holds, and do not wait, where a run will sync it."""
    if _SYNCERS:
        begin_writing(file)


class Syncer:
    """Puts what a run writes in this process on its devices."""

    def __init__(
        self,
        places: Callable[[], Iterable[str]],
        *,
        active: bool,
        patience: float = 0.0,
        spare: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.active = active
        self.patience = patience
        self._places = places
        self._spare = spare
        self._changed = threading.Condition()
        self._waiting: list[Prepare] = []
        self._working = self._syncing = self._hurried = False
        self._failure: BaseException | None = None
        self._paths: set[str] = set()
        """Files that were written, or removed, and have to be synced by themselves, and the folders above them."""
        self._whole: dict[str, tuple[bool, bool]] = {}
        """Of each place whether one request can sync it, and whether its device holds what need not be."""
        self._real: dict[str, str] = {}
        """Where the folders of files are that were written."""
        self._folders: tuple[str, ...] | None = None
        """The places, once they have been asked for: a chunk that is written looks at them."""
        if active:
            _SYNCERS.add(weakref.ref(self, _SYNCERS.discard))

    def begin_anew(self) -> None:
        """Forget what failed."""
        with self._changed:
            self._failure, self._waiting, self._folders, self._real = None, [], None, {}

    def note(self, path: str) -> None:
        """Keep that a file was written, or removed, where it has to be synced by itself."""
        if self._folders is None:
            self._folders = tuple(self._places())
        for place in self._folders:
            if not self._is_whole(place) and (inside := self._real_path(path)).startswith(f"{place}{os.sep}"):
                with self._changed:
                    if inside not in self._paths:
                        self._paths.update([*_up_to(inside, place), os.path.dirname(place)])

    def _real_path(self, path: str) -> str:
        """The path of a file without links; its folder is looked up once, for a chunk is written in many pieces."""
        folder, name = os.path.split(path)
        if folder not in self._real:
            self._real[folder] = os.path.realpath(folder)
        return os.path.join(self._real[folder], name)

    def _is_whole(self, place: str, many: bool = False) -> bool:
        """Whether one request syncs a place: where files are many, together with what may stay in the cache."""
        if place not in self._whole and os.path.isdir(place):
            shared = _device_of(place) in map(_device_of, self._spare())
            self._whole[place] = is_synced_whole(place), shared
        whole, shared = self._whole.get(place, (True, False))
        return whole and (many or not shared)

    def then(self, prepare: Prepare, *, ahead: int = 1) -> None:
        """Have something said when all that is written now is on its device, and do not wait for that."""
        if not self.active:
            prepare()()
            return
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) <= ahead or not self._syncing)
            self._check()
            self._waiting.append(prepare)
            if not self._working:
                self._working = True
                threading.Thread(target=self._work, name="sync", daemon=True).start()

    def wait(self) -> None:
        """Wait until all has been said."""
        self.stop()
        self._check()

    def finish(self) -> None:
        """Put all on its device, also what nobody waits to say; what is still to be said may be dropped then."""
        if not self.patience:
            self.wait()
        with self._alone():
            self._check()
            if self.active:
                self._sync()

    def unsaid(self) -> list[Prepare]:
        """Return what waits to be said."""
        with self._changed:
            self._changed.wait_for(lambda: not self._syncing)
            return list(self._waiting)

    def drop(self) -> None:
        """Say no more: nobody will ask."""
        with self._changed:
            self._waiting = []
        self.stop()

    def hurry(self) -> None:
        """Have all said that waits, without more patience, and do not wait for that."""
        with self._changed:
            self._hurried = self._working
            self._changed.notify_all()

    def stop(self) -> None:
        """Wait until all has been said that can be, after a failure."""
        self.hurry()
        with self._changed:
            self._changed.wait_for(lambda: not self._working)

    def _check(self) -> None:
        if self._failure:
            raise self._failure

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Sync when nobody else does: who begins has taken what was written."""
        with self._changed:
            self._changed.wait_for(lambda: not self._syncing)
            self._syncing = True
        try:
            yield
        finally:
            with self._changed:
                self._syncing = False
                self._changed.notify_all()

    def _work(self) -> None:
        """Sync, and say what waited when that began, until nothing waits."""
        while self._has_more():
            with self._alone():
                with self._changed:
                    taken, self._waiting = self._waiting, []
                try:
                    self._say_all(taken)
                except BaseException as error:  # noqa: BLE001  whoever waits is told
                    self._failure = self._failure or error

    def _say_all(self, taken: Sequence[Prepare]) -> None:
        """Sync, and say what could be prepared, also where some could not: nothing that is prepared stays behind."""
        prepared: list[Say] = []
        try:
            for prepare in taken:
                prepared.append(prepare())
        finally:
            self._sync()
            with ExitStack() as each:
                for say in reversed(prepared):
                    each.callback(say)

    def _has_more(self) -> bool:
        """Wait for as much as can be said at once; whether there is anything."""
        with self._changed:
            self._changed.wait_for(lambda: self._hurried, self.patience)
            if self._waiting and not self._failure:
                return True
            self._working = self._hurried = False
            self._changed.notify_all()
            return False

    def _sync(self) -> None:
        with self._changed:
            paths, self._paths = self._paths, set()
        whole = [place for place in self._places() if self._is_whole(place, len(paths) > MOST_FILES)]
        with translated("write", f"what was written to {' and '.join(self._places())}"):
            for folder in _one_a_device(whole):
                sync_file_system(folder)
            inside = tuple(f"{place}{os.sep}" for place in whole)
            alone = (path for path in paths if not f"{path}{os.sep}".startswith(inside))
            for path in sorted(alone, key=len, reverse=True):  # a file before the folder that names it
                sync_path(path)


def _one_a_device(folders: Iterable[str]) -> Iterable[str]:
    """One of the folders of each device, of those that are there."""
    return {os.stat(folder).st_dev: folder for folder in folders if os.path.isdir(folder)}.values()


def _device_of(folder: str) -> int:
    """The device of a folder, or of where it would be."""
    folder = os.path.abspath(folder)
    while not os.path.exists(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return os.stat(folder).st_dev


def _up_to(path: str, place: str) -> Iterator[str]:
    """A path and the folders above it, up to ``place``."""
    yield path
    while path != place:
        path = os.path.dirname(path)
        yield path


def before_naming(path: str) -> None:
    """Put a file on its device that gets another name now, where a run syncs files one by one, by their names."""
    if _SYNCERS and not is_synced_whole(os.path.dirname(path)):
        sync_path(path)


_SYNCERS: set[weakref.ref[Syncer]] = set()
"""Of the runs in this process that sync: a plain set, for every chunk that is written looks at it."""


def written(path: str) -> None:
    """Say that a chunk's file was written, or removed, under its name."""
    for there in tuple(_SYNCERS):
        syncer = there()
        if syncer is not None:
            syncer.note(path)
