"""One pass over an array: regions of whole target chunks, built by ranks, straight or in two phases.

    independent   rank 0   ░░ read the input of region 0 ──► write ░░ region 2 …
                  rank 1   ▒▒ read the input of region 1 ──► write ▒▒ region 3 …

    two-phase     rank 0   read ──┐ step 1 ┌──► ░ its share ──► write        the ranks' shares together
                  rank 1   read ──┘        └──► ▒ of a partition ──► write    are one partition

    assembled     rank 0   read box 0 ──► a piece to its place in every unfinished chunk ──► read box 2 …
                  rank 1   read box 1 ──► a piece to its place in every unfinished chunk ──► read box 3 …

In the second, ranks read chunks in stored order (conforming), regardless of the receiver, a slab of them a round. The
exchange then sends every rank the input of its own target chunks. Between threads, a slab is read in place; between
processes, read data is packed at once, a message for every rank (`messages`). In the last, units are boxes of source
chunks: data read stays in memory only until it is written in its place. del Rosario, Bordawekar, Choudhary 1993,
section 4.1; Thakur 1995, section 5.3.2 (global array file, partitioned in-core model).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from oocarrays.limits import COPIED_BYTES
from oocarrays.mapping.along import Cut, range_cuts
from oocarrays.mapping.grid import ChunkGrid, Stored, boxes, ceil_div, even_part, unravel
from oocarrays.mapping.section import Section
from oocarrays.plan.cost import Phases, Traffic
from oocarrays.plan.exchange.ordering import CREDIT, load_of
from oocarrays.plan.exchange.schedule import Schedule, complete_exchange
from oocarrays.plan.plan import MIB, PROCESS_BYTES, Holding, Memory, Resources, Value

BASE_BYTES = 24 * MIB
"""Fixed bytes of a run on workers, or with stores other than files, in addition to its buffers; libraries included."""
TILE_BYTES = MIB
"""Bytes of a tile: it stays in a core's cache between the read and the copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Single pass to plan."""

    source: Stored
    target: Stored
    resources: Resources
    schedule: Schedule
    any_order: bool = False
    """Whether another schedule may be chosen if its predicted time is lower."""
    remote_scratch: bool = False
    """Whether scratch arrays are in a network store."""

    @property
    def ranks(self) -> int:
        return self.schedule.ranks

    @property
    def under_way(self) -> int:
        """Maximum messages of a rank besides its region: being consumed, incoming and forwarded ones."""
        load = load_of(self.schedule)
        if not self.schedule.forwards:
            return 2 if self.resources.synchronous else 1 + CREDIT
        return load.held if self.resources.synchronous else load.held_at_most

    @property
    def neighbours(self) -> int:
        return self.resources.ranks_of_a_process(self.ranks)

    def requests_up_to(self, streams: int = 1) -> list[int]:
        """Return candidate numbers of concurrent requests of a rank with several streams of them, at most 128."""
        most = max(self.resources.requests // (self.neighbours * streams), 1)
        return [n for n in (1, 4, 8, 16, 32, 64) if n < most] + [min(most, 128)]

    @property
    def base_bytes(self) -> int:
        """Fixed bytes of a process, without its ranks' buffers.

        A rank that is a thread and accesses files takes half a MiB, if the memory of its codecs is known and counted:
        total use was 0.4 to 0.9 MiB.
        """
        files = self.source.local and self.target.local and not self.remote_scratch
        known = {self.source.codec, self.target.codec} <= {None, "zstd", "blosc", "gzip", "zlib"}
        if self.resources.on_workers or not (files and known):
            return BASE_BYTES
        return min(PROCESS_BYTES + self.ranks * MIB // 2, BASE_BYTES)

    @property
    def coded_bytes(self) -> int:
        """Bytes of a stored chunk that a rank holds while decoding it; a worker's limit includes cached pages."""
        if not self.source.coded:
            return 0
        return self.source.chunk_bytes if self.resources.on_workers else min(self.source.chunk_bytes, COPIED_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Candidate before counting."""

    method: Method
    access: Access
    region: tuple[int, ...] = ()
    split: int = 0
    slab: int = 1
    slabs: int = 1
    depth: int = 1
    write_behind: bool = False
    requests: int = 1
    workspace: tuple[int, int] = (0, 0)
    """Bytes of chunks that a rank keeps, and of additional buffers for reading and writing."""


def some(axes: Sequence[int]) -> tuple[int, ...]:
    """Return all axes, or an even selection of four including the first and last."""
    return tuple(axes) if len(axes) <= 4 else tuple(axes[place * (len(axes) - 1) // 3] for place in range(4))


Method = Literal["independent", "two-phase", "assembled"]
ALONE: tuple[Method, ...] = ("independent", "assembled")
"""Methods in which ranks do not exchange data."""
Access = Literal["ranges", "sieved", "chunks"]
ChunkBox = tuple[tuple[int, ...], tuple[int, ...]]
"""First chunk index and one past the last, in each axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass(Holding):
    """Frozen plan of rewriting one array as another: its ranks, units and exchange."""

    source: Stored
    target: Stored
    method: Method = field(metadata={"before": {"kept": "two-phase"}})
    """``"independent"``: each rank reads for itself. ``"two-phase"``: ranks read conforming chunks and exchange.
    ``"assembled"``: each rank reads some source chunks and writes them to their places in all target chunks.
    """
    access: Access = field(metadata={"before": {"mapped": "ranges"}})
    """``"ranges"``: byte ranges of chunks. ``"sieved"``: one byte range of each chunk, from the first requested
    element to the last. ``"chunks"``: whole chunks.
    """
    ranks: int
    region: tuple[int, ...]
    """Maximum number of target chunks in each axis that one rank holds at a time; source chunks (assembled)."""
    split: int
    """Axis along which ranks share a partition's target chunks (two-phase)."""
    slab: int
    """Source chunks that a rank reads in one round (two-phase)."""
    slabs: int
    """Maximum number of slabs of a rank at one time (two-phase)."""
    depth: int
    """Maximum number of partitions with a region in a rank's memory at one time (two-phase)."""
    tile: tuple[int, ...]
    """Elements in each axis of one tile, the unit of reading before copying (ranges), or of layout before writing
    (assembled).
    """
    batch: int
    """Regions of one task (independent, assembled)."""
    packed: bool
    """Whether read data is packed at once, a message for every rank: between worker processes (two-phase)."""
    synchronous: bool
    """Whether a step waits until the previous one has been received and consumed (packed)."""
    outbox_bytes: int
    """Maximum bytes of all messages that a rank packs for a partition (packed)."""
    message_bytes: int
    """Maximum bytes of a message (packed)."""
    requests: int
    """Maximum number of concurrent read requests of a rank, and of concurrent write requests (remote)."""
    write_behind: bool
    """Whether a coded chunk is written while the next is encoded."""
    read_ahead: bool
    """Whether the operating system is asked to fetch the next chunks whole."""
    traffic: Traffic
    memory: Memory = field(compare=False, metadata={"json": "peak_bytes"})
    """Peak memory of a process; a journal stores its total bytes."""
    seconds: float
    phases: Phases
    scheduler_seconds: float = field(default=0.0, metadata={"gained": True})
    """Seconds that the scheduler of a cluster is busy with its tasks; 0 if ranks are threads."""
    exchange: Schedule | None = field(default=None, metadata={"gained": True})
    """Schedule of the exchange; None without exchange, or in older journals."""

    def __repr__(self) -> str:
        source, target = self.source.grid, self.target.grid
        what = f"{source.shape} in chunks {source.chunks} → {target.chunks}"
        order = f", schedule {self.exchange.name.lower()}" if self.exchange else ""
        return f"<Pass {self.method}, {what}, {self.units} units of {self.unit} chunks, ranks {self.ranks}{order}>"

    def fact(self) -> tuple[Value, ...]:
        unit = {"independent": "regions", "assembled": "boxes"}.get(self.method, "partitions")
        side = "source" if self.assembled else "target"
        access = {"ranges": "byte ranges", "sieved": "one byte range a chunk", "chunks": "whole chunks"}[self.access]
        return (
            f"{self.method}: {self.units} {unit} of ", self.unit, f" {side} chunks (", self.cut.chunks,
            f" each), {access}, {self.ranks} ranks",
            "" if self.alone else f", {self.schedule.name}",
            f", {self.traffic.placed_runs} runs in place" if self.assembled else "",
            f", {self.requests} requests a rank under way" if self.requests > 1 else "",
        )  # fmt: skip

    @property
    def assembled(self) -> bool:
        return self.method == "assembled"

    @property
    def alone(self) -> bool:
        return self.method in ALONE

    @property
    def cut(self) -> ChunkGrid:
        """Grid of the chunks in units: the target's, or the source's (assembled)."""
        return self.source.grid if self.assembled else self.target.grid

    @property
    def unit(self) -> tuple[int, ...]:
        """Chunks in each axis of one unit: a region, or a partition of ``ranks`` regions side by side."""
        chunks = unit_chunks(self.method, self.region, self.split, self.ranks)
        return tuple(map(min, chunks, self.cut.counts))

    @property
    def unit_counts(self) -> tuple[int, ...]:
        return tuple(map(ceil_div, self.cut.counts, self.unit))

    @property
    def units(self) -> int:
        return math.prod(self.unit_counts)

    @property
    def schedule(self) -> Schedule:
        return self.exchange or complete_exchange(self.ranks)

    def chunk_box(self, unit: int) -> ChunkBox:
        """Return the target chunks of a unit; source chunks (assembled)."""
        index = unravel(unit, self.unit_counts)
        first = tuple(i * n for i, n in zip(index, self.unit, strict=True))
        last = tuple(min(f + n, c) for f, n, c in zip(first, self.unit, self.cut.counts, strict=True))
        return first, last

    def share(self, unit: int, rank: int) -> ChunkBox | None:
        """Return the target chunks of a partition that ``rank`` builds and writes, or None if it has none."""
        first, last = self.chunk_box(unit)
        if not first:
            return (first, last) if rank == 0 else None
        start = first[self.split]
        part = even_part(last[self.split] - start, self.ranks, rank)
        if not part:
            return None
        return _replace(first, self.split, start + part.start), _replace(last, self.split, start + part.stop)

    def section(self, box: ChunkBox) -> Section:
        """Return the elements in a box of target chunks; of source chunks (assembled)."""
        return self.cut.block(*box)

    def place(self, unit: int, index: tuple[int, ...]) -> Section | None:
        """Return the section of a target chunk that a unit writes, padding included; None if none (assembled)."""
        axes = zip(self.places_along(unit), index, strict=True)
        inside = [next((cut.inside for cut in axis if i in cut.chunks), range(0)) for axis, i in axes]
        return Section(tuple(a.start for a in inside), tuple(a.stop for a in inside)) if all(inside) else None

    def places_along(self, unit: int) -> list[list[Cut[range]]]:
        """Return the places along each axis, those with equal parts of a chunk together."""
        here, grid = self.section(self.chunk_box(unit)), self.target.grid
        ends = (
            ceil_div(n, c) * c if u == n else u for u, n, c in zip(here.upper, grid.shape, grid.chunks, strict=True)
        )
        return [list(range_cuts(range(l, u), c)) for l, u, c in zip(here.lower, ends, grid.chunks, strict=True)]

    @property
    def writers(self) -> tuple[tuple[int, ...], ...]:
        """For each axis, the number of units that write to the target chunks at each index along it (assembled)."""
        return tuple(
            tuple(ceil_div(min((i + 1) * c, n), b * s) - i * c // (b * s) for i in range(ceil_div(n, c)))
            for n, c, b, s in zip(
                self.target.grid.shape, self.target.grid.chunks, self.unit, self.source.grid.chunks, strict=True
            )
        )

    @property
    def writes(self) -> int:
        """Number of writes to target chunks, counting a chunk once for each unit that writes to it."""
        return self.traffic.placed_pieces or self.target.grid.count

    def rounds(self, unit: int) -> int:
        return ceil_div(math.prod(map(len, self._touched(unit))), self.ranks * self.slab)

    def _touched(self, unit: int) -> tuple[range, ...]:
        return self.source.grid.touched(self.section(self.chunk_box(unit)))

    def reads(self, unit: int, turn: int, rank: int) -> Iterator[tuple[int, ...]]:
        for first, last in self.read_boxes(unit, turn, rank):
            yield from product(*map(range, first, last))

    def read_boxes(self, unit: int, turn: int, rank: int) -> Iterator[ChunkBox]:
        """Yield the source chunks that ``rank`` reads in a round, as boxes in the order of their chunks."""
        touched = self._touched(unit)
        counts = tuple(map(len, touched))
        start = turn * self.ranks * self.slab
        part = even_part(min(self.ranks * self.slab, math.prod(counts) - start), self.ranks, rank)
        for first, last in boxes(range(start + part.start, start + part.stop), counts):
            yield (
                tuple(axis.start + i for axis, i in zip(touched, first, strict=True)),
                tuple(axis.start + i for axis, i in zip(touched, last, strict=True)),
            )

    def reads_after(self, unit: int, turn: int, rank: int) -> Iterator[tuple[int, ...]]:
        if turn + 1 < self.rounds(unit):
            yield from self.reads(unit, turn + 1, rank)
        elif unit + 1 < self.units:
            yield from self.reads(unit + 1, 0, rank)

    def parts(self, number: int) -> Iterator[tuple[int, int, int]]:
        """Yield the parts that are recorded once done: the pass ``number``, a batch or partition, and a rank."""
        for rank in range(self.ranks):
            if self.alone:
                yield from ((number, batch, rank) for batch in self.batches(rank))
            else:
                yield from ((number, unit, rank) for unit in range(self.units) if self.share(unit, rank))

    def batches(self, rank: int) -> range:
        return range(ceil_div(len(range(rank, self.units, self.ranks)), self.batch))

    def batch_units(self, batch: int, rank: int) -> range:
        return range(rank, self.units, self.ranks)[batch * self.batch : (batch + 1) * self.batch]

    def sections(self, first: int, rank: int) -> list[Section]:
        boxes = map(self.chunk_box, self.batch_units(first, rank)) if self.assembled else self.boxes(first, rank)
        return list(map(self.section, boxes))

    def written(self, first: int, rank: int) -> Iterator[tuple[int, ...]]:
        """Yield the target chunks of a part; those of each of its units (assembled)."""
        for box in self.boxes(first, rank):
            yield from product(*map(range, *box))

    def boxes(self, first: int, rank: int) -> list[ChunkBox]:
        if self.assembled:
            touched = [self.target.grid.touched(section) for section in self.sections(first, rank)]
            return [(tuple(axis.start for axis in box), tuple(axis.stop for axis in box)) for box in touched]
        if self.method == "independent":
            return [self.chunk_box(unit) for unit in self.batch_units(first, rank)]
        share = self.share(first, rank)
        return [share] if share else []


def unit_chunks(method: Method, region: tuple[int, ...], split: int, ranks: int) -> tuple[int, ...]:
    if method in ALONE or not region:
        return region
    return _replace(region, split, region[split] * ranks)


def _replace(values: tuple[int, ...], axis: int, value: int) -> tuple[int, ...]:
    return (*values[:axis], value, *values[axis + 1 :])
