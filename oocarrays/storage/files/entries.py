"""Small objects in a local folder, or under a prefix of any Zarr store, each written atomically.

They are created once and never changed: if two writers create the same object, one of them remains.
"""

from __future__ import annotations

import errno
import functools
import os
import uuid
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.common import concurrent_map
from zarr.core.sync import sync
from zarr.storage import StorePath

from oocarrays.storage.files.places import StoreLike, local_folder, store_path
from oocarrays.storage.local import fs
from oocarrays.storage.local.syncing import rename, replace_file, write_beside, written

T = TypeVar("T")


def entries_of(store: StoreLike, folder: str = "") -> LocalEntries | StoreEntries:
    """Return the small objects in ``folder`` below an array; without a folder, those beside its metadata."""
    local = local_folder(store)
    if local is not None:
        return LocalEntries(os.path.join(local, folder))
    return StoreEntries(store_path(store), folder)


def reading(store: StoreLike) -> fs.translated:
    """Translate errors raised while reading the journal of ``store``."""
    return fs.translated("read", f"the journal of {store}")


def writing(store: StoreLike) -> fs.translated:
    """Translate errors raised while writing the journal of ``store``."""
    return fs.translated("write", f"the journal of {store}")


class LocalEntries:
    """Small files in a local folder, each written atomically."""

    def __init__(self, root: str) -> None:
        self.root = root

    def _path(self, key: str) -> str:
        return os.path.join(self.root, key)

    def get(self, key: str) -> bytes | None:
        """Return the contents of ``key``, or None if it does not exist."""
        return fs.read_file(self._path(key))

    def make_folder(self, key: str) -> None:
        fs.make_folders(self._path(key))

    def create(self, key: str, data: bytes, *, durable: bool = False) -> None:
        """Create ``key`` from ``data`` unless it exists; if ``durable``, sync it to the device before returning."""
        path = self._path(key)
        self.prepare(key, data, durable=durable)()
        fs.sync_path(os.path.dirname(path)) if durable else written(path)

    def prepare(self, key: str, data: bytes, *, durable: bool = False) -> Callable[[], None]:
        """Write ``data`` to a temporary file and return a function that renames it to ``key`` unless ``key`` exists."""
        path = self._path(key)
        return functools.partial(_publish, write_beside(path, data, synced=durable), path)

    def replace(self, key: str, data: bytes, *, durable: bool = True, named: bool = True) -> None:
        """Write ``data`` to ``key``, replacing earlier contents; unless ``durable``, sync later with other files."""
        path = self._path(key)
        if durable:
            replace_file(path, data, named=named)
            return
        rename(write_beside(path, data, synced=False), path)
        written(path)

    def entries(self, key: str) -> dict[str, bytes | None]:
        """Return the contents of each file in the folder ``key``, by name; None for a file deleted meanwhile."""
        names = _listed(self._path(key))
        return {name: self.get(f"{key}/{name}") for name in names if not fs.PARTIAL.search(name)}

    def names(self, prefix: str = "") -> list[str]:
        return [name for name in _listed(self.root) if name.startswith(prefix)]

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the files under ``keys`` that exist."""
        for key in keys:
            with suppress(*fs.ABSENT):
                os.unlink(self._path(key))

    def remove(self, key: str) -> None:
        """Delete the file, the link or the folder ``key``."""
        path = self._path(key)
        fs.remove_tree(path) if os.path.isdir(path) and not os.path.islink(path) else fs.remove_file(path)

    def clear(self, key: str) -> None:
        """Delete the folder ``key``, renaming it first so that no other process adds files during deletion."""
        aside = f"{self._path(key)}.{uuid.uuid4().hex}"
        with suppress(*fs.ABSENT):
            os.rename(self._path(key), aside)
            fs.remove_tree(aside)

    def clear_all(self) -> None:
        fs.remove_tree(self.root)

    def clear_if_empty(self) -> None:
        with suppress(OSError):
            os.rmdir(self.root)


def _listed(folder: str) -> list[str]:
    with suppress(*fs.ABSENT):
        return os.listdir(folder)
    return []


def _publish(partial: str, path: str) -> None:
    """Link a complete file to its final name unless that name exists, and delete the temporary name."""
    try:
        os.link(partial, path)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise  # else the file system has no hard links
        if not os.path.lexists(path):
            os.rename(partial, path)
    finally:
        fs.remove_file(partial)


class StoreEntries:
    """Small objects under a prefix of any Zarr store."""

    def __init__(self, place: StorePath, folder: str) -> None:
        self.store = place.store
        self.root = "/".join(filter(None, (place.path, folder)))

    def _path(self, key: str) -> str:
        return f"{self.root}/{key}" if self.root else key

    def get(self, key: str) -> bytes | None:
        return sync(self._get(key))

    async def _get(self, key: str) -> bytes | None:
        buffer = await self.store.get(self._path(key), default_buffer_prototype())
        return None if buffer is None else buffer.to_bytes()

    def make_folder(self, key: str) -> None:
        """Do nothing: a store has no folders."""

    def create(self, key: str, data: bytes, *, durable: bool = False) -> None:
        """Create ``key`` from ``data`` unless it exists; of two concurrent writers, one succeeds."""
        buffer = default_buffer_prototype().buffer.from_bytes(data)
        sync(self.store.set_if_not_exists(self._path(key), buffer))

    def prepare(self, key: str, data: bytes, *, durable: bool = False) -> Callable[[], None]:
        """Return a function that creates ``key`` from ``data``; store writes are atomic, so none happens yet."""
        return functools.partial(self.create, key, data)

    def replace(self, key: str, data: bytes, *, durable: bool = True, named: bool = True) -> None:
        sync(self.store.set(self._path(key), default_buffer_prototype().buffer.from_bytes(data)))

    def entries(self, key: str) -> dict[str, bytes | None]:
        names = [name for name in sync(self._listed(self._path(key))) if not fs.PARTIAL.search(name)]
        return dict(zip(names, each_of(self._get, [f"{key}/{name}" for name in names]), strict=True))

    def names(self, prefix: str = "") -> list[str]:
        return [name for name in sync(self._listed(self.root)) if name.startswith(prefix)]

    async def _listed(self, folder: str) -> list[str]:
        return [name async for name in self.store.list_dir(folder)]

    def delete(self, keys: Iterable[str]) -> None:
        each_of(self.store.delete, map(self._path, keys))

    def remove(self, key: str) -> None:
        self.delete([key])
        self.clear(key)

    def clear(self, key: str) -> None:
        sync(self.store.delete_dir(self._path(key)))

    def clear_all(self) -> None:
        sync(self.store.delete_dir(self.root))

    def clear_if_empty(self) -> None:
        """Do nothing: a store has no folders."""


def each_of(request: Callable[[str], Awaitable[T]], keys: Iterable[str]) -> list[T]:
    """Return the result of a request for each key, made concurrently."""
    return sync(concurrent_map([(key,) for key in keys], request, zarr.config.get("async.concurrency")))
