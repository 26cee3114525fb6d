"""Passes over slabs with targets of other shapes than the sources: partial chunks of a slab are gathered.

    compute 0 ──► write 0 ──┐           whole chunks are written with each slab, the rest is returned
    compute 1 ──► write 1 ──┼─► gather ─► finish
    compute 2 ──► write 2 ──┘           joins the returned parts: each chunk is written once

A resumed run recomputes the parts that finished slabs had returned.

create     the group, marked unfinished, then its levels, and the journal beside the group
gather     levels without whole chunks in a slab
finish     the levels, then the group with its attributes

A resumed run recomputes gathered levels from the coarsest level that slabs have written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import add
from typing import Any, ClassVar

import numpy as np

from oocarrays.graphs.run.journaled import check_folder
from oocarrays.graphs.slabs.tasks import SlabRun
from oocarrays.kernels.levels import Levels
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.plan.slabs.geometry import Slab, all_of, gathered, written
from oocarrays.storage.files import group_file
from oocarrays.storage.files.documents import is_finished
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.local.pages import empty, give_back
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.windows import Blocks, Windows

Residual = Callable[[Any, Any], float]
"""Measure of the last sweep's change, from a part of the array before and after it; of several arrays, from tuples.
"""


def change(before: np.ndarray, after: np.ndarray) -> float:
    """Return the maximum change of an element; an element that stays NaN or infinite does not change."""
    if not after.size:
        return 0.0
    exact = after.dtype if after.dtype.kind in "fc" else np.float64
    with np.errstate(invalid="ignore"):
        differences = np.abs(np.subtract(after, before, dtype=exact))
    most = differences.max()
    if np.isnan(most):
        same = (before == after) | (np.isnan(before) & np.isnan(after))
        most = differences.max(where=~same, initial=0)
    return float(most)


def residual_of(residual: Residual, before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> float:
    """Return the residual of all swept arrays: by default the maximum change."""
    if residual is change:
        return largest(map(change, before, after))
    return float(residual(before[0], after[0]) if len(before) == 1 else residual(tuple(before), tuple(after)))


def largest(residuals: Iterable[float]) -> float:
    return float(np.max([-np.inf, *residuals]))


def as_bits(residual: float) -> int:
    """Return a residual as the journal keeps it: the integer with the same bits."""
    return int(np.float64(residual).view(np.uint64))


def as_residual(bits: int) -> float:
    """Return the residual with these bits."""
    return float(np.uint64(bits).view(np.float64))


Parts = list[tuple[tuple[int, ...], np.ndarray]]
"""Lower corner and values of a part of each gathered target."""


class GatheringRun(SlabRun):
    """One pass over slabs with gathered targets, shared by its tasks."""

    phases: ClassVar[Mapping[str, str]] = {**SlabRun.phases, "regain": "read", "gather": "write"}

    def _write(self, number: int, rank: int, results: Blocks | None) -> Parts:
        """Write the whole chunks of a slab, and return its parts of gathered targets."""
        if results is None:
            return self._regain(number, rank)
        super()._write(number, rank, results)
        return self._parts(Slab(number, rank), results)

    def _parts(self, slab: Slab, results: Blocks) -> Parts:
        """Return a slab's parts of gathered targets; views are copied, as they would keep the whole array in memory."""
        kept = ((each, results[each]) for each in gathered(self.plan))
        return [(self.plan.made(slab, n).lower, made if made.base is None else made.copy()) for n, made in kept]

    def _regain(self, number: int, rank: int) -> Parts:
        """Recompute a finished slab's parts of gathered targets."""
        if not gathered(self.plan):
            return []
        slab = Slab(number, rank)
        alone = Windows(self.plan.alone, self.given[1], self.meter, self._pool)
        blocks = self._thread_of("read", rank).submit(alone.read, slab).result()
        alone.fill(slab, blocks, [])
        return self._parts(slab, self._results(slab, blocks))

    def _gather(self, *given: Parts) -> None:
        """Join and write the gathered targets, one after the other."""
        self._let_go_of_memory()
        give_back()
        for place, number in enumerate(gathered(self.plan)):
            file = self._open_targets()[number]
            whole = empty(file.zarr.shape, np.dtype(self.targets[number].settings["dtype"]))
            for parts in given:
                lower, values = parts[place]
                whole[Section(lower, tuple(map(add, lower, values.shape))).slices] = values
            self._put(0, file, all_of(self.plan.targets[number]).axes, whole)


class PyramidRun(GatheringRun):
    """One pass that writes all levels of an image, shared by its tasks; its destination is the group.

    Attributes
    ----------
    says : dict
        Attributes of the group once all levels are written.
    """

    says: Document

    @property
    def made_place(self) -> StoreLike | None:
        """Return the location of the image itself."""
        return self.targets[0].store

    def _check_visible(self) -> None:
        check_folder(self.destination.store)

    def _check_target(self) -> None:
        for source in self.given[1]:
            group_file.check_group_target(source.zarr, self.destination.store, overwrite=self.destination.overwrite)

    def _make_targets(self) -> None:
        """Make the group, marked as unfinished, and then its members."""
        zarr_format = self.targets[0].settings["zarr_format"]
        group_file.make_group(
            self.destination.store, {"zarr_format": zarr_format, "attributes": {}}, self.id,
            overwrite=self.destination.overwrite, durable=self.durable,
        )  # fmt: skip
        super()._make_targets()

    def _forget_what_is_gone(self) -> None:
        """Make the levels that a worker had not made when it was lost."""
        if not self.journal.parts():
            for target in self._unmade():
                if not is_finished(target.store):
                    target.create(self.id, durable=self.durable)
        super()._forget_what_is_gone()

    def _finishing(self) -> Callable[[], None]:
        levels = super()._finishing()
        group = partial(group_file.finish_group, self.destination.store, attributes=self.says, durable=self.durable)

        def finish() -> None:
            levels()
            group()

        return finish

    def _begun(self) -> list[StoreLike]:
        return [self.destination.store]

    def _regain(self, number: int, rank: int) -> Parts:
        """Recompute gathered levels from the coarsest level that is written with each slab."""
        slab, base = Slab(number, rank), max(written(self.plan), default=None)
        if base is None:
            return super()._regain(number, rank)
        kernel, _ = self.given
        assert isinstance(kernel, Levels), "a pyramid has no other"
        below = self.plan.made(slab, base)
        block = read_section(self._open_targets()[base], below.axes, meter=self.meter, threads=1)
        above = kernel.above(block, base)
        return [(self.plan.made(slab, each).lower, made) for each, made in zip(gathered(self.plan), above, strict=True)]
