"""Collective read as tasks.

    between threads    make ─┬─► gather 1 ─┬─► part      an aggregator's share of a round is copied straight into
                       make ─┼─► gather 2 ─┼─► part      the parts of all ranks that want it, then released
                             └─► …         │

    between workers    read 1 ─► message ─╳─► fill 1 ─► finish 2     all messages of a round at one time
                       read 1 ─► keep, send ─╳─► receive ─► …        or by a schedule; meanwhile the next round is read,
                       read 2 ─► …                                   and round k + 2 when round k has been received

    independent        read for itself ─► part

The functions of the tasks are in `oocarrays.graphs.collective.read_tasks`. Thakur 1995, section 6.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oocarrays.graphs.collective import read_tasks as tasks
from oocarrays.graphs.exchange.messages import steps_of
from oocarrays.graphs.run.builder import Builder, RankTasks, RoundsAhead
from oocarrays.graphs.run.run import Run, barrier, call
from oocarrays.graphs.run.steps import ExchangeTasks, Key
from oocarrays.mapping.layouts.local import spread
from oocarrays.mapping.selection import Selection
from oocarrays.plan.collective.read import AHEAD, CollectivePlan
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.meter import Meter


def collective_read(
    file: ArrayFile,
    plan: CollectivePlan,
    workers: Sequence[str],
    meter: Meter | None = None,
    selections: Sequence[Selection] = (),
    **how: Any,
) -> RankTasks:
    """Return the tasks that read each rank's part."""
    run = Run(tasks.Reading(file=file, plan=plan, selections=tuple(selections), **how))
    run.meter = meter or run.meter
    builder = _ReadBuilder(run)
    between_workers = _in_steps if plan.schedule else _at_one_time
    together = between_workers if plan.processes else _between_threads
    keys = tuple((_independent if plan.method == "independent" else together)(builder))
    homes = {builder.suffix: spread(plan.ranks, workers)} if workers else {}
    return RankTasks(suffix=builder.suffix, tasks=builder.graph, keys=keys, homes=homes)


def _independent(builder: _ReadBuilder) -> list[Key]:
    return builder.first(tasks.independent)


def _between_threads(builder: _ReadBuilder) -> list[Key]:
    """Add one task per aggregator and round: threads hold only the memory of the running tasks."""
    ranks = range(builder.plan.ranks)
    parts = builder.first(tasks.make)
    done: list[list[Key]] = [[] for _ in ranks]
    for number, each in enumerate(builder.plan.rounds):
        for source in (rank for rank in ranks if each[rank]):
            wanting = builder.reading.wanting(number, source)
            key = builder.add(tasks.gather, number, source, buffers=tuple(parts[rank] for rank in wanting))
            for rank in wanting:
                done[rank].append(key)
    return [builder.add(tasks.filled, rank, buffers=(parts[rank],), after=done[rank]) for rank in ranks]


def _at_one_time(builder: _ReadBuilder) -> list[Key]:
    """Send all messages of a round at one time: fewest tasks, no order."""
    plan, ranks = builder.plan, range(builder.plan.ranks)
    parts = builder.first(tasks.begin)
    begun = tuple(parts)
    some = np.asarray(plan.read.all_sizes.any(axis=1))
    taken = RoundsAhead[list[list[Key]]](AHEAD, [[] for _ in ranks])
    for number in range(len(plan.rounds)):
        sizes = plan.read.sizes(number)
        packed = builder.reads(number, begun, taken.before)
        now: list[list[Key]] = [[] for _ in ranks]
        for rank in ranks:
            others = [source for source in ranks if source != rank and sizes[source, rank]]
            own = packed[rank] if sizes[rank, rank] else None
            if own is None and not others:
                continue
            came = [builder.add(tasks.message, number, rank, source, buffers=(packed[source],)) for source in others]
            function: Callable[..., Any] = tasks.fill if some[number + 1 :, rank].any() else tasks.finish
            parts[rank] = builder.add(function, number, rank, buffers=(parts[rank], own, *came))
            if number + AHEAD < len(plan.rounds):
                took = builder.add(barrier, number, rank, name="took", after=[parts[rank]])
                for source in (*others, rank):
                    now[source].append(took)
        taken.add(now)
    return [parts[r] if some[:, r].any() else builder.add(tasks.end, r, buffers=(parts[r],)) for r in ranks]


def _in_steps(builder: _ReadBuilder) -> list[Key]:
    """Run one scheduled exchange per round, in sequence."""
    plan, ranks = builder.plan, range(builder.plan.ranks)
    assert plan.schedule is not None, "there are steps"
    exchange = ExchangeTasks(plan.schedule, steps_of(builder))
    parts = builder.first(tasks.begin)
    begun = tuple(parts)
    pad = [None] * (plan.schedule.ranks - plan.ranks)
    taken = RoundsAhead[list[list[Key]]](AHEAD, [[] for _ in ranks])
    for number in range(len(plan.rounds)):
        sizes = plan.read.sizes(number)
        packed = builder.reads(number, begun, taken.before)
        kept = [
            builder.add(tasks.keep, number, r, buffers=(parts[r], packed[r])) if sizes[r, r] else parts[r]
            for r in ranks
        ]
        made = exchange.build(
            number,
            outboxes=[*packed, *pad],
            regions=[*kept, *pad],
            wants=lambda origin, final, sizes=sizes: bool(sizes[origin, final]),  # type: ignore[misc]
        )
        parts = [part for part in made if part is not None]
        taken.add([[*exchange.before(rank), kept[rank]] for rank in ranks])
    return [builder.add(tasks.end, rank, buffers=(parts[rank],)) for rank in ranks]


class _ReadBuilder(Builder):
    """Builder of the tasks of one collective read."""

    def __init__(self, run: Run[tasks.Reading]) -> None:
        super().__init__(run.id, call, run)
        self.share("reading")
        self.reading, self.plan = run.program, run.program.plan

    def first(self, function: Callable[..., Any]) -> list[Key]:
        """Add the first task of each rank, after a version check of all wanted chunks."""
        looked = self.add(tasks.look, rank=0)
        return [self.add(function, rank, buffers=(looked,)) for rank in range(self.plan.ranks)]

    def reads(self, number: int, begun: Sequence[Key], taken: Sequence[Sequence[Key]]) -> list[Key | None]:
        """Add the reads of a round, once an earlier one has been received; own shares go straight into the part."""
        return [
            self.add(tasks.read, number, rank, buffers=(begun[rank],), after=taken[rank]) if boxes else None
            for rank, boxes in enumerate(self.plan.rounds[number])
        ]
