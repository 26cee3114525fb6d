"""Placement of ranks on the workers of a cluster, and the memory budget of each worker.

This module imports `distributed` only when a cluster is used: the owner of an active client has imported it already.

Files in a shared store are opened in this process. A file on a worker's own disk is opened by that worker only,
identified by name: addresses change from one start of a cluster to the next.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import dask.config

from oocarrays.errors import BudgetError, PlacementError
from oocarrays.graphs.events import ask_scheduler
from oocarrays.graphs.settings import costs, local_cores
from oocarrays.plan.machine import Costs
from oocarrays.storage.meter import Meter, available_bytes

if TYPE_CHECKING:
    from distributed import Client

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """Locations of the ranks' files: a shared store, or the workers' own disks."""

    client: Client | None = None
    """Client connected to the workers; None if files are in a shared store."""
    workers: tuple[str, ...] = ()
    """Name of each rank's worker."""

    def call(self, rank: int, task: Callable[..., Answer], *args: Any) -> Answer:
        """Call ``task(*args)`` on the worker that can open the file of ``rank``, and return its result."""
        if not self.workers:
            return task(*args)
        (address,) = self.addresses([self.workers[rank]])
        assert self.client is not None, "workers are of a cluster"
        future = self.client.submit(task, *args, workers=[address], allow_other_workers=False, pure=False)
        return future.result()

    def homes(self, put: Sequence[str]) -> Sequence[str]:
        """Return the worker of each rank: the only one that can open its file, or else the given placement."""
        return self.addresses() if self.workers else put

    def addresses(self, names: Sequence[str] | None = None) -> list[str]:
        """Return the current address of each rank's worker, or of the named workers."""
        if self.client is None:
            raise PlacementError("these files are on workers' own disks: create a client, or pass scheduler=")
        known = names_of(self.client)
        wanted = self.workers if names is None else names
        gone = sorted(set(wanted) - set(known))
        if gone:
            raise PlacementError(
                f"worker {gone[0]!r}, whose own disk holds files, is not in the cluster; its workers are "
                f"{', '.join(known)}"
            )
        return [known[name] for name in wanted]


def names_of(client: Client) -> dict[str, str]:
    """Return worker addresses by name, in the order of the names: 2 comes before 10."""
    workers = known_workers(client)
    known = {str(facts["name"]): address for address, facts in workers.items()}
    return {name: known[name] for name in sorted(known, key=lambda name: (len(name), name))}


DIAL_SECONDS = 8
"""Seconds to wait for an unresponsive scheduler."""
ARRIVAL_SECONDS = 10
"""Seconds to wait for the first worker of a cluster."""
IDLE_BYTES = 110_000_000
"""Bytes held by an idle worker after its imports."""
TOGETHER = "exchange round"
"""Key prefix of tasks that each hold the whole exchange of a round and run together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    address: str
    host: str
    threads: int
    """Number of tasks that it runs concurrently."""
    memory_limit: int
    """Memory limit in bytes; 0 for no limit."""
    memory: int


def workers_of(client: Client, chosen: Sequence[str] | None = None) -> list[Worker]:
    """Return the workers of a cluster, or the chosen ones, by address or name."""
    if client.status != "running":
        raise PlacementError(f"the client is {client.status}: create a new one, or pass scheduler='threads'")
    with suppress(TimeoutError):  # until the first worker is there
        client.wait_for_workers(1, timeout=ARRIVAL_SECONDS)
    known = known_workers(client)
    if not known:
        raise PlacementError(f"the cluster at {client.scheduler.address} has no workers")  # type: ignore[union-attr]
    if chosen is not None and not chosen:
        raise PlacementError("workers=[] is empty; omit it to use all workers")
    by_name = {str(facts["name"]): address for address, facts in known.items()}
    wanted = sorted(known) if chosen is None else [by_name.get(str(name), str(name)) for name in chosen]
    for address in wanted:
        if address not in known:
            raise PlacementError(f"no worker {address!r} in the cluster; its workers are {', '.join(sorted(by_name))}")
    return [_worker(address, known[address]) for address in dict.fromkeys(wanted)]


def known_workers(client: Client) -> dict[str, dict[str, Any]]:
    """Return the scheduler's facts of each worker, by address.

    ``client.scheduler_info()`` reads the client's cache, and occasionally finds no worker there: every two seconds the
    client overwrites the cache with an answer that lists no workers.
    """
    told: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)  # type: ignore[union-attr]
    return told["workers"]


def idle_workers(client: Client, addresses: Collection[str]) -> list[str]:
    """Return why the workers at ``addresses`` make no progress: a line for each paused worker, or one for all."""
    known = known_workers(client)
    if not known:
        return ["the cluster has had no workers"]
    return [f"worker {a} has been paused" for a in sorted(addresses) if known.get(a, {}).get("status") == "paused"]


def _worker(address: str, facts: dict[str, Any]) -> Worker:
    return Worker(
        address=address,
        host=facts["host"],
        threads=facts["nthreads"],
        memory_limit=facts["memory_limit"] or 0,
        memory=facts.get("metrics", {}).get("memory", 0),
    )


def as_they_are(client: Client, workers: Sequence[Worker]) -> list[Worker]:
    """Return the workers with the current memory use of their processes.

    The scheduler's figure is up to a second old: just after a job, it includes the messages and mapped files of that
    job. For workers that do not answer within a second, the scheduler's figure is used.
    """
    text, status = dict[str, str](), Path("/proc/self/status")  # on Linux
    with suppress(TimeoutError, OSError):
        addresses = [worker.address for worker in workers]
        text = client.sync(client._run, status.read_text, workers=addresses, on_error="ignore", callback_timeout=1)
    lines = {address: re.search(r"^VmRSS:\s*(\d+) kB", said, re.MULTILINE) for address, said in text.items()}
    resident = {address: 1024 * int(line[1]) for address, line in lines.items() if line}  # as Dask's limits count it
    return [replace(worker, memory=resident.get(worker.address) or worker.memory) for worker in workers]


def budget_of(workers: Sequence[Worker]) -> int:
    """Return the bytes that each worker may hold for a run: below its spill thresholds, less its idle memory.

    One threshold is for the memory of the process, one for the stored results: `distributed.worker.memory`.
    """
    target, spill = (dask.config.get(f"distributed.worker.memory.{line}") or 0.7 for line in ("target", "spill"))
    limited = [worker for worker in workers if worker.memory_limit]
    left = [int(w.memory_limit * spill) - max(IDLE_BYTES, w.memory) for w in limited]
    left += [int(w.memory_limit * target) for w in limited]
    left += [available_bytes() // 2 // count for count in Counter(w.host for w in workers).values()]
    if min(left) <= 0:
        raise BudgetError(min(w.memory_limit for w in limited), int((IDLE_BYTES + 2**25) / spill), "a worker")
    return min(left)


def cores_of(workers: Sequence[Worker]) -> int:
    """Return the number of usable processors: the workers' threads, at most the cores of a shared machine."""
    here = sum(worker.threads for worker in workers if _is_here(worker))
    return min(here, local_cores()) + sum(worker.threads for worker in workers if not _is_here(worker))


def _is_here(worker: Worker) -> bool:
    """Return whether a worker is on this machine, by loopback, in-process or own network address."""
    local = worker.host in ("127.0.0.1", "localhost", "::1") or worker.address.startswith("inproc://")
    return local or worker.host == _own_address()


@cache
def _own_address() -> str:
    """Return the address by which other machines know this one."""
    from distributed.utils import get_ip

    return str(get_ip())


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


_CLIENTS: dict[str, Client] = {}
"""Clients made by this module, by the address of their scheduler."""


def client_of(scheduler: Client | str | None) -> Client | None:
    """Return the client of a cluster; None if ranks are threads."""
    if scheduler is None:
        scheduler = _active_client()
    if scheduler is None or (isinstance(scheduler, str) and scheduler == "threads"):
        return None
    client = _connected(scheduler) if isinstance(scheduler, str) else scheduler
    used = ("asynchronous", "status", "scheduler", "submit")
    if not all(hasattr(client, name) for name in used):
        raise PlacementError(f"scheduler={scheduler!r} is not a client, an address, or 'threads'")
    if client.asynchronous:
        raise PlacementError("an asynchronous client is active: pass scheduler='threads', or a synchronous client")
    return client


def _active_client() -> Client | None:
    if dask.config.get("scheduler", "distributed") not in ("distributed", "dask.distributed"):
        return None
    distributed = sys.modules.get("distributed")
    try:
        client: Client | None = distributed.default_client() if distributed else None
    except ValueError:
        client = None
    return client


def _connected(address: str) -> Client:
    if ":" not in address:
        raise PlacementError(f"scheduler={address!r} is not an address such as tcp://10.0.0.7:8786, or 'threads'")
    from distributed import Client

    _check_certificates(address)
    known = _CLIENTS.get(address)
    if known is None or known.status != "running":
        try:
            known = Client(address, timeout=DIAL_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError, RuntimeError, NotImplementedError, ImportError) as error:
            raise PlacementError(f"no scheduler answers at {address!r}: {error}") from error
        _CLIENTS[address] = known
    return known


def _check_certificates(address: str) -> None:
    """Raise if a TLS address has no certificates: Dask detects this so late that its client cannot be closed."""
    from distributed.security import Security

    if address.startswith("tls://") and Security().get_connection_args("client").get("ssl_context") is None:
        raise PlacementError(
            f"no scheduler answers at {address!r}: TLS needs certificates; set distributed.comm.tls.* in Dask's "
            "configuration"
        )


Probed = tuple[int, str, str]
"""Rank, its planned worker and its actual worker."""


def check_placement(probes: Sequence[Probed]) -> None:
    """Raise if ranks ran on other workers than planned, unless the planned workers are gone."""
    astray = [(rank, put, ran) for rank, put, ran in probes if put != ran]
    if astray and not {put for _, put, _ in astray}.isdisjoint(ask_scheduler("identity", n_workers=-1)["workers"]):
        rank, put, ran = astray[0]
        raise PlacementError(
            f"rank {rank} was pinned to worker {put} and ran on {ran}: this cluster moves pinned tasks"
        )
