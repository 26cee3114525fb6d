"""Memory of a kernel beside its blocks and results, measured on the first slab of a process.

read      ├── 1 ──┤         ├── 2 ──┤        other allocations wait while the first kernel computes
compute            ├── 0 ──┤├── 1 ──┤├──     one slab is enough: all are alike

The system records a process's peak resident memory (``VmHWM``), which includes the allocations of every library.
Python's `tracemalloc` sees numpy's arrays only, and can crash if other threads run when it stops (CPython gh-128679).
Memory kept from earlier work and reused by the kernel is not measured: it belongs to the idle level.

narrow    ░░███████░░            the requested depth
wide    ▒▒░░███████░░▒▒          the results for █ must be equal
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from oocarrays.errors import KernelError
from oocarrays.plan.slabs.geometry import Slab, SlabGeometry
from oocarrays.storage.local.pages import give_back
from oocarrays.storage.meter import anonymous_bytes


def is_verified(plan: SlabGeometry, slab: Slab) -> bool:
    """Return whether a slab is computed twice: the first, middle and last one of a rank."""
    count = len(plan.numbers(slab.rank))
    return slab.number in (0, count // 2, count - 1)


def check_alike(narrow: Sequence[np.ndarray], wide: Sequence[np.ndarray], where: str) -> None:
    """Raise if results differ when the kernel sees more neighbours; check nothing if ``wide`` is empty.

    Floating-point numbers may differ by the square root of their precision, relative to the largest one: transforms
    round differently in blocks of other lengths.
    """
    for one, other in zip(narrow, wide, strict=bool(wide)):
        near = 0.0
        if one.dtype.kind in "fc":
            root = float(np.sqrt(np.finfo(one.dtype).eps))
            near = root * max((_largest(each) for _, each in _pieces(one, other)), default=0.0)
        for each in _pieces(one, other):
            unlike = _unlike(*each, near)
            if unlike.any():
                first = np.unravel_index(int(unlike.argmax()), unlike.shape)
                a, b = (part[first] for part in each)
                raise KernelError(
                    f"the kernel returns {a} in {where}, and {b} where it sees more neighbours: depth is too small for "
                    "it, or the result depends on where slabs are cut"
                )


def _pieces(one: np.ndarray, other: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield equal pieces of two arrays along their longest axis.

    Pieces of 8192 elements have temporaries that fit in a cache, and are counted in a plan.
    """
    axis = int(np.argmax(one.shape))
    rows = max(2**13 * one.shape[axis] // max(one.size, 1), 1)
    for start in range(0, one.shape[axis], rows):
        part = (slice(None),) * axis + (slice(start, start + rows),)
        yield one[part], other[part]


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0))


def _unlike(one: np.ndarray, other: np.ndarray, near: float) -> np.ndarray:
    if one.dtype.kind not in "fc":
        return np.asarray(one != other)
    with np.errstate(invalid="ignore"):
        alike = (one == other) | (np.abs(one - other) <= near) | (np.isnan(one) & np.isnan(other))
    return np.asarray(~alike)


class KernelMemory:
    """Measurement of a process's first kernel, during which no other memory is allocated."""

    def __init__(self) -> None:
        self.each: int | None = None
        """Maximum bytes held by the kernel, including its results; None before a measurement."""
        self._changed = threading.Condition()
        self._begun = False
        self._doubted = False
        self._alone = False
        self._under_way = 0

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Allocate or release memory in this block, but not during the measurement."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Measure the first kernel, including its imports and compilation."""
        if not self._is_first():
            with self.taking():
                yield
            return
        try:
            before = _begin_anew()
            yield
            peak = _most()
            if before is not None and peak is not None:
                self.each = max(peak - before, 0)
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()

    def measure_again(self) -> bool:
        """Measure the next kernel instead of the first, once; return whether it will be measured."""
        with self._changed:
            if self._doubted:
                return False
            self._doubted, self._begun, self.each = True, False, None
            return True

    def _is_first(self) -> bool:
        """Return whether this is the first kernel; if so, all others wait from now on."""
        with self._changed:
            if self._begun:
                return False
            self._begun = self._alone = True
            self._changed.wait_for(lambda: not self._under_way)
            return True


def _begin_anew() -> int | None:
    """Release memory kept by the allocator, reset ``VmHWM``, and return the anonymous bytes now in memory."""
    give_back()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
        return anonymous_bytes()
    return None


def _most() -> int | None:
    """Return the maximum anonymous bytes in memory; None if the system does not report them."""
    with suppress(OSError, KeyError):
        status = Path("/proc/self/status").read_text(encoding="ascii")
        lines = (line.split(":") for line in status.splitlines())
        kib = {name: int(value.split()[0]) for name, value in lines if name in ("VmHWM", "RssFile")}
        return 1024 * (kib["VmHWM"] - kib["RssFile"])
    return None
