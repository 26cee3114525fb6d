"""Notes of runs beside a target: a write in progress to an existing array, and the result of an ended run.

target/  .oocarrays.json            of a run that writes to an existing array, from its start to its end
         .oocarrays.made            the request that made a finished target, and the sources as they were
         .oocarrays/ended-c0ffee    the result of an ended run, until its client acknowledges it
         .oocarrays/first           of another target than a run's first one: where that is, and with it the journal

np.s_[::2, [5, 0], None]   ─►   [{"slice": [0, 24, 2]}, [5, 0], None]
"(block, *)" on 2 ranks    ─►   {"distribution": ["block", "*"], "ranks": [2, 1]}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from oocarrays.errors import JournalError, OocError
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.selection import Selection
from oocarrays.plan.documents import Document
from oocarrays.storage.files.entries import entries_of, reading, writing
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.journal.texts import ENDED, FIRST, FOLDER, MADE, NOTE, plan_in, plan_text


def kept_sections(layout: Layout | None, selections: Sequence[Selection]) -> Any:
    """Return the section of each rank as JSON values: the layout if given, else the selections."""
    if layout is not None:
        return {"distribution": list(map(str, layout.distributions)), "ranks": list(layout.grid)}
    return [list(map(_kept, each.key)) for each in selections]


def _kept(entry: Any) -> Any:
    return {"slice": [entry.start, entry.stop, entry.step]} if isinstance(entry, slice) else entry


def sections_again(kept: Any, shape: Sequence[int]) -> Any:
    """Return sections that `kept_sections` encoded, as arguments of `write_sections`."""
    try:
        if isinstance(kept, dict):
            return Layout.of(tuple(shape), list(kept["distribution"]), grid=kept["ranks"])
        return [tuple(map(_again, each)) for each in kept]
    except (OocError, KeyError, TypeError, ValueError):
        raise JournalError(f"the journal keeps sections {kept!r}, which are outside an array of {shape}") from None


def _again(entry: Any) -> Any:
    return slice(*entry["slice"]) if isinstance(entry, dict) else entry


class Notes:
    """Notes beside one target."""

    def __init__(self, store: StoreLike) -> None:
        self.store = store
        self._beside, self._inside = entries_of(store), entries_of(store, FOLDER)

    def _get(self, key: str, *, inside: bool = False) -> bytes | None:
        with reading(self.store):
            return (self._inside if inside else self._beside).get(key)

    def _drop(self, key: str, *, inside: bool = False) -> None:
        with writing(self.store):
            (self._inside if inside else self._beside).delete([key])

    def note(self, run: str, content: Document) -> None:
        """Record that ``run`` writes to an existing array, replacing the note of an earlier run."""
        _, text = plan_text(run, content)
        with writing(self.store):
            self._beside.delete([NOTE])
            self._beside.create(NOTE, text)

    def noted(self) -> Document | None:
        """Return the request of an interrupted run that wrote to the existing array; None without such a note."""
        text = self._get(NOTE)
        return None if text is None else plan_in(text, self.store, NOTE).content

    def is_noted(self) -> bool:
        """Return whether a run is writing to the existing array, or was interrupted."""
        return self._get(NOTE) is not None

    def take(self, run: str) -> None:
        """Delete the note of ``run``; keep the note of another run."""
        text = self._get(NOTE)
        if text and plan_in(text, self.store, NOTE).run == run:
            self._drop(NOTE)

    def keep_made(self, run: str, content: Document) -> None:
        """Record the request that made the target, replacing an earlier one; it is synced later with other files."""
        with writing(self.store):
            self._beside.replace(MADE, plan_text(run, content)[1], durable=False)

    def made(self) -> Document | None:
        """Return the request that made the target; None if it is missing or unreadable."""
        text = self._get(MADE)
        with suppress(JournalError):
            return None if text is None else plan_in(text, self.store, MADE).content
        return None

    def drop_made(self) -> None:
        """Delete the request that made the target, if it exists."""
        self._drop(MADE)

    def point_to(self, first: str) -> None:
        """Record the first target of the run that writes this one."""
        with writing(self.store):
            self._inside.make_folder("")
            self._inside.replace(FIRST, first.encode(), durable=False)

    def first(self) -> str | None:
        """Return the first target of the run that writes this one, which has the journal; None if it is this one."""
        text = self._get(FIRST, inside=True)
        return None if text is None else text.decode(errors="replace")

    def drop_first(self) -> None:
        """Delete the record of the first target, if it exists."""
        self._drop(FIRST, inside=True)

    def say_ended(self, run: str, gives: Any = None) -> None:
        """Record that ``run`` has ended, with its result, so that a retry of its last task can return it."""
        with writing(self.store):
            self._inside.make_folder("")
            self._inside.create(f"{ENDED}{run}", json.dumps([gives]).encode())

    def ended(self, run: str) -> list[Any] | None:
        """Return the result of ``run`` in a list of one, if it has ended and its client has not acknowledged that."""
        text = self._get(f"{ENDED}{run}", inside=True)
        return None if text is None else list(json.loads(text))

    def was_heard(self, run: str) -> None:
        """Delete the end marker of ``run`` after its client has acknowledged it; keep markers of other runs."""
        self._drop(f"{ENDED}{run}", inside=True)
        self._inside.clear_if_empty()
