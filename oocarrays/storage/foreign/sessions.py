"""Icechunk's sessions as targets: they take Zarr's keys only, and what a run notes beside them stays in this process.

c/0/1, zarr.json        ─►  the session, which its owner commits when the run has ended
.oocarrays/plan.json    ─►  memory: a run that is killed has lost its session, and so what it wrote
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import MemoryStore, StorePath, WrapperStore

from oocarrays.errors import TargetError

OURS = ".oocarrays"
"""How names of what is no part of an array begin."""


class SessionStore(WrapperStore[Store]):
    """A store that takes Zarr's keys only; all others are kept in memory."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._notes = MemoryStore()

    def _with_store(self, store: Store) -> SessionStore:
        made = type(self)(store)
        made._notes = self._notes
        return made

    def __reduce__(self) -> Any:
        raise TargetError(
            f"{self} is a session of icechunk, which only this process can write to: scheduler='threads', or a folder"
        )

    def __str__(self) -> str:
        return str(self._store)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionStore) and self._store == other._store

    __hash__ = None  # type: ignore[assignment]

    def _of(self, key: str) -> Store:
        return self._notes if any(part.startswith(OURS) for part in key.split("/")) else self._store

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Get what is under a key."""
        return await self._of(key).get(key, prototype, byte_range)

    async def exists(self, key: str) -> bool:
        """Return whether there is anything under a key."""
        return await self._of(key).exists(key)

    async def set(self, key: str, value: Buffer) -> None:
        """Put a value under a key."""
        await self._of(key).set(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Put a value under a key if nothing is there."""
        await self._of(key).set_if_not_exists(key, value)

    async def delete(self, key: str) -> None:
        """Remove what is under a key."""
        await self._of(key).delete(key)

    async def delete_dir(self, prefix: str) -> None:
        """Remove all below a prefix, notes too."""
        await self._notes.delete_dir(prefix)
        if self._of(prefix) is self._store:
            await self._store.delete_dir(prefix)

    async def list(self) -> AsyncIterator[str]:
        """All keys."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All keys that begin with a prefix."""
        async for key in self._notes.list_prefix(prefix):
            yield key
        if self._of(prefix) is self._store:
            async for key in self._store.list_prefix(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """All names right below a prefix."""
        async for name in self._notes.list_dir(prefix):
            yield name
        if self._of(prefix) is self._store:
            async for name in self._store.list_dir(prefix):
                yield name


def session(place: Any) -> Store | StorePath | None:
    """Return the store of a session that is written, or a path in it; None of any other place."""
    if isinstance(place, StorePath):
        store = session(place.store)
        return StorePath(store, place.path) if isinstance(store, Store) else None
    is_one = type(place).__module__.partition(".")[0] == "icechunk" and isinstance(place, Store)
    return SessionStore(place) if is_one and not place.read_only else None
