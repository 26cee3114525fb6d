"""One writer of a chunk at a time: who changes a part of it reads, changes and replaces it while others wait.

    threads of a process       a lock of `BUCKETS`, by the chunk's place             any store
    processes, local files     a byte of the array's metadata file, by its key       kept by the operating system

The byte is locked, not read or written. The file (``zarr.json``, ``.zarray``) is there already, so that nothing is left
for other readers, copies of groups or `clean` to trip over, and a dead process's locks are gone with it. An ``flock``
on the chunk would need one that is stored; on its folder, it would let no two chunks be written side by side. What
replaces the metadata while sections are written (to resize the array, to set attributes) ends this protection for
those who are in the middle of a chunk then.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from oocarrays.errors import StoreFailure
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.documents import METADATA
from oocarrays.storage.journal.lock import is_at, let_go
from oocarrays.storage.local.blobs import LocalBlobs
from oocarrays.storage.local.regular import open_regular
from oocarrays.storage.stores.aside import draft_key
from oocarrays.storage.stores.opening import blobs_of

BUCKETS = tuple(threading.Lock() for _ in range(1024))
"""Two chunks that share one wait for each other, and that is all: a thread holds one at a time."""
FORMAT_2 = ".zarray"


class ChunkLocks:
    """The locks of the chunks, or shards, of one array file."""

    def __init__(self, file: ArrayFile) -> None:
        self._key, self._place = file.chunk_key, file.name
        metadata = FORMAT_2 if file.zarr.metadata.zarr_format == 2 else METADATA
        blobs = blobs_of(file.zarr)
        self._metadata = _document(blobs.path(metadata)) if isinstance(blobs, LocalBlobs) else None

    @contextmanager
    def held(self, index: tuple[int, ...]) -> Iterator[None]:
        """Keep others from changing a chunk: threads of this process, and in local files other processes.

        Between processes nothing protects chunks in other stores.
        """
        key = self._key(index)
        with BUCKETS[zlib.crc32(f"{self._place}/{key}".encode()) % len(BUCKETS)]:
            if self._metadata is None:
                yield
            else:
                with _byte_lock(self._metadata, zlib.crc32(key.encode())):
                    yield


def _document(path: str) -> str:
    """Return where a document of metadata is, or its draft."""
    return path if os.path.exists(path) else draft_key(path)


@contextmanager
def _byte_lock(path: str, byte: int) -> Iterator[None]:
    """Hold a byte of a file, past its end as it may be; nothing where there are no such locks."""
    file = _locked(path, byte)
    try:
        yield
    finally:
        if file is not None:
            _set_lock(file, byte, fcntl.F_UNLCK)  # a child of this process may have the file open, too
            let_go(file)


def _locked(path: str, byte: int) -> int | None:
    """Return the file, open, with the byte locked; None where that cannot be had."""
    while hasattr(fcntl, "F_OFD_SETLKW"):
        try:
            file = open_regular(path, os.O_RDWR)
        except (PermissionError, FileNotFoundError):
            return None
        except OSError as error:
            raise StoreFailure(f"cannot lock a chunk in {path}: {error.strerror}") from error
        try:
            _set_lock(file, byte, fcntl.F_WRLCK)
            if is_at(file, path):
                return file
        except OSError:
            os.close(file)
            return None
        os.close(file)  # it was replaced while we waited
    return None


def _set_lock(file: int, byte: int, kind: int) -> None:
    """``struct flock``: kind, whence, start, length and process, which is 0 for locks of an open file."""
    fcntl.fcntl(file, fcntl.F_OFD_SETLKW, struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, 1, 0))
