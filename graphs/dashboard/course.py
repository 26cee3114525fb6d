"""The course of a run as its scheduler sees it: which tasks of which rank are done, what was read, sent and written.

tasks arrive ─► awaited      by column and rank: ``("send step 2", 3)``
a task ends  ─► done
workers tell ─► counted      bytes and requests, as `oocarrays.graphs.run.telling` has them
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oocarrays.storage.meter import done_share

Cell = tuple[str, int]
"""What is done, and by which rank."""
STEP = re.compile(r"(\w+) step (\d+)$")
ORDER = ("read", "send", "receive", "assemble", "copy", "write")
"""What stands in which order; steps of an exchange follow what is read."""
UNSEEN = ("run", "create", "probe", "start", "free", "finish", "taken", "name", "carry")
"""Tasks that move nothing: they are counted, and not shown."""
COUNTED = ("read_requests", "read_bytes", "write_requests", "written_bytes", "sent_bytes", "messages", "skipped_chunks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The words of a client on a run, before it begins."""

    title: str
    """What is done, and where it goes."""
    budget: int = 0
    """Bytes that each worker may hold; 0 where nobody has said."""
    peak_bytes: int = 0
    """Bytes that it will hold at most, as planned."""
    read_requests: int = 0
    """Requests that read, as planned."""
    read_bytes: int = 0
    """Bytes that those bring, as planned."""
    write_requests: int = 0
    """Chunks that are written, as planned."""
    written_bytes: int = 0
    """Bytes of those, as planned."""


@dataclass(slots=True, kw_only=True)
class SeenRun:
    """How far a run is.

    >>> course = SeenRun(told=Told(title="a → b"))
    >>> course.arrive([("read-6e", 0, 0), ("send step 1-6e", 0, 1, 0), ("finish-6e", 0)], "-6e")
    >>> course.end(("read-6e", 0, 0), "-6e")
    >>> course.columns(), course.ranks(), round(course.share(), 2)
    (['read', 'send step 1'], [0], 0.33)
    >>> course.cell("read", 0), course.cell("send step 1", 0)
    (1.0, 0.0)
    """

    told: Told
    """What its client said of it."""
    homes: Mapping[int, str] = field(default_factory=dict)
    """The worker of each rank."""
    idle: dict[str, int] = field(default_factory=dict)
    """Bytes that each worker held before."""
    begun: float = field(default_factory=time.monotonic)
    """When the first of its tasks arrived."""
    over: float | None = None
    """When its last task had been done."""
    awaited: Counter[Cell] = field(default_factory=Counter)
    """Tasks in all."""
    done: Counter[Cell] = field(default_factory=Counter)
    """Tasks that have been done."""
    counted: Counter[str] = field(default_factory=Counter)
    """What workers have told."""

    def arrive(self, keys: Iterable[Any], suffix: str) -> None:
        """Take note of tasks that are to be done."""
        cells = [cell_of(key, suffix) for key in keys]
        if cells and not self.awaited:
            self.begun = time.monotonic()
        self.awaited.update(cells)

    def end(self, key: Any, suffix: str) -> None:
        """Take note of a task that has been done; one that is done again counts once."""
        cell = cell_of(key, suffix)
        self.done[cell] = min(self.done[cell] + 1, self.awaited[cell])

    def tell(self, told: Mapping[str, Any]) -> None:
        """Take note of what a worker has counted, or of the end."""
        self.counted.update({name: told[name] for name in COUNTED if name in told})
        if "ended" in told:
            self.over = time.monotonic()

    # ------------------------------------------------------------------ what is shown

    def columns(self) -> list[str]:
        """Name what ranks do, in the order in which they do it."""
        names = {name for name, _ in self.awaited if name.split()[0] not in UNSEEN}
        return sorted(names, key=_place)

    def ranks(self) -> list[int]:
        """Return the ranks that have tasks."""
        return sorted({rank for _, rank in self.awaited})

    def cell(self, column: str, rank: int) -> float | None:
        """Return the share of the tasks of a column and rank that is done; None where there are none."""
        count = self.awaited[column, rank]
        return self.done[column, rank] / count if count else None

    def share(self) -> float:
        """Return what is done, of 1: of the bytes that were planned, or of the tasks."""
        if self.over is not None:
            return 1.0
        told, counted = self.told, self.counted
        total = told.read_bytes + told.written_bytes
        if not total:
            return self.done.total() / max(self.awaited.total(), 1)
        read = done_share(counted["read_requests"], told.read_requests) * told.read_bytes
        written = (
            done_share(counted["write_requests"] + counted["skipped_chunks"], told.write_requests) * told.written_bytes
        )
        return (read + written) / total

    def seconds(self) -> float:
        """Return the seconds since it began, or that it took."""
        return (time.monotonic() if self.over is None else self.over) - self.begun

    def left(self) -> float | None:
        """Return the seconds that are left at the pace so far; None where nobody knows, or it is over."""
        share = self.share()
        return self.seconds() * (1 - share) / share if share > 0 and self.over is None else None


def cell_of(key: Any, suffix: str) -> Cell:
    """Return what a task does, and its rank.

    >>> cell_of(("send step 2-6ea7", 0, 2, 2, 3), "-6ea7"), cell_of(("finish-6ea7", 0), "-6ea7")
    (('send step 2', 3), ('finish', 0))
    """
    rank = key[-1]
    return key[0].partition(suffix)[0], rank if isinstance(rank, int) else 0


def _place(column: str) -> tuple[int, int, int, str]:
    """Where a column stands: what is read, the steps one after the other, then what is written."""
    step = STEP.match(column)
    verb = step[1] if step else column.split()[0]
    order = ORDER.index(verb) if verb in ORDER else len(ORDER)
    if step:
        return 1, int(step[2]), order, column
    return (0 if verb == "read" else 2), 0, order, column
