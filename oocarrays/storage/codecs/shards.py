"""Shards: many chunks in one object, with an index of their positions (Zarr 3, ``sharding_indexed``).

    ┌─────────┬─────────┬─────────┬───────┐
    │ chunk 0 │ chunk 2 │ chunk 1 │ index │      index: offset and length of every chunk, and a checksum;
    └─────────┴─────────┴─────────┴───────┘             all ones for a chunk that holds only the fill value

A chunk is read as a byte range of its shard. A shard is written whole, by a single owner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import google_crc32c
import numpy as np
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec

from oocarrays.errors import CorruptChunkError
from oocarrays.mapping.grid import turned, turned_back
from oocarrays.storage.local.blobs import odd_size

ENTRY = np.dtype(("<u8", (2,)))
"""Offset and length of a chunk in its shard, in bytes."""
NOT_STORED = 2**64 - 1
"""Offset and length of a chunk that is not stored."""
INDEX_BYTES = 2**24
"""Maximum bytes of indices that a process caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLayout:
    """Layout of the chunks in a shard."""

    chunks: tuple[int, ...]
    """Length of a chunk along each axis, in elements."""
    counts: tuple[int, ...]
    """Number of chunks in a shard along each axis."""
    at_end: bool
    """Whether the index follows the chunks or precedes them."""
    checksum: bool
    """Whether a checksum follows the index."""
    order: tuple[int, ...] | None = None
    """Axes of the array, by own axis, if they are permuted: chunks are numbered along the array's axes."""

    def turned(self, order: tuple[int, ...]) -> ShardLayout:
        return replace(self, chunks=turned(self.chunks, order), counts=turned(self.counts, order), order=order)

    @property
    def steps(self) -> tuple[int, ...]:
        """Increment of a chunk's number in its shard along each axis."""
        own = turned_back(self.counts, self.order)
        return turned([math.prod(own[axis + 1 :]) for axis in range(len(own))], self.order)

    @property
    def count(self) -> int:
        return math.prod(self.counts)

    @property
    def index_bytes(self) -> int:
        return self.count * ENTRY.itemsize + 4 * self.checksum

    def place(self, index: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        """Return the shard of a chunk of the array, and the chunk's number in it."""
        shard = tuple(i // n for i, n in zip(index, self.counts, strict=True))
        return shard, sum(i % n * step for i, n, step in zip(index, self.counts, self.steps, strict=True))

    def read_index(self, data: bytes, name: str) -> np.ndarray:
        """Parse an index: offset and length of every chunk, ``shape == (count, 2)``."""
        if len(data) != self.index_bytes:
            raise CorruptChunkError(f"{name} is truncated: its index has {len(data)} bytes, not {self.index_bytes}")
        entries = data[: self.count * ENTRY.itemsize]
        if self.checksum and data[len(entries) :] != _checksum(entries):
            raise CorruptChunkError(f"{name} cannot be decoded: the checksum of its index is wrong")
        return np.frombuffer(entries, ENTRY)

    def check(self, entries: np.ndarray, size: int, name: str, chunk_bytes: int | None = None) -> None:
        """Raise if chunks of an index lie outside their shard of ``size`` bytes, or have a wrong size."""
        stored = entries[entries[:, 0] != NOT_STORED]
        if len(stored) and max(int(stored.max()), end := int(stored.sum(axis=1).max())) > size:  # sums may wrap
            raise CorruptChunkError(f"{name} is truncated: it has {size} bytes, its index expects {end}")
        odd = stored[:, 1] != chunk_bytes
        if chunk_bytes is not None and odd.any():
            raise odd_size(f"a chunk in {name}", int(stored[odd, 1][0]), chunk_bytes)

    def write_index(self, entries: np.ndarray) -> bytes:
        """Return the bytes of an index of ``shape == (count, 2)``."""
        data = entries.astype("<u8").tobytes()
        return data + _checksum(data) if self.checksum else data

    def sections(self) -> list[tuple[slice, ...]]:
        """Return the slices of each chunk among the elements of its shard, by number."""
        own = product(*map(range, turned_back(self.counts, self.order)))
        places = (turned(place, self.order) for place in own)
        return [tuple(slice(i * c, (i + 1) * c) for i, c in zip(place, self.chunks, strict=True)) for place in places]


def _checksum(data: bytes) -> bytes:
    return int(google_crc32c.value(data)).to_bytes(4, "little")


def layout_of(codec: ShardingCodec, shard: tuple[int, ...]) -> ShardLayout | None:
    """Return the layout of a sharding codec for a shard of that shape; None if its index has an unknown encoding."""
    chunks = tuple(codec.chunk_shape)
    index: tuple[Any, ...] = tuple(codec.index_codecs)
    location: Any = codec.index_location  # text, or an enumeration member in older versions of zarr
    checksum = len(index) == 2 and isinstance(index[1], Crc32cCodec)
    if len(index) != 1 + checksum or not isinstance(index[0], BytesCodec):
        return None
    if getattr(index[0].endian, "value", index[0].endian) != "little":
        return None
    return ShardLayout(
        chunks=chunks,
        counts=tuple(s // c for s, c in zip(shard, chunks, strict=True)),
        at_end=getattr(location, "value", location) == "end",
        checksum=checksum,
    )


@dataclass(frozen=True, slots=True)
class ShardKey:
    """Location of a chunk in a shard."""

    shard: str
    """Key of the shard below the array."""
    number: int
    """Number of the chunk in it."""


def most_indices(layout: ShardLayout) -> int:
    """Return the maximum number of shard indices that a process caches."""
    return max(INDEX_BYTES // layout.index_bytes, 1)


def pack_shard(
    layout: ShardLayout,
    shard: np.ndarray,
    encode: Callable[[np.ndarray], Any],
    is_fill: Callable[[np.ndarray], bool],
    out: np.ndarray,
) -> tuple[int, int]:
    """Write a shard's encoded chunks and index to ``out``; return its bytes, and the number of elements encoded."""
    nbytes, stored = lay_out(layout, _coded(layout, shard, encode, is_fill), out)
    return nbytes, stored * math.prod(layout.chunks)


def _coded(
    layout: ShardLayout, shard: np.ndarray, encode: Callable[[np.ndarray], Any], is_fill: Callable[[np.ndarray], bool]
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the encoded chunks of a shard with their numbers, except those that hold only the fill value."""
    for number, section in enumerate(layout.sections()):
        place: Any = (*section, ...)
        chunk = np.ascontiguousarray(shard[place])
        if not is_fill(chunk):
            yield number, np.frombuffer(encode(chunk), np.uint8)


def lay_out(layout: ShardLayout, chunks: Iterable[tuple[int, np.ndarray]], out: np.ndarray) -> tuple[int, int]:
    """Write encoded chunks consecutively to ``out``, with their index; return its bytes and the chunk count."""
    entries = np.full((layout.count, 2), NOT_STORED, np.uint64)
    at, stored = 0 if layout.at_end else layout.index_bytes, 0
    for number, data in chunks:
        out[at : at + len(data)] = data
        entries[number] = at, len(data)
        at, stored = at + len(data), stored + 1
    index = np.frombuffer(layout.write_index(entries), np.uint8)
    start = at if layout.at_end else 0
    out[start : start + len(index)] = index
    return at + layout.index_bytes * layout.at_end, stored
