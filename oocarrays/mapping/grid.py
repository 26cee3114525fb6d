"""Chunk grids, storage orders, and the properties of a stored array that a planner uses.

extent 10, chunk 4        ┌────┬────┬────┐
                          │ 0  │ 1  │ 2··│   the last chunk is stored whole, padded
                          └────┴────┴────┘

An order lists the axes from the slowest to the fastest: chunks extend along the fastest ones, and their elements are
stored in it, too.

    row, (0, 1)    ┌───────────┐      column, (1, 0)    ┌──┬──┬──┬──┐      the fastest axes are whole,
                   ├───────────┤                        │  │  │  │  │      one is cut to fit,
                   ├───────────┤                        │  │  │  │  │      the slower ones have length 1
                   └───────────┘                        └──┴──┴──┴──┘

Arrays before 0.6 have chunks that extend along an orientation, with elements in row order. Thakur 1995, section 5.4.1
(storage order: row 8 of Figure 5.5).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

from oocarrays.errors import ChunksError, InputError
from oocarrays.mapping.along import AxisOverGrid, OverGrid, Piece
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, index_of_parts

if TYPE_CHECKING:
    import numpy as np

Index = tuple[int, ...]
"""Index of a chunk in a grid, along each axis."""


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def unravel(number: int, counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index at position ``number`` of a grid of ``counts``, the last axis being the fastest."""
    index = []
    for n in reversed(counts):
        number, i = divmod(number, n)
        index.append(i)
    return tuple(reversed(index))


def ravel(index: Sequence[int], counts: Sequence[int]) -> int:
    """Return the position of an index in a grid of ``counts``, the last axis being the fastest."""
    number = 0
    for i, n in zip(index, counts, strict=True):
        number = number * n + i
    return number


def chunk_runs(lower: int, upper: int, chunk: int) -> Iterator[tuple[int, int]]:
    """Yield the ends of an interval's cuts at chunks: twice as fast as cuts, for loops over chunks and boxes."""
    start = lower
    while start < upper:
        inside = start % chunk
        stop = start - inside + chunk if inside or upper - start < chunk else upper // chunk * chunk
        yield start, min(stop, upper)
        start = stop


def even_part(count: int, parts: int, number: int) -> range:
    """Return one of several parts of a range, whose lengths differ by at most one, the longer ones first."""
    size, longer = divmod(count, parts)
    start = number * size + min(number, longer)
    return range(start, start + size + (number < longer))


def boxes(numbers: range, counts: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield a range of flat indices as a few boxes, each as its first index and one past its last."""
    if not counts:
        yield from [((), ())] if numbers else []
        return
    inner = math.prod(counts[1:])
    for start, stop in chunk_runs(numbers.start, numbers.stop, inner):
        first = start // inner
        if (stop - start) % inner == 0:
            yield (first, *(0 for _ in counts[1:])), (stop // inner, *counts[1:])
            continue
        for low, high in boxes(range(start - first * inner, stop - first * inner), counts[1:]):
            yield (first, *low), (first + 1, *high)


class Extents:
    """Number of axes and elements of an array with a shape and a type, in files or over ranks."""

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, ...]: ...
        @property
        def dtype(self) -> np.dtype: ...

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """A regular grid of chunks over an array."""

    shape: tuple[int, ...]
    """Extent of each axis, in elements."""
    chunks: tuple[int, ...]
    """Chunk length in each axis, in elements."""

    @classmethod
    def of(cls, shape: tuple[int, ...], chunks: tuple[int, ...]) -> ChunkGrid:
        if len(shape) != len(chunks):
            raise ChunksError(f"chunks={chunks!r} has {len(chunks)} axes; the array has {len(shape)}: shape {shape}")
        if any(c < 1 for c in chunks):
            raise ChunksError(f"chunks={chunks!r}: every chunk length must be at least 1")
        return cls(shape, chunks)

    @property
    def counts(self) -> tuple[int, ...]:
        """Chunks along each axis: ``ceil(shape / chunks)``."""
        return tuple(map(ceil_div, self.shape, self.chunks))

    @property
    def count(self) -> int:
        return math.prod(self.counts)

    @property
    def chunk_size(self) -> int:
        return math.prod(self.chunks)

    def section(self, index: tuple[int, ...]) -> Section:
        """Return the array's elements in chunk ``index``: a chunk at the edge is cut to the array."""
        return self.block(index, tuple(i + 1 for i in index))

    def block(self, first: tuple[int, ...], last: tuple[int, ...]) -> Section:
        """Return the array's elements in the chunks ``first[i] <= index[i] < last[i]``."""
        return Section(
            tuple(i * c for i, c in zip(first, self.chunks, strict=True)),
            tuple(min(j * c, n) for j, c, n in zip(last, self.chunks, self.shape, strict=True)),
        )

    def touched(self, section: Section) -> tuple[range, ...]:
        """Return the chunks that intersect ``section``, as one range for each axis."""
        return tuple(
            range(l // c, ceil_div(u, c)) for l, u, c in zip(section.lower, section.upper, self.chunks, strict=True)
        )

    def over(self, axes: Axes) -> OverGrid:
        """Return the selected indices along each axis by chunk."""
        return tuple(map(AxisOverGrid, axes, self.shape, self.chunks))

    def pieces(self, axes: Axes) -> Iterator[tuple[Piece, ...]]:
        """Yield the selected elements of each touched chunk, along each axis, the last axis being the fastest."""
        return product(*self.over(axes))

    def placed(self, axes: Axes) -> Iterator[tuple[Index, Any, Any]]:
        """Yield each touched chunk, with the places of its selected elements in the selection and in the chunk."""
        for each in self.pieces(axes):
            index, inside, out, _ = zip(*each, strict=True) if each else ((), (), (), ())
            yield index, (*out, ...), index_of_parts(inside)

    def indices(self, section: Section) -> Iterator[tuple[int, ...]]:
        """Yield the indices of the chunks that intersect ``section``, the last axis being the fastest."""
        return product(*self.touched(section))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Properties of a stored array that a planner uses."""

    grid: ChunkGrid
    """Shape and chunks, in elements."""
    itemsize: int
    """Bytes of one element."""
    local: bool
    """Whether chunks are local files, accessed without Zarr's stores."""
    codec: str | None = None
    """Codec that encodes a chunk: a name in the cost model, or None if the bytes are the elements."""
    decode_workspace: int = 0
    """Bytes for reading one whole chunk, in addition to the chunk."""
    encode_workspace: int = 0
    """Bytes for writing one chunk, in addition to the chunk."""
    behind_workspace: int = 0
    """Additional bytes if one chunk is written while the next is encoded."""
    shard_chunks: tuple[int, ...] | None = None
    """Length in each axis of the chunks in a shard, if the grid's chunks are shards, the unit of writing."""
    index_bytes: int = 0
    """Bytes of the index of each of these shards."""
    shards: int = 0
    """Number of shards that contain the grid's chunks, if any: chunks are the unit of reading."""
    index_workspace: int = 0
    """Bytes of a process for the locations of chunks in those shards."""
    remote: bool = False
    """Whether each request travels over a network."""
    travel_bytes: int = 0
    """Bytes of a whole chunk under way; 0 if only one request is possible at a time."""
    order: tuple[int, ...] | None = field(default=None, metadata={"gained": True})
    """Axes from the slowest to the fastest within a chunk; None if that is their own order."""
    cached: bool = field(default=False, metadata={"gained": True})
    """Whether it is scratch that stays in the system's cache, without waiting for a device; a power failure loses
    it."""

    @property
    def inner(self) -> ChunkGrid:
        """Grid of the chunks, in shards or not."""
        return ChunkGrid.of(self.grid.shape, self.shard_chunks) if self.shard_chunks else self.grid

    @property
    def unit(self) -> str:
        """Name of the unit of writing."""
        return "shards" if self.shard_chunks else "chunks"

    @property
    def lying(self) -> Stored:
        """The array with its axes in storage order, so that its chunks are in C order."""
        if self.order is None:
            return self
        grid = ChunkGrid(turned(self.grid.shape, self.order), turned(self.grid.chunks, self.order))
        shard = self.shard_chunks and turned(self.shard_chunks, self.order)
        return replace(self, grid=grid, shard_chunks=shard, order=None)

    @property
    def coded(self) -> bool:
        """Whether a chunk's bytes differ from its elements in some order of the axes."""
        return self.codec is not None

    @property
    def made(self) -> bool:
        """Whether encoding or packing is needed for a chunk's bytes: a codec, or a shard."""
        return self.coded or self.shard_chunks is not None

    @property
    def in_place(self) -> bool:
        """Whether pieces of its chunks can be written in place: plain files of this machine."""
        return self.local and not self.made

    @property
    def padded_bytes(self) -> int:
        """Decoded bytes of all chunks, including those in shards: those at the edge are stored whole."""
        chunks = self.shard_chunks or self.grid.chunks
        return math.prod(ceil_div(n, c) * c for n, c in zip(self.grid.shape, chunks, strict=True)) * self.itemsize

    @property
    def nbytes(self) -> int:
        """Decoded bytes of the whole array."""
        return math.prod(self.grid.shape) * self.itemsize

    @property
    def chunk_bytes(self) -> int:
        """Decoded bytes of one chunk."""
        return self.grid.chunk_size * self.itemsize


def check_priced(stored: Stored, name: str) -> None:
    """Raise if the array is too large for its cost to be computed."""
    most = 512  # predicted seconds are products of bytes, and floats end at 1024 bits
    if (bits := stored.padded_bytes.bit_length()) > most:
        raise InputError(f"{name} of shape {stored.grid.shape} has 2**{bits - 1} bytes, more than 2**{most}")


T = TypeVar("T")


def turned(each: Sequence[T], order: Sequence[int] | None) -> tuple[T, ...]:
    """Return values of axes reordered from the slowest to the fastest."""
    return tuple(each) if order is None else tuple(each[axis] for axis in order)


def turned_back(each: Sequence[T], order: Sequence[int] | None) -> tuple[T, ...]:
    """Return values in the array's own axis order: the inverse of `turned`."""
    return turned(each, None if order is None else inverse(order))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """Return the inverse of an order of axes: the position of each axis in it."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def chunks_along(order: Sequence[int], shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the lengths of a box of at most ``size`` elements, at least 1, that fills the fastest axes first."""
    chunks, room = [1] * len(shape), size
    for axis in reversed(order):
        chunks[axis] = max(min(shape[axis], room), 1)
        room = max(room // chunks[axis], 1)
    return tuple(chunks)


def runs_along(order: Sequence[int], shape: Sequence[int], chunks: Sequence[int]) -> bool:
    """Return whether chunks extend along the fastest axes: whole, then one that is cut, then length 1."""
    cut = False
    for axis in reversed(order):
        if cut and chunks[axis] > 1:
            return False
        cut = cut or chunks[axis] < shape[axis]
    return True


def orientation_of(shape: Sequence[int], chunks: Sequence[int]) -> tuple[int, ...] | None:
    """Return the order of axes along which chunks extend, from the slowest to the fastest, or None."""
    speed = [(c > 1) + (c >= n) for n, c in zip(shape, chunks, strict=True)]
    order = tuple(sorted(range(len(shape)), key=speed.__getitem__))
    return order if runs_along(order, shape, chunks) else None
