"""The edges of a graph, read without running it: what each task comes after."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import oocarrays as ooc
from oocarrays.graphs.rechunk.tasks import RechunkRun
from oocarrays.plan.rechunk.passes import Pass


@dataclasses.dataclass(frozen=True)
class Edges:
    """The tasks of a graph by verb and arguments, and what each comes after."""

    direct: dict[tuple, frozenset]
    before: dict[tuple, set]

    @classmethod
    def of(cls, graph: dict) -> Edges:
        short = {key: (key[0].rpartition("-")[0].split()[0], *key[1:]) for key in graph}
        direct = {short[key]: frozenset(short[d] for d in task.dependencies) for key, task in graph.items()}
        assert len(direct) == len(graph)
        before: dict[tuple, set] = {}
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

    def named(self, verb: str, number: int) -> list[tuple]:
        return sorted(key for key in self.direct if key[:2] == (verb, number))

    def in_order(self) -> list[tuple]:
        """Every task after those that it comes after."""
        return sorted(self.before, key=lambda key: len(self.before[key]))

    def pairs(self) -> Iterator[tuple[tuple, tuple]]:
        """Every task with each that comes directly after it."""
        return ((former, key) for key, formers in self.direct.items() for former in formers)


def run_of(job: ooc.RechunkJob, *passes: Pass, processes: int | None = None) -> RechunkRun:
    """The run of a job whose plan has other passes."""
    old = job._run
    plan = dataclasses.replace(old.plan, passes=passes, processes=processes)
    return RechunkRun(plan, old.source, old.destination, {})
