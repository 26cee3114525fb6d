"""Atomic file writes: a file is written under a temporary name, then renamed, and synced if requested.

written beside ─► synced ─► renamed ─► the folder synced      `replace_file`, one document at once
written beside ─► all files of a run synced ─► renamed        `Prepared`, one request for all
"""

from __future__ import annotations

import os
from contextlib import suppress

from zarr.core.buffer import Buffer
from zarr.storage import LocalStore

from oocarrays.storage.local.fs import failure, make_folders, mode_of, sync_path, translated, write_all
from oocarrays.storage.local.names import partial_name
from oocarrays.storage.local.syncing import written


class replacing_file:
    """Context with a temporary file that replaces ``path`` on success, and is deleted on failure."""

    __slots__ = ("_partial", "_path")

    def __init__(self, path: str) -> None:
        self._path, self._partial = path, partial_name(path)

    def __enter__(self) -> str:
        return self._partial

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            with suppress(OSError):
                os.unlink(self._partial)
            if isinstance(error, OSError):
                raise failure("write", self._path, error) from error
            return
        try:
            rename(self._partial, self._path)
        except OSError as refused:
            raise failure("write", self._path, refused) from refused
        written(self._path)


def write_beside(path: str, data: bytes, *, synced: bool) -> str:
    """Write the future contents of ``path`` to a temporary file, and return its name."""
    partial = partial_name(path)
    file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode_of(path))
    try:
        with os.fdopen(file, "wb", buffering=0):
            write_all(file, memoryview(data))
            if synced:
                os.fsync(file)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise
    written(partial)
    return partial


def rename(partial: str, path: str) -> None:
    """Rename a file to its final name; delete it on failure."""
    try:
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


def replace_file(path: str, data: bytes, *, named: bool = True) -> None:
    """Replace a small file atomically and durably: readers see either the old or the new contents."""
    folder = os.path.dirname(path)
    with translated("write", path):
        make_folders(folder, durable=True, named=named)
        rename(write_beside(path, data, synced=True), path)
        sync_path(folder)
    written(path)


class DocumentStore(LocalStore):
    """Local store for metadata documents, which writes each atomically and synced."""

    async def set(self, key: str, value: Buffer) -> None:
        """Replace a document synchronously: it is small, and nothing else waits on this event loop."""
        self._check_writable()
        replace_file(os.path.join(str(self.root), key), value.to_bytes())


class Prepared:
    """Documents written under temporary names until all data is synced."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._prepared: list[tuple[str, str]] = []

    def prepare(self, name: str, document: bytes) -> None:
        path = os.path.join(self.folder, name)
        with translated("write", path):
            self._prepared.append((write_beside(path, document, synced=False), path))

    def publish(self) -> None:
        """Rename the documents in order, and sync each before the next."""
        with translated("write", self.folder):
            for partial, path in self._prepared:
                rename(partial, path)
                sync_path(os.path.dirname(path))
