"""Stored chunks as blobs: bytes under keys, in local files. Those of any Zarr store are in `stores.underway`.

They are read by ``pread``, and written whole to a temporary name and renamed: a chunk is replaced atomically. Zarr's
own `LocalStore` does the same at 65–80 µs a request; a ``pread`` takes 1.3 µs.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import google_crc32c
import numpy as np

from oocarrays.errors import CorruptChunkError, StoreFailure
from oocarrays.limits import BATCHED_RUNS, COPIED_BYTES
from oocarrays.storage.local.fs import (
    failure,
    make_below,
    mode_of,
    open_regular,
    open_sized,
    read_into,
    remove_file,
    status_of,
    translated,
)
from oocarrays.storage.local.pages import Piece, can_map, fetch_ahead, mapped, want, write_pieces
from oocarrays.storage.local.ranges import read_ranges
from oocarrays.storage.local.syncing import replacing_file, start_writing, written

FOLDED_ABOVE = 2**16
"""Size in bytes from which data is folded before its checksum: as fast as memory, half the time of a crc32c."""


def checksum(data: Any) -> int:
    """Return the crc32c of bytes; long data is first folded by adding words that lie a fixed distance apart."""
    flat = np.frombuffer(data, np.uint8)
    if len(flat) < FOLDED_ABOVE:
        return int(google_crc32c.value(flat))
    words = 1021  # of 8 bytes in a row: a prime, so that swapped pages do not cancel
    rows = len(flat) // (8 * words)
    folded = np.add.reduce(flat[: rows * 8 * words].view(np.uint64).reshape(rows, words), axis=0)
    return int(google_crc32c.extend(google_crc32c.value(folded.view(np.uint8)), flat[rows * 8 * words :]))


def byte_view(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def odd_size(name: object, nbytes: int, due: int | None) -> CorruptChunkError:
    return CorruptChunkError(f"{name} has {nbytes} bytes; a chunk has {due}")


class MissingBlob(Exception):
    """Error: a key does not exist, which in Zarr means that the chunk holds the fill value."""


class LocalBlob:
    """Stored bytes in an open local file: all of it, or a range, with zeros beyond the end of the file."""

    __slots__ = ("_there", "name", "number", "offset", "size")

    def __init__(self, name: str, number: int, offset: int, size: int, there: int) -> None:
        self.name, self.number, self.offset, self.size, self._there = name, number, offset, size, there

    def narrow(self, offset: int, nbytes: int) -> None:
        """Keep only a range, such as a chunk of a shard; raise if the file is too short."""
        if offset + nbytes > self.size:
            self.close()
            raise CorruptChunkError(
                f"{self.name} is truncated: it has {self.size} bytes, its index expects {offset + nbytes}"
            )
        self.offset, self.size, self._there = self.offset + offset, nbytes, nbytes

    def want(self) -> None:
        want(self.number, self.offset, self.size)

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill ``out`` from ``offset`` on; raise if the file is too short."""
        if self._there < self.size:
            there = min(max(self._there - offset, 0), len(out))
            np.frombuffer(out, np.uint8)[there:] = 0
            out = out[:there]
        try:
            lacks = read_into(self.number, self.offset + offset, out)
        except OSError as error:
            raise failure("read", self.name, error) from error
        if lacks:
            raise CorruptChunkError(
                f"{self.name} is truncated: it has {os.fstat(self.number).st_size} bytes, "
                f"{lacks} fewer than expected at {self.offset + offset + len(out) - lacks}"
            )

    def read_runs(self, offsets: np.ndarray, out: np.ndarray) -> None:
        """Fill each row of ``out`` from its offset on, one range per row, submitted in batches if there are many."""
        count, nbytes = out.shape
        if count < BATCHED_RUNS or self._there < self.size:
            for offset, row in zip(offsets.tolist(), out, strict=True):
                self.read_into(offset, row.data)
            return
        places, starts = np.arange(count) * nbytes, self.offset + offsets
        got = read_ranges(np.full(count, self.number), starts, np.full(count, nbytes), out.reshape(-1), places)
        for row in np.flatnonzero(got != nbytes).tolist():
            self.read_into(int(offsets[row]), out[row].data)

    def read_all(self) -> np.ndarray:
        data = np.empty(self.size, np.uint8)
        if self.size:
            self.read_into(0, data.data)
        return data

    def load(self) -> np.ndarray:
        """Return all bytes, mapped if they are many and the system supports it.

        Threads map files one after the other, at 70 µs a file where a virtual machine hides its pages. Reading 256 KiB
        from the cache takes as long, and threads read in parallel.
        """
        return self.pages() if self.size >= COPIED_BYTES and can_map() else self.read_all()

    def pages(self) -> np.ndarray:
        """Return all bytes as mapped pages; a copy if some are beyond the end of the file."""
        if self._there < self.size:
            return self.read_all()
        return mapped(self.number, self.name, self.offset, self.size)

    def close(self) -> None:
        os.close(self.number)


class LocalBlobs:
    """The chunks below one local directory."""

    def __init__(self, root: str, *, past_cache: bool = False) -> None:
        self.root = root.rstrip("/") or "/"  # for an array at its store's root, the name ends with a slash
        self._below = f"{self.root}/" if self.root != "/" else "/"
        self.past_cache = past_cache and hasattr(os, "O_DIRECT")
        self._folders: set[str] = set()

    def path(self, key: str) -> str:
        return self._below + key

    def range_of(self, key: str) -> tuple[str, int, int | None]:
        """Return a chunk's file, its offset in it, and its size; None for the whole file."""
        return self._below + key, 0, None

    def check_file(self, key: str, file: int) -> None:
        """Accept any open file: a chunk in a file of its own may have been replaced."""

    def root_of(self, key: str) -> str:
        """Return the folder above the chunk that is never created again if it has been removed."""
        return self.root

    def open(self, key: str, read_ahead: bool = False) -> LocalBlob:
        path, offset, nbytes = self.range_of(key)
        try:
            file, size = open_sized(path)
        except FileNotFoundError:
            if nbytes is not None:
                raise StoreFailure(f"cannot open {path}: it was removed") from None
            raise MissingBlob(path) from None
        except OSError as error:
            raise failure("open", path, error) from error
        if nbytes is None:
            blob = LocalBlob(path, file, 0, size, size)
        else:
            blob = LocalBlob(path, file, offset, nbytes, min(nbytes, max(size - offset, 0)))
            try:
                self.check_file(key, file)
            except BaseException:
                blob.close()
                raise
        if read_ahead:
            blob.want()
        return blob

    def read(self, key: str, part: slice | None = None) -> np.ndarray | None:
        """Return the bytes under ``key``, or some of them; None if it is missing."""
        try:
            blob = self.open(key)
        except MissingBlob:
            return None
        try:
            if part is None:
                return blob.load()
            start, stop, _ = part.indices(blob.size)
            data = np.empty(stop - start, np.uint8)
            blob.read_into(start, data.data)
            return data
        finally:
            blob.close()

    def read_into(self, key: str, offset: int, out: memoryview, due: int | None = None) -> bool:
        """Fill ``out`` with bytes under ``key`` from ``offset`` on; return False if it is missing.

        Raise if it has another size than ``due``.
        """
        try:
            blob = self.open(key)
        except MissingBlob:
            return False
        try:
            if due is not None and blob.size != due:
                raise odd_size(blob.name, blob.size, due)
            blob.read_into(offset, out)
        finally:
            os.close(blob.number)
        return True

    def exists(self, key: str) -> bool:
        return status_of(self.path(key)) is not None

    def announce(self, keys: Iterable[str]) -> None:
        """Ask the system to prefetch the first of these chunks in the background."""
        fetch_ahead([self.path(key) for key in keys])

    def put(self, key: str, data: memoryview) -> None:
        path = self.path(key)
        with replacing_file(path) as partial:
            self._make_folder(self.root_of(key), os.path.dirname(path))
            solid = solid_bytes(data)
            self._write(partial, [(0, data[:solid])], None if solid == len(data) else len(data))

    def put_pieces(self, key: str, pieces: Iterator[Piece]) -> bool:
        """Replace the chunk under ``key`` atomically by pieces, written as they arrive; return False without pieces."""
        first = next(pieces, None)
        if first is None:
            return False
        path = self.path(key)
        with replacing_file(path) as partial:
            self._make_folder(self.root_of(key), os.path.dirname(path))
            self._write(partial, chain((first,), pieces))
        return True

    def is_its_own(self, key: str) -> bool:
        """Return whether the chunk under ``key`` is in a regular file without other hard links.

        A copy of an array by links shares its files with the original: a change in place would change both.
        """
        with suppress(OSError):
            status = os.lstat(self.path(key))
            return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        return False

    def change(self, key: str, pieces: Iterable[Piece], *, nbytes: int | None = None) -> None:
        """Write pieces of a stored chunk in place: a concurrent reader, or a crash, can see only some of them.

        With ``nbytes``, a missing chunk is created, with this length for every writer, so that no piece is lost.
        """
        path = self.path(key)
        try:
            with translated("write", path, but=(FileNotFoundError,)):
                if nbytes is None:
                    file = open_regular(path, os.O_WRONLY)
                else:
                    self._make_folder(self.root_of(key), os.path.dirname(path))
                    file = open_regular(path, os.O_WRONLY | os.O_CREAT, mode_of(path))
                try:
                    if nbytes is not None:
                        os.truncate(file, nbytes)
                    write_pieces(file, pieces)
                finally:
                    os.close(file)
        except FileNotFoundError:
            raise MissingBlob(path) from None
        written(path)

    def remove(self, key: str) -> None:
        """Delete the chunk under ``key`` if it exists: it then holds the fill value."""
        path = self.path(key)
        with translated("write", path):
            remove_file(path)
        written(path)

    def check(self) -> None:
        """Raise if the directory of the array has been removed; it is not created again."""
        with translated("write", self.root):
            os.stat(self.root)

    def _make_folder(self, root: str, folder: str) -> None:
        if folder not in self._folders:
            make_below(root, folder)
            self._folders.add(folder)

    def _write(self, path: str, pieces: Iterable[Piece], nbytes: int | None = None) -> None:
        """Write a new file, extended by a hole to ``nbytes`` if passed."""
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode_of(path))
        try:
            write_pieces(file, pieces, past_cache=self.past_cache)
            start_writing(file)
            if nbytes is not None:
                os.ftruncate(file, nbytes)
        finally:
            os.close(file)


def solid_bytes(data: memoryview) -> int:
    """Return the number of bytes before the trailing zeros, in whole blocks.

    A new file leaves the zeros as a hole, which is not written and faster to read.
    """
    block = 2**16
    whole = len(data) // block * block
    if np.frombuffer(data[whole:], np.uint8).any():
        return len(data)
    for end in range(whole, 0, -block):
        if np.frombuffer(data[end - block : end], np.uint64).any():
            return end if end < whole else len(data)
    return 0


def open_ahead(blobs: Any, keys: Iterable[Any], *, read_ahead: bool, ahead: int = 2) -> Iterator[LocalBlob | None]:
    """Open chunks in order, ``ahead`` of them in advance; yield None for a missing one.

    A rank that waits for a device reads no faster than it requests. With the next chunks requested whole, 1 GiB in
    short ranges came in 1.0 s from a cold disk here instead of 1.4 to 6 s.
    """
    waiting: deque[LocalBlob | None] = deque()
    try:
        for key in keys:
            try:
                waiting.append(blobs.open(key, read_ahead))
            except MissingBlob:
                waiting.append(None)
            if len(waiting) > ahead:
                yield from _hand_over(waiting)
        while waiting:
            yield from _hand_over(waiting)
    finally:
        for blob in waiting:
            if blob is not None:
                blob.close()


def _hand_over(waiting: deque[LocalBlob | None]) -> Iterator[LocalBlob | None]:
    blob = waiting.popleft()
    try:
        yield blob
    finally:
        if blob is not None:
            blob.close()
