"""Conversion of a trace into input for decisions: each access becomes a use, its patterns become footprints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np

from oocarrays.plan.advice.access import Access, Dataset, Repeat
from oocarrays.plan.advice.counting import Footprint
from oocarrays.plan.advice.patterns import Pattern
from oocarrays.plan.advice.price import Use
from oocarrays.plan.advice.trace import Trace
from oocarrays.plan.advice.verdict import SeenSummary

_Awaited = dict[int, list[tuple[int, int]]]
"""Stride and index of each range that would continue at an element."""
_Alone = dict[int, list[int]]
"""Indices of one-element ranges, with undetermined stride, by that element."""
ALIKE = 1024
"""Maximum number of cached patterns, so that equal ones are counted once."""


def seen_in(trace: Trace, ranks: int | None = None) -> Iterator[SeenSummary]:
    """Yield a summary of each traced access."""
    datasets = {each.name: each for each in trace.datasets}
    for access in trace.accesses:
        use = use_of(access, datasets[access.dataset], ranks)
        yield SeenSummary(block=access.block, array=access.dataset, use=use, count=access.weight)


def use_of(access: Access, dataset: Dataset, ranks: int | None = None) -> Use:
    by_zarr = access.by == "zarr" and ranks is None
    asked = None if by_zarr else access.ranks or ranks
    if by_zarr and access.cut_by_chunks and all(_in_chunks(each, dataset.chunks) for each in access.patterns):
        return _cut_use(access.patterns, access.repeats, dataset.shape, dataset.chunks)
    return _use(access.patterns, dataset.shape, access.writes, asked, by_zarr)


@lru_cache(maxsize=ALIKE)
def _in_chunks(pattern: Pattern, chunks: tuple[int, ...]) -> bool:
    along = zip(pattern.ranges(), chunks, strict=True)
    return all(each[0] // c == each[-1] // c for taken, c in along for each in taken)


@lru_cache(maxsize=ALIKE)
def _cut_use(
    patterns: tuple[Pattern, ...], repeats: tuple[Repeat, ...], shape: tuple[int, ...], chunks: tuple[int, ...]
) -> Use:
    """Return the use of tasks cut by chunks, with their sections joined so that it is independent of the chunks."""
    often = sum(int(each.blocks(shape, np.array([chunks]))[0]) for each in repeats)
    if [pattern.times for pattern in patterns] != [often]:
        repeats, often = (), 1

    def whole(pattern: Pattern) -> Footprint:
        axes = [joined(taken, c) for taken, c in zip(pattern.ranges(), chunks, strict=True)]
        return Footprint.of(axes, shape, pattern.times // often)

    return Use(footprints=tuple(map(whole, patterns)), repeats=repeats, by_zarr=True, cut_by_chunks=True)


def joined(taken: Iterable[range], chunk: int) -> list[range]:
    """Join ranges of one chunk each that continue each other with one stride across chunk edges."""
    made: list[range] = []
    awaited: _Awaited = {}
    alone: _Alone = {}
    for each in sorted(taken, key=lambda r: (r.start, -r.stop)):
        in_one = each.start // chunk == each[-1] // chunk
        number = _continued(each, awaited, alone, chunk) if in_one else None
        if number is None:
            number = len(made)
            made.append(each)
        else:
            made[number] = range(made[number].start, each.stop, each.start - made[number][-1])
        step = made[number].step
        if in_one and len(made[number]) == 1:
            alone.setdefault(each.start, []).append(number)
        elif in_one and (each[-1] + step) // chunk != each[-1] // chunk:
            awaited.setdefault(each[-1] + step, []).append((step, number))
    return made


def _continued(each: range, awaited: _Awaited, alone: _Alone, chunk: int) -> int | None:
    """Return the index of the range that `each` continues, and stop awaiting it; None for a new range."""
    for entry in awaited.get(each.start, []):
        if len(each) == 1 or entry[0] == each.step:
            awaited[each.start].remove(entry)
            return entry[1]
    before = each.start - each.step if len(each) > 1 else next(iter(alone), each.start)
    if before // chunk == each.start // chunk or before not in alone:
        return None
    number = alone[before].pop(0)
    if not alone[before]:
        del alone[before]
    return number


@lru_cache(maxsize=ALIKE)
def _use(patterns: tuple[Pattern, ...], shape: tuple[int, ...], writes: bool, ranks: int | None, by_zarr: bool) -> Use:
    """Return a use, cached: blocks with equal patterns and equal shapes share it."""
    taken = tuple(footprint(pattern, shape) for pattern in patterns)
    return Use(footprints=taken, writes=writes, ranks=ranks, by_zarr=by_zarr)


@lru_cache(maxsize=ALIKE)
def footprint(pattern: Pattern, shape: tuple[int, ...]) -> Footprint:
    """Return the footprint of a pattern."""
    return Footprint.of(pattern.ranges(), shape, pattern.times)
