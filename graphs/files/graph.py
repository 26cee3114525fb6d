"""Scattering a global array file into local ones, and gathering them, as tasks.

    create ─► make ──┬─► read ─┬─► write ──┬─► read ─┬─► write ─► close ─► finish     in each round a box of the array,
            (a rank) ├─► read ─┼─► write ──┼─► read ─┼─► write ─► close ─┘            read by all, written by all
                     └─► read ─┴─► write ──┴─► …     ┴─► …
                              exchange: between workers in the schedule's steps, see `steps`

A round waits for the one two before it, so that two are in memory at most; what a rank writes, it writes in the order
of rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from dask.task_spec import Task, TaskRef

from oocarrays.graphs.files.scatter import FilesRun
from oocarrays.graphs.run.builder import Builder, RoundsAhead, new_suffix
from oocarrays.graphs.run.steps import ExchangeTasks, Key, Taking
from oocarrays.graphs.run.work import Work
from oocarrays.plan.files.scatter import UNDER_WAY


def build_graph(run: FilesRun, addresses: Sequence[str] = ()) -> tuple[dict[Key, Task], Key]:
    """The graph of a run, and the key of its last task, whose value is the name of the target."""
    builder = _FilesBuilder(run, addresses)
    last = builder.build()
    return builder.graph, last


class _FilesBuilder(Builder):
    """Adds the tasks of one run."""

    def __init__(self, run: FilesRun, addresses: Sequence[str]) -> None:
        super().__init__(new_suffix(), Work.task, run)
        self.plan = run.plan
        if addresses:
            self.share("run")
        created = self.add("create", rank=0)
        self._shared = TaskRef(created) if addresses else run
        self._ranks = range(run.plan.ranks)
        self._made = [self.add("make", rank, after=[created]) for rank in self._ranks]

    def build(self) -> Key:
        """Add every task; returns the key of the last one."""
        exchange = ExchangeTasks(self.plan.schedule, self.add) if self.plan.processes else Taking()
        written = RoundsAhead(UNDER_WAY, self._made)
        for number in range(len(self.plan.rounds)):
            read = [self.add("read", number, rank, after=written.before) for rank in self._ranks]
            sends = self._sends(number)
            inputs = exchange.inputs(number, held=read, wants=lambda a, b, sends=sends: b in sends[a])  # type: ignore[misc]
            written.add(
                [
                    self.add("write", number, rank, buffers=inputs[rank], after=[written.last[rank]])
                    for rank in self._ranks
                ]
            )  # fmt: skip
        closed = [self.add("close", rank, after=[written.last[rank]]) for rank in self._ranks]
        return self.add("finish", after=closed, rank=0)

    def _sends(self, number: int) -> list[set[int]]:
        """For whom each rank has something in a round."""
        has = [self.plan.receivers(domain) for domain in self.plan.domains(number)]
        if self.plan.way == "scatter":
            return has
        return [{domain for domain, ranks in enumerate(has) if rank in ranks} for rank in self._ranks]
