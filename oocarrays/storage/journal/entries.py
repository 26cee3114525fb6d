"""Small objects below a local folder, or below a prefix of any Zarr store: each is whole or not there.

They are made once and not changed: of two that make the same at once, one remains.
"""

from __future__ import annotations

import errno
import functools
import os
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress

import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.common import concurrent_map
from zarr.core.sync import sync
from zarr.storage import StorePath

from oocarrays.storage.files.places import StoreLike, local_folder, store_path
from oocarrays.storage.local.durable import rename, replace_file, write_beside
from oocarrays.storage.local.fs import ABSENT, make_folders, read_file, remove_file, remove_tree, sync_path, translated
from oocarrays.storage.local.names import PARTIAL
from oocarrays.storage.local.syncing import written

NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What file systems say that have no hard links."""


def entries_of(store: StoreLike, folder: str = "") -> LocalEntries | StoreEntries:
    """The small objects in ``folder`` below an array, or beside its metadata."""
    local = local_folder(store)
    if local is not None:
        return LocalEntries(os.path.join(local, folder))
    return StoreEntries(store_path(store), folder)


def reading(store: StoreLike) -> translated:
    """Translate errors of reading the journal of ``store``."""
    return translated("read", f"the journal of {store}")


def writing(store: StoreLike) -> translated:
    """Translate errors of writing the journal of ``store``."""
    return translated("write", f"the journal of {store}")


class LocalEntries:
    """Small files below a local folder: each is whole or not there."""

    def __init__(self, root: str) -> None:
        self.root = root

    def _path(self, key: str) -> str:
        return os.path.join(self.root, key)

    def get(self, key: str) -> bytes | None:
        """Read what is under ``key``; None where there is nothing."""
        return read_file(self._path(key))

    def make_folder(self, key: str) -> None:
        make_folders(self._path(key))

    def create(self, key: str, data: bytes, *, durable: bool = False) -> None:
        """Put ``data`` under ``key`` if nothing is there; what is ``durable`` is on its device then."""
        path = self._path(key)
        self.prepare(key, data, durable=durable)()
        sync_path(os.path.dirname(path)) if durable else written(path)

    def prepare(self, key: str, data: bytes, *, durable: bool = False) -> Callable[[], None]:
        """Write ``data`` where nobody finds it; what is returned puts it under ``key`` if nothing is there."""
        path = self._path(key)
        return functools.partial(_publish, write_beside(path, data, synced=durable), path)

    def replace(self, key: str, data: bytes, *, durable: bool = True) -> None:
        """Put ``data`` under ``key``, in the place of what is there; what is not ``durable``, when all is synced."""
        path = self._path(key)
        if durable:
            replace_file(path, data)
            return
        rename(write_beside(path, data, synced=False), path)
        written(path)

    def entries(self, key: str) -> dict[str, bytes | None]:
        """Names and contents of what is below ``key``; None for what has gone meanwhile."""
        try:
            names = os.listdir(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {name: self.get(f"{key}/{name}") for name in names if not PARTIAL.search(name)}

    def names(self, prefix: str) -> list[str]:
        """Names of what begins so."""
        try:
            return [name for name in os.listdir(self.root) if name.startswith(prefix)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, keys: Iterable[str]) -> None:
        """Remove what is under ``keys``, where there is anything."""
        for key in keys:
            with suppress(*ABSENT):
                os.unlink(self._path(key))

    def clear(self, key: str) -> None:
        """Remove all below ``key``; set aside first, so that nobody adds to it meanwhile."""
        aside = f"{self._path(key)}.{uuid.uuid4().hex}"
        with suppress(FileNotFoundError, NotADirectoryError):
            os.rename(self._path(key), aside)
            remove_tree(aside)

    def clear_all(self) -> None:
        """Remove the folder."""
        remove_tree(self.root)

    def clear_if_empty(self) -> None:
        """Remove the folder, unless something is in it."""
        with suppress(OSError):
            os.rmdir(self.root)


def _publish(partial: str, path: str) -> None:
    """Give a whole file its name, unless another has it."""
    try:
        os.link(partial, path)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if not os.path.lexists(path):
            os.rename(partial, path)
    finally:
        remove_file(partial)


class StoreEntries:
    """Small objects below a prefix of any Zarr store."""

    def __init__(self, place: StorePath, folder: str) -> None:
        self.store = place.store
        self.root = "/".join(filter(None, (place.path, folder)))

    def _path(self, key: str) -> str:
        return f"{self.root}/{key}" if self.root else key

    def get(self, key: str) -> bytes | None:
        """Read what is under ``key``; None where there is nothing."""
        return sync(self._get(key))

    async def _get(self, key: str) -> bytes | None:
        buffer = await self.store.get(self._path(key), default_buffer_prototype())
        return None if buffer is None else buffer.to_bytes()

    def make_folder(self, key: str) -> None:
        """Nothing: a store has keys only."""

    def create(self, key: str, data: bytes, *, durable: bool = False) -> None:
        """Put ``data`` under ``key`` if nothing is there; of two at once, one remains."""
        buffer = default_buffer_prototype().buffer.from_bytes(data)
        sync(self.store.set_if_not_exists(self._path(key), buffer))

    def prepare(self, key: str, data: bytes, *, durable: bool = False) -> Callable[[], None]:
        """Do nothing yet, for an object is whole or not there; what is returned puts ``data`` under ``key``."""
        return functools.partial(self.create, key, data)

    def replace(self, key: str, data: bytes, *, durable: bool = True) -> None:
        """Put ``data`` under ``key``, in the place of what is there."""
        sync(self.store.set(self._path(key), default_buffer_prototype().buffer.from_bytes(data)))

    def entries(self, key: str) -> dict[str, bytes | None]:
        """Names and contents of what is below ``key``; None for what has gone meanwhile."""
        return sync(self._entries(key))

    def names(self, prefix: str) -> list[str]:
        """Names of what begins so."""
        return sync(self._names(prefix))

    async def _names(self, prefix: str) -> list[str]:
        return [name async for name in self.store.list_dir(self.root) if name.startswith(prefix)]

    async def _entries(self, key: str) -> dict[str, bytes | None]:
        listed = [name async for name in self.store.list_dir(self._path(key))]
        names = [name for name in listed if not PARTIAL.search(name)]
        found = await concurrent_map([(f"{key}/{name}",) for name in names], self._get, _at_once())
        return dict(zip(names, found, strict=True))

    def delete(self, keys: Iterable[str]) -> None:
        """Remove what is under ``keys``, where there is anything."""
        places = [(self._path(key),) for key in keys]
        sync(concurrent_map(places, self.store.delete, _at_once()))

    def clear(self, key: str) -> None:
        sync(self.store.delete_dir(self._path(key)))

    def clear_all(self) -> None:
        """Remove all below the prefix."""
        sync(self.store.delete_dir(self.root))

    def clear_if_empty(self) -> None:
        """Nothing: a store has keys only."""


def _at_once() -> int:
    limit: int = zarr.config.get("async.concurrency")
    return limit
