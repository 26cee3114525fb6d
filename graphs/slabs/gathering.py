"""Passes over slabs whose targets are of unlike shapes: what has no whole chunks in a slab is gathered.

    compute 0 ──► write 0 ──┐           whole chunks are written with each slab, and the rest is handed on
    compute 1 ──► write 1 ──┼─► gather ─► finish
    compute 2 ──► write 2 ──┘           all that was handed on, put together: each chunk is written once

Where a run goes on, what slabs that are done have handed on is made again.

create     the group, marked unfinished, then its levels, and the journal beside the group
gather     levels that have no whole chunks in a slab
finish     the levels, then the group: what it says of them comes with that

Where a run goes on, what is gathered is made again of the coarsest level that slabs have written.
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
from oocarrays.plan.slabs.coarser import all_of, gathered, written
from oocarrays.plan.slabs.geometry import Slab
from oocarrays.storage.files import group_file
from oocarrays.storage.files.documents import is_finished
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.local.pages import empty, give_back
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.windows import Blocks, Windows

Residual = Callable[[Any, Any], float]
"""What the last sweep of a pass has changed, of a part of the array before and after it; of several arrays both are
tuples."""


def change(before: np.ndarray, after: np.ndarray) -> float:
    """The most that an element changes; one that stays NaN, or infinite, does not change."""
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
    """A residual of all arrays that are swept: by default of that which changes most."""
    if residual is change:
        return largest(map(change, before, after))
    return float(residual(before[0], after[0]) if len(before) == 1 else residual(tuple(before), tuple(after)))


def largest(residuals: Iterable[float]) -> float:
    return float(np.max([-np.inf, *residuals]))


def as_bits(residual: float) -> int:
    """A residual as the journal keeps it: a whole number."""
    return int(np.float64(residual).view(np.uint64))


def as_residual(bits: int) -> float:
    """Undo `as_bits`."""
    return float(np.uint64(bits).view(np.float64))


Parts = list[tuple[tuple[int, ...], np.ndarray]]
"""Where a part of each target that is gathered begins there, and the part."""


class GatheringRun(SlabRun):
    """One pass over slabs whose targets stand otherwise for its sources, shared by its tasks."""

    phases: ClassVar[Mapping[str, str]] = {**SlabRun.phases, "regain": "read", "gather": "write"}

    def _write(self, number: int, rank: int, results: Blocks | None) -> Parts:
        """Write the chunks of a slab; returned is what it has of targets that are gathered."""
        if results is None:
            return self._regain(number, rank)
        super()._write(number, rank, results)
        return self._parts(Slab(number, rank), results)

    def _parts(self, slab: Slab, results: Blocks) -> Parts:
        """Return what a slab has of targets that are gathered; no view, for that would keep all of which it is one."""
        kept = ((each, results[each]) for each in gathered(self.plan))
        return [(self.plan.made(slab, n).lower, made if made.base is None else made.copy()) for n, made in kept]

    def _regain(self, number: int, rank: int) -> Parts:
        """Make again what a slab that is done gave of targets that are gathered."""
        if not gathered(self.plan):
            return []
        slab = Slab(number, rank)
        alone = Windows(self.plan.alone, self.given[1], self.meter, self._pool)
        blocks = self._thread_of("read", rank).submit(alone.read, slab).result()
        alone.fill(slab, blocks, [])
        return self._parts(slab, self._results(slab, blocks))

    def _gather(self, *given: Parts) -> None:
        """Put together and write what slabs gave of targets of which they had no whole chunks, one after the other."""
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
        What the group says of its levels when they are all there.
    """

    says: Document

    @property
    def made_place(self) -> StoreLike | None:
        """The image itself."""
        return self.targets[0].store

    def _check_visible(self) -> None:
        check_folder(self.destination.store)

    def _check_target(self) -> None:
        for source in self.given[1]:
            group_file.check_group_target(source.zarr, self.destination.store, overwrite=self.destination.overwrite)

    def _make_targets(self) -> None:
        """Make the group, marked, and then what is in it."""
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
                    self._make_target(target)
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
        """Make levels that are gathered of the coarsest one that is not."""
        slab, base = Slab(number, rank), max(written(self.plan), default=None)
        if base is None:
            return super()._regain(number, rank)
        kernel, _ = self.given
        assert isinstance(kernel, Levels), "a pyramid has no other"
        below = self.plan.made(slab, base)
        block = read_section(self._open_targets()[base], below.axes, meter=self.meter, threads=1)
        above = kernel.above(block, base)
        return [(self.plan.made(slab, each).lower, made) for each, made in zip(gathered(self.plan), above, strict=True)]
