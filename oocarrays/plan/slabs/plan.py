"""Passes over slabs as plans: their memory, reads, writes and messages.

The positions of slabs, and the sources of their halos, are in `oocarrays.plan.slabs.geometry`.

    slabs    ▐███▌███▌███▌███▌██▌      cut alike where they lie alike to chunks and edges: counted once for all
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from itertools import product, zip_longest
from operator import add, mod

import numpy as np

from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div
from oocarrays.mapping.section import in_one_piece
from oocarrays.mapping.selection import Axes, moved
from oocarrays.plan.cost import Traffic
from oocarrays.plan.documents import Document
from oocarrays.plan.plan import (
    PROCESS_BYTES,
    Alternative,
    Bytes,
    Duration,
    Facts,
    Holding,
    Memory,
    Value,
    cache_words,
    estimate,
    largest_memory,
    shared_facts,
)
from oocarrays.plan.sections.read import SectionPlan
from oocarrays.plan.sections.sieve import BUFFER_BYTES, STORE_BUFFER_BYTES
from oocarrays.plan.sections.write import plan_section_write
from oocarrays.plan.slabs.geometry import (
    Slab,
    SlabGeometry,
    alike,
    all_of,
    gathered,
    gathered_bytes,
    neighbours,
    read_elements,
    written,
)
from oocarrays.plan.slabs.options import COSTS
from oocarrays.plan.slabs.sweeps import Sweeps


@lru_cache(8)
def slab_traffic(plan: SlabGeometry) -> Traffic:
    """Return the traffic of all ranks together, in a run without faults."""
    targets = (plan.targets[number] for number in gathered(plan))
    total = [plan_section_write(target, all_of(target).axes).writes for target in targets]
    for slab, times in alike(plan):
        each = [*(read.traffic for read in _readings(plan, slab)), *(_written(plan, slab, n) for n in written(plan))]
        total.append(reduce(add, each, Traffic()) * times)
    return reduce(add, total, Traffic(tasks=slab_tasks(plan)))


@lru_cache(8)
def slab_tasks(plan: SlabGeometry) -> int:
    """Return the number of tasks of a pass, without computing its reads and writes.

    They begin, gather, finish; read, compute and write each slab, which sends as many pieces as it receives.
    """
    each = (times * (3 + len(plan.givers(slab)) + len(plan.fetchers(slab))) for slab, times in alike(plan))
    return (3 if gathered(plan) else 2) + sum(each)


def reading(stored: Stored, axes: Axes, *, packed: bool = False) -> SectionPlan:
    most = buffer_bytes(stored, math.prod(map(len, axes)))
    return SectionPlan.of(stored, axes, COSTS, packed=packed, most=most)


def buffer_bytes(stored: Stored, elements: int) -> int:
    """Return the bytes of a buffer for reading this number of elements, never more than they have."""
    most = BUFFER_BYTES if stored.local else STORE_BUFFER_BYTES
    return min(most, max(elements, 1) * stored.itemsize)


def _readings(plan: SlabGeometry, slab: Slab) -> Iterator[SectionPlan]:
    section, window = plan.read(slab), plan.window(slab)
    pieces = [piece for piece in plan.pieces(slab) if piece.is_read]
    distinct = (tuple(e if isinstance(e, range) else np.unique(e) for e in piece.elements) for piece in pieces)
    apart = list(zip((piece.owner.rank if piece.owner else slab.rank for piece in pieces), distinct, strict=True))
    for source, halo in zip_longest(plan.sources, plan.halos, fillvalue=()):
        assert isinstance(source, Stored), "halos are those of sources"
        if section.size:
            packed = in_one_piece(section.shape, window.shape)
            yield reading(*_placed(plan, source, halo, slab.rank, section.axes), packed=packed)
        yield from (reading(*_placed(plan, source, halo, rank, axes), packed=True) for rank, axes in apart)


def _placed(plan: SlabGeometry, stored: Stored, halo: tuple[int, ...], rank: int, axes: Axes) -> tuple[Stored, Axes]:
    """Return the array file that contains a rank's elements, and their indices in it."""
    if plan.shared:
        return stored, axes
    by = (d - start for d, start in zip(halo or (0,) * len(axes), plan.region(rank).lower, strict=True))
    return rank_file(plan, stored, rank, halo), tuple(map(moved, axes, by))


def rank_file(plan: SlabGeometry, stored: Stored, rank: int, halo: tuple[int, ...] = ()) -> Stored:
    """Return the array file that contains a rank's elements, with its chunks clipped to it."""
    if plan.shared:
        return stored
    region = plan.region(rank)
    shape = tuple(n + 2 * d for n, d in zip(region.shape, halo or (0,) * len(region.shape), strict=True))
    chunks = tuple(max(min(c, n), 1) for c, n in zip(stored.grid.chunks, shape, strict=True))
    return replace(stored, grid=ChunkGrid.of(shape, chunks))


def _written(plan: SlabGeometry, slab: Slab, number: int) -> Traffic:
    core, target = plan.core(slab), plan.targets[number]
    if not core.size:
        return Traffic()
    if plan.coarser:  # whole chunks
        return plan_section_write(target, plan.made(slab, number).axes).writes
    made = plan_section_write(*_placed(plan, target, (), slab.rank, core.axes))
    begun = (
        plan_section_write(*_placed(plan, target, (), slab.rank, axes)).reads
        for axes in _begun(plan, slab, target)
        if all(map(len, axes))
    )
    return reduce(add, begun, made.writes)


def _begun(plan: SlabGeometry, slab: Slab, target: Stored) -> Iterator[Axes]:
    """Yield disjoint boxes, one per axis, of a slab's elements in chunks that its rank has partly written before."""
    core, region = plan.core(slab), plan.region(slab.rank)
    stored, _ = _placed(plan, target, (), slab.rank, core.axes)
    parts = [
        _split(core.axes[axis], region.axes[axis], 0 if plan.shared else region.lower[axis], chunk, backwards=turned)
        for axis, chunk in enumerate(stored.grid.chunks)
        for turned in [axis == plan.axis and plan.backwards(slab.rank)]
    ]
    for axis, (begun, _) in enumerate(parts):
        yield (*(fresh for _, fresh in parts[:axis]), begun, *core.axes[axis + 1 :])


def _split(core: range, region: range, zero: int, chunk: int, *, backwards: bool) -> tuple[range, range]:
    """Split a band into the elements in a chunk that reaches into the previous band, and the rest."""
    start, stop = core.start, core.stop
    if backwards:
        edge = zero + (stop - zero) // chunk * chunk if stop < region.stop else stop
        edge = min(max(edge, start), stop)
        return range(edge, stop), range(start, edge)
    edge = zero + ceil_div(start - zero, chunk) * chunk if start > region.start else start
    edge = max(min(edge, stop), start)
    return range(start, edge), range(edge, stop)


CUT = ("edges", "axis", "heights")
"""Fields of a plan that determine its slabs."""
RESULTS = 2
"""Number of results of a rank at one time: one is computed while the previous one is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCopies:
    """Copies of sources in scratch, made before a pass that reads them."""

    sources: tuple[Stored, ...]
    """All sources, as stored."""
    times_decoded: float
    """Maximum number of times a chunk is decoded for the copy of a source."""
    memory: Memory
    """Peak memory of making the copies."""
    traffic: Traffic
    """Requests and bytes of making the copies, without the pass."""
    seconds: float
    """Predicted seconds of making the copies."""
    scratch_bytes: int
    """Peak bytes of scratch on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabPlan(SlabGeometry, Holding):
    """Frozen plan of a pass over slabs: geometry, memory and cost."""

    copies: SourceCopies | None = None
    """Copies that the pass reads; then ``sources`` describe the copies."""
    sweeps: Sweeps | None = field(default=None, compare=False)
    """Sweeps of every slab, in a pass of an iteration; ``depth`` is then the halo of all sweeps."""
    threads: int = field(default=1, compare=False)
    """Number of tiles of a slab swept at one time, if there are fewer ranks than processors."""
    pass_seconds: float = field(default=0.0, compare=False)
    """Predicted seconds of the pass, with a kernel as fast as a few copies of its blocks."""
    alternatives: tuple[Alternative, ...] = field(default=(), compare=False)
    """Cuts that were compared."""

    @property
    def seconds(self) -> float:
        return self.pass_seconds + (self.copies.seconds if self.copies else 0.0)

    def facts(self) -> Facts:
        about = estimate(*(stored.coded for stored in (*self.sources, *self.targets)))
        several = len(self.sources + self.targets) > 2
        arrays = f"{len(self.sources)} → {len(self.targets)} arrays, "
        halo: tuple[Value, ...] = ("depth ", tuple(self.depth), f", boundary {self.boundary!r}")
        verified = (", ", tuple(self.margin), " of it to verify") if self.margin else ()
        window = Bytes(self.window_bytes()), f", {self.held} a rank at a time, {self.prefetch} ahead"
        kernel = " with a kernel as fast as a few copies of its blocks"
        return [
            ("array", (arrays * several, self.shape, ", ", Bytes(self.source_bytes))),
            *self._made(),
            ("slabs", (*self.cut_fact(), f", {self.ranks} ranks")),
            ("window", window),
            ("halo", (*halo, *verified) if any(self.depth) else ("none",)),
            ("reuse", self.reuse_fact()),
            *self._copied(),
            *shared_facts(self, reads=about, writes=about),
            ("local files", (cache_words(self.past_cache),)),
            *shared_facts(self, tasks=""),
            ("workspace", (Bytes(self.workspace), " for the kernel of each rank")),
            *shared_facts(self, peak_memory="", predicted=kernel),
        ]

    def cut_fact(self, name: str = "") -> tuple[Value, ...]:
        if len(self.cut_axes) > 1:
            return f"{self.count}{name} of ", self.heights
        return (f"{self.count}{name} of height {self.height} along axis {self.axis}",)

    def reuse_fact(self) -> tuple[Value, ...]:
        again = self.again_bytes
        saved = ("saves ", Bytes(self.saved_bytes)) if self.reuse else ("none: slabs are read with their halo",)
        return *saved, *((", ", Bytes(again), " are read again") if again else ())

    def _made(self) -> Facts:
        if not self.coarser:
            return []
        shapes, kept = (
            [part for each in arrays for part in (", ", each.grid.shape)][1:]
            for arrays in (self.targets, self._gathered)
        )
        later = ("; ", *kept, " kept in memory, and written at the end") if kept else ()
        return [("targets", (*shapes, *later))]

    def _copied(self) -> Facts:
        if self.copies is None:
            return []
        pairs = zip(self.copies.sources, self.sources, strict=True)
        made = [part for source, copy in pairs if source != copy for part in (", ", copy.grid.chunks)][1:]
        took = Bytes(self.copies.scratch_bytes), " of scratch, ", Duration(self.copies.seconds)
        return [("copied first", ("into chunks of ", *made, ", not coded: ", *took))]

    @property
    def title(self) -> str:
        if len(self.cut_axes) < 2:
            return f"slabs along axis {self.axis}"
        return f"windows along axes {', '.join(map(str, self.cut_axes))}"

    @property
    def cut(self) -> Document:
        """Fields that determine the slabs, in the form of options, for repeating the cut."""
        return {name: getattr(self, name) for name in CUT}

    @property
    def memory(self) -> Memory:
        """Peak memory of one process: windows, passed-on elements, results, codecs, and the kernel."""
        copying = self.copies.memory if self.copies else Memory()
        return largest_memory(self.bare + self._coding, self._gathering, copying)

    @property
    def bare(self) -> Memory:
        """Peak memory of one process without codecs."""
        kept = {"gathered": sum(gathered_bytes(self))} if self.coarser else {}
        return self.of_rank * self.ranks_here + Memory.of(
            **kept,
            given_last=max(self.window_bytes(), self.result_bytes),  # by the scheduler
            graph=self.count * self._slab_bytes,
            stacks=PROCESS_BYTES,
        )

    @property
    def _slab_bytes(self) -> int:
        """Bytes of the tasks of a slab, as Dask stores and orders them: 12 KiB for five, as two others send to it."""
        tasks = 5 if len(self.cut_axes) < 2 else 2 + neighbours(self)
        return 12 * 2**10 * tasks // 5

    @property
    def of_rank(self) -> Memory:
        size = sum(source.itemsize for source in self.sources)
        given = self._reread if self.reuse else (0,) * len(self.depth)
        sent = max(self.window_elements - math.prod(self.largest(given)), 0)  # by neighbours of a window, at most
        return Memory.of(
            windows=self.held * self.window_bytes(),
            handed_on=2 * self.held * sent * size,
            results=RESULTS * self.result_bytes,
            kernel=self.workspace,
            verified=(self.window_bytes() + self.result_bytes + 2**20) if self.margin else 0,  # compared by pieces
        )

    @property
    def _reread(self) -> tuple[int, ...]:
        """Depth along each axis whose halo is read again; 0 along others."""
        return tuple(d if self.way(axis) == "reread" else 0 for axis, d in enumerate(self.depth))

    @property
    def fits(self) -> bool:
        bare = self.bare.nbytes
        return bare <= self.budget and self.memory.nbytes <= self.budget

    @property
    def _gathering(self) -> Memory:
        """Memory after all slabs: the gathered targets, and one of them in its own order."""
        if not self.coarser:
            return Memory()
        coding = (plan_section_write(each, all_of(each).axes).held_bytes for each in self._gathered)
        return Memory.of(
            gathered=sum(gathered_bytes(self)), put_together=max(gathered_bytes(self), default=0),
            codecs=max(coding, default=0), graph=self.count * self._slab_bytes, stacks=PROCESS_BYTES,
        )  # fmt: skip

    @property
    def _gathered(self) -> list[Stored]:
        return [self.targets[number] for number in gathered(self)]

    @property
    def ranks_here(self) -> int:
        return ceil_div(self.ranks, self.processes)

    @property
    def result_bytes(self) -> int:
        """Bytes of the kernel's results for the largest window, for all targets together."""
        return self.bytes_made(self.largest(self.depth), self.targets)

    @property
    def _coding(self) -> Memory:
        """Maximum memory in addition to slabs while one is read and another written."""
        wide = self.largest(self._reread)
        each = product({*self.sources, *self.among}, self._starts)
        reads = (_reading_bytes(source, _longest(source, start, wide)) for source, start in each)
        shapes = self.shapes_made(wide, self.targets)
        targets = {(self.targets[number], shapes[number]) for number in written(self)}
        targets |= {(each, tuple(wide)) for each in self.among}
        writes = (
            plan_section_write(each, _longest(each, (0,) * len(high), high)).held_bytes
            for each, high in targets
            if not self._lies_as_stored(each)
        )
        return Memory.of(codecs=max(reads, default=0) + max(writes, default=0)) * self.ranks_here

    def _lies_as_stored(self, target: Stored) -> bool:
        """Whether a kernel's results are written without a copy: whole plain chunks, each contiguous."""
        core, chunk = self.largest((0,) * len(self.shape)), target.grid.chunks
        if not self.cores_only or not target.in_place or target.order or any(map(mod, self.heights, chunk)):
            return False
        return in_one_piece(tuple(map(min, chunk, core)), core)

    @property
    def _starts(self) -> list[tuple[int, ...]]:
        """Start of the first slab, and if slabs are cut along several axes, of one inside."""
        first = (0,) * len(self.shape)
        if len(self.cut_axes) < 2:
            return [first]
        each = enumerate(zip(self.heights, self._reread, strict=True))
        return [first, tuple(max(height - d, 0) if axis in self.cut_axes else 0 for axis, (height, d) in each)]

    @property
    def source_bytes(self) -> int:
        return math.prod(self.shape) * sum(source.itemsize for source in self.sources)

    @property
    def target_bytes(self) -> int:
        return self.bytes_made(self.shape, self.targets)

    @property
    def read_bytes(self) -> int:
        """Decoded bytes read of all sources; with reuse each stored element once."""
        return read_elements(self) * sum(source.itemsize for source in self.sources)

    @property
    def saved_bytes(self) -> int:
        return self.alone.read_bytes - self.read_bytes

    @property
    def alone(self) -> SlabPlan:
        """Plan of the same slabs without reuse."""
        return replace(self, reuse=False)

    @property
    def again_bytes(self) -> int:
        """Decoded bytes read for one window after another has read them; whole chunks if they are coded."""
        coded = sum(source.padded_bytes for source in self.sources if source.coded)
        return max(self.read_bytes - self.source_bytes, self.passing.decoded_bytes - coded if coded else 0)

    @property
    def traffic(self) -> Traffic:
        """Requests and bytes of a run without faults; stored bytes are an estimate if chunks are coded."""
        return self.passing + self.copies.traffic if self.copies else self.passing

    @property
    def passing(self) -> Traffic:
        return slab_traffic(self)

    @property
    def scratch_bytes(self) -> int:
        return self.copies.scratch_bytes if self.copies else 0

    @property
    def times_decoded(self) -> float:
        """Average number of times the chunks of a source are decoded, the maximum of all sources."""
        return max((self.copies.times_decoded if self.copies else 0.0, *self.decodings))

    @property
    def decodings(self) -> tuple[float, ...]:
        """Average number of times the pass decodes the chunks of each source; 0 if it is not coded."""
        return tuple(self._decoded(number) if source.coded else 0.0 for number, source in enumerate(self.sources))

    def _decoded(self, number: int) -> float:
        source, halos = self.sources[number], self.halos[number : number + 1]
        alone = self if len(self.sources) == 1 else replace(self, sources=(source,), halos=halos)
        read = slab_traffic(replace(alone, targets=(), coarser=()))
        return read.decoded_bytes / max(source.padded_bytes, 1)

    @property
    def tasks(self) -> int:
        return slab_tasks(self)


@lru_cache(2**12)
def _reading_bytes(stored: Stored, axes: tuple[range, ...]) -> int:
    """Return the bytes of reading a box, cached because thousands of cuts share few boxes."""
    return reading(stored, axes).held_bytes


def _longest(stored: Stored, start: Sequence[int], wide: Sequence[int]) -> tuple[range, ...]:
    extents = stored.grid.shape
    return tuple(range(min(a, n), min(a + w, n)) for a, w, n in zip(start, wide, extents, strict=True))
