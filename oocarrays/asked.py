"""What a person asks for beside the work itself: where it runs, in how much memory, and where scratch goes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oocarrays.errors import PlacementError
from oocarrays.graphs import settings
from oocarrays.graphs.placement import budget_of, client_of, cores_of
from oocarrays.graphs.run import Cluster
from oocarrays.storage import array_file
from oocarrays.storage.array_file import StoreLike

if TYPE_CHECKING:
    from distributed import Client


def cluster_of(scheduler: Client | str | None, workers: Sequence[str] | None) -> Cluster | None:
    """The workers that are asked for; None for threads of this process."""
    client = client_of(scheduler)
    if client is None and workers is not None:
        raise PlacementError(f"workers={workers!r}, but there is no cluster: give scheduler=, or make a client")
    return None if client is None else Cluster(client=client, chosen=None if workers is None else tuple(workers))


def means_of(cluster: Cluster | None, memory: Any) -> dict[str, Any]:
    """What a plan may use: memory, and what it takes to use it."""
    if cluster is None:
        return {"budget": settings.budget(memory), "costs": settings.costs()}
    there = cluster.workers()
    given = settings.setting("memory") if memory is None else memory
    return {
        "budget": budget_of(there) if given is None else settings.budget(given),
        "costs": settings.costs(cores_of(there)),
        "processes": len(there),
        "threads": min(w.threads for w in there),
        "synchronous": settings.setting("assembly") == "synchronous",
    }


def scratch_folder(scratch: str | os.PathLike[str] | None, target: StoreLike) -> str:
    """Where scratch goes: beside the target, if nothing is said."""
    chosen = scratch or settings.setting("scratch")
    if chosen:
        return os.path.abspath(chosen)
    folder = array_file.local_folder(target)
    return os.path.dirname(folder) if folder else tempfile.gettempdir()
