"""Sieves: the byte ranges to request for dense or sparse parts of chunks, and the chunks that a buffer takes together.

    chunk      ··█·█·█·····█·█·█········      wanted, and holes
    direct       ─ ─ ─     ─ ─ ─              a request each run: no byte too many
    auto         ─────     ─────              holes shorter than the gap are read too, and left out in memory
    sieve        ───────────────              one request from the first to the last, in rounds of a buffer

Skipping a hole costs a request; reading it costs its bytes. A hole is read if that is faster than a request. With a
regular stride, the holes between the indices along one axis are all skipped or all read, and the cheapest of these few
ways is chosen. Chunks that are cut alike are planned once. Thakur 1995, section 5.5.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from oocarrays.mapping.given import chosen
from oocarrays.mapping.grid import Stored
from oocarrays.mapping.selection import Axes, Taken, lengths
from oocarrays.plan.machine import Costs

Method = Literal["auto", "direct", "sieve"]
"""Treatment of holes: read those shorter than the gap, none, or all."""
METHODS = ("auto", "direct", "sieve")
RANGE_BYTES = 128
"""Bytes of the description of a range under way."""
BUFFER_BYTES = 2**20
"""Default bytes of one buffer: its data is still in a core's second cache while sieving."""
READ_BUFFER_BYTES = 2**22
"""Bytes of a buffer for a single read at a time, which has the caches for itself and needs fewer rounds."""
STORE_BUFFER_BYTES = 2**23
"""Bytes of a buffer for requests to a store."""
IN_FLIGHT = 4
"""Maximum number of buffers being filled or sieved at one time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sieve:
    """Byte ranges to request of one chunk, with their places in a buffer."""

    starts: np.ndarray
    """Offset of each range in the chunk, in bytes."""
    lengths: np.ndarray
    """Bytes of each range."""
    places: np.ndarray
    """Offset of each range in the buffer, in bytes."""
    held_bytes: int
    """Bytes of the buffer for the ranges of one chunk."""
    useful_bytes: int
    run_axis: int
    """First axis that lies in one range; axes before it are requested index by index."""
    shape: tuple[int, ...]
    """Shape of the part of the buffer that holds the elements, ..."""
    strides: tuple[int, ...]
    """... its strides in bytes, ..."""
    picks: tuple[np.ndarray | None, ...]
    """... and its requested indices along each axis; None for all."""
    before_bytes: int = 0
    """Bytes of the buffer before the first of those elements."""

    @classmethod
    def whole(cls, inside: Axes, chunks: tuple[int, ...], itemsize: int) -> Sieve:
        """Return the sieve of a chunk that a buffer holds whole, such as a decoded one."""
        steps = tuple(math.prod(chunks[axis + 1 :]) * itemsize for axis in range(len(chunks)))
        before = sum(int(taken[0]) * step for taken, step in zip(inside, steps, strict=True))
        whole, start = math.prod(chunks) * itemsize, np.zeros(1, np.int64)
        return cls._laid_out(inside, steps, itemsize, start, 0, whole, None, before)

    @classmethod
    def within(cls, inside: Axes, chunks: tuple[int, ...], itemsize: int, gap: float, most: float) -> Sieve | None:
        """Return the ranges, or None if there were more than ``most``, without listing them."""
        steps = tuple(math.prod(chunks[axis + 1 :]) * itemsize for axis in range(len(chunks)))
        axis, length, groups, requests, _ = _cheapest(inside, steps, itemsize, gap)
        if requests > most:
            return None
        starts = np.zeros(1, np.int64)
        for a, (taken, step) in enumerate(zip(inside, steps, strict=True)):
            along = groups[0] if groups and a == axis - 1 else _places(taken if a < axis else taken[:1])
            starts = (starts[:, None] + along * step).reshape(-1)
        return cls._laid_out(inside, steps, itemsize, starts, axis, length, groups)

    @classmethod
    def _laid_out(
        cls, inside: Axes, steps: tuple[int, ...], itemsize: int, starts: np.ndarray, run_axis: int, length: int,
        groups: Groups | None, before_bytes: int = 0,
    ) -> Sieve:  # fmt: skip
        """Return ranges one after the other in a buffer, and their elements as a strided array."""
        shape, strides, picks = map(list, zip(*map(_in_range, inside, steps), strict=True)) if inside else ([], [], [])
        axis, places, sizes = run_axis, np.zeros(1, np.int64), np.full(1, length)
        if groups:  # at the chunk's own pitch, so that one strided array holds all of them
            axis, pitch = axis - 1, steps[axis - 1]
            shape[axis], picks[axis], before, rows = _grouped(_places(inside[axis]), groups)
            strides[axis], places, sizes = pitch, before * pitch, (rows - 1) * pitch + length
        held = one = int(places[-1] + sizes[-1])
        for a in reversed(range(axis)):
            shape[a], strides[a], picks[a] = len(inside[a]), held, None
            held *= len(inside[a])
        return cls(
            starts=starts,
            lengths=np.tile(sizes, held // one),
            places=(np.arange(0, held, one)[:, None] + places).reshape(-1),
            held_bytes=held,
            useful_bytes=math.prod(lengths(inside)) * itemsize,
            run_axis=run_axis,
            shape=tuple(shape),
            strides=tuple(strides),
            picks=tuple(picks),
            before_bytes=before_bytes,
        )

    @staticmethod
    def count(inside: Axes, chunks: tuple[int, ...], itemsize: int, gap: float) -> int:
        steps = tuple(math.prod(chunks[axis + 1 :]) * itemsize for axis in range(len(chunks)))
        return _cheapest(inside, steps, itemsize, gap).requests

    @property
    def requests(self) -> int:
        return len(self.starts)

    @property
    def asked_bytes(self) -> int:
        return int(self.lengths.sum())

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(n if pick is None else len(pick) for n, pick in zip(self.shape, self.picks, strict=True))

    @property
    def picked_bytes(self) -> int:
        """Bytes copied out of the buffer first, if the requested elements are not regular."""
        return 0 if all(pick is None for pick in self.picks) else self.useful_bytes

    def is_straight(self, inside: Axes, result: tuple[int, ...]) -> bool:
        """Return whether each range has no hole, and is contiguous in a result of that shape as well."""
        if self.asked_bytes > self.useful_bytes or self.picked_bytes:
            return False
        run = list(zip(lengths(inside), result, strict=True))[self.run_axis :]
        while run and run[0][0] == 1:
            run = run[1:]
        return all(part == whole for part, whole in run[1:])


Groups = tuple[np.ndarray, np.ndarray]
"""First and last index of each group of neighbours along one axis."""


def _places(taken: Taken) -> np.ndarray:
    if isinstance(taken, range):
        return np.arange(taken.start, taken.stop, taken.step)
    return taken.astype(np.int64)


class Split(NamedTuple):
    """Division of a request: one range for all along the last axes, or one for each group along the axis before."""

    axis: int
    """First of those axes."""
    length: int
    """Bytes of a range over them."""
    groups: Groups | None
    """Groups along the axis before; None for index by index."""
    requests: int
    asked: int


def _cheapest(inside: Axes, steps: tuple[int, ...], itemsize: int, gap: float) -> Split:
    """Return the cheapest split if a request costs as much as ``gap`` bytes, with the fewest requests among equals."""

    def cost(split: Split) -> tuple[float, int]:
        return (0.0 if math.isinf(gap) else gap * split.requests + split.asked), split.requests

    return min(_splits(inside, steps, itemsize, gap), key=cost)


def _splits(inside: Axes, steps: tuple[int, ...], itemsize: int, gap: float) -> Iterator[Split]:
    length, requests = itemsize, math.prod(lengths(inside))
    yield Split(len(inside), length, None, requests, requests * length)
    for axis in reversed(range(len(inside))):
        taken, step = inside[axis], steps[axis]
        requests //= len(taken)
        if isinstance(taken, np.ndarray):
            apart = np.flatnonzero(np.diff(taken) * step - length > gap)
            if 0 < len(apart) < len(taken) - 1:
                first, last = _places(taken[np.r_[0, apart + 1]]), _places(taken[np.r_[apart, len(taken) - 1]])
                asked = int((last - first).sum()) * step + len(first) * length
                yield Split(axis + 1, length, (first, last), requests * len(first), requests * asked)
        length += (int(taken[-1]) - int(taken[0])) * step
        yield Split(axis, length, None, requests, requests * length)


def _in_range(taken: Taken, step: int) -> tuple[int, int, np.ndarray | None]:
    """Return shape, stride and picks of an axis in the range from the first to the last index."""
    if isinstance(taken, range):
        return len(taken), step * taken.step, None
    places = _places(taken) - int(taken[0])
    return int(places[-1]) + 1, step, places


def _grouped(taken: np.ndarray, groups: Groups) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of all groups, the row of each index, the rows before each group, and its own."""
    first, last = groups
    rows = last - first + 1
    before = np.cumsum(rows) - rows
    group = np.searchsorted(first, taken, "right") - 1
    return int(rows.sum()), before[group] + taken - first[group], before, rows


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
