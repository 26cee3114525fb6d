"""Parts of chunks that are read together, and how much of them fits a buffer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from oocarrays.mapping.given import chosen
from oocarrays.mapping.grid import Stored
from oocarrays.plan.machine import Costs
from oocarrays.plan.sections.sieve import METHODS, RANGE_BYTES, Method, Sieve

BUFFER_BYTES = 2**20
"""Bytes of one buffer, by default: what is read into it is still in a core's second cache when it is sieved."""
READ_BUFFER_BYTES = 2**22
"""The same for one read at a time, which has the caches for itself: rounds are fewer."""
ONE_BY_ONE = 1
"""Of coded chunks, none is held but the one that is decoded; the coded bytes of local files are mapped."""
STORE_BUFFER_BYTES = 2**23
"""The same, where requests go to a store."""
IN_FLIGHT = 4
"""Buffers that are filled or being sieved at one time, at most."""
READ_AHEAD_BYTES = 2**17
"""Bytes that Linux reads where a part of them is asked for, if nobody tells it not to."""


class Part(NamedTuple):
    """The elements taken of a chunk, or of a part of it that a buffer holds."""

    sieve: Sieve
    """What is asked for."""
    at: tuple[int, ...]
    """Its first element among all that are taken of the chunk, along each axis."""
    straight: bool
    """Whether ranges are read to their places in the result, without a buffer."""

    @property
    def buffer_bytes(self) -> int:
        """Bytes of a buffer that one chunk takes."""
        return 0 if self.straight else self.sieve.held_bytes


class Batch(NamedTuple):
    """Chunks that are read together, the same of each."""

    chunks: tuple[range, ...]
    """Their indices along each axis."""
    first: tuple[int, ...]
    """The place of the first element in the result, along each axis."""
    parts: tuple[Part, ...]
    """What is taken of each, one round after the other."""

    @property
    def size(self) -> int:
        return math.prod(map(len, self.chunks))

    @property
    def buffer_bytes(self) -> int:
        return self.size * max(part.buffer_bytes for part in self.parts)

    @property
    def held_bytes(self) -> int:
        """Bytes of its buffer, of what is picked from it, and of the ranges themselves."""
        return self.size * held_by_parts(self.parts)


def held_by_parts(parts: Sequence[Part]) -> int:
    """Bytes that are held for one chunk of a batch."""
    most = max(part.sieve.requests for part in parts)
    picked = max(part.sieve.picked_bytes for part in parts)
    return max(part.buffer_bytes for part in parts) + picked + most * RANGE_BYTES


def decoding_bytes(stored: Stored) -> int:
    """Return the most bytes that a thread holds beside the result while it reads coded chunks."""
    if not stored.local:
        return stored.chunk_bytes + stored.decode_workspace
    batch = max(min(BUFFER_BYTES, stored.grid.count * stored.chunk_bytes), stored.chunk_bytes)
    return batch + stored.decode_workspace + IN_FLIGHT * min(2 * batch, BUFFER_BYTES)


def gap_bytes(method: Method, stored: Stored, costs: Costs, requests: int = 1) -> float:
    """Bytes that are read in the time of a request: a shorter hole is read."""
    chosen(method, "method", METHODS)
    if method != "auto":
        return 0.0 if method == "direct" else math.inf
    if stored.local:
        return costs.range_seconds * costs.copy_bandwidth
    if not stored.remote:
        return costs.store_request_seconds * costs.copy_bandwidth
    return (costs.store_request_seconds + costs.remote_request_seconds / requests) * costs.remote_bandwidth
