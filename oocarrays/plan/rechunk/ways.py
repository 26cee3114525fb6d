"""Ways to rechunk: every strategy with its passes, or its minimum bytes; and the choice among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from typing import Literal

from oocarrays.limits import STAGES
from oocarrays.mapping.grid import Stored
from oocarrays.plan.cost import RANKS_A_CORE, Pipeline, Traffic, pass_seconds
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.plan import MIB, TAKEN, Alternative, least, slower, too_large
from oocarrays.plan.rechunk.assembled import assembled_passes
from oocarrays.plan.rechunk.candidates import best_pass, legs, scratch_array, scratch_paths, shapes
from oocarrays.plan.rechunk.counting import MAX_TASKS, RUNNABLE_TASKS, Counted, count_pass
from oocarrays.plan.rechunk.passes import Method, Pass, Problem

Strategy = Literal["independent", "two-phase", "assembled", "staged"]
METHODS: tuple[Strategy, ...] = ("independent", "two-phase", "assembled", "staged")
ONE_PASS: tuple[Method, ...] = ("independent", "two-phase")
"""Methods of each pass of a staged plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Strategy with a number of passes: the passes, or its minimum bytes."""

    strategy: Strategy
    ranks: int
    stages: int
    passes: tuple[Pass, ...] = ()
    least: int = 0

    @property
    def seconds(self) -> float:
        return sum(p.seconds for p in self.passes)

    @property
    def tasks(self) -> int:
        return sum(p.traffic.tasks for p in self.passes)

    @property
    def too_many(self) -> bool:
        return self.tasks > RUNNABLE_TASKS

    @property
    def peak_bytes(self) -> int:
        """Peak bytes, or the minimum required bytes."""
        return max((p.peak_bytes for p in self.passes), default=self.least)

    @property
    def name(self) -> str:
        return self.strategy if self.stages == 1 else f"{self.strategy}, {self.stages} passes"

    @property
    def reads_once(self) -> bool:
        """Whether every pass visits each stored chunk, or reads each byte of it, once: no more passes can help."""
        return bool(self.passes) and all(
            p.traffic.pieces == p.source.grid.count or p.access != "chunks" for p in self.passes
        )


def look(problems: Sequence[Problem], strategies: Sequence[Strategy]) -> list[Way]:
    """Return every strategy with all numbers of ranks, staged ones last; crowded ranks only if nothing else fits."""
    every, found = sorted(product(problems, strategies), key=lambda each: each[1] == "staged"), list[Way]()
    for crowded in (False, True):
        for problem, strategy in (each for each in every if _is_crowded(*each) == crowded):
            if strategy != "staged" or _may_stage(problem, strategies) or any(way.passes for way in found):
                fewer = () if problem.resources.on_workers else [p for p in problems if p.ranks < problem.ranks]
                found += _ways(problem, strategy, found, fewer)
        if any(way.passes for way in found):
            break
    return found


def _may_stage(problem: Problem, strategies: Sequence[Strategy]) -> bool:
    """Return whether to try staged plans alone: with over three axes they are too many, and need no less memory."""
    return "assembled" not in strategies or len(problem.source.grid.shape) <= 3


def _is_crowded(problem: Problem, strategy: Strategy) -> bool:
    """Return whether ranks are too many for the cores: local files are read ahead; workers also await the scheduler."""
    resources = problem.resources
    if resources.ranks or not (problem.source.local and problem.target.local):
        return False
    waits = strategy == "assembled" or resources.on_workers
    return problem.ranks > resources.costs.cores * (RANKS_A_CORE if waits else 1)


def least_feasible(problems: Sequence[Problem], strategies: Sequence[Strategy], found: Sequence[Way]) -> int:
    """Return a budget that is sufficient while one byte less is not; fewer ranks mostly need less."""
    strategies = [name for name in strategies if name != "staged" or _may_stage(problems[0], strategies)]
    few = min(problem.ranks for problem in problems)
    fewest = [each for each in problems if each.ranks == few or each.resources.on_workers]
    too_little = problems[0].resources.budget
    enough = min(way.least for way in found)
    while not _fits(fewest, strategies, enough):
        too_little, enough = enough, enough + enough // 8
    if not _fits(problems, strategies, enough - 1):
        return enough
    enough = least(partial(_fits, fewest, strategies), too_little, enough, within=MIB)
    return _to_the_byte(problems, strategies, enough)


def _to_the_byte(problems: Sequence[Problem], strategies: Sequence[Strategy], enough: int) -> int:
    """Lower a sufficient budget to the byte; the compared ways depend on it, so that its own peak may not suffice."""
    needed = _needed(problems, strategies, enough - 1)
    while needed < enough and _fits(problems, strategies, needed):
        enough, needed = needed, _needed(problems, strategies, needed - 1)
    if needed >= enough:
        return enough
    return least(partial(_fits, problems, strategies), needed, enough)


def _needed(problems: Sequence[Problem], strategies: Sequence[Strategy], budget: int) -> int:
    return min(_needs(*each) for each in _tried(problems, strategies, budget))


def _needs(problem: Problem, strategy: Strategy, enough: int = 0) -> int:
    """Return the minimum bytes of a strategy; a way that needs at most ``enough`` ends the search."""
    if strategy == "assembled":
        return max(_smallest([leg], (name,), enough) for leg, name in _assembling(problem))
    if strategy != "staged":
        return _smallest(_ordered(problem, strategy), (strategy,), enough)
    least = 2**62
    for path in chain.from_iterable(scratch_paths(problem, stages) for stages in STAGES):
        needed = 0
        for leg in legs(problem, path):
            if needed < (enough + 1 if enough else least):  # else this path needs too much, or another one less
                needed = max(needed, _smallest([leg], ONE_PASS, enough))
        least = min(least, needed)
        if least <= enough:
            break
    return least


def _smallest(problems: Sequence[Problem], methods: Sequence[Method], enough: int) -> int:
    """Return the minimum bytes of a pass; one that needs at most ``enough`` ends the search."""
    least = 2**62
    for counted in (each for problem, name in product(problems, methods) for each in _counted(problem, name)):
        least = min(least, counted.peak_bytes)
        if least <= enough:
            break
    return least


def _tried(
    problems: Sequence[Problem], strategies: Sequence[Strategy], budget: int
) -> Iterator[tuple[Problem, Strategy]]:
    return product((replace(p, resources=replace(p.resources, budget=budget)) for p in problems), strategies)


def _fits(problems: Sequence[Problem], strategies: Sequence[Strategy], budget: int) -> bool:
    return any(_needs(*each, budget) <= budget for each in _tried(problems, strategies, budget))


def _counted(problem: Problem, method: Method) -> Iterator[Counted]:
    if method == "assembled":
        return assembled_passes(problem)
    return (count_pass(problem, shape) for shape in shapes(problem, method))


def _ordered(problem: Problem, strategy: Strategy) -> list[Problem]:
    """Return the problem with its schedule, and with that of the fewest steps: direct ones take equal time."""
    ranks = problem.ranks
    if problem.any_order and strategy == "two-phase" and ranks > 2 and ranks & (ranks - 1) == 0:
        return [problem, replace(problem, schedule=Schedule.of("REX", ranks))]
    return [problem]


def _ways(problem: Problem, strategy: Strategy, found: Sequence[Way], fewer: Sequence[Problem] = ()) -> Iterator[Way]:
    """Yield the best plan of a strategy for each number of passes, until one reads everything once."""
    if strategy == "assembled":
        yield _assembled(problem, fewer)
        return
    if strategy != "staged":
        ways = [_single(each, (strategy,)) for each in _ordered(problem, strategy)]
        fitting = [way for way in ways if way.passes]
        yield best_of(fitting) if fitting else min(ways, key=lambda way: way.least)
        return
    for stages in STAGES:
        if any(way.reads_once for way in found if way.ranks == problem.ranks):
            return
        if any(way.passes and way.seconds <= _staged_seconds(problem, stages) for way in found):
            return
        way = _staged(problem, stages)
        found = [*found, way]
        yield way


def _single(problem: Problem, methods: Sequence[Method]) -> Way:
    found = [best_pass(problem, _counted(problem, method)) for method in methods]
    passes = sorted((each for each in found if isinstance(each, Pass)), key=lambda step: step.seconds)
    needed = min((each for each in found if isinstance(each, int)), default=0)
    return Way(strategy=methods[0], ranks=problem.ranks, stages=1, passes=tuple(passes[:1]), least=needed)


def _assembled(problem: Problem, fewer: Sequence[Problem] = ()) -> Way:
    """Return the cheapest way to assemble the target, or the minimum bytes if none fits."""
    parts = [_single(leg, (name,)) for leg, name in _assembling(problem)]
    for place, part in enumerate(parts):
        if not part.passes and len(parts) > 1:
            others = (_single(leg, (name,)) for leg, name in (_assembling(other)[place] for other in fewer))
            parts[place] = min((way for way in others if way.passes), key=lambda way: way.seconds, default=part)
    least = max((leg.least for leg in parts if not leg.passes), default=0)
    passes = () if least else tuple(chain.from_iterable(leg.passes for leg in parts))
    return Way(strategy="assembled", ranks=problem.ranks, stages=len(parts), passes=passes, least=least)


def _assembling(problem: Problem) -> list[tuple[Problem, Method]]:
    """Return the passes that assemble a target: one pass, or one into scratch and one from scratch to the target."""
    if problem.target.in_place:
        return [(problem, "assembled")]
    between = scratch_array(problem, problem.target.grid)
    return [(replace(problem, target=between), "assembled"), (replace(problem, source=between), "independent")]


def _staged(problem: Problem, stages: int) -> Way:
    """Return the cheapest sequence of ``stages`` passes, or the minimum bytes if none fits."""
    known: dict[tuple[Stored, Stored], Way] = {}
    ways = [_along(problem, path, known) for path in scratch_paths(problem, stages)]
    fitting = [way for way in ways if way.passes]
    return min(fitting, key=lambda way: way.seconds) if fitting else min(ways, key=lambda way: way.least)


def _staged_seconds(problem: Problem, stages: int) -> float:
    """Return a lower bound for the seconds of ``stages`` passes with any scratch arrays."""
    source, target, costs = problem.source, problem.target, problem.resources.costs
    cached = scratch_array(problem, source.grid).cached
    between = 0 if cached else (stages - 1) * source.nbytes
    least = Traffic(
        read_bytes=int(source.nbytes * costs.stored_ratio(source)) + between,
        decoded_bytes=source.nbytes if source.coded else 0,
        copied_bytes=source.nbytes + between,
        encoded_bytes=target.nbytes if target.coded else 0,
        written_bytes=int(target.nbytes * costs.stored_ratio(target)) + between,
    )
    pipeline = Pipeline(ranks=problem.ranks, turns=MAX_TASKS, workers=problem.resources.on_workers)
    return pass_seconds(least, costs, source, target, pipeline)[0]


def _along(problem: Problem, path: Sequence[tuple[int, ...]], known: dict[tuple[Stored, Stored], Way]) -> Way:
    """Return the best passes through scratch arrays with these chunks, or the minimum bytes of one too large."""
    way = Way(strategy="staged", ranks=problem.ranks, stages=len(path) + 1)
    for leg in legs(problem, path):
        ends = leg.source, leg.target
        if ends not in known:
            known[ends] = _single(leg, ONE_PASS)
        if not known[ends].passes:
            return replace(way, passes=(), least=known[ends].least)
        way = replace(way, passes=way.passes + known[ends].passes)
    return way


def best_of(fitting: Sequence[Way]) -> Way:
    """Return the way with the least predicted seconds.

    A further pass must gain a tenth, because it fills and drains its pipeline, and predictions are no better; a graph
    with noticeable overhead must gain a quarter. Among ways within a twentieth, prefer a small graph, or the smallest
    of large ones, then the least memory.
    """
    fewest = min(way.too_many for way in fitting)
    fitting = [way for way in fitting if way.too_many == fewest]
    worth = {way: 1.25 if way.tasks > MAX_TASKS else 1.0 for way in fitting}
    seconds = {way: way.seconds * worth[way] * 1.1 ** (way.stages - 1) for way in fitting}
    least = min(seconds.values())
    alike = [way for way in fitting if seconds[way] <= 1.05 * least]
    return min(alike, key=lambda way: (max(way.tasks, MAX_TASKS), way.peak_bytes))


def left_out(found: Sequence[Way], strategies: Sequence[Strategy]) -> Iterator[Alternative]:
    """Yield an alternative for staged plans if none was made."""
    if "staged" in strategies and not any(way.strategy == "staged" for way in found):
        best = min((way for way in found if way.passes), key=lambda way: way.seconds)
        reason = "not counted: what it must move at least takes longer than the one taken"
        yield Alternative(name="staged", ranks=best.ranks, seconds=None, peak_bytes=0, reason=reason)


def alternative(way: Way, best: Way, budget: int) -> Alternative:
    seconds = way.seconds if way.passes else None
    reason = TAKEN if way is best else _slower(way, best) if way.passes else too_large(way.least, budget)
    return Alternative(name=way.name, ranks=way.ranks, seconds=seconds, peak_bytes=way.peak_bytes, reason=reason)


def _slower(way: Way, best: Way) -> str:
    if way.too_many and not best.too_many:
        return f"{way.tasks} tasks, more than a scheduler gets through"
    if way.seconds >= best.seconds:
        return slower(way.seconds, best.seconds)
    little = "for another pass" if way.stages > best.stages else "for its memory"
    return f"{slower(way.seconds, best.seconds)}, too little {little}"
