"""Where a run writes, and how that is made: of arrays, groups and local array files the same.

.oocarrays/draft.zarr.json    ─►  the draft of the array with its own chunks and codecs, then seen as an `UnevenStore`
c/0/1                         ─►  those of its chunks that this one touches
zarr.json                     ─►  the document of that array, when all chunks are stored
.oocarrays/plan.json          ─►  memory

A run that stops leaves a draft, and is written again, not gone on with.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from zarr.abc.store import Store
from zarr.codecs import BytesCodec
from zarr.core.buffer import Buffer
from zarr.dtype import parse_dtype

from oocarrays.errors import TargetError, UnsupportedError
from oocarrays.mapping.grid import Stored
from oocarrays.plan.documents import Settings
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import create_target
from oocarrays.storage.files.places import StoreLike, local_folder, name_of, store_path
from oocarrays.storage.local.names import METADATA, OURS, draft_key
from oocarrays.storage.local.syncing import sync_file_system
from oocarrays.storage.stores.aside import AsideStore
from oocarrays.storage.stores.remote import Patience, RemoteStore
from oocarrays.storage.stores.uneven import UnevenStore, check_known, draft_uneven

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """Where a run writes, and how what is there is made."""

    store: StoreLike
    """Path or store of the target."""
    settings: Settings = field(default_factory=dict)
    """Arguments of ``zarr.create_array``; of local array files without what each rank's part gives; of a group none."""
    overwrite: bool = False
    """Whether what is there may be replaced."""
    resumed: bool = False
    """Whether it is there, left by the run that is resumed: it is not made."""
    said: tuple[str, ...] = ()
    """What is not made as it was asked for, a line each."""

    @property
    def made(self) -> Settings:
        """Return all arguments of ``zarr.create_array``; of local array files those of the largest."""
        return self.settings

    @property
    def count(self) -> int:
        """Count the chunks, or shards, that are written."""
        return self.preview().grid.count

    def preview(self) -> Stored:
        """Describe the array that it would be, as `array_file.preview` does."""
        return array_file.preview(self.settings, self.store)

    def create(self, run: str, *, durable: bool) -> ArrayFile:
        """Make the array, marked unfinished, as `creating.create_target` does."""
        return create_target(self.store, self.settings, run, overwrite=self.overwrite, durable=durable)


def written_file(store: Any, mode: Literal["r", "r+"] = "r") -> ArrayFile:
    """Open an unfinished array, and describe it as it is written."""
    return array_file.describe(array_file.open_array(store, mode=mode, unfinished=True), written=True)


def uneven_target(
    target: StoreLike, settings: Settings, lengths: tuple[tuple[int, ...], ...] | None, *, durable: bool
) -> tuple[StoreLike, Settings]:
    """Return the place and the arguments of ``zarr.create_array`` by which a run makes an array of such chunks."""
    if lengths is None:
        return target, settings
    name = name_of(target)
    check_known(name)
    if settings.get("shards") is not None or settings["zarr_format"] == 2:
        raise UnsupportedError("chunks of unequal lengths are of format 3, and not in shards")
    made = {key: value for key, value in settings.items() if key != "shards"} | {"chunks": list(map(list, lengths))}
    path, folder = store_path(target), local_folder(target)
    place = RemoteStore(path.store, name, Patience(), f"{path.path}/" if path.path else "")
    wide = parse_dtype(settings["dtype"], zarr_format=3).to_native_dtype().itemsize > 1
    plain = BytesCodec(endian="little" if wide else None)
    seen = {**made, "chunks": settings["chunks"], "compressors": None, "filters": None, "serializer": plain}
    store = RemoteStore(UnevenTarget(place, made, folder if durable else None), name, Patience())
    return store, seen
