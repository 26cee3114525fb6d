"""Packing: the data from one rank to another, copied into and out of one contiguous message by strided copies.

    local array of the source        message                       local array of the target
    ▒▒·····▒▒·····▒▒·····   pack ►   ▒▒▒▒▒▒░░░░░░   unpack ►   ▒▒░░····▒▒░░····▒▒░░····
    ··░░·····░░·····░░···

A message holds the product of the runs along each axis, one combination of runs after the other. No index is computed
for an element: elements contiguous in memory on both sides are one wide element of a strided copy. Copies of narrow
elements alternate over tiles of the local array, so that each tile is used while it is in the cache. Thakur 1995,
section 3.2: all data from one processor to another go in one packet; 3.3: the array is scanned once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise, product
from typing import NamedTuple

import numpy as np

from oocarrays.errors import LayoutError, UnsupportedError
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.plan.layouts.runs import Runs, Side
from oocarrays.plan.layouts.transfer import Transfer
from oocarrays.storage.local.pages import numpy_bytes

TILE_BYTES = 2**19
"""Bytes of a tile of a local array: with its part of the messages it fits in a core's second-level cache."""
WIDEST_BYTES = 2**20
"""Maximum bytes of a wide element; numpy could not count those of 2 GiB."""


Take = Callable[[int], np.ndarray]
"""Allocator: returns memory of a number of bytes."""


def pack(local: np.ndarray, transfer: Transfer, source: int, target: int, take: Take = numpy_bytes) -> np.ndarray:
    """Return the message from ``source`` to ``target``, a 1-d contiguous array of ``transfer.size(source, target)``."""
    _check(local, transfer.source, source)
    size, parts = _recipes(transfer, "source", source, local.itemsize, TILE_BYTES)[target]
    sent = take(size * local.itemsize)
    if size:
        _copy_in_turns(_copy_wide(parts, sent, _bytes(np.asarray(local, order="C"))))
    return sent.view(local.dtype)


def unpack(messages: Mapping[int, np.ndarray], transfer: Transfer, target: int, local: np.ndarray) -> None:
    """Copy the messages of several sources into the local array of ``target``, in one scan."""
    _check(local, transfer.target, target, written=True)
    recipes = _recipes(transfer, "target", target, local.itemsize, TILE_BYTES)
    for source, message in messages.items():
        _check_message(message, recipes[source].size, local.dtype)
    data, in_turns = _bytes(local), []
    for source, message in messages.items():
        if message.size:
            in_turns += _copy_wide(recipes[source].parts, data, _bytes(message))
    _copy_in_turns(in_turns)


def move(held: np.ndarray, transfer: Transfer, source: int, target: int, local: np.ndarray) -> None:
    """Copy directly between two local arrays in one process, without a message."""
    _check(held, transfer.source, source)
    _check(local, transfer.target, target, written=True)
    if held.dtype != local.dtype:
        raise LayoutError(f"elements of {held.dtype} cannot be stored in an array of {local.dtype}")
    held = np.asarray(held, order="C")
    runs = transfer.runs(source, target)
    given = _combinations([_strips(each, "source") for each in runs], held.strides)
    taken = _combinations([_strips(each, "target") for each in runs], local.strides)
    bounds = _tiles(local.shape, TILE_BYTES // local.itemsize)
    both = zip(given, taken, strict=True)
    parts = [_part(strips, there, here, local.itemsize, bounds) for (_, here), (strips, there) in both]
    _copy_in_turns(_copy_wide(parts, _bytes(local), _bytes(held)))


Cut = slice | None
"""Repetitions of a strip that begin in a tile of the local array; None if none do."""
Copy = tuple[np.ndarray, np.ndarray, Iterator[tuple[Cut, ...]]]
"""Strided copy: destination, source, and the parts to copy at each turn."""


class _Strip(NamedTuple):
    """Run along an axis, located in a local array: all in elements."""

    start: int
    again: int
    times: int
    length: int


class _Place(NamedTuple):
    """Byte offset of the first element, and byte stride along each dimension."""

    offset: int
    strides: tuple[int, ...]


class _Part(NamedTuple):
    """Combination of strips as one strided copy: repetitions along each axis, then lengths."""

    times: tuple[int, ...]
    wide: np.dtype
    into: _Place
    taken: _Place
    cuts: list[list[Cut]] | None


class _Recipe(NamedTuple):
    """Copies that make up a message, and its number of elements."""

    size: int
    parts: list[_Part]


@lru_cache(maxsize=128)
def _recipes(transfer: Transfer, side: Side, rank: int, itemsize: int, tile_bytes: int) -> list[_Recipe]:
    """Return the recipes of the messages between ``rank`` and every rank of the other side."""
    layout, other = (transfer.source, transfer.target)[:: 1 if side == "source" else -1]
    shape = layout.local_shape(rank)
    steps, bounds = _steps(shape, itemsize), _tiles(shape, tile_bytes // itemsize)
    axes = zip(transfer.axes, layout.coordinates(rank), other.grid, strict=True)
    strips = [_by_partner(runs.of(side, place), side, partners) for runs, place, partners in axes]
    found = []
    for partner in range(other.ranks):
        along = zip(strips, other.coordinates(partner), strict=True)
        between = [axis[place] for axis, place in along]
        found.append(_recipe(between, steps, itemsize, bounds, packed=side == "source"))
    return found


def _by_partner(runs: Runs, side: Side, partners: int) -> list[list[_Strip]]:
    """Return a rank's strips along an axis, by the partner rank along it."""
    strips: list[list[_Strip]] = [[] for _ in range(partners)]
    others = runs.target if side == "source" else runs.source
    for partner, strip in zip(others.tolist(), _strips(runs, side), strict=True):
        strips[partner].append(strip)
    return strips


def _strips(runs: Runs, side: Side) -> list[_Strip]:
    """Return runs as strips; a single run becomes repetitions of one element, to be cut at tile ends."""
    once = runs.count == 1
    start, again = (runs.source_start, runs.source_stride)
    if side == "target":
        start, again = (runs.target_start, runs.target_stride)
    again, times = np.where(once, 1, again), np.where(once, runs.length, runs.count)
    lengths = np.where(once, 1, runs.length)
    return list(map(_Strip, *(column.tolist() for column in (start, again, times, lengths))))


def _recipe(
    strips: list[list[_Strip]], steps: Sequence[int], itemsize: int, bounds: list[list[int]], *, packed: bool
) -> _Recipe:
    offset, parts = 0, []
    for combination, held in _combinations(strips, steps):
        shape = tuple(n for strip in combination for n in (strip.times, strip.length))
        sent = _Place(offset, _steps(shape, itemsize))
        places = (sent, held) if packed else (held, sent)
        parts.append(_part(combination, *places, itemsize, bounds))
        offset += math.prod(shape) * itemsize
    return _Recipe(offset // itemsize, parts)


def _combinations(strips: list[list[_Strip]], steps: Sequence[int]) -> Iterator[tuple[tuple[_Strip, ...], _Place]]:
    """Yield all combinations of one strip along each axis, with their places in a local array."""
    for combination in product(*strips):
        pairs = list(zip(combination, steps, strict=True))
        strides = tuple(n for strip, step in pairs for n in (strip.again * step, step))
        yield combination, _Place(sum(strip.start * step for strip, step in pairs), strides)


def _steps(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    return tuple(accumulate(shape[:0:-1], int.__mul__, initial=itemsize))[::-1] if shape else ()


def _part(
    combination: tuple[_Strip, ...], into: _Place, taken: _Place, itemsize: int, bounds: list[list[int]]
) -> _Part:
    """Return a copy with the widest elements that are contiguous on both sides."""
    width, times = itemsize, [n for strip in combination for n in (strip.times, strip.length)]
    for axis in reversed(range(len(times))):
        if times[axis] > 1:
            if not into.strides[axis] == taken.strides[axis] == width or width * times[axis] > WIDEST_BYTES:
                break
            width, times[axis] = width * times[axis], 1
    cuts = list(map(_cuts, combination, times[::2], bounds)) if width < 256 else None  # they share lines
    into, taken = (_Place(place.offset, place.strides[::2] + place.strides[1::2]) for place in (into, taken))
    return _Part((*times[::2], *times[1::2]), np.dtype((np.void, width)), into, taken, cuts)


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _copy_wide(parts: list[_Part], into: np.ndarray, taken: np.ndarray) -> list[Copy]:
    """Make the copies of wide elements between the bytes of two arrays, and return those to make by tiles."""
    in_turns: list[Copy] = []
    for times, wide, here, there, cuts in parts:
        views = np.ndarray(times, wide, into, *here), np.ndarray(times, wide, taken, *there)
        if cuts is None:
            views[0][...] = views[1]
        else:
            in_turns.append((*views, product(*cuts)))
    return in_turns


def _copy_in_turns(copies: list[Copy]) -> None:
    """Make copies tile by tile, so that each tile is used while it is in the cache."""
    while copies:
        left = []
        for copy in copies:
            into, taken, turns = copy
            part = next(turns, None)
            if part is not None:
                left.append(copy)
                if None not in part:
                    into[part] = taken[part]  # type: ignore[index]
        copies = left


def _tiles(shape: tuple[int, ...], elements: int) -> list[list[int]]:
    """Return the tile bounds along each axis for at most ``elements`` elements, whole along the last axes first."""
    bounds = []
    for extent in reversed(shape):
        length = max(min(elements, extent), 1)
        bounds.append([*range(0, extent, length), extent])
        elements //= length
    return bounds[::-1]


def _cuts(strip: _Strip, times: int, bounds: list[int]) -> list[Cut]:
    """Return the repetitions of a strip that begin in each tile."""
    first = [min(max(-((strip.start - bound) // strip.again), 0), times) for bound in bounds]
    return [slice(a, b) if a < b else None for a, b in pairwise(first)]


def _check(local: np.ndarray, layout: Layout, rank: int, *, written: bool = False) -> None:
    if local.dtype.hasobject or not local.itemsize:
        raise UnsupportedError(f"elements of {local.dtype} cannot be copied as bytes: use a dtype of fixed size")
    if local.shape != layout.local_shape(rank):
        raise LayoutError(f"rank {rank} of {layout} holds shape {layout.local_shape(rank)}, not {local.shape}")
    if written and not (local.flags.c_contiguous and local.flags.writeable):
        raise LayoutError(f"the array of rank {rank} must be writeable and contiguous in C order to be unpacked into")


def _check_message(message: np.ndarray, size: int, dtype: np.dtype) -> None:
    if message.dtype != dtype or message.size != size:
        was, due = f"{message.size} elements of {message.dtype}", f"{size} of {dtype}"
        raise LayoutError(f"a message of {was} was passed; expected {due}")
