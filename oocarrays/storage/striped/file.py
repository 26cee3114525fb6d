"""Striped files: one logical file over many disks, with the Unix file calls.

    open_striped("field", "r+", disks=["/mnt/a", "/mnt/b", "/mnt/c"])

    block       0   1   2   3   4   5        /mnt/a/field   0 3
    disk        a   b   c   a   b   c        /mnt/b/field   1 4
                                             /mnt/c/field   2 5

PIO_OPEN, PIO_CLOSE, PIO_READ, PIO_WRITE and PIO_SEEK of Wang and Leiss, "User-Level Parallel File I/O", section 3.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import chain
from typing import Any

from oocarrays.errors import InputError, StoreFailure, plural
from oocarrays.mapping.given import whole
from oocarrays.storage.striped.file_parts import StripedParts
from oocarrays.storage.striped.layout import runs
from oocarrays.storage.striped.transfers import Transfers

Request = tuple[int, list[memoryview]]
"""Offset of a request on its disk, and the memory of its blocks."""
ZEROS = bytes(2**16)


class StripedFile(io.RawIOBase):
    """Open striped file, as returned by `open_striped`.

    Threads may share it: ``pread`` and ``pwrite`` have explicit offsets; ``read`` and ``write`` advance the shared
    position.
    """

    def __init__(self, parts: StripedParts, mode: str, buffers: int) -> None:
        super().__init__()
        self._parts = parts
        self.mode = mode
        """Mode of the file, as of ``open``."""
        self.block = parts.block
        """Bytes of a block: B."""
        self.disks = tuple(disk.label for disk in parts.disks)
        """Labels of the disks, in order: D of them."""
        self.buffers = buffers
        """Maximum requests in flight per disk: C."""
        self.name = parts.name
        self._transfers = Transfers(len(self.disks), buffers)
        self._joined = [
            min(max(disk.joined_bytes // self.block, 1), 512 if len(self.disks) > 1 else 2**30)  # of 1024 per call
            for disk in parts.disks
        ]
        self._position, self._moving = 0, threading.RLock()
        self._length, self._growing = 0, threading.Lock()
        self._appended = 0
        self._appending: list[Future[int]] = []
        self._last: dict[str, Future[Any]] = {}
        self._whole = parts.closed
        self._reads, self._writes = mode[0] == "r" or "+" in mode, mode != "r"

    def __repr__(self) -> str:
        disks = plural(len(self.disks), "disk")
        return f"<StripedFile {self.name!r} on {disks}, blocks of {self.block} bytes, {self.mode!r}>"

    # ------------------------------------------------------------------------------------------- positional

    def pread(self, nbytes: int, offset: int) -> bytes:
        """Read ``nbytes`` at ``offset``, fewer at the end of the file; the position does not change.

        Raises
        ------
        StoreFailure
            If a disk fails to read; the message names it.
        """
        room = bytearray(self._there(offset, nbytes))
        return bytes(memoryview(room)[: self.preadinto(room, offset)])

    def preadinto(self, buffer: Any, offset: int) -> int:
        """Fill ``buffer`` from ``offset``; return the number of bytes read."""
        short: list[int] = []
        view = self._existing(_bytes_of(buffer), offset)
        self._make(view, offset, partial(self._read_one, short), reads=True)
        return self._filled(offset, short, len(view))

    def pwrite(self, data: Any, offset: int) -> int:
        """Write all of ``data`` at ``offset``; the position does not change.

        Raises
        ------
        DiskFullError, StoreFailure
            If a disk is full or fails to write; the message names it.
        """
        view = self._announced(_bytes_of(data), offset)
        self._make(view, offset, self._write_one, reads=False)
        return self._grown(offset, len(view))

    def readstart(self, nbytes: int, offset: int | None = None) -> Future[bytes]:
        """Start an asynchronous read; without ``offset``, read at the position and advance it immediately."""
        with self._moving:
            at = self._position if offset is None else offset
            room = bytearray(self._there(at, nbytes))
            if offset is None:
                self._position += len(room)
            short: list[int] = []
            view = self._existing(memoryview(room), at)
            read, filled = partial(self._read_one, short), lambda: bytes(view[: self._filled(at, short, len(room))])
            started = self._last["read"] = self._transfers.start(self._work(view, at), read, filled)
            return started

    def readend(self, started: Future[bytes] | None = None) -> bytes:
        """Wait for a read started by ``readstart``, by default the most recent one, and return its bytes."""
        return self._end("read", started)

    def writestart(self, data: Any, offset: int | None = None) -> Future[int]:
        """Start an asynchronous write; ``data`` must not change until it ends.

        In append mode, several calls append their data in call order.
        """
        view = _bytes_of(data)
        with self._moving:
            at = self._place_to_write() if offset is None else offset
            work = self._work(self._announced(view, at), at)
            started = self._transfers.start(work, self._write_one, partial(self._grown, at, len(view)))
            if offset is None:
                self._moved(at + len(view), started)
            self._last["write"] = started
            return started

    def writeend(self, started: Future[int] | None = None) -> int:
        """Wait for a write started by ``writestart``, by default the most recent one, and return its number of
        bytes."""
        return self._end("write", started)

    def _end(self, what: str, started: Future[Any] | None) -> Any:
        """Wait for a request, by default the most recent unfinished one."""
        with self._moving:
            last = self._last.get(what)
            if started is None and last is None:
                raise InputError(f"no {what} is under way: {what}end() ends the most recent {what}start()")
            if started in (None, last):
                started = self._last.pop(what)
        assert started is not None, "the most recent request, or the one that is given"
        return started.result()

    # ----------------------------------------------------------------------------------------- at the position

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` from the position; return the number of bytes read."""
        with self._moving:
            got = self.preadinto(buffer, self._position)
            self._position += got
            return got

    def read(self, size: int | None = -1) -> bytes:
        """Read ``size`` bytes, or all remaining bytes."""
        with self._moving:
            if size is None or size < 0:
                return self.readall()
            data = self.pread(size, self._position)
            self._position += len(data)
            return data

    def readall(self) -> bytes:
        """Read all remaining bytes."""
        with self._moving:
            return self.read(max(self._now() - self._position, 0))

    def write(self, data: Any) -> int:
        """Write all of ``data`` at the position, or at the end in append mode."""
        with self._moving:
            at = self._place_to_write()
            done = self.pwrite(data, at)
            self._position = at + done
            return done

    def _place_to_write(self) -> int:
        """Return the offset of a write without one; in append mode, the end after all pending writes."""
        if self.mode[0] != "a":
            return self._position
        self._appending = [each for each in self._appending if not each.done()]
        return max(self._now(), self._appended) if self._appending else self._now()

    def _moved(self, position: int, started: Future[int]) -> None:
        """Move the position past a write; in append mode, reserve its range while it is pending."""
        self._position = position
        if self.mode[0] == "a":
            self._appended = position
            self._appending.append(started)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position: PIO_SEEK."""
        self._check_open()
        if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
            raise InputError(f"whence={whence}: it takes 0, 1 or 2")
        with self._moving:
            base = self._now() if whence == os.SEEK_END else (0, self._position)[whence]
            at = base + whole(offset, "offset")
            if at < 0:
                raise InputError(f"cannot seek to {at}, before the beginning of {self.name!r}")
            self._position = at
            return at

    def tell(self) -> int:
        """Return the position."""
        self._check_open()
        return self._position

    # ------------------------------------------------------------------------------------------------ length

    def truncate(self, size: int | None = None) -> int:
        """Set the length to ``size``, or to the position; added bytes are zeros in holes."""
        self._check_writes()
        with self._moving, self._growing:
            length = self._position if size is None else whole(size, "size", 0)
            self._begin()
            self._parts.set_length(length)
            self._length = length
            return length

    def _now(self) -> int:
        self._check_open()
        with self._growing:
            self._length = self._parts.length()
            return self._length

    def _there(self, offset: int, nbytes: int) -> int:
        if whole(offset, "offset", 0) + whole(nbytes, "size", 0) > self._length:
            return max(min(nbytes, self._now() - offset), 0)
        return nbytes

    # ---------------------------------------------------------------------------------------------- transfers

    def _existing(self, view: memoryview, offset: int) -> memoryview:
        self._check_open()
        if not self._reads:
            raise io.UnsupportedOperation("not open for reading")
        return view[: self._there(offset, len(view))]

    def _filled(self, offset: int, short: list[int], nbytes: int) -> int:
        """Return the bytes that were read; if parts were too short, other handles may have truncated the file."""
        return max(min(nbytes, self._now() - offset), 0) if short else nbytes

    def _announced(self, view: memoryview, offset: int) -> memoryview:
        self._check_writes()
        whole(offset, "offset", 0)
        if len(view):
            self._begin()
        return view

    def _grown(self, offset: int, written: int) -> int:
        with self._growing:
            self._length = max(self._length, offset + written if written else 0)
        return written

    def _begin(self) -> None:
        self._whole = False
        self._parts.begin_to_write()

    def _work(self, view: memoryview, offset: int) -> list[Iterator[Request]]:
        return [self._requests(view, offset, number) for number in range(len(self.disks))]

    def _make(self, view: memoryview, offset: int, do: Any, *, reads: bool) -> None:
        """Make the requests for a range: a single one, and those before the first that waits, in this thread.

        A thread costs more than a copy from or to the page cache.
        """
        nbytes, disks = len(view), len(self.disks)
        number = offset // self.block % disks
        alone = self._joined[0] * self.block if disks == 1 else self.block
        if 0 < nbytes <= alone - offset % self.block:
            do(number, next(self._requests(view, offset, number)))
        elif nbytes:
            left = []
            for requests, part in zip(self._work(view, offset), self._parts.open_parts, strict=True):
                make = part.read_at_once if reads else part.write_at_once
                undone = next((request for request in requests if not make(request[1], request[0])), None)
                left.append(requests if undone is None else chain([undone], requests))
            self._transfers.start(left, do, lambda: None).result()

    def _requests(self, view: memoryview, offset: int, number: int) -> Iterator[Request]:
        each = runs(offset, len(view), self.block, len(self.disks), number, self._joined[number])
        return ((begin, [view[start:stop] for start, stop in cuts]) for begin, cuts in each)

    def _read_one(self, short: list[int], number: int, request: Request) -> None:
        begin, views = request
        got = self._parts.open_parts[number].read(views, begin)
        if got < sum(map(len, views)):
            short.append(number)
            self._read_hole(number, views, got)

    def _read_hole(self, number: int, views: Sequence[memoryview], got: int) -> None:
        """Fill missing bytes of a part with zeros; raise if they were lost rather than truncated by another handle."""
        if self._whole and self._parts.lost(number):
            raise StoreFailure(
                f"disk {self.disks[number]} has fewer bytes of striped file {self.name!r} than when it was opened"
            )
        for view in views:
            for at in range(min(got, len(view)), len(view), len(ZEROS)):
                view[at : at + len(ZEROS)] = ZEROS[: len(view) - at]
            got = max(got - len(view), 0)

    def _write_one(self, number: int, request: Request) -> None:
        begin, views = request
        self._parts.open_parts[number].write(views, begin)

    # ------------------------------------------------------------------------------------------------- the rest

    def readable(self) -> bool:
        """Return whether the file is open for reading."""
        self._check_open()
        return self._reads

    def writable(self) -> bool:
        """Return whether the file is open for writing."""
        self._check_open()
        return self._writes

    def seekable(self) -> bool:
        """Return True."""
        self._check_open()
        return True

    def sync(self) -> None:
        """Flush all written data to the devices, in parallel."""
        self._check_open()
        parts = [iter([part]) for part in self._parts.open_parts]
        self._transfers.start(parts, lambda _, part: part.sync(), lambda: None).result()

    def close(self) -> None:
        """Wait for pending transfers, record the length if the file was written, and close all parts: PIO_CLOSE."""
        if self.closed:
            return
        try:
            self._transfers.close()
            try:
                self._parts.end_writing()
            finally:
                self._parts.close()
        finally:
            super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"striped file {self.name!r} is closed")

    def _check_writes(self) -> None:
        self._check_open()
        if not self._writes:
            raise io.UnsupportedOperation("not open for writing")

    def __reduce__(self) -> Any:
        raise TypeError("an open striped file cannot be pickled: open it where it is used")


def _bytes_of(data: Any) -> memoryview:
    view = memoryview(data)
    return view if view.format == "B" and view.ndim == 1 and view.contiguous else view.cast("B")
