"""Sweeps: the plan of one rechunk for each of several clusters, as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dask.utils import format_bytes

from oocarrays.show.report import seconds_text, table


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPlan:
    """Plan of a rechunk on one cluster; if it does not fit, only the reason."""

    workers: int
    """Number of workers."""
    memory: str
    """Memory of a worker, as given."""
    threads: int
    """Threads of a worker."""
    strategy: str | None = None
    """Chosen strategy."""
    ranks: int | None = None
    """Number of ranks."""
    seconds: float | None = None
    """Predicted seconds."""
    tasks: int | None = None
    """Number of tasks in the graph."""
    bytes: int | None = None
    """Bytes sent between workers."""
    peak_bytes: int | None = None
    """Peak memory of a worker in bytes."""
    why: str | None = None
    """Reason that it does not fit."""

    def row(self) -> tuple[str, ...]:
        cluster = (str(self.workers), self.memory, str(self.threads))
        if self.seconds is None:
            return (*cluster, "–", self.why or "", "", "", "")
        moved = format_bytes(self.bytes or 0), format_bytes(self.peak_bytes or 0)
        return (*cluster, self.strategy or "", seconds_text(self.seconds), str(self.tasks), *moved)


def sweep_text(found: Sequence[SweptPlan]) -> str:
    head = ("workers", "memory", "threads", "strategy", "predicted", "tasks", "exchanged", "a worker holds")
    return table([head, *(each.row() for each in found)])
