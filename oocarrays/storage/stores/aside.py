"""Stores beside which notes are kept: what a run writes beside the elements of an array stays in this process' memory.

c/0/1, zarr.json        ─►  the store
.oocarrays/plan.json    ─►  memory
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import MemoryStore

from oocarrays.storage.local.private import OURS
from oocarrays.storage.stores.joined import Wrapped

T = TypeVar("T", bound=Store)


class AsideStore(Wrapped[T]):
    """A store that is given some keys only; all others are kept in memory."""

    one_writer = ""
    """What is said where several workers are to write to it; nothing where they may."""

    def __init__(self, store: T) -> None:
        super().__init__(store)
        self._aside = MemoryStore()

    def _with_store(self, store: T) -> Any:
        made = type(self)(store)
        made._aside = self._aside
        return made

    def __str__(self) -> str:
        return str(self._store)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._store == other._store

    __hash__ = None  # type: ignore[assignment]

    def _is_aside(self, key: str) -> bool:
        return any(part.startswith(OURS) for part in key.split("/"))

    def _of(self, key: str) -> Store:
        return self._aside if self._is_aside(key) else self._store

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
        if not await self.exists(key):
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        """Remove what is under a key."""
        await self._of(key).delete(key)

    async def delete_dir(self, prefix: str) -> None:
        """Remove all below a prefix, notes too."""
        await self._aside.delete_dir(prefix)
        if not self._is_aside(prefix):
            await self._store.delete_dir(prefix)

    async def list(self) -> AsyncIterator[str]:
        """All keys."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All keys that begin with a prefix."""
        async for key in self._aside.list_prefix(prefix):
            yield key
        if not self._is_aside(prefix):
            async for key in self._store.list_prefix(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """All names right below a prefix, once each."""
        names = {name async for name in self._aside.list_dir(prefix)}
        if not self._is_aside(prefix):
            names |= {name async for name in self._store.list_dir(prefix)}
        for name in sorted(names):
            yield name
