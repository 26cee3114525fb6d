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
from functools import partial
from pathlib import Path

import zarr
from zarr.codecs import BytesCodec
from zarr.core.sync import sync

from oocarrays.errors import NotFoundError, RunError, StoreFailure
from oocarrays.mapping.grid import Stored
from oocarrays.plan.documents import Settings
from oocarrays.storage.files.array_file import ArrayFile, describe, open_array
from oocarrays.storage.files.documents import documents, unfinished_run
from oocarrays.storage.files.making_room import (
    Documents,
    check_apart,
    check_replaceable,
    check_target_place,
    new_documents,
    put_documents,
    put_target,
    remove_drafts,
    without_mark,
)
from oocarrays.storage.files.places import (
    StoreLike,
)
from oocarrays.storage.local import syncing
from oocarrays.storage.local.fs import METADATA, translated
from oocarrays.storage.local.syncing import Prepared
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
    take_mark_away(partial(_publish, file, _finished(file), durable=durable))


def finishing(file: ArrayFile, *, durable: bool = True) -> Callable[[], None]:
    """Write the documents without the mark to temporary names; return a function that publishes them.

    If ``durable``, one sync covers both these files and the chunks.
    """
    if file.folder is None or not durable:
        return partial(finish_target, file, durable=durable)
    found, prepared = _finished(file), Prepared(file.folder)
    for name, document in found.items():
        prepared.prepare(name, document)

    def publish() -> None:
        prepared.publish()
        remove_drafts(prepared.folder, found)

    return partial(take_mark_away, publish)


def take_mark_away(put: Callable[[], None]) -> None:
    """Call ``put``, which writes the documents of a finished target and deletes the drafts."""
    put()


def _publish(file: ArrayFile, found: Documents, *, durable: bool) -> None:
    place = file.zarr.store_path if file.folder is None else file.folder
    put_documents(place, found, durable=durable)
    remove_drafts(place, found)


def _finished(file: ArrayFile) -> Documents:
    file.presence.check()
    return without_mark(file.zarr if file.folder is None else open_array(file.folder, unfinished=True))
