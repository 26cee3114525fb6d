"""All forms of the argument ``chunks``, as one regular chunk shape.

    8                   for every axis            "auto", "128MiB"      chunks of about that size
    (8, -1, None)       for each axis             {"time": 8, 1: -1}    for some axes, by name or number
    (8, "auto")         some given, some chosen   ((8, 8, 4), (30,))    blocks, as Dask writes them

As in Dask, -1 is a whole axis, and None or an axis missing in a dict keeps the present chunks. Chosen lengths are
multiples of these if possible. Lengths beyond the axis are cut to it, except on an empty axis, which will grow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from dask.utils import parse_bytes

from oocarrays.errors import ChunksError
from oocarrays.mapping.given import by_axis, index_of, is_sequence
from oocarrays.mapping.grid import ChunkGrid, ceil_div
from oocarrays.mapping.selection import Axes
from oocarrays.plan.machine import check_count

if TYPE_CHECKING:
    import dask.array as da

Advising = Callable[[zarr.Array, Sequence[Axes]], str]
"""Method to read sections of an array, one for each rank; "auto" without advice."""
ADVISING: ContextVar[Advising | None] = ContextVar("oocarrays-advising", default=None)
"""Advice to follow, if any."""

LINES = 20
"""Maximum number of arrays to list one by one; the rest is counted."""


def method_for(asked: str, array: zarr.Array, requests: Sequence[Axes]) -> str:
    """Return the given method; "auto" becomes the advised method, which may be "auto" too."""
    advising = ADVISING.get()
    is_auto = isinstance(asked, str) and asked == "auto"
    return advising(array, requests) if is_auto and advising is not None else asked


ChunksLike = int | str | Sequence[Any] | Mapping[Any, Any]
"""An int or text for every axis, a sequence with one of these or the blocks' lengths for each axis, or a dict."""

SIZE = re.compile(r"auto|\d+(\.\d+)?\s*[a-zA-Z]+")
"""Text for a length to be chosen."""


def regular_chunks(
    chunks: ChunksLike,
    grid: ChunkGrid,
    dtype: np.dtype,
    names: Sequence[str | None] | None = None,
    *,
    grows: bool = False,
) -> tuple[int, ...]:
    """Return the chunk length in each axis, in elements: one for each axis of ``grid.shape``."""
    try:
        wanted = [_one_axis(c, n) for c, n in zip(_each_axis(chunks, grid, names), grid.shape, strict=True)]
        kept = (old if c is None else c for c, old in zip(wanted, grid.chunks, strict=True))
        lengths = tuple(max(n, 1) if c == -1 else c for c, n in zip(kept, grid.shape, strict=True))
        found = ChunkGrid.of(grid.shape, _chosen(lengths, grid, dtype)).chunks
        axes = zip(wanted, found, grid.shape, strict=True)
        return tuple(c if grows or asked is None else _cut(c, n) for asked, c, n in axes)
    except ChunksError as error:
        raise ChunksError(str(error) if str(error).startswith("chunks=") else f"chunks={chunks!r}: {error}") from None


def cuts(
    chunks: ChunksLike | None, shards: ChunksLike | None, grid: ChunkGrid, names: Sequence[str | None] | None = None
) -> tuple[str, ...]:
    """Return texts on the chunks and shards that `regular_chunks` cuts."""
    texts = []
    for word, given in (("chunks", chunks), ("shards", shards)):
        axes = [
            f"{c} along {(names and names[axis]) or f'axis {axis}'} is cut to {n}"
            for axis, (c, n) in enumerate(zip(_each_axis(given, grid, names), grid.shape, strict=True))
            if isinstance(c, int | np.integer) and _cut(int(c), n) != c and c > 0
        ]
        texts += [f"{word} are no longer than the array: {', '.join(axes)}"] if axes else []
    return tuple(texts)


def _cut(length: int, extent: int) -> int:
    return min(length, extent) if extent else length


def block_grid(x: da.Array) -> ChunkGrid:
    """Return the grid of the longest blocks of a lazy array."""
    return ChunkGrid.of(x.shape, tuple(max((*lengths, 1)) for lengths in x.chunks))


def block_lengths(
    chunks: ChunksLike, grid: ChunkGrid, dtype: np.dtype, names: Sequence[str | None] | None = None
) -> tuple[tuple[int, ...], ...]:
    """Return the block lengths along each axis, as Dask writes them: as `regular_chunks`, or any that add up."""
    asked = _each_axis(chunks, grid, names)
    listed = [None if c is None or isinstance(c, str) or np.ndim(c) == 0 else tuple(c) for c in asked]
    for lengths, n in zip(listed, grid.shape, strict=True):
        if lengths is not None and not (all(isinstance(c, int | np.integer) and c >= 0 for c in lengths) and lengths):
            raise ChunksError(f"chunks={chunks!r}: blocks {lengths} are not whole numbers, at least 0")
        if lengths is not None and sum(lengths) != n:
            raise ChunksError(f"chunks={chunks!r}: blocks {lengths} add up to {sum(lengths)}; the axis has {n}")
    longest = [c if b is None else max(*b, 1) for c, b in zip(asked, listed, strict=True)]
    regular = regular_chunks(longest, grid, dtype, names)
    counts = [ceil_div(n, c) if b is None else len(b) for b, n, c in zip(listed, grid.shape, regular, strict=True)]
    shown = " × ".join(map(str, regular))
    check_count(math.prod(counts), f"a lazy array in blocks of {shown}", "give larger chunks=")
    axes = zip(listed, grid.shape, regular, strict=True)
    return tuple(blocks_of(n, c) if lengths is None else tuple(map(int, lengths)) for lengths, n, c in axes)


def uneven_lengths(
    chunks: ChunksLike | None, grid: ChunkGrid, dtype: np.dtype, names: Sequence[str | None] | None = None
) -> tuple[tuple[int, ...], ...] | None:
    """Return the chunk lengths along each axis if unequal ones are listed; None if all are regular."""
    if not isinstance(chunks, Mapping | list | tuple):
        return None
    try:
        asked = _each_axis(chunks, grid, names)
    except ChunksError:  # reported by the parser of regular chunks
        return None
    axes = zip(asked, grid.shape, strict=True)
    return block_lengths(chunks, grid, dtype, names) if any(_is_uneven(c, n) for c, n in axes) else None


def _is_uneven(blocks: Any, extent: int) -> bool:
    """Return whether the block lengths fill an axis, and are unequal."""
    if not isinstance(blocks, list | tuple) or not all(isinstance(b, int | np.integer) and b > 0 for b in blocks):
        return False
    return sum(blocks) == extent and (len({*blocks[:-1]}) > 1 or blocks[-1] > blocks[0])


def regular_shards(
    shards: ChunksLike | None,
    chunks: tuple[int, ...],
    shape: tuple[int, ...],
    dtype: np.dtype,
    names: Sequence[str | None] | None = None,
    *,
    grows: bool = False,
    word: str = "Target(shards={!r})",
) -> tuple[int, ...] | None:
    """Return the shard length of each axis, in elements: a multiple of the chunk length."""
    if shards is None:
        return None
    grid = ChunkGrid.of(shape, chunks)
    try:
        lengths = regular_chunks(shards, grid, dtype, names, grows=grows)
    except ChunksError as error:
        raise ChunksError(str(error).replace(f"chunks={shards!r}", word.format(shards), 1)) from None
    axes = zip(lengths, _each_axis(shards, grid, names), chunks, shape, strict=True)
    return tuple(_whole_chunks(s, a, c, n) for s, a, c, n in axes)


def _whole_chunks(length: int, asked: Any, chunk: int, extent: int) -> int:
    """Return a shard's length along one axis: whole chunks, unless the length was given."""
    if isinstance(asked, str):
        return length // chunk * chunk or chunk
    if asked == -1 or (asked is not None and length == extent):
        return ceil_div(length, chunk) * chunk
    return length


def _each_axis(chunks: Any, grid: ChunkGrid, names: Sequence[str | None] | None) -> Sequence[Any]:
    ndim = len(grid.shape)
    if chunks is None or isinstance(chunks, int | str | np.integer):
        return [chunks] * ndim
    if isinstance(chunks, Mapping):
        return by_axis(chunks, ndim, None, names, "chunks", error=ChunksError)
    try:
        axes = list(chunks)
    except TypeError:
        raise ChunksError(f"not whole numbers, one for each axis of shape {grid.shape}") from None
    if ndim == 1 and len(axes) > 1 and all(isinstance(c, int) and c > 0 for c in axes) and sum(axes) == grid.shape[0]:
        return [axes]
    if len(axes) != ndim:
        raise ChunksError(f"chunks={chunks!r} has {len(axes)} axes; the array has {ndim}: shape {grid.shape}")
    return axes


def _one_axis(length: Any, extent: int) -> int | str | None:
    """Return one length, a size as text, or None; blocks of one length become that length."""
    if length is None or isinstance(length, str):
        return length
    if is_sequence(length):
        return _of_blocks(tuple(length), extent)
    if (number := index_of(length)) is None:
        raise ChunksError(f"{length!r} is not a whole number, -1, None, 'auto' or a size such as '128MiB'")
    return number


def _of_blocks(blocks: tuple[int, ...], extent: int) -> int:
    first = blocks[0] if blocks else 0
    if not blocks or any(b != first for b in blocks[:-1]) or blocks[-1] > first:
        raise ChunksError(f"blocks {blocks} must have equal length, except a shorter last one: pass one length")
    if sum(blocks) != extent:
        raise ChunksError(f"blocks {blocks} add up to {sum(blocks)}; the axis has {extent}")
    return max(int(first), 1)


def _chosen(lengths: tuple[Any, ...], grid: ChunkGrid, dtype: np.dtype) -> tuple[int, ...]:
    """Return lengths with Dask's choice for sizes and "auto"."""
    sizes = {c for c in lengths if isinstance(c, str) and c != "auto"}
    if not any(isinstance(c, str) for c in lengths):
        return lengths
    if len(sizes) > 1:
        raise ChunksError(f"sizes {', '.join(sorted(sizes))} differ: pass one size")
    from dask.array.core import normalize_chunks

    axes = zip(lengths, grid.shape, grid.chunks, strict=True)
    most = 2**20  # chunks of an axis: Dask lists them
    extents = tuple(max(min(n, there * most if isinstance(c, str) else c), 1) for c, n, there in axes)
    there = tuple(blocks_of(n, c) for n, c in zip(extents, grid.chunks, strict=True))
    limit = _size(sizes.pop()) if sizes else None
    auto = tuple("auto" if isinstance(c, str) else min(c, n) for c, n in zip(lengths, extents, strict=True))
    found = normalize_chunks(auto, extents, limit=limit, dtype=dtype, previous_chunks=there)
    return tuple(blocks[0] if isinstance(c, str) else c for blocks, c in zip(found, lengths, strict=True))


def blocks_of(extent: int, chunk: int) -> tuple[int, ...]:
    """Return the lengths of an axis' chunks, as Dask writes them."""
    whole, rest = divmod(extent, chunk)
    return (chunk,) * whole + ((rest,) if rest or not whole else ())


def _size(text: str) -> int:
    try:
        size = parse_bytes(text)
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise ChunksError(f"{text!r} is not 'auto' or a size such as '128MiB'")
    return int(size)


def extent_said(chunks: Any, axis: int, ndim: int) -> int | None:
    """Return the length of an axis that is whole in a chunk, as chunks state it for Dask's ``map_blocks``."""
    if isinstance(chunks, Mapping):
        said = chunks.get(axis, chunks.get(axis - ndim))
    else:
        said = chunks[axis] if isinstance(chunks, list | tuple) and len(chunks) == ndim else None
    each = said if isinstance(said, list | tuple) else [said]
    good = each and all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0 for n in each)
    return sum(map(int, each)) if good else None


def parsed_chunks(text: str) -> Any:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    named = [part.partition("=") for part in parts]
    if any(equals for _, equals, _ in named):
        if not all(name and equals and value for name, equals, value in named):
            raise ValueError(text)
        return {_number(name): _number(value) for name, _, value in named}
    lengths = tuple(map(_number, parts))
    if any(isinstance(c, str) and not SIZE.fullmatch(c) for c in lengths):
        raise ValueError(text)
    return lengths[0] if len(lengths) == 1 and isinstance(lengths[0], str) else lengths


def _number(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text
