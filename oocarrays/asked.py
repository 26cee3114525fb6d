"""What a person asks for beside the work itself: where it runs, in how much memory, and where scratch goes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oocarrays.errors import PlacementError, UnsupportedError
from oocarrays.graphs import settings
from oocarrays.graphs.placement import budget_of, client_of, cores_of
from oocarrays.graphs.run import Cluster
from oocarrays.storage import array_file
from oocarrays.storage.array_file import StoreLike
from oocarrays.storage.remote import RemoteStore
from oocarrays.storage.urls import scratch_place

if TYPE_CHECKING:
    from distributed import Client


def cluster_of(scheduler: Client | str | None, workers: Sequence[str] | None) -> Cluster | None:
    """The workers that are asked for; None for threads of this process."""
    client = client_of(scheduler)
    if client is None and workers is not None:
        raise PlacementError(f"workers={workers!r}, but there is no cluster: give scheduler=, or make a client")
    return None if client is None else Cluster(client=client, chosen=None if workers is None else tuple(workers))


def means_of(cluster: Cluster | None, memory: Any, schedule: str | None = None) -> dict[str, Any]:
    """What a plan may use: memory, and what it takes to use it; and the order in which its ranks exchange."""
    order = settings.setting("schedule") if schedule is None else schedule
    asked = {"requests": settings.ways().requests, "schedule": order}
    if cluster is None:
        return {"budget": settings.budget(memory), "costs": settings.costs(), **asked}
    there = cluster.workers()
    given = settings.setting("memory") if memory is None else memory
    return {
        "budget": budget_of(there) if given is None else settings.budget(given),
        "costs": settings.costs(cores_of(there)),
        **asked,
        "processes": len(there),
        "threads": min(w.threads for w in there),
        "synchronous": settings.setting("assembly") == "synchronous",
    }


def scratch_of(scratch: Any, target: StoreLike) -> str | RemoteStore:
    """Where scratch goes: a folder, or a prefix of a store; beside the target, if nothing is said."""
    if scratch is not None:
        return scratch_place(scratch)
    folder = array_file.local_folder(target)
    return os.path.dirname(folder) if folder else tempfile.gettempdir()


def scratch_folder(scratch: Any, target: StoreLike) -> str:
    """The same where it can only be a folder.

    Raises
    ------
    UnsupportedError
        Where it is not on this machine.
    """
    place = scratch_of(scratch or settings.setting("scratch"), target)
    if not isinstance(place, str) or "://" in str(scratch):
        raise UnsupportedError(f"scratch={scratch!r}: blocks that are computed wait in a local folder")
    return place
