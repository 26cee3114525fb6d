"""The levels of an image, written in one pass: a group, which is one target.

create     the group, marked unfinished, then its levels, and the journal beside the group
gather     levels that have no whole chunks in a slab
finish     the levels, then the group: what it says of them comes with that

Where a run goes on, what is gathered is made again of the coarsest level that slabs have written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from oocarrays.graphs.run.journaled import check_folder
from oocarrays.graphs.slabs.gathering import GatheringRun, Parts
from oocarrays.kernels.levels import Levels
from oocarrays.plan.documents import Document
from oocarrays.plan.slabs.coarser import gathered, written
from oocarrays.plan.slabs.geometry import Slab
from oocarrays.storage.files import group_file
from oocarrays.storage.files.documents import is_finished
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.sections.read import read_section


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
