"""Recompute results that a scheduler has released, for ranks that still need them.

    rank 3     hold-3 is released: all received it       its worker is lost, with the data received for rank 5
    rank 5     runs again, and needs part of hold-3  ─► wants it: the scheduler recomputes it on rank 3's worker
               has received it                           ─► releases it

Tasks do not list other ranks' results as dependencies: that would add an edge between every two ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler, Worker

Key = Any
WANT, RELEASE = "oocarrays_want", "oocarrays_release"
"""Handler names of the scheduler for these requests."""


class Wishes:
    """Scheduler handlers that recompute released results on request."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        scheduler.handlers |= {WANT: self.want, RELEASE: self.release}

    def want(self, *, keys: Sequence[Key], by: str) -> bool:
        """Keep some results and recompute the released ones; return whether the scheduler knows all of them."""
        scheduler = self._scheduler
        known = [key for key in map(tuple, keys) if key in scheduler.tasks]
        scheduler.client_desires_keys(keys=known, client=by)
        gone: Any = {key: "waiting" for key in known if scheduler.tasks[key].state == "released"}
        scheduler.transitions(gone, stimulus_id=by)
        return len(known) == len(keys)

    def release(self, *, by: str) -> None:
        """Release every result kept for a requester."""
        scheduler = self._scheduler
        if by in scheduler.clients:
            scheduler.client_releases_keys([task.key for task in scheduler.clients[by].wants_what], by)
            del scheduler.clients[by]

    def release_all(self, worker: str) -> None:
        """Release every result kept for the requesters on a worker."""
        for by in [name for name in self._scheduler.clients if name.startswith(_of(worker))]:
            self.release(by=by)


class Wanted:
    """Results that a requester on a worker needs recomputed."""

    def __init__(self, worker: Worker, name: str) -> None:
        self._worker, self._by = worker, f"{_of(worker.address)}{name}"
        self._keys: set[Key] = set()

    async def add(self, keys: Sequence[Key]) -> bool:
        """Request more results; return whether the scheduler knows how to compute all of them."""
        self._keys.update(keys)
        found: bool = await self._worker.scheduler.oocarrays_want(keys=list(keys), by=self._by)
        return found

    async def release(self) -> None:
        """Release every requested result."""
        if self._keys:
            await self._worker.scheduler.oocarrays_release(by=self._by)


def _of(worker: str) -> str:
    return f"oocarrays-{worker}-"
