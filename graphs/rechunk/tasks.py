"""The tasks of a rechunk: regions that a rank builds for itself stand here.

What ranks do together stands in `in_place` (threads) and `exchange` (workers).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from oocarrays.graphs.rechunk import exchange, in_place
from oocarrays.graphs.rechunk.run import RechunkState
from oocarrays.graphs.run.buffers import Holding
from oocarrays.plan.rechunk.passes import ChunkBox
from oocarrays.storage.chunks.access import scatter
from oocarrays.storage.journal.receipts import Receipts
from oocarrays.storage.stores.pages import allocate


class RechunkRun(RechunkState):
    """Run a rechunk plan: each of its tasks is a method here, or a function of what ranks do together."""

    def _verb(self, verb: str) -> Callable[..., Any]:
        together = (in_place if self.processes is None else exchange).VERBS
        return partial(together[verb], self) if verb in together else super()._verb(verb)

    def _copy(self, number: int, batch: int, rank: int, holding: Holding | None) -> Holding | None:
        """Build and write some regions, one after the other."""
        step, part = self.plan.passes[number], (number, batch, rank)
        if self.is_done(part):
            return holding
        if holding is None or holding.empty:
            region = min(np.prod(step.region, dtype=int), step.target.grid.count) * step.target.chunk_bytes
            chunk = step.source.chunk_bytes if step.access == "chunks" else 0
            holding = Holding(allocate(int(region)), allocate(chunk))
        reader, receipts = self.opened(number).reader, Receipts()
        for unit in step.batch_units(batch, rank):
            if self._left_in(number, step.chunk_box(unit)):
                self._build(number, step.chunk_box(unit), holding, receipts)
            if unit + step.ranks < step.units:
                following = step.section(step.chunk_box(unit + step.ranks))
                reader.announce(step.source.grid.indices(following))
        self.record_chunks(part, receipts)
        return holding

    def _build(self, number: int, box: ChunkBox, holding: Holding, receipts: Receipts) -> None:
        """Build one region, and write it."""
        step = self.plan.passes[number]
        region, section = self.region(number, box, holding.region), step.section(box)
        with self.meter.phase("read"):
            for piece, data in self.parts(number, step.source.grid.indices(section), section, holding.chunk):
                scatter(region, section.lower, piece, self.fill(data))
        with self.meter.phase("write"):
            self.store(number, box, region, receipts)
