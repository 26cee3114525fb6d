"""Plan of a rechunk: its passes, its scratch arrays, and the rejected alternatives.

    independent, two-phase    source ─────────────────────────► target
    assembled                 source ──► target, piece by piece; or, if that is not stored plain on this machine,
                              source ──► scratch, piece by piece ──► target, chunk by chunk
    staged                    source ──► scratch ──► … ───────► target

A staged plan is a sequence of independent or two-phase passes. Its scratch arrays are plain Zarr arrays with chunks
between those of the source and the target, so that both neighbours read and write long runs.
del Rosario, Bordawekar, Choudhary 1993, section 4.1 (access by the conforming layout, then redistribute);
Thakur 1995, section 5.3.2 (the partitioned in-core model).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from operator import add
from pkgutil import resolve_name
from typing import Any, Literal

from oocarrays.errors import BudgetError, InputError, UnsupportedError
from oocarrays.mapping.grid import Stored
from oocarrays.mapping.section import Section
from oocarrays.plan.cost import Phases, Traffic
from oocarrays.plan.exchange.ordering import schedules_for
from oocarrays.plan.exchange.schedule import is_auto
from oocarrays.plan.plan import (
    Alternative,
    Facts,
    Holding,
    Memory,
    Resources,
    estimate,
    largest_memory,
    shared_facts,
)
from oocarrays.plan.rechunk.passes import Pass, Problem
from oocarrays.plan.rechunk.ways import METHODS, Strategy, alternative, best_of, least_feasible, left_out, look


@dataclass(frozen=True, slots=True, kw_only=True)
class RechunkPlan(Holding):
    """Frozen plan of a rechunk."""

    source: Stored
    """Array to read."""
    target: Stored
    """Array to write."""
    budget: int
    """Bytes that each process may hold above its idle level."""
    processes: int | None
    """Workers of the target cluster; None for threads of one process."""
    strategy: Strategy = field(default="independent", metadata={"before": {"kept": "two-phase"}})
    """One of `METHODS`."""
    passes: tuple[Pass, ...] = ()
    """Passes in the order of running; empty if nothing has to move."""
    alternatives: tuple[Alternative, ...] = field(default=(), metadata={"json": "considered"})
    """Every strategy that was compared."""

    def facts(self) -> Facts:
        about = estimate(self.source.coded, self.target.coded)
        workers = "workers", (f"{self.processes}, {self.ranks} ranks",)
        return [
            *([workers] if self.processes else []),
            ("strategy", (self.strategy if self.passes else "nothing to move",)),
            ("chunks", (self.source.grid.chunks, " → ", self.target.grid.chunks)),
            *((f"pass {number}", step.fact()) for number, step in enumerate(self.passes, 1)),
            *shared_facts(self, reads=about, decodes="", writes=about, messages="", scratch="", tasks=""),
            *shared_facts(self, peak_memory=None, predicted=""),
        ]

    def parts(self) -> Iterator[tuple[int, ...]]:
        for number, step in enumerate(self.passes):
            yield from step.parts(number)

    def sections(self, part: tuple[int, ...]) -> dict[str, Sequence[Section]]:
        """Return the elements that a part writes, by the name of its location."""
        return {self.place_name(part[0]): self.passes[part[0]].sections(*part[1:])}

    def place_name(self, number: int = 0) -> str:
        """Return the name of the location that a pass writes: its number for scratch, empty for the target."""
        return str(number) if number < len(self.passes) - 1 else ""

    @property
    def ranks(self) -> int:
        """Number of logical processors; the maximum of several passes."""
        return max((step.ranks for step in self.passes), default=1)

    @property
    def memory(self) -> Memory:
        return largest_memory(*(p.memory for p in self.passes))

    @property
    def seconds(self) -> float:
        return sum(p.seconds for p in self.passes)

    @property
    def phases(self) -> Phases:
        return reduce(add, (p.phases for p in self.passes), Phases())

    @property
    def traffic(self) -> Traffic:
        """Traffic of all passes together, including the tasks that create, join and finish."""
        travels = 0 if self.processes is None else 1 + self.ranks  # the run, and a probe of each rank's worker
        frame = Traffic(tasks=2 + len(self.passes) + travels)
        return reduce(add, (p.traffic for p in self.passes), frame)

    @property
    def times_decoded(self) -> float:
        """Average number of times a coded source is decoded; 0 if it is not coded."""
        decoded = self.passes[0].traffic.decoded_bytes if self.passes and self.source.coded else 0
        return decoded / max(self.source.padded_bytes, 1)

    @property
    def scratch(self) -> tuple[Stored, ...]:
        return tuple(p.target for p in self.passes[:-1])

    @property
    def scratch_is_cached(self) -> bool:
        return any(stored.cached for stored in self.scratch)

    @property
    def scratch_bytes(self) -> int:
        """Peak bytes of scratch on disk: a pass holds its source and its target."""
        sizes = [0, *(s.grid.count * s.chunk_bytes for s in self.scratch), 0]
        return max(a + b for a, b in pairwise(sizes))

    @property
    def tasks(self) -> int:
        return self.traffic.tasks

    @property
    def scheduler_seconds(self) -> float:
        """Predicted seconds that the scheduler of a cluster is busy with the tasks; 0 if ranks are threads."""
        return sum(p.scheduler_seconds for p in self.passes)

    @property
    def graph_bytes(self) -> int:
        """Bytes of the graph sent to a scheduler, an estimate: 150 a task; 0 if ranks are threads."""
        return 0 if self.processes is None else self.tasks * 150

    @property
    def read_bytes(self) -> int:
        """Stored bytes read; an estimate if the source is coded."""
        return self.traffic.read_bytes

    @property
    def read_requests(self) -> int:
        """Calls that read."""
        return self.traffic.read_requests

    @property
    def written_bytes(self) -> int:
        """Stored bytes written; an estimate if the target is coded."""
        return self.traffic.written_bytes

    @property
    def write_requests(self) -> int:
        """Chunks written."""
        return self.traffic.write_requests

    def draw(self) -> Any:
        """Return a ``matplotlib.figure.Figure``: each rank's parts of source and target over time."""
        return resolve_name("oocarrays.show.pictures:load_picture")().draw(self)  # a layer above

    def _repr_html_(self) -> str:
        return resolve_name("oocarrays.show.notebook:plan_html")(self)

    def __repr__(self) -> str:
        source, target = self.source.grid, self.target.grid
        return (
            f"<oocarrays.RechunkPlan {self.strategy}, {source.shape} in chunks {source.chunks} → {target.chunks}, "
            f"ranks {self.ranks}, passes {len(self.passes)}, {self.peak_text}>"
        )


def plan_rechunk(
    source: Stored,
    target: Stored,
    resources: Resources,
    *,
    method: Strategy | Literal["auto"] = "auto",
    remote_scratch: bool = False,
) -> RechunkPlan:
    """Choose the cheapest way to rewrite ``source`` in the chunks of ``target`` with the given resources."""
    _check(method, target, resources, remote_scratch)
    may_assemble = target.in_place or not remote_scratch
    strategies = [name for name in METHODS if method in ("auto", name) and (may_assemble or name != "assembled")]
    schedules = schedules_for(resources.schedule, _rank_counts(resources))
    plan = RechunkPlan(source=source, target=target, budget=resources.budget, processes=resources.workers)
    if source.nbytes == 0:
        return replace(plan, strategy=strategies[0])
    problems = [
        Problem(
            source=source,
            target=target,
            resources=resources,
            schedule=order,
            any_order=is_auto(resources.schedule) and resources.on_workers,
            remote_scratch=remote_scratch,
        )
        for order in schedules
    ]
    found = look(problems, strategies)
    fitting = [way for way in found if way.passes]
    if not fitting:
        raise BudgetError(resources.budget, least_feasible(problems, strategies, found))
    best = best_of(fitting)
    ways = (*(alternative(way, best, resources.budget) for way in found), *left_out(found, strategies))
    return replace(plan, strategy=best.strategy, passes=best.passes, alternatives=ways)


def _rank_counts(resources: Resources) -> set[int]:
    """Return candidates: a rank that waits leaves its core to another; many short calls compete for the interpreter."""
    if resources.ranks:
        return {resources.ranks}
    cores = resources.costs.cores
    if resources.workers:
        few = {2 * cores, cores} if resources.workers > 2 * cores else {resources.workers // 8}
        every = {resources.workers, resources.workers * resources.threads}
        return every | {count for count in few if 2 <= count < resources.workers}
    return {2 * cores, cores, max(cores // 2, 1), 1}


def _check(method: str, target: Stored, resources: Resources, remote_scratch: bool) -> None:
    if method == "kept":
        raise InputError("method='kept' was removed: method='assembled' also reads each chunk once, in less memory")
    if not isinstance(method, str) or method not in (*METHODS, "auto"):
        raise InputError(f"method={method!r} is not one of auto, {', '.join(METHODS)}")
    if method == "assembled" and remote_scratch and not target.in_place:
        raise UnsupportedError("method='assembled' needs random writes: pass a local folder as scratch=")
