"""Copies of stored arrays: every object under an array's path, its metadata last, without decoding.

    source/air/  0.0  0.1  1.0  .zarray        target/air/   0.0       part 0 of 2: by a digest of the key
                  │    │    │      │    ─►                   0.1  1.0  part 1 of 2
                  └────┴────┴──────┴──                       .zarray   when all parts are copied

Each worker lists the keys itself, so no process holds a list of all keys. For another Zarr format, elements without a
fixed size are converted by Zarr, which decodes and encodes each chunk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.common import concurrent_map
from zarr.core.sync import sync
from zarr.storage import StorePath

from oocarrays.errors import CorruptChunkError, OocError, StoreFailure
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.storage.files.array_file import open_array
from oocarrays.storage.files.formats import target_settings
from oocarrays.storage.files.making_room import is_node, new_documents, put_documents
from oocarrays.storage.files.places import StoreLike, local_folder, prefix_of, store_path
from oocarrays.storage.journal.texts import FOLDER, NO_CHUNKS, UNKEPT, Receipts
from oocarrays.storage.local.fs import (
    DOCUMENTS,
    PARTIAL,
    check_regular,
    failure,
    files_below,
    make_folders,
    translated,
)
from oocarrays.storage.local.syncing import replacing_file, written
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.joined import keeps_drafts, layers


def copy_part(
    source: zarr.Array,
    target: StoreLike,
    part: tuple[int, int],
    *,
    at_once: int,
    meter: Meter,
    receipts: Receipts = UNKEPT,
    fresh: bool = True,
) -> None:
    """Copy a part of an array's objects, replacing each existing object atomically."""
    place = source.store_path
    here, there = local_folder(place), local_folder(target)

    def mine(key: str) -> bool:
        return is_in_part(key, *part) and not receipts.stays(key)

    if here is not None and there is not None:
        _copy_files(here, there, mine, meter, receipts)
        if not fresh:
            _remove_files(here, there, mine)
    else:
        sync(_copy_objects(place, store_path(target), mine, at_once, meter, receipts))
        if not fresh:
            sync(_remove_objects(place, store_path(target), mine, at_once))


def copy_documents(source: zarr.Array, target: StoreLike, *, meter: Meter, durable: bool) -> None:
    """Copy the metadata documents of an array after its chunks; they make the target an array."""
    asked = ((name, sync((source.store_path / name).get())) for name in DOCUMENTS)
    found = {name: each.to_bytes() for name, each in asked if each is not None}
    with translated("write", target):
        put_documents(target, found, durable=durable)
    meter.add(copied_objects=len(found), copied_bytes=sum(map(len, found.values())))


def begin_conversion(source: zarr.Array, target: StoreLike, zarr_format: int, *, durable: bool) -> None:
    """Create the draft of an array that holds the elements of ``source`` in another Zarr format, unless it exists."""
    settings: Any = target_settings(source, tuple(source.chunks), zarr_format=zarr_format)
    with translated("write", target):
        if not is_node(target):
            made, draft = new_documents(zarr.create_array, settings), keeps_drafts(store_path(target))
            put_documents(target, made, durable=durable, draft=draft)


def convert_part(
    source: zarr.Array, target: StoreLike, part: tuple[int, int], *, meter: Meter, receipts: Receipts = UNKEPT
) -> None:
    """Rewrite a part of an array's chunks in another Zarr format through Zarr; parameters as of `copy_part`."""
    made, grid = open_array(target, mode="r+", unfinished=True), ChunkGrid.of(source.shape, tuple(source.chunks))
    for index in np.ndindex(*grid.counts):
        key = made.metadata.encode_chunk_key(index)
        if is_in_part(key, *part) and not receipts.stays(key):
            section = grid.section(index).slices
            stored = _converted(source, made, section, key)
            if stored is None:
                receipts.absent(key)
            else:
                receipts.put(key, stored)
                meter.add(copied_objects=1, copied_bytes=len(stored))


def _converted(source: zarr.Array, made: zarr.Array, section: tuple[slice, ...], key: str) -> np.ndarray | None:
    """Copy a chunk between arrays through Zarr; return its stored bytes, or None if it was not stored."""
    try:
        with translated("read", source.store_path, full=True):
            chunk = source[section]
    except OocError:
        raise
    except Exception as error:  # codecs raise various errors
        raise CorruptChunkError(f"the chunk of {source.store_path} at {section} cannot be decoded: {error}") from error
    with translated("write", made.store_path):
        made[section] = chunk
        stored = sync((made.store_path / key).get())
    folder = local_folder(made.store_path)
    if folder is not None and stored is not None:
        written(os.path.join(folder, key))
    return None if stored is None else stored.as_numpy_array().view(np.uint8)


def is_in_part(key: str, part: int, parts: int) -> bool:
    """Return whether the object under ``key`` belongs to ``part`` of ``parts``, by a hash equal in every process."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest()) % parts == part


def _is_of_array(key: str) -> bool:
    """Return whether a key is a chunk, as opposed to a document, a journal record or a partial file."""
    return key.partition("/")[0] not in NO_CHUNKS and not PARTIAL.search(key)


def _copy_files(here: str, there: str, mine: Callable[[str], bool], meter: Meter, receipts: Receipts) -> None:
    for key in _files(here):
        if mine(key):
            nbytes = _copy_file(os.path.join(here, key), os.path.join(there, key))
            meter.add(copied_objects=1, copied_bytes=nbytes)
            receipts.stored(key, nbytes)


def _remove_files(here: str, there: str, mine: Callable[[str], bool]) -> None:
    """Delete copied files that no longer exist in the source."""
    for key in list(_files(there)) if os.path.isdir(there) else ():
        copy = os.path.join(there, key)
        if mine(key) and not os.path.lexists(os.path.join(here, key)):
            with translated("write", copy):
                os.unlink(copy)
            written(copy)


def _files(folder: str) -> Iterator[str]:
    with translated("read", folder):
        yield from filter(_is_of_array, files_below(folder, skip=FOLDER, strict=True))


def _copy_file(path: str, copy: str) -> int:
    with replacing_file(copy) as partial:
        make_folders(os.path.dirname(copy))
        check_regular(path)
        try:
            shutil.copyfile(path, partial)
        except OSError as error:
            if error.filename == path:
                raise failure("read", path, error) from error
            raise
        return os.path.getsize(partial)


async def _copy_objects(
    source: StorePath, target: StorePath, mine: Callable[[str], bool], at_once: int, meter: Meter, receipts: Receipts
) -> None:
    prefix = prefix_of(source)

    async def copy(key: str) -> None:
        found = await source.store.get(prefix + key, default_buffer_prototype())
        if found is None:
            raise StoreFailure(f"cannot copy {key} of {source}: it was removed after it was listed")
        await target.store.set(f"{target.path}/{key}".lstrip("/"), found)
        receipts.put(key, found.as_numpy_array().view(np.uint8))
        meter.add(copied_objects=1, copied_bytes=len(found))

    with translated("copy", source, full=True):
        if any(getattr(each, "documents_first", False) for each in layers(target.store)):
            await _describe(source, target)
        async for keys in _listed(source, mine):
            await concurrent_map([(key,) for key in keys], copy, at_once)


async def _describe(source: StorePath, target: StorePath) -> None:
    """Copy the documents before the chunks, for stores that require an array first, unless the target has them."""
    for name in DOCUMENTS:
        found = await (source / name).get(default_buffer_prototype())
        if found is not None and not await (target / name).exists():
            await (target / name).set(found)


async def _remove_objects(source: StorePath, target: StorePath, mine: Callable[[str], bool], at_once: int) -> None:
    """Delete copied objects that no longer exist in the source."""

    async def remove(key: str) -> None:
        if not await source.store.exists(prefix_of(source) + key):
            await target.store.delete(prefix_of(target) + key)

    with translated("remove", f"what {target} has more than {source}", full=True):
        async for keys in _listed(target, mine):
            await concurrent_map([(key,) for key in keys], remove, at_once)


async def _listed(source: StorePath, mine: Callable[[str], bool]) -> AsyncIterator[list[str]]:
    """Yield the keys of a part, in batches of at most 1000."""
    prefix = prefix_of(source)
    keys: list[str] = []
    async for found in source.store.list_prefix(prefix):
        key = found.removeprefix(prefix)
        if _is_of_array(key) and mine(key):
            keys.append(key)
        if len(keys) == 1000:
            yield keys
            keys = []
    if keys:
        yield keys
