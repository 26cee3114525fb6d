"""Clusters that are not there: what would run, in which memory, over which network; for plans, which cannot be run.

    Cluster(workers=64, memory="4GiB", network="fat-tree")     job = rechunk(…, scheduler=cluster)
                                                               job.explain(), job.plan     as of any cluster
                                                               job.run()                   one line that says why not

The seconds of messages are those of the network's model: a complete exchange of small and of large messages is priced,
and a line through both is what a step and a byte of it take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import dask
import numpy as np

from oocarrays.errors import InputError, UnsupportedError
from oocarrays.graphs import settings
from oocarrays.graphs.cluster import workers as real
from oocarrays.graphs.cluster.placement import IDLE_BYTES, Worker
from oocarrays.mapping.given import whole
from oocarrays.options.networks import carrier_of
from oocarrays.plan.exchange.prediction import Carrier
from oocarrays.plan.machine import Costs

SMALL, LARGE = 2**10, 2**22
"""Bytes of the messages by which a network is known."""
LINES = (("target", 0.6), ("spill", 0.7))
"""Shares of a worker's memory at which it puts what it keeps, and what its process holds, on its disk: Dask's own."""
MOST_WORKERS = 2**14
"""Workers of a cluster that is not there, at most."""


class _Nobody:
    """The client of a cluster that is not there."""

    def __getattr__(self, name: str) -> NoReturn:
        raise UnsupportedError("this cluster is for plans only: to run a job, give scheduler= one that is there")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCluster(real.Cluster):
    """A cluster that is not there: made by `planned_cluster`."""

    there: tuple[Worker, ...]
    """Its workers."""
    prices: Costs
    """What they take."""

    def workers(self) -> list[Worker]:
        return list(self.there)

    def budget(self) -> int:
        """Bytes that each worker may hold: below the lines at which it spills, less what it holds when idle."""
        target, spill = (dask.config.get(f"distributed.worker.memory.{name}", line) or line for name, line in LINES)
        limit = self.there[0].memory_limit
        return max(min(int(limit * spill) - IDLE_BYTES, int(limit * target)), 1)

    def costs(self) -> Costs:
        return self.prices

    def __repr__(self) -> str:
        one = self.there[0]
        return (
            f"<oocarrays.Cluster of {len(self.there)} workers that are not there, {one.threads} threads and "
            f"{one.memory_limit} bytes each>"
        )


def planned_cluster(
    *,
    workers: int,
    memory: int | str,
    threads: int = 1,
    network: str | None = None,
    constants: Any = None,
    storage: float | str | None = None,
) -> Any:
    """Return a cluster that is not there, for ``scheduler=``: jobs on it can be planned, explained and drawn, not run.

    Parameters
    ----------
    workers : int
        How many there would be, each on a machine of its own.
    memory : int or str
        The limit of each one, such as ``"4GiB"``.
    threads : int
        Threads of each.
    network : str, optional
        What carries messages, such as ``"fat-tree"``, ``"mesh:8x8"`` or ``"dragonfly:4x4x4"``; by default what was
        calibrated between workers.
    constants : str, mapping or list of mappings, optional
        What messages take on it: see ``--constants`` of ``oocarrays redistribute``.
    storage : float or str, optional
        Bytes a second that all workers together read, and write, such as ``"10GB"``; by default what was calibrated.

    Returns
    -------
    PlannedCluster
        For ``scheduler=`` of whatever takes a client there.

    Raises
    ------
    InputError
        Where there are no workers, no memory, or no such network.

    Examples
    --------
    >>> cluster = planned_cluster(workers=64, memory="4GiB", threads=2, network="fat-tree")
    >>> cluster
    <oocarrays.Cluster of 64 workers that are not there, 2 threads and 4294967296 bytes each>
    >>> len(cluster.workers()), cluster.costs().cores
    (64, 128)
    """
    many, each = whole(workers, "workers", 1), whole(threads, "threads", 1)
    if many > MOST_WORKERS:
        raise InputError(f"workers={many} are more than the {MOST_WORKERS} that can be planned for")
    limit = settings.size_in_bytes(memory, "memory")
    there = tuple(
        Worker(address=f"tcp://worker-{n}:0", host=f"worker-{n}", threads=each, memory_limit=limit, memory=0)
        for n in range(many)
    )
    prices = settings.costs(many * each)
    if network is not None or constants is not None:
        prices = _carried(prices, carrier_of(network, many, constants))
    if storage is not None:
        rate = float(settings.size_in_bytes(storage, "storage"))
        prices = replace(prices, read_bandwidth=rate, write_bandwidth=rate, remote_bandwidth=rate)
    return PlannedCluster(client=_Nobody(), chosen=None, there=there, prices=prices)  # type: ignore[arg-type]


def _carried(costs: Costs, carrier: Carrier) -> Costs:
    """Return costs whose messages take what they take on a network."""
    ranks = carrier.network.ranks
    if ranks < 2:
        return costs
    small, large = (
        carrier.cheapest(np.full((ranks, ranks), nbytes), "pex" if ranks & (ranks - 1) == 0 else "gen")[1] / (ranks - 1)
        for nbytes in (SMALL, LARGE)
    )
    byte = max(large - small, 0.01 * large) / (LARGE - SMALL)
    startup = max(small - SMALL * byte, 0.0)
    known = dict.fromkeys(("exchange", "send_receive", "single", "saturated"), byte)
    exchange = {**costs.exchange, **known, "startup": startup}
    return replace(costs, message_seconds=startup, message_bandwidth=1 / byte, exchange=exchange)


Cluster = planned_cluster
"""As people name it: it stands where a cluster does."""
