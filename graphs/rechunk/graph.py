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

from collections.abc import Iterable, Iterator, Sequence

from dask.task_spec import Task

from oocarrays.graphs.cluster.placement import TOGETHER
from oocarrays.graphs.exchange.messages import Round, arriving_from
from oocarrays.graphs.exchange.whole import whole_round
from oocarrays.graphs.rechunk.tasks import RechunkRun
from oocarrays.graphs.run.builder import Builder, RoundsAhead, new_suffix
from oocarrays.graphs.run.steps import ExchangeTasks, Key, Order
from oocarrays.plan.rechunk.passes import Pass


class GraphBuilder(Builder):
    """Builder of the graph of one run."""

    def __init__(self, run: RechunkRun, suffix: str, addresses: Sequence[str] = ()) -> None:
        super().__init__(suffix, RechunkRun.task, run)
        self.run = run
        self.addresses = addresses

    def build(self, after: Iterable[Key] = ()) -> Key:
        """Add all tasks, the first ones ``after`` others; return the key of the last one."""
        self.run.homes = tuple(self.addresses)
        done = [self.create(self.addresses, after)]
        for number, step in enumerate(self.run.plan.passes):
            start = self.add("start", number, after=done, rank=0)
            done = self._pass(number, step, start) or [start]
        return self.add("finish", after=done, rank=0)

    def _pass(self, number: int, step: Pass, start: Key) -> list[Key]:
        if step.assembled:
            ends = self._chains("assemble", number, step, start)
            return [self.add("name", number, after=ends or [start], rank=0)]
        if step.alone:
            return self._chains("copy", number, step, start)
        if step.whole:
            return self._whole(number, step, start)
        return self._packed(number, step, start) if step.packed else self._two_phase(number, step, start)

    def _chains(self, verb: str, number: int, step: Pass, start: Key) -> list[Key]:
        """Add the batches of each rank as a chain; return the last key of each chain."""
        ends = []
        for rank in range(step.ranks):
            last = None
            for batch in step.batches(rank):
                if (number, batch, rank) not in self.run.done:
                    after = [start] if last is None else []
                    last = self.add(verb, number, batch, rank, buffers=(last,), after=after)
            ends += [] if last is None else [last]
        return ends

    def _two_phase(self, number: int, step: Pass, start: Key) -> list[Key]:
        """Add the tasks of partitions that are exchanged between threads."""
        ranks, order = range(step.ranks), Order(step.ranks)
        nothing: list[Key | None] = [None] * step.ranks
        regions = RoundsAhead[Sequence[Key | None]](step.depth, nothing)
        slabs = RoundsAhead[tuple[Sequence[Key | None], list[list[Key]]]](step.slabs, (nothing, [[start]] * step.ranks))
        for unit in self.run.units(number):
            filled = list(regions.before)
            for turn in range(step.rounds(unit)):
                former, takers = slabs.before
                reads = [
                    self.add("read", number, unit, turn, rank, buffers=(former[rank],), after=takers[rank])
                    for rank in ranks
                ]
                takers = [[] for _ in ranks]
                for stage in range(len(step.schedule) + 1):
                    for source, taker in self._exchange((number, unit, turn), stage, filled, reads, order):
                        takers[source].append(taker)
                slabs.add((reads, takers))
            regions.add([self.add("write", number, unit, rank, buffers=(filled[rank],)) for rank in ranks])
        return [key for keys in regions for key in keys if key is not None]

    def _exchange(
        self, round: Round, stage: int, filled: list[Key | None], reads: Sequence[Key], order: Order
    ) -> Iterator[tuple[int, Key]]:
        """Add one step: each rank copies from its partners, after it has received and been copied from in the step
        before.

        Yield each source rank with the key of the task that copies from it.
        """
        ranks = range(len(reads))
        sources = {rank: partners for rank in ranks if (partners := arriving_from(self.run, round, stage, rank))}
        now = {}
        for rank, partners in sources.items():
            now[rank] = self.add(
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

    def _whole(self, number: int, step: Pass, start: Key) -> list[Key]:
        """Add the tasks of partitions between workers, with one task per rank for the whole exchange."""
        ranks, gone = range(step.ranks), [start] * step.ranks
        freed, written = RoundsAhead(step.slabs, gone), RoundsAhead(step.depth, gone)
        for unit in self.run.units(number):
            outboxes = [self.add("read", number, unit, rank, after=[freed.before[rank]]) for rank in ranks]
            gone = [
                self.add_whole(
                    whole_round, TOGETHER, number, unit, rank,
                    held=outboxes[rank], after={written.before[rank], gone[rank]},
                )
                for rank in ranks
            ]  # fmt: skip
            written.add([self.add("write", number, unit, rank, buffers=(gone[rank],)) for rank in ranks])
            every = self.add("written", number, unit, after=written.last, rank=0)
            freed.add(
                [self.add("free", number, unit, rank, buffers=(outboxes[rank],), after=[every]) for rank in ranks]
            )
        return [key for keys in freed for key in keys if key != start]

    def _packed(self, number: int, step: Pass, start: Key) -> list[Key]:
        """Add the tasks of partitions between workers, with separate tasks for each step of the exchange."""
        ranks = range(step.ranks)
        exchange = ExchangeTasks(step.schedule, self.add, synchronous=step.synchronous)
        freed, written = RoundsAhead(step.slabs, [start] * step.ranks), RoundsAhead(step.depth, [start] * step.ranks)
        for unit in self.run.units(number):
            outboxes = [self.add("read", number, unit, rank, after=[freed.before[rank]]) for rank in ranks]
            own = [
                self.add(
                    "receive", number, unit, 0, rank, name="receive step 0",
                    buffers=(None, outboxes[rank]), after=[written.before[rank]],
                )
                for rank in ranks
            ]  # fmt: skip
            regions = exchange.build(number, unit, outboxes=outboxes, regions=own)
            writes = [self.add("write", number, unit, rank, buffers=(regions[rank],)) for rank in ranks]
            written.add(writes)
            freed.add([self.add("free", number, unit, rank, buffers=(outboxes[rank],), after=writes) for rank in ranks])
        return [key for keys in freed for key in keys if key != start]


def build_graph(run: RechunkRun, addresses: Sequence[str] = ()) -> tuple[dict[Key, Task], Key]:
    """Return the graph of a run and the key of its last task, which returns the name of the target."""
    builder = GraphBuilder(run, new_suffix(), addresses)
    last = builder.build()
    return builder.graph, last
