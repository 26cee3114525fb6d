"""A trace as what is decided: each access a use of an array, its patterns as footprints."""

from __future__ import annotations

from collections.abc import Iterator

from oocarrays.plan.advice.access import Access, Dataset
from oocarrays.plan.advice.counting import Footprint
from oocarrays.plan.advice.patterns import Pattern
from oocarrays.plan.advice.price import Use
from oocarrays.plan.advice.trace import Trace
from oocarrays.plan.advice.verdict import Seen


def seen_in(trace: Trace, ranks: int | None = None) -> Iterator[Seen]:
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
    for access in trace.accesses:
        use = use_of(access, trace.dataset(access.dataset), ranks)
        yield Seen(block=access.block, array=access.dataset, use=use, count=access.weight)


def use_of(access: Access, dataset: Dataset, ranks: int | None = None) -> Use:
    """Return what a block does with an array."""
    by_zarr = access.by == "zarr" and ranks is None
    return Use(
        footprints=tuple(footprint(pattern, dataset.shape) for pattern in access.patterns),
        writes=access.writes,
        ranks=None if by_zarr else access.ranks or ranks,
        by_zarr=by_zarr,
    )


def footprint(pattern: Pattern, shape: tuple[int, ...]) -> Footprint:
    """Return the sections of a pattern, to be counted in chunks."""
    return Footprint.of(pattern.ranges(), shape, pattern.times)
