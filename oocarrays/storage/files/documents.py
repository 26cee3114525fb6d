"""Metadata documents: facts about an array read without opening it, and the mark of an unfinished one.

A target has only drafts of its documents until its last chunk is stored, and their attributes carry the *unfinished*
mark. We refuse to open it, and other Zarr readers find no array. An array that is being updated carries the mark
in the document itself, as targets of version 0.5.0 do.

``zarr.open(path)``, in its default mode, makes a group of such a folder. Its documents are *stray*: they count as
absent while they are beside the draft of an array and say nothing, and the run that finishes the array deletes them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import zarr
from zarr.core.sync import sync
from zarr.errors import ContainsGroupError, NodeTypeValidationError
from zarr.storage import StorePath

from oocarrays.errors import StoreFailure, UnfinishedError
from oocarrays.plan.documents import Document
from oocarrays.storage.files.places import Place, StoreLike, is_remote, local_folder, location, store_path
from oocarrays.storage.local import fs
from oocarrays.storage.local.signatures import check_format
from oocarrays.storage.local.syncing import DocumentStore
from oocarrays.storage.stores.joined import clear_tracebacks, is_session, with_drafts, without_drafts

N = TypeVar("N", zarr.Array, zarr.Group)

WRECKED = (
    ValueError, TypeError, AttributeError, LookupError, ArithmeticError, AssertionError, NotImplementedError,
    RecursionError,
)  # fmt: skip
"""Errors that Zarr or our code raises for a malformed document: all except those of the operating system."""
CHUNKS = re.compile(r"(c|\d+)(\.\d+)*$")
"""Names directly below an array of chunks, and of folders of chunks."""


def unfinished_run(store: StoreLike) -> str | None:
    """Return the id of the run that left the array or group in ``store`` unfinished, or None."""
    try:
        in_format_3, in_format_2 = documents(store, fs.ATTRIBUTES)
        if not (in_format_3 is None or is_new_group(in_format_3)) or mark_of(in_format_2) is not None:
            return mark_of(in_format_2 if in_format_3 is None else in_format_3.get("attributes"))
        in_format_3, in_format_2, *valid = documents(store, (*map(fs.draft_key, fs.ATTRIBUTES), *fs.NODES))
    except (OSError, StoreFailure):
        if is_remote(store):
            raise
        return None
    if any(document is not None for document in valid) and not stray_documents(store):
        return None
    return mark_of(in_format_2 if in_format_3 is None else in_format_3.get("attributes"))


def is_new_group(document: Document) -> bool:
    """Return whether a document of format 3 is of a group without attributes, as Zarr makes it."""
    below = (document.get("consolidated_metadata") or {}).get("metadata")
    return document.get("node_type") == "group" and not document.get("attributes") and not below


def is_empty_group(store: StoreLike) -> bool:
    """Return whether a location holds a group without attributes and members, in either format."""
    in_format_3, array, group, attributes = documents(store, (*fs.NODES, fs.ATTRIBUTES_2))
    if (in_format_3 is None and group is None) or array is not None or attributes:
        return False
    if in_format_3 is not None and not is_new_group(in_format_3):
        return False
    place, folder = store_path(store), local_folder(store)
    names = os.listdir(folder) if folder is not None else sync(_names(place))
    below = [name for name in names if name not in fs.SAYING and not name.startswith(fs.OURS)]
    if folder is not None:
        below = [name for name in below if os.path.isdir(os.path.join(folder, name))]
    nodes = (documents(place / name if folder is None else os.path.join(folder, name), fs.NODES) for name in below)
    return all(CHUNKS.match(name) for name in below) and all(found.count(None) == len(found) for found in nodes)


async def _names(place: StorePath) -> list[str]:
    return [name async for name in place.store.list_dir(place.path)]


def stray_documents(store: StoreLike) -> list[str]:
    """Return the names of documents of an empty group beside the draft of an unfinished array."""
    if is_session(store_path(store).store):
        return []
    drafts = documents(store, list(map(fs.draft_key, (fs.METADATA, fs.ARRAY_2, fs.ATTRIBUTES_2))))
    in_format_3, array, attributes = drafts
    is_array = array is not None or (in_format_3 or {}).get("node_type") == "array"
    mark = mark_of(attributes if in_format_3 is None else in_format_3.get("attributes"))
    if not is_array or mark is None or not is_empty_group(store):
        return []
    names = (fs.METADATA, fs.GROUP_2, fs.ATTRIBUTES_2)
    return [name for name, found in zip(names, documents(store, names), strict=True) if found is not None]


def mark_of(attributes: Any) -> str | None:
    """Return the mark in the attributes of an array or a group, as JSON text unless it is a string, or None."""
    if not isinstance(attributes, dict) or fs.MARK not in attributes:
        return None
    mark = attributes[fs.MARK]
    return mark if isinstance(mark, str) else json.dumps(mark)


def unfinished_error(node: zarr.Array | zarr.Group, kind: str) -> UnfinishedError:
    return UnfinishedError(
        f"{location(node)} is unfinished: run {node.attrs[fs.MARK]} did not write all of it; "
        f"resume that run, or write the {kind} again with overwrite=True (--overwrite)"
    )


def document_or_draft(opening: Callable[..., N], store: StoreLike) -> N:
    stray = False
    try:
        return opening(store)
    except (FileNotFoundError, KeyError, ContainsGroupError, NodeTypeValidationError) as error:
        stray = isinstance(error, ContainsGroupError | NodeTypeValidationError)
        if not isinstance(store, Place) or (stray and not stray_documents(store)):
            raise
        clear_tracebacks(error)
    return without_drafts(opening(with_drafts(store_path(store), only=stray)))


def documents(store: StoreLike, names: Sequence[str]) -> list[Document | None]:
    """Read metadata documents concurrently; return None for each that is missing or malformed."""
    folder = local_folder(store)
    if folder is not None:
        return [_document_in(folder, name) for name in names]
    return sync(_documents(store_path(store), names))


def node_documents(store: StoreLike, names: Sequence[str]) -> list[Document | None]:
    """Read metadata documents, or their drafts if none of them exists."""
    found = documents(store, names)
    return documents(store, list(map(fs.draft_key, names))) if found.count(None) == len(found) else found


def node_kind(store: StoreLike) -> str | None:
    """Return the kind of node, ``"array"`` or ``"group"``, by its documents or drafts in either format; or None."""
    in_format_3, array, group = node_documents(store, fs.NODES)
    if in_format_3 is not None:
        kind = in_format_3.get("node_type")
    else:
        kind = "array" if array is not None else "group" if group is not None else None
    may_be_stray = kind == "group" and (in_format_3 is None or is_new_group(in_format_3))
    if may_be_stray and stray_documents(store):
        return "array"
    return kind if kind in ("array", "group") else None


async def _documents(place: StorePath, names: Sequence[str]) -> list[Document | None]:
    found = await asyncio.gather(*((place / name).get() for name in names))
    return [_parsed(buffer.to_bytes()) if buffer else None for buffer in found]


def _document_in(folder: str, name: str) -> Document | None:
    path = os.path.join(folder, name)
    fs.check_regular(path)
    found = fs.read_file(path)
    return None if found is None else _parsed(found)


def check_documents(folder: str) -> None:
    """Raise if a path is an unsupported file, or if a metadata document in it is a special file."""
    if not os.path.isdir(folder):
        check_format(folder)
    for name in fs.DOCUMENTS:
        fs.check_regular(os.path.join(folder, name))


def _parsed(text: bytes) -> Document | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def said(error: BaseException) -> str:
    """Return an error's message, with its type if the message is a single word."""
    words = str(error)
    return words if " " in words else f"{type(error).__name__}: {words}"


def is_finished(store: StoreLike) -> bool:
    """Return whether ``store`` holds an array or a group that no run left unfinished."""
    try:
        in_format_3, *in_format_2 = documents(store, fs.NODES)
        there = in_format_3 is not None or any(document is not None for document in in_format_2)
        return there and unfinished_run(store) is None
    except (OSError, StoreFailure):
        return False


def remove_partials(store: StoreLike, marks: Collection[str] = (), *, abandoned: bool = False) -> None:
    """Delete the partial files of interrupted writes below a local array, except names with one of the ``marks``.

    If ``abandoned``, delete those of dead processes only: others may be writing to the array.
    """
    folder = local_folder(store)
    for key in list(fs.files_below(folder)) if folder else ():
        if fs.is_abandoned(key) if abandoned else key.endswith(fs.PARTIAL_END) and key.split(".")[-2] not in marks:
            fs.remove_file(os.path.join(folder or "", key))


def document_store(store: StoreLike, *, durable: bool = True) -> StoreLike:
    """Return a store for writing metadata documents; in a local folder, it writes each atomically and synced."""
    folder = local_folder(store) if durable else None
    return store if folder is None else DocumentStore(folder)


def holds_group(store: Any) -> bool:
    if isinstance(store, zarr.Group | zarr.Array):
        return isinstance(store, zarr.Group)
    if not isinstance(store, Place):
        return False
    with suppress(OSError):
        return node_kind(store) == "group"
    return False
