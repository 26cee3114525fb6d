"""Making room for an array where another one is, so that being killed at any time costs no more than what was asked.

    mark the old array ─► remove its chunks ─► put the new documents over the old, the mark first ─► remove the rest

At every moment there is an array that carries the mark: one that may be overwritten, and is never taken for finished.
"""

from __future__ import annotations

import os
from typing import Any

import zarr
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore

from oocarrays.storage.stores.blobs import LocalBlobs, remove_tree
from oocarrays.storage.stores.durable import DocumentStore, replace, sync_path

DOCUMENTS = (".zattrs", ".zarray", ".zgroup", "zarr.json")
"""Metadata of format 2 and 3, in the order in which it is put: the mark of format 2 is in the first."""


def replace_local(folder: str, mark: str, old_run: str, settings: dict[str, Any], *, durable: bool = True) -> None:
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
    zarr.open_array(DocumentStore(folder) if durable else folder, mode="r+").attrs.put({mark: old_run})
    for name in set(os.listdir(folder)).difference(DOCUMENTS):
        path = os.path.join(folder, name)
        remove_tree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    if durable:
        sync_path(folder)
    documents = put_new(folder, settings, durable=durable)
    for name in set(DOCUMENTS).difference(documents):
        if os.path.lexists(os.path.join(folder, name)):
            os.unlink(os.path.join(folder, name))


def put_new(folder: str, settings: dict[str, Any], *, durable: bool, named: bool = True) -> dict[str, bytes]:
    """Put the metadata of a new array, as Zarr writes it, the mark first; returns it.

    Parameters
    ----------
    named : bool
        Whether the name of the folder is on the device when that is ``durable``; where not, what syncs all does that.
    """
    made: dict[str, Buffer] = {}
    zarr.create_array(MemoryStore(made), **settings)
    documents = {name: made[name].to_bytes() for name in DOCUMENTS if name in made}
    for name, document in documents.items():
        if durable:
            replace(os.path.join(folder, name), document, named=named)
        else:
            os.makedirs(folder, exist_ok=True)
            LocalBlobs(folder).put(name, memoryview(document))
    return documents
