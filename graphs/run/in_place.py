"""Runs that make no target: they write to an array, or to local array files, that are there.

    begin     a note beside what is written: what was asked for, and a checksum of what is to be written   ─► journal
    write     anybody may read meanwhile, so nothing is marked, and nothing is recorded part by part
    done      the note goes; who is killed before leaves it, and with it somebody may ask for the same again

What is written a second time is the same, so that a run that stopped is done whole: another may have written since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oocarrays.errors import JournalError
from oocarrays.graphs.run.work import Work
from oocarrays.storage.files.places import StoreLike

PARTS = "parts"
"""Where a note keeps checksums of what is to be written, in order; None for what has none."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """Where a run writes that makes no target: to an array, or local array files, that are there."""

    store: StoreLike
    """Its folder, or its store and path, or that of their group."""


class NotedRun(Work):
    """One run that keeps a note while it writes where something is."""

    note: Mapping[str, Any]

    def __init__(self, store: StoreLike, processes: int | None, note: Mapping[str, Any]) -> None:
        self.destination = InPlace(store)
        self.note = note
        super().__init__(store, processes, None)

    def _say_begun(self, *parts: int | None) -> None:
        """Leave the note, for whoever finds it when this run has been killed."""
        before = self.note.get(PARTS) or parts
        other = next((rank for rank, (was, now) in enumerate(zip(before, parts, strict=True)) if was != now), None)
        if other is not None:
            raise JournalError(
                f"the part of rank {other} is not what the run in {self.journal.store} began with; where it is "
                "computed of what that run has written to, it cannot be made again: as_is=True writes what is given"
            )
        if self.note:
            self.journal.notes.note(self.id, {**self.note, PARTS: parts})

    def _say_done(self) -> None:
        if self.note:
            self.journal.notes.take(self.id)
