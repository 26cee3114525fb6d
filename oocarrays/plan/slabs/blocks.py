"""Windows cut along several axes: candidate shapes, their ways of sharing elements, and their predicted seconds.

┌────┬────┬────┐      bands of each axis in multiples of the chunks of targets, doubled again and again,
│    │    │    │      or without targets also in halves of the chunks of sources;
├────┼────┼────┤      rows keep the halo of the next ones, from the innermost on outwards, or it is read again
└────┴────┴────┘
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from oocarrays.mapping.along import range_cuts
from oocarrays.mapping.grid import Stored
from oocarrays.plan import cost
from oocarrays.plan.cost import Work, overlapped
from oocarrays.plan.machine import Costs
from oocarrays.plan.slabs.bands import Way
from oocarrays.plan.slabs.geometry import gathered_bytes
from oocarrays.plan.slabs.kinds import neighbours
from oocarrays.plan.slabs.plan import SlabPlan


def shapes(
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


def ways_of(cut: Sequence[int], depth: Sequence[int], *, reuse: bool) -> Iterator[tuple[Way, ...]]:
    """Yield the ways in which windows can obtain shared elements, in the order of the walk."""
    again: Way = "again"
    if not reuse:
        yield (again,) * len(depth)
        return
    sharing = [axis for axis in cut if depth[axis]]
    closest: list[Way] = ["handed", "kept"] if cut and depth[cut[-1]] else ["handed"]
    outer = [axis for axis in sharing if axis != cut[-1]]
    for last, read in product(closest, range(len(outer) + 1)):
        found: list[Way] = ["handed"] * len(depth)
        if cut:
            found[cut[-1]] = last
        for place, axis in enumerate(outer):
            found[axis] = "again" if place < read else "kept"
        yield tuple(found)


def kernel_bytes(plan: SlabPlan) -> float:
    """Return the bytes that one core copies in the time of a kernel's call, in proportion to its blocks."""
    return plan.costs.kernel_copies * plan.window_bytes()


def seconds(plan: SlabPlan, work: Callable[[SlabPlan], float] = kernel_bytes, threads: int = 1) -> float:
    """Return the predicted seconds of a pass from a typical slab, for comparing plans."""
    if not plan.count:
        return 0.0
    costs, ranks = plan.costs, max(plan.ranks, 1)
    targets = zip(plan.targets, plan.shapes_made(plan.heights, plan.targets), strict=True)
    took = [cost.seconds(_read(plan, source, costs), costs, source) for source in plan.sources]
    took += [
        cost.seconds(Work(written=math.prod(shape) * each.itemsize * costs.stored_ratio(each)), costs, each)
        for each, shape in targets
    ]
    compute = sum(each.processor for each in took) + work(plan) / costs.copy_bandwidth
    compute = plan.count * compute / min(max(ranks, threads), costs.cores)
    device = plan.count * sum(each.device for each in took)
    apart = 2 * sum(gathered_bytes(plan)) / costs.copy_bandwidth  # kept, put together, and written when all is over
    tasks = plan.count * (2 + neighbours(plan)) * costs.task_seconds
    return overlapped(device, compute, plan.count // ranks) + apart + tasks


def _read(plan: SlabPlan, source: Stored, costs: Costs) -> Work:
    """Return the work of reading a source for a typical slab."""
    ends, chunks = [_read_along(plan, axis) for axis in range(len(plan.shape))], source.grid.chunks
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


def _read_along(plan: SlabPlan, axis: int) -> tuple[int, int]:
    """Return the ends of the main read along an axis for a typical slab."""
    along = plan.along(axis)
    region = max(range(plan.grid[axis]), key=along.bands)
    return along.read(region, along.bands(region) // 2)
