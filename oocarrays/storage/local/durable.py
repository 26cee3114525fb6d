"""Small documents that are whole and on their device before anybody finds them.

written beside ─► synced ─► renamed ─► the folder synced      `replace`, one document at once
written beside ─► all that a run wrote is synced ─► renamed   `Prepared`, one request for all
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from zarr.core.buffer import Buffer
from zarr.storage import LocalStore

from oocarrays.storage.local.devices import sync_path
from oocarrays.storage.local.fs import make_folder, mode_of
from oocarrays.storage.local.refused import write_error
from oocarrays.storage.local.syncing import written


def make_named(folder: str, *, named: bool = True) -> None:
    """Make a folder, and those above it, each named on its device; its own name may wait for what syncs all."""
    if not os.path.isdir(folder):
        above = os.path.dirname(folder)
        make_named(above)
        with suppress(FileExistsError):
            make_folder(folder)
        if named:
            sync_path(above)


def replace(path: str, data: bytes, *, named: bool = True) -> None:
    """Put a small file on its device under ``path``, at once: whoever looks, at any time, sees the old or the new."""
    with told(path):
        make_named(os.path.dirname(path), named=named)
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
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, mode_of(path))) as file:
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


class Prepared:
    """Documents that are written where nobody finds them, until all is synced."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._prepared: list[tuple[str, str]] = []

    def prepare(self, name: str, document: bytes) -> None:
        path = os.path.join(self.folder, name)
        with told(path):
            self._prepared.append((_beside(path, document, synced=False), path))

    def publish(self) -> None:
        """Give the documents their names, which were synced before, each on the device before the next one has its."""
        with told(self.folder):
            for partial, path in self._prepared:
                _rename(partial, path)
                sync_path(os.path.dirname(path))
