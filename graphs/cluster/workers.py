"""Workers chosen for a run: their memory budget, and the stores they can reach."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zarr.storage import MemoryStore, StorePath

from oocarrays.errors import PlacementError
from oocarrays.graphs.cluster.placement import Worker, as_they_are, budget_of, cores_of, workers_of
from oocarrays.graphs.settings import costs, setting
from oocarrays.plan.machine import Costs
from oocarrays.storage.files.creating import TargetSpec
from oocarrays.storage.files.places import store_path
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.joined import innermost, layers
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.sessions import SessionStore, taken_fork

if TYPE_CHECKING:
    from distributed import Client


def check_forks(run: Any) -> None:
    """Raise if a run on workers writes groups, local files or several passes to an icechunk session."""
    program = run.program
    for name, store in program.stores.items():
        if name.startswith("target") and _session_of(store) is not None and not program.merges:
            raise PlacementError(
                f"the {name} {store} is an icechunk session, to which workers write single arrays in one pass: for "
                "groups, local array files and iterations pass scheduler='threads'"
            )


def check_forked(run: Any) -> None:
    """Raise if a graph for a cluster writes to a session that is not forked."""
    if any(store is not None and not store.is_shared for store in (_session_of(t.store) for t in _targets(run))):
        raise PlacementError("an icechunk session can be forked for workers by job.run() only, not by dask.compute")


@contextmanager
def forked(run: Any, client: Client) -> Iterator[None]:
    """Fork written sessions for the duration of the block; merge the writes if it ends without error."""
    stores = {id(store): store for target in _targets(run) if (store := _session_of(target.store)) is not None}
    if not stores:
        yield
        return
    if len(stores) > 1:
        raise PlacementError("in one run, workers write to a single icechunk session: pass targets in the same session")
    ((_, store),) = stores.items()
    arrays = {store_path(t.store).path: t.settings for t in _targets(run)}
    asked = getattr(run.destination, "scratch", None) or setting("scratch")
    scratch = asked if isinstance(asked, str) else None
    name, folder = uuid.uuid4().hex, tempfile.mkdtemp(prefix=".oocarrays-forks-", dir=scratch)
    try:
        store.begin_sharing(name, arrays, folder)
        yield
        store.merge(_taken(client, name))
    finally:
        store.end_sharing()
        with suppress(Exception):  # the workers may be gone
            _taken(client, name)
        shutil.rmtree(folder, ignore_errors=True)


def _taken(client: Client, name: str) -> Mapping[str, bytes]:
    """Return the bytes of each process's fork, by process signature."""
    found = client.run(taken_fork, name, on_error="ignore")
    return dict(each for each in found.values() if each is not None)


def _targets(run: Any) -> list[TargetSpec]:
    return [array for each in run.program.targets for array in each.members or (each,)]


def _session_of(place: Any) -> SessionStore | None:
    store = place.store if isinstance(place, StorePath) else place
    return store if isinstance(store, SessionStore) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    client: Client
    chosen: tuple[str, ...] | None
    """Addresses or names of the workers; None for all."""

    def workers(self) -> list[Worker]:
        return workers_of(self.client, self.chosen)

    def budget(self) -> int:
        """Return the bytes that each worker may hold for a run, given its current memory use."""
        return budget_of(as_they_are(self.client, self.workers()))

    def costs(self) -> Costs:
        return costs(cores_of(self.workers()))


@dataclass(frozen=True, slots=True)
class Where:
    """Location of ranks, and the meter of their reads and messages."""

    cluster: Cluster | None
    """None for threads of this process."""
    workers: tuple[str, ...]
    """Addresses of workers that ranks are put on, neighbours together."""
    meter: Meter = field(default_factory=Meter)


def check_reach(stores: Mapping[str, Any]) -> None:
    """Raise if a store is in this process's memory, out of workers' reach, or if a target allows one writer only."""
    for name, store in stores.items():
        if is_here(store):
            raise PlacementError(f"the {name} {store} is in this process's memory: pass scheduler='threads'")
        if name.startswith("target") and (why := why_one_writer(store)):
            raise PlacementError(f"the {name} {store} {why}")


def why_one_writer(store: Any) -> str:
    """Return the reason why several workers cannot write to a store; empty if they can."""
    store = store.store if isinstance(store, StorePath) else store
    return next((why for each in layers(store) if (why := str(getattr(each, "one_writer", "")))), "")


def is_here(store: Any) -> bool:
    here = isinstance(store, RemoteStore) and store.name.startswith("memory://")
    return here or isinstance(innermost(store), MemoryStore)
