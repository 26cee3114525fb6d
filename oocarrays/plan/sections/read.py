"""Plan of reading a section of a stored array: the touched chunks, their byte ranges, and the batches.

    chunks     ┌─ cut ─┐┌─ cut ─┐┌─ another ─┐
    sieve      one for all that are cut alike
    batch      as many chunks as a buffer holds, or a larger one in parts, a round each

Thakur 1995, section 5.5.1: no. of requests = ⌈(u₂ − l₂ + 1) / n⌉ where n columns fit in memory.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, product

from oocarrays.errors import in_number
from oocarrays.mapping.along import Cut, cuts
from oocarrays.mapping.grid import Index, Stored, boxes, ceil_div, turned
from oocarrays.mapping.selection import Axes, Taken, lengths
from oocarrays.plan.cost import Traffic, Work, seconds
from oocarrays.plan.machine import Costs
from oocarrays.plan.plan import table
from oocarrays.plan.sections.sieve import (
    BUFFER_BYTES,
    IN_FLIGHT,
    RANGE_BYTES,
    Batch,
    Part,
    Sieve,
    gap_bytes,
    held_by_parts,
)

REQUESTS = 16
"""Number of concurrent requests of a rank, in stores other than local files."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SectionPlan:
    """Plan of reading a section of an array."""

    stored: Stored
    axes: Axes
    gap: float = 0.0
    """Maximum gap in bytes that is read."""
    buffer_bytes: int = BUFFER_BYTES
    """Bytes of each of up to `IN_FLIGHT` buffers."""
    packed: bool = True
    """Whether the result is contiguous in the order of stored elements and receives reads of local files directly."""
    costs: Costs = field(default_factory=Costs)

    @classmethod
    def of(
        cls, stored: Stored, axes: Axes, costs: Costs, *, packed: bool = True, requests: int = REQUESTS, most: int = 0
    ) -> SectionPlan:
        """Return the plan that reads gaps faster to read than to skip, in buffers of ``most`` bytes."""
        gap, packed = gap_bytes("auto", stored, costs, requests), packed and stored.local
        return cls(stored=stored, axes=axes, gap=gap, buffer_bytes=most or BUFFER_BYTES, packed=packed, costs=costs)

    @cached_property
    def lying(self) -> tuple[Stored, Axes]:
        """Array and requested indices with axes in storage order, as batches have them."""
        return self.stored.lying, turned(self.axes, self.stored.order)

    @cached_property
    def kinds(self) -> list[Kind]:
        if not all(map(len, self.axes)):
            return []
        stored, axes = self.lying
        return [Kind(self, each) for each in product(*map(cuts, axes, stored.grid.chunks))]

    def batches(self) -> Iterator[Batch]:
        for kind in self.kinds:
            yield from kind.batches()

    @cached_property
    def chunks(self) -> int:
        return sum(kind.count for kind in self.kinds)

    @cached_property
    def requests(self) -> int:
        """Number of requested ranges; of chunks, if they are coded."""
        if self.stored.coded:
            return self.chunks
        return sum(kind.count * times * part.sieve.requests for kind in self.kinds for part, times in kind.alike)

    @cached_property
    def asked_bytes(self) -> int:
        """Requested stored bytes; an estimate if chunks are coded."""
        if self.stored.coded:
            return int(self.decoded_bytes * self.costs.stored_ratio(self.stored))
        return sum(kind.count * times * part.sieve.asked_bytes for kind in self.kinds for part, times in kind.alike)

    @property
    def decoded_bytes(self) -> int:
        return self.chunks * self.stored.chunk_bytes if self.stored.coded else 0

    @cached_property
    def coded_bytes(self) -> int:
        """Maximum coded bytes of local files that a batch reads at one time; larger chunks are mapped."""
        return min(2 * self.decoded_at_once, self.buffer_bytes)

    @cached_property
    def decoded_at_once(self) -> int:
        return self.stored.chunk_bytes * max((min(kind.count, kind.at_once) for kind in self.kinds), default=0)

    @property
    def useful_bytes(self) -> int:
        return math.prod(lengths(self.axes)) * self.stored.itemsize

    @cached_property
    def held_bytes(self) -> int:
        """Peak bytes beside the result, with responses of a store under way; a core decodes one chunk at a time."""
        stored = self.stored
        under_way = 0 if stored.local or not self.chunks else max(IN_FLIGHT * self.buffer_bytes, self.longest_bytes)
        if stored.coded and stored.local:
            threads = min(self.chunks, self.costs.cores)
            return threads * (self.decoded_at_once + stored.decode_workspace) + IN_FLIGHT * self.coded_bytes
        if stored.coded:
            return min(self.chunks, 1) * (stored.chunk_bytes + stored.decode_workspace) + under_way
        most = IN_FLIGHT if stored.local else 1
        return sum(heapq.nlargest(most, (held for kind in self.kinds for held in kind.most_held(most)))) + under_way

    @cached_property
    def longest_bytes(self) -> int:
        if self.stored.coded:
            return self.stored.chunk_bytes
        return max((int(part.sieve.lengths.max()) for kind in self.kinds for part, _ in kind.alike), default=1)

    @property
    def most_ranges(self) -> int:
        """Maximum number of ranges of one round: larger buffers allow more of them."""
        return max(2048, self.buffer_bytes // (4 * RANGE_BYTES))

    @property
    def scattered(self) -> bool:
        """Whether ranges are shorter on average than the system's read-ahead."""
        return self.asked_bytes < 2**17 * self.requests  # of Linux, unless disabled

    def under_way(self, requests: int) -> int:
        """Return the number of concurrent requests to a store: up to the size of the buffers, at least one."""
        return max(min(requests, IN_FLIGHT * self.buffer_bytes // self.longest_bytes), 1)

    @property
    def seconds(self) -> float:
        """Predicted seconds of one processor, and of the network if the store is remote."""
        asked = self.asked_bytes
        work = Work(
            ranges=self.requests, pieces=self.chunks, copied=asked, decoded=self.decoded_bytes, read=asked
        )  # fmt: skip
        took = seconds(work, self.costs, self.stored)
        return float(sum(took) if self.stored.remote else took.processor)

    @property
    def traffic(self) -> Traffic:
        """Requests and bytes, without pieces and copies."""
        return Traffic(read_requests=self.requests, read_bytes=self.asked_bytes, decoded_bytes=self.decoded_bytes)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the requests for each kind of chunk, below a row of names."""
        names = ("chunks", "way", "requests", "bytes asked", "bytes useful")
        return [names, *(kind.row() for kind in self.kinds)]

    def explain(self) -> str:
        asked = f"{self.requests} requests for {self.asked_bytes} bytes, of which {self.useful_bytes} are wanted"
        return f"{in_number(f'{asked}; {self.held_bytes} bytes are held')}\n{table(self.rows())}"


class Kind:
    """Chunks that are cut alike along every axis, with their byte ranges."""

    def __init__(self, plan: SectionPlan, cuts: tuple[Cut[Taken], ...]) -> None:
        self.plan = plan
        self.stored, self.taken = plan.lying
        self.cuts = cuts
        self.inside = tuple(cut.inside for cut in cuts)
        self.counts = tuple(len(cut.chunks) for cut in cuts)
        self.count = math.prod(self.counts)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Elements to read of each chunk, in parts that fit a buffer; coded chunks are whole."""
        stored = self.stored
        if stored.coded:
            whole = Sieve.whole(self.inside, stored.grid.chunks, stored.itemsize)
            return (self._placed(whole, self.inside, (0,) * len(self.inside)),)
        if len(self.alike) == 1 and self.alike[0][1] == 1:
            return (self.alike[0][0],)
        return tuple(part for part, _ in self._divided(self.inside, (0,) * len(self.inside)))

    @cached_property
    def alike(self) -> tuple[tuple[Part, int], ...]:
        """One representative of equal parts, and their number."""
        if self.stored.coded:
            return tuple((part, 1) for part in self.parts)
        return tuple(self._divided(self.inside, (0,) * len(self.inside), alike=True))

    def _divided(self, inside: Axes, at: Index, times: int = 1, *, alike: bool = False) -> Iterator[tuple[Part, int]]:
        """Yield the parts of a chunk's share that fit a buffer, with how often each occurs: once, unless ``alike``."""
        long = next((axis for axis, taken in enumerate(inside) if len(taken) > 1), None)
        part = self._part(inside, fits=long is not None)
        if part is not None:
            yield part._replace(at=at), times
            return
        assert long is not None, "what need not fit is a part"
        taken, most = inside[long], self._most(inside, long)
        whole = len(taken) // most if alike and isinstance(taken, range) else 1  # parts of a list may all differ
        for low, many in ((0, whole), *((low, 1) for low in range(whole * most, len(taken), most))):
            less = (*inside[:long], taken[low : low + most], *inside[long + 1 :])
            yield from self._divided(less, (*at[:long], at[long] + low, *at[long + 1 :]), times * many, alike=alike)

    def _most(self, inside: Axes, axis: int) -> int:
        """Return the number of indices along an axis that fit a buffer, at least 1: about its share of their bytes."""
        low, high, stored = 1, len(inside[axis]), self.stored
        share = self.plan.most_ranges / Sieve.count(inside, stored.grid.chunks, stored.itemsize, self.plan.gap)
        if share >= 1 and (part := self._part(inside)):
            share = min(self.plan.buffer_bytes / max(part.buffer_bytes, 1), share)
        probes = iter(range(int(share * high), high))
        while high - low > 1:
            middle = next(probes, 0) if high - low > 2 else 0
            middle = middle if low < middle < high else (low + high) // 2
            less = (*inside[:axis], inside[axis][:middle], *inside[axis + 1 :])
            low, high = (middle, high) if self._part(less, fits=True) else (low, middle)
        return low

    def _placed(self, sieve: Sieve, inside: Axes, at: tuple[int, ...]) -> Part:
        return Part(sieve, at, self.plan.packed and sieve.is_straight(inside, lengths(self.taken)))

    def _part(self, inside: Axes, *, fits: bool = False) -> Part | None:
        """Return a chunk's share as one part, or None if it must fit a buffer and does not."""
        plan, stored = self.plan, self.stored
        most = plan.most_ranges if fits else math.inf
        sieve = Sieve.within(inside, stored.grid.chunks, stored.itemsize, plan.gap, most)
        part = None if sieve is None else self._placed(sieve, inside, (0,) * len(inside))
        return part if part is not None and (part.buffer_bytes <= plan.buffer_bytes or not fits) else None

    def batches(self) -> Iterator[Batch]:
        for first, last in self._boxes():
            chunks = tuple(cut.chunks[i:j] for cut, i, j in zip(self.cuts, first, last, strict=True))
            places = tuple(cut.first + i * len(cut.inside) for cut, i in zip(self.cuts, first, strict=True))
            yield Batch(chunks, places, self.parts)

    def _boxes(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        each = self.at_once
        for low in range(0, self.count, each):
            yield from boxes(range(low, min(low + each, self.count)), self.counts)

    def most_held(self, batches: int) -> list[int]:
        """Return the bytes of the largest batches; the first is the largest, and of many, all are taken as equal."""
        listed = 2**10
        sizes = [math.prod(b - a for a, b in zip(*box, strict=True)) for box in islice(self._boxes(), listed + 1)]
        sizes = sizes[:1] * batches if len(sizes) > listed else heapq.nlargest(batches, sizes)
        return [size * held_by_parts([part for part, _ in self.alike]) for size in sizes]

    @cached_property
    def at_once(self) -> int:
        """Maximum number of chunks of one batch, of about 64 files open at a time.

        Coded chunks are spread over some batches, for several cores; one decodes 256 KiB before another could start.
        """
        stored, sieve = self.stored, self.alike[0][0].sieve
        if sum(times for _, times in self.alike) > 1:
            return 1
        most = min(self.plan.buffer_bytes // sieve.held_bytes, self.plan.most_ranges // sieve.requests)
        if stored.coded:
            most = min(most, max(ceil_div(self.count, IN_FLIGHT), 2**18 // stored.chunk_bytes))
        in_a_file = max(self.count // stored.shards, 1) if stored.shards else 1
        return max(min(most, 64 * in_a_file), 1)

    def row(self) -> tuple[str, ...]:
        stored, useful = self.stored, math.prod(lengths(self.inside)) * self.stored.itemsize
        if stored.coded:
            asked = int(stored.chunk_bytes * self.plan.costs.stored_ratio(stored))
            return _texts(self.count, "decoded", self.count, self.count * asked, self.count * useful)
        requests = sum(part.sieve.requests * times for part, times in self.alike)
        asked = sum(part.sieve.asked_bytes * times for part, times in self.alike)
        way = "sieve" if requests == sum(times for _, times in self.alike) else "ranges"
        way = "whole" if useful == stored.chunk_bytes else "direct" if asked == useful else way
        return _texts(self.count, way, self.count * requests, self.count * asked, self.count * useful)


def _texts(*row: object) -> tuple[str, ...]:
    return tuple(map(str, row))
