"""Targets: checks of their location, drafts of new arrays, and the documents that finish them.

    check_target ─► create_target ─► chunks are written ─► finishing ─► take_mark_away

Scratch gets its documents at once: only the run that created it reads it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import zarr
from zarr.codecs import BytesCodec
from zarr.core.sync import sync

from oocarrays.errors import NotFoundError, RunError, StoreFailure
from oocarrays.mapping.grid import Stored
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Settings
from oocarrays.storage.files.array_file import ArrayFile, describe, open_array, preview
from oocarrays.storage.files.documents import documents, remove_partials, unfinished_run
from oocarrays.storage.files.making_room import (
    Documents,
    check_apart,
    check_replaceable,
    check_target_place,
    new_documents,
    put_documents,
    put_target,
    remove_stray,
    take_mark_away,
    without_mark,
)
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.local import syncing
from oocarrays.storage.local.fs import METADATA, sync_path, translated
from oocarrays.storage.local.syncing import rename, write_beside
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.urls import opened

BOOT = "oocarrays:boot"
"""Attribute of scratch in the system's cache, with the id of the system boot that it does not outlive."""


def check_target(source: zarr.Array, store: StoreLike, *, overwrite: bool) -> None:
    """Raise if the target would overwrite the source or other data."""
    check_apart(source, store)
    check_place(store, overwrite=overwrite)


def check_place(store: StoreLike, *, overwrite: bool) -> None:
    """Raise if a target exists and may not be replaced, as `check_target` does, for any source."""
    check_target_place(store)
    check_replaceable(opened(store), "not a Zarr array", _is_array, overwrite=overwrite)


def _is_array(store: StoreLike) -> bool:
    try:
        open_array(store, unfinished=True)
    except (NotFoundError, StoreFailure):
        return unfinished_run(store) is not None
    return True


def create_target(
    store: StoreLike, settings: Settings, run: str, *, overwrite: bool, durable: bool = True
) -> ArrayFile:
    """Create the draft of the target, marked unfinished. A new folder's name is synced later with other files."""
    how = {"overwrite": overwrite, "durable": durable, "named": False}
    try:
        with translated("write", store):
            put_target(store, zarr.create_array, settings, run, **how)
            return describe(open_array(store, mode="r+", unfinished=True), written=True)
    except NotFoundError as error:
        raise RunError(f"the target {store} was removed while it was being created") from error


def create_scratch(
    folder: str | RemoteStore, like: ArrayFile, stored: Stored, *, durable: bool = False, boot: str = ""
) -> ArrayFile:
    """Create or open an uncompressed array in the chunks of ``stored``, with the dtype and fill value of ``like``."""
    if not is_scratch(folder):
        remove_scratch(folder)
    with suppress(NotFoundError):
        return describe(open_array(folder, mode="r+"))
    settings: Settings = {
        "shape": stored.grid.shape,
        "chunks": stored.grid.chunks,
        "dtype": like.dtype.newbyteorder("="),
        "fill_value": like.fill_value,
        "filters": None,
        "compressors": None,
        "serializer": BytesCodec(endian=sys.byteorder if like.dtype.itemsize > 1 else None),
        "attributes": {BOOT: boot} if boot else {},
    }
    with translated("write", folder):
        if isinstance(folder, RemoteStore):
            return describe(zarr.create_array(folder, **settings))
        put_documents(folder, new_documents(zarr.create_array, settings), durable=durable, named=False)
    return describe(open_array(folder, mode="r+"))


def is_scratch(folder: str | RemoteStore) -> bool:
    """Return whether a folder holds a scratch array that survived the last boot of the system."""
    with suppress(OSError):
        said = (documents(folder, [METADATA])[0] or {}).get("attributes")
        return isinstance(said, dict) and said.get(BOOT) in (None, syncing.boot())
    return False


def remove_scratch(folder: str | RemoteStore) -> None:
    """Delete a scratch array, or a folder of them, metadata first, so that an interrupted removal leaves no array."""
    if isinstance(folder, RemoteStore):
        with suppress(StoreFailure):
            sync(folder.delete_dir(""))
        return
    if os.path.islink(folder):
        return
    with suppress(FileNotFoundError):  # another rank that shares the folder may be first
        for array in (Path(folder), *Path(folder).glob("*")):
            if array.is_symlink():  # never outside the folder
                continue
            with suppress(OSError):
                (array / METADATA).unlink()
    shutil.rmtree(folder, ignore_errors=True)


def finish_target(file: ArrayFile, *, durable: bool = True) -> None:
    """Write the documents of a target without the mark, after all chunks are stored, and synced if ``durable``."""
    take_mark_away(file.folder or file.zarr.store_path, _finished(file), durable=durable)


def finishing(file: ArrayFile, *, durable: bool = True) -> Callable[[], None]:
    """Write the documents without the mark to temporary names; return a function that publishes them.

    If ``durable``, one sync covers both these files and the chunks.
    """
    folder = file.folder
    if folder is None or not durable:
        return partial(finish_target, file, durable=durable)
    found, beside = _finished(file), []
    for name, document in found.items():
        path = os.path.join(folder, name)
        with translated("write", path):
            beside.append((write_beside(path, document, synced=False), path))

    def rename_all() -> None:
        with translated("write", folder):
            for written, path in beside:
                rename(written, path)
                sync_path(folder)

    return partial(take_mark_away, folder, found, rename_all)


def _finished(file: ArrayFile) -> Documents:
    if file.folder is not None:
        remove_stray(file.folder)
    file.presence.check()
    return without_mark(file.zarr if file.folder is None else open_array(file.folder, unfinished=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """Target of a run, and the settings that create it."""

    store: StoreLike
    """Path or store of the target."""
    settings: Settings = field(default_factory=dict)
    """Arguments of ``zarr.create_array``; for local array files without those set per rank; empty for a group."""
    overwrite: bool = False
    """Whether an existing target may be replaced."""
    said: tuple[str, ...] = ()
    """Notices of settings that differ from the request, one line each."""
    members: tuple[TargetSpec, ...] = ()
    """Arrays of a group."""

    @property
    def made(self) -> Settings:
        """Return all arguments of ``zarr.create_array``; for local array files, those of the largest file."""
        return self.settings

    @property
    def count(self) -> int:
        """Number of chunks, or shards, to write."""
        return self.preview().grid.count

    def preview(self) -> Stored:
        return preview(self.made, self.store)

    @property
    def places(self) -> list[StoreLike]:
        return [self.store]

    @property
    def on_own_disks(self) -> bool:
        """Whether the chunks are on workers' own disks, unreachable for other processes."""
        return False

    def place(self, rank: int) -> StoreLike:
        return self.store

    def place_name(self, number: int, rank: int) -> str:
        """Return the name of that location in a journal, for the target with this number."""
        return str(number)

    def share(self, rank: int, section: Section) -> Section:
        """Return a section that a rank writes as a section of the file at its location."""
        return section

    def check(self, *sources: Any) -> None:
        """Raise if the target would overwrite the files ``sources`` or other data."""
        for source in sources:
            if isinstance(source, ArrayFile):
                check_apart(source.zarr, self.store)
        check_place(self.store, overwrite=self.overwrite)

    def create(self, run: str, *, durable: bool) -> Any:
        """Create the array, marked unfinished, as `creating.create_target` does."""
        return create_target(self.store, self.settings, run, overwrite=self.overwrite, durable=durable)

    def resume(self, run: str, *, durable: bool) -> None:
        """Prepare the target that a run has made for the rest of the run: remove partial files."""
        remove_partials(self.store)

    def open(self) -> Any:
        return written_file(self.store, mode="r+")

    def finishing(self, opened: Any, *, durable: bool) -> Callable[[], Any]:
        """Prepare the documents of the opened array; return a function that removes the unfinished mark."""
        return finishing(opened, durable=durable)


def written_file(store: Any, mode: Literal["r", "r+"] = "r") -> ArrayFile:
    """Open an unfinished array and describe it for writing."""
    return describe(open_array(store, mode=mode, unfinished=True), written=True)
