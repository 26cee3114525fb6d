"""Choice of slabs: axis, height and number of ranks; if none fits, windows cut along several axes.

    chunks of sources    │   │   │   │   │   │   │        a slab is whole chunks of all arrays
    chunks of targets    │     │     │     │     │
    slabs                │           │           │        as tall as the memory of a rank allows

Thakur 1995, section 5.4: the memory of a process, divided among its slabs, determines their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.plan.plan import alternative
from oocarrays.plan.search import largest
from oocarrays.plan.slabs.bands import Way
from oocarrays.plan.slabs.blocks import seconds, shapes, ways_of
from oocarrays.plan.slabs.geometry import gathered_bytes, units
from oocarrays.plan.slabs.options import Edges, SlabOptions
from oocarrays.plan.slabs.plan import SlabPlan

WORKSPACE = 2.0
"""Assumed workspace of a kernel besides its blocks and results, in multiples of its blocks."""

Price = Callable[[SlabPlan], float]
"""Seconds of a plan, for comparing plans."""


def plan_slabs(sources: Sequence[Stored], targets: Sequence[Stored], options: SlabOptions) -> SlabPlan:
    """Choose the axis and the height of slabs, cut on chunk boundaries of sources and targets, within a budget.

    If none fits, and no axis or height is requested, slabs are cut along as many axes as necessary, on chunk
    boundaries of targets. If slabs fit for some of the ranks only, such windows may serve more ranks. They cut no
    axis along which the kernel sees no neighbours: it may need all of that axis.
    """
    best, others = best_slabs(sources, targets, options, seconds)
    others = [each for each in others if each.title != best.title]
    least = {each.title: each for each in sorted(others, key=lambda each: each.bare.nbytes, reverse=True)}
    priced = [alternative(best, best.title, seconds(best))]
    priced += (alternative(each, title, seconds(each) if each.fits else None) for title, each in least.items())
    alternatives = tuple(each.judged(priced[0], best.budget) for each in priced)
    return replace(best, pass_seconds=priced[0].seconds or 0.0, alternatives=alternatives)


def best_slabs(
    sources: Sequence[Stored], targets: Sequence[Stored], options: SlabOptions, price: Price
) -> tuple[SlabPlan, list[SlabPlan]]:
    """Return the best slabs, without seconds and alternatives, and others that were compared."""
    shape = options.shape_of(sources)
    asked = options.checked(shape)
    cut = _Cut(shape=shape, sources=tuple(sources), targets=tuple(targets), options=asked)
    if asked.coarser:
        return _coarser(cut, price)
    tried: list[SlabPlan] = []
    for plan in cut.slabs():
        if plan.fits:
            more = max((other.ranks for other in tried), default=0) > plan.ranks
            others = [found] if more and (found := cut.windows([], price, plan.ranks + 1)) else []
            return min([plan, *others], key=price), [plan, *others, *tried]
        tried.append(plan)
    refused = list(tried)
    found = cut.windows(refused, price)
    if found is None:
        raise BudgetError(asked.budget, _least(refused), "one slab")
    return found, tried


def _coarser(cut: _Cut, price: Price) -> tuple[SlabPlan, list[SlabPlan]]:
    """Return the best slabs and windows for targets of unlike shapes: the longer a window, the less is gathered.

    If none fits that contains whole chunks of the largest target, those that gather every target are compared.
    """
    tried: list[SlabPlan] = []
    for each in (cut, replace(cut, gathers=True)):
        windows, slabs = each.windows(tried, price), list(each.slabs())
        fitting = [*filter(None, [windows]), *(plan for plan in slabs if plan.fits)]
        if fitting:
            break
        tried += slabs
    else:
        kept = 2 * sum(gathered_bytes(min(tried, key=lambda plan: plan.bare.nbytes)))  # put together, too
        cuts = ", and all of a target whose chunks it cuts (give chunks=)," if kept > cut.options.budget else ""
        raise BudgetError(cut.options.budget, _least(tried), f"one slab{cuts}")
    best = min(fitting, key=price)
    cut.options.check_whole(best.shape, best.heights)
    return best, [*fitting, *slabs]


def _least(plans: Iterable[SlabPlan]) -> int:
    """Return the bytes of the plan with the least memory."""
    bare = sorted(((plan.bare.nbytes, number, plan) for number, plan in enumerate(plans)))
    least = bare[0][-1].peak_bytes
    for nbytes, _, plan in bare:
        if nbytes >= least:
            break
        least = min(least, plan.peak_bytes)
    return least


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """Slabs of one global array file, or of a file per rank, along any axis and of any height."""

    shape: tuple[int, ...]
    sources: tuple[Stored, ...]
    targets: tuple[Stored, ...]
    options: SlabOptions
    gathers: bool = False
    """Whether chunks of coarser targets may be cut."""

    def extent(self, axis: int) -> int:
        """Return the longest extent of an array file along an axis, at least 1."""
        edges = self.options.edges
        return max(self.shape[axis] if edges is None else max(b - a for a, b in pairwise(edges[axis])), 1)

    @property
    def extents(self) -> tuple[int, ...]:
        """Longest extent of an array file along each axis."""
        return tuple(map(self.extent, range(len(self.shape))))

    @property
    def counts(self) -> Sequence[int]:
        """Candidate numbers of ranks, in order of preference."""
        ranks = self.options.ranks or 1
        return range(ranks, 0, -1) if self.options.processes == 1 and self.options.edges is None else [ranks]

    def unit(self, axis: int) -> int:
        """Return the minimum height that cuts no chunk, at most the whole axis."""
        extent = self.extent(axis)
        chunks = (min(each.grid.chunks[axis], extent) for each in self.sources)
        return min(math.lcm(*chunks, *(min(length, extent) for length in self._lengths(axis))), extent)

    def _lengths(self, axis: int) -> list[int]:
        """Return lengths along an axis with multiples that cut no target."""
        if self.options.coarser:
            return list(units(self.options, axis, self.extent(axis), () if self.gathers else self.targets))
        return [each.grid.chunks[axis] for each in self.targets]

    # ------------------------------------------------------------------ along one axis

    def slabs(self) -> Iterator[SlabPlan]:
        """Yield the best slabs along each axis, with as many ranks as possible, then with fewer.

        If none fits along an axis, all candidates follow; none if windows are cut along several axes.
        """
        asked = self.options.axis
        axes = range(len(self.shape)) if asked is None else [range(len(self.shape))[asked]]
        if self.options.heights is not None:
            cut = self._cut_axes(self._heights)
            axes = cut or axes[:1]
            if len(cut) > 1:
                return
        for count in self.counts:
            for axis in axes:
                yield from self.best(axis, count)

    @property
    def _heights(self) -> tuple[int, ...]:
        assert self.options.heights is not None, "they are"
        return tuple(n if h is None else h for h, n in zip(self.options.heights, self.extents, strict=True))

    def _cut_axes(self, heights: Sequence[int]) -> list[int]:
        """Return the axes along which windows of these heights are cut, ending with the one along which they follow
        one another."""
        cut = [axis for axis, (h, n) in enumerate(zip(heights, self.extents, strict=True)) if h < n]
        last = None if self.options.axis is None else range(len(self.shape))[self.options.axis]
        return [axis for axis in cut if axis != last] + [axis for axis in cut if axis == last]

    def plan(self, axis: int, height: int, ranks: int) -> SlabPlan:
        heights = tuple(int(height) if a == axis else n for a, n in enumerate(self.extents))
        way: Way = "handed" if self.options.reuse else "again"
        return self.shared_out(axis, heights, (way,) * len(heights), axis, ranks)

    def shared_out(
        self, axis: int, heights: tuple[int, ...], ways: tuple[Way, ...], along: int, ranks: int
    ) -> SlabPlan:
        """Return slabs in the given regions, or in about equal regions for each rank along an axis.

        Without given regions no target chunk is written by two ranks.
        """
        if self.options.edges is not None:
            return self.of(self.options.edges, axis, heights, ways)
        chunks = () if self.options.coarser else (target.grid.chunks[along] for target in self.targets)
        n, unit = self.shape[along], math.lcm(heights[along], *chunks)
        starts = range(0, max(n, 1), max(ceil_div(ceil_div(n, unit), ranks), 1) * unit)
        edges = tuple((*starts, n) if a == along else (0, m) for a, m in enumerate(self.shape))
        return self.of(edges, axis, heights, ways)

    def of(self, edges: Edges, axis: int, heights: tuple[int, ...], ways: tuple[Way, ...]) -> SlabPlan:
        """Return slabs of one shape in these regions."""
        asked = WORKSPACE if self.options.workspace is None else self.options.workspace
        asked = asked(heights) if callable(asked) else asked
        written = self.options.bytes_made(self.shape, self.targets or self.sources)
        plan = SlabPlan(
            **self.options.terms,
            edges=edges,
            axis=axis,
            heights=heights,
            ways=ways,
            sources=self.sources,
            targets=self.targets,
            workspace=asked if isinstance(asked, int) else 0,
            estimated=not isinstance(asked, int),
            past_cache=written > self.options.past_cache_above,
        )
        return plan if isinstance(asked, int) else replace(plan, workspace=int(asked * plan.window_bytes()))

    def best(self, axis: int, ranks: int) -> Iterator[SlabPlan]:
        """Yield the requested height or the best one: tall enough for large requests, short enough to overlap.

        If none fits, all candidates are yielded.
        """
        asked = self.options.height if self.options.heights is None else self._heights[axis]
        if asked is not None:
            yield self.plan(axis, asked, ranks)
            return
        unit, extent = self.unit(axis), self.extent(axis)
        wanted = self._wanted(axis, ranks)
        units = [wanted, *(2**n for n in reversed(range(wanted.bit_length())) if 2**n < wanted)]
        units += [wanted * 2**n for n in range(1, ceil_div(extent, wanted * unit).bit_length() + 1)]
        plans = {n: self.plan(axis, min(n * unit, extent), ranks) for n in units}
        found = next((n for n in units if plans[n].fits), None)
        if found is None:
            yield from plans.values()
        else:
            tallest = largest(lambda n: self.plan(axis, n * unit, ranks).fits, found, min(2 * found, wanted))
            yield self.plan(axis, min(tallest * unit, extent), ranks)

    def _wanted(self, axis: int, ranks: int) -> int:
        """Return the best height with unlimited memory, in units.

        A window of 32 MiB gains nothing by being taller, unless there are more than 4,096 slabs, each with some tasks.
        A rank has at least 8 slabs, because its first read and its last write are not overlapped.
        """
        extent = self.extent(axis)
        row = math.prod(self.extent(a) for a in range(len(self.shape)) if a != axis)
        row_bytes = row * sum(source.itemsize for source in self.sources)
        fewest = 8 * (ranks if self.options.edges is None else 1)
        most = max(2**25 // row_bytes, extent // 2**12)
        return max(min(most, ceil_div(extent, fewest)) // self.unit(axis), 1)

    # ------------------------------------------------------------------ along any axes

    def windows(self, tried: list[SlabPlan], price: Price, fewest: int = 1) -> SlabPlan | None:
        """Return the requested or best windows, with as many ranks as fit; append rejected ones to ``tried``."""
        if self.options.heights is None and (self.options.axis is not None or self.options.height is not None):
            return None
        every = [self._heights] if self.options.heights is not None else list(self._shapes())
        likely = [heights for heights in every if self._may_fit(heights)]
        least = list(self._windows(likely, self.counts[-1]))
        most = max(map(self._most_ranks, least), default=0)
        for count in self.counts:
            if fewest <= count <= most:
                here = least if count == self.counts[-1] else self._windows(likely, count)
                fitting = (plan for plan in here if plan.ranks >= fewest and plan.bare.nbytes <= plan.budget)
                alike = (plan for plan in fitting if fewest == 1 or all(self._depth[axis] for axis in plan.cut_axes))
                found = next((plan for plan in sorted(alike, key=price) if plan.fits), None)
                if found is not None:
                    return found
        tried += self._windows(every, self.counts[-1])
        return None

    @property
    def _depth(self) -> tuple[int, ...]:
        """Number of neighbours that the kernel sees, without a margin."""
        assert isinstance(self.options.depth, tuple), "options have been checked"
        margin = self.options.margin or (0,) * len(self.shape)
        return tuple(d - m for d, m in zip(self.options.depth, margin, strict=True))

    def _windows(self, every: Iterable[tuple[int, ...]], ranks: int) -> Iterator[SlabPlan]:
        """Yield windows of each shape, for ``ranks`` ranks."""
        assert isinstance(self.options.depth, tuple), "options have been checked"
        for heights in every:
            cut = self._cut_axes(heights)
            for ways in ways_of(cut, self.options.depth, reuse=self.options.reuse) if cut else ():
                yield self.shared_out(cut[-1], heights, ways, self._dealt(cut, heights, ranks), ranks)

    def _may_fit(self, heights: tuple[int, ...]) -> bool:
        """Return whether windows of these heights fit without halos, a check before a plan is made."""
        core = math.prod(map(min, heights, self.extents))
        windows = (1 + self.options.prefetch) * core * sum(source.itemsize for source in self.sources)
        return windows <= self.options.budget

    def _shapes(self) -> Iterator[tuple[int, ...]]:
        return shapes(self.extents, self.sources, [self._lengths(axis) for axis in range(len(self.shape))])

    def _dealt(self, cut: Sequence[int], heights: Sequence[int], ranks: int) -> int:
        """Return the axis along which ranks share windows: the outermost one with enough bands, or the one with
        most."""
        bands = {axis: ceil_div(self.shape[axis], heights[axis]) for axis in cut}
        return next((axis for axis in cut if bands[axis] >= ranks), max(cut, key=lambda axis: bands[axis]))

    def _most_ranks(self, plan: SlabPlan) -> int:
        """Return the maximum number of ranks of one process that fit in memory."""
        if len(self.counts) == 1:
            return self.counts[0]
        room = plan.budget - plan.bare.nbytes
        return 1 + room // plan.of_rank.nbytes if room >= 0 else 0
