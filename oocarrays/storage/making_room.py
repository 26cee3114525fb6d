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

from oocarrays.storage.blobs import LocalBlobs, remove_tree

DOCUMENTS = (".zattrs", ".zarray", "zarr.json")
"""Metadata of arrays in format 2 and 3, in the order in which it is put: the mark of format 2 is in the first."""


def replace_local(folder: str, mark: str, old_run: str, settings: dict[str, Any]) -> None:
    """Put the metadata of a new array without chunks where an array is.

    Parameters
    ----------
    mark : str
        The attribute that an unfinished array carries.
    old_run : str
        Its value in the old array, while that goes: no run's own.
    settings : dict
        Arguments of ``zarr.create_array``.
    """
    zarr.open_array(folder, mode="r+").attrs.put({mark: old_run})
    for name in set(os.listdir(folder)).difference(DOCUMENTS):
        path = os.path.join(folder, name)
        remove_tree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    documents = _documents(settings)
    for name in DOCUMENTS:
        if name in documents:
            LocalBlobs(folder).put(name, memoryview(documents[name]))
    for name in set(DOCUMENTS).difference(documents):
        if os.path.lexists(os.path.join(folder, name)):
            os.unlink(os.path.join(folder, name))


def _documents(settings: dict[str, Any]) -> dict[str, bytes]:
    """The metadata of a new array, as Zarr writes it."""
    documents: dict[str, Buffer] = {}
    zarr.create_array(MemoryStore(documents), **settings)
    return {name: document.to_bytes() for name, document in documents.items()}
