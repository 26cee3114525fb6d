"""Making room for an array or a group where another one is: being killed at any time costs no more than was asked.

    mark the old one ─► remove what it has ─► put the new documents over the old, the mark first ─► remove the rest

At every moment there is one that carries the mark: that may be overwritten, and is never taken for finished. Of a
group's arrays what says that they are there goes first, for each can be opened by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import zarr
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore

from oocarrays.plan.documents import Settings
from oocarrays.storage.local.blobs import LocalBlobs, remove_tree
from oocarrays.storage.local.devices import sync_path
from oocarrays.storage.local.durable import DocumentStore, replace
from oocarrays.storage.stores.joined import DOCUMENTS, SAYING
from oocarrays.storage.stores.uneven import knowing_uneven


def replace_local(folder: str, mark: str, old_run: str, settings: Settings, *, durable: bool = True) -> None:
    """Put the metadata of a new array without chunks where an array is.

    Parameters
    ----------
    mark : str
        The attribute that an unfinished array carries.
    old_run : str
        Its value in the old array, while that goes: no run's own.
    settings : dict
        Arguments of ``zarr.create_array``.
    durable : bool
        Whether each step is on the device before the next one begins.
    """
    with knowing_uneven():
        zarr.open_array(_documents_of(folder, durable), mode="r+").attrs.put({mark: old_run})
    _clear(folder, durable=durable)
    _remove_others(folder, put_new(folder, settings, durable=durable))


def replace_group(folder: str, mark: str, old_run: str, settings: Settings, *, durable: bool = True) -> None:
    """Put the metadata of a new group with nothing in it where a group is.

    Parameters
    ----------
    mark, old_run, durable
        As `replace_local` takes them.
    settings : dict
        Arguments of ``zarr.create_group``.
    """
    group = zarr.open_group(_documents_of(folder, durable), mode="r+", use_consolidated=False)
    group.attrs.put({mark: old_run})
    for path in list(_saying(folder)):
        os.unlink(path)
        if durable:
            sync_path(os.path.dirname(path))
    _clear(folder, durable=durable)
    made: dict[str, Buffer] = {}
    zarr.create_group(MemoryStore(made), **settings)
    _remove_others(folder, _put(folder, made, durable=durable, named=True))


def _documents_of(folder: str, durable: bool) -> Any:
    return DocumentStore(folder) if durable else folder


def _saying(folder: str) -> Iterator[str]:
    """Yield the documents that say what is in a group: those that keep all of it first, the outer before the inner."""
    for at, _, names in os.walk(folder):
        taken = SAYING if at != folder else set(SAYING).difference(DOCUMENTS)
        yield from (os.path.join(at, name) for name in names if name in taken)


def _clear(folder: str, *, durable: bool) -> None:
    """Remove all but what says what a folder is."""
    for name in set(os.listdir(folder)).difference(DOCUMENTS):
        path = os.path.join(folder, name)
        remove_tree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    if durable:
        sync_path(folder)


def _remove_others(folder: str, documents: dict[str, bytes]) -> None:
    """Remove what says something in another format."""
    for name in set(DOCUMENTS).difference(documents):
        if os.path.lexists(os.path.join(folder, name)):
            os.unlink(os.path.join(folder, name))


def put_new(folder: str, settings: Settings, *, durable: bool, named: bool = True) -> dict[str, bytes]:
    """Put the metadata of a new array, as Zarr writes it, the mark first; returns it.

    Parameters
    ----------
    named : bool
        Whether the name of the folder is on the device when that is ``durable``; where not, what syncs all does that.
    """
    made: dict[str, Buffer] = {}
    zarr.create_array(MemoryStore(made), **settings)
    return _put(folder, made, durable=durable, named=named)


def _put(folder: str, made: dict[str, Buffer], *, durable: bool, named: bool) -> dict[str, bytes]:
    """Put documents as Zarr has made them, the mark first; returns them."""
    documents = {name: made[name].to_bytes() for name in DOCUMENTS if name in made}
    for name, document in documents.items():
        if durable:
            replace(os.path.join(folder, name), document, named=named)
        else:
            os.makedirs(folder, exist_ok=True)
            LocalBlobs(folder).put(name, memoryview(document))
    return documents
