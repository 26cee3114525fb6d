"""Scratch between the passes of an iteration: one folder for all ranks; or, for local array files, one for each rank,
beside its file on the same disk, where only its worker creates, finds and removes it.

Thakur 1995, sections 5.4 (the local placement model) and 5.5.2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oocarrays.graphs.run.program import Part
from oocarrays.graphs.slabs.sweeps import Residual
from oocarrays.storage.files import array_file
from oocarrays.storage.files.creating import TargetSpec, is_scratch, remove_scratch
from oocarrays.storage.files.local_files import LocalFiles, RankFiles
from oocarrays.storage.files.places import place_below
from oocarrays.storage.files.target import LocalTarget
from oocarrays.storage.stores.remote import RemoteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class PassScratch:
    """Scratch with the results that a pass leaves for the next one."""

    folders: tuple[str | RemoteStore, ...]
    """One folder; for local array files, the folder of each rank, on its worker's own disk or shared."""
    fields: int
    """Number of swept arrays."""

    def place(self, number: int, field: int, rank: int = 0) -> str | RemoteStore:
        """Return the location of one swept array, or of a rank's part of it, as a pass writes it."""
        each = (number * self.fields + field) * len(self.folders) + rank
        return place_below(self.folders[rank], str(each))

    def of_rank(self, number: int, rank: int = 0) -> list[str | RemoteStore]:
        """Return the locations of all swept arrays, or of a rank's parts of them, as a pass writes them."""
        return [self.place(number, field, rank) for field in range(self.fields)]

    def is_there(self, number: int, rank: int) -> bool:
        """Return whether all scratch of a rank in a pass exists, complete or not."""
        return all(map(is_scratch, self.of_rank(number, rank)))

    def files(self, number: int, target: TargetSpec, field: int) -> LocalFiles:
        assert isinstance(target, LocalTarget), "one file in other scratch has all ranks' parts"
        return LocalFiles(
            store=target.store, descriptor=target.files.descriptor, name=f"scratch of {target.files.name}",
            scratch=tuple(self.place(number, field, rank) for rank in range(len(self.folders))),
        )  # fmt: skip

    def opened(self, number: int, targets: Sequence[TargetSpec]) -> list[Any]:
        """Open the scratch of a pass: an array for each target, or the files of all ranks."""
        if isinstance(targets[0], LocalTarget):
            return [RankFiles(self.files(number, each, field), written=True) for field, each in enumerate(targets)]
        arrays = (array_file.open_array(place, mode="r+") for place in self.of_rank(number))
        return [array_file.describe(array, written=True) for array in arrays]

    def remove(self) -> None:
        """Remove all scratch that this process can reach."""
        for folder in {str(each): each for each in self.folders}.values():
            remove_scratch(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Pass of an iteration."""

    number: int
    """Number of the pass, from 0."""
    last: bool
    """Whether it writes the targets; other passes write scratch."""
    residual: Residual | None
    """Measure computed in the last sweep; None to compute none."""
    scratch: PassScratch
    """Output of all passes but the last."""
    room: Mapping[str, int]
    """Bytes that all passes write, by folder."""
    before: float
    """Largest residual of the slabs that are done."""
    gone: Collection[Part]
    """Journal parts with scratch that no longer exists."""
