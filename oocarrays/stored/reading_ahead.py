"""Reading ahead by hand: the next section is read by a thread while the one before is computed with.

    prefetch 0 ─┬─ prefetch 1 ── compute 0 ─┬─ prefetch 2 ── compute 1 ─┬─ …
    thread      └─ read 0 ── read 1 ────────┴─ read 2 ──────────────────┴─ …      never more than so many bytes ahead

Thakur 1995, section 5.5.2 and Figure 5.8 (data prefetching).
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any


class Prefetched:
    """A section that is read ahead. Made by `oocarrays.OutOfCoreArray.prefetch`."""

    def __init__(self, read: Callable[[], Any], nbytes: int, ahead: ReadAhead) -> None:
        self.nbytes = nbytes
        """Bytes of the section."""
        self._read: Callable[[], Any] | None = read
        self._future: Future[Any] | None = None
        self._ahead = ahead

    def result(self, timeout: float | None = None) -> Any:
        """Return the section as a numpy array; what the thread has not begun is read here and now."""
        mine = self._ahead.take_over(self)
        if mine is not None:
            _run(mine, self._future)
        if self._future is None:
            raise CancelledError("this section was given up: prefetch it again")
        try:
            return self._future.result(timeout)
        finally:
            if self._future.done():
                self._ahead.release(self)

    def done(self) -> bool:
        """Return whether `result` does not wait."""
        return self._future is not None and self._future.done()

    def cancel(self) -> bool:
        """Give it up, and the memory that it holds; whether it was not read yet."""
        return self._ahead.give_up(self)


def _run(read: Callable[[], Any], future: Future[Any] | None) -> None:
    assert future is not None, "what is taken over has a future"
    try:
        future.set_result(read())
    except BaseException as error:  # noqa: BLE001  whoever asks for the result is told
        future.set_exception(error)


class ReadAhead:
    """All that a process reads ahead: one thread, in the order in which it was asked for."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a section that nobody wants any more may be collected in the middle of this
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[weakref.ref[Prefetched]] = deque()
        self._held: dict[int, weakref.finalize] = {}
        self._bytes = 0
        self._most = 0

    def add(self, read: Callable[[], Any], nbytes: int, most: int) -> Prefetched:
        """Have a section read as soon as no more than ``most`` bytes are ahead, itself among them."""
        section = Prefetched(read, nbytes, self)
        with self._lock:
            self._most = most
            if nbytes <= most:
                self._waiting.append(weakref.ref(section))
            self._begin()
        return section

    def _begin(self) -> None:
        while self._waiting:
            section = self._waiting[0]()
            if section is None or section._read is None:
                self._waiting.popleft()
            elif self._bytes + section.nbytes > self._most:
                return
            else:
                self._waiting.popleft()
                self._pool = self._pool or ThreadPoolExecutor(1, "read-ahead")
                self._bytes += section.nbytes
                self._held[id(section)] = weakref.finalize(section, self._free, id(section), section.nbytes)
                section._future, section._read = self._pool.submit(section._read), None

    def take_over(self, section: Prefetched) -> Callable[[], Any] | None:
        """Return the function that reads the section, if nobody has begun to."""
        with self._lock:
            read, section._read = section._read, None
            if read is not None:
                section._future = Future()
            return read

    def give_up(self, section: Prefetched) -> bool:
        """Let a section go; whether it was not read yet."""
        with self._lock:
            future, section._future = section._future, None
            begun = section._read is None and not (future is not None and future.cancel())
            section._read = None
            self.release(section)
            return not begun

    def release(self, section: Prefetched) -> None:
        """Count a section that somebody has taken, or given up, as ahead no more."""
        freed = self._held.get(id(section))
        if freed is not None:
            freed()

    def _free(self, key: int, nbytes: int) -> None:
        with self._lock:
            if self._held.pop(key, None) is not None:
                self._bytes -= nbytes
            self._begin()


AHEAD = ReadAhead()
"""Of this process: the bytes that it reads ahead are counted together."""
