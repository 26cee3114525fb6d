"""Transfers between memory and several disks.

    disk 0   ▒0▒▒0▒ ▒3▒▒3▒ ▒6▒▒6▒           C threads per disk take its requests one after the other:
    disk 1   ▒1▒ ▒4▒ ▒7▒                    a slow disk delays only its own requests

Wang and Leiss, Figure 5: at most D · C messages are active, and a long transfer keeps that many active. Each answer is
followed by the next request to the same disk. Reads and writes, blocking or not, use the same scheme.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

R = TypeVar("R")
T = TypeVar("T")


class Transfers:
    """Threads of several disks, C each, shared by all transfers."""

    def __init__(self, disks: int, buffers: int) -> None:
        self.disks, self.buffers = disks, buffers
        self._lock = threading.Lock()
        self._pools: list[ThreadPoolExecutor] = []
        self._process = 0

    def _threads(self) -> list[ThreadPoolExecutor]:
        """Return the thread pools; create new ones after a fork."""
        with self._lock:
            if self._process != os.getpid():
                self._pools = [ThreadPoolExecutor(self.buffers, f"disk-{n}") for n in range(self.disks)]
                self._process = os.getpid()
            return self._pools

    def start(self, work: Sequence[Iterator[R]], do: Callable[[int, R], None], then: Callable[[], T]) -> Future[T]:
        """Start requests without waiting; return the result of ``then``, which is called after all of them."""
        first = [list(islice(each, self.buffers)) for each in work]
        queues = [chain(some, each) for some, each in zip(first, work, strict=True)]
        future, failures, lock, working = Future[T](), list[BaseException](), threading.Lock(), sum(map(len, first))
        future.set_running_or_notify_cancel()

        def drain(disk: int) -> None:
            """Make the requests of a disk until none remain or one has failed."""
            nonlocal working
            try:
                while not failures:
                    with lock:
                        request = next(queues[disk], None)
                    if request is None:
                        break
                    do(disk, request)
            except BaseException as error:  # noqa: BLE001  reported by the future
                failures.append(error)
            with lock:
                working -= 1
                ended = not working
            if ended:
                end()

        def end() -> None:
            try:
                if failures:
                    raise failures[0]
                future.set_result(then())
            except BaseException as error:  # noqa: BLE001  reported by the future
                future.set_exception(error)

        if not working:
            end()
            return future
        pools = self._threads()
        for disk, some in enumerate(first):
            for _ in some:
                pools[disk].submit(drain, disk)
        return future

    def close(self) -> None:
        with self._lock:
            for pool in self._pools if self._process == os.getpid() else ():
                pool.shutdown(wait=True)
            self._pools, self._process = [], 0
