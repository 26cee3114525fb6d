"""One pass over an array: regions of whole target chunks, built by ranks, straight or in two phases.

    independent   rank 0   ░░ read what region 0 needs ──► write ░░ region 2 …
                  rank 1   ▒▒ read what region 1 needs ──► write ▒▒ region 3 …

    two-phase     rank 0   read ──┐ step 1 ┌──► ░ its share ──► write        the ranks' shares together
                  rank 1   read ──┘        └──► ▒ of a partition ──► write    are one partition

    assembled     rank 0   read box 0 ──► a piece to its place in every unfinished chunk ──► read box 2 …
                  rank 1   read box 1 ──► a piece to its place in every unfinished chunk ──► read box 3 …

In the second, a rank reads chunks as they are stored (conforming), whoever wants them, a slab of them a round; the
exchange then gives every rank what its own target chunks need. Between threads a slab is taken from in place; between
processes what is read is packed at once, a message for every rank (`messages`). In the last, units are boxes of source
chunks: what is read lies in memory no longer than until it is written where it belongs. del Rosario, Bordawekar,
Choudhary 1993, section 4.1; Thakur 1995, section 5.3.2 (global array file, partitioned in-core model).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from oocarrays.mapping.grid import COPIED_BYTES, ChunkGrid, Stored, boxes, ceil_div, unravel
from oocarrays.mapping.layouts.distribution import GenBlock
from oocarrays.mapping.overlap import axis_overlap
from oocarrays.mapping.section import Section
from oocarrays.plan.cost import Phases, Traffic
from oocarrays.plan.exchange.ordering import CREDIT, load_of
from oocarrays.plan.exchange.schedule import Schedule, complete_exchange
from oocarrays.plan.memory import PROCESS_BYTES, Holding, Memory, Resources
from oocarrays.plan.plan import Value

MIB = 2**20
BASE_BYTES = 24 * MIB
"""What a run holds beside its buffers on workers, or to and from other stores than files: what libraries keep, too."""
THREAD_BYTES = MIB // 2
"""What each rank holds so that is a thread and reads and writes files, beside `PROCESS_BYTES`. 0.4 to 0.9 MiB were held
in all."""
COUNTED = {"zstd", "blosc", "gzip", "zlib"}
"""Codecs of which it is known what they take, and counted."""
TILE_BYTES = MIB
"""A tile stays in a core's cache between the read and the copy."""
REQUESTS = (1, 4, 8, 16, 32, 64, 128)
"""Requests that a rank may have under way, worth a look."""
MOST_AXES = 4
"""Axes that are looked at, at most, where there are many: from which regions are grown, along which they are shared."""
TRAVEL_COPIES = 2
"""A library holds a message twice while it joins the parts that came, or copies what goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One pass to be planned."""

    source: Stored
    target: Stored
    resources: Resources
    """Memory, processes and requests that it may use."""
    schedule: Schedule
    """The order in which ranks exchange."""
    any_order: bool = False
    """Whether another order may be taken, where it is predicted to take less time."""
    remote_scratch: bool = False
    """Whether scratch arrays are in a store that is reached so."""

    @property
    def ranks(self) -> int:
        """Logical processors."""
        return self.schedule.ranks

    @property
    def whole(self) -> bool:
        """Whether one task a rank holds the whole exchange of a round: where ranks are many, or take what has come."""
        steps = self.ranks < self.resources.steps_below and self.resources.synchronous
        return self.resources.on_workers and not steps

    @property
    def under_way(self) -> int:
        """Parts that a rank holds at one time beside its region: those it takes, those that come, those it carries."""
        load = load_of(self.schedule)
        if self.whole and not self.schedule.forwards:
            return 2 if self.resources.synchronous else 1 + CREDIT
        return load.held if self.resources.synchronous else load.held_at_most

    @property
    def neighbours(self) -> int:
        """Ranks in one process."""
        return self.resources.ranks_of_a_process(self.ranks)

    @property
    def base_bytes(self) -> int:
        """Bytes that a process holds beside all that its ranks read, make and write."""
        files = self.source.local and self.target.local and not self.remote_scratch
        known = all(stored.codec is None or stored.codec in COUNTED for stored in (self.source, self.target))
        if self.resources.on_workers or not (files and known):
            return BASE_BYTES
        return min(PROCESS_BYTES + self.ranks * THREAD_BYTES, BASE_BYTES)

    @property
    def coded_bytes(self) -> int:
        """Bytes of a stored chunk that a rank holds while it decodes it; a worker's limit counts pages, too."""
        if not self.source.coded:
            return 0
        return self.source.chunk_bytes if self.resources.on_workers else min(self.source.chunk_bytes, COPIED_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A candidate, before it is counted."""

    method: Method
    access: Access
    region: tuple[int, ...]
    split: int
    slab: int
    slabs: int
    depth: int
    behind: bool
    requests: int
    workspace: tuple[int, int] = (0, 0)
    """Bytes of chunks that a rank keeps, and of what reading and writing take beside them."""


def some(axes: Sequence[int]) -> tuple[int, ...]:
    """All axes, or where they are many some of them, evenly, the first and the last among them."""
    if len(axes) <= MOST_AXES:
        return tuple(axes)
    return tuple(axes[place * (len(axes) - 1) // (MOST_AXES - 1)] for place in range(MOST_AXES))


Method = Literal["independent", "two-phase", "assembled"]
ALONE: tuple[Method, ...] = ("independent", "assembled")
"""Each rank works for itself."""
Access = Literal["ranges", "sieved", "chunks"]
ACCESS_WORDS = {"ranges": "byte ranges", "sieved": "one byte range a chunk", "chunks": "whole chunks"}
Part = tuple[tuple[int, ...], Section]
"""A chunk index, and the part of that chunk that is meant, as elements of the array."""
ChunkBox = tuple[tuple[int, ...], tuple[int, ...]]
"""First chunk index and one past the last, in each axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass(Holding):
    """How one array is rewritten as another, by whom, in which pieces."""

    source: Stored
    """What is read."""
    target: Stored
    """What is written."""
    method: Method = field(metadata={"before": {"kept": "two-phase"}})
    """``"independent"``: each rank reads for itself. ``"two-phase"``: ranks read conforming chunks and exchange.
    ``"assembled"``: each rank writes what it has read of some source chunks to its place in all target chunks."""
    access: Access = field(metadata={"before": {"mapped": "ranges"}})
    """``"ranges"``: byte ranges of chunks. ``"sieved"``: one byte range of each chunk, from the first element that is
    wanted to the last. ``"chunks"``: whole chunks."""
    ranks: int
    """Logical processors."""
    region: tuple[int, ...]
    """Target chunks in each axis that one rank holds at a time, at most; source chunks (assembled)."""
    split: int
    """The axis along which a partition's target chunks are shared out (two-phase)."""
    slab: int
    """Source chunks that a rank reads in one round (two-phase)."""
    slabs: int
    """Slabs that a rank may hold at one time (two-phase)."""
    depth: int
    """Partitions of which a rank may hold its region at one time (two-phase)."""
    tile: tuple[int, ...]
    """Elements in each axis of one tile: what is read before it is copied (ranges), or laid out before it is written
    (assembled)."""
    batch: int
    """Regions that one task works through (independent, assembled)."""
    packed: bool
    """Whether what is read is packed at once, a message for every rank: between worker processes (two-phase)."""
    synchronous: bool
    """Whether a step waits until the one before has been received and taken (packed)."""
    outbox_bytes: int
    """Bytes of all messages that a rank packs for a partition, at most (packed)."""
    message_bytes: int
    """Bytes of the longest message, at most (packed)."""
    requests: int
    """Requests that a rank has under way at one time for what it reads, and for what it writes, at most (remote)."""
    write_behind: bool
    """Whether a coded chunk is written while the next is encoded."""
    read_ahead: bool
    """Whether the operating system is asked to fetch the next chunks whole."""
    traffic: Traffic
    """What moves."""
    memory: Memory = field(compare=False, metadata={"json": "peak_bytes"})
    """Held at one time, at most, by all ranks together; a journal has its bytes in all."""
    seconds: float
    """Predicted."""
    phases: Phases
    """Predicted, of all ranks together."""
    whole: bool = field(default=False, metadata={"gained": True})
    """Whether one task a rank holds the whole exchange of a partition, and no step is a task of its own (packed)."""
    scheduler_seconds: float = field(default=0.0, metadata={"gained": True})
    """Seconds that the scheduler of a cluster is busy with its tasks; none where ranks are threads."""
    exchange: Schedule | None = field(default=None, metadata={"gained": True})
    """The order of the exchange; None where there is none, or where a journal of before names none."""

    def __repr__(self) -> str:
        source, target = self.source.grid, self.target.grid
        what = f"{source.shape} in chunks {source.chunks} → {target.chunks}"
        order = f", schedule {self.exchange.name.lower()}" if self.exchange else ""
        return f"<Pass {self.method}, {what}, {self.units} units of {self.unit} chunks, ranks {self.ranks}{order}>"

    def fact(self) -> tuple[Value, ...]:
        """Return the parts of a row that describes the pass."""
        unit = {"independent": "regions", "assembled": "boxes"}.get(self.method, "partitions")
        side = "source" if self.assembled else "target"
        return (
            f"{self.method}: {self.units} {unit} of ", self.unit, f" {side} chunks (", self.cut.chunks,
            f" each), {ACCESS_WORDS[self.access]}, {self.ranks} ranks",
            "" if self.alone else f", {self.schedule.name}",
            f", {self.traffic.placed_runs} runs in place" if self.assembled else "",
            f", {self.requests} requests a rank under way" if self.requests > 1 else "",
        )  # fmt: skip

    @property
    def assembled(self) -> bool:
        """Whether target chunks are assembled where they are stored."""
        return self.method == "assembled"

    @property
    def alone(self) -> bool:
        """Whether each rank works for itself, and nothing is exchanged."""
        return self.method in ALONE

    @property
    def cut(self) -> ChunkGrid:
        """The chunks of which units are made: those of the target, or of the source (assembled)."""
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
        """The order of the exchange between the ranks."""
        return self.exchange or complete_exchange(self.ranks)

    def chunk_box(self, unit: int) -> ChunkBox:
        """The target chunks of a unit; source chunks (assembled)."""
        index = unravel(unit, self.unit_counts)
        first = tuple(i * n for i, n in zip(index, self.unit, strict=True))
        last = tuple(min(f + n, c) for f, n, c in zip(first, self.unit, self.cut.counts, strict=True))
        return first, last

    def share(self, unit: int, rank: int) -> ChunkBox | None:
        """The target chunks of a partition that ``rank`` builds and writes, or None where there are too few."""
        first, last = self.chunk_box(unit)
        if not first:
            return (first, last) if rank == 0 else None
        start = first[self.split]
        part = GenBlock.even(last[self.split] - start, self.ranks).part(rank)
        if not part:
            return None
        return _replace(first, self.split, start + part.start), _replace(last, self.split, start + part.stop)

    def section(self, box: ChunkBox) -> Section:
        """The elements in a box of target chunks; of source chunks (assembled)."""
        return self.cut.block(*box)

    def places(self, unit: int) -> list[Part]:
        """The target chunks in which a unit has elements, and which of each: as they lie in it, with what is beyond
        the array's edge (assembled)."""
        return [
            (tuple(a[0] for a in each), Section(tuple(a[1] for a in each), tuple(a[2] for a in each)))
            for each in product(*self.places_along(unit))
        ]

    def places_along(self, unit: int) -> list[list[tuple[int, int, int]]]:
        """The same along each axis: a chunk's place, the first element in it, and one past the last."""
        here, grid = self.section(self.chunk_box(unit)), self.target.grid
        return [
            [(i, max(l - i * c, 0), c if u == n else min(u - i * c, c)) for i in range(l // c, ceil_div(u, c))]
            for l, u, n, c in zip(here.lower, here.upper, grid.shape, grid.chunks, strict=True)
        ]

    @property
    def writers(self) -> tuple[tuple[int, ...], ...]:
        """For each axis how many units have elements in the target chunks at each place along it (assembled)."""
        return tuple(
            tuple(ceil_div(min((i + 1) * c, n), b * s) - i * c // (b * s) for i in range(ceil_div(n, c)))
            for n, c, b, s in zip(
                self.target.grid.shape, self.target.grid.chunks, self.unit, self.source.grid.chunks, strict=True
            )
        )

    @property
    def writes(self) -> int:
        """Target chunks that are written to, once for each unit that does."""
        if not self.assembled:
            return self.target.grid.count
        return math.prod(
            axis_overlap(n, c, b * s, 1).pieces
            for n, c, b, s in zip(
                self.target.grid.shape, self.target.grid.chunks, self.unit, self.source.grid.chunks, strict=True
            )
        )

    def rounds(self, unit: int) -> int:
        """Rounds in which the source chunks of a partition are read."""
        return ceil_div(math.prod(map(len, self._touched(unit))), self.ranks * self.slab)

    def _touched(self, unit: int) -> tuple[range, ...]:
        """The source chunks that are read for a partition."""
        return self.source.grid.touched(self.section(self.chunk_box(unit)))

    def reads(self, unit: int, turn: int, rank: int) -> Iterator[tuple[int, ...]]:
        """The source chunks that ``rank`` reads in round ``turn`` of a partition."""
        for first, last in self.read_boxes(unit, turn, rank):
            yield from product(*map(range, first, last))

    def read_boxes(self, unit: int, turn: int, rank: int) -> Iterator[ChunkBox]:
        """The same as boxes of source chunks, which follow one another as their chunks do."""
        touched = self._touched(unit)
        counts = tuple(map(len, touched))
        start = turn * self.ranks * self.slab
        part = GenBlock.even(min(self.ranks * self.slab, math.prod(counts) - start), self.ranks).part(rank)
        for first, last in boxes(range(start + part.start, start + part.stop), counts):
            yield (
                tuple(axis.start + i for axis, i in zip(touched, first, strict=True)),
                tuple(axis.start + i for axis, i in zip(touched, last, strict=True)),
            )

    def reads_after(self, unit: int, turn: int, rank: int) -> Iterator[tuple[int, ...]]:
        """The source chunks that ``rank`` reads in the round after this one, if there is one."""
        if turn + 1 < self.rounds(unit):
            yield from self.reads(unit, turn + 1, rank)
        elif unit + 1 < self.units:
            yield from self.reads(unit + 1, 0, rank)

    def parts(self, number: int) -> Iterator[tuple[int, int, int]]:
        """Yield what is recorded when it is done, in pass ``number``: the pass, a batch or partition, and a rank."""
        for rank in range(self.ranks):
            if self.alone:
                yield from ((number, batch, rank) for batch in self.batches(rank))
            else:
                yield from ((number, unit, rank) for unit in range(self.units) if self.share(unit, rank))

    def batches(self, rank: int) -> range:
        """The batches of regions that ``rank`` builds, one a task."""
        return range(ceil_div(len(range(rank, self.units, self.ranks)), self.batch))

    def batch_units(self, batch: int, rank: int) -> range:
        return range(rank, self.units, self.ranks)[batch * self.batch : (batch + 1) * self.batch]

    def sections(self, first: int, rank: int) -> Iterator[Section]:
        """The elements of a part: of a batch or partition, and a rank."""
        if self.assembled:
            yield from (self.section(self.chunk_box(unit)) for unit in self.batch_units(first, rank))
        else:
            yield from map(self.target.grid.section, self.written(first, rank))

    def written(self, first: int, rank: int) -> Iterator[tuple[int, ...]]:
        """The target chunks of a part; those of each of its units (assembled)."""
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


def box_count(box: ChunkBox) -> int:
    return math.prod(b - a for a, b in zip(*box, strict=True))


def unit_chunks(method: Method, region: tuple[int, ...], split: int, ranks: int) -> tuple[int, ...]:
    """Target chunks in each axis of a unit."""
    if method in ALONE or not region:
        return region
    return _replace(region, split, region[split] * ranks)


def _replace(values: tuple[int, ...], axis: int, value: int) -> tuple[int, ...]:
    return (*values[:axis], value, *values[axis + 1 :])
