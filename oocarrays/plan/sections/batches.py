"""Parts of chunks that are read together in one buffer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from oocarrays.mapping.given import chosen
from oocarrays.mapping.grid import Stored
from oocarrays.plan.machine import Costs
from oocarrays.plan.sections.sieve import METHODS, RANGE_BYTES, Method, Sieve

BUFFER_BYTES = 2**20
"""Default bytes of one buffer: its data is still in a core's second cache while sieving."""
READ_BUFFER_BYTES = 2**22
"""Bytes of a buffer for a single read at a time, which has the caches for itself and needs fewer rounds."""
STORE_BUFFER_BYTES = 2**23
"""Bytes of a buffer for requests to a store."""
IN_FLIGHT = 4
"""Maximum number of buffers being filled or sieved at one time."""


class Part(NamedTuple):
    """Elements to read of a chunk, or of a part of it that a buffer holds."""

    sieve: Sieve
    """Byte ranges to request."""
    at: tuple[int, ...]
    """Index of its first element among all requested elements of the chunk, along each axis."""
    straight: bool
    """Whether ranges are read directly into the result, without a buffer."""

    @property
    def buffer_bytes(self) -> int:
        """Bytes of a buffer per chunk."""
        return 0 if self.straight else self.sieve.held_bytes


class Batch(NamedTuple):
    """Chunks that are read together, with the same parts."""

    chunks: tuple[range, ...]
    """Chunk indices along each axis."""
    first: tuple[int, ...]
    """Index of the first element in the result, along each axis."""
    parts: tuple[Part, ...]
    """Parts to read of each chunk, one round after the other."""

    @property
    def size(self) -> int:
        return math.prod(map(len, self.chunks))

    @property
    def buffer_bytes(self) -> int:
        return self.size * max(part.buffer_bytes for part in self.parts)

    @property
    def held_bytes(self) -> int:
        """Bytes of its buffer, of the picked elements, and of the ranges themselves."""
        return self.size * held_by_parts(self.parts)


def held_by_parts(parts: Sequence[Part]) -> int:
    """Return the bytes in memory for one chunk of a batch."""
    most = max(part.sieve.requests for part in parts)
    picked = max(part.sieve.picked_bytes for part in parts)
    return max(part.buffer_bytes for part in parts) + picked + most * RANGE_BYTES


def decoding_bytes(stored: Stored) -> int:
    """Return the peak bytes of a thread for reading coded chunks, without the result."""
    if not stored.local:
        return stored.chunk_bytes + stored.decode_workspace
    batch = max(min(BUFFER_BYTES, stored.grid.count * stored.chunk_bytes), stored.chunk_bytes)
    return batch + stored.decode_workspace + IN_FLIGHT * min(2 * batch, BUFFER_BYTES)


def gap_bytes(method: Method, stored: Stored, costs: Costs, requests: int = 1) -> float:
    """Return the bytes read in the time of a request; shorter gaps are read."""
    chosen(method, "method", METHODS)
    if method != "auto":
        return 0.0 if method == "direct" else math.inf
    if stored.local:
        return costs.range_seconds * costs.copy_bandwidth
    if not stored.remote:
        return costs.store_request_seconds * costs.copy_bandwidth
    return (costs.store_request_seconds + costs.remote_request_seconds / requests) * costs.remote_bandwidth
