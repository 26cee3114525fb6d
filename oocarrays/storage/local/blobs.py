"""Stored chunks as blobs: bytes under keys, in local files. Those of any Zarr store are in `store_blobs`.

They are read by ``pread`` and written whole, under another name first: a chunk is replaced at once or not at
all. Zarr's own `LocalStore` does the same at 65–80 µs a request; a ``pread`` takes 1.3 µs.
"""

from __future__ import annotations

import mmap
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import google_crc32c
import numpy as np

from oocarrays.errors import CorruptChunkError
from oocarrays.plan.machine import BATCHED_RUNS
from oocarrays.storage.local.direct_io import SECTOR, Piece, on_sectors, open_past_cache, padded, write_pieces
from oocarrays.storage.local.durable import replacing_file
from oocarrays.storage.local.fs import (
    failure,
    make_below,
    mode_of,
    open_regular,
    read_into,
    remove_file,
    translated,
    write_all,
)
from oocarrays.storage.local.pages import fetch_ahead, mapped, want
from oocarrays.storage.local.ranges import read_ranges
from oocarrays.storage.local.syncing import start_writing, written

FOLDED_ABOVE = 2**16
"""Bytes: what is longer is folded first. That takes half the time of a crc32c: it is as fast as memory."""
FOLD = 1021
"""Words of 8 bytes: a prime, so that pages that change places do not fall on each other."""


def checksum(data: Any) -> int:
    """A checksum of bytes: crc32c, of what is long after words that lie ``FOLD`` apart have been added up."""
    flat = np.frombuffer(data, np.uint8)
    if len(flat) < FOLDED_ABOVE:
        return int(google_crc32c.value(flat))
    rows = len(flat) // (8 * FOLD)
    folded = np.add.reduce(flat[: rows * 8 * FOLD].view(np.uint64).reshape(rows, FOLD), axis=0)
    return int(google_crc32c.extend(google_crc32c.value(folded.view(np.uint8)), flat[rows * 8 * FOLD :]))


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
            raise failure("open", path, error) from error
        if read_ahead:
            want(self._file, 0, self.size)

    def want(self, offset: int, nbytes: int) -> None:
        """Ask the system to fetch some of the bytes."""
        want(self._file, offset, nbytes)

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill ``out`` from ``offset`` on, in one request."""
        try:
            lacks = read_into(self._file, offset, out)
        except OSError as error:
            raise failure("read", self.path, error) from error
        if lacks:
            raise CorruptChunkError(
                f"{self.path} is cut short: it has {self.size} bytes, "
                f"and {lacks} more were expected at {offset + len(out) - lacks}"
            )

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
            raise failure("read", self.path, error) from error

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
        with suppress(FileNotFoundError), translated("read", path, but=(FileNotFoundError,)):
            os.stat(path)
            return True
        return False

    def announce(self, keys: Iterable[str]) -> None:
        """Ask the system to fetch chunks that will be wanted, the first ones, and do not wait for them."""
        fetch_ahead([self.path(key) for key in keys])

    def put(self, key: str, data: memoryview) -> None:
        """Replace the chunk under ``key`` by ``data``, at once."""
        path = self.path(key)
        with replacing_file(path) as partial:
            self._make_folder(self.root_of(key), os.path.dirname(path))
            self._write(partial, data)

    def put_pieces(self, key: str, pieces: Iterator[Piece]) -> bool:
        """Replace the chunk under ``key`` by pieces, each written as it comes, at once when all are there."""
        first = next(pieces, None)
        if first is None:
            return False
        path = self.path(key)
        with replacing_file(path) as partial:
            self._make_folder(self.root_of(key), os.path.dirname(path))
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
        with suppress(OSError):
            status = os.lstat(self.path(key))
            return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        return False

    def change(self, key: str, pieces: Iterable[Piece]) -> None:
        """Write pieces of a chunk that is there where they are: a reader, or a crash, can come between two."""
        path = self.path(key)
        try:
            with translated("write", path, but=(FileNotFoundError,)):
                file = open_regular(path, os.O_WRONLY)
                try:
                    write_pieces(file, pieces)
                finally:
                    os.close(file)
        except FileNotFoundError:
            raise MissingBlob(path) from None
        written(path)

    def remove(self, key: str) -> None:
        """Take the chunk under ``key`` away, if there is one: it holds the fill value from now on."""
        path = self.path(key)
        with translated("write", path):
            remove_file(path)
        written(path)

    def check(self) -> None:
        """Refuse to write where the directory of the array has gone: it is not made again."""
        with translated("write", self.root):
            os.stat(self.root)

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
