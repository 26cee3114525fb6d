"""Iterated stencils: passes over the disk that sweep each slab several times before writing it.

    source ─► k sweeps ─► scratch/0 ─► k sweeps ─► scratch/1 ─► … ─► k sweeps ─► target
                             └── removed when the next one is complete

A pass reads and writes the array once; its k sweeps cost a halo of k · depth, and two slabs sweep the rows of that
halo. Fusing more sweeps reduces disk traffic and increases repeated work: the cost model finds the least sum. Thakur
1995, section 5.4, writes each sweep.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Literal

from oocarrays.errors import BudgetError, InputError, plural
from oocarrays.mapping.given import whole
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.layouts.halo import joined, of_each
from oocarrays.plan.cost import Traffic
from oocarrays.plan.documents import Document
from oocarrays.plan.plan import (
    Alternative,
    Bytes,
    Facts,
    Holding,
    Memory,
    alternative,
    cache_words,
    cheapest,
    largest_memory,
    shared_facts,
)
from oocarrays.plan.slabs.bands import longest
from oocarrays.plan.slabs.cuts import WORKSPACE, best_slabs, seconds
from oocarrays.plan.slabs.options import SlabOptions
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.plan.slabs.sweeps import LARGEST, SMALLER, Sweeps, fitting_tile


@dataclass(frozen=True, slots=True, kw_only=True)
class IteratePlan(Holding):
    """Frozen plan of sweeping an array many times, or several that evolve together."""

    fuse: int
    """Maximum number of sweeps of one pass."""
    passes: tuple[SlabPlan, ...]
    """Passes in order; each reads the output of the previous one."""
    copy: SlabPlan | None
    """Pass that writes the target if the residual is small enough before the last pass; None without a residual
    check."""
    seconds: float
    """Predicted seconds of all passes."""
    alternatives: tuple[Alternative, ...] = field(default=(), compare=False)
    """Every compared number of sweeps of a pass."""

    def facts(self) -> Facts:
        slabs, swept = self.passes[0], self.passes[0].sweeps
        assert swept is not None, "passes of an iteration sweep"
        fields, beside = len(slabs.targets), len(slabs.sources) - len(slabs.targets)
        arrays, them = ("array", "it") if fields == 1 else ("arrays", "them")
        more = f"; {beside} beside {them} are read in each pass" if beside else ""
        return [
            (arrays, (f"{fields} of " if fields > 1 else "", slabs.shape, ", ", Bytes(slabs.target_bytes), more)),
            ("sweeps", (f"{self.sweeps}; depth ", swept.depth, f", boundary {swept.boundary!r}")),
            ("passes", (f"{len(self.passes)}, of {self.fuse} sweeps at most",)),
            ("slabs", (*slabs.cut_fact(), f", {self.ranks} ranks")),
            *([("halo", slabs.reuse_fact())] if len(slabs.cut_axes) > 1 else []),
            ("tiles", (swept.tile, f", {slabs.threads} at one time in a rank")),
            *shared_facts(self, reads="", writes="", scratch=""),
            ("local files", (cache_words(slabs.past_cache),)),
            *shared_facts(self, peak_memory="", predicted=""),
        ]

    @property
    def cut(self) -> Document:
        """Cut of the slabs in the form of options, for repeating it."""
        return {**self.passes[0].cut, "fuse": self.fuse}

    @property
    def sweeps(self) -> int:
        """Maximum number of sweeps in all."""
        return sum(each.sweeps.count for each in self.passes if each.sweeps)

    @property
    def ranks(self) -> int:
        return self.passes[0].ranks

    @property
    def processes(self) -> int:
        return self.passes[0].processes

    @property
    def budget(self) -> int:
        return self.passes[0].budget

    @property
    def traffic(self) -> Traffic:
        return sum((step.traffic * count for step, count in alike(self.passes)), Traffic())

    @property
    def read_bytes(self) -> int:
        return sum(count * each.read_bytes for each, count in alike(self.passes))

    @property
    def written_bytes(self) -> int:
        return sum(each.target_bytes for each in self.passes)

    @property
    def memory(self) -> Memory:
        copy = [(self.copy, 1)] if self.copy else []
        return largest_memory(*(each.memory for each, _ in [*alike(self.passes), *copy]))

    @property
    def scratch_bytes(self) -> int:
        """Peak bytes on disk besides source and target."""
        return min(len(self.passes) - 1, 2) * self.passes[0].target_bytes


def alike(passes: Iterable[SlabPlan]) -> list[tuple[SlabPlan, int]]:
    """Return the distinct passes, each with its number of occurrences: most are the same object."""
    counts = Counter(map(id, passes))
    return [(each, counts[number]) for number, each in {id(each): each for each in passes}.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions(SlabOptions):
    """Options of an iteration."""

    sweeps: int
    """Maximum number of sweeps in all."""
    fuse: int | Literal["auto"] = "auto"
    """Maximum number of sweeps of one pass; ``"auto"``: the number with the least total time."""
    watched: bool = False
    """Whether a residual is checked after each pass: auto then keeps at least 8 passes, if possible."""


def plan_iterate(
    sources: Sequence[Stored],
    scratch: Sequence[Stored],
    targets: Sequence[Stored],
    options: SweepOptions,
    *,
    threads: int = 1,
) -> IteratePlan:
    sweeps, fuse = whole(options.sweeps, "sweeps", 0), options.fuse
    asked = options.checked(options.shape_of(sources))
    if sweeps > 2**31:
        raise InputError(f"sweeps={sweeps!r} is more than can be planned: at most {2**31}")
    if not isinstance(fuse, str):
        fuse = whole(fuse, "fuse", 1)
    elif fuse != "auto":
        raise InputError(f"fuse={fuse!r} must be 'auto' or a whole number, at least 1")
    swept, beside = tuple(sources[: len(targets)]), tuple(sources[len(targets) :])
    pass_of = _Passes(
        sources=swept, scratch=tuple(scratch), targets=tuple(targets), beside=beside, options=asked,
        threads=threads,
    )  # fmt: skip
    each = _candidates(sweeps, max(sweeps // 8, 1) if options.watched else sweeps) if fuse == "auto" else [fuse]
    plans: list[IteratePlan] = []
    for count in each:
        try:
            plans.append(pass_of.plan(sweeps, count))
        except BudgetError:
            if plans:
                break
            raise

    def price(plan: IteratePlan) -> Alternative:
        return alternative(plan, plural(plan.fuse, "sweep") + " a pass", plan.seconds)

    best, alternatives = cheapest(plans, price, 2**62, "these sweeps")
    return replace(best, alternatives=alternatives)


def _candidates(sweeps: int, most: int) -> Iterator[int]:
    """Yield candidate numbers of sweeps of a pass, at most 128: not all of the larger ones."""
    last = 0
    for fuse in range(1, min(max(most, 1), 128) + 1):
        count = ceil_div(sweeps, max(ceil_div(sweeps, fuse), 1))
        if fuse == 1 or (count > last and (count <= 8 or 5 * count >= 6 * last)):
            yield max(count, 1)
            last = count


@dataclass(frozen=True, kw_only=True)
class _Passes:
    """Passes of any number of sweeps from sources or scratch to scratch or the targets."""

    sources: tuple[Stored, ...]
    scratch: tuple[Stored, ...]
    targets: tuple[Stored, ...]
    beside: tuple[Stored, ...]
    options: SweepOptions
    threads: int
    counts: frozenset[int] = frozenset()
    """Numbers of sweeps in the passes."""

    def plan(self, sweeps: int, fuse: int) -> IteratePlan:
        """Return passes with slabs of one shape: the best for the most sweeps, with memory for all others."""
        number = max(ceil_div(sweeps, fuse), 1)
        counts = [sweeps * (i + 1) // number - sweeps * i // number for i in range(number)]  # as even as possible
        among = (*self.sources, *self.scratch, *self.targets) if len(counts) > 1 else ()
        room = replace(self, counts=frozenset(counts), options=replace(self.options, among=among))
        above = self.options.past_cache_above / len(counts)  # the cache receives the writes of all passes
        same = room.options.cut_as(**room._best(max(counts)).cut, past_cache_above=above)

        @cache
        def one(count: int, first: bool, last: bool) -> SlabPlan:
            ends = self.sources if first else self.scratch, self.targets if last else self.scratch
            return room._pass(count, *ends, same)

        passes = tuple(one(n, i == 0, i == len(counts) - 1) for i, n in enumerate(counts))
        return IteratePlan(
            fuse=max(*counts, 1),
            passes=passes,
            copy=one(0, False, True) if self.options.watched and len(passes) > 1 else None,
            seconds=sum(count * each.seconds for each, count in alike(passes)),
        )

    def _best(self, count: int) -> SlabPlan:
        """Return the best pass, doubling the height of its slabs as long as that is faster."""
        best = self._pass(count, self.sources, self.targets, self.options)
        while self.options.height is None and self.options.heights is None and len(best.cut_axes) < 2:
            axis = best.axis
            most = max(best.shape[axis], 1) if best.shared else longest(best.edges[axis])
            if best.height >= most:
                break
            height = 2 * best.height if best.shared else min(2 * best.height, most)
            try:
                taller = replace(self.options, axis=axis, height=height, ranks=best.ranks)
                other = self._pass(count, self.sources, self.targets, taller)
            except BudgetError:
                break
            if other.ranks < best.ranks or other.seconds >= best.seconds:
                break
            best = other
        return best

    def _pass(
        self, count: int, sources: tuple[Stored, ...], targets: tuple[Stored, ...], options: SweepOptions
    ) -> SlabPlan:
        """Return the best pass, trying smaller blocks if large ones do not fit for all threads that sweep together."""
        found, refused = [], []
        for power in (LARGEST, *SMALLER)[: None if self.threads > 1 else 1]:
            try:
                found.append(self._cut(count, sources, targets, options, largest=power))
            except BudgetError as error:
                refused.append(error)
            if found and found[-1].ranks_here * found[-1].threads >= self.threads:
                break
        if not found:
            raise min(refused, key=lambda error: error.least)
        return min(found, key=lambda each: each.seconds)

    def _cut(
        self,
        count: int,
        sources: tuple[Stored, ...],
        targets: tuple[Stored, ...],
        options: SweepOptions,
        threads: int = 1,
        *,
        largest: int,
    ) -> SlabPlan:
        arrays, edge, shape = [*sources, *self.beside], options.boundary, options.shape_of(sources)
        itemsize = sum(each.itemsize for each in arrays)
        assert isinstance(options.depth, tuple), "options have been checked"
        depth, together = options.depth, self.threads > 1

        def fitting(within: tuple[int, ...], n: int) -> tuple[tuple[int, ...], float]:
            return fitting_tile(within, n, depth, itemsize, tiles=threads, largest=largest, together=together)

        def swept(within: tuple[int, ...], n: int = count) -> Sweeps:
            return Sweeps(shape=shape, count=n, depth=depth, boundary=edge, tile=fitting(within, n)[0])

        @cache  # called for every number of ranks, and every way of sharing
        def held(heights: tuple[int, ...]) -> int:
            return threads * max(self._held(swept(heights, n), itemsize) for n in {count, *self.counts})

        def swept_bytes(slabs: SlabPlan) -> float:
            """Return the bytes that one core copies in the time of sweeping a slab, some of its rows twice."""
            axes = {*slabs.cut_axes, slabs.axis}
            halos = (max(count - 1, 0) * depth[axis] / min(slabs.heights[axis], max(shape[axis], 1)) for axis in axes)
            twice: float = math.prod(1 + halo for halo in halos)
            cost = fitting(slabs.heights, max(count, 1))[1]
            return math.prod(slabs.heights) * itemsize * (2 + count * cost * twice * slabs.costs.sweep_copies)

        beyond = joined(tuple("periodic" if each == "periodic" else "none" for each in of_each(edge, len(shape))))
        reach = tuple(count * each for each in depth)
        asked = replace(options, depth=reach, boundary=beyond, workspace=held, cores_only=True)
        if options.halos and sources is not self.sources:  # scratch has none
            asked = replace(asked, halos=((),) * len(sources) + options.halos[len(sources) :])
        slabs, _ = best_slabs(arrays, targets, asked, partial(seconds, copied=swept_bytes, threads=self.threads))
        idle = self.threads // slabs.ranks_here
        if idle > threads == 1:
            with suppress(BudgetError):  # threads that do not fit stay idle
                same = options.cut_as(**slabs.cut)
                return self._cut(count, sources, targets, same, idle, largest=largest)
        took = seconds(slabs, swept_bytes, slabs.ranks * threads)
        return replace(slabs, sweeps=swept(slabs.heights), threads=threads, pass_seconds=took)

    def _held(self, sweeps: Sweeps, itemsize: int) -> int:
        """Return the bytes of buffers, results, residuals, and of the kernel."""
        block, asked = sweeps.block_bytes(itemsize), self.options.workspace
        assert not callable(asked), "callables are made here, of what is asked for"
        multiple = WORKSPACE if asked is None else asked
        kernel = multiple if isinstance(multiple, int) else int(multiple * block)
        return sweeps.held_bytes(itemsize) + (1 + 3 * self.options.watched) * block + kernel
