"""Workers that ranks are put on: those that a person chose of a cluster, what they may hold, and what they reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zarr.storage import MemoryStore, StorePath

from oocarrays.errors import (
    PlacementError,
)
from oocarrays.graphs.cluster.placement import Worker, as_they_are, budget_of, cores_of, workers_of
from oocarrays.graphs.settings import costs
from oocarrays.plan.machine import Costs
from oocarrays.storage.stores.joined import innermost, layers
from oocarrays.storage.stores.remote import RemoteStore

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where ranks are put."""

    client: Client
    """The way to the scheduler."""
    chosen: tuple[str, ...] | None
    """Addresses or names of the workers; None for all that are there."""

    def workers(self) -> list[Worker]:
        """The workers now."""
        return workers_of(self.client, self.chosen)

    def budget(self) -> int:
        """Bytes that each worker may hold for a run, as they are."""
        return budget_of(as_they_are(self.client, self.workers()))

    def costs(self) -> Costs:
        """Costs of its workers."""
        return costs(cores_of(self.workers()))


def check_reach(stores: Mapping[str, Any]) -> None:
    """Raise if a store is in this process's memory, which workers would copy, or a target takes one writer only."""
    for name, store in stores.items():
        if is_here(store):
            raise PlacementError(f"the {name} {store} is in the memory of this process: ask for scheduler='threads'")
        if name.startswith("target") and (why := why_one_writer(store)):
            raise PlacementError(f"the {name} {store} {why}")


def why_one_writer(store: Any) -> str:
    """Return why several workers cannot write to a store; nothing where they can."""
    store = store.store if isinstance(store, StorePath) else store
    return next((why for each in layers(store) if (why := str(getattr(each, "one_writer", "")))), "")


def is_here(store: Any) -> bool:
    """Whether a store is in the memory of this process."""
    here = isinstance(store, RemoteStore) and store.name.startswith("memory://")
    return here or isinstance(innermost(store), MemoryStore)
