"""Workers' own disks: what is asked of a rank's file is done where the file is.

Files in a shared store are opened here; a file on a worker's own disk is opened by that worker only, which is known
by its name: addresses change from one start of a cluster to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from oocarrays.errors import PlacementError
from oocarrays.graphs.cluster.placement import known_workers

if TYPE_CHECKING:
    from distributed import Client

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """Where the file of each rank can be opened."""

    client: Client | None = None
    """The way to the workers; None where files are in a shared store."""
    workers: tuple[str, ...] = ()
    """The name of each rank's worker."""

    def call(self, rank: int, task: Callable[..., Answer], *args: Any) -> Answer:
        """Call ``task(*args)`` where the file of ``rank`` is, and return its result."""
        if not self.workers:
            return task(*args)
        (address,) = self.addresses([self.workers[rank]])
        assert self.client is not None, "workers are of a cluster"
        future = self.client.submit(task, *args, workers=[address], allow_other_workers=False, pure=False)
        answer: Answer = future.result()
        return answer

    def homes(self, put: Sequence[str]) -> Sequence[str]:
        """The worker of each rank: of a file on a worker's own disk the only one that can open it; else as put."""
        return self.addresses() if self.workers else put

    def addresses(self, names: Sequence[str] | None = None) -> list[str]:
        """Return the address of each rank's worker, or of some, now."""
        if self.client is None:
            raise PlacementError("these files are on workers' own disks: make a client, or give scheduler=")
        known = names_of(self.client)
        wanted = self.workers if names is None else names
        gone = sorted(set(wanted) - set(known))
        if gone:
            raise PlacementError(
                f"worker {gone[0]!r}, on whose own disk files are, is not in the cluster; there are {', '.join(known)}"
            )
        return [known[name] for name in wanted]


def names_of(client: Client) -> dict[str, str]:
    """Return the address of each worker, by its name, in the order of the names: 2 comes before 10."""
    workers = known_workers(client)
    known = {str(facts["name"]): address for address, facts in workers.items()}
    return {name: known[name] for name in sorted(known, key=lambda name: (len(name), name))}
