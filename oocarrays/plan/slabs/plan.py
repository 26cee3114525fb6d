"""Passes over slabs as plans: what they hold, and what they read, write and send.

Where slabs lie, and what each takes of others, stands in `oocarrays.plan.slabs.geometry`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from operator import mod

from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.plan.cost import Traffic
from oocarrays.plan.documents import Document
from oocarrays.plan.memory import PROCESS_BYTES, Holding, Memory, largest
from oocarrays.plan.sections.write import can_change, plan_section_write
from oocarrays.plan.slabs.bands import Way
from oocarrays.plan.slabs.coarser import all_of, gathered, gathered_bytes, written
from oocarrays.plan.slabs.geometry import SlabGeometry
from oocarrays.plan.slabs.kinds import neighbours, read_elements
from oocarrays.plan.slabs.reads import reading
from oocarrays.plan.slabs.traffic import lies_packed, slab_tasks, slab_traffic

SLAB_BYTES = 12 * 2**10
"""Bytes of the tasks of a slab, as Dask keeps and orders them, ..."""
SLAB_TASKS = 5
"""... of which there are so many, where two others give to it."""
COMPARED_BYTES = 2**20
"""Bytes that a rank takes to compare results with those of a larger halo, piece by piece."""
CUT = ("edges", "axis", "heights")
"""Fields of a plan that say which slab is which."""
RESULTS = 2
"""Results that a rank has at one time: one is computed while the one before it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCopies:
    """Copies of sources in scratch, made before a pass, which reads them instead."""

    sources: tuple[Stored, ...]
    """All sources, as they are stored."""
    times_decoded: float
    """How often a chunk is decoded for the copy of a source, at most."""
    memory: Memory
    """Held at one time while they are made, at most."""
    traffic: Traffic
    """Requests and bytes that they take, beside the pass."""
    seconds: float
    """Predicted."""
    scratch_bytes: int
    """Bytes of disk at one time, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabPlan(SlabGeometry, Holding):
    """How arrays of one shape pass through a window, and what that takes."""

    copies: SourceCopies | None = None
    """Copies that the pass reads; then ``sources`` are as these are stored."""

    @property
    def cut(self) -> Document:
        """Which slab is which: as options take it, to cut the same ones."""
        return {name: getattr(self, name) for name in CUT}

    @property
    def memory(self) -> Memory:
        """Held by one process at one time, at most: windows, what is handed on, results, what codecs and the kernel
        need."""
        copying = self.copies.memory if self.copies else Memory()
        return largest(self.bare + self._coding, self._gathering, copying)

    @property
    def bare(self) -> Memory:
        """The same without what codecs need."""
        kept = {"gathered": sum(gathered_bytes(self))} if self.coarser else {}
        return self.of_rank * self.ranks_here + Memory.of(
            **kept,
            given_last=max(self.window_bytes(), self.result_bytes),  # by the scheduler
            graph=self.count * self._slab_bytes,
            stacks=PROCESS_BYTES,
        )

    @property
    def _slab_bytes(self) -> int:
        """Bytes of the tasks of a slab: of windows cut along several axes by how many give to one."""
        if len(self.cut_axes) < 2:
            return SLAB_BYTES
        return SLAB_BYTES * (2 + neighbours(self)) // SLAB_TASKS

    @property
    def of_rank(self) -> Memory:
        """Held by each rank of that."""
        size = sum(source.itemsize for source in self.sources)
        return Memory.of(
            windows=self.held * self.window_bytes(),
            handed_on=(2 * self.held * self._lacking_elements + self._kept_elements) * size,
            results=RESULTS * self.result_bytes,
            kernel=self.workspace,
            verified=(self.window_bytes() + self.result_bytes + COMPARED_BYTES) if self.margin else 0,
        )

    @property
    def _lacking_elements(self) -> int:
        """Elements of a window that its neighbours hand to it, at most."""
        given = [0 if way == "handed" or not self.reuse else d for way, d in zip(self.ways, self.depth, strict=True)]
        return max(math.prod(self.largest(self.depth)) - math.prod(self.largest(given)), 0)

    @property
    def _kept_elements(self) -> int:
        """Elements that are kept for rows of windows to come, at most: of each window that has some of it."""
        if "kept" not in self.ways:
            return 0
        order, wide, most = self.cut_axes, self.largest(self.depth), [self.along(a).most_bands for a in self.cut_axes]
        kept, later = 0, self.held
        for place, axis in reversed(list(enumerate(order))):
            twice = 2 * self.depth[axis]
            later += ceil_div(twice, self.heights[axis]) * math.prod(most[place + 1 :])
            if self.ways[axis] == "kept":
                kept += min(later, math.prod(most)) * math.prod(wide) // max(wide[axis], 1) * min(twice, wide[axis])
        return kept

    @property
    def fits(self) -> bool:
        """Whether it keeps to its budget."""
        bare = self.bare.nbytes
        return bare <= self.budget and self.memory.nbytes <= self.budget

    @property
    def _gathering(self) -> Memory:
        """Held when all slabs are written: what was gathered, and one target of it in its own order."""
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
        """Ranks of one process, at most."""
        return ceil_div(self.ranks, self.processes)

    @property
    def result_bytes(self) -> int:
        """Bytes of what the kernel gives for the largest window, for all targets together."""
        return self.bytes_made(self.largest(self.depth), self.targets)

    @property
    def _coding(self) -> Memory:
        """Held beside slabs where one is read and another written, at most."""
        wide = self.largest([0 if way == "handed" else d for way, d in zip(self.ways, self.depth, strict=True)])
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
        """Whether what a kernel gives is written from where it is: whole plain chunks, each in one piece."""
        core, chunk, first = self.largest((0,) * len(self.shape)), target.grid.chunks, (0,) * len(self.shape)
        if not self.cores_only or not can_change(target) or target.order or any(map(mod, self.heights, chunk)):
            return False
        return lies_packed(Section(first, tuple(map(min, chunk, core))), Section(first, core))

    @property
    def _starts(self) -> list[tuple[int, ...]]:
        """Where slabs are read from: the first one, and where they are cut along several axes one inside."""
        first = (0,) * len(self.shape)
        if len(self.cut_axes) < 2:
            return [first]
        by = {"handed": 0, "kept": 1, "again": -1}
        inside = (
            max(height + by[way] * d, 0) if axis in self.cut_axes else 0
            for axis, (height, way, d) in enumerate(zip(self.heights, self.ways, self.depth, strict=True))
        )
        return [first, tuple(inside)]

    @property
    def source_bytes(self) -> int:
        """Bytes of all sources, decoded."""
        return math.prod(self.shape) * sum(source.itemsize for source in self.sources)

    @property
    def read_bytes(self) -> int:
        """Bytes, decoded, that are read of all sources: with reuse all that is stored, once."""
        return read_elements(self) * sum(source.itemsize for source in self.sources)

    @property
    def saved_bytes(self) -> int:
        """Bytes that reuse saves from being read again."""
        return self.alone.read_bytes - self.read_bytes

    @property
    def alone(self) -> SlabPlan:
        """The same slabs, where each reads all that it needs: nothing is handed on."""
        again: Way = "again"
        return replace(self, ways=(again,) * len(self.ways))

    @property
    def again_bytes(self) -> int:
        """Bytes, decoded, that are read for one window when they have been read for another; whole chunks, where they
        are coded."""
        coded = sum(source.padded_bytes for source in self.sources if source.coded)
        return max(self.read_bytes - self.source_bytes, self.passing.decoded_bytes - coded if coded else 0)

    @property
    def traffic(self) -> Traffic:
        """Requests and bytes of a run without faults; of chunks that are coded, stored bytes are an estimate."""
        return self.passing + self.copies.traffic if self.copies else self.passing

    @property
    def passing(self) -> Traffic:
        """Requests and bytes of the pass alone."""
        return slab_traffic(self)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of disk that copies take at one time, at most."""
        return self.copies.scratch_bytes if self.copies else 0

    @property
    def times_decoded(self) -> float:
        """How often the chunks of a source are decoded on average, of the source for which that is most."""
        return max((self.copies.times_decoded if self.copies else 0.0, *self.decodings))

    @property
    def decodings(self) -> tuple[float, ...]:
        """How often the pass decodes the chunks of each source, on average; 0 of one that is not coded."""
        return tuple(self._decoded(number) if source.coded else 0.0 for number, source in enumerate(self.sources))

    def _decoded(self, number: int) -> float:
        source, halos = self.sources[number], self.halos[number : number + 1]
        alone = self if len(self.sources) == 1 else replace(self, sources=(source,), halos=halos)
        read = slab_traffic(replace(alone, targets=(), coarser=()))
        return read.decoded_bytes / max(source.padded_bytes, 1)

    @property
    def tasks(self) -> int:
        """Tasks of a run."""
        return slab_tasks(self)


@lru_cache(2**12)
def _reading_bytes(stored: Stored, axes: tuple[range, ...]) -> int:
    """Kept, for cuts are looked at by the thousand, and many are alike in what a slab has of an array."""
    return reading(stored, axes).held_bytes


def _longest(stored: Stored, start: Sequence[int], wide: Sequence[int]) -> tuple[range, ...]:
    """Return the most that an array file has of a window."""
    extents = stored.grid.shape
    return tuple(range(min(a, n), min(a + w, n)) for a, w, n in zip(start, wide, extents, strict=True))
