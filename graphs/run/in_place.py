"""Runs that create no target: they write to an existing array, or to existing local array files.

    begin     a note beside the data: the request, and a checksum of each part to be written   ─► journal
    write     other processes may read meanwhile, so nothing is marked, and no part is recorded
    done      the note is removed; a killed run leaves it, and the same request can be repeated

A repeated run writes the same data again in full, because another process may have written since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oocarrays.errors import JournalError
from oocarrays.graphs.run.work import Work
from oocarrays.storage.files.documents import remove_abandoned
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.journal.texts import PARTS


@dataclass(frozen=True, slots=True)
class InPlace:
    """Destination of a run that creates no target: an existing array, or existing local array files."""

    store: StoreLike
    """Folder, or store and path, of the array or of the group of files."""


class NotedRun(Work):
    """Run that writes in place and keeps a note while it writes."""

    note: Mapping[str, Any]

    def __init__(self, store: StoreLike, processes: int | None, note: Mapping[str, Any]) -> None:
        self.destination = InPlace(store)
        self.note = note
        super().__init__(store, processes, None)

    def _say_begun(self, *parts: int | None) -> None:
        """Write the note; raise if the parts differ from those that a killed run began with."""
        before = self.note.get(PARTS) or parts
        other = next((rank for rank, (was, now) in enumerate(zip(before, parts, strict=True)) if was != now), None)
        if other is not None:
            raise JournalError(
                f"the part of rank {other} is not what the run in {self.journal.store} began with; where it is "
                "computed of what that run has written to, it cannot be made again: as_is=True writes what is given"
            )
        if self.note:
            if local_folder(self.journal.store) and self.journal.notes.is_noted():
                remove_abandoned(self.journal.store)
            self.journal.notes.note(self.id, {**self.note, PARTS: parts})

    def _say_done(self) -> None:
        if self.note:
            self.journal.notes.take(self.id)
