"""A section of a stored array: which chunks are touched, what is asked of each, and in which rounds.

    chunks     ┌─ cut ─┐┌─ cut ─┐┌─ another ─┐
    sieve      one for all that are cut alike
    round      as many chunks as a buffer holds, or a part of one that is larger

Thakur 1995, section 5.5.1: no. of requests = ⌈(u₂ − l₂ + 1) / n⌉ where n columns fit in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import NamedTuple

from oocarrays.errors import InputError
from oocarrays.mapping.grid import Stored, boxes
from oocarrays.mapping.selection import Axes, lengths
from oocarrays.plan.cost import Costs
from oocarrays.plan.sieve import METHODS, MOST_RANGES, Cut, Method, Sieve, cuts

BUFFER_BYTES = 2**20
"""Bytes of one buffer, by default: what is read into it is still in a core's second cache when it is sieved."""
STORE_BUFFER_BYTES = 2**23
"""The same, where requests go to a store."""
IN_FLIGHT = 4
"""Buffers that are filled or being sieved at one time, at most."""


class Round(NamedTuple):
    """What is asked for at one time: the same of each of some chunks."""

    chunks: tuple[range, ...]
    """Their indices along each axis."""
    sieve: Sieve
    """What is asked of each."""
    first: tuple[int, ...]
    """The place of the first element in the result, along each axis."""
    straight: bool
    """Whether ranges are read to their places in the result, without a buffer."""

    @property
    def count(self) -> int:
        """Chunks."""
        return math.prod(map(len, self.chunks))

    @property
    def held_bytes(self) -> int:
        """Bytes of its buffer."""
        return 0 if self.straight else self.count * self.sieve.held_bytes


def gap_bytes(method: Method, stored: Stored, costs: Costs, requests: int = 1) -> float:
    """Bytes that are read in the time of a request: a shorter hole is read.

    Parameters
    ----------
    requests : int
        Requests that are under way at one time to a store that is not on this machine.

    Raises
    ------
    InputError
        Where there is no such method.

    Examples
    --------
    >>> from oocarrays.mapping.grid import ChunkGrid
    >>> stored = Stored(grid=ChunkGrid.of((4,), (4,)), itemsize=1, local=True)
    >>> [gap_bytes(method, stored, Costs()) for method in ("direct", "auto", "sieve")]
    [0.0, 8000.0, inf]
    """
    if method not in METHODS:
        raise InputError(f"method={method!r} is not one of {', '.join(map(repr, METHODS))}")
    if method != "auto":
        return 0.0 if method == "direct" else math.inf
    if stored.local:
        return costs.range_seconds * costs.copy_bandwidth
    if not stored.remote:
        return costs.store_request_seconds * costs.copy_bandwidth
    return (costs.store_request_seconds + costs.remote_request_seconds / requests) * costs.remote_bandwidth


@dataclass(frozen=True, kw_only=True, eq=False)
class SectionPlan:
    """How a section of a plain array is read."""

    stored: Stored
    """The array."""
    axes: Axes
    """What is taken along each axis."""
    gap: float
    """Bytes: holes up to this length are read."""
    buffer_bytes: int
    """Bytes of one buffer."""
    packed: bool = True
    """Whether the result lies in one piece, in C order."""
    costs: Costs = field(default_factory=Costs)
    """What work costs."""

    @cached_property
    def kinds(self) -> list[tuple[Kind, list[Part]]]:
        """The kinds of chunks, by how they are cut, each with its parts."""
        grid = self.stored.grid
        along = [cuts(taken, n, c) for taken, n, c in zip(self.axes, grid.shape, grid.chunks, strict=True)]
        found = (Kind(each) for each in product(*along)) if all(map(len, self.axes)) else ()
        return [(kind, list(self._parts(tuple(cut.inside for cut in kind.cuts)))) for kind in found]

    def _parts(self, inside: Axes, at: tuple[int, ...] | None = None) -> Iterator[Part]:
        """What is taken of a chunk, in parts that a buffer holds."""
        at = at or (0,) * len(inside)
        part = self._part(inside, at)
        long = next((axis for axis, taken in enumerate(inside) if len(taken) > 1), None)
        if long is None or self._fits(part):
            yield part
            return
        most = self._most(inside, long)
        for low in range(0, len(inside[long]), most):
            less = (*inside[:long], inside[long][low : low + most], *inside[long + 1 :])
            yield from self._parts(less, (*at[:long], at[long] + low, *at[long + 1 :]))

    def _most(self, inside: Axes, axis: int) -> int:
        """Indices along an axis that a buffer holds, at least one."""
        low, high = 1, len(inside[axis])
        while high - low > 1:
            middle = (low + high) // 2
            less = (*inside[:axis], inside[axis][:middle], *inside[axis + 1 :])
            low, high = (middle, high) if self._fits(self._part(less, (0,) * len(inside))) else (low, middle)
        return low

    def _part(self, inside: Axes, at: tuple[int, ...]) -> Part:
        sieve = Sieve.of(inside, self.stored.grid.chunks, self.stored.itemsize, self.gap)
        return Part(sieve, at, self.packed and self._straight(sieve, inside))

    def _straight(self, sieve: Sieve, inside: Axes) -> bool:
        """Whether each range lies in one piece in the result too."""
        if sieve.holes or any(pick is not None for pick in sieve.picks):
            return False
        run = list(zip(inside, self.axes, strict=True))[sieve.run_axis :]
        while run and len(run[0][0]) == 1:
            run = run[1:]
        return all(len(part) == len(whole) for part, whole in run[1:])

    def _fits(self, part: Part) -> bool:
        held = 0 if part.straight else part.sieve.held_bytes
        return held <= self.buffer_bytes and part.sieve.requests <= MOST_RANGES

    def rounds(self) -> Iterator[Round]:
        """What is asked for, one round after the other."""
        for kind, parts in self.kinds:
            each = self._at_once(parts)
            for low in range(0, kind.count, each):
                for first, last in boxes(range(low, min(low + each, kind.count)), kind.counts):
                    for sieve, at, straight in parts:
                        yield Round(*kind.box(first, last, at, sieve, straight))

    def _at_once(self, parts: Sequence[Part]) -> int:
        """Chunks of one round."""
        if len(parts) > 1:
            return 1
        (part,) = parts
        held = part.sieve.useful_bytes if part.straight else part.sieve.held_bytes
        return max(min(self.buffer_bytes // held, MOST_RANGES // part.sieve.requests), 1)

    @cached_property
    def chunks(self) -> int:
        """Chunks that are touched."""
        return sum(kind.count for kind, _ in self.kinds)

    @property
    def requests(self) -> int:
        """Ranges that are asked for."""
        return self._sum("requests")

    @property
    def asked_bytes(self) -> int:
        """Bytes that are asked for."""
        return self._sum("asked_bytes")

    @property
    def useful_bytes(self) -> int:
        """Bytes of the elements that are wanted."""
        return math.prod(lengths(self.axes)) * self.stored.itemsize

    def _sum(self, name: str) -> int:
        return sum(kind.count * getattr(part.sieve, name) for kind, parts in self.kinds for part in parts)

    @cached_property
    def held_bytes(self) -> int:
        """Bytes that are held beside the result, at most."""
        held = sorted((each.held_bytes for each in self.rounds()), reverse=True)
        return sum(held[:IN_FLIGHT])

    @property
    def seconds(self) -> float:
        """Predicted seconds of one processor."""
        costs, stored = self.costs, self.stored
        request = costs.range_seconds if stored.local else costs.store_request_seconds
        return (
            self.requests * request
            + self.chunks * costs.piece_seconds
            + self.asked_bytes / costs.copy_bandwidth
            + self.asked_bytes / (costs.remote_bandwidth if stored.remote else math.inf)
        )


class Part(NamedTuple):
    """A part of what is taken of a chunk."""

    sieve: Sieve
    """What is asked for."""
    at: tuple[int, ...]
    """Its first element among all that are taken of the chunk, along each axis."""
    straight: bool
    """Whether ranges are read to their places in the result."""


class Kind:
    """Chunks that are cut alike along every axis.

    Parameters
    ----------
    cuts : tuple of Cut
        One an axis.
    """

    def __init__(self, cuts: tuple[Cut, ...]) -> None:
        self.cuts = cuts
        self.counts = tuple(len(cut.chunks) for cut in cuts)
        self.count = math.prod(self.counts)

    def box(
        self, first: tuple[int, ...], last: tuple[int, ...], at: tuple[int, ...], sieve: Sieve, straight: bool
    ) -> tuple[tuple[range, ...], Sieve, tuple[int, ...], bool]:
        """A box of them as a round."""
        chunks = tuple(cut.chunks[low:high] for cut, low, high in zip(self.cuts, first, last, strict=True))
        places = tuple(
            cut.first + low * len(cut.inside) + here for cut, low, here in zip(self.cuts, first, at, strict=True)
        )
        return chunks, sieve, places, straight
