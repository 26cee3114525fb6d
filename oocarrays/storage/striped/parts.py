"""Disks of a striped store: folders, accessed as plain files, or other Zarr stores.

    disk 0   ▒0▒▒0▒ ▒3▒▒3▒ ▒6▒▒6▒           C threads per disk take its requests one after the other:
    disk 1   ▒1▒ ▒4▒ ▒7▒                    a slow disk delays only its own requests

Wang and Leiss, Figure 5: at most D · C messages are active, and a long transfer keeps that many active. Each answer is
followed by the next request to the same disk. Reads and writes, blocking or not, use the same scheme.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

from zarr.abc.store import Store
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.storage import LocalStore

from oocarrays.errors import InputError, NotFoundError
from oocarrays.storage.local.blobs import LocalBlobs
from oocarrays.storage.local.fs import files_below, make_folders
from oocarrays.storage.local.names import PARTIAL_END
from oocarrays.storage.local.syncing import replace_file
from oocarrays.storage.stores.remote import Patience, RemoteStore, place_below
from oocarrays.storage.stores.urls import store_of
from oocarrays.storage.striped.layout import turn_of

R = TypeVar("R")


class Transfers:
    """Threads of several disks, C each, shared by all transfers."""

    def __init__(self, disks: int, buffers: int) -> None:
        self.disks, self.buffers = disks, buffers
        self._lock = threading.Lock()
        self._pools: list[ThreadPoolExecutor] = []
        self._process = 0

    def _threads(self) -> list[ThreadPoolExecutor]:
        """Return the thread pools; create new ones after a fork."""
        with self._lock:
            if self._process != os.getpid():
                self._pools = [ThreadPoolExecutor(self.buffers, f"disk-{n}") for n in range(self.disks)]
                self._process = os.getpid()
            return self._pools

    def start(self, work: Sequence[Iterator[R]], do: Callable[[int, R], None], result: int) -> Future[int]:
        """Start requests without waiting."""
        transfer = _Transfer(work, do, result)
        first = [list(islice(each, self.buffers)) for each in work]
        threads = [disk for disk, some in enumerate(first) for _ in some]
        transfer.begin(len(threads), first)
        pools = self._threads() if threads else []
        for disk in threads:
            pools[disk].submit(transfer.drain, disk)
        return transfer.future

    def close(self) -> None:
        """Wait for started requests and end the threads."""
        with self._lock:
            for pool in self._pools if self._process == os.getpid() else ():
                pool.shutdown(wait=True)
            self._pools, self._process = [], 0


class _Transfer(Generic[R]):
    """One transfer: its requests, first failure and number of active threads."""

    def __init__(self, work: Sequence[Iterator[R]], do: Callable[[int, R], None], result: int) -> None:
        self.future: Future[int] = Future()
        self._work, self._do, self._result = work, do, result
        self._locks = [threading.Lock() for _ in work]
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._working = 0
        self._first: list[list[R]] = []

    def begin(self, threads: int, first: list[list[R]]) -> None:
        """Set the number of threads and the first requests of each disk."""
        self._first, self._working = first, threads
        self.future.set_running_or_notify_cancel()
        if not threads:
            self.future.set_result(self._result)

    def _next(self, disk: int) -> list[R]:
        with self._locks[disk]:
            first = self._first[disk]
            return [first.pop(0)] if first else list(islice(self._work[disk], 1))

    def drain(self, disk: int) -> None:
        """Make the requests of a disk until none remain or one has failed."""
        try:
            while self._failure is None and (taken := self._next(disk)):
                self._do(disk, taken[0])
        except BaseException as error:  # noqa: BLE001  reported by the future
            self._failure = self._failure or error
        with self._lock:
            self._working -= 1
            ended = not self._working
        if ended:
            self._end()

    def _end(self) -> None:
        if self._failure is None:
            self.future.set_result(self._result)
        else:
            self.future.set_exception(self._failure)


PROTOTYPE = default_buffer_prototype()
DOCUMENT = ".striped.json"
"""Key of the descriptor on each disk."""
RECORD = ".striped-values.json"
"""Key of the record of all values, on the first disk."""
HIDDEN = (DOCUMENT, RECORD)
"""Keys of the store itself, hidden from listings."""


class FolderStore(LocalStore):
    """Folder as a disk of a striped store: chunks are replaced atomically; documents are also synced to the device."""

    def __init__(self, root: str, *, base: str | None = None, read_only: bool = False) -> None:
        super().__init__(root, read_only=read_only)
        self.base = os.path.dirname(root) if base is None else base
        """Parent folder that must exist: the mount of the disk."""
        self._blobs = LocalBlobs(str(root))

    async def _open(self, *, mode: str | None = None) -> None:
        """Open the store without creating its folder; the first write creates it."""
        if self._is_open:
            raise ValueError("store is already open")
        self._is_open = True

    async def _ensure_open(self) -> None:
        self._is_open = True

    def _ensure_open_sync(self) -> None:
        self._is_open = True

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        await asyncio.to_thread(self._put, key, value)

    def _put(self, key: str, value: Buffer) -> None:
        self._make()
        if turn_of(key) is None:
            replace_file(os.path.join(str(self.root), key), value.to_bytes())
        else:
            self._blobs.put(key, memoryview(value.as_buffer_like()).cast("B"))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        self._check_writable()
        self._make()
        await super().set_if_not_exists(key, value)

    def _make(self) -> None:
        """Create the folder; raise if the disk is not mounted."""
        root = str(self.root)
        if not os.path.isdir(root):
            self.check_disk()
            make_folders(root)

    def check_disk(self) -> None:
        """Raise if the disk is missing."""
        if not os.path.isdir(self.base):
            raise NotFoundError(f"no such disk: {self.base} is not a folder")

    def __reduce__(self) -> Any:
        return partial(FolderStore, base=self.base, read_only=self.read_only), (str(self.root),)


def clear_folders(part: Store) -> None:
    """Remove the empty folders of a store on a disk, including its own."""
    for folder, *_ in os.walk(str(part.root), topdown=False) if isinstance(part, FolderStore) else ():
        with suppress(OSError):
            os.rmdir(folder)


def part_of(given: Any, options: Any = None, ways: Any = None) -> Store:
    """Return the given disk: a folder, a URL, or any Zarr store."""
    place = store_of(given, options) if ways is None else store_of(given, options, ways)
    if isinstance(place, LocalStore):
        place = str(place.root)
    if isinstance(place, str | os.PathLike):
        return FolderStore(os.path.abspath(os.fsdecode(place)))
    if not isinstance(place, Store):
        raise InputError(f"disk {given!r} is neither a folder, nor a URL, nor a Zarr store")
    return place


def label_of(part: Store) -> str:
    """Return the label of a disk."""
    return str(part.root) if isinstance(part, LocalStore) else str(part)


def part_below(part: Store, folder: str) -> Store:
    """Return a folder of a disk as a store."""
    if isinstance(part, LocalStore):
        base = part.base if isinstance(part, FolderStore) else None
        return FolderStore(os.path.join(str(part.root), folder), base=base, read_only=part.read_only)
    place: Any = part if isinstance(part, RemoteStore) else RemoteStore(part, str(part), Patience())
    below: Store = place_below(place, folder)  # type: ignore[assignment]
    return below


def parts_of(given: Any, options: Any = None, ways: Any = None) -> list[Store]:
    """Return the given disks; raise if one is given twice."""
    if isinstance(given, str | os.PathLike) or not isinstance(given, Sequence) or not given:
        raise InputError(f"disks={given!r}: give a list of folders, URLs or stores, one a disk")
    parts, seen = [part_of(each, options, ways) for each in given], set()
    for part in parts:
        name = os.path.realpath(label_of(part)) if isinstance(part, LocalStore) else label_of(part)
        if name in seen and isinstance(part, LocalStore | RemoteStore):
            raise InputError(f"disk {label_of(part)} is given twice")
        seen.add(name)
    return parts


def file_details(root: str, prefix: str) -> list[tuple[str, int, str]]:
    """List the names, sizes and versions of the files of a disk."""
    found = []
    above = prefix.rpartition("/")[0]
    for name in files_below(os.path.join(root, above)):
        key = os.path.join(above, name)
        if key.startswith(prefix) and not key.endswith(PARTIAL_END):
            with suppress(FileNotFoundError):
                status = os.stat(os.path.join(root, key))
                found.append((key, status.st_size, f"{status.st_mtime_ns}-{status.st_ino}"))
    return found
