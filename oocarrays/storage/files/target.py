"""Targets of a run and their creation, common to arrays, groups and local array files.

.oocarrays/draft.zarr.json    ─►  the draft of the array with its own chunks and codecs, then seen as an `UnevenStore`
c/0/1                         ─►  the chunks of the array that overlap this one
zarr.json                     ─►  the document of that array, when all chunks are stored
.oocarrays/plan.json          ─►  memory

An interrupted run leaves a draft; it is started again, not resumed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from zarr.abc.store import Store
from zarr.codecs import BytesCodec
from zarr.core.buffer import Buffer
from zarr.dtype import parse_dtype

from oocarrays.errors import TargetError, UnsupportedError
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Settings
from oocarrays.storage.files import group_file, local_files
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import TargetSpec
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.local_files import LocalFiles, RankFiles
from oocarrays.storage.files.places import StoreLike, local_folder, name_of, store_path
from oocarrays.storage.local.fs import METADATA, OURS, draft_key
from oocarrays.storage.local.syncing import sync_file_system
from oocarrays.storage.stores.joined import AsideStore
from oocarrays.storage.stores.remote import Patience, RemoteStore
from oocarrays.storage.stores.uneven import UnevenStore, check_known, draft_uneven

DRAFT = draft_key(METADATA)


class UnevenTarget(AsideStore[Store]):
    """A store in which one run creates an array of rectilinear chunks."""

    one_writer = UnevenStore.one_writer
    whole_keys = True

    def __init__(self, place: Store, settings: Settings, folder: str | None = None) -> None:
        super().__init__(place)
        self._settings, self._folder = settings, folder
        self._seen: UnevenStore | None = None

    def __reduce__(self) -> Any:
        raise TargetError(f"{self} {self.one_writer}")

    def with_read_only(self, read_only: bool = False) -> Any:
        """Return this store, or the created array as a read-only store."""
        return self._seen.with_read_only(True) if read_only and self._seen else self

    def _of(self, key: str) -> Store:
        if key == DRAFT and self._seen is None:
            return self._store
        if self._is_aside(key):
            return self._aside
        return self._seen if self._seen and (key == METADATA or key.startswith("c/")) else self._store

    async def set(self, key: str, value: Buffer) -> None:
        """Store a value under a key; storing the draft creates the array."""
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
        """Delete a key; for the draft, delete both the run's view of it and the stored folder."""
        await super().delete(key)
        if key == DRAFT:
            await self._store.delete_dir(OURS)
        if key == METADATA:
            await self._store.delete(key)

    async def delete_dir(self, prefix: str) -> None:
        """Delete all keys below a prefix; without a prefix, the array may be created again."""
        if not prefix:
            self._seen = None
        await super().delete_dir(prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTarget(TargetSpec):
    """Group of local array files that a pass writes, and their settings."""

    files: LocalFiles
    """Files to write."""

    @property
    def made(self) -> Settings:
        return local_files.largest_settings(self.files.descriptor, self.settings)

    @property
    def count(self) -> int:
        return sum(grid.count for grid in local_files.rank_grids(self.files.descriptor, self.settings))

    @property
    def places(self) -> list[StoreLike]:
        return [self.files.place(rank) for rank in range(self.files.ranks)]

    @property
    def on_own_disks(self) -> bool:
        return bool(self.files.descriptor.folders)

    def place(self, rank: int) -> StoreLike:
        return self.files.place(rank)

    def place_name(self, number: int, rank: int) -> str:
        return f"{number}/{rank}"

    def share(self, rank: int, section: Section) -> Section:
        there = RankFiles(self.files).places(rank, section.axes)
        return Section.of(axis for axis in there if isinstance(axis, range))

    def check(self, *sources: Any) -> None:
        """Raise if the target would overwrite other data; sources and targets are groups."""
        local_files.check_group_place(self.store, overwrite=self.overwrite)

    def create(self, run: str, *, durable: bool) -> None:
        """Create the group, marked unfinished; each rank makes its own file."""
        local_files.create_group(
            self.store, self.files.descriptor, self.settings, run, overwrite=self.overwrite, durable=durable
        )

    def make(self, rank: int, run: str, *, durable: bool) -> None:
        """Create the file of a rank, unless the run has made it."""
        place = self.files.place(rank)
        if unfinished_run(place) != run:
            own = local_files.rank_settings(self.files.descriptor, self.settings, rank)
            local_files.create_file(place, own, run, overwrite=self.overwrite, durable=durable)

    def open(self) -> RankFiles:
        return RankFiles(self.files, written=True)

    def finishing(self, opened: Any, *, durable: bool) -> Callable[[], Any]:
        """Return a function that removes the mark of the group: ranks have finished their files."""
        return partial(group_file.finish_group, self.store, durable=durable)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTarget(TargetSpec):
    """Group of arrays that one run makes and writes; it is finished after them."""

    attributes: Mapping[str, Any]
    """Attributes of the finished group."""

    @property
    def places(self) -> list[StoreLike]:
        return [member.store for member in self.members]

    def check(self, *sources: Any) -> None:
        """Raise if the group would overwrite a source or other data."""
        for source in sources:
            group_file.check_group_target(source.zarr, self.store, overwrite=self.overwrite)

    def create(self, run: str, *, durable: bool) -> None:
        """Create the group, marked unfinished, and then its arrays, unless the run has made or finished them."""
        if unfinished_run(self.store) != run:
            made = {"zarr_format": self.members[0].settings["zarr_format"], "attributes": {}}
            group_file.make_group(self.store, made, run, overwrite=self.overwrite, durable=durable)
        for member in reversed(self.members):
            if unfinished_run(member.store) != run and not is_finished(member.store):
                member.create(run, durable=durable)

    def open(self) -> list[ArrayFile]:
        return [member.open() for member in self.members]

    def finishing(self, opened: Any, *, durable: bool) -> Callable[[], Any]:
        """Prepare the documents of the arrays; return a function that publishes them, and then the group."""
        each = zip(self.members, opened, strict=True)
        publish = [member.finishing(array, durable=durable) for member, array in each]

        def finish() -> None:
            for one in reversed(publish):
                one()
            group_file.finish_group(self.store, attributes=self.attributes, durable=durable)

        return finish


def uneven_target(
    target: StoreLike, settings: Settings, lengths: tuple[tuple[int, ...], ...] | None, *, durable: bool
) -> tuple[StoreLike, Settings]:
    """Return a store and arguments of ``zarr.create_array`` that create an array of chunks with these lengths."""
    if lengths is None:
        return target, settings
    name = name_of(target)
    check_known(name)
    if settings.get("shards") is not None or settings["zarr_format"] == 2:
        raise UnsupportedError("chunks of unequal length need format 3 and no shards")
    made = {key: value for key, value in settings.items() if key != "shards"} | {"chunks": list(map(list, lengths))}
    path, folder = store_path(target), local_folder(target)
    place = RemoteStore(path.store, name, Patience(), f"{path.path}/" if path.path else "")
    wide = parse_dtype(settings["dtype"], zarr_format=3).to_native_dtype().itemsize > 1
    plain = BytesCodec(endian="little" if wide else None)
    seen = {**made, "chunks": settings["chunks"], "compressors": None, "filters": None, "serializer": plain}
    store = RemoteStore(UnevenTarget(place, made, folder if durable else None), name, Patience())
    return store, seen
