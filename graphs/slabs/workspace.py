"""What a kernel holds beside its blocks and its results, measured on the first slab of a process.

read      ├── 1 ──┤         ├── 2 ──┤        who takes memory waits while the first kernel computes
compute            ├── 0 ──┤├── 1 ──┤├──     one slab is enough: all are alike

The system keeps the most that a process had in memory (``VmHWM``): it sees what any library takes. Python's own
`tracemalloc` sees numpy's arrays only, and can crash where other threads run when it stops (CPython gh-128679). What
the process has kept of earlier work, and the kernel uses again, is not seen: it is of the idle level.

narrow    ░░███████░░            the depth that was asked for
wide    ▒▒░░███████░░▒▒          what is found for █ must be the same
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

PIECE = 2**13
"""Elements that are compared at a time: what that takes stays in a cache, and is counted in a plan."""


def is_verified(plan: SlabGeometry, slab: Slab) -> bool:
    """Whether a slab is computed again: the first one of a rank, that in the middle, and the last one."""
    count = len(plan.numbers(slab.rank))
    return slab.number in (0, count // 2, count - 1)


def check_alike(narrow: Sequence[np.ndarray], wide: Sequence[np.ndarray], where: str) -> None:
    """Refuse results that are others where more neighbours are seen; nothing is looked at where ``wide`` is empty.

    Numbers that are not whole may differ by the root of their precision, of the largest one: transforms round otherwise
    in blocks of other lengths.
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
                    f"the kernel gives {a} in {where}, and {b} where it sees more neighbours: depth is too small for "
                    "it, or what it gives depends on where slabs are cut"
                )


def _pieces(one: np.ndarray, other: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Cut two arrays alike along their longest axis: what is made of a piece holds next to nothing."""
    axis = int(np.argmax(one.shape))
    rows = max(PIECE * one.shape[axis] // max(one.size, 1), 1)
    for start in range(0, one.shape[axis], rows):
        part = (slice(None),) * axis + (slice(start, start + rows),)
        yield one[part], other[part]


def _largest(values: np.ndarray) -> float:
    """Return the largest finite magnitude."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0))


def _unlike(one: np.ndarray, other: np.ndarray, near: float) -> np.ndarray:
    if one.dtype.kind not in "fc":
        return np.asarray(one != other)
    with np.errstate(invalid="ignore"):
        alike = (one == other) | (np.abs(one - other) <= near) | (np.isnan(one) & np.isnan(other))
    return np.asarray(~alike)


STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
"""Of Linux: what a process has in memory; and the file by which ``VmHWM`` begins anew."""


class KernelMemory:
    """Measures the first kernel of a process, while nothing else is taken."""

    def __init__(self) -> None:
        self.each: int | None = None
        """Bytes that the kernel held, its results among them, at most; None where nothing has been measured."""
        self._changed = threading.Condition()
        self._begun = False
        self._doubted = False
        self._alone = False
        self._under_way = 0

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Take memory, or give some back: not while the first kernel is measured."""
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
        """Measure, if this is the first: what it imports or compiles then, too."""
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
        """Measure the next kernel instead of the first, once; returned is whether it will be."""
        with self._changed:
            if self._doubted:
                return False
            self._doubted, self._begun, self.each = True, False, None
            return True

    def _is_first(self) -> bool:
        """Whether nobody has computed yet: then all others wait from now on."""
        with self._changed:
            if self._begun:
                return False
            self._begun = self._alone = True
            self._changed.wait_for(lambda: not self._under_way)
            return True


def _begin_anew() -> int | None:
    """Give back what the allocator keeps for later, and begin ``VmHWM`` anew: bytes that no file backs now."""
    give_back()
    with suppress(OSError):
        RESET.write_text("5")
        return anonymous_bytes()
    return None


def _most() -> int | None:
    """The most bytes in memory that no file backs; None where the system does not tell."""
    with suppress(OSError, KeyError):
        lines = (line.split(":") for line in STATUS.read_text(encoding="ascii").splitlines())
        kib = {name: int(value.split()[0]) for name, value in lines if name in ("VmHWM", "RssFile")}
        return 1024 * (kib["VmHWM"] - kib["RssFile"])
    return None
