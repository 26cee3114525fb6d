"""The tasks of a rechunk: regions that a rank builds for itself stand here.

Target chunks that are assembled stand in `assembled`, work that ranks do together in `in_place` (threads) and
`exchange` (workers).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from oocarrays.graphs.exchange.messages import Messages, Round
from oocarrays.graphs.rechunk import assembled, exchange, in_place
from oocarrays.graphs.rechunk.run import RechunkState
from oocarrays.graphs.run.buffers import Outbox, RankBuffers, ReadSlab, Region
from oocarrays.graphs.run.steps import arriving
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.rechunk.passes import ChunkBox
from oocarrays.storage.chunks.elements import scatter
from oocarrays.storage.journal.receipts import Receipts
from oocarrays.storage.local.pages import allocate


class RechunkRun(Messages, RechunkState):
    """Run a rechunk plan: each of its tasks is a method here, or a function of what ranks do together."""

    phases: ClassVar[Mapping[str, str]] = Messages.phases

    def __getstate__(self) -> dict[str, Any]:
        return RechunkState.__getstate__(self) | {"homes": self.homes}

    def _do(self, verb: str, args: tuple[int, ...], inputs: tuple[Any, ...]) -> Any:
        together = assembled.VERBS | (in_place if self.processes is None else exchange).VERBS
        return together[verb](self, *args, *inputs) if verb in together else super()._do(verb, args, inputs)

    def _start(self, number: int) -> None:
        """Begin a pass; where its target is assembled go on with what is in it."""
        super()._start(number)
        if self.plan.passes[number].assembled and not self.made:
            assembled.go_on(self, number)

    def order(self, round: Round) -> Schedule:
        """Who sends to whom in a partition of a pass."""
        return self.plan.passes[round[0]].schedule

    def placed(self, round: Round, stage: int, rank: int, there: Region | None, came: dict[int, np.ndarray]) -> Region:
        """Fill a rank's region with what is to come in a stage."""
        due = {origin: came.get(origin) for origin in arriving(self.order(round), stage, rank)}
        return exchange.unpack(self, round, rank, there, due, blank=False)

    def waits(self, round: Round) -> bool:
        """Whether a step waits until the one before has been received and taken."""
        return self.plan.passes[round[0]].synchronous

    def is_over(self, round: Round, rank: int) -> bool:
        """Whether a rank has no part of a partition, or has written it."""
        number, unit = round
        return self.plan.passes[number].share(unit, rank) is None or self.is_done((number, unit, rank))

    def begun(self, round: Round, rank: int, held: Outbox) -> Region:
        """Make a rank's region, with what it packed for itself."""
        return exchange.unpack(self, round, rank, None, {rank: held.messages[rank]}, blank=True)

    def unpacked(self, round: Round, rank: int, there: Region, came: dict[int, np.ndarray | None]) -> Region:
        """Fill a rank's region with what has come."""
        return exchange.unpack(self, round, rank, there, came, blank=False)

    def copied(
        self, round: Round, stage: int, rank: int, there: np.ndarray | None, held: Mapping[int, ReadSlab]
    ) -> np.ndarray:
        """Take from partners' slabs what this rank's target chunks need."""
        return in_place.copied(self, round, stage, rank, there, held.values())

    def _receive(self, round: Round, stage: int, rank: int, there: Region | None, *messages: Any) -> Region:
        """Fill a rank's region with what has come; in stage 0 with what it packed for itself."""
        if stage:
            return super()._receive(round, stage, rank, there, *messages)  # type: ignore[no-any-return]
        return self.begun(round, rank, messages[0])

    def _written(self, number: int, unit: int) -> None:
        """Say that all ranks have written a partition."""

    def _probe(self, address: str, rank: int) -> tuple[int, str, str]:
        """Where a rank was put, and where it runs, which answers from now on whoever asks for messages."""
        if any(step.whole for step in self.plan.passes):
            exchange.answer(self)
        return super()._probe(address, rank)

    def _copy(self, number: int, batch: int, rank: int, holding: RankBuffers | None) -> RankBuffers | None:
        """Build and write some regions, one after the other."""
        step, part = self.plan.passes[number], (number, batch, rank)
        if self.is_done(part):
            return holding
        if holding is None or holding.empty:
            region = min(np.prod(step.region, dtype=int), step.target.grid.count) * step.target.chunk_bytes
            chunk = step.source.chunk_bytes if step.access == "chunks" else 0
            holding = RankBuffers(allocate(int(region)), allocate(chunk))
        reader, receipts, recorded = self.opened(number).reader, Receipts(), time.monotonic()
        for unit in step.batch_units(batch, rank):
            if self._left_in(number, step.chunk_box(unit)):
                self._build(number, step.chunk_box(unit), holding, receipts)
                if time.monotonic() - recorded > self.record_seconds:
                    self.record_some(part, unit, receipts)
                    recorded = time.monotonic()
            if unit + step.ranks < step.units:
                following = step.section(step.chunk_box(unit + step.ranks))
                reader.announce(step.source.grid.indices(following))
        self.record_chunks(part, receipts)
        return holding

    def _build(self, number: int, box: ChunkBox, holding: RankBuffers, receipts: Receipts) -> None:
        """Build one region, and write it."""
        step = self.plan.passes[number]
        region, section = self.opened(number).region(box, holding.region), step.section(box)
        with self.meter.phase("read"):
            for piece, data in self.opened(number).parts(step.source.grid.indices(section), section, holding.chunk):
                scatter(region, section.lower, piece, self.fill(data))
        with self.meter.phase("write"):
            self.store(number, box, region, receipts)
