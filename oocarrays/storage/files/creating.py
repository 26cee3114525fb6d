"""Targets: places that may be written to, arrays that are made there, marked unfinished, and taking the mark away.

    check_target ─► create_target ─► chunks are written ─► finishing ─► take_mark_away

Scratch is made in the same way, and carries no such mark: nobody is to read it but the run that made it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import zarr
from zarr.abc.store import Store
from zarr.codecs import BytesCodec
from zarr.core.sync import sync
from zarr.errors import ContainsArrayError, ContainsGroupError
from zarr.storage import StorePath, ZipStore

from oocarrays.errors import NotFoundError, RunError, StoreFailure, TargetError
from oocarrays.mapping.given import flag
from oocarrays.mapping.grid import Stored
from oocarrays.plan.documents import Settings
from oocarrays.storage.files.array_file import ArrayFile, describe, open_array
from oocarrays.storage.files.documents import MARK, METADATA, NODES, PARTIAL, document_store, unfinished_run
from oocarrays.storage.files.making_room import put_new, replace_local
from oocarrays.storage.files.places import Place, StoreLike, local_folder, parts_of, place_name, store_path
from oocarrays.storage.local import devices
from oocarrays.storage.local.durable import PreparedStore
from oocarrays.storage.local.refused import write_error
from oocarrays.storage.stores.joined import innermost
from oocarrays.storage.stores.nested import lie_together
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.urls import check_replaces, opened

BOOT = "oocarrays:boot"
"""The attribute of scratch in the system's cache; its value is the start of the system that it does not outlive."""


def check_target(source: zarr.Array, store: StoreLike, *, overwrite: bool) -> None:
    """Refuse a target that would cost the user data.

    Raises
    ------
    TargetError
        Where the target is the source, or one lies inside the other; where it exists and ``overwrite`` is not asked
        for; and where it is a directory that is not a Zarr array, whatever is asked for.
    """
    check_apart(source, store)
    check_place(store, overwrite=overwrite)


def check_apart(source: zarr.Array | zarr.Group, store: StoreLike) -> None:
    """Refuse a target that is the source, and one where the one lies inside the other.

    Raises
    ------
    TargetError
        It names both; or what is given is no place for an array.
    """
    check_target_place(store)
    check_replaces(store, new=True)
    here, there = place_name(source.store_path.store, source.store_path.path), place_name(store)
    if (here and here == there) or (source.store_path.store == store and not source.store_path.path):
        raise TargetError(f"the target {store} is the source itself")
    mine, theirs = parts_of(source.store_path.store, source.store_path.path), parts_of(store)
    if here and there and any(lie_together(a, b) for a in mine for b in theirs):
        raise TargetError(f"the target {there} and the source {here} lie one inside the other")


def check_target_place(store: Any) -> None:
    """Raise if a target is not a place of an array.

    Raises
    ------
    TargetError
        It names the type.
    """
    if not isinstance(store, Place):
        raise TargetError(f"the target is of type {type(store).__name__}: it takes a path, a URL or a Zarr store")


def check_place(store: StoreLike, *, overwrite: bool) -> None:
    """Refuse a target that is there, as `check_target` does, whatever is written to it."""
    check_target_place(store)
    check_replaces(opened(store), new=True)
    overwrite = flag(overwrite, "overwrite")
    if isinstance(store, Store) and store.read_only:
        raise TargetError(f"the target {store} is opened read-only")
    if is_free(store):
        return
    if not overwrite:
        raise TargetError(f"the target {store} exists; ask for overwrite to replace it")
    check_replaces(store)
    if not _is_array(store) and unfinished_run(store) is None:  # of which the mark alone is there, or no metadata else
        raise TargetError(f"the target {store} exists and is not a Zarr array; it is not overwritten")


def is_free(store: StoreLike) -> bool:
    """Return whether a target can be made where nothing is.

    Raises
    ------
    TargetError
        If its parent folder does not exist: a mistyped path makes no folders.
    """
    if not is_empty(store):
        return False
    inner = innermost(store.store if isinstance(store, StorePath) else store)
    parent = os.path.dirname(str(inner.path) if isinstance(inner, ZipStore) else local_folder(store) or "/")
    if not os.path.isdir(parent):
        raise TargetError(f"the target {store} cannot be made: there is no folder {parent}; make it first")
    return True


def is_empty(store: StoreLike) -> bool:
    """Return whether there is nothing at all."""
    folder = local_folder(store)
    if folder is not None:
        names = os.listdir(folder) if os.path.isdir(folder) else [folder]
        return not os.path.lexists(folder) or all(map(PARTIAL.search, names))
    place = store_path(store)
    return sync(place.store.is_empty(place.path))


def _is_array(store: StoreLike) -> bool:
    try:
        open_array(store, unfinished=True)
    except (NotFoundError, StoreFailure):
        return False
    return True


def create_target(
    store: StoreLike, settings: Settings, run: str, *, overwrite: bool, durable: bool = True
) -> ArrayFile:
    """Make the target, marked unfinished; what syncs all that a run writes names one that is ``durable``, and new.

    Raises
    ------
    TargetError
        Where it has appeared meanwhile.
    RunError
        Where it goes again while it is made.
    StoreFailure
        Where it cannot be made.
    """
    marked = settings | {"attributes": settings["attributes"] | {MARK: run}}
    folder = local_folder(store)
    try:
        if folder is None:
            return describe(zarr.create_array(store, **marked, overwrite=overwrite), written=True)  # type: ignore[arg-type]
        if overwrite and _is_array(folder):
            replace_local(folder, MARK, f"{run}-makes-room", marked, durable=durable)
        else:
            _make_new(folder, marked, durable=durable)
        return describe(open_array(store, mode="r+", unfinished=True), written=True)
    except NotFoundError as error:
        raise RunError(f"the target {store} was taken away while it was made") from error
    except (ContainsArrayError, ContainsGroupError):
        raise TargetError(f"the target {store} exists; ask for overwrite to replace it") from None
    except OSError as error:
        raise write_error(str(store), error) from error


def _make_new(folder: str, settings: Settings, *, durable: bool) -> None:
    """Make an array where there is none, unless something else has appeared there."""
    if any(os.path.lexists(os.path.join(folder, name)) for name in NODES):
        raise ContainsArrayError("", folder)
    put_new(folder, settings, durable=durable, named=False)


def create_scratch(
    folder: str | RemoteStore, like: ArrayFile, stored: Stored, *, durable: bool = False, boot: str = ""
) -> ArrayFile:
    """Make a plain array for the chunks of ``stored``, with the dtype and fill value of ``like``, or open it.

    Parameters
    ----------
    boot : str
        The start of the system that it does not outlive: it stays in the cache. Empty where it is on a device.
    """
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
    try:
        if isinstance(folder, RemoteStore):
            return describe(zarr.create_array(folder, **settings))
        put_new(folder, settings, durable=durable, named=False)
    except OSError as error:
        raise write_error(str(folder), error) from error
    return describe(open_array(folder, mode="r+"))


def is_scratch(folder: str | RemoteStore) -> bool:
    """Return whether there is a scratch array in a folder, and nothing of it was lost with the system's cache."""
    if isinstance(folder, RemoteStore):
        return sync(folder.exists(METADATA))
    try:
        metadata = json.loads(Path(folder, METADATA).read_bytes())
        return metadata.get("attributes", {}).get(BOOT) in (None, devices.boot())
    except (OSError, ValueError, AttributeError):
        return False


def remove_scratch(folder: str | RemoteStore) -> None:
    """Remove a scratch array, or a folder of them, their metadata first: what a removal cut short leaves is none."""
    if isinstance(folder, RemoteStore):
        with suppress(StoreFailure):
            sync(folder.delete_dir(""))
        return
    if os.path.islink(folder):
        return
    with suppress(FileNotFoundError):  # where ranks share it, another may be first
        for array in (Path(folder), *Path(folder).glob("*")):
            if array.is_symlink():  # never out of the folder
                continue
            with suppress(OSError):
                (array / METADATA).unlink()
    shutil.rmtree(folder, ignore_errors=True)


def finish_target(file: ArrayFile, *, durable: bool = True) -> None:
    """Take the unfinished mark away: every chunk is written, and where that is to be ``durable`` on its device.

    Raises
    ------
    RunError
        Where it is not there any more, or is another one.
    """
    documents = document_store(file.folder) if durable and file.folder is not None else None
    take_mark_away(partial(_put_finished, file, documents))


def finishing(file: ArrayFile, *, durable: bool = True) -> Callable[[], None]:
    """Write what has no unfinished mark beside what has it; what is returned puts it in its place.

    Where that is to be ``durable``, all is synced in between, and so the device is asked once less.

    Raises
    ------
    RunError
        As of `finish_target`.
    """
    if file.folder is None or not durable:
        return partial(finish_target, file, durable=durable)
    store = PreparedStore(file.folder)
    _put_finished(file, store)
    return partial(take_mark_away, store.publish)


def take_mark_away(put: Callable[[], None]) -> None:
    """Put the documents of a target that is finished in the place of those that are marked."""
    put()


def _put_finished(file: ArrayFile, store: StoreLike | None) -> None:
    file.presence.check()
    array = file.zarr if store is None else zarr.open_array(store, mode="r+")  # type: ignore[arg-type]
    attributes = dict(array.attrs.asdict())
    attributes.pop(MARK, None)
    array.attrs.put(attributes)
