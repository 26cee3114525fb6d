"""Results that a scheduler has let go, made once more for who still needs them.

    rank 3     hold-3 is gone: all had taken of it       its worker is lost, and with it what came for rank 5
    rank 5     comes again, and needs some of hold-3  ─► wants it: the scheduler has it made again where rank 3 is
               has taken it                           ─► releases it

No task says that it needs what it takes of others: that would be an edge from each rank to each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler, Worker

Key = Any
WANT, RELEASE = "oocarrays_want", "oocarrays_release"
"""What is asked of a scheduler."""


class Wishes:
    """Wishes that a scheduler hears, and grants."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        scheduler.handlers |= {WANT: self.want, RELEASE: self.release}

    def want(self, *, keys: Sequence[Key], by: str) -> bool:
        """Keep some results, and have those made that have been let go; whether all of them are known still."""
        scheduler = self._scheduler
        known = [key for key in map(tuple, keys) if key in scheduler.tasks]
        scheduler.client_desires_keys(keys=known, client=by)
        gone: Any = {key: "waiting" for key in known if scheduler.tasks[key].state == "released"}
        scheduler.transitions(gone, stimulus_id=by)
        return len(known) == len(keys)

    def release(self, *, by: str) -> None:
        """Keep for somebody nothing more."""
        scheduler = self._scheduler
        if by in scheduler.clients:
            scheduler.client_releases_keys([task.key for task in scheduler.clients[by].wants_what], by)
            del scheduler.clients[by]

    def release_all(self, worker: str) -> None:
        """Keep nothing more for those who were on a worker."""
        for by in [name for name in self._scheduler.clients if name.startswith(_of(worker))]:
            self.release(by=by)


class Wanted:
    """Results that somebody on a worker wants made once more."""

    def __init__(self, worker: Worker, name: str) -> None:
        self._worker, self._by = worker, f"{_of(worker.address)}{name}"
        self._keys: set[Key] = set()

    async def add(self, keys: Sequence[Key]) -> bool:
        """Want some more; whether the scheduler knows how all of them are made."""
        self._keys.update(keys)
        found: bool = await self._worker.scheduler.oocarrays_want(keys=list(keys), by=self._by)
        return found

    async def release(self) -> None:
        """Want nothing more."""
        if self._keys:
            await self._worker.scheduler.oocarrays_release(by=self._by)


def _of(worker: str) -> str:
    return f"oocarrays-{worker}-"
