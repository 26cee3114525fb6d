"""Locations of arrays: local folders, URLs, stores and prefixes of them, and names that identify them.

Names are not unique: a folder that is mounted twice has two, and on case-insensitive file systems ``A.zarr`` is
``a.zarr``.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import PurePath
from typing import Any

import zarr
from zarr.abc.store import Store
from zarr.storage import LocalStore, StorePath

from oocarrays.errors import InputError
from oocarrays.storage.local.fs import existing
from oocarrays.storage.stores.joined import joined_in, layers
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.urls import store_of

Place = str | os.PathLike | Store | StorePath
"""Types of an array's location."""
StoreLike = str | os.PathLike[str] | Store | StorePath


def local_folder(store: Any) -> str | None:
    """Return the real path of a folder, of a store in one, or of a location in that store; None for others."""
    if isinstance(store, str | os.PathLike):
        return None if "://" in str(store) else os.path.realpath(store)
    path, inner = (store.path, store.store) if isinstance(store, StorePath) else ("", store)
    return os.path.realpath(os.path.join(str(inner.root), path)) if isinstance(inner, LocalStore) else None


def folders_of(store: Any) -> tuple[str, ...]:
    """Return the local directories that contain an array or its parts: one, or one per disk; empty for other stores."""
    folder = local_folder(store)
    if folder is not None:
        return (folder,)
    joined = joined_in(store)
    return tuple(map(os.path.realpath, joined[0].folders)) if joined else ()


def parts_of(store: Any) -> tuple[str, ...]:
    """Return the locations that contain an array: its own, or one on each disk."""
    joined, name = joined_in(store), place_name(store)
    if joined is None:
        return (name,) if name else ()
    below = joined[1].strip("/")
    places = (os.path.realpath(disk) if os.path.isabs(disk) else disk for disk in joined[0].disks)
    return tuple(f"{place.rstrip('/')}/{below}".rstrip("/") for place in places)


def in_files(store: Any) -> bool:
    """Return whether each chunk is a local file, or a byte range of one, with random access."""
    if local_folder(store) is not None:
        return True
    joined = joined_in(store)
    return joined is not None and joined[0].files(joined[1]) is not None


def is_remote(store: Any) -> bool:
    """Return whether a store is reached by network requests."""
    if isinstance(store, str | os.PathLike | LocalStore):
        return False
    return any(isinstance(each, RemoteStore) for each in layers(store))


def place_below(place: str | RemoteStore, name: str) -> str | RemoteStore:
    return place.below(name) if isinstance(place, RemoteStore) else f"{place}/{name}"


def place_name(store: Any) -> str | None:
    """Return the folder of a local location, or the URL of a remote one; None for others."""
    path, inner = (store.path, store.store) if isinstance(store, StorePath) else ("", store)
    return f"{inner.name}/{path}".rstrip("/") if isinstance(inner, RemoteStore) else local_folder(store)


def place_of(source: Any) -> str | None:
    """Return the folder or the URL of an array, its file, a group or a store, if it has one."""
    array = getattr(source, "zarr", source)
    return place_name(getattr(array, "store_path", array))


def name_of(store: StoreLike) -> str:
    place = store_path(store)
    return place_name(place) or str(place)


def location(node: zarr.Array | zarr.Group) -> str:
    """Return the location of an array or a group for messages: its directory, or its store and path."""
    return local_folder(node.store_path) or str(node.store_path)


def store_path(store: StoreLike) -> StorePath:
    place = store_of(store)
    if isinstance(place, StorePath):
        return place
    if isinstance(place, str | os.PathLike):
        return StorePath(LocalStore(str(place)))
    check_is_place(place)
    return StorePath(place)


def member_store(store: StoreLike, name: str) -> StoreLike:
    folder = local_folder(store)
    return store_path(store) / name if folder is None else os.path.join(folder, name)


def prefix_of(place: StorePath) -> str:
    """Return the prefix of all keys below a location in a store."""
    return f"{place.path}/" if place.path else ""


def check_is_place(given: Any) -> None:
    if not isinstance(given, Place):
        kind = type(given)
        library = kind.__module__.partition(".")[0]
        advice = {
            "xarray": "rechunk and .ooc.rechunk take it as it is",
            "dask": "rechunk takes it as it is",
            "LocalArrays": "it has a file for each rank; gather_files(…, target) makes one array of them",
            "OutOfCoreGroup": "pass one of its arrays, group[name]",
        }
        otherwise = "pass a path, a URL, a Zarr store or array, or a NumPy array"
        known = advice.get(kind.__name__ if library == "oocarrays" else library, otherwise)
        raise InputError(f"{kind.__name__} cannot hold an array: {known}")


def free_bytes(folder: str) -> int:
    """Return the free bytes of the device that holds ``folder``, or will hold it."""
    return shutil.disk_usage(existing(folder)).free


def lie_together(here: str, there: str) -> bool:
    """Return whether two locations are equal, or one contains the other."""
    if _leads_to(here, there) or _leads_to(there, here):
        return True
    if not (os.path.isabs(here) and os.path.isabs(there)):
        return False
    return _identity(here) in _identities(there) or _identity(there) in _identities(here)


def _leads_to(here: str, there: str) -> bool:
    """Return whether one path equals another, or is a parent of it."""
    return f"{there}/".lstrip("/").startswith(f"{here}/".lstrip("/"))


def _identities(folder: str) -> set[tuple[int, int]]:
    """Return the device and inode numbers of a folder and its parents, as far as they exist."""
    places = [folder, *map(str, PurePath(folder).parents)]
    return {identity for identity in map(_identity, places) if identity is not None}


def _identity(folder: str) -> tuple[int, int] | None:
    with suppress(OSError):
        found = os.stat(folder)
        return found.st_dev, found.st_ino
    return None


def named(store: StoreLike) -> str | None:
    """Return the name of a location for a journal; None for one in the memory of this process."""
    return place_name(store_path(store))
