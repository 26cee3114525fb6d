"""Target creation: drafts of documents in an empty location, or in place of an array or a group.

    draft of the new one ─► remove the documents of the old one ─► remove its other files ─► draft with the run's mark

An interruption at any time is safe. Until its documents are removed, the old array is complete for every reader. From
then on only a marked draft exists, which may be overwritten and is never taken for finished. A group's arrays lose
their documents first, because each can be opened separately.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import zarr
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.core.sync import sync
from zarr.errors import ContainsArrayError, ContainsGroupError
from zarr.storage import MemoryStore, StorePath, ZipStore

from oocarrays.errors import OocError, TargetError
from oocarrays.mapping.given import flag
from oocarrays.plan.documents import Settings
from oocarrays.storage.files.documents import documents, is_empty_group, node_kind, stray_documents
from oocarrays.storage.files.entries import entries_of
from oocarrays.storage.files.places import (
    Place,
    StoreLike,
    lie_together,
    local_folder,
    location,
    member_store,
    parts_of,
    place_name,
    store_path,
)
from oocarrays.storage.files.presence import CHUNK, keys_below
from oocarrays.storage.local import fs
from oocarrays.storage.stores.joined import innermost, keeps_drafts
from oocarrays.storage.stores.underway import lists_keys
from oocarrays.storage.stores.urls import check_replaces

Documents = Mapping[str, bytes]
"""Documents of one array or group by name, in the order in which they are written."""


def check_replaceable(store: StoreLike, other: str, is_kind: Callable[[Any], bool], *, overwrite: bool) -> None:
    """Raise if a target exists and may not be replaced: without ``overwrite``, or if it holds anything else."""
    overwrite = flag(overwrite, "overwrite")
    check_replaces(store, new=True)
    if getattr(store, "read_only", False):
        raise TargetError(f"the target {store} is opened read-only")
    if is_free(store):
        return
    if not is_kind(store) and not is_leftover(store) and not is_empty_group(store):
        raise TargetError(f"target {store} already exists and is {other}; it is not overwritten")
    if not overwrite:
        raise already_exists(store)
    check_replaces(store)
    foreign = next((key for key in _keys(store) if not _is_part(key)), None)
    if foreign is not None:
        raise TargetError(
            f"the target {store} holds {foreign!r}, which is not part of a Zarr array or group; nothing is "
            "overwritten: move it, or choose another target"
        )


def check_apart(source: zarr.Array | zarr.Group, store: StoreLike) -> None:
    """Raise if the target is the source, or if one contains the other."""
    check_target_place(store)
    check_replaces(store, new=True)
    place = source.store_path
    here, there = place_name(place), place_name(store)
    mine, theirs = parts_of(place), parts_of(store)
    if there is None and (target := store_path(store)).store == place.store:  # a store without a name
        here, there = place.path, target.path
        mine, theirs = ((here,), (there,)) if here or isinstance(source, zarr.Group) else ((), ())
    if here is not None and here == there:
        raise TargetError(f"the target {store} is the source itself")
    if any(lie_together(a, b) for a in mine for b in theirs):
        raise TargetError(f"the target {store} and the source {location(source)} are one inside the other")


def check_target_place(store: Any) -> None:
    if not isinstance(store, Place):
        raise TargetError(f"the target is of type {type(store).__name__}: pass a path, a URL or a Zarr store")


def is_free(store: StoreLike) -> bool:
    """Return whether the location is empty; raise if its parent folder does not exist."""
    if not is_empty(store):
        return False
    inner = innermost(store.store if isinstance(store, StorePath) else store)
    parent = os.path.dirname(str(inner.path) if isinstance(inner, ZipStore) else local_folder(store) or "/")
    if not os.path.isdir(parent):
        raise TargetError(f"the target {store} cannot be created: folder {parent} does not exist; create it first")
    return True


def is_empty(store: StoreLike) -> bool:
    """Return whether a location is empty, apart from the journal of a run that has not created its target yet."""
    folder = local_folder(store)
    if folder is not None:
        names = os.listdir(folder) if os.path.isdir(folder) else [folder]
        left = [name for name in names if not fs.PARTIAL.search(name)]
        return not os.path.lexists(folder) or not left or (left == [fs.OURS] and not is_node(folder))
    place = store_path(store)
    return sync(place.store.is_empty(place.path)) or (names_in(store) == [fs.OURS] and not is_node(store))


def new_documents(create: Callable[..., Any], settings: Settings) -> Documents:
    """Return the documents that ``zarr.create_array`` or ``zarr.create_group`` writes for these arguments."""
    made: dict[str, Buffer] = {}
    create(MemoryStore(made), **settings)
    return in_order(made)


def in_order(made: Mapping[str, Buffer]) -> Documents:
    """Return documents from Zarr in the order in which they are written: that of the array itself last."""
    return {name: made[name].to_bytes() for name in fs.SAYING if name in made}


def without_mark(node: zarr.Array | zarr.Group, more: Mapping[str, Any] = MappingProxyType({})) -> Documents:
    """Return the documents of an open array or group without the mark, and with more attributes."""
    attributes = {name: value for name, value in node.attrs.asdict().items() if name != fs.MARK} | dict(more)
    return in_order(replace(node.metadata, attributes=attributes).to_buffer_dict(default_buffer_prototype()))


def already_exists(store: object) -> TargetError:
    return TargetError(f"the target {store} already exists; pass overwrite=True (--overwrite) to replace it")


def put_target(
    store: StoreLike,
    create: Callable[..., Any],
    settings: Settings,
    run: str,
    *,
    overwrite: bool,
    durable: bool,
    named: bool = True,
) -> None:
    """Write the drafts of a target, marked unfinished, that ``zarr.create_array`` or ``zarr.create_group`` creates."""

    def marked(mark: str) -> Settings:
        return {**settings, "attributes": {**settings["attributes"], fs.MARK: mark}}

    if not keeps_drafts(store_path(store)):
        try:
            create(store, **marked(run), overwrite=overwrite)
        except (ContainsArrayError, ContainsGroupError):
            raise already_exists(store) from None
        return
    if not overwrite and is_node(store):
        raise already_exists(store)
    draft = new_documents(create, marked(run))
    if overwrite and (set(names_in(store)) - {fs.OURS} or is_node(store)):
        put_documents(store, new_documents(create, marked(f"{run}-makes-room")), durable=durable, draft=True)
        make_room(store, durable=durable)
        remove_documents(store, map(fs.draft_key, set(fs.DOCUMENTS).difference(draft)))
    put_documents(store, draft, durable=durable, draft=True, named=named)
    folder = local_folder(store)
    if folder is not None and durable:
        fs.sync_path(folder)  # the name of the draft's folder, which a lock may have created


def is_node(store: StoreLike) -> bool:
    """Return whether an array, a group or a draft of one exists."""
    return any(found is not None for found in documents(store, (*fs.NODES, *map(fs.draft_key, fs.NODES))))


def is_leftover(store: StoreLike) -> bool:
    folder = local_folder(store)
    is_file = folder is not None and os.path.lexists(folder) and not os.path.isdir(folder)
    return not is_file and all(name.startswith(fs.OURS) for name in names_in(store))


def _keys(store: StoreLike) -> Iterable[str]:
    folder, place = local_folder(store), store_path(store)
    if folder is not None:
        return fs.files_below(folder, skip=fs.OURS)
    return keys_below(place) if lists_keys(place.store) else ()


def _is_part(key: str) -> bool:
    """Return whether a key is of a document, of a chunk, or of a leftover of a run."""
    name = key.rpartition("/")[2]
    chunk = re.fullmatch(r"(c|[0-9]+)(\.[0-9]+)*", name)  # the last part of its key, in either format
    known = name in fs.SAYING or chunk or fs.PARTIAL.search(name) or name.startswith(".nfs")
    return bool(known) or any(part.startswith(fs.OURS) for part in key.split("/"))


def names_in(store: StoreLike) -> list[str]:
    return entries_of(store).names()


def put_documents(
    store: StoreLike, found: Documents, *, durable: bool, draft: bool = False, named: bool = True
) -> None:
    entries = entries_of(store)
    for name, document in found.items():
        key = fs.draft_key(name) if draft else name
        if not durable:
            entries.make_folder(os.path.dirname(key))
        entries.replace(key, document, durable=durable, named=named)


def publish_drafts(store: StoreLike, *, durable: bool) -> None:
    """Write the documents from their drafts, and delete the drafts."""
    entries = entries_of(store)
    drafts = {name: entries.get(fs.draft_key(name)) for name in fs.SAYING}
    found = {name: draft for name, draft in drafts.items() if draft is not None}
    put_documents(store, found, durable=durable)
    if found:
        remove_drafts(store, found)


def take_mark_away(
    store: StoreLike, found: Documents, put: Callable[[], None] | None = None, *, durable: bool = True
) -> None:
    """Write the documents of a finished target, or call ``put``, which does that, and delete the drafts."""
    put() if put else put_documents(store, found, durable=durable)
    remove_drafts(store, found)


def remove_drafts(store: StoreLike, names: Iterable[str]) -> None:
    """Delete drafts of written documents, and their folder if it is empty.

    A draft that cannot be deleted stays: readers ignore it beside its document.
    """
    with suppress(OSError, OocError):
        remove_documents(store, map(fs.draft_key, names))
        entries_of(store, fs.OURS).clear_if_empty()


def remove_documents(store: StoreLike, names: Iterable[str]) -> None:
    """Delete documents that exist, in order."""
    entries = entries_of(store)
    for name in names:
        entries.delete([name])


def remove_stray(store: StoreLike) -> None:
    """Delete the documents of an empty group beside the draft of an array."""
    remove_documents(store, stray_documents(store))


def make_room(store: StoreLike, *, durable: bool) -> None:
    """Delete an array, or a group with its contents, documents first; keep the folder of our own records."""
    entries, folder = entries_of(store), local_folder(store) if durable else None

    def settle(key: str = "-") -> None:
        """Sync the folder that names a key; by default, the array's own."""
        if folder is not None:
            fs.sync_path(os.path.dirname(os.path.join(folder, key)))

    settle()  # the name of the draft's folder
    for key in list(_saying(store)):
        entries.delete([key])
        settle(key)
    for name in set(entries.names()) - {fs.OURS}:
        entries.remove(name)
    settle()


def _saying(store: StoreLike, at: str = "") -> Iterator[str]:
    """Yield the documents of an array, or of a group and its contents, outer before inner."""
    names = set(names_in(store))
    yield from (f"{at}{name}" for name in fs.SAYING if name in names)
    kind = node_kind(store) if names.intersection(fs.NODES) else None
    for name in () if kind == "array" else names - {fs.OURS, *fs.SAYING}:
        below = member_store(store, name)
        if (kind == "group" or not CHUNK.match(name)) and not (isinstance(below, str) and os.path.islink(below)):
            yield from _saying(below, f"{at}{name}/")
