"""Choice of slabs: axis, height and number of ranks; if none fits, windows cut along several axes.

    chunks of sources    │   │   │   │   │   │   │        a slab is whole chunks of all arrays
    chunks of targets    │     │     │     │     │
    slabs                │           │           │        as tall as the memory of a rank allows

    ┌────┬────┬────┐      windows: bands of each axis in multiples of the chunks of targets, doubled again and again,
    │    │    │    │      or without targets also in halves of the chunks of sources;
    ├────┼────┼────┤      along the innermost axis, halos are exchanged or read again; along others, read again
    └────┴────┴────┘

Thakur 1995, section 5.4: the memory of a process, divided among its slabs, determines their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

from oocarrays.errors import BudgetError
from oocarrays.mapping.along import range_cuts
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.plan import cost
from oocarrays.plan.cost import Work, overlapped
from oocarrays.plan.machine import Costs
from oocarrays.plan.plan import Alternative, alternative, cheapest, largest
from oocarrays.plan.slabs.geometry import gathered_bytes, neighbours
from oocarrays.plan.slabs.options import SlabOptions
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

    def price(plan: SlabPlan) -> Alternative:
        return alternative(plan, plan.title, seconds(plan) if plan is best or plan.fits else None)

    _, alternatives = cheapest([best, *least.values()], price, best.budget, "one slab")
    return replace(best, pass_seconds=alternatives[0].seconds or 0.0, alternatives=alternatives)


def best_slabs(
    sources: Sequence[Stored], targets: Sequence[Stored], options: SlabOptions, price: Price
) -> tuple[SlabPlan, list[SlabPlan]]:
    """Return the best slabs, without seconds and alternatives, and all that were compared.

    For targets of unlike shapes, every slab and window is compared: the longer a window, the less is gathered. If none
    fits that contains whole chunks of the largest target, those that gather every target are compared.
    """
    shape = options.shape_of(sources)
    asked = options.checked(shape)
    cut = _Cut(shape=shape, sources=tuple(sources), targets=tuple(targets), options=asked)
    refused: list[SlabPlan] = []
    for each in (cut, replace(cut, gathers=True)) if asked.coarser else (cut,):
        slabs: list[SlabPlan] = []
        fitting: list[SlabPlan] = []
        fewest = 1
        for plan in each.slabs():
            slabs.append(plan)
            if plan.fits:
                fitting.append(plan)
                if not asked.coarser:
                    fewest = plan.ranks + 1
                    break
        if max((plan.ranks for plan in slabs), default=fewest) >= fewest:
            fitting = [*filter(None, [each.windows(price, fewest)]), *fitting]
        if fitting:
            best = min(fitting, key=price)
            asked.check_whole(best.shape, best.heights)
            return best, [*fitting, *slabs]
        refused += [*each.windows_of(each.shapes(), each.counts[-1]), *slabs]
    refused.sort(key=lambda plan: plan.bare.nbytes)
    kept = 2 * sum(gathered_bytes(refused[0]))  # put together, too
    cuts = ", and all of a target whose chunks it cuts (give chunks=)," if kept > asked.budget else ""
    raise BudgetError(asked.budget, _least(refused), f"one slab{cuts}")


def _least(plans: Sequence[SlabPlan]) -> int:
    """Return the bytes of the plan with the least memory, of plans in the order of their bare memory."""
    least = plans[0].peak_bytes
    for plan in plans:
        if plan.bare.nbytes >= least:
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

    @property
    def extents(self) -> tuple[int, ...]:
        """Longest extent of an array file along each axis, at least 1."""
        edges = self.options.edges or [(0, n) for n in self.shape]
        return tuple(max(1, *(b - a for a, b in pairwise(each))) for each in edges)

    @property
    def counts(self) -> Sequence[int]:
        """Candidate numbers of ranks, in order of preference."""
        ranks = self.options.ranks or 1
        return range(ranks, 0, -1) if self.options.processes == 1 and self.options.edges is None else [ranks]

    @property
    def _requested(self) -> tuple[int, ...] | None:
        asked = self.options.heights
        heights = (n if h is None else h for h, n in zip(asked or (), self.extents, strict=False))
        return None if asked is None else tuple(heights)

    def _lengths(self, axis: int) -> list[int]:
        """Return lengths along an axis with multiples that cut no target; or no group, and no chunk of the largest."""
        coarser, extent = self.options.coarser, self.extents[axis]
        if not coarser:
            return [each.grid.chunks[axis] for each in self.targets]
        largest, coarse = max(zip(self.targets, coarser, strict=True), key=lambda pair: pair[0].nbytes)
        chunk = None if self.gathers else coarse.chunk(axis, largest.grid.chunks)
        return [*(each.unit(axis, extent) for each in coarser), *([] if chunk is None else [min(chunk, extent)])]

    def _cut_axes(self, heights: Sequence[int]) -> list[int]:
        """Return the axes along which such windows are cut, the one along which they follow one another last."""
        cut = [axis for axis, (h, n) in enumerate(zip(heights, self.extents, strict=True)) if h < n]
        return sorted(cut, key=lambda axis: axis == self.options.axis)

    def _plan(self, heights: tuple[int, ...], axis: int, along: int, ranks: int, *, reuse: bool) -> SlabPlan:
        """Return slabs in the given regions, or in about equal ones along an axis that share no target chunk."""
        options, edges = self.options, self.options.edges
        if edges is None:
            chunks = () if options.coarser else (target.grid.chunks[along] for target in self.targets)
            n, unit = self.shape[along], math.lcm(heights[along], *chunks)
            starts = range(0, max(n, 1), max(ceil_div(ceil_div(n, unit), ranks), 1) * unit)
            edges = tuple((*starts, n) if a == along else (0, m) for a, m in enumerate(self.shape))
        asked = WORKSPACE if options.workspace is None else options.workspace
        asked = asked(heights) if callable(asked) else asked
        plan = SlabPlan(
            **options.terms | {"reuse": reuse},
            edges=edges,
            axis=axis,
            heights=heights,
            sources=self.sources,
            targets=self.targets,
            workspace=asked if isinstance(asked, int) else 0,
            estimated=not isinstance(asked, int),
            past_cache=options.bytes_made(self.shape, self.targets or self.sources) > options.past_cache_above,
        )
        return plan if isinstance(asked, int) else replace(plan, workspace=int(asked * plan.window_bytes()))

    def slabs(self) -> Iterator[SlabPlan]:
        """Yield the best slabs along each axis, with as many ranks as possible, then with fewer.

        If none fits along an axis, all candidates follow; none if windows are cut along several axes.
        """
        axes: Sequence[int] = range(len(self.shape)) if self.options.axis is None else [self.options.axis]
        if self._requested is not None:
            cut = self._cut_axes(self._requested)
            axes = cut or axes[:1]
            if len(cut) > 1:
                return
        for count in self.counts:
            for axis in axes:
                yield from self._along(axis, count)

    def _along(self, axis: int, ranks: int) -> Iterator[SlabPlan]:
        """Yield the requested height, or one for large requests that overlap; if none fits, all candidates."""
        extents = self.extents
        extent = extents[axis]

        def plan(height: int) -> SlabPlan:
            heights = tuple(int(height) if a == axis else n for a, n in enumerate(extents))
            return self._plan(heights, axis, axis, ranks, reuse=self.options.reuse)

        asked = self.options.height if self._requested is None else self._requested[axis]
        if asked is not None:
            yield plan(asked)
            return
        chunks = (min(each.grid.chunks[axis], extent) for each in self.sources)
        unit = min(math.lcm(*chunks, *(min(length, extent) for length in self._lengths(axis))), extent)
        wanted = self._wanted(axis, ranks, unit)
        units = [wanted, *(2**n for n in reversed(range(wanted.bit_length())) if 2**n < wanted)]
        units += [wanted * 2**n for n in range(1, ceil_div(extent, wanted * unit).bit_length() + 1)]
        plans = {n: plan(min(n * unit, extent)) for n in units}
        found = next((n for n in units if plans[n].fits), None)
        if found is None:
            yield from plans.values()
        else:
            tallest = largest(lambda n: plan(n * unit).fits, found, min(2 * found, wanted))
            yield plan(min(tallest * unit, extent))

    def _wanted(self, axis: int, ranks: int, unit: int) -> int:
        """Return the best height with unlimited memory, in units.

        A window of 32 MiB gains nothing by being taller, unless there are more than 4,096 slabs, each with some tasks.
        A rank has at least 8 slabs, because its first read and its last write are not overlapped.
        """
        extent = self.extents[axis]
        row_bytes = math.prod(self.extents) // extent * sum(source.itemsize for source in self.sources)
        fewest = 8 * (ranks if self.options.edges is None else 1)
        most = max(2**25 // row_bytes, extent // 2**12)
        return max(min(most, ceil_div(extent, fewest)) // unit, 1)

    def windows(self, price: Price, fewest: int = 1) -> SlabPlan | None:
        """Return the requested or best windows, with as many ranks as fit, at least ``fewest``."""
        size = (1 + self.options.prefetch) * sum(source.itemsize for source in self.sources)
        cores = ((heights, math.prod(map(min, heights, self.extents))) for heights in self.shapes())
        likely = [heights for heights, core in cores if size * core <= self.options.budget]  # without halos
        least = list(self.windows_of(likely, self.counts[-1]))
        most = max(map(self._most_ranks, least), default=0)
        for count in self.counts:
            if fewest <= count <= most:
                here = least if count == self.counts[-1] else self.windows_of(likely, count)
                fitting = (plan for plan in here if plan.ranks >= fewest and plan.bare.nbytes <= plan.budget)
                alike = (plan for plan in fitting if fewest == 1 or all(self._depth[axis] for axis in plan.cut_axes))
                found = next((plan for plan in sorted(alike, key=price) if plan.fits), None)
                if found is not None:
                    return found
        return None

    def shapes(self) -> Iterable[tuple[int, ...]]:
        """Return requested or candidate shapes of windows; none if slabs are requested."""
        if self._requested is not None:
            return [self._requested]
        if self.options.axis is not None or self.options.height is not None:
            return []
        return shapes_of(self.extents, self.sources, [self._lengths(axis) for axis in range(len(self.shape))])

    @property
    def _depth(self) -> tuple[int, ...]:
        """Number of neighbours that the kernel sees, without a margin."""
        assert isinstance(self.options.depth, tuple), "options have been checked"
        margin = self.options.margin or (0,) * len(self.shape)
        return tuple(d - m for d, m in zip(self.options.depth, margin, strict=True))

    def windows_of(self, every: Iterable[tuple[int, ...]], ranks: int) -> Iterator[SlabPlan]:
        """Yield windows of each shape, dealt to ranks along the outermost axis with enough bands, or with most."""
        assert isinstance(self.options.depth, tuple), "options have been checked"
        for heights in every:
            cut = self._cut_axes(heights)
            if cut:
                bands = {axis: ceil_div(self.shape[axis], heights[axis]) for axis in cut}
                along = next((axis for axis in cut if bands[axis] >= ranks), max(cut, key=lambda axis: bands[axis]))
                for reuse in (
                    (True, False) if self.options.reuse and self.options.depth[cut[-1]] else (self.options.reuse,)
                ):
                    yield self._plan(heights, cut[-1], along, ranks, reuse=reuse)

    def _most_ranks(self, plan: SlabPlan) -> int:
        """Return the maximum number of ranks of one process that fit in memory."""
        if len(self.counts) == 1:
            return self.counts[0]
        room = plan.budget - plan.bare.nbytes
        return 1 + room // plan.of_rank.nbytes if room >= 0 else 0


def shapes_of(
    extents: Sequence[int], sources: Sequence[Stored], targets: Sequence[Sequence[int]]
) -> Iterator[tuple[int, ...]]:
    """Yield about 200 candidate shapes of windows; multiples of ``targets``, along each axis, cut no target chunk."""
    along = [heights(n, [each.grid.chunks[axis] for each in sources], targets[axis]) for axis, n in enumerate(extents)]
    cut = sum(len(each) > 1 for each in along)
    most = max(int(200 ** (1 / max(cut, 1))), 2)
    yield from product(*(_thinned(each, most) for each in along))


def heights(extent: int, sources: Sequence[int], targets: Sequence[int]) -> list[int]:
    """Return candidate heights along an axis; no target chunk lies in two bands."""
    bases = {math.lcm(*targets), math.lcm(*sources, *targets)} if targets else {math.lcm(*sources), *sources}
    found = {base * times * 2**power for base in bases for times in (1, 3) for power in range(extent.bit_length())}
    if not targets:
        found |= {-(-chunk // 2**power) for chunk in sources for power in range(chunk.bit_length())}
    return [*sorted(height for height in found if height < extent), extent]


def _thinned(listed: Sequence[int], most: int) -> list[int]:
    """Return at most ``most`` items, including the first and the last."""
    if len(listed) <= most:
        return list(listed)
    return [listed[round(place * (len(listed) - 1) / (most - 1))] for place in range(most)]


def seconds(plan: SlabPlan, copied: Price | None = None, threads: int = 1) -> float:
    """Return the predicted seconds of a pass from a typical slab, for comparing plans.

    The computation of a slab takes as long as one core copies ``copied`` bytes, by default a few times its blocks.
    """
    if not plan.count:
        return 0.0
    costs, ranks = plan.costs, max(plan.ranks, 1)
    kernel = costs.kernel_copies * plan.window_bytes() if copied is None else copied(plan)
    targets = zip(plan.targets, plan.shapes_made(plan.heights, plan.targets), strict=True)
    took = [cost.seconds(_read(plan, source, costs), costs, source) for source in plan.sources]
    took += [
        cost.seconds(Work(written=math.prod(shape) * each.itemsize * costs.stored_ratio(each)), costs, each)
        for each, shape in targets
    ]
    compute = sum(each.processor for each in took) + kernel / costs.copy_bandwidth
    compute = plan.count * compute / min(max(ranks, threads), costs.cores)
    device = plan.count * sum(each.device for each in took)
    apart = 2 * sum(gathered_bytes(plan)) / costs.copy_bandwidth  # kept, put together, and written when all is over
    tasks = plan.count * (2 + neighbours(plan)) * costs.task_seconds
    return overlapped(device, compute, plan.count // ranks) + apart + tasks


def _read(plan: SlabPlan, source: Stored, costs: Costs) -> Work:
    """Return the work of reading a source for a typical slab."""
    axes, chunks = list(map(plan.along, range(len(plan.shape)))), source.grid.chunks
    regions = (max(range(len(axis.edges) - 1), key=axis.bands) for axis in axes)
    ends = [axis.read(region, axis.bands(region) // 2) for axis, region in zip(axes, regions, strict=True)]
    touched = [-(-b // chunk) - a // chunk if a < b else 0 for (a, b), chunk in zip(ends, chunks, strict=True)]
    if source.coded:
        elements = math.prod(touched) * math.prod(chunks) * source.itemsize
        return Work(read=elements * costs.stored_ratio(source), decoded=elements)
    whole, rows = math.prod(touched[:-1]), math.prod(max(b - a, 0) for a, b in ends[:-1])
    ranges = parts = nbytes = 0
    for cut in range_cuts(range(*ends[-1]), chunks[-1]):
        width, times = len(cut.inside), len(cut.chunks)
        apart = (chunks[-1] - width) * source.itemsize >= costs.range_seconds * costs.copy_bandwidth
        nbytes += times * rows * (width if apart else chunks[-1]) * source.itemsize
        ranges, parts = ranges + (0 if apart else times * whole), parts + (times * rows if apart else 0)
    return Work(ranges=ranges, rows=parts, read=nbytes)
