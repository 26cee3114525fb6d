"""A sweep: the plan of one rechunk for each of several clusters, as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass

from dask.utils import format_bytes

from oocarrays.show.report import seconds_text

SWEEP_HEAD = ("workers", "memory", "threads", "strategy", "predicted", "tasks", "exchanged", "a worker holds")
"""Names of the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPlan:
    """The plan of a rechunk on one cluster; nothing but why where it does not fit."""

    workers: int
    """How many there are."""
    memory: str
    """Of a worker, as it was given."""
    threads: int
    """Of a worker."""
    strategy: str | None = None
    """What was chosen."""
    ranks: int | None = None
    """Logical processors."""
    seconds: float | None = None
    """Predicted."""
    tasks: int | None = None
    """In the graph."""
    bytes: int | None = None
    """That go from worker to worker."""
    peak_bytes: int | None = None
    """That a worker holds at most."""
    why: str | None = None
    """Why it does not fit."""

    def row(self) -> tuple[str, ...]:
        cluster = (str(self.workers), self.memory, str(self.threads))
        if self.seconds is None:
            return (*cluster, "–", self.why or "", "", "", "")
        moved = format_bytes(self.bytes or 0), format_bytes(self.peak_bytes or 0)
        return (*cluster, self.strategy or "", seconds_text(self.seconds), str(self.tasks), *moved)
