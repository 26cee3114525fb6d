"""Assembly of chunk pieces in storage order, and their placement in unfinished chunks.

    source chunks ─► stage: pieces of many chunks, or rows of a long one, in target order ─► their runs in files

A piece that holds only the fill value is not placed, and a chunk without placed pieces is not stored. If other pieces
of that chunk are placed, the fill value is placed before the chunk gets its name.

An unfinished chunk receives its pieces at their offsets, from many writers, in any order:

    c/0/3.4f1c….partial     ██··██····██        a piece writes only its own bytes, so none are lost
    c/0/3                   ████████████        its final name, once complete: readers see the whole chunk

The name is unique to one plan of one run. A resumed run finds the placed pieces; for other runs the file is the
leftover of a dead run. Space for a whole chunk is allocated with the first piece, so that a full device is detected
early, and unwritten bytes are zeros.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product
from typing import Any

import numpy as np

from oocarrays.mapping.grid import Index, turned
from oocarrays.mapping.section import Section
from oocarrays.storage.chunks.elements import chunk_major, cut, element_runs, fill_bits, is_fill, turned_section
from oocarrays.storage.files.array_file import ArrayFile, blobs_of
from oocarrays.storage.local.blobs import LocalBlobs, byte_view, checksum
from oocarrays.storage.local.fs import failure, make_below, mode_of, open_regular, partial_name, translated
from oocarrays.storage.local.pages import libc, open_past_cache, pieces_of, shaped, write_pieces
from oocarrays.storage.local.syncing import before_naming, written
from oocarrays.storage.meter import Meter

Take = Callable[[Section, np.ndarray], None]
"""Function that copies the elements of a source section into a buffer of ``counts + pieces``, as `scatter` does."""


class Assembler:
    """Assembler that places pieces in the chunks of one plain array file."""

    def __init__(self, file: ArrayFile, meter: Meter, mark: str, *, past_cache: bool) -> None:
        blobs = blobs_of(file.zarr)
        assert isinstance(blobs, LocalBlobs), "what is assembled is in local files"
        self.file, self.meter = file, meter
        self.grid, self.dtype, self._order = file.stored.grid, file.dtype, file.stored.order
        self.chunks = UnfinishedChunks(blobs, mark, file.stored.chunk_bytes, past_cache=past_cache)
        self.key = lru_cache(2**13)(file.chunk_key)
        """Key of a chunk, cached because each box requests keys of the same chunks: a MiB of them."""
        self._fill = fill_bits(file)
        self.fill_is_zeros = not any(self._fill)
        """Whether unwritten bytes equal the fill value."""

    def place(
        self,
        first: Index,
        counts: Index,
        piece: Section,
        stage: np.ndarray,
        tile: Index,
        take: Take,
        kept: Collection[str] = (),
    ) -> Iterator[tuple[Index, str, int | None]]:
        """Place the same piece of adjacent chunks, unless it holds only the fill value.

        Yields
        ------
        tuple
            Index and key of each chunk, and the checksum of its placed piece, as in `sum_of`; None if none was placed.
        """
        parts = list(cut(piece, tile)) if set(counts) <= {1} else [piece]
        if len(parts) > 1:
            key = self.key(first)
            yield first, key, None if key in kept else self._place_long(first, key, parts, stage, take)
            return
        laid, starts = self._laid(first, counts, piece, stage, take), self._starts(piece)
        for number in product(*map(range, counts)):
            index = tuple(f + i for f, i in zip(first, number, strict=True))
            here: Any = (*number, ...)
            key, data = self.key(index), laid[here]
            if key in kept or is_fill(data, self._fill):
                yield index, key, None
                continue
            elements = byte_view(data)
            self.chunks.write_runs(key, starts, elements)
            yield index, key, checksum(elements)

    def _place_long(self, index: Index, key: str, parts: list[Section], stage: np.ndarray, take: Take) -> int | None:
        """Place a long piece a few rows at a time; place rows of the fill value only if other rows differ."""
        before: list[Section] = []
        placed: int | None = None
        for part in parts:
            laid = self._laid(index, (1,) * len(index), part, stage, take)
            if placed is None and is_fill(laid, self._fill):
                before.append(part)
                continue
            if before:  # the fill value overwrites the stage, so it is refilled
                self._put_fill(key, before, stage)
                before, laid = [], self._laid(index, (1,) * len(index), part, stage, take)
            self.chunks.write_runs(key, self._starts(part), byte_view(laid))
            placed = (placed or 0) + self._sum(laid)
        return placed

    def place_fill(self, index: Index, piece: Section, stage: np.ndarray, tile: Index) -> None:
        self._put_fill(self.key(index), cut(piece, tile), stage)

    def _put_fill(self, key: str, parts: Iterable[Section], stage: np.ndarray) -> None:
        for part in parts:
            laid = shaped(stage, part.shape, self.dtype)
            laid[...] = self.file.fill_value
            self.chunks.write_runs(key, self._starts(part), byte_view(laid))

    def _starts(self, part: Section) -> list[int]:
        """Return the byte offsets at which the runs of a part start in a chunk's file."""
        return (
            element_runs(turned_section(part, self._order), turned(self.grid.chunks, self._order))[0]
            * self.dtype.itemsize
        ).tolist()

    def _laid(self, first: Index, counts: Index, part: Section, stage: np.ndarray, take: Take) -> np.ndarray:
        """Return a part of several chunks in chunk-major storage order, with the fill value beyond the array's edge."""
        laid = chunk_major(stage, counts, part.shape, self.dtype, self._order)
        lower = tuple(i * c + l for i, c, l in zip(first, self.grid.chunks, part.lower, strict=True))
        ends = [l + k * m for l, k, m in zip(lower, counts, part.shape, strict=True)]
        upper = tuple(map(min, ends, self.grid.shape))
        if list(upper) != ends:
            laid[...] = self.file.fill_value
        if all(l < u for l, u in zip(lower, upper, strict=True)):
            take(Section(lower, upper), laid)
        return self._lying(laid)

    def _lying(self, laid: np.ndarray) -> np.ndarray:
        """Return the same elements with each chunk's axes in storage order."""
        others = laid.ndim - len(self.grid.chunks)
        return laid.transpose([*range(others), *turned(range(others, laid.ndim), self._order)])

    def _sum(self, laid: np.ndarray) -> int:
        """Return a checksum of elements, 0 for the fill value, so that it is equal whether or not that was placed."""
        return 0 if is_fill(laid, self._fill) else checksum(byte_view(laid))

    def sum_of(self, chunk: np.ndarray, piece: Section, tile: Index) -> int:
        """Return the checksum of a piece of a stored chunk, comparable with that from `place`."""
        return sum(self._sum(np.ascontiguousarray(self._lying(chunk[part.slices]))) for part in cut(piece, tile))

    def read(self, index: Index) -> np.ndarray | None:
        """Return a finished or unfinished chunk; None if no such file exists, or if it is incomplete."""
        data = self.chunks.read(self.key(index))
        return None if data is None else chunk_major(data, (), self.grid.chunks, self.dtype, self._order)

    def finish(self, index: Index) -> bool:
        """Rename an unfinished chunk to its final name; return False if it has no unfinished file."""
        if not self.chunks.finish(self.key(index)):
            return False
        self.meter.add(write_requests=1, written_bytes=self.file.stored.chunk_bytes)
        return True

    def skip(self, index: Index, *, fresh: bool) -> None:
        """Store no file for a chunk that holds only the fill value; delete an old one unless the array is ``fresh``."""
        if not fresh:
            self.chunks.discard(self.key(index))
        self.meter.add(skipped_chunks=1)


MOST_FILES = 4096
"""Maximum number of files that a process has open at one time, and at most half of the system's limit."""


@dataclass(slots=True)
class _Open:
    file: int
    """File descriptor."""
    users: int = 0
    """Number of writers that use it."""


class UnfinishedChunks:
    """The unfinished chunks of one plain array in a local folder; thread-safe."""

    def __init__(
        self, folder: str | LocalBlobs, mark: str, nbytes: int, *, past_cache: bool = False, most: int | None = None
    ) -> None:
        self._blobs = LocalBlobs(folder) if isinstance(folder, str) else folder
        self.mark, self.nbytes = mark, nbytes
        self._past_cache = past_cache
        self._most = allowed_files() if most is None else most
        self._files: OrderedDict[str, _Open] = OrderedDict()
        self._lock = threading.Lock()
        self._close_all = weakref.finalize(self, _close, self._files)

    def path(self, key: str) -> str:
        return self._blobs.path(partial_name(key, self.mark))

    def final(self, key: str) -> str:
        return self._blobs.path(key)

    def is_there(self, key: str) -> bool:
        return os.path.exists(self.path(key))

    def write_runs(self, key: str, offsets: list[int], data: memoryview) -> None:
        """Write runs of equal length, which are consecutive in ``data``, at their offsets."""
        length = len(data) // max(len(offsets), 1)
        there: _Open | None = None
        try:
            there = self._taken(key)
            write_pieces(there.file, pieces_of(data, offsets, length))
        except OSError as error:
            raise failure("write", self.path(key), error) from error
        finally:
            if there is not None:
                with self._lock:
                    there.users -= 1

    def _taken(self, key: str) -> _Open:
        """Return a chunk's open file and count one more user; it stays open for later writers."""
        with self._lock:
            there = self._files.get(key)
            if there is None:
                there = self._files[key] = _Open(self._open(key))
                self._close_some()
            self._files.move_to_end(key)
            there.users += 1
            return there

    def _close_some(self) -> None:
        """Close the least recently used idle files beyond the maximum, except the newest."""
        more, newest = max(len(self._files) - self._most, 0), next(reversed(self._files))
        idle = (key for key, each in self._files.items() if not each.users and key != newest)
        for key in list(islice(idle, more)):
            os.close(self._files.pop(key).file)

    def _open(self, key: str) -> int:
        path, flags = self.path(key), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            file = self._create(path, flags)
        except FileNotFoundError:
            make_below(self._blobs.root_of(key), os.path.dirname(path))
            file = self._create(path, flags)
        try:
            if os.fstat(file).st_size != self.nbytes:
                take_room(file, self.nbytes)
        except BaseException:
            os.close(file)
            raise
        return file

    def _create(self, path: str, flags: int) -> int:
        if self._past_cache:
            file, self._past_cache = open_past_cache(path, flags)
            return file
        return open_regular(path, flags, mode_of(path))

    def finish(self, key: str) -> bool:
        """Rename a complete chunk to its final name; return False if it has no unfinished file."""
        with self._lock:
            there = self._files.pop(key, None)
        path, final = self.path(key), self.final(key)
        with suppress(FileNotFoundError), translated("write", final, but=(FileNotFoundError,)):
            if there is not None:
                os.close(there.file)
            before_naming(path)
            os.replace(path, final)
            written(final)
            return True
        return False

    def reopen(self, key: str) -> None:
        """Rename a finished chunk back to its unfinished name, to write another piece."""
        final = self.final(key)
        if not self.is_there(key):
            with suppress(FileNotFoundError):
                os.replace(final, self.path(key))
                written(final)

    def discard(self, key: str) -> None:
        self._blobs.remove(key)
        self._blobs.remove(partial_name(key, self.mark))

    def read(self, key: str) -> np.ndarray | None:
        """Return the bytes of a finished or unfinished chunk; None if it is missing or has a wrong size."""
        for path in (self.final(key), self.path(key)):
            with suppress(FileNotFoundError):
                data = np.fromfile(path, np.uint8)
                return data if len(data) == self.nbytes else None
        return None

    def placed(self, key: str) -> None:
        """Register a chunk's unfinished file for syncing, after pieces were written."""
        written(self.path(key))

    def close(self) -> None:
        with self._lock:
            _close(self._files)


def allowed_files() -> int:
    """Return the maximum number of open files: half of the system's limit, as the process needs others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_FILES if soft == resource.RLIM_INFINITY else max(min(soft // 2, MOST_FILES), 1)


def take_room(file: int, nbytes: int) -> None:
    """Set an open file's length, and allocate its space if the file system can do so without writing."""
    fallocate = getattr(libc(), "fallocate", None)
    if fallocate is not None and nbytes:
        if not fallocate(file, 0, ctypes.c_int64(0), ctypes.c_int64(nbytes)):
            return
        number = ctypes.get_errno()
        if number not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EINTR):
            raise OSError(number, os.strerror(number))
    os.ftruncate(file, nbytes)


def _close(files: OrderedDict[str, _Open]) -> None:
    while files:
        with suppress(OSError):
            os.close(files.popitem()[1].file)
