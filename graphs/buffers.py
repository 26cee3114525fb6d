"""The memory that a rank holds, made once and handed from task to task.

A graph bounds memory because a buffer travels along its edges: who needs one waits for the task that had it before.
"""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass, field

import numpy as np


def allocate(nbytes: int) -> np.ndarray:
    """``nbytes`` of page-aligned memory that goes back to the system when the last view of it is gone.

    >>> allocate(10).shape, allocate(0).shape
    ((10,), (0,))
    """
    if nbytes == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


def shaped(buffer: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The first bytes of ``buffer`` as an array."""
    return buffer[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


@dataclass(slots=True)
class Holding:
    """What one rank holds while it builds regions for itself."""

    region: np.ndarray
    """Bytes of the target chunks that it builds."""
    chunk: np.ndarray
    """Bytes of the source chunk that it reads."""


@dataclass(slots=True)
class Slab:
    """What one rank has read in one round of a partition."""

    buffer: np.ndarray
    """Bytes, chunk after chunk."""
    chunks: list[tuple[tuple[int, ...], np.ndarray | None]] = field(default_factory=list)
    """Index and elements of each source chunk; None for one that is missing."""
