"""Memory that is used again: pages that are there already cost a tenth of new ones.

take ─► a buffer, whatever is in it ─► give            by whoever knows that nobody uses it any more
lend ─► an array ─► the last view of it is gone        by itself, where views of it go from hand to hand
"""

from __future__ import annotations

import math
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from oocarrays.storage.local.pages import allocate, empty


def shaped(buffer: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Use the first bytes of ``buffer`` as an array."""
    return buffer[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


class Pool:
    """Buffers that have been used, by their size. Threads may share it.

    Examples
    --------
    >>> pool = Pool()
    >>> buffer = pool.take(100)
    >>> pool.give(buffer)
    >>> pool.take(100) is buffer, pool.take(100) is buffer
    (True, False)
    >>> pool.lend((2, 3), np.dtype("f4"), elements=6).shape, pool.lend((7,), np.dtype("f4"), elements=6).shape
    ((2, 3), (7,))
    """

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
