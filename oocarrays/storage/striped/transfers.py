"""Requests under way: C of each disk, always, the next of a disk when one of that disk has come back.

    disk 0   ▒0▒▒0▒ ▒3▒▒3▒ ▒6▒▒6▒          C threads a disk take its requests one after the other:
    disk 1   ▒1▒ ▒4▒ ▒7▒                    a slow disk holds up its own, and nobody else's

Wang and Leiss, Figure 5: at most D · C messages are active, and a long transfer always has so many; whenever one comes
back, another goes to where it came from. Reading and writing are the same, and so is waiting for it or not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Generic, TypeVar

from oocarrays.errors import StoreFailure

R = TypeVar("R")


class Transfers:
    """The threads of some disks, C each; many transfers share them."""

    def __init__(self, disks: int, buffers: int) -> None:
        self.disks, self.buffers = disks, buffers
        self._lock = threading.Lock()
        self._pools: list[ThreadPoolExecutor] = []
        self._process = 0

    def _threads(self) -> list[ThreadPoolExecutor]:
        """The threads, which a forked process has none of."""
        with self._lock:
            if self._process != os.getpid():
                self._pools = [ThreadPoolExecutor(self.buffers, f"disk-{n}") for n in range(self.disks)]
                self._process = os.getpid()
            return self._pools

    def start(self, work: Sequence[Iterator[R]], do: Callable[[int, R], None], result: int) -> Future[int]:
        """Begin requests, and do not wait."""
        transfer = _Transfer(work, do, result)
        first = [list(islice(each, self.buffers)) for each in work]
        threads = [disk for disk, some in enumerate(first) for _ in some]
        transfer.begin(len(threads), first)
        pools = self._threads() if threads else []
        for disk in threads:
            pools[disk].submit(transfer.drain, disk)
        return transfer.future

    def close(self) -> None:
        """Let the threads end when they have done what was begun."""
        with self._lock:
            for pool in self._pools if self._process == os.getpid() else ():
                pool.shutdown(wait=True)
            self._pools, self._process = [], 0


class _Transfer(Generic[R]):
    """One transfer: its requests, what failed first, and who still works at it."""

    def __init__(self, work: Sequence[Iterator[R]], do: Callable[[int, R], None], result: int) -> None:
        self.future: Future[int] = Future()
        self._work, self._do, self._result = work, do, result
        self._locks = [threading.Lock() for _ in work]
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._working = 0
        self._first: list[list[R]] = []

    def begin(self, threads: int, first: list[list[R]]) -> None:
        """Say how many threads work at it; the first requests of each disk are taken to count them."""
        self._first, self._working = first, threads
        self.future.set_running_or_notify_cancel()
        if not threads:
            self.future.set_result(self._result)

    def _next(self, disk: int) -> list[R]:
        with self._locks[disk]:
            first = self._first[disk]
            return [first.pop(0)] if first else list(islice(self._work[disk], 1))

    def drain(self, disk: int) -> None:
        """Make requests of a disk until there are no more; after a failure none is begun."""
        try:
            while self._failure is None and (taken := self._next(disk)):
                self._do(disk, taken[0])
        except BaseException as error:  # noqa: BLE001  whoever waits is told
            self._failure = self._failure or error
        with self._lock:
            self._working -= 1
            ended = not self._working
        if ended:
            self._end()

    def _end(self) -> None:
        failure = self._failure
        if failure is None:
            self.future.set_result(self._result)
        elif isinstance(failure, OSError):
            self.future.set_exception(StoreFailure(f"a disk failed: {failure.strerror or failure}"))
        else:
            self.future.set_exception(failure)
