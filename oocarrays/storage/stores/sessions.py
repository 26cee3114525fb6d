"""Icechunk sessions as targets: they accept only Zarr's keys, and are forked for several writing processes.

one process         c/0/1, zarr.json        ─►  the session; its owner commits it after the run
                    .oocarrays/plan.json    ─►  memory: a killed run loses its session and its writes
workers             c/0/1                   ─►  a fork of the session in each, all merged at the end
                    zarr.json, .oocarrays/  ─►  a scratch folder visible to all workers

The arrays are created before the fork: forks that each created their own could not be merged.
"""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zarr
from zarr.abc.store import Store
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore

from oocarrays.errors import RunError, TargetError
from oocarrays.storage.local.fs import DOCUMENTS
from oocarrays.storage.stores.aside import AsideStore

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
        """Whether several processes write to it now."""
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
        if self._shared is not None and not self._is_aside(key) and self._shared.id not in _SIGNS:
            _leave_sign(self._shared, key)
        await super().set(key, value)

    def _is_aside(self, key: str) -> bool:
        path, _, name = key.rpartition("/")
        described = self._shared is not None and name in DOCUMENTS and path in self._shared.paths
        return described or super()._is_aside(key)

    def begin_sharing(self, id: str, arrays: Mapping[str, Mapping[str, Any]], folder: str) -> None:
        """Create the arrays in a fork of the session for several processes to write."""
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
            self._check_readable(fork, Path(self._shared.folder, FORKS, sign).read_text())
        self._session().merge(*opened.values())
        described = {f"{path}/{name}".lstrip("/") for path in self._shared.paths for name in DOCUMENTS}
        for key in sorted(described):
            if (value := sync(self._aside.get(key, default_buffer_prototype()))) is not None:
                sync(self._store.set(key, value))

    def _check_readable(self, fork: Any, key: str) -> None:
        """Raise if a key written by another process cannot be read here."""
        try:
            found = sync(fork.store.get(key, default_buffer_prototype()))
        except Exception:  # noqa: BLE001  icechunk's own exceptions
            found = None
        if found is None:
            raise RunError(f"the workers' writes to forks of {self} cannot be read: the repository may be in memory")

    def end_sharing(self) -> None:
        """Return to writing to the session itself."""
        self._share(None)

    def _session(self) -> Any:
        store: Any = self._store
        return store.session


def _leave_sign(shared: SharedSession, key: str) -> None:
    """Write a marker for this process, with the key of its first write."""
    sign = uuid.uuid4().hex
    try:
        Path(shared.folder, FORKS, sign).write_text(key)
    except OSError as error:
        raise RunError(
            f"{shared.folder} is not visible here: pass Resources(scratch=…), a folder that all workers see"
        ) from error
    _SIGNS[shared.id] = sign


def _arrived(shared: SharedSession) -> SessionStore:
    """Return the store of this process's fork."""
    if shared.id not in _HERE:
        _HERE[shared.id] = pickle.loads(shared.fork)
    return SessionStore(_HERE[shared.id].store, shared)


def taken_fork(id: str) -> tuple[str, bytes] | None:
    """Remove and return this process's marker and pickled fork; None if it wrote nothing."""
    fork, sign = _HERE.pop(id, None), _SIGNS.pop(id, None)
    return None if fork is None or sign is None else (sign, pickle.dumps(fork))


def session(store: Any) -> SessionStore | None:
    """Return the store of a writable session; None for other objects."""
    is_one = type(store).__module__.partition(".")[0] == "icechunk" and isinstance(store, Store)
    return SessionStore(store) if is_one and not store.read_only else None
