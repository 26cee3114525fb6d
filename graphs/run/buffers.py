"""The memory that a rank holds, made once and handed from task to task.

A graph bounds memory because a buffer travels along its edges: who needs one waits for the task that had it before.
What holds one does not tell Dask how large it is: the plan has counted it, and a worker must not spill it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oocarrays.storage.local.pages import allocate


@dataclass(slots=True)
class RankBuffers:
    """Buffers of one rank while it builds regions for itself."""

    region: np.ndarray
    """Bytes of the target chunks that it builds."""
    chunk: np.ndarray
    """Bytes of the source chunk that it reads."""

    @property
    def empty(self) -> bool:
        """Whether it was left behind when its rank moved to another worker."""
        return len(self.region) == 0

    def __reduce__(self) -> Any:
        return RankBuffers, (allocate(0), allocate(0))


@dataclass(slots=True)
class ReadSlab:
    """Chunks that one rank has read in one round of a partition."""

    buffer: np.ndarray
    """Bytes, chunk after chunk."""
    chunks: list[tuple[tuple[int, ...], np.ndarray | None]] = field(default_factory=list)
    """Index and elements of each source chunk; None for one that is missing."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Outbox:
    """Messages that one rank has packed of a partition."""

    messages: list[np.ndarray | None]
    """Bytes for each rank; None where it needs nothing."""
    buffer: np.ndarray | None
    """Where they lie, one behind the other; None when they have been let go."""


@dataclass(slots=True)
class Region:
    """The target chunks that one rank builds in a partition."""

    buffer: np.ndarray | None
    """Bytes, chunk after chunk; None when they have been written."""
