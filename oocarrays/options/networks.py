"""Models of networks and of clusters, for plans that cannot be run: a topology, and the cost constants of its messages.

    network      mesh:4x8   torus:4x8   hypercube   fat-tree   dragonfly:9x4x2   flat   flat:2x4
    constants    delta   delta-fitted   cm-5   workers                    by name
                 startup=5us,exchange=0.1ns,saturated=0.1ns               as text: seconds, and seconds a byte
                 machine.yaml                                             a small file, of one network or of several

Missing constants come from the setting ``oocarrays.networks`` for the kind of network, and otherwise from its defaults.

    planned_cluster(workers=64, memory="4GiB", network="fat-tree")     job = rechunk(…, scheduler=cluster)
                                                               job.explain(), job.plan     as of any cluster
                                                               job.run()                   raises in one line

The seconds of messages come from the network's model: complete exchanges of small and of large messages are priced, and
the line through both gives the seconds of a step and of a byte.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

import dask
import dask.config
import numpy as np
from dask.utils import parse_timedelta

from oocarrays.errors import InputError, ScheduleError, UnsupportedError, plural
from oocarrays.graphs import settings
from oocarrays.graphs.cluster import placement as real
from oocarrays.graphs.cluster.placement import IDLE_BYTES, Worker
from oocarrays.graphs.settings import costs, setting
from oocarrays.mapping.given import whole
from oocarrays.plan.exchange.network import Dragonfly, FatTree, FlatCluster, Hypercube, Mesh, Network, Torus
from oocarrays.plan.exchange.prediction import (
    BETWEEN_WORKERS,
    CM5,
    DELTA,
    MEASURED_DELTA,
    Carrier,
    Constants,
    flat_constants,
)
from oocarrays.plan.machine import Costs

NETWORKS = (
    "mesh:4x8, torus:4x8, hypercube, fat-tree, dragonfly:9x4x2 for 2 ranks on each of 4 routers of 9 groups, flat, or "
    "flat:2x4 for 4 ranks on each of 2 hosts"
)
NAMED: dict[str, tuple[tuple[Constants, ...], str]] = {
    "delta": (DELTA, "the thesis's constants of the Touchstone Delta"),
    "delta-fitted": (MEASURED_DELTA, "constants fitted to what the thesis measured on the Touchstone Delta"),
    "cm-5": (CM5, "constants of the CM-5 by the bandwidth that the thesis names"),
}
KINDS: dict[type, tuple[str, str, str]] = {
    Mesh: ("mesh", "delta-fitted", "a mesh of {0.rows} × {0.columns}"),
    Torus: ("torus", "delta", "a torus of {0.rows} × {0.columns}"),
    Hypercube: ("hypercube", "delta", "a hypercube of {0.dimensions} dimensions"),
    FatTree: ("fat-tree", "cm-5", "a fat tree of {0.ranks} ranks"),
    Dragonfly: ("dragonfly", "workers", "a dragonfly of {0.groups} × {0.routers} × {0.ranks_a_router}"),
    FlatCluster: ("flat", "workers", "a flat cluster of {0.ranks} ranks"),
}
"""Kinds of networks: name, default constants, and description."""
FIELDS = tuple(field.name for field in fields(Constants))


def parsed_network(text: str, ranks: int) -> Network:
    kind, colon, shape = text.partition(":")
    lengths = tuple(map(int, shape.split("x"))) if re.fullmatch(r"\d+(x\d+)+", shape) else ()
    makes: dict[tuple[str, int], Callable[..., Network]] = {
        ("mesh", 2): lambda rows, columns: Mesh(rows=rows, columns=columns),
        ("torus", 2): lambda rows, columns: Torus(rows=rows, columns=columns),
        ("hypercube", 0): lambda: _hypercube(text, ranks),
        ("fat-tree", 0): lambda: FatTree(ranks=ranks),
        ("dragonfly", 3): lambda groups, routers, each: Dragonfly(groups=groups, routers=routers, ranks_a_router=each),
        ("flat", 0): lambda: FlatCluster.of(*[1] * ranks),
        ("flat", 2): lambda hosts, each: FlatCluster.of(*[each] * hosts, lanes=2),  # one rank needs two
    }
    make = makes.get((kind, len(lengths)))
    if make is None or bool(colon) != bool(lengths):
        raise ScheduleError(f"network={text!r} is unknown; choose from {NETWORKS}")
    if lengths and math.prod(lengths) != ranks:
        raise ScheduleError(f"network={text!r} has {math.prod(lengths)} places, not one for each of {ranks} ranks")
    return make(*lengths)


def _hypercube(text: str, ranks: int) -> Hypercube:
    if ranks < 1 or ranks & (ranks - 1):
        raise ScheduleError(f"network={text!r} has a power of two of places, not one for each of {ranks} ranks")
    return Hypercube(dimensions=ranks.bit_length() - 1)


def network_text(network: Network) -> str:
    return _kind(network)[2].format(network)


def _kind(network: Network) -> tuple[str, str, str]:
    return KINDS.get(type(network), ("flat", "workers", "a network of {0.ranks} ranks"))


def carrier_of(network: Network | str | None, ranks: int, constants: Any = None) -> Carrier:
    there = parsed_network(network or "flat", ranks) if network is None or isinstance(network, str) else network
    if there.ranks != ranks:
        raise ScheduleError(f"{network_text(there)} has {there.ranks} places, not one for each of {ranks} ranks")
    kind, usual, _ = _kind(there)
    said = (setting("networks") or {}).get(kind) if constants is None else constants
    found, whose = _constants(usual if said is None else said, kind)
    if found is MEASURED_DELTA and not isinstance(there, Mesh):
        raise ScheduleError(f"constants='delta-fitted' apply to a mesh, not to {network_text(there)}")
    return Carrier(there, found, whose)


def _constants(said: Any, kind: str) -> tuple[tuple[Constants, ...], str]:
    if isinstance(said, str) and said in NAMED:
        return NAMED[said]
    if said == "workers":
        return flat_constants(costs()), BETWEEN_WORKERS
    if isinstance(said, str) and "=" in said:
        regimes = [dict(_pair(pair, said) for pair in regime.split(",")) for regime in said.split(";")]
        return _checked(regimes, said), "constants as they were given"
    if isinstance(said, str | os.PathLike):
        path = os.path.expanduser(said)
        return _from_file(path, kind), f"constants of {path}"
    return _checked([said] if isinstance(said, Mapping) else said, said), "constants as they were set"


def _pair(text: str, whole: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ScheduleError(f"constants={whole!r}: {text!r} is not NAME=SECONDS")
    return name.strip(), value.strip()


def _from_file(path: str, kind: str) -> tuple[Constants, ...]:
    """Read constants: of one network, or of several by their kind."""
    if not os.path.isfile(path):
        names = ", ".join([*NAMED, "workers"])
        raise ScheduleError(f"constants={path!r} is not a file, a name ({names}), or text such as startup=5us")
    try:
        (said,) = dask.config.collect_yaml([path])
    except ValueError as error:
        raise ScheduleError(f"constants={path!r} cannot be read: {error}") from None
    found = said.get(kind, said.get("constants", said))
    return _checked([found] if isinstance(found, Mapping) else found, path)


def _checked(regimes: Any, said: Any) -> tuple[Constants, ...]:
    if not (isinstance(regimes, Sequence) and regimes and all(isinstance(each, Mapping) for each in regimes)):
        raise ScheduleError(
            f"constants={said!r} are not constants: pass a name, a file, or a mapping of {', '.join(FIELDS)}"
        )
    found = tuple(_regime(each, said) for each in regimes)
    if min(each.from_bytes for each in found) > 0:
        raise ScheduleError(f"constants={said!r} do not cover small messages: from_bytes of one entry must be 0")
    return found


def _regime(given: Mapping[str, Any], said: Any) -> Constants:
    """Return the constants of messages of one size; missing β are those of two ranks that exchange."""
    unknown = sorted(set(given) - set(FIELDS))
    if unknown or not {"startup", "exchange"} <= set(given):
        what = f"{unknown[0]!r} is none of them" if unknown else "startup and exchange are needed"
        raise ScheduleError(f"constants={said!r}: {what}; the names are {', '.join(FIELDS)}")
    try:
        values = {name: _number(value) for name, value in given.items()}
    except (ValueError, TypeError, KeyError):
        raise ScheduleError(f"constants={said!r} are not seconds, such as 5us or 1e-9") from None
    if not all(0 <= value < math.inf for value in values.values()):
        raise ScheduleError(f"constants={said!r} must be seconds of at least 0")
    alike = dict.fromkeys(("send_receive", "single", "saturated"), values["exchange"])
    return Constants(**(alike | values | {"from_bytes": int(values.get("from_bytes", 0))}))  # type: ignore[arg-type]


def _number(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        return float(parse_timedelta(value))


SMALL, LARGE = 2**10, 2**22
"""Message sizes in bytes that calibrate a network's model."""
MOST_WORKERS = 2**14
"""Maximum number of workers of a planned cluster."""


class _Nobody:
    """Client of a planned cluster."""

    def __getattr__(self, name: str) -> NoReturn:
        raise UnsupportedError("this cluster is for planning only: to run a job, pass scheduler= of a real cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCluster(real.Cluster):
    """Model of a cluster: created by `planned_cluster`."""

    there: tuple[Worker, ...]
    prices: Costs

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
            f"<oocarrays.PlannedCluster of {plural(len(self.there), 'worker')}, {plural(one.threads, 'thread')} and "
            f"{one.memory_limit} bytes each: for plans only>"
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
    <oocarrays.PlannedCluster of 64 workers, 2 threads and 4294967296 bytes each: for plans only>
    >>> len(cluster.workers()), cluster.costs().cores
    (64, 128)
    """
    many, each = whole(workers, "workers", 1), whole(threads, "threads", 1)
    if many > MOST_WORKERS:
        raise InputError(f"workers={many} exceeds {MOST_WORKERS}, the maximum for planning")
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
    costs = replace(costs, message_seconds=startup, step_seconds=startup)
    return replace(costs, message_bandwidth=1 / byte, exchange=exchange)
