"""Where a run writes, and how that is made: of arrays, groups and local array files the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from oocarrays.mapping.grid import Stored
from oocarrays.plan.documents import Settings
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import create_target
from oocarrays.storage.files.places import StoreLike


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """Where a run writes, and how what is there is made."""

    store: StoreLike
    """Path or store of the target."""
    settings: Settings = field(default_factory=dict)
    """Arguments of ``zarr.create_array``; of local array files without what each rank's part gives; of a group none."""
    overwrite: bool = False
    """Whether what is there may be replaced."""
    resumed: bool = False
    """Whether it is there, left by the run that is resumed: it is not made."""
    said: tuple[str, ...] = ()
    """What is not made as it was asked for, a line each."""

    def preview(self) -> Stored:
        """Describe the array that it would be, as `array_file.preview` does."""
        return array_file.preview(self.settings, self.store)

    def create(self, run: str, *, durable: bool) -> ArrayFile:
        """Make the array, marked unfinished, as `creating.create_target` does."""
        return create_target(self.store, self.settings, run, overwrite=self.overwrite, durable=durable)


def written_file(store: Any, mode: Literal["r", "r+"] = "r") -> ArrayFile:
    """Open an unfinished array, and describe it as it is written."""
    return array_file.describe(array_file.open_array(store, mode=mode, unfinished=True), written=True)
