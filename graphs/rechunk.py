"""A rechunk plan as a Dask graph.

    create ─► start pass ─┬─► copy ─► copy ─► copy ──┬─► start next pass ─► … ─► finish   independent: a chain a rank
                          └─► copy ─► copy ──────────┘

    read ──┬─► exchange step 0 ─► step 1 ─► … ─► write        two-phase: in each round of a partition every rank reads
    read ──┴─► exchange step 0 ─► step 1 ─► … ─► write        its slab, then takes from one partner a step

    kept: as above for the first partition, whose exchange keeps messages for the others; then

    take ─► write ─► take ─► write …                            each rank's own messages, in their order

Every edge carries the buffer that the next task fills, or says that a slab has been taken. That bounds memory: a
rank never holds more than ``slabs`` slabs and ``depth`` regions, whatever the scheduler's mood.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from dask.task_spec import Task, TaskRef
from oocarrays.graphs.rechunk_tasks import RechunkRun

from oocarrays.plan.passes import Pass

Key = tuple[Any, ...]


class GraphBuilder:
    """Builds the graph of one run."""

    def __init__(self, run: RechunkRun) -> None:
        self.run = run
        self.graph: dict[Key, Task] = {}

    def build(self) -> Key:
        """Add every task; returns the key of the last one."""
        done = [self._add("create")]
        for number, step in enumerate(self.run.plan.passes):
            start = self._add("start", number, after=done)
            add_pass = self._independent if step.method == "independent" else self._two_phase
            done = add_pass(number, step, start)
        return self._add("finish", after=done)

    def _add(self, verb: str, *args: Any, name: str = "", buffers: tuple = (), after: list[Key] = []) -> Key:  # noqa: B006
        """Add a task: a method of the run, with plain arguments, then what it takes over, then what it waits for."""
        key = (f"{name or verb}-{self.run.id}", *args)
        taken = [None if b is None else TaskRef(b) for b in buffers]
        self.graph[key] = Task(key, RechunkRun.task, self.run, verb, args, len(taken), *taken, *map(TaskRef, after))
        return key

    def _independent(self, number: int, step: Pass, start: Key) -> list[Key]:
        ends = []
        for rank in range(step.ranks):
            last = None
            for batch in range(len(self.run.batches[number][rank])):
                after = [start] if last is None else []
                last = self._add("copy", number, rank, batch, buffers=(last,), after=after)
            ends += [] if last is None else [last]
        return ends

    def _two_phase(self, number: int, step: Pass, start: Key) -> list[Key]:
        ranks, schedule = range(step.ranks), step.schedule
        regions: deque[Sequence[Key | None]] = deque([[None] * step.ranks] * step.depth)
        slabs: deque[tuple[list[Key | None], list[list[Key]]]] = deque(
            [([None] * step.ranks, [[start]] * step.ranks)] * step.slabs
        )
        former_step: list[set[Key]] = [set() for _ in ranks]
        keepers: Sequence[Key | None] = []
        for unit in range(step.units):
            filled = regions.popleft()
            for turn in range(step.rounds(unit)):
                former, takers = slabs.popleft()
                reads = [
                    self._add("read", number, unit, turn, rank, buffers=(former[rank],), after=takers[rank])
                    for rank in ranks
                ]
                takers = [[] for _ in ranks]
                for stage, sources in enumerate(schedule.sources):
                    filled = now = self._exchange(number, unit, turn, stage, sources, filled, reads, former_step)
                    for rank, source in enumerate(sources):
                        takers[source].append(now[rank])
                    former_step = [{now[rank], now[sources.index(rank)]} for rank in ranks]
                slabs.append((list(reads), takers))
            if unit == 0:
                keepers = filled
            elif step.kept:
                filled = self._take(number, unit, filled, keepers)
            regions.append([self._add("write", number, unit, rank, buffers=(filled[rank],)) for rank in ranks])
        return [key for keys in regions for key in keys if key is not None]

    def _take(self, number: int, unit: int, filled: Sequence[Key | None], keepers: Sequence[Key | None]) -> list[Key]:
        """Every rank takes what it kept for a partition, once it has kept it all."""
        return [
            self._add("take", number, unit, rank, buffers=(buffer,), after=[keeper] if keeper and not buffer else [])
            for rank, (buffer, keeper) in enumerate(zip(filled, keepers, strict=True))
        ]

    def _exchange(
        self,
        number: int,
        unit: int,
        turn: int,
        stage: int,
        sources: tuple[int, ...],
        filled: Sequence[Key | None],
        reads: list[Key],
        former_step: list[set[Key]],
    ) -> list[Key]:
        """One step: every rank takes from its partner, once it has received and been taken from in the step before."""
        return [
            self._add(
                "exchange",
                number,
                unit,
                turn,
                stage,
                rank,
                name=f"exchange step {stage}",
                buffers=(filled[rank], reads[source]),
                after=sorted(former_step[rank] - {filled[rank]}),
            )
            for rank, source in enumerate(sources)
        ]


def build_graph(run: RechunkRun) -> tuple[dict[Key, Task], Key]:
    """The graph of a run, and the key of its last task, whose value is the name of the target."""
    builder = GraphBuilder(run)
    last = builder.build()
    return builder.graph, last
