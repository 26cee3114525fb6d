"""What a pass over slabs reads and writes, in requests and bytes, before it is done.

slabs    ▐███▌███▌███▌███▌██▌      cut alike where they lie alike to chunks and edges: counted once for all
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, reduce
from itertools import zip_longest
from operator import add

import numpy as np

from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Taken, moved
from oocarrays.plan.cost import Traffic
from oocarrays.plan.sections.read import SectionPlan
from oocarrays.plan.sections.write import SectionWritePlan, plan_section_write
from oocarrays.plan.slabs.coarser import all_of, gathered, written
from oocarrays.plan.slabs.geometry import Slab, SlabGeometry
from oocarrays.plan.slabs.kinds import alike
from oocarrays.plan.slabs.reads import reading


@lru_cache(8)
def slab_traffic(plan: SlabGeometry) -> Traffic:
    """Count what all ranks together read and write, in a run without faults.

    >>> from oocarrays.plan.slabs.geometry import example_plan
    >>> traffic = slab_traffic(example_plan(ranks=2))
    >>> traffic.read_requests, traffic.read_bytes
    (5, 288)
    """
    begun = reduce(add, map(_at_once, (plan.targets[n] for n in gathered(plan))), Traffic(tasks=_ends(plan)))
    return reduce(add, (_times(_of(plan, slab), n) for slab, n in alike(plan)), begun)


@lru_cache(8)
def slab_tasks(plan: SlabGeometry) -> int:
    """Tasks of a pass, told without a look at what they read and write.

    >>> from oocarrays.plan.slabs.geometry import example_plan
    >>> slab_tasks(example_plan(ranks=2)) == slab_traffic(example_plan(ranks=2)).tasks
    True
    """
    return _ends(plan) + sum(n * _tasks(plan, slab) for slab, n in alike(plan))


def _ends(plan: SlabGeometry) -> int:
    """Tasks that are of no slab: they begin, gather, finish."""
    return 3 if gathered(plan) else 2


def _at_once(target: Stored) -> Traffic:
    """Count what is written of a target that has been gathered."""
    return _write(plan_section_write(target, all_of(target).axes))


def _tasks(plan: SlabGeometry, slab: Slab) -> int:
    """Tasks of one slab: as many are given as are taken."""
    return 3 + len(plan.givers(slab)) + len(plan.fetchers(slab))


def _times(traffic: Traffic, n: int) -> Traffic:
    return Traffic(**{name: n * getattr(traffic, name) for name in Traffic.__dataclass_fields__})


def _of(plan: SlabGeometry, slab: Slab) -> Traffic:
    """Count what is read for one slab, and written."""
    tasks = Traffic(tasks=_tasks(plan, slab))
    reads = (_read(each) for each in _readings(plan, slab))
    return reduce(add, (*reads, *(_written(plan, slab, number) for number in written(plan))), tasks)


def _readings(plan: SlabGeometry, slab: Slab) -> Iterator[SectionPlan]:
    section, window = plan.read(slab), plan.window(slab)
    apart = [
        (piece.owner.rank if piece.owner else slab.rank, tuple(map(_taken, piece.elements)))
        for piece in plan.pieces(slab)
        if piece.is_read
    ]
    for source, halo in zip_longest(plan.sources, plan.halos, fillvalue=()):
        assert isinstance(source, Stored), "halos are those of sources"
        if section.size:
            packed = lies_packed(section, window)
            yield reading(*_placed(plan, source, halo, slab.rank, section.axes), packed=packed)
        yield from (reading(*_placed(plan, source, halo, rank, axes), packed=True) for rank, axes in apart)


def _placed(plan: SlabGeometry, stored: Stored, halo: tuple[int, ...], rank: int, axes: Axes) -> tuple[Stored, Axes]:
    """The array file in which a rank has elements of the array, and their places there."""
    if plan.shared:
        return stored, axes
    region = plan.region(rank)
    halo = halo or (0,) * len(axes)
    shape = tuple(n + 2 * d for n, d in zip(region.shape, halo, strict=True))
    chunks = tuple(max(min(c, n), 1) for c, n in zip(stored.grid.chunks, shape, strict=True))
    by = (d - start for d, start in zip(halo, region.lower, strict=True))
    return replace(stored, grid=ChunkGrid.of(shape, chunks)), tuple(map(moved, axes, by))


def _taken(elements: Taken) -> Taken:
    return elements if isinstance(elements, range) else np.unique(elements)


def lies_packed(part: Section, whole: Section) -> bool:
    """Whether a part of an array in C order lies in it in one piece.

    >>> [lies_packed(Section((1, 0), upper), Section((0, 0), (4, 4))) for upper in ((3, 4), (3, 2), (2, 2))]
    [True, False, True]
    """
    cut = [axis for axis, (n, m) in enumerate(zip(part.shape, whole.shape, strict=True)) if n != m]
    return not cut or math.prod(part.shape[: cut[-1]]) <= 1


def _read(plan: SectionPlan) -> Traffic:
    return Traffic(read_requests=plan.requests, read_bytes=plan.asked_bytes, decoded_bytes=plan.decoded_bytes)


def _written(plan: SlabGeometry, slab: Slab, number: int) -> Traffic:
    core, target = plan.core(slab), plan.targets[number]
    if not core.size:
        return Traffic()
    if plan.coarser:  # whole chunks
        return _write(plan_section_write(target, plan.made(slab, number).axes))
    made = plan_section_write(*_placed(plan, target, (), slab.rank, core.axes))
    begun = [
        plan_section_write(*_placed(plan, target, (), slab.rank, axes))
        for axes in _begun(plan, slab, target)
        if all(map(len, axes))
    ]
    return _write(made) + Traffic(
        read_requests=sum(each.read_requests for each in begun),
        read_bytes=sum(each.read_bytes for each in begun),
        decoded_bytes=sum(each.decoded_bytes for each in begun),
    )


def _write(made: SectionWritePlan) -> Traffic:
    return Traffic(
        write_requests=made.write_requests, written_bytes=made.written_bytes, encoded_bytes=made.encoded_bytes
    )


def _begun(plan: SlabGeometry, slab: Slab, target: Stored) -> Iterator[Axes]:
    """The elements of a slab that lie in chunks of which its rank has written a part before, as a box an axis: those
    that it shares with the slab before it along that one, and with none along the axes before."""
    core, region = plan.core(slab), plan.region(slab.rank)
    stored, _ = _placed(plan, target, (), slab.rank, core.axes)
    parts = [
        _split(core.axes[axis], region.axes[axis], 0 if plan.shared else region.lower[axis], chunk, backwards=turned)
        for axis, chunk in enumerate(stored.grid.chunks)
        for turned in [axis == plan.axis and plan.backwards(slab.rank)]
    ]
    for axis, (begun, _) in enumerate(parts):
        yield (*(fresh for _, fresh in parts[:axis]), begun, *core.axes[axis + 1 :])


def _split(core: range, region: range, zero: int, chunk: int, *, backwards: bool) -> tuple[range, range]:
    """A band, less the elements in a chunk that reaches into the one before it: those, and the rest.

    >>> _split(range(3, 6), range(0, 9), 0, 4, backwards=False), _split(range(3, 6), range(0, 9), 0, 4, backwards=True)
    ((range(3, 4), range(4, 6)), (range(4, 6), range(3, 4)))
    """
    start, stop = core.start, core.stop
    if backwards:
        edge = zero + (stop - zero) // chunk * chunk if stop < region.stop else stop
        edge = min(max(edge, start), stop)
        return range(edge, stop), range(start, edge)
    edge = zero + ceil_div(start - zero, chunk) * chunk if start > region.start else start
    edge = max(min(edge, stop), start)
    return range(start, edge), range(edge, stop)
