"""How far a run came that left a target unfinished, for those who only look: nothing is begun."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from oocarrays.errors import OocError
from oocarrays.leftovers.resume import kind_left, resume
from oocarrays.plan.documents import Document
from oocarrays.requests.request import chunks_done, chunks_text
from oocarrays.show.report import seconds_text
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.journal.texts import FOLDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a run came."""

    kind: str | None
    """The function that planned it; None where its journal does not tell."""
    chunks: tuple[int, int] | None
    """The chunks of its target that are written, and all; None where its journal does not tell."""
    done: float | None
    """The share of its bytes that are read and written, of 1; None where it cannot be planned again as it is."""
    age: float | None
    """Seconds since it last wrote something down; None where its journal is in no local folder."""
    plan: str | None
    """How it was planned, in a line."""
    why: str | None
    """Why it cannot be planned again, where it cannot."""

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield what a person reads of it."""
        if self.done is not None:
            yield "done", f"{100 * self.done:.0f} % by {self.kind}"
        if self.chunks is not None:
            yield "written", chunks_text(self.chunks)
        if self.age is not None:
            yield "last written", f"{seconds_text(self.age)} ago"
        if self.plan or self.why:
            yield "plan", self.plan or f"unknown: {self.why}"

    def as_json(self) -> Document:
        """Return the same for machines."""
        return {
            "by": self.kind,
            "chunks": self.chunks,
            "done": self.done,
            "seconds_ago": self.age,
            "plan": self.plan,
            "why": self.why,
        }


def standing(target: StoreLike) -> Standing | None:
    """Look how far the run came that was writing a target; None where it is finished, or there is none."""
    if unfinished_run(target) is None:
        return None
    kind = done = plan = why = None
    try:
        kind = kind_left(target)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # who resumes is told
            job = resume(target)
        done, plan = 1 - job.left, repr(getattr(job, "plan", job)).removeprefix("<oocarrays.").removesuffix(">")
    except OocError as error:
        why = str(error)
    return Standing(kind=kind, chunks=chunks_done(target), done=done, age=_age(target), plan=plan, why=why)


def _age(target: StoreLike) -> float | None:
    """Seconds since anything was written down beside a target."""
    folder = local_folder(target)
    times = []
    for at, _, names in os.walk(os.path.join(folder, FOLDER)) if folder else ():
        for name in names:
            with suppress(OSError):
                times.append(os.stat(os.path.join(at, name)).st_mtime)
    return max(time.time() - max(times), 0.0) if times else None
