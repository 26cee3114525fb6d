"""The edges of a graph, read without running it: what each task comes after."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import oocarrays as ooc
from oocarrays.graphs.rechunk.program import Rechunk, rechunk_run
from oocarrays.graphs.run.run import Run
from oocarrays.plan.rechunk.passes import Pass


class Deed(NamedTuple):
    """A task of a graph: what is done, by which rank, and in which pass, partition and step, where it has one."""

    verb: str
    rank: int
    number: Any = None
    """Number of the pass; of a probe, the worker that is asked."""
    unit: int | None = None
    """Number of the partition."""
    stage: int | None = None
    """Number of the step of an exchange."""

    @classmethod
    def of(cls, key: tuple) -> Deed:
        """Return the task under a key, whose last entry is its rank."""
        name, *rest, rank = key
        return cls(name.rpartition("-")[0].split()[0], rank, *rest)


@dataclasses.dataclass(frozen=True)
class Edges:
    """The tasks of a graph, and what each comes after."""

    direct: dict[Deed, frozenset[Deed]]
    before: dict[Deed, set[Deed]]

    @classmethod
    def of(cls, graph: dict) -> Edges:
        short = {key: Deed.of(key) for key in graph}
        direct = {short[key]: frozenset(short[d] for d in task.dependencies) for key, task in graph.items()}
        assert len(direct) == len(graph)
        before: dict[Deed, set[Deed]] = {}
        waiting = list(direct)
        while waiting:
            key = waiting.pop()
            if key in before:
                continue
            missing = [d for d in direct[key] if d not in before]
            if missing:
                waiting += [key, *missing]
            else:
                before[key] = set(direct[key]).union(*(before[d] for d in direct[key]))
        return cls(direct, before)

    def named(self, verb: str) -> list[Deed]:
        """The tasks of a verb in the first pass, by partition, step and rank."""
        found = (each for each in self.direct if each.verb == verb and each.number == 0)
        return sorted(found, key=lambda each: (each.unit, each.stage or 0, each.rank))

    def in_order(self) -> list[Deed]:
        """Every task after those that it comes after."""
        return sorted(self.before, key=lambda key: len(self.before[key]))

    def pairs(self) -> Iterator[tuple[Deed, Deed]]:
        """Every task with each that comes directly after it."""
        return ((former, key) for key, formers in self.direct.items() for former in formers)


def run_of(job: ooc.Job, *passes: Pass, processes: int | None = None) -> Run[Rechunk]:
    """The run of a job whose plan has other passes."""
    program = job._run.program
    plan = dataclasses.replace(program.plan, passes=passes, processes=processes)
    return rechunk_run(plan, program.source, program.target, {})
