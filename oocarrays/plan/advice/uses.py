"""A trace as what is decided: each access a use of an array, its patterns as footprints."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from oocarrays.plan.advice.access import Access, Dataset
from oocarrays.plan.advice.counting import Footprint
from oocarrays.plan.advice.patterns import Pattern
from oocarrays.plan.advice.price import Use
from oocarrays.plan.advice.trace import Trace
from oocarrays.plan.advice.verdict import SeenSummary

ALIKE = 1024
"""Patterns that are kept, so that those who are alike are counted once."""


def seen_in(trace: Trace, ranks: int | None = None) -> Iterator[SeenSummary]:
    """Yield what a trace has seen of each block and array.

    Parameters
    ----------
    ranks : int, optional
        Ranks that may read for each other where the trace says nothing of ranks; None for tasks that cannot.

    Examples
    --------
    >>> t = Trace().reads("a.zarr", "(block, *)", ranks=4, shape=(8, 6), dtype="f4", chunks=(2, 6), weight=3)
    >>> [(each.block, each.count, each.use.sections, each.use.ranks) for each in seen_in(t)]
    [('block 1', 3.0, 4, 4)]
    """
    datasets = {each.name: each for each in trace.datasets}
    for access in trace.accesses:
        use = use_of(access, datasets[access.dataset], ranks)
        yield SeenSummary(block=access.block, array=access.dataset, use=use, count=access.weight)


def use_of(access: Access, dataset: Dataset, ranks: int | None = None) -> Use:
    """Return what a block does with an array."""
    by_zarr = access.by == "zarr" and ranks is None
    asked = None if by_zarr else access.ranks or ranks
    return _use(access.patterns, dataset.shape, access.writes, asked, by_zarr)


@lru_cache(maxsize=ALIKE)
def _use(patterns: tuple[Pattern, ...], shape: tuple[int, ...], writes: bool, ranks: int | None, by_zarr: bool) -> Use:
    """Return a use: the same one for blocks that take the same of arrays of the same shape."""
    taken = tuple(footprint(pattern, shape) for pattern in patterns)
    return Use(footprints=taken, writes=writes, ranks=ranks, by_zarr=by_zarr)


@lru_cache(maxsize=ALIKE)
def footprint(pattern: Pattern, shape: tuple[int, ...]) -> Footprint:
    """Return the sections of a pattern, to be counted in chunks."""
    return Footprint.of(pattern.ranges(), shape, pattern.times)
