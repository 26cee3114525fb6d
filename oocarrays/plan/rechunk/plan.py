"""The plan of a rechunk: which passes, through which scratch arrays, and why not the others.

    independent, two-phase    source ─────────────────────────► target
    kept                      source ──► target, messages ───► target
    assembled                 source ──► target, piece by piece; where that is not stored plain on this machine
                              source ──► scratch, piece by piece ──► target, chunk by chunk
    staged                    source ──► scratch ──► … ───────► target

A staged plan is a sequence of passes of the same kind. Its scratch arrays are plain Zarr arrays whose chunks lie
between what the source stores and what the target wants, so that both neighbours read and write long runs.
del Rosario, Bordawekar, Choudhary 1993, section 4.1 (access by the conforming layout, then redistribute);
Thakur 1995, section 5.3.2 (the partitioned in-core model).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, pairwise, product
from operator import add
from typing import Any, Literal

from oocarrays.errors import BudgetError, InputError, UnsupportedError
from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div
from oocarrays.plan import shown
from oocarrays.plan.alternative import TAKEN, Alternative, slower, too_large
from oocarrays.plan.cost import Phases, Pipeline, Traffic, pass_seconds
from oocarrays.plan.exchange.ordering import schedules_for, worth_trying
from oocarrays.plan.exchange.schedule import is_auto
from oocarrays.plan.memory import Holding, Memory, largest
from oocarrays.plan.rechunk.assembled import assembled_passes, can_assemble
from oocarrays.plan.rechunk.candidates import (
    BASE_BYTES,
    MAX_TASKS,
    MIB,
    RUNNABLE_TASKS,
    TRAVEL_COPIES,
    Counted,
    Infeasible,
    Problem,
    best_pass,
    counted_passes,
    fits,
)
from oocarrays.plan.rechunk.passes import Method, Pass
from oocarrays.plan.resources import Resources

Strategy = Literal["independent", "two-phase", "kept", "assembled", "staged"]
METHODS: tuple[Strategy, ...] = ("independent", "two-phase", "kept", "assembled", "staged")
STAGES = range(2, 5)
"""Passes of a staged plan."""
ONE_PASS: tuple[Method, ...] = ("independent", "two-phase")
"""How each of them may be done."""
GRAPH_TASK_BYTES = 150
"""Of a task in a graph on its way to a scheduler."""
WORTH_A_PASS = 1.1
"""Each further pass must promise a tenth: it fills and drains its pipeline, and predictions are no better than that."""
ALIKE = 1.05
"""Predicted seconds that differ by less do not decide: of such ways the one that holds least is taken."""
LEAST_SCRATCH_CHUNK = MIB
"""Bytes: scratch is made of few files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RechunkPlan(Holding):
    """Everything that a rechunk will do, before it does anything."""

    source: Stored
    """What is read."""
    target: Stored
    """What is written."""
    budget: int
    """Bytes that each process may hold above its idle level."""
    processes: int | None
    """Workers of the cluster that it is made for; None for threads of one process."""
    strategy: Strategy
    """One of `METHODS`."""
    passes: tuple[Pass, ...]
    """In the order in which they run; none where the array is empty."""
    considered: tuple[Alternative, ...]
    """Every strategy that was looked at."""

    @property
    def ranks(self) -> int:
        """Logical processors."""
        return self.passes[0].ranks if self.passes else 1

    @property
    def memory(self) -> Memory:
        """Held at one time, at most."""
        return largest(*(p.memory for p in self.passes))

    @property
    def seconds(self) -> float:
        """Predicted."""
        return sum(p.seconds for p in self.passes)

    @property
    def phases(self) -> Phases:
        """Predicted seconds of all ranks together, in all passes."""
        return reduce(add, (p.phases for p in self.passes), Phases())

    @property
    def traffic(self) -> Traffic:
        """Count what moves, in all passes together, with the tasks that create, join and finish."""
        travels = 0 if self.processes is None else 1 + self.ranks  # the run, and a probe of each rank's worker
        frame = Traffic(tasks=2 + len(self.passes) + travels)
        return reduce(add, (p.traffic for p in self.passes), frame)

    @property
    def scratch(self) -> tuple[Stored, ...]:
        """The scratch arrays, in the order in which they are written."""
        return tuple(p.target for p in self.passes[:-1])

    @property
    def scratch_bytes(self) -> int:
        """Bytes of disk that scratch takes at one time, at most: a pass holds its source and its target."""
        sizes = [0, *(s.grid.count * s.chunk_bytes for s in self.scratch), 0]
        return max(a + b for a, b in pairwise(sizes)) + sum(p.kept_bytes for p in self.passes)

    @property
    def tasks(self) -> int:
        """Tasks in the graph."""
        return self.traffic.tasks

    @property
    def scheduler_seconds(self) -> float:
        """Predicted seconds that the scheduler of a cluster is busy with the tasks; none where ranks are threads."""
        return sum(p.scheduler_seconds for p in self.passes)

    @property
    def graph_bytes(self) -> int:
        """Bytes of the graph on its way to a scheduler: an estimate; none where ranks are threads."""
        return 0 if self.processes is None else self.tasks * GRAPH_TASK_BYTES

    @property
    def read_bytes(self) -> int:
        """Stored bytes read; an estimate where the source is coded."""
        return self.traffic.read_bytes

    @property
    def read_requests(self) -> int:
        """Calls that read."""
        return self.traffic.read_requests

    @property
    def written_bytes(self) -> int:
        """Stored bytes written; an estimate where the target is coded."""
        return self.traffic.written_bytes

    @property
    def write_requests(self) -> int:
        """Chunks written."""
        return self.traffic.write_requests

    def draw(self) -> Any:
        """A ``matplotlib.figure.Figure``: which rank has which part of source and target, and when; predicted seconds.

        Raises
        ------
        UnsupportedError
            Where matplotlib is not installed.
        """
        return shown.by("draw")(self)

    def _repr_html_(self) -> str:
        html: str = shown.by("html")(self)
        return html

    def __repr__(self) -> str:
        """One line: all fields together would be pages.

        >>> grid = ChunkGrid.of((8, 6), (2, 6))
        >>> rows = Stored(grid=grid, itemsize=4, local=True)
        >>> plan_rechunk(rows, rows, Resources(budget=2**26, ranks=1))
        <oocarrays.RechunkPlan independent, (8, 6) in chunks (2, 6) → (2, 6), ranks 1, passes 1, peak 24.0 of 64.0 MiB>
        """
        source, target = self.source.grid, self.target.grid
        return (
            f"<oocarrays.RechunkPlan {self.strategy}, {source.shape} in chunks {source.chunks} → {target.chunks}, "
            f"ranks {self.ranks}, passes {len(self.passes)}, "
            f"peak {self.peak_bytes / MIB:.1f} of {self.budget / MIB:.1f} MiB>"
        )


def plan_rechunk(
    source: Stored,
    target: Stored,
    resources: Resources,
    *,
    method: Strategy | Literal["auto"] = "auto",
    remote_scratch: bool = False,
) -> RechunkPlan:
    """Choose the cheapest way to rewrite ``source`` in the chunks of ``target`` by the resources that there are.

    Parameters
    ----------
    resources : Resources
        Memory, processors and requests. Where no number of ranks is asked for, what is cheapest of the cores, one and,
        for stores that are not local, twice the cores; on a cluster of one for each worker and one for each of its
        threads.
    method : str
        One of `METHODS`, or ``"auto"``.
    remote_scratch : bool
        Whether scratch arrays are made in a store that is reached over a network.

    Raises
    ------
    BudgetError
        Where nothing fits; it names the least budget that would do.
    InputError
        Where ``method`` or ``ranks`` is not one of those.
    ScheduleError
        Where there is no such schedule, or it takes none of the numbers of ranks.

    Examples
    --------
    >>> rows = Stored(grid=ChunkGrid.of((4096, 4096), (64, 4096)), itemsize=4, local=True)
    >>> columns = Stored(grid=ChunkGrid.of((4096, 4096), (4096, 64)), itemsize=4, local=True)
    >>> plan = plan_rechunk(rows, columns, Resources(budget=2**26, ranks=2))
    >>> plan.strategy, plan.peak_bytes <= 2**26, plan.write_requests
    ('assembled', True, 64)
    """
    _check(method, target, resources, remote_scratch)
    on_threads = resources.workers is None
    may_keep = on_threads and not remote_scratch
    may_assemble = can_assemble(target) or not remote_scratch
    possible = {"kept": may_keep, "assembled": may_assemble}
    strategies = [name for name in METHODS if method in ("auto", name) and possible.get(name, True)]
    schedules = schedules_for(resources.order, _rank_counts(source, target, resources))
    if source.nbytes == 0:
        return nothing_to_move(source, target, resources, strategies[0])
    problems = [
        Problem(
            source=source,
            target=target,
            resources=resources,
            schedule=order,
            any_order=is_auto(resources.order) and not on_threads,
            remote_scratch=remote_scratch,
        )
        for order in schedules
    ]
    found = _look(problems, strategies)
    fitting = [way for way in found if way.passes]
    if not fitting:
        raise BudgetError(resources.budget, _least_feasible(problems, strategies, found))
    best = _best(fitting)
    return RechunkPlan(
        source=source,
        target=target,
        budget=resources.budget,
        processes=resources.workers,
        strategy=best.strategy,
        passes=best.passes,
        considered=(*(_considered(way, best, resources.budget) for way in found), *_left_out(found, strategies)),
    )


def nothing_to_move(
    source: Stored, target: Stored, resources: Resources, strategy: Strategy = "independent"
) -> RechunkPlan:
    """The plan for arrays without elements, and for a target that is written by others."""
    return RechunkPlan(
        source=source,
        target=target,
        budget=resources.budget,
        processes=resources.workers,
        strategy=strategy,
        passes=(),
        considered=(),
    )


def _rank_counts(source: Stored, target: Stored, resources: Resources) -> set[int]:
    """Ranks to look at: who waits for a store leaves its core to another; local files are read ahead."""
    if resources.ranks:
        return {resources.ranks}
    if resources.workers:
        return {resources.workers, resources.workers * resources.threads}
    cores, local = resources.costs.cores, source.local and target.local
    return {cores, 1} if local else {2 * cores, cores, 1}


def _check(method: str, target: Stored, resources: Resources, remote_scratch: bool) -> None:
    if not isinstance(method, str) or method not in (*METHODS, "auto"):
        raise InputError(f"method={method!r} is not one of auto, {', '.join(METHODS)}")
    if method == "kept" and resources.workers is not None:
        raise UnsupportedError("method='kept' works on threads of one process: ask for scheduler='threads'")
    if method == "kept" and remote_scratch:
        raise UnsupportedError("method='kept' appends to files in scratch: give a local folder as scratch=")
    if method == "assembled" and remote_scratch and not can_assemble(target):
        raise UnsupportedError("method='assembled' writes to files in their midst: give a local folder as scratch=")
    ranks = resources.ranks
    if ranks is not None and not (isinstance(ranks, int) and ranks >= 1):
        raise InputError(f"ranks={ranks!r} must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A strategy with a number of passes: the passes, or the least bytes that it would need."""

    strategy: Strategy
    ranks: int
    stages: int
    passes: tuple[Pass, ...] = ()
    least: int = 0

    @property
    def seconds(self) -> float:
        """Predicted."""
        return sum(p.seconds for p in self.passes)

    @property
    def too_many(self) -> bool:
        """Whether it has more tasks than a scheduler gets through."""
        return sum(p.traffic.tasks for p in self.passes) > RUNNABLE_TASKS

    @property
    def peak_bytes(self) -> int:
        """Bytes held at one time, or needed at least."""
        return max((p.peak_bytes for p in self.passes), default=self.least)

    @property
    def name(self) -> str:
        """The strategy, with the number of passes where they are several."""
        return self.strategy if self.stages == 1 else f"{self.strategy}, {self.stages} passes"

    @property
    def reads_once(self) -> bool:
        """Whether every pass visits each stored chunk, or reads each byte of it, once: no more passes can help."""
        return bool(self.passes) and all(
            p.traffic.pieces == p.source.grid.count or p.access != "chunks" for p in self.passes
        )


def _look(problems: Sequence[Problem], strategies: Sequence[Strategy]) -> list[_Way]:
    """Every strategy with every number of ranks."""
    found: list[_Way] = []
    for problem, strategy in product(problems, strategies):
        found += _ways(problem, strategy, found)
    return found


def _least_feasible(problems: Sequence[Problem], strategies: Sequence[Strategy], found: Sequence[_Way]) -> int:
    """A budget that has been tried and is enough, where a MiB less is not: what the smallest way needs."""
    too_little = problems[0].resources.budget
    enough = min(way.least for way in found)
    while not _fits(problems, strategies, enough):
        too_little, enough = enough, enough + enough // 8
    while enough - too_little > MIB:
        middle = (too_little + enough) // 2
        if _fits(problems, strategies, middle):
            enough = middle
        else:
            too_little = middle
    return enough


def _fits(problems: Sequence[Problem], strategies: Sequence[Strategy], budget: int) -> bool:
    """Whether any way fits: the first one that does ends the search."""
    tried = product((replace(p, resources=replace(p.resources, budget=budget)) for p in problems), strategies)
    return any(_fits_so(problem, strategy) for problem, strategy in tried)


def _fits_so(problem: Problem, strategy: Strategy) -> bool:
    if strategy == "assembled":
        return all(fits(leg, _counted(leg, name)) for leg, name in _assembling(problem))
    if strategy != "staged":
        return any(fits(each, _counted(each, strategy)) for each in _ordered(problem, strategy))
    paths = (path for stages in STAGES for path in set(_scratch_paths(problem, stages)))
    return any(
        all(any(fits(leg, _counted(leg, name)) for name in ONE_PASS) for leg in _legs(problem, path)) for path in paths
    )


def _counted(problem: Problem, method: Method) -> Iterator[Counted]:
    """Every pass of a method that is worth a look, counted."""
    return assembled_passes(problem) if method == "assembled" else counted_passes(problem, method)


def _ordered(problem: Problem, strategy: Strategy) -> list[Problem]:
    """The same problem, with every order of the exchange that is worth a look."""
    others = problem.any_order and strategy == "two-phase"
    return [replace(problem, schedule=each) for each in worth_trying(problem.schedule)] if others else [problem]


def _ways(problem: Problem, strategy: Strategy, found: Sequence[_Way]) -> Iterator[_Way]:
    """The best plan of a strategy for each number of passes, until one reads everything once."""
    if strategy == "assembled":
        yield _assembled(problem)
        return
    if strategy != "staged":
        ways = [_single(each, (strategy,)) for each in _ordered(problem, strategy)]
        fitting = [way for way in ways if way.passes]
        yield _best(fitting) if fitting else min(ways, key=lambda way: way.least)
        return
    for stages in STAGES:
        if any(way.reads_once for way in found if way.ranks == problem.ranks):
            return
        if any(way.passes and way.seconds <= _staged_seconds(problem, stages) for way in found):
            return
        way = _staged(problem, stages)
        found = [*found, way]
        yield way


def _single(problem: Problem, methods: Sequence[Method]) -> _Way:
    least, passes = [], []
    for method in methods:
        try:
            passes.append(best_pass(problem, _counted(problem, method)))
        except Infeasible as no:
            least.append(no.least)
    best = sorted(passes, key=lambda p: p.seconds)[:1]
    return _Way(strategy=methods[0], ranks=problem.ranks, stages=1, passes=tuple(best), least=min(least, default=0))


def _assembled(problem: Problem) -> _Way:
    """The cheapest way to assemble the target, or the least bytes where there is none."""
    legs = [_single(leg, (name,)) for leg, name in _assembling(problem)]
    least = max((leg.least for leg in legs if not leg.passes), default=0)
    passes = () if least else tuple(chain.from_iterable(leg.passes for leg in legs))
    return _Way(strategy="assembled", ranks=problem.ranks, stages=len(legs), passes=passes, least=least)


def _assembling(problem: Problem) -> list[tuple[Problem, Method]]:
    """The passes by which a target is assembled: at once, or in scratch, of which each chunk is then made one of it."""
    if can_assemble(problem.target):
        return [(problem, "assembled")]
    between = _scratch_array(problem, problem.target.grid)
    return [(replace(problem, target=between), "assembled"), (replace(problem, source=between), "independent")]


def _staged(problem: Problem, stages: int) -> _Way:
    """The cheapest sequence of ``stages`` passes, or the least bytes where none fits."""
    known: dict[tuple[Stored, Stored], _Way] = {}
    ways = [_along(problem, path, known) for path in sorted(set(_scratch_paths(problem, stages)))]
    fitting = [way for way in ways if way.passes]
    return min(fitting, key=lambda way: way.seconds) if fitting else min(ways, key=lambda way: way.least)


def _staged_seconds(problem: Problem, stages: int) -> float:
    """Bound the seconds of ``stages`` passes from below, whatever their scratch arrays."""
    source, target, costs = problem.source, problem.target, problem.resources.costs
    between = (stages - 1) * source.nbytes
    least = Traffic(
        read_bytes=int(source.nbytes * costs.stored_ratio(source)) + between,
        decoded_bytes=source.nbytes if source.coded else 0,
        copied_bytes=source.nbytes + between,
        encoded_bytes=target.nbytes if target.coded else 0,
        written_bytes=int(target.nbytes * costs.stored_ratio(target)) + between,
    )
    seconds, _ = pass_seconds(
        least,
        costs,
        source,
        target,
        Pipeline(ranks=problem.ranks, turns=MAX_TASKS, workers=problem.resources.on_workers),
    )
    return seconds


def _along(problem: Problem, path: Sequence[tuple[int, ...]], known: dict[tuple[Stored, Stored], _Way]) -> _Way:
    """The best passes through scratch arrays of the chunks in ``path``, or the least bytes where one does not fit.

    Parameters
    ----------
    known : dict
        Legs that have been planned: paths share them.
    """
    way = _Way(strategy="staged", ranks=problem.ranks, stages=len(path) + 1)
    for leg in _legs(problem, path):
        ends = leg.source, leg.target
        if ends not in known:
            known[ends] = _single(leg, ONE_PASS)
        if not known[ends].passes:
            return replace(way, passes=(), least=known[ends].least)
        way = replace(way, passes=way.passes + known[ends].passes)
    return way


def _legs(problem: Problem, path: Sequence[tuple[int, ...]]) -> Iterator[Problem]:
    """One pass after the other, through scratch arrays of such chunks."""
    shape = problem.source.grid.shape
    between = (_scratch_array(problem, ChunkGrid.of(shape, chunks)) for chunks in path)
    for source, target in pairwise((problem.source, *between, problem.target)):
        yield replace(problem, source=source, target=target)


def _scratch_array(problem: Problem, grid: ChunkGrid) -> Stored:
    """A plain array in scratch: local files, or objects that travel."""
    away, size = problem.remote_scratch, grid.chunk_size * problem.source.itemsize
    return Stored(
        grid=grid,
        itemsize=problem.source.itemsize,
        local=not away,
        remote=away,
        travel_bytes=TRAVEL_COPIES * size if away else 0,
        decode_workspace=size if away else 0,
        encode_workspace=size if away else 0,
    )


def _scratch_paths(problem: Problem, stages: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Chunks of the scratch arrays on the way: between a region of the source's chunks and one of the target's.

    With two passes each scratch chunk is the part that both have in common (as in rechunker's algorithm); with
    more, the scratch chunks step from the one to the other in equal ratios.
    """
    room = max((problem.resources.budget - BASE_BYTES) // problem.neighbours, 1)
    shape = problem.source.grid.shape
    for start in _grown(problem.source, room):
        for stop in _grown(problem.target, room):
            if stages == 2:
                yield (at_least(tuple(map(min, start, stop)), shape, problem.source.itemsize),)
                continue
            steps = [i / (stages - 2) for i in range(stages - 1)]
            yield tuple(_between(start, stop, step) for step in steps)


def _between(start: tuple[int, ...], stop: tuple[int, ...], step: float) -> tuple[int, ...]:
    return tuple(max(round(a ** (1 - step) * b**step), 1) for a, b in zip(start, stop, strict=True))


def _grown(stored: Stored, room: int) -> list[tuple[int, ...]]:
    """Boxes of whole chunks of at most a quarter, or half, of ``room`` bytes, grown along one axis first."""
    shape, chunks = stored.grid.shape, stored.grid.chunks
    boxes = set()
    for first in range(len(shape)):
        for divisor in (2, 4):
            box = [min(c, n) for c, n in zip(chunks, shape, strict=True)]
            for axis in (first, *(a for a in reversed(range(len(shape))) if a != first)):
                times = max(room // divisor // (math.prod(box) * stored.itemsize), 1)
                box[axis] = min(box[axis] * times, shape[axis])
            boxes.add(tuple(box))
    return sorted(boxes) or [()]


def at_least(chunk: tuple[int, ...], shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The chunk, lengthened from the last axis until it is no tiny file."""
    box = list(chunk)
    for axis in reversed(range(len(box))):
        missing = ceil_div(LEAST_SCRATCH_CHUNK, math.prod(box) * itemsize)
        box[axis] = min(box[axis] * missing, shape[axis])
    return tuple(box)


def _best(fitting: Sequence[_Way]) -> _Way:
    """The way of least predicted seconds; among those that predictions cannot tell apart, the one that holds least."""
    fewest = min(way.too_many for way in fitting)
    fitting = [way for way in fitting if way.too_many == fewest]
    seconds = {way: way.seconds * WORTH_A_PASS ** (way.stages - 1) for way in fitting}
    least = min(seconds.values())
    return min((way for way in fitting if seconds[way] <= ALIKE * least), key=lambda way: way.peak_bytes)


def _left_out(found: Sequence[_Way], strategies: Sequence[Strategy]) -> Iterator[Alternative]:
    """Staged plans where none was made."""
    if "staged" in strategies and not any(way.strategy == "staged" for way in found):
        best = min((way for way in found if way.passes), key=lambda way: way.seconds)
        reason = "not counted: what it must move at least takes longer than the one taken"
        yield Alternative(name="staged", ranks=best.ranks, seconds=None, peak_bytes=0, reason=reason)


def _considered(way: _Way, best: _Way, budget: int) -> Alternative:
    if not way.passes:
        seconds, reason = None, too_large(way.least, budget)
    else:
        seconds, reason = way.seconds, TAKEN if way is best else _slower(way, best)
    return Alternative(name=way.name, ranks=way.ranks, seconds=seconds, peak_bytes=way.peak_bytes, reason=reason)


def _slower(way: _Way, best: _Way) -> str:
    if way.too_many and not best.too_many:
        return f"{sum(p.traffic.tasks for p in way.passes)} tasks, more than a scheduler gets through"
    if way.seconds >= best.seconds:
        return slower(way.seconds, best.seconds)
    little = "for another pass" if way.stages > best.stages else "for its memory"
    return f"{slower(way.seconds, best.seconds)}, too little {little}"
