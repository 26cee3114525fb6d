"""The blocks that ranks have of a box of a file, and the chunks in which they lie: one part of a message each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken, lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBlock:
    """Block that one rank has of one box of a file domain: one part of a message."""

    axes: Axes
    """Its elements, along each axis of the array."""
    place: Section
    """Where they are in the rank's file."""

    @property
    def size(self) -> int:
        """Elements."""
        return self.place.size


def before(taken: Taken, bounds: np.ndarray) -> np.ndarray:
    """How many of what is taken, ascending, lie before each of some bounds.

    >>> before(range(1, 20, 4), np.array([0, 5, 12])), before(np.array([2, 3, 7]), np.array([3, 8]))
    (array([0, 1, 3]), array([1, 3]))
    """
    if isinstance(taken, np.ndarray):
        return np.searchsorted(taken, bounds)
    counts: np.ndarray = np.clip(-(-(bounds - taken.start) // taken.step), 0, len(taken))
    return counts


def chunk_count(spans: tuple[np.ndarray, np.ndarray], chunk: int) -> int:
    """Chunks that some spans touch along an axis, those of two spans twice.

    >>> chunk_count((np.array([0, 5]), np.array([5, 8])), 4)
    3
    """
    lower, upper = spans
    return int((-(-upper // chunk) - lower // chunk).sum())


def alike_spans(spans: tuple[np.ndarray, np.ndarray], chunk: int, extent: int) -> list[tuple[range, int]]:
    """Of spans that lie alike in chunks, and alike before the end of a file, one and how many they are.

    >>> alike_spans((np.array([0, 5, 10]), np.array([5, 10, 15])), 5, 20)
    [(range(0, 5), 3)]
    """
    lower, upper = spans
    key = np.stack([lower % chunk, upper - lower, upper > extent // chunk * chunk], axis=1)
    _, first, times = np.unique(key, axis=0, return_index=True, return_counts=True)
    return [(range(int(lower[i]), int(upper[i])), int(n)) for i, n in zip(first, times, strict=True)]


def message_size(blocks: Sequence[FileBlock | None]) -> int:
    """Elements of a message.

    >>> message_size([None, FileBlock(axes=(range(3),), place=Section((1,), (4,)))])
    3
    """
    return sum(block.size for block in blocks if block)


def views(message: np.ndarray | None, blocks: Sequence[FileBlock | None]) -> list[np.ndarray | None]:
    """The elements of each block, in a message that has them one behind the other."""
    found: list[np.ndarray | None] = []
    start = 0
    for block in blocks:
        if block is None or message is None:
            found.append(None)
            continue
        found.append(message[start : start + block.size].reshape(lengths(block.axes)))
        start += block.size
    return found
