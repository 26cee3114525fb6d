"""Passes over slabs whose targets are of unlike shapes: what has no whole chunks in a slab is gathered.

    compute 0 ──► write 0 ──┐           whole chunks are written with each slab, and the rest is handed on
    compute 1 ──► write 1 ──┼─► gather ─► finish
    compute 2 ──► write 2 ──┘           all that was handed on, put together: each chunk is written once

Where a run goes on, what slabs that are done have handed on is made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import add
from typing import ClassVar

import numpy as np

from oocarrays.graphs.slabs.tasks import SlabRun
from oocarrays.mapping.section import Section
from oocarrays.plan.slabs.coarser import all_of, gathered
from oocarrays.plan.slabs.geometry import Slab
from oocarrays.storage.local.pages import empty, give_back
from oocarrays.storage.sections.windows import Blocks, Windows

Parts = list[tuple[tuple[int, ...], np.ndarray]]
"""Where a part of each target that is gathered begins there, and the part."""


class GatheringRun(SlabRun):
    """One pass over slabs whose targets stand otherwise for its sources, shared by its tasks."""

    phases: ClassVar[Mapping[str, str]] = {**SlabRun.phases, "regain": "read", "gather": "write"}

    def _write(self, number: int, rank: int, results: Blocks | None) -> Parts:
        """Write the chunks of a slab; returned is what it has of targets that are gathered."""
        if results is None:
            return self._regain(number, rank)
        super()._write(number, rank, results)
        return self._parts(Slab(number, rank), results)

    def _parts(self, slab: Slab, results: Blocks) -> Parts:
        """Return what a slab has of targets that are gathered; no view, for that would keep all of which it is one."""
        kept = ((each, results[each]) for each in gathered(self.plan))
        return [(self.plan.made(slab, n).lower, made if made.base is None else made.copy()) for n, made in kept]

    def _regain(self, number: int, rank: int) -> Parts:
        """Make again what a slab that is done gave of targets that are gathered."""
        if not gathered(self.plan):
            return []
        slab = Slab(number, rank)
        alone = Windows(self.plan.alone, self.given[1], self.meter, self._pool)
        blocks = self._thread_of("read", rank).submit(alone.read, slab).result()
        alone.fill(slab, blocks, [])
        return self._parts(slab, self._results(slab, blocks))

    def _gather(self, *given: Parts) -> None:
        """Put together and write what slabs gave of targets of which they had no whole chunks, one after the other."""
        self._let_go_of_memory()
        give_back()
        for place, number in enumerate(gathered(self.plan)):
            file = self._open_targets()[number]
            whole = empty(file.zarr.shape, np.dtype(self.targets[number].settings["dtype"]))
            for parts in given:
                lower, values = parts[place]
                whole[Section(lower, tuple(map(add, lower, values.shape))).slices] = values
            self._put(0, file, all_of(self.plan.targets[number]).axes, whole)
