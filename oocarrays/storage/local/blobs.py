"""Stored chunks as blobs: bytes under keys, in local files. Those of any Zarr store are in `store_blobs`.

They are read by ``pread`` and written whole, under another name first: a chunk is replaced at once or not at
all. Zarr's own `LocalStore` does the same at 65–80 µs a request; a ``pread`` takes 1.3 µs.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import stat
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain

import numpy as np

from oocarrays.errors import CorruptChunkError, StoreFailure
from oocarrays.plan.machine import BATCHED_RUNS
from oocarrays.storage.local.pages import fetch_ahead, mapped, want
from oocarrays.storage.local.fs import make_folder, mode_of
from oocarrays.storage.local.ranges import read_ranges
from oocarrays.storage.local.refused import write_error
from oocarrays.storage.local.regular import open_regular
from oocarrays.storage.local.sectors import (
    MOST_BYTES,
    SECTOR,
    Piece,
    on_sectors,
    open_past_cache,
    padded,
    write_all,
    write_pieces,
)
from oocarrays.storage.local.syncing import start_writing, written

STAGING_BYTES = 2**21
"""Bytes that a rank copies to memory on sectors at a time."""


def byte_view(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


class MissingBlob(Exception):
    """There is nothing under this key: Zarr's way to say that a chunk holds the fill value."""


class LocalBlob:
    """A chunk in a local file."""

    local = True

    def __init__(self, path: str, read_ahead: bool) -> None:
        self.path = self.name = path
        try:
            self._file = open_regular(path)
        except FileNotFoundError:
            raise MissingBlob(path) from None
        except OSError as error:
            raise StoreFailure(f"cannot open {path}: {error.strerror}") from error
        if read_ahead:
            want(self._file, 0, self.size)

    def want(self, offset: int, nbytes: int) -> None:
        """Ask the system to fetch some of the bytes."""
        want(self._file, offset, nbytes)

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill ``out`` from ``offset`` on, in one request."""
        done = self._pread(offset, out[:MOST_BYTES])
        while done < len(out):
            done += self._pread(offset + done, out[done : done + MOST_BYTES])

    def read_runs(self, offsets: np.ndarray, out: np.ndarray) -> None:
        """Fill each row of bytes from its offset on, a request each, which the system takes many at a time."""
        count, nbytes = out.shape
        if count < BATCHED_RUNS:
            for offset, row in zip(offsets.tolist(), out, strict=True):
                self.read_into(offset, row.data)
            return
        places = np.arange(count) * nbytes
        got = read_ranges(np.full(count, self._file), offsets, np.full(count, nbytes), out.reshape(-1), places)
        for row in np.flatnonzero(got != nbytes).tolist():
            self.read_into(int(offsets[row]), out[row].data)

    def _pread(self, offset: int, out: memoryview) -> int:
        try:
            got = os.preadv(self._file, [out], offset)
        except OSError as error:
            raise StoreFailure(f"cannot read {self.path}: {error.strerror}") from error
        if got == 0:
            raise CorruptChunkError(
                f"{self.path} is cut short: it has {os.fstat(self._file).st_size} bytes, "
                f"and {len(out)} more were expected at {offset}"
            )
        return got

    def read_all(self) -> np.ndarray:
        """All bytes, in one request."""
        data = np.empty(os.fstat(self._file).st_size, np.uint8)
        if len(data):
            self.read_into(0, data.data)
        return data

    def read_head(self, nbytes: int) -> bytes:
        """Return the first bytes, or all where there are fewer."""
        return self._pread_bytes(0, nbytes)

    def read_tail(self, nbytes: int) -> bytes:
        """Return the last bytes, or all where there are fewer."""
        return self._pread_bytes(max(self.size - nbytes, 0), nbytes)

    def _pread_bytes(self, offset: int, nbytes: int) -> bytes:
        try:
            return os.pread(self._file, nbytes, offset)
        except OSError as error:
            raise StoreFailure(f"cannot read {self.path}: {error.strerror}") from error

    def pages(self, offset: int = 0, nbytes: int | None = None) -> np.ndarray:
        """Some of the bytes, or all, in place."""
        return mapped(self._file, self.path, offset, nbytes)

    @property
    def number(self) -> int:
        return self._file

    @property
    def size(self) -> int:
        return os.fstat(self._file).st_size

    def close(self) -> None:
        os.close(self._file)


HOLE_BYTES = 2**16
"""Of zeros at the end of a new file, which are a hole in it: reading them is fast, and writing them is left out."""


class LocalBlobs:
    """The chunks below one local directory."""

    def __init__(self, root: str, *, past_cache: bool = False) -> None:
        self.root = root.rstrip("/") or "/"  # of an array that is its store's root the name ends with a slash
        self._below = os.path.join(self.root, "")
        self.past_cache = past_cache and hasattr(os, "O_DIRECT")
        self._local = threading.local()
        self._folders: set[str] = set()

    def path(self, key: str) -> str:
        """Where the chunk under ``key`` is, or would be."""
        return self._below + key

    def range_of(self, key: str) -> tuple[str, int, int | None]:
        """The file of a chunk, where it begins in it, and its bytes; None for all of the file."""
        return self.path(key), 0, None

    def check_file(self, key: str, file: int) -> None:
        """Refuse an open file that is not the one in which a chunk was found: a chunk file may be a new one."""

    def root_of(self, key: str) -> str:
        """The folder below which it is, which is not made again where it has gone."""
        return self.root

    def open(self, key: str, read_ahead: bool = False) -> LocalBlob:
        """Return the chunk under ``key``, open for reading."""
        return LocalBlob(self.path(key), read_ahead)

    def exists(self, key: str) -> bool:
        """Return whether a chunk is stored under ``key``."""
        path = self.path(key)
        try:
            os.stat(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreFailure(f"cannot read {path}: {error.strerror}") from error
        return True

    def announce(self, keys: Iterable[str]) -> None:
        """Ask the system to fetch chunks that will be wanted, the first ones, and do not wait for them."""
        fetch_ahead([self.path(key) for key in keys])

    def put(self, key: str, data: memoryview) -> None:
        """Replace the chunk under ``key`` by ``data``, at once."""
        with self._replacing(key) as partial:
            self._write(partial, data)

    def put_pieces(self, key: str, pieces: Iterator[Piece]) -> bool:
        """Replace the chunk under ``key`` by pieces, each written as it comes, at once when all are there."""
        first = next(pieces, None)
        if first is None:
            return False
        with self._replacing(key) as partial:
            file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode_of(partial))
            try:
                write_pieces(file, chain((first,), pieces), past_cache=self.past_cache)
                start_writing(file)
            finally:
                os.close(file)
        return True

    def is_its_own(self, key: str) -> bool:
        """Return whether there is a chunk under ``key``, in a file that has no other name and is no link to another.

        Who copies an array by links has one file in both: to change it where it is would change the original.
        """
        try:
            status = os.lstat(self.path(key))
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1

    def change(self, key: str, pieces: Iterable[Piece]) -> None:
        """Write pieces of a chunk that is there where they are: a reader, or a crash, can come between two."""
        path = self.path(key)
        try:
            file = open_regular(path, os.O_WRONLY)
            try:
                write_pieces(file, pieces)
            finally:
                os.close(file)
        except FileNotFoundError:
            raise MissingBlob(path) from None
        except OSError as error:
            raise write_error(path, error) from error
        written(path)

    def remove(self, key: str) -> None:
        """Take the chunk under ``key`` away, if there is one: it holds the fill value from now on."""
        path = self.path(key)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise write_error(path, error) from error
        written(path)

    @contextmanager
    def _replacing(self, key: str) -> Iterator[str]:
        """The name of a file that becomes the chunk under ``key`` in the end, and is gone where that fails."""
        path = self.path(key)
        partial = f"{path}.{uuid.uuid4().hex}.partial"
        try:
            self._make_folder(self.root_of(key), os.path.dirname(path))
            yield partial
            os.replace(partial, path)
            written(path)
        except BaseException as error:
            with suppress(OSError):
                os.unlink(partial)
            if isinstance(error, OSError):
                raise write_error(path, error) from error
            raise

    def check(self) -> None:
        """Refuse to write where the directory of the array has gone: it is not made again."""
        try:
            os.stat(self.root)
        except OSError as error:
            raise write_error(self.root, error) from error

    def _make_folder(self, root: str, folder: str) -> None:
        if folder not in self._folders:
            make_below(root, folder)
            self._folders.add(folder)

    def _write(self, path: str, data: memoryview) -> None:
        file, past_cache = self._create(path)
        solid = data[: solid_bytes(data)]
        try:
            if past_cache:
                self._write_past_cache(file, solid)
            else:
                write_all(file, solid)
                start_writing(file)
            if len(solid) < len(data):
                os.ftruncate(file, len(data))
        finally:
            os.close(file)

    def _write_past_cache(self, file: int, data: memoryview) -> None:
        """Write from memory on sectors: the data's own, or a staging buffer whose last sector is cut off again."""
        at_once = len(data) // SECTOR * SECTOR if on_sectors(data) else 0
        write_all(file, data[:at_once])
        if at_once == len(data):
            return
        staging = self._staging()
        for start in range(at_once, len(data), STAGING_BYTES):
            piece = data[start : start + STAGING_BYTES]
            staging[: len(piece)] = piece
            write_all(file, staging[: padded(len(piece))])
        os.ftruncate(file, len(data))

    def _staging(self) -> memoryview:
        """This thread's staging buffer."""
        if not hasattr(self._local, "staging"):
            pages = mmap.mmap(-1, STAGING_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._local.staging = memoryview(pages)
        staging: memoryview = self._local.staging
        return staging

    def _create(self, path: str) -> tuple[int, bool]:
        """Return a new file, and whether it is written past the cache: some file systems do not take that."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        if self.past_cache:
            file, self.past_cache = open_past_cache(path, flags)
            return file, self.past_cache
        return os.open(path, flags, mode_of(path)), False


def solid_bytes(data: memoryview) -> int:
    """Return the bytes up to the trailing zeros, in whole blocks; a new file need not contain those."""
    whole = len(data) // HOLE_BYTES * HOLE_BYTES
    if np.frombuffer(data[whole:], np.uint8).any():
        return len(data)
    for end in range(whole, 0, -HOLE_BYTES):
        if np.frombuffer(data[end - HOLE_BYTES : end], np.uint64).any():
            return end if end < whole else len(data)
    return 0


def make_below(root: str, folder: str) -> None:
    """Make a folder and those above it, but not the one that all are in: where that has gone, it was taken away."""
    if folder == root:
        return
    try:
        make_folder(folder)
    except FileExistsError:
        pass
    except FileNotFoundError:
        if os.path.dirname(folder) == root:
            raise
        make_below(root, os.path.dirname(folder))
        with suppress(FileExistsError):
            make_folder(folder)


def remove_tree(folder: str) -> None:
    """Remove a folder and all in it; fine where others do the same, or where there is none."""
    while os.path.lexists(folder):
        try:
            shutil.rmtree(folder)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise
