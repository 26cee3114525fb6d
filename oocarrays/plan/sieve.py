"""Sieves: the byte ranges to ask for, where little or much of each chunk is wanted.

    chunk      ··█·█·█·····█·█·█········      wanted, and holes
    direct       ─ ─ ─     ─ ─ ─              a request each run: no byte too many
    auto         ─────     ─────              holes shorter than the gap are read too, and left out in memory
    sieve        ───────────────              one request from the first to the last, in rounds of a buffer

To skip a hole costs a request, to read it costs its bytes: one that is shorter than what is read in the time of a
request is read. Each hole is judged by itself, so this is the cheapest there is. Chunks that are cut alike are
planned once. Thakur 1995, section 5.5.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from oocarrays.mapping import ranges
from oocarrays.mapping.selection import Axes, Taken, lengths, within

Method = Literal["auto", "direct", "sieve"]
"""How holes are treated: those shorter than the gap are read, none is, or all are."""
METHODS = ("auto", "direct", "sieve")
MOST_RANGES = 2048
"""Ranges that are asked for in one round: more would take longer to describe than to hold."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Chunks along one axis of which the same is taken."""

    chunks: range
    """Their indices."""
    inside: Taken
    """What is taken of each, counted from its beginning."""
    first: int
    """The place of the first element among all that is taken."""


def cuts(taken: Taken, extent: int, chunk: int) -> list[Cut]:
    """The chunks along one axis of which something is taken, those that are cut alike together.

    >>> cuts(range(1, 40, 2), 40, 8)
    [Cut(chunks=range(0, 5), inside=range(1, 8, 2), first=0)]
    >>> cuts(range(0, 24, 12), 24, 4)
    [Cut(chunks=range(0, 4, 3), inside=range(0, 1), first=0)]
    """
    found: list[Cut] = []
    for cut in _few(taken, extent, chunk):
        joined = _joined(found[-1], cut) if found else None
        if joined is None:
            found.append(cut)
        else:
            found[-1] = joined
    return found


def _few(taken: Taken, extent: int, chunk: int) -> Iterator[Cut]:
    """The same, alike or not: chunk by chunk, but for those in the middle of a range whose stride fits the chunk."""
    number = 0
    while number < len(taken):
        index = int(taken[number]) // chunk
        there, inside = within(taken, index * chunk, min((index + 1) * chunk, extent))
        cut = Cut(range(index, index + 1), _counted(inside), number)
        more = _repeated(taken, cut, chunk)
        yield more
        number += len(more.chunks) * len(cut.inside) if len(more.chunks) > 1 else there.stop - there.start


def _counted(inside: slice | np.ndarray) -> Taken:
    if isinstance(inside, np.ndarray):
        return inside
    return ranges.ascending(range(inside.start, inside.stop, inside.step or 1))


def _repeated(taken: Taken, cut: Cut, chunk: int) -> Cut:
    """A cut with all that follow and are alike, as far as strides tell."""
    if isinstance(taken, np.ndarray) or len(taken) < 2:
        return cut
    each, step = len(cut.inside), taken.step
    if (chunk % step and step % chunk) or each * step != max(step, chunk):
        return cut
    times = (len(taken) - cut.first) // each
    apart = max(step // chunk, 1)
    start = cut.chunks.start
    return Cut(ranges.ascending(range(start, start + times * apart, apart)), cut.inside, cut.first)


def _joined(cut: Cut, more: Cut) -> Cut | None:
    """Two cuts as one, where they are alike and their chunks in step."""
    if not _alike(cut.inside, more.inside):
        return None
    here, there = cut.chunks, more.chunks
    apart = there[0] - here[-1]
    if any(len(each) > 1 and each.step != apart for each in (here, there)):
        return None
    return Cut(ranges.ascending(range(here[0], there[-1] + 1, apart)), cut.inside, cut.first)


def _alike(a: Taken, b: Taken) -> bool:
    if isinstance(a, range) and isinstance(b, range):
        return a == b
    return len(a) == len(b) and bool(np.array_equal(a, b))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sieve:
    """What is asked for of one chunk, and where it lies in a buffer."""

    starts: np.ndarray
    """Where each range begins in the chunk, in bytes."""
    lengths: np.ndarray
    """Bytes of each range."""
    places: np.ndarray
    """Where each range begins in the buffer, in bytes."""
    held_bytes: int
    """Bytes of the buffer that the ranges of one chunk take."""
    useful_bytes: int
    """Bytes of the elements that are wanted."""
    run_axis: int
    """Axes from this one on are in one range; those before it are asked for index by index."""
    shape: tuple[int, ...]
    """Shape of the part of the buffer that holds the elements, ..."""
    strides: tuple[int, ...]
    """... its strides in bytes, ..."""
    picks: tuple[np.ndarray | None, ...]
    """... and what is wanted of it along each axis; None for all."""

    @classmethod
    def of(cls, inside: Axes, chunks: tuple[int, ...], itemsize: int, gap: float) -> Sieve:
        """The ranges for what is taken of a chunk.

        Parameters
        ----------
        inside : tuple of range or array
            What is taken along each axis, counted from the chunk's beginning; something.
        gap : float
            Bytes: a hole up to this length is read.

        Examples
        --------
        >>> sieve = Sieve.of((range(0, 8, 4), range(2, 9, 3)), (8, 10), 1, gap=3)
        >>> sieve.starts, sieve.lengths
        (array([ 2, 42]), array([7, 7]))
        """
        steps = tuple(math.prod(chunks[axis + 1 :]) * itemsize for axis in range(len(chunks)))
        axis, length, groups = _merged(inside, steps, itemsize, gap)
        starts = np.zeros(1, np.int64)
        for a, (taken, step) in enumerate(zip(inside, steps, strict=True)):
            along = groups[0] if groups and a == axis - 1 else _places(taken) if a < axis else _places(taken)[:1]
            starts = (starts[:, None] + along * step).reshape(-1)
        return _laid_out(cls, inside, steps, itemsize, axis, length, groups, starts)

    @property
    def requests(self) -> int:
        """Ranges of one chunk."""
        return len(self.starts)

    @property
    def asked_bytes(self) -> int:
        """Bytes of all ranges of one chunk."""
        return int(self.lengths.sum())

    @property
    def holes(self) -> bool:
        """Whether anything is asked for that is not wanted."""
        return self.asked_bytes > self.useful_bytes


Groups = tuple[np.ndarray, np.ndarray]
"""First and last index of each group of neighbours along one axis."""


def _places(taken: Taken) -> np.ndarray:
    return np.asarray(taken, np.int64)


def _merged(inside: Axes, steps: tuple[int, ...], itemsize: int, gap: float) -> tuple[int, int, Groups | None]:
    """The first axis that is in one range with all behind it, the bytes of that, and groups along the one before."""
    length = itemsize
    for axis in reversed(range(len(inside))):
        taken, step = inside[axis], steps[axis]
        if isinstance(taken, range):
            if len(taken) > 1 and taken.step * step - length > gap:
                return axis + 1, length, None
        else:
            apart = np.flatnonzero(np.diff(taken) * step - length > gap)
            if len(apart) == len(taken) - 1 and len(apart):
                return axis + 1, length, None
            if len(apart):
                first, last = taken[np.r_[0, apart + 1]], taken[np.r_[apart, len(taken) - 1]]
                return axis + 1, length, (_places(first), _places(last))
        length += (int(taken[-1]) - int(taken[0])) * step
    return 0, length, None


def _laid_out(
    kind: type[Sieve],
    inside: Axes,
    steps: tuple[int, ...],
    itemsize: int,
    axis: int,
    length: int,
    groups: Groups | None,
    starts: np.ndarray,
) -> Sieve:
    """Ranges one after the other in a buffer, and the elements in it as a strided array."""
    shape, strides = [0] * len(inside), [0] * len(inside)
    picks: list[np.ndarray | None] = [None] * len(inside)
    for a in range(axis, len(inside)):
        taken = inside[a]
        regular = isinstance(taken, range)
        shape[a] = len(taken) if regular else int(taken[-1] - taken[0]) + 1
        strides[a] = steps[a] * (taken.step if isinstance(taken, range) else 1)
        picks[a] = None if regular else _places(taken) - int(taken[0])
    held, outer, places = length, axis, np.zeros(1, np.int64)
    sizes = np.full(1, length, np.int64)
    if groups:  # at the chunk's own pitch, so that one strided array holds all of them
        first, last = groups
        outer, pitch, rows = axis - 1, steps[axis - 1], last - first + 1
        before = np.cumsum(rows) - rows
        taken = _places(inside[outer])
        group = np.searchsorted(first, taken, "right") - 1
        picks[outer], shape[outer], strides[outer] = before[group] + taken - first[group], int(rows.sum()), pitch
        places, sizes = before * pitch, (rows - 1) * pitch + length
        held = (int(rows.sum()) - 1) * pitch + length
    one = held
    for a in reversed(range(outer)):
        shape[a], strides[a] = len(inside[a]), held
        held *= len(inside[a])
    times = held // one
    places = (np.arange(times)[:, None] * one + places).reshape(-1)
    return kind(
        starts=starts,
        lengths=np.tile(sizes, times),
        places=places,
        held_bytes=held,
        useful_bytes=math.prod(lengths(inside)) * itemsize,
        run_axis=axis,
        shape=tuple(shape),
        strides=tuple(strides),
        picks=tuple(picks),
    )
