"""Reusable memory buffers: resident pages cost a tenth of new ones.

take ─► a buffer of arbitrary content ─► give          by the owner, after its last use
lend ─► an array ─► its last view is released          automatic, for arrays with shared views

from  ▒▒▒▒░░░░        a block is copied in its own order, then transposed within the cache:
      ▒▒▒▒░░░░        rows a power of two apart would evict each other before they are used
"""

from __future__ import annotations

import math
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from oocarrays.storage.local.pages import allocate, empty


def copy(into: np.ndarray, data: np.ndarray) -> None:
    """Copy ``data`` into ``into`` of the same shape, as ``into[...] = data``."""
    most = 2**15  # elements of a block: smaller arrays are copied directly
    if into.size <= most or into.shape != data.shape or data.itemsize >= 64:  # a cache line
        into[...] = data
        return
    there, here = _fastest(into), _fastest(data)
    if there == here:
        into, data = _as_runs(into, data, here)
        into[...] = data
        return
    lengths, room = [1] * into.ndim, most
    for axis, length in ((here, 128), (there, 256)):
        lengths[axis] = min(into.shape[axis], length)
        room //= lengths[axis]
    for axis in sorted(range(into.ndim), key=lambda axis: abs(data.strides[axis])):
        if axis not in (here, there):
            lengths[axis] = max(min(into.shape[axis], room), 1)
            room //= lengths[axis]
    firsts = (range(0, n, length) for n, length in zip(into.shape, lengths, strict=True))
    for lower in product(*firsts):
        block = tuple(slice(l, l + length) for l, length in zip(lower, lengths, strict=True))
        into[block] = data[block].copy(order="K")


def _as_runs(into: np.ndarray, data: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return both arrays with each short run along an axis viewed as one element; unchanged if that is impossible.

    Copying 96 bytes takes NumPy less time than its overhead for each run.
    """
    step = data.itemsize
    nbytes, alike = step * data.shape[axis], data.dtype == into.dtype and not data.dtype.hasobject
    if nbytes > 96 or not alike or not data.strides[axis] == into.strides[axis] == step:
        return into, data
    run = np.dtype((np.void, nbytes))
    return np.moveaxis(into, axis, -1).view(run)[..., 0], np.moveaxis(data, axis, -1).view(run)[..., 0]


def _fastest(data: np.ndarray) -> int:
    """Return the axis with the smallest stride."""
    strides = [(abs(step), axis) for axis, (step, n) in enumerate(zip(data.strides, data.shape, strict=True)) if n > 1]
    return min(strides, default=(0, 0))[1]


def shaped(buffer: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return a view of the first bytes of ``buffer`` as an array."""
    return buffer[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


class Pool:
    """Thread-safe pool of buffers by size."""

    def __init__(self, make: Callable[[int], np.ndarray] = allocate) -> None:
        self._make = make
        self._free: defaultdict[int, list[np.ndarray]] = defaultdict(list)

    def take(self, nbytes: int) -> np.ndarray:
        """Return an unshared buffer of ``nbytes`` with arbitrary content."""
        try:
            return self._free[nbytes].pop()
        except IndexError:
            return self._make(nbytes)

    def give(self, buffer: np.ndarray) -> None:
        """Return an unused buffer to the pool."""
        self._free[len(buffer)].append(buffer)

    def lend(self, shape: Sequence[int], dtype: np.dtype, *, elements: int) -> np.ndarray:
        """Return an array; its memory returns to the pool with its last view, unless `forget` was called."""
        count = math.prod(shape)
        if not count * dtype.itemsize > 0 or count > elements:
            return empty(shape, dtype)
        nbytes = elements * dtype.itemsize
        memory = self.take(nbytes)
        lent = np.frombuffer(memory.data, dtype, count)  # the base of all its views
        weakref.finalize(lent, self._free[nbytes].append, memory).atexit = False
        return lent.reshape(shape)

    def forget(self) -> None:
        """Release the free buffers, and lent ones when they are returned."""
        self._free = defaultdict(list)


def numpy_bytes(nbytes: int) -> np.ndarray:
    """Allocate a buffer with NumPy, which reuses memory for small sizes."""
    return np.empty(nbytes, np.uint8)
