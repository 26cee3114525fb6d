"""Passes over slabs as plans: what they hold, and what they read, write and send.

Where slabs lie, and what each takes of others, stands in `slab_geometry`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.plan.cost import Traffic
from oocarrays.plan.memory import Holding, Memory
from oocarrays.plan.sections.write import plan_section_write
from oocarrays.plan.slabs.geometry import SlabGeometry
from oocarrays.plan.slabs.kinds import alike
from oocarrays.plan.slabs.reads import reading
from oocarrays.plan.slabs.traffic import slab_tasks, slab_traffic

SLAB_BYTES = 12 * 2**10
"""Bytes of the tasks of a slab, as Dask keeps and orders them."""
PROCESS_BYTES = 3 * 2**20
"""Bytes that a process takes to run any pass: stacks of threads, open arrays, the scheduler."""
CUT = ("edges", "axis", "height")
"""Fields of a plan that say which slab is which."""
RESULTS = 2
"""Results that a rank has at one time: one is computed while the one before it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabPlan(SlabGeometry, Holding):
    """How arrays of one shape pass through a window, and what that takes."""

    @property
    def cut(self) -> dict[str, Any]:
        """Which slab is which: as options take it, to cut the same ones."""
        return {name: getattr(self, name) for name in CUT}

    @property
    def memory(self) -> Memory:
        """Held by one process at one time, at most: windows, what is handed on, results, what codecs and the kernel
        need."""
        return self.bare + self._coding

    @property
    def bare(self) -> Memory:
        """The same without what codecs need."""
        size = sum(source.itemsize for source in self.sources)
        window, band = math.prod(self._largest(self.depth)), math.prod(self._largest([0] * len(self.shape)))
        each = Memory.of(
            windows=self.held * window * size,
            handed_on=2 * self.held * max(window - band, 0) * size,
            results=RESULTS * self.result_bytes,
            kernel=self.workspace,
        )
        return each * self.ranks_here + Memory.of(
            given_last=max(window * size, self.result_bytes),  # by the scheduler
            graph=self.count * SLAB_BYTES,
            stacks=PROCESS_BYTES,
        )

    @property
    def fits(self) -> bool:
        """Whether it keeps to its budget."""
        bare = self.bare.nbytes
        return bare <= self.budget and bare + self._coding.nbytes <= self.budget

    @property
    def ranks_here(self) -> int:
        """Ranks of one process, at most."""
        return ceil_div(self.ranks, self.processes)

    @property
    def result_bytes(self) -> int:
        """Bytes of what the kernel gives for the largest window, for all targets together."""
        return math.prod(self._largest(self.depth)) * sum(target.itemsize for target in self.targets)

    @property
    def _coding(self) -> Memory:
        """Held beside slabs where one is read and another written, at most."""
        wide = self._largest([0] * len(self.shape) if self.reuse else self.depth)
        reads = (reading(source, _longest(source, wide)).held_bytes for source in self.sources)
        writes = (plan_section_write(target, _longest(target, wide)).held_bytes for target in self.targets)
        return Memory.of(codecs=max(reads, default=0) + max(writes, default=0)) * self.ranks_here

    @property
    def source_bytes(self) -> int:
        """Bytes of all sources, decoded."""
        return math.prod(self.shape) * sum(source.itemsize for source in self.sources)

    @property
    def read_bytes(self) -> int:
        """Bytes, decoded, that are read of all sources: with reuse all that is stored, once."""
        elements = sum(self.read_elements(slab) * times for slab, times in alike(self))
        return elements * sum(source.itemsize for source in self.sources)

    @property
    def saved_bytes(self) -> int:
        """Bytes that reuse saves from being read again."""
        return replace(self, reuse=False).read_bytes - self.read_bytes

    @property
    def traffic(self) -> Traffic:
        """Requests and bytes of a run without faults; of chunks that are coded, stored bytes are an estimate."""
        return slab_traffic(self)

    @property
    def tasks(self) -> int:
        """Tasks of a run."""
        return slab_tasks(self)


def _longest(stored: Stored, wide: Sequence[int]) -> tuple[range, ...]:
    """What an array file has of a window, at most."""
    return tuple(range(min(n, extent)) for n, extent in zip(wide, stored.grid.shape, strict=True))
