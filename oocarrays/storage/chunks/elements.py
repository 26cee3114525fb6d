"""Positions of elements in chunks: tiles and runs, byte ranges, copies into chunk-major buffers, fill values.

chunk  · · · ·      piece ▒ of shape (2, 2): runs of 2 elements that start at 5 and 9,
       · ▒ ▒ ·      one byte range from 5 to 11, or tiles of as many rows as fit in a cache
       · ▒ ▒ ·
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np

from oocarrays.mapping.along import chunk_runs
from oocarrays.mapping.grid import Index, ceil_div, inverse, turned
from oocarrays.mapping.section import Section
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.local.pages import copy, shaped


def fill_bits(file: ArrayFile) -> bytes:
    """Return the bytes of the fill value, which elements of a missing chunk have."""
    return np.full(1, file.fill_value, file.dtype).tobytes()


def is_fill(chunk: np.ndarray, fill: bytes) -> bool:
    """Return whether every element equals the fill value bit by bit."""
    elements = chunk.reshape(-1)
    if elements[:1].tobytes() != fill or elements[-1:].tobytes() != fill:
        return False
    bits = elements.view(np.uint8).reshape(len(elements), -1)
    return bool((bits == np.frombuffer(fill, np.uint8)).all())


def cut(piece: Section, tile: tuple[int, ...]) -> Iterator[Section]:
    """Yield the tiles of a piece, the last axis varying fastest."""
    counts = [ceil_div(n, t) for n, t in zip(piece.shape, tile, strict=True)]
    for index in product(*map(range, counts)):
        lower = tuple(l + i * t for l, i, t in zip(piece.lower, index, tile, strict=True))
        yield Section(lower, tuple(min(l + t, u) for l, t, u in zip(lower, tile, piece.upper, strict=True)))


def _steps(chunks: tuple[int, ...], itemsize: int) -> list[int]:
    """Return the stride of each axis of a chunk in bytes."""
    return [math.prod(chunks[axis + 1 :]) * itemsize for axis in range(len(chunks))]


def byte_span(part: Section, chunks: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Return the byte offsets in a chunk of the start of the first element of ``part`` and the end of the last."""
    steps = _steps(chunks, itemsize)
    start = sum(l * step for l, step in zip(part.lower, steps, strict=True))
    return start, sum((u - 1) * step for u, step in zip(part.upper, steps, strict=True)) + itemsize


def strided(elements: np.ndarray, shape: tuple[int, ...], chunks: tuple[int, ...]) -> np.ndarray:
    """View ``elements``, a byte range of a chunk, as the piece of ``shape`` that starts at its first element."""
    return np.lib.stride_tricks.as_strided(elements, shape, _steps(chunks, elements.itemsize), writeable=False)


def element_runs(part: Section, chunks: tuple[int, ...]) -> tuple[np.ndarray, int]:
    """Return the start of each contiguous run of ``part`` in a chunk, and the common length, in elements."""
    axis = len(chunks)
    length = 1
    while axis and (axis == len(chunks) or part.shape[axis] == chunks[axis]):
        axis -= 1
        length *= part.shape[axis]
    starts = np.zeros(1, np.int64)
    stride = np.cumprod((1, *chunks[:0:-1]))[::-1] if chunks else ()
    for a in range(len(chunks)):
        steps = np.arange(part.shape[a]) if a < axis else np.zeros(1, np.int64)
        starts = ((part.lower[a] + steps) * stride[a] + starts[:, None]).reshape(-1)
    return starts, length


def scatter(buffer: np.ndarray, origin: Index, section: Section, data: np.ndarray | object) -> None:
    """Copy ``data``, the elements of ``section``, to their positions in a chunk-major buffer."""
    ndim = buffer.ndim // 2
    here = section.relative_to(origin)
    axes = [list(_chunk_runs(l, u, c)) for l, u, c in zip(here.lower, here.upper, buffer.shape[ndim:], strict=True)]
    for parts in product(*axes):
        chunks, inside, source = zip(*parts, strict=True) if parts else ((), (), ())
        view = buffer[(*chunks, *inside, ...)]
        if isinstance(data, np.ndarray):
            copy(view, _chunk_major(data[(*source, ...)], view.shape, ndim))
        else:
            view[...] = data


def _chunk_major(data: np.ndarray, shape: tuple[int, ...], ndim: int) -> np.ndarray:
    """Return the same elements with every axis split into chunks, and the chunk axes first."""
    cut = data.reshape([n for axis in zip(shape[:ndim], shape[ndim:], strict=True) for n in axis])
    return cut.transpose([*range(0, 2 * ndim, 2), *range(1, 2 * ndim, 2)])


def _chunk_runs(lower: int, upper: int, chunk: int) -> Iterator[tuple[slice, slice, slice]]:
    """Yield each run of equally covered chunks as slices of chunks, of elements in each, and of the interval."""
    for start, stop in chunk_runs(lower, upper, chunk):
        first, inside = divmod(start, chunk)
        last = ceil_div(stop, chunk)
        length = chunk if last - first > 1 else stop - start
        yield slice(first, last), slice(inside, inside + length), slice(start - lower, stop - lower)


def common(there: Section, here: Section, data: np.ndarray | None) -> Iterator[tuple[Section, np.ndarray | None]]:
    """Yield the intersection of ``here`` with the chunk at ``there``, if any, and its elements."""
    part = there.intersection(here)
    if part is not None:
        yield part, None if data is None else data[part.relative_to(there.lower).slices]


def turned_section(section: Section, order: tuple[int, ...] | None) -> Section:
    """Return a section with its axes in another order."""
    return section if order is None else Section(turned(section.lower, order), turned(section.upper, order))


def chunk_major(
    memory: np.ndarray,
    counts: tuple[int, ...],
    lengths: tuple[int, ...],
    dtype: np.dtype,
    order: tuple[int, ...] | None,
) -> np.ndarray:
    """View memory as a box of chunks stored one after another; ``result.shape == counts + lengths``."""
    lying = shaped(memory, counts + turned(lengths, order), dtype)
    return (
        lying if order is None else lying.transpose([*range(len(counts)), *(len(counts) + a for a in inverse(order))])
    )
