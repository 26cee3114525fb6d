"""What one rank sends to another, copied into one contiguous message and out of it, as strided copies.

    local array of the source        message                       local array of the target
    ▒▒·····▒▒·····▒▒·····   pack ►   ▒▒▒▒▒▒░░░░░░   unpack ►   ▒▒░░····▒▒░░····▒▒░░····
    ··░░·····░░·····░░···

A message holds the product of the runs along each axis, a combination of runs after the other. No index is computed for
an element: what follows one another in memory on both sides is one wide element of a strided copy. Copies of narrow
ones take turns over tiles of the local array, so that all take what they need while it is in the cache. Thakur 1995,
section 3.2: all that goes from one processor to another goes in one packet; 3.3: the array is scanned once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from oocarrays.errors import LayoutError, UnsupportedError
from oocarrays.mapping.layout import Layout
from oocarrays.plan.communication import Runs, Side
from oocarrays.plan.transfer import Transfer

TILE_BYTES = 2**19
"""Of a local array, copied from or into at one time: with its part of the messages it fits in a core's second cache."""
NARROW_BYTES = 256
"""Wide elements of fewer bytes share cache lines with those of other copies, and are copied tile by tile."""
WIDEST_BYTES = 2**20
"""Wide elements are not made wider than this; numpy could not count those of 2 GiB."""


def pack(local: np.ndarray, transfer: Transfer, source: int, target: int) -> np.ndarray:
    """The message from ``source`` to ``target``: a contiguous array of one axis, ``transfer.size(source, target)``.

    Parameters
    ----------
    local : array
        What ``source`` holds, ``transfer.source.local_shape(source)``.

    Raises
    ------
    LayoutError
        Where ``local`` has another shape.
    UnsupportedError
        Where its elements are Python objects.

    Examples
    --------
    >>> transfer = Transfer(Layout.of((12,), "cyclic(3)", ranks=2), Layout.of((12,), "cyclic(2)", ranks=2))
    >>> pack(np.array([0, 1, 2, 6, 7, 8]), transfer, 0, 1)
    array([2, 6, 7])
    """
    return _packed(local, transfer, source, [target])[target]


def pack_all(local: np.ndarray, transfer: Transfer, source: int) -> list[np.ndarray]:
    """The messages from ``source`` to every target, itself too, in one scan of ``local``; see `pack`.

    >>> transfer = Transfer(Layout.of((12,), "cyclic(3)", ranks=2), Layout.of((12,), "cyclic(2)", ranks=2))
    >>> pack_all(np.array([0, 1, 2, 6, 7, 8]), transfer, 0)
    [array([0, 1, 8]), array([2, 6, 7])]
    """
    return list(_packed(local, transfer, source, range(transfer.target.ranks)).values())


def unpack(message: np.ndarray, transfer: Transfer, source: int, target: int, local: np.ndarray) -> None:
    """Put a message from ``source`` where ``target`` holds it.

    Parameters
    ----------
    local : array
        What ``target`` holds, ``transfer.target.local_shape(target)``, contiguous; it is written.

    Raises
    ------
    LayoutError
        Where ``local`` has another shape or is not contiguous, or the message another size or type.

    Examples
    --------
    >>> transfer = Transfer(Layout.of((12,), "cyclic(3)", ranks=2), Layout.of((12,), "cyclic(2)", ranks=2))
    >>> local = np.zeros(6, int)
    >>> unpack(np.array([2, 6, 7]), transfer, 0, 1, local)
    >>> local
    array([2, 0, 6, 7, 0, 0])
    """
    unpack_all({source: message}, transfer, target, local)


def unpack_all(messages: Mapping[int, np.ndarray], transfer: Transfer, target: int, local: np.ndarray) -> None:
    """Put the messages of several sources where ``target`` holds them, in one scan of ``local``; see `unpack`."""
    _check(local, transfer.target, target, written=True)
    strips, data = _strips(transfer, "target", target), _bytes(local)
    copies = []
    for source, message in messages.items():
        between = _between(strips, transfer.source, source)
        _check_message(message, _size(between), local.dtype)
        parts = _parts(np.ascontiguousarray(message), data, local, between)
        copies += [_Copy(held, sent, combination) for sent, held, combination in parts]
    _copy(copies, local)


def move(held: np.ndarray, transfer: Transfer, source: int, target: int, local: np.ndarray) -> None:
    """The same without a message, where both arrays are in one process.

    Parameters
    ----------
    held, local : array
        What ``source`` holds, and what ``target`` is to hold; the latter is written.

    Raises
    ------
    LayoutError
        Where either has another shape, ``local`` is not contiguous, or they are of different types.
    """
    _check(held, transfer.source, source)
    _check(local, transfer.target, target, written=True)
    if held.dtype != local.dtype:
        raise LayoutError(f"elements of {held.dtype} cannot be put in an array of {local.dtype}")
    held = np.asarray(held, order="C")
    given = _between(_strips(transfer, "source", source), transfer.target, target)
    taken = _between(_strips(transfer, "target", target), transfer.source, source)
    copies = []
    for here, there in zip(product(*given), product(*taken), strict=True):
        one, other = _place(_bytes(held), held.strides, here), _place(_bytes(local), local.strides, there)
        copies.append(_Copy(*_same_elements(other, one, _shape(here), local.itemsize), there))
    _copy(copies, local)


class _Strip(NamedTuple):
    """A run along an axis, as it lies in a local array: all in elements."""

    start: int
    again: int
    times: int
    length: int


class _Place(NamedTuple):
    """Where the elements of a combination of strips lie: bytes from the start, and from one to the next along axes."""

    data: memoryview
    offset: int
    strides: list[int]


class _Copy(NamedTuple):
    """One strided copy, and the strips of the local array that it is of."""

    into: np.ndarray
    taken: np.ndarray
    combination: tuple[_Strip, ...]


Strips = list[list[_Strip]]
"""Of one axis, by the other side's rank along it."""


def _packed(local: np.ndarray, transfer: Transfer, source: int, targets: Sequence[int]) -> dict[int, np.ndarray]:
    _check(local, transfer.source, source)
    local = np.asarray(local, order="C")
    strips, data = _strips(transfer, "source", source), _bytes(local)
    messages, copies = {}, []
    for target in targets:
        between = _between(strips, transfer.target, target)
        messages[target] = message = np.empty(_size(between), local.dtype)
        copies += [_Copy(*part) for part in _parts(message, data, local, between)]
    _copy(copies, local)
    return messages


def _strips(transfer: Transfer, side: Side, rank: int) -> list[Strips]:
    """What ``rank`` sends (or receives), along each axis, by the rank along it that gets it (or has it)."""
    layout, other = (transfer.source, transfer.target)[:: 1 if side == "source" else -1]
    places = zip(transfer.axes, layout.coordinates(rank), other.grid, strict=True)
    return [_by_partner(runs, side, coordinate, partners) for runs, coordinate, partners in places]


def _by_partner(runs: Runs, side: Side, rank: int, partners: int) -> Strips:
    own = runs.of(side, rank)
    start, again = (own.source_start, own.source_stride) if side == "source" else (own.target_start, own.target_stride)
    columns = own.target if side == "source" else own.source, start, again, own.count, own.length
    strips: Strips = [[] for _ in range(partners)]
    for partner, *strip in zip(*(column.tolist() for column in columns), strict=True):
        strips[partner].append(_Strip(*strip))
    return strips


def _between(strips: list[Strips], other: Layout, rank: int) -> list[list[_Strip]]:
    return [axis[coordinate] for axis, coordinate in zip(strips, other.coordinates(rank), strict=True)]


def _size(between: list[list[_Strip]]) -> int:
    size = 1
    for strips in between:
        size *= sum([strip[2] * strip[3] for strip in strips])
    return size


def _shape(combination: tuple[_Strip, ...]) -> list[int]:
    return [n for strip in combination for n in strip[2:]]


def _parts(
    message: np.ndarray, data: memoryview, local: np.ndarray, between: list[list[_Strip]]
) -> Iterator[tuple[np.ndarray, np.ndarray, tuple[_Strip, ...]]]:
    """Each combination of strips: its place in the message, its place in the local array, and itself."""
    sent, offset, steps, itemsize = _bytes(message), 0, local.strides, local.itemsize
    for combination in product(*between):
        shape = _shape(combination)
        size, strides = itemsize, []
        for times in reversed(shape):
            strides.append(size)
            size *= times
        here = _Place(sent, offset, strides[::-1])
        yield *_same_elements(here, _place(data, steps, combination), shape, itemsize), combination
        offset += size


def _place(data: memoryview, steps: tuple[int, ...], combination: tuple[_Strip, ...]) -> _Place:
    offset, strides = 0, []
    for (start, again, _, _), step in zip(combination, steps, strict=True):
        offset += start * step
        strides += [again * step, step]
    return _Place(data, offset, strides)


def _same_elements(one: _Place, other: _Place, shape: list[int], itemsize: int) -> tuple[np.ndarray, np.ndarray]:
    """Views of both places: elements as wide as they follow one another on both sides."""
    width, times = itemsize, list(shape)
    for axis in reversed(range(len(times))):
        if times[axis] > 1:
            if not one.strides[axis] == other.strides[axis] == width or width * times[axis] > WIDEST_BYTES:
                break
            width, times[axis] = width * times[axis], 1
    wide = np.dtype((np.void, width))
    first = np.ndarray(times, wide, one.data, one.offset, one.strides)
    return first, np.ndarray(times, wide, other.data, other.offset, other.strides)


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _copy(copies: list[_Copy], local: np.ndarray) -> None:
    """Make the copies; those of narrow elements in turns, tile by tile of ``local``."""
    narrow = [copy for copy in copies if copy.into.itemsize < NARROW_BYTES]
    in_turns = narrow if local.nbytes > TILE_BYTES and len(narrow) > 1 else []
    for copy in copies:
        if not in_turns or copy.into.itemsize >= NARROW_BYTES:
            copy.into[...] = copy.taken
    bounds = _tiles(local.shape, TILE_BYTES // max(local.itemsize, 1)) if in_turns else []
    cuts = [[_cuts(*axis) for axis in zip(c.combination, c.into.shape[::2], bounds, strict=True)] for c in in_turns]
    for tile in product(*(range(len(axis) - 1) for axis in bounds)) if in_turns else ():
        for copy, cut in zip(in_turns, cuts, strict=True):
            part = [each for axis, number in zip(cut, tile, strict=True) for each in (axis[number], _ALL)]
            if None not in part:
                copy.into[*part] = copy.taken[*part]


_ALL = slice(None)


def _tiles(shape: tuple[int, ...], elements: int) -> list[list[int]]:
    """Where tiles of at most so many elements end, along each axis: whole along the last axes, as far as they go.

    >>> _tiles((5, 10), 40)
    [[0, 4, 5], [0, 10]]
    """
    bounds = []
    for extent in reversed(shape):
        length = max(min(elements, extent), 1)
        bounds.append([*range(0, extent, length), extent])
        elements //= length
    return bounds[::-1]


def _cuts(strip: _Strip, count: int, bounds: list[int]) -> list[slice | None]:
    """Which of the times that a strip comes begin in each tile.

    >>> _cuts(_Strip(3, 10, 4, 2), 4, [0, 20, 30, 33, 40])
    [slice(0, 2, None), slice(2, 3, None), None, slice(3, 4, None)]
    """
    first = [min(max(-((strip.start - bound) // strip.again), 0), count) for bound in bounds]
    return [slice(a, b) if a < b else None for a, b in pairwise(first)]


def _check(local: np.ndarray, layout: Layout, rank: int, *, written: bool = False) -> None:
    if local.dtype.hasobject or not local.itemsize:
        raise UnsupportedError(f"elements of {local.dtype} cannot be copied as bytes: give a type of a fixed size")
    if local.shape != layout.local_shape(rank):
        raise LayoutError(f"rank {rank} of {layout} holds shape {layout.local_shape(rank)}, not {local.shape}")
    if written and not (local.flags.c_contiguous and local.flags.writeable):
        raise LayoutError(f"the array of rank {rank} must be writeable and contiguous in C order to be unpacked into")


def _check_message(message: np.ndarray, size: int, dtype: np.dtype) -> None:
    if message.dtype != dtype or message.size != size:
        was, due = f"{message.size} elements of {message.dtype}", f"{size} of {dtype}"
        raise LayoutError(f"a message of {was} was given where {due} must be")
