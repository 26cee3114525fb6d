"""Targets of unlike shapes: some are written slab by slab, others are gathered and written at the end.

    slabs      │       │       │       │       │
    level 1    │ ┌─┬─┐ │ ┌─┬─┐ │ ┌─┬─┐ │ ┌─┬─┐ │      whole chunks of each slab: written with it
    level 4    │   ┌───────────┐   ┌───────────┐      a chunk of many slabs: its parts stay in memory

So each chunk of each target is written once, by one task, and no written data is read again. Gathered data is small:
if a slab has 8 chunks along each of two axes, all levels with larger chunks come to a 190th of the source.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from oocarrays.mapping.grid import Stored
from oocarrays.mapping.section import Section
from oocarrays.plan.slabs.geometry import SlabGeometry
from oocarrays.plan.slabs.options import SlabOptions


@lru_cache(512)
def gathered(plan: SlabGeometry) -> tuple[int, ...]:
    """Return the targets without whole chunks in each slab."""
    return tuple(number for number in range(len(plan.coarser)) if not _has_chunks(plan, number))


def _has_chunks(plan: SlabGeometry, number: int) -> bool:
    """Return whether every slab has whole chunks of a target."""
    chunks, coarse = plan.targets[number].grid.chunks, plan.coarser[number]
    for axis, (height, edges) in enumerate(zip(plan.heights, plan.edges, strict=True)):
        chunk = coarse.chunk(axis, chunks)
        if height < edges[-1] and (chunk is None or height % chunk):
            return False
    return True


def written(plan: SlabGeometry) -> tuple[int, ...]:
    """Return the targets that each slab writes: all, if they have the sources' shape."""
    return tuple(number for number in range(len(plan.targets)) if number not in gathered(plan))


def gathered_bytes(plan: SlabGeometry) -> list[int]:
    return [_bytes(plan.targets[number]) for number in gathered(plan)]


def _bytes(stored: Stored) -> int:
    return math.prod(stored.grid.shape) * stored.itemsize


def all_of(stored: Stored) -> Section:
    return Section((0,) * len(stored.grid.shape), stored.grid.shape)


def units(options: SlabOptions, axis: int, extent: int, targets: tuple[Stored, ...]) -> Iterator[int]:
    """Yield base lengths for slabs along an axis: multiples cut no group, and no chunk of the largest target, if
    any."""
    yield from (coarse.unit(axis, extent) for coarse in options.coarser)
    if not targets:
        return
    largest, coarse = max(zip(targets, options.coarser, strict=True), key=lambda pair: _bytes(pair[0]))
    chunk = coarse.chunk(axis, largest.grid.chunks)
    if chunk is not None:
        yield min(chunk, extent)
