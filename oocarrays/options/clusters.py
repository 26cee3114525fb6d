"""Models of clusters, by workers, memory and network, for plans that cannot be run.

    Cluster(workers=64, memory="4GiB", network="fat-tree")     job = rechunk(…, scheduler=cluster)
                                                               job.explain(), job.plan     as of any cluster
                                                               job.run()                   raises in one line

The seconds of messages come from the network's model: complete exchanges of small and of large messages are priced, and
the line through both gives the seconds of a step and of a byte.
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
"""Message sizes in bytes that calibrate a network's model."""
MOST_WORKERS = 2**14
"""Maximum number of workers of a planned cluster."""


class _Nobody:
    """Client of a planned cluster."""

    def __getattr__(self, name: str) -> NoReturn:
        raise UnsupportedError("this cluster is for plans only: to run a job, give scheduler= one that is there")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCluster(real.Cluster):
    """Model of a cluster: created by `planned_cluster`."""

    there: tuple[Worker, ...]
    """Its workers."""
    prices: Costs
    """Their costs."""

    def workers(self) -> list[Worker]:
        return list(self.there)

    def budget(self) -> int:
        """Budget of each worker in bytes: up to its spill threshold, less its idle memory."""
        lines = (("target", 0.6), ("spill", 0.7))  # Dask's own, for stored data and by process memory
        target, spill = (dask.config.get(f"distributed.worker.memory.{name}", line) or line for name, line in lines)
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
    """Return a model of a cluster for ``scheduler=``: its jobs can be planned, explained and drawn, but not run.

    Parameters
    ----------
    workers : int
        Number of workers, each on its own machine.
    memory : int or str
        Memory limit of each worker, such as ``"4GiB"``.
    threads : int
        Threads of each worker.
    network : str, optional
        Network between the workers, such as ``"fat-tree"``, ``"mesh:8x8"`` or ``"dragonfly:4x4x4"``; by default the
        calibration between workers.
    constants : str, mapping or list of mappings, optional
        Cost constants of its messages: see ``--constants`` of ``oocarrays redistribute``.
    storage : float or str, optional
        Bandwidth of all workers together for reads and for writes, in bytes a second, such as ``"10GB"``; by default
        the calibration.

    Returns
    -------
    PlannedCluster
        For every ``scheduler=`` that accepts a client.

    Raises
    ------
    InputError
        Without workers or memory, or for an unknown network.

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
    """Return costs with message times of a network."""
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
"""Public name of `planned_cluster`."""
