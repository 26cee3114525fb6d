"""Rechunk plan as a Dask graph.

    create ─► start pass ─┬─► copy ─► copy ─► copy ──┬─► start next pass ─► … ─► finish   independent: one chain
                          └─► copy ─► copy ──────────┘                                    per rank

    read ──┬─► exchange step 0 ─► step 1 ─► … ─► write        two-phase: in each round of a partition every rank reads
    read ──┴─► exchange step 0 ─► step 1 ─► … ─► write        its slab, then copies from one partner per step

                          ┌─► assemble ─► assemble ──┬─► name ─► …             assembled: one chain per rank
                          └─► assemble ─► assemble ──┘

    read ─┬─► receive step 0 ─► receive step 1 ─► … ─► write ─┬─► free      between workers: see `steps`
          └─► send step 1 ─────►┘

Every edge carries the buffer that the next task fills, or signals that a slab has been read. That bounds memory: a rank
never holds more than ``slabs`` slabs or outboxes and ``depth`` regions, in any order of the scheduler.

Every key ends with the rank that does the work: `placement` pins by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from oocarrays.graphs.cluster.placement import TOGETHER
from oocarrays.graphs.exchange.messages import Round, steps_of
from oocarrays.graphs.exchange.whole import whole_round
from oocarrays.graphs.rechunk import exchange, tasks
from oocarrays.graphs.run.builder import Builder, RoundsAhead
from oocarrays.graphs.run.program import Part
from oocarrays.graphs.run.run import barrier
from oocarrays.graphs.run.steps import ExchangeTasks, Key, Order, arriving
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.plan.rechunk.plan import RechunkPlan


def add_tasks(builder: Builder, plan: RechunkPlan, addresses: Sequence[str], done: Collection[Part]) -> Key:
    """Add the tasks of a plan, less parts that are done; return the key of the last one."""
    builder.begins = tasks.create, tasks.probe
    before = [builder.create(addresses)]
    for number, step in enumerate(plan.passes):
        start = builder.add(tasks.start, number, after=before, rank=0)
        before = _PassTasks(builder, number, step, start, done).build() or [start]
    return builder.add(tasks.finish, after=before, rank=0)


@dataclass(frozen=True, slots=True)
class _PassTasks:
    """Tasks of one pass."""

    builder: Builder
    number: int
    """Number of the pass."""
    step: Pass
    start: Key
    """Key of the task that begins the pass."""
    done: Collection[Part]
    """Parts that are done."""

    def build(self) -> list[Key]:
        """Add the tasks; return the keys of the last ones."""
        if self.step.assembled:
            ends = self._chains(tasks.assemble)
            return [self.builder.add(tasks.name, self.number, after=ends or [self.start], rank=0)]
        if self.step.alone:
            return self._chains(tasks.copy)
        if self.step.whole:
            return self._whole()
        return self._packed() if self.step.packed else self._two_phase()

    @property
    def ranks(self) -> range:
        return range(self.step.ranks)

    def units(self) -> list[int]:
        """Return the partitions in which the part of at least one rank is not done."""
        return sorted({part[1] for part in self.step.parts(self.number) if part not in self.done})

    def _chains(self, work: Callable[..., Any]) -> list[Key]:
        """Add the batches of each rank as a chain; return the last key of each chain."""
        ends = []
        for rank in self.ranks:
            last = None
            for batch in self.step.batches(rank):
                if (self.number, batch, rank) not in self.done:
                    after = [self.start] if last is None else []
                    last = self.builder.add(work, self.number, batch, rank, buffers=(last,), after=after)
            ends += [] if last is None else [last]
        return ends

    def _two_phase(self) -> list[Key]:
        """Add the tasks of partitions that are exchanged between threads."""
        step, ranks, order = self.step, self.ranks, Order(self.step.ranks)
        nothing: list[Key | None] = [None] * step.ranks
        regions = RoundsAhead[Sequence[Key | None]](step.depth, nothing)
        slabs = RoundsAhead[tuple[Sequence[Key | None], list[list[Key]]]](
            step.slabs, (nothing, [[self.start]] * step.ranks)
        )  # fmt: skip
        for unit in self.units():
            filled = list(regions.before)
            for turn in range(step.rounds(unit)):
                former, takers = slabs.before
                round = self.number, unit, turn
                reads = [
                    self.builder.add(tasks.read, *round, rank, buffers=(former[rank],), after=takers[rank])
                    for rank in ranks
                ]
                takers = [[] for _ in ranks]
                for stage in range(len(step.schedule) + 1):
                    for source, taker in self._exchange(round, stage, filled, reads, order):
                        takers[source].append(taker)
                slabs.add((reads, takers))
            regions.add(
                [self.builder.add(tasks.write, self.number, unit, rank, buffers=(filled[rank],)) for rank in ranks]
            )
        return [key for keys in regions for key in keys if key is not None]

    def _exchange(
        self, round: Round, stage: int, filled: list[Key | None], reads: Sequence[Key], order: Order
    ) -> Iterator[tuple[int, Key]]:
        """Add one step: each rank copies from its partners, after it has received and been copied from in the step
        before.

        Yield each source rank with the key of the task that copies from it.
        """
        add, schedule, now = steps_of(self.builder), self.step.schedule, {}
        sources = {rank: arriving(schedule, stage, rank) if stage else (rank,) for rank in self.ranks}
        for rank, partners in sources.items():
            if partners:
                now[rank] = add(
                    "exchange",
                    *round,
                    stage,
                    rank,
                    name=f"exchange step {stage}",
                    buffers=(filled[rank], *(reads[source] for source in partners)),
                    after=[key for key in order.before(rank) if key != filled[rank]],
                )
        for rank, key in now.items():
            filled[rank] = key
        pairs = [(source, rank) for rank, partners in sources.items() for source in partners]
        order.went(pairs, now)
        yield from ((source, now[rank]) for source, rank in pairs)

    def _whole(self) -> list[Key]:
        """Add the tasks of partitions between workers, with one task per rank for the whole exchange."""
        ranks, gone = self.ranks, [self.start] * self.step.ranks
        freed, written = RoundsAhead(self.step.slabs, gone), RoundsAhead(self.step.depth, gone)
        for unit in self.units():
            outboxes = self._reads(unit, freed)
            gone = [
                self.builder.add_whole(
                    whole_round, TOGETHER, self.number, unit, rank,
                    held=outboxes[rank], after={written.before[rank], gone[rank]},
                )
                for rank in ranks
            ]  # fmt: skip
            written.add(self._writes(unit, gone))
            every = self.builder.add(barrier, self.number, unit, name="written", after=written.last, rank=0)
            freed.add(self._frees(unit, outboxes, [every]))
        return [key for keys in freed for key in keys if key != self.start]

    def _packed(self) -> list[Key]:
        """Add the tasks of partitions between workers, with separate tasks for each step of the exchange."""
        start = [self.start] * self.step.ranks
        steps = ExchangeTasks(self.step.schedule, steps_of(self.builder), synchronous=self.step.synchronous)
        freed, written = RoundsAhead(self.step.slabs, start), RoundsAhead(self.step.depth, start)
        for unit in self.units():
            outboxes = self._reads(unit, freed)
            own = [
                self.builder.add(
                    exchange.receive, self.number, unit, 0, rank, name="receive step 0",
                    buffers=(outboxes[rank],), after=[written.before[rank]],
                )
                for rank in self.ranks
            ]  # fmt: skip
            regions = steps.build(self.number, unit, outboxes=outboxes, regions=own)
            writes = self._writes(unit, regions)
            written.add(writes)
            freed.add(self._frees(unit, outboxes, writes))
        return [key for keys in freed for key in keys if key != self.start]

    def _reads(self, unit: int, freed: RoundsAhead[list[Key]]) -> list[Key]:
        add = self.builder.add
        return [add(exchange.read, self.number, unit, rank, after=[freed.before[rank]]) for rank in self.ranks]

    def _writes(self, unit: int, regions: Sequence[Key | None]) -> list[Key]:
        add = self.builder.add
        return [add(tasks.write, self.number, unit, rank, buffers=(regions[rank],)) for rank in self.ranks]

    def _frees(self, unit: int, outboxes: Sequence[Key], after: Sequence[Key]) -> list[Key]:
        add = self.builder.add
        return [
            add(exchange.free, self.number, unit, rank, buffers=(outboxes[rank],), after=after) for rank in self.ranks
        ]
