"""Targets whose chunks are of unequal lengths: a run sees regular ones, and zarr-python writes what is stored.

.oocarrays/draft.zarr.json    ─►  the draft of the array with its own chunks and codecs, then seen as an `UnevenStore`
c/0/1                         ─►  those of its chunks that this one touches
zarr.json                     ─►  the document of that array, when all chunks are stored
.oocarrays/plan.json          ─►  memory

A run that stops leaves a draft, and is written again, not gone on with.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from zarr.abc.store import Store
from zarr.core.buffer import Buffer

from oocarrays.errors import TargetError
from oocarrays.plan.documents import Settings
from oocarrays.storage.local.devices import sync_file_system
from oocarrays.storage.local.private import OURS
from oocarrays.storage.stores.aside import AsideStore, draft_key
from oocarrays.storage.stores.uneven import METADATA, UnevenStore, draft_uneven

DRAFT = draft_key(METADATA)


class UnevenTarget(AsideStore[Store]):
    """A place at which one run makes an array of uneven chunks."""

    one_writer = UnevenStore.one_writer
    whole_keys = True

    def __init__(self, place: Store, settings: Settings, folder: str | None = None) -> None:
        super().__init__(place)
        self._settings, self._folder = settings, folder
        self._seen: UnevenStore | None = None

    def __reduce__(self) -> Any:
        raise TargetError(f"{self} {self.one_writer}")

    def with_read_only(self, read_only: bool = False) -> Any:
        """Return the same, or the array that has been made, through which nothing is written."""
        return self._seen.with_read_only(True) if read_only and self._seen else self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnevenTarget) and self._store == other._store

    __hash__ = None  # type: ignore[assignment]

    def _of(self, key: str) -> Store:
        if key == DRAFT and self._seen is None:
            return self._store
        if self._is_aside(key):
            return self._aside
        return self._seen if self._seen and (key == METADATA or key.startswith("c/")) else self._store

    async def set(self, key: str, value: Buffer) -> None:
        """Put a value under a key; the draft makes the array."""
        if key == DRAFT:
            await self._aside.set(key, value)
            await self._make(json.loads(value.to_bytes())["attributes"])
            return
        if key == METADATA and self._folder:
            await asyncio.to_thread(sync_file_system, self._folder)
        await super().set(key, value)

    async def _make(self, attributes: Settings) -> None:
        array = await draft_uneven(self._store, self._settings | {"attributes": attributes})
        self._seen = UnevenStore(array, str(self))

    async def delete(self, key: str) -> None:
        """Remove what is under a key; of the draft both, as the run sees it and as it is stored."""
        await super().delete(key)
        if key == DRAFT:
            await self._store.delete_dir(OURS)
        if key == METADATA:
            await self._store.delete(key)

    async def delete_dir(self, prefix: str) -> None:
        """Remove all below a prefix; an array that goes whole may be made again."""
        if not prefix:
            self._seen = None
        await super().delete_dir(prefix)
