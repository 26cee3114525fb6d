"""Small documents that are whole and on their device before anybody finds them.

written beside ─► synced ─► renamed ─► the folder synced      `replace`, one document at once
written beside ─► all that a run wrote is synced ─► renamed   `PreparedStore`, one request for all
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from zarr.core.buffer import Buffer
from zarr.storage import LocalStore

from oocarrays.storage.local.devices import sync_path
from oocarrays.storage.local.refused import write_error
from oocarrays.storage.local.syncing import written


def make_folder(folder: str, *, named: bool = True) -> None:
    """Make a folder, and those above it, each named on its device; its own name may wait for what syncs all."""
    if not os.path.isdir(folder):
        above = os.path.dirname(folder)
        make_folder(above)
        with suppress(FileExistsError):
            os.mkdir(folder)
        if named:
            sync_path(above)


def replace(path: str, data: bytes, *, named: bool = True) -> None:
    """Put a small file on its device under ``path``, at once: whoever looks, at any time, sees the old or the new.

    Parameters
    ----------
    named : bool
        Whether the name of its folder is on the device, too; where not, what syncs all puts it there.

    Raises
    ------
    DiskFullError, StoreFailure
        Where it cannot be written: what was there stays.
    """
    with told(path):
        make_folder(os.path.dirname(path), named=named)
        _rename(_beside(path, data, synced=True), path)
        sync_path(os.path.dirname(path))
    written(path)


@contextmanager
def told(path: str) -> Iterator[None]:
    """Say in one line that something cannot be written."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


def _beside(path: str, data: bytes, *, synced: bool) -> str:
    """Write what is to be under ``path`` under another name: that name."""
    partial = f"{path}.{uuid.uuid4().hex}.partial"
    try:
        with open(partial, "xb") as file:
            file.write(data)
            if synced:
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise
    written(partial)
    return partial


def _rename(partial: str, path: str) -> None:
    try:
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


class DocumentStore(LocalStore):
    """A local store through which documents of metadata are written: each is whole, and on its device."""

    async def set(self, key: str, value: Buffer) -> None:
        """Replace a document; it is small, and nothing else waits on this loop."""
        self._check_writable()
        replace(os.path.join(str(self.root), key), value.to_bytes())


class PreparedStore(LocalStore):
    """A local store through which documents are written where nobody finds them, until all is synced."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._prepared: list[tuple[str, str]] = []

    async def set(self, key: str, value: Buffer) -> None:
        """Write a document beside the one that is there."""
        path = os.path.join(str(self.root), key)
        with told(path):
            self._prepared.append((_beside(path, value.to_bytes(), synced=False), path))

    def publish(self) -> None:
        """Replace the documents that are there, which were synced before; that is on the device then."""
        with told(str(self.root)):
            for partial, path in self._prepared:
                _rename(partial, path)
            for folder in {os.path.dirname(path) for _, path in self._prepared}:
                sync_path(folder)
