"""Memory that is used again: pages that are there already cost a tenth of new ones.

take ─► a buffer, whatever is in it ─► give            by whoever knows that nobody uses it any more
lend ─► an array ─► the last view of it is gone        by itself, where views of it go from hand to hand

from  ▒▒▒▒░░░░        a block is copied as it lies, then out of the cache to where other axes run fastest:
      ▒▒▒▒░░░░        rows a power of two apart would push each other out of it before they are used up
"""

from __future__ import annotations

import math
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from oocarrays.storage.local.pages import allocate, empty

ALONG = (128, 256)
"""Elements of a block along the axis that is fastest where it comes from, and along the one that is where it goes."""
LITTLE = 2**15
"""Elements of a block; arrays of no more are copied at once."""
RUN_BYTES = 96
"""Bytes of a run, at most, that is shorter than what numpy takes to begin it."""
LINE_BYTES = 64
"""Bytes that a cache moves at a time: elements as large as this are not torn apart."""


def copy(into: np.ndarray, data: np.ndarray) -> None:
    """Copy ``data`` to ``into``, of the same shape: as ``into[...] = data``."""
    if into.size <= LITTLE or into.shape != data.shape or data.itemsize >= LINE_BYTES:
        into[...] = data
        return
    there, here = _fastest(into), _fastest(data)
    if there == here:
        into, data = _as_runs(into, data, here)
        into[...] = data
        return
    lengths, room = [1] * into.ndim, LITTLE
    for axis, most in ((here, ALONG[0]), (there, ALONG[1])):
        lengths[axis] = min(into.shape[axis], most)
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
    """Both with each short run along an axis as one element, which is moved by one call; as they are, where none is."""
    step = data.itemsize
    nbytes, alike = step * data.shape[axis], data.dtype == into.dtype and not data.dtype.hasobject
    if nbytes > RUN_BYTES or not alike or not data.strides[axis] == into.strides[axis] == step:
        return into, data
    run = np.dtype((np.void, nbytes))
    return np.moveaxis(into, axis, -1).view(run)[..., 0], np.moveaxis(data, axis, -1).view(run)[..., 0]


def _fastest(data: np.ndarray) -> int:
    """The axis along which elements are nearest to each other."""
    strides = [(abs(step), axis) for axis, (step, n) in enumerate(zip(data.strides, data.shape, strict=True)) if n > 1]
    return min(strides, default=(0, 0))[1]


def shaped(buffer: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Use the first bytes of ``buffer`` as an array."""
    return buffer[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


class Pool:
    """Buffers that have been used, by their size. Threads may share it."""

    def __init__(self, make: Callable[[int], np.ndarray] = allocate) -> None:
        self._make = make
        self._free: defaultdict[int, list[np.ndarray]] = defaultdict(list)

    def take(self, nbytes: int) -> np.ndarray:
        """Hand out a buffer of ``nbytes``, whatever is in it, that nobody else has."""
        try:
            return self._free[nbytes].pop()
        except IndexError:
            return self._make(nbytes)

    def give(self, buffer: np.ndarray) -> None:
        """Let others have a buffer that nobody uses any more."""
        self._free[len(buffer)].append(buffer)

    def lend(self, shape: Sequence[int], dtype: np.dtype, *, elements: int) -> np.ndarray:
        """Hand out an array, whose memory is given back when the last view of it is gone, or `forget` was called."""
        count = math.prod(shape)
        if not count * dtype.itemsize > 0 or count > elements:
            return empty(shape, dtype)
        nbytes = elements * dtype.itemsize
        memory = self.take(nbytes)
        lent = np.frombuffer(memory.data, dtype, count)  # what every view of it has as its base
        weakref.finalize(lent, self._free[nbytes].append, memory).atexit = False
        return lent.reshape(shape)

    def forget(self) -> None:
        """Give the system back what nobody has now, and later what is lent."""
        self._free = defaultdict(list)


def numpy_bytes(nbytes: int) -> np.ndarray:
    """Make a buffer as numpy makes arrays: for small ones, for which the allocator has memory at hand."""
    return np.empty(nbytes, np.uint8)
