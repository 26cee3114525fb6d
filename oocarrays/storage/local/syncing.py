"""Durable writes: files replaced atomically, and data synced to its device before any record relies on it.

    written beside ─► synced ─► renamed ─► the folder synced      `replace_file`, one document at once
    written beside ─► all files of a run synced ─► renamed        `finishing`, one request for all

    chunks and entry written ─► synced ─► entry named ─► … ─► all synced ─► mark removed ─► journal removed

Where a whole file system can be synced by one request, that request serves all parts finished before it starts. This
is a database's group commit. Elsewhere every file is synced, and every folder that names it. An entry is first written
under a temporary name, synced with its chunks, and then renamed. Other stores persist each object before they
acknowledge it.
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

from zarr.core.buffer import Buffer
from zarr.storage import LocalStore

from oocarrays.storage.local import fs
from oocarrays.storage.local.pages import libc


@functools.cache
def boot() -> str:
    """Return the id of the current system boot, which the cache does not outlive; empty if unknown."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return ""


def is_synced_whole(folder: str) -> bool:
    """Return whether one request syncs a folder's whole file system."""
    if sys.platform != "linux":
        return False
    room = ctypes.create_string_buffer(256)
    if libc().statfs(os.fsencode(folder), room):
        return False
    ext4, xfs, btrfs, f2fs = 0xEF53, 0x58465342, 0x9123683E, 0xF2F52010
    zfs, overlay, tmpfs = 0x2FC12FC1, 0x794C7630, 0x01021994
    return ctypes.c_long.from_buffer(room).value & 0xFFFFFFFF in (ext4, xfs, btrfs, f2fs, zfs, overlay, tmpfs)


def sync_file_system(folder: str) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        if libc().syncfs(file):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)
    finally:
        os.close(file)


def sync_tree(folder: str) -> None:
    """Sync all files below a folder, whichever process has written them."""
    with fs.translated("write", folder):
        if is_synced_whole(folder):
            sync_file_system(folder)
            return
        for at, _, names in os.walk(folder, topdown=False):
            for name in (*names, ""):
                fs.sync_path(os.path.join(at, name))


Say = Callable[[], None]
"""Function that publishes a record of synced data."""
Prepare = Callable[[], Say]
"""Function that writes a record under a temporary name."""
GROUP_SECONDS = 1.0
"""Seconds for which a run collects records: threads finish together, so no record is needed earlier."""
MOST_FILES = 2000
"""Maximum number of files synced singly on a device that also holds other data; beyond it, all are synced."""


def start_writing(file: int) -> None:
    """Start writing an open file's data to the device, without waiting, if a run in this process will sync it."""
    if _SYNCERS and sys.platform == "linux":
        libc().sync_file_range(file, ctypes.c_int64(0), ctypes.c_int64(0), ctypes.c_uint(2))  # whole; WRITE


class Syncer:
    """Syncer of the files that a run writes in this process."""

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
        """Files written or removed that need their own sync, and the folders above them."""
        self._whole: dict[str, tuple[bool, bool]] = {}
        """Whether one request can sync each location, and whether its device also holds data that needs no sync."""
        self._real: dict[str, str] = {}
        """Real paths of the folders of written files."""
        self._folders: tuple[str, ...] | None = None
        """The locations, cached because each chunk write compares them."""
        if active:
            _SYNCERS.add(weakref.ref(self, _SYNCERS.discard))

    def begin_anew(self) -> None:
        """Clear the failure and all pending records."""
        with self._changed:
            self._failure, self._waiting, self._folders, self._real = None, [], None, {}

    def note(self, path: str) -> None:
        """Register a written or removed file if it needs its own sync."""
        if self._folders is None:
            self._folders = tuple(self._places())
        for place in self._folders:
            if not self._is_whole(place) and (inside := self._real_path(path)).startswith(f"{place}{os.sep}"):
                with self._changed:
                    if inside not in self._paths:
                        self._paths.update([*_up_to(inside, place), os.path.dirname(place)])

    def _real_path(self, path: str) -> str:
        """Return a file's path without links; its folder is cached, as a chunk is written in many pieces."""
        folder, name = os.path.split(path)
        if folder not in self._real:
            self._real[folder] = os.path.realpath(folder)
        return os.path.join(self._real[folder], name)

    def _is_whole(self, place: str, many: bool = False) -> bool:
        """Return whether one request syncs a location; on a device shared with other data, only for many files."""
        if place not in self._whole and os.path.isdir(place):
            shared = _device_of(place) in map(_device_of, self._spare())
            self._whole[place] = is_synced_whole(place), shared
        whole, shared = self._whole.get(place, (True, False))
        return whole and (many or not shared)

    def then(self, prepare: Prepare, *, ahead: int = 1) -> None:
        """Publish a record after all data written so far is synced, without waiting for that."""
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
        """Wait until all records are published; raise if one failed."""
        self.stop()
        self._check()

    def finish(self) -> None:
        """Sync all written data; with patience, do not wait for pending records, which may then be dropped."""
        if not self.patience:
            self.wait()
        with self._alone():
            self._check()
            if self.active:
                self._sync()

    def unsaid(self) -> list[Prepare]:
        """Return the pending records, after a running sync ends."""
        with self._changed:
            self._changed.wait_for(lambda: not self._syncing)
            return list(self._waiting)

    def drop(self) -> None:
        """Drop the pending records, which are no longer needed."""
        with self._changed:
            self._waiting = []
        self.stop()

    def stop(self) -> None:
        """Wait until all possible records are published, also after a failure."""
        with self._changed:
            self._hurried = self._working
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._working)

    def _check(self) -> None:
        if self._failure:
            raise self._failure

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Return a context in which no other thread syncs."""
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
        """Sync and publish the pending records of each round, until none are pending."""
        while self._has_more():
            with self._alone():
                with self._changed:
                    taken, self._waiting = self._waiting, []
                try:
                    self._say_all(taken)
                except BaseException as error:  # noqa: BLE001  every waiting thread receives the error
                    self._failure = self._failure or error

    def _say_all(self, taken: Sequence[Prepare]) -> None:
        """Sync and publish all prepared records, even if preparing another one fails."""
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
        """Wait until a round of records is collected; return whether it has any."""
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
        with fs.translated("write", f"what was written to {' and '.join(self._places())}"):
            for folder in {os.stat(place).st_dev: place for place in whole if os.path.isdir(place)}.values():
                sync_file_system(folder)
            inside = tuple(f"{place}{os.sep}" for place in whole)
            alone = (path for path in paths if not f"{path}{os.sep}".startswith(inside))
            for path in sorted(alone, key=len, reverse=True):  # a file before the folder that names it
                fs.sync_path(path)


def _device_of(folder: str) -> int:
    """Return the device of a folder, or of its nearest existing parent."""
    return os.stat(fs.existing(folder)).st_dev


def _up_to(path: str, place: str) -> Iterator[str]:
    yield path
    while path != place:
        path = os.path.dirname(path)
        yield path


def before_naming(path: str) -> None:
    """Sync a file before it is renamed, if a run syncs files one by one, by name."""
    if _SYNCERS and not is_synced_whole(os.path.dirname(path)):
        fs.sync_path(path)


_SYNCERS: set[weakref.ref[Syncer]] = set()
"""Syncers of the runs in this process: a plain set, because every chunk write inspects it."""


def written(path: str) -> None:
    """Register a chunk's file as written, or removed, under its name."""
    for there in tuple(_SYNCERS):
        syncer = there()
        if syncer is not None:
            syncer.note(path)


# ---------------------------------------------------------------------- files replaced atomically


class replacing_file:
    """Context with a temporary file that replaces ``path`` on success, and is deleted on failure."""

    __slots__ = ("_partial", "_path")

    def __init__(self, path: str) -> None:
        self._path, self._partial = path, fs.partial_name(path)

    def __enter__(self) -> str:
        return self._partial

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            with suppress(OSError):
                os.unlink(self._partial)
            if isinstance(error, OSError):
                raise fs.failure("write", self._path, error) from error
            return
        try:
            rename(self._partial, self._path)
        except OSError as refused:
            raise fs.failure("write", self._path, refused) from refused
        written(self._path)


def write_beside(path: str, data: bytes, *, synced: bool) -> str:
    """Write the future contents of ``path`` to a temporary file, and return its name."""
    partial = fs.partial_name(path)
    file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, fs.mode_of(path))
    try:
        with os.fdopen(file, "wb", buffering=0):
            fs.write_all(file, memoryview(data))
            if synced:
                os.fsync(file)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise
    written(partial)
    return partial


def rename(partial: str, path: str) -> None:
    """Rename a file to its final name; delete it on failure."""
    try:
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


def replace_file(path: str, data: bytes, *, named: bool = True) -> None:
    """Replace a small file atomically and durably: readers see either the old or the new contents."""
    folder = os.path.dirname(path)
    with fs.translated("write", path):
        fs.make_folders(folder, durable=True, named=named)
        rename(write_beside(path, data, synced=True), path)
        fs.sync_path(folder)
    written(path)


class DocumentStore(LocalStore):
    """Local store for metadata documents, which writes each atomically and synced."""

    async def set(self, key: str, value: Buffer) -> None:
        """Replace a document synchronously: it is small, and nothing else waits on this event loop."""
        self._check_writable()
        replace_file(os.path.join(str(self.root), key), value.to_bytes())
