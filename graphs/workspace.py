"""What a kernel holds beside its blocks and its results, measured on the first slab of a process.

read      ├── 1 ──┤├── 2 ──┤             what others take meanwhile is known, and taken off
compute   ├─ 0, traced ─┤├── 1 ──┤├──    one slab is enough: all are alike
"""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

MEANWHILE = 2**16
"""Bytes that other threads may take beside their slabs while a kernel is measured: tasks are Python objects, too."""


class KernelMemory:
    """Measures the first kernel of a process, with those that begin meanwhile.

    Only what Python and numpy take is seen. Nothing is measured where somebody traces memory already.

    Examples
    --------
    >>> memory = KernelMemory()
    >>> with memory.computing():
    ...     blank = bytearray(2**21)
    >>> memory.each >= 2**20, tracemalloc.is_tracing()
    (True, False)
    """

    def __init__(self) -> None:
        self.each: int | None = None
        """Bytes that a kernel held, its results among them, at most; None where nothing has been measured."""
        self._lock = threading.Lock()
        self._begun = False
        self._tracing = False
        self._kernels = 0
        self._under_way = 0
        self._others = 0

    @contextmanager
    def reading(self, nbytes: int) -> Iterator[None]:
        """Say that so many bytes are taken for something else."""
        with self._lock:
            self._under_way += nbytes
            self._others += nbytes
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= nbytes

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Measure, if this is the first."""
        first = self._begin()
        try:
            yield
        finally:
            if first:
                self._end()

    def _begin(self) -> bool:
        with self._lock:
            first = not self._begun and not tracemalloc.is_tracing()
            self._begun = True
            if first:
                tracemalloc.start()
                self._tracing, self._others = True, self._under_way
            self._kernels += self._tracing
            return first

    def _end(self) -> None:
        with self._lock:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            self._tracing = False
            self.each = max(peak - self._others - MEANWHILE, 0) // self._kernels
