"""Targets with notes in memory: icechunk sessions, forked for several writing processes, and zip files for one.

one process         c/0/1, zarr.json        ─►  the session; its owner commits it after the run
                    .oocarrays/plan.json    ─►  memory: a killed run loses its session and its writes
workers             c/0/1                   ─►  a fork of the session in each, all merged at the end
                    zarr.json, .oocarrays/  ─►  a scratch folder visible to all workers

The arrays are created before the fork: forks that each created their own could not be merged.

zip file            c/0/1                   ─►  the file, once each
                    .oocarrays/             ─►  memory: drafts, and the journal
                    zarr.json               ─►  memory, until no draft remains; then the file, and its index

An interrupted run leaves no zip file, one without an index, or one without an array, but no file that looks complete.
"""

from __future__ import annotations

import os
import pickle
import uuid
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, StorePath, ZipStore

from oocarrays.errors import RunError, TargetError
from oocarrays.storage.local.fs import ATTRIBUTES_2, DOCUMENTS, SAYING, is_draft
from oocarrays.storage.stores.joined import AsideStore, Wrapped, is_session
from oocarrays.storage.stores.urls import opened

FORKS = "forks"
"""Name of the folder with a marker file for each writing process."""
_HERE: dict[str, Any] = {}
"""Forks in this process, by run id."""
_SIGNS: dict[str, str] = {}
"""Marker name of each fork that has been written to, by run id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSession:
    """State of a session shared by the processes of a run."""

    id: str
    """Run id."""
    fork: bytes
    """Pickled fork of the session, with the arrays to be written."""
    folder: str
    """Folder for notes and documents, visible to all processes."""
    paths: tuple[str, ...]
    """Paths of the arrays to be written."""


class SessionStore(AsideStore[Store]):
    """Store that accepts only Zarr's keys, and chunks of existing arrays only."""

    documents_first = True
    """Arrays copied unchanged receive their documents before their chunks."""

    def __init__(self, store: Store, shared: SharedSession | None = None) -> None:
        super().__init__(store)
        self._share(shared)

    def _share(self, shared: SharedSession | None) -> None:
        self._shared = shared
        self._aside: Any = MemoryStore() if shared is None else LocalStore(shared.folder)

    def __reduce__(self) -> Any:
        if self._shared is None:
            raise TargetError(
                f"{self} is an icechunk session, which workers can use only during job.run(): call that, or pass "
                "for scheduler='threads'"
            )
        return _arrived, (self._shared,)

    @property
    def is_shared(self) -> bool:
        return self._shared is not None

    async def is_empty(self, prefix: str) -> bool:
        """Return whether no key is below a prefix; for an array to be written, only notes count."""
        if self._shared is not None and prefix.strip("/") in self._shared.paths:
            return bool(await self._aside.is_empty(prefix))
        return await super().is_empty(prefix)

    async def delete_dir(self, prefix: str) -> None:
        """Delete all keys below a prefix; for an array to be written, only its notes."""
        if self._shared is not None and prefix.strip("/") in self._shared.paths:
            await self._aside.delete_dir(prefix)
            return
        await super().delete_dir(prefix)

    async def set(self, key: str, value: Buffer) -> None:
        """Store a value under a key; the first write to a fork leaves a marker."""
        shared = self._shared
        if shared is not None and not self._is_aside(key) and shared.id not in _SIGNS:
            sign = uuid.uuid4().hex
            try:
                Path(shared.folder, FORKS, sign).write_text(key)
            except OSError as error:
                raise RunError(
                    f"{shared.folder} is not visible here: pass Resources(scratch=…), a folder that all workers see"
                ) from error
            _SIGNS[shared.id] = sign
        await super().set(key, value)

    def _is_aside(self, key: str) -> bool:
        path, _, name = key.rpartition("/")
        described = self._shared is not None and name in DOCUMENTS and path in self._shared.paths
        return described or super()._is_aside(key)

    def begin_sharing(self, id: str, arrays: Mapping[str, Mapping[str, Any]], folder: str) -> None:
        session = self._session()
        if session.has_uncommitted_changes:
            raise TargetError(f"{self} has uncommitted changes, so it cannot be forked for workers: commit them")
        try:
            fork = session.fork()
            for path, settings in arrays.items():
                zarr.create_array(fork.store, name=path or None, **settings)
        except (zarr.errors.ContainsArrayError, zarr.errors.ContainsGroupError):
            raise TargetError(
                f"{path or 'it'} exists in {self}, and forks cannot replace it: pass scheduler='threads'"
            ) from None
        except Exception as error:  # icechunk's own exceptions
            why = str(error).strip().splitlines()[0].strip(" x")
            raise TargetError(f"{self} cannot be forked for workers, as one in memory cannot: {why}") from error
        os.makedirs(os.path.join(folder, FORKS))
        self._share(SharedSession(id=id, fork=pickle.dumps(fork), folder=folder, paths=tuple(arrays)))

    def merge(self, forks: Mapping[str, bytes]) -> None:
        """Merge the forks of all processes; raise if one with a marker is missing."""
        assert self._shared is not None, "it was shared"
        lost = set(os.listdir(os.path.join(self._shared.folder, FORKS))) - forks.keys()
        if lost:
            raise RunError(
                f"{len(lost)} of {len(lost) + len(forks)} workers were lost, with their writes to forks of {self}: "
                "nothing of the run is in the session, run it again"
            )
        opened = {sign: pickle.loads(data) for sign, data in forks.items()}
        for sign, fork in opened.items():
            key = Path(self._shared.folder, FORKS, sign).read_text()
            try:
                found = sync(fork.store.get(key, default_buffer_prototype()))
            except Exception:  # noqa: BLE001  icechunk's own exceptions
                found = None
            if found is None:
                raise RunError(
                    f"the workers' writes to forks of {self} cannot be read: the repository may be in memory"
                )
        self._session().merge(*opened.values())
        described = {f"{path}/{name}".lstrip("/") for path in self._shared.paths for name in DOCUMENTS}
        for key in sorted(described):
            if (value := sync(self._aside.get(key, default_buffer_prototype()))) is not None:
                sync(self._store.set(key, value))

    def end_sharing(self) -> None:
        """Return to writing to the session itself."""
        self._share(None)

    def _session(self) -> Any:
        store: Any = self._store
        return store.session


def _arrived(shared: SharedSession) -> SessionStore:
    if shared.id not in _HERE:
        _HERE[shared.id] = pickle.loads(shared.fork)
    return SessionStore(_HERE[shared.id].store, shared)


def taken_fork(id: str) -> tuple[str, bytes] | None:
    """Remove and return this process's marker and pickled fork; None if it wrote nothing."""
    fork, sign = _HERE.pop(id, None), _SIGNS.pop(id, None)
    return None if fork is None or sign is None else (sign, pickle.dumps(fork))


def session(store: Any) -> SessionStore | None:
    return SessionStore(store) if is_session(store) and not store.read_only else None


class ZipTarget(AsideStore[ZipStore]):
    """Zip file written once, each key once."""

    one_writer = "is a zip file, which one process can write to, not several workers: scheduler='threads', or a folder"
    once = True
    """Keys are written once; none is replaced or removed."""
    supports_deletes = True
    is_empty = Store.is_empty

    def __init__(self, store: ZipStore, *, mine: bool = False) -> None:
        super().__init__(store)
        self._mine = mine
        self._changed = False
        self._held = [store]
        if mine:
            weakref.finalize(self, _close, self._held)

    def __reduce__(self) -> Any:
        if self._changed or not self._store.path.exists():
            raise TargetError(f"{self} {self.one_writer}")
        return _reopened, (self._store.path,)

    def with_read_only(self, read_only: bool = False) -> Any:
        return ZipView(self) if read_only else self

    async def _open(self) -> None:
        """Do nothing: the file is opened at the first read or write, so that inspection creates no file."""

    async def _ensure_open(self) -> None:
        """Do nothing."""

    @property  # type: ignore[misc]
    def _is_open(self) -> bool:  # type: ignore[override]
        return True

    def _is_aside(self, key: str) -> bool:
        return super()._is_aside(key) or not self._is_there()

    def _is_there(self) -> bool:
        """Return whether the file exists, after opening it."""
        if not self._store._is_open and self._store._zmode == "a" and self._store.path.exists():
            self._store._sync_open()
        return self._store._is_open

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        found = await self._aside.get(key, prototype, byte_range)
        if found is not None or self._is_aside(key):
            return found
        return await self._store.get(key, prototype, byte_range)

    async def exists(self, key: str) -> bool:
        return await self._aside.exists(key) or (not self._is_aside(key) and await self._store.exists(key))

    async def set(self, key: str, value: Buffer) -> None:
        """Store a value under a key; hold documents back until their arrays are complete."""
        name = key.rpartition("/")[2]
        if super()._is_aside(key) or name in SAYING:
            await self._aside.set(key, value)
            if name != ATTRIBUTES_2 and not super()._is_aside(key):
                await self._publish()
            return
        await self._append(key, value)

    async def _append(self, key: str, value: Buffer) -> None:
        if not self._store._is_open:
            self._store._sync_open()
        self._changed = True
        await self._store.set(key, value)

    async def _publish(self) -> None:
        """Append the documents and the index to the file, unless a draft remains."""
        keys = [key async for key in self._aside.list()]
        if any(map(is_draft, keys)):
            return
        for key in keys:
            if not super()._is_aside(key) and (value := await self._aside.get(key, default_buffer_prototype())):
                await self._append(key, value)
                await self._aside.delete(key)
        self.settle()

    def settle(self) -> None:
        """Write the index of a file that we created, so that others can read it."""
        if not self._mine or not self._changed:
            return
        self._store.close()
        self._store, self._changed = ZipStore(self._store.path, mode="a"), False
        self._held[:] = [self._store]

    async def delete(self, key: str) -> None:
        await self._aside.delete(key)
        if is_draft(key):
            await self._publish()
        if not self._is_aside(key) and await self._store.exists(key):
            raise TargetError(f"{key} in {self} cannot be removed: a zip file does not support it")

    async def delete_dir(self, prefix: str) -> None:
        await self._aside.delete_dir(prefix)
        if not await self.is_empty(prefix):
            raise TargetError(f"{prefix or 'what is'} in {self} cannot be removed: a zip file does not support it")


def _reopened(path: Path) -> ZipStore:
    return opened(ZipStore(path, mode="r"))


def _close(stores: list[ZipStore]) -> None:
    for store in stores:
        if store._is_open:
            store.close()


class ZipView(Wrapped[ZipTarget]):
    """Read-only view of a zip target."""

    read_only = True
    once = True

    def with_read_only(self, read_only: bool = False) -> Any:
        return self if read_only else self._store

    def _check_writable(self) -> None:
        raise ValueError(f"{self} is opened for reading")

    def __str__(self) -> str:
        return str(self._store)


def settled(store: Any) -> None:
    """Write the index of a zip target that we created; do nothing for other stores."""
    if isinstance(store, ZipTarget):
        store.settle()


def is_zip(place: Any) -> bool:
    return isinstance(place.store if isinstance(place, StorePath) else place, ZipTarget | ZipView | ZipStore)


def zip_target(store: Any) -> ZipTarget | None:
    if not isinstance(store, ZipStore) or store.read_only:
        return None
    if not store._is_open:
        store.path = store.path.absolute()
    return ZipTarget(store)
