"""Batched reads of many short ranges of local files: Linux reads hundreds of them in one call.

    first pass     ready? ready? ready? …     cached ranges are copied; the device is asked for the rest
    second pass    wait   ────── wait   …     the rest

A ``pread`` costs 0.7 µs from Python and releases and reacquires the interpreter's lock each time; ``io_submit`` costs
0.4 µs a range, and the lock once. Pages mapped one by one cost up to 2.5 µs. From a cold disk 16384 pages come in
0.09 s when all are requested at once, and in 0.7 s one after the other.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np

MOST = 512
"""Maximum number of ranges per call; the system allows about 64 such calls of all processes together."""
NOWAIT = getattr(os, "RWF_NOWAIT", 0)
"""Flag that reads only cached data, while the device fetches the rest."""
NOT_READY = (-errno.EAGAIN, -errno.EOPNOTSUPP, -errno.EINVAL)
REQUEST = np.dtype(
    {
        "names": ["number", "key", "flags", "kind", "priority", "file", "address", "length", "offset", "unused"],
        "formats": ["u8", "u4", "u4", "u2", "i2", "u4", "u8", "u8", "i8", "2u8"],
    }
)
"""``struct iocb`` of Linux."""
CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}.get(platform.machine(), ())
"""Numbers of io_setup, io_destroy, io_getevents, io_submit."""


class Batches:
    """Context of the kernel, and buffers, for the ranges of one call."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._requests = np.zeros(MOST, REQUEST)
        self._requests["number"] = np.arange(MOST)
        self._pointers = (self._requests.ctypes.data + np.arange(MOST) * REQUEST.itemsize).astype(np.uint64)
        event = [("number", "u8"), ("request", "u8"), ("result", "i8"), ("more", "i8")]  # ``struct io_event``
        self._events = np.zeros(MOST, event)
        if self._number(0, ctypes.c_long(MOST), ctypes.byref(self._context)) != 0:
            raise OSError(ctypes.get_errno(), "io_setup")

    def _number(self, name: int, *arguments: object) -> int:
        return int(self._call(ctypes.c_long(CALLS[name]), *arguments))

    def read(
        self, files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, at: np.ndarray, flags: int
    ) -> np.ndarray:
        """Read at most `MOST` ranges to addresses; return the bytes of each, or its negative error number."""
        count = len(offsets)
        requests = self._requests[:count]
        requests["file"], requests["offset"], requests["length"], requests["address"] = files, offsets, lengths, at
        requests["flags"] = flags
        results = np.full(count, -errno.EAGAIN, np.int64)
        done = 0
        while done < count:
            left, pointers = ctypes.c_long(count - done), ctypes.c_void_p(self._pointers.ctypes.data + 8 * done)
            taken = self._number(3, self._context, left, pointers)
            if taken <= 0:
                results[done] = -ctypes.get_errno()
                done += 1
                continue
            self._wait(taken, results)
            done += taken
        return results

    def _wait(self, count: int, results: np.ndarray) -> None:
        while count:
            number, place = ctypes.c_long(count), ctypes.c_void_p(self._events.ctypes.data)
            got = self._number(2, self._context, number, number, place, None)
            if got < 0 and ctypes.get_errno() != errno.EINTR:
                raise OSError(ctypes.get_errno(), "io_getevents")
            events = self._events[: max(got, 0)]
            results[events["number"].astype(np.int64)] = events["result"]
            count -= len(events)

    def close(self) -> None:
        self._number(1, self._context)


_free: list[Batches] = []
_refused = not CALLS


os.register_at_fork(after_in_child=_free.clear)  # the contexts are those of the parent process


@contextmanager
def room_for() -> Iterator[Batches | None]:
    """Yield a context for a call, reused if possible; None where the system provides none."""
    global _refused
    batches = None
    if not _refused:
        try:
            batches = _free.pop() if _free else Batches()
        except IndexError:
            batches = Batches()
        except OSError as error:
            _refused = error.errno in (errno.ENOSYS, errno.EPERM)
    try:
        yield batches
    except BaseException:
        if batches:
            batches.close()
        raise
    if batches:
        _free.append(batches)


def read_ranges(
    files: np.ndarray,
    offsets: np.ndarray,
    lengths: np.ndarray,
    into: np.ndarray,
    places: np.ndarray,
    *,
    wait: bool = True,
) -> np.ndarray:
    """Read ranges of open files into ``into``; return the bytes of each, or its negative error number."""
    flags, few = 0 if wait else NOWAIT, len(offsets) <= 8
    with nullcontext() if few else room_for() as room:
        if room is None:
            each = zip(files.tolist(), offsets.tolist(), lengths.tolist(), places.tolist(), strict=True)
            return np.array([_one(file, at, into.data[to : to + n], flags) for file, at, n, to in each], np.int64)
        return submitted(room, files, offsets, lengths, into.ctypes.data + places, flags)


def submitted(
    room: Batches, files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, at: np.ndarray, flags: int
) -> np.ndarray:
    """Read any number of ranges to addresses, as `Batches.read` does."""
    cuts = [slice(low, low + MOST) for low in range(0, len(offsets), MOST)]
    return np.concatenate([room.read(files[cut], offsets[cut], lengths[cut], at[cut], flags) for cut in cuts])


def _one(file: int, offset: int, into: memoryview, flags: int) -> int:
    try:
        return os.preadv(file, [into], offset, flags)
    except OSError as error:
        return -(error.errno or errno.EIO)
