"""Further networks that route the messages of a step: hypercube, torus, dragonfly.

    Hypercube(dimensions=3)     Torus(rows=2, columns=4)        Dragonfly(groups=3, routers=2, ranks_a_router=2)

      6────7                    ┌─────────────┐                   group 0      group 1      group 2
     /│   /│                    └─0──1──2──3──┘                   a ─── b      c ─── d      e ─── f
    2─┼──3 │                      │  │  │  │                      │     │      │     │      │     │
    │ 4──┼─5                    ┌─4──5──6──7──┐                   └─────┼──────┘     └──────┘     │
    │/   │/                     └─────────────┘                         └─────────────────────────┘
    0────1                      0 to 3 is one link to the left    routers of a group are all linked, and so are groups

Each has one route per message, and counts the load of links as those of `oocarrays.plan.exchange.network` do.

    0 ──►──1 ──►──2        a message from 0 to 5 shares its row with one, its column with two others; while it waits
                  │        at the corner, it keeps its row from the others, too
    3      4      5
                  │        seconds = α + max over messages of
    6      7      8          bytes · β  +  (row + column) · β_sat  +  row · column / bytes · κ

where row and column are the bytes on the busiest link of either leg. In the thesis's model, which uses the busiest link
of all, IPEX is faster than PEX only if its larger messages use another send method: its legs are those of PEX one after
the other, and max(row, column) ≤ row + column. On the Delta it was faster on large meshes. A likely reason is that a
waiting message holds its links (section 4.1.2); this form fits the measurements, but nothing here proves it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oocarrays.errors import ScheduleError
from oocarrays.plan.exchange.exchange import Turn
from oocarrays.plan.exchange.network import Mesh, Network, check_whole
from oocarrays.plan.exchange.prediction import Constants, message_kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class WormholeConstants(Constants):
    """Time constants of a mesh for messages from a given size upwards, with the cost of shared legs."""

    held_exchange: float
    """Seconds per byte that each message of the column adds for each of the row, if two ranks send to each other."""
    held_send_receive: float
    """Seconds per byte that each message of the column adds for each of the row, if a rank has two partners."""

    def step_seconds(self, turn: Turn, network: Network) -> float:
        """Return the seconds of a step on a mesh if these constants apply to all its messages."""
        if not isinstance(network, Mesh):
            raise ScheduleError(f"{network} is no mesh, the only network for which these constants hold")
        sources, sizes = turn.step.senders, turn.sizes
        row, column = network.legs(sources, turn.step.destinations[sources], sizes)
        held = np.where(message_kinds(turn.step) == 0, self.held_exchange, self.held_send_receive)
        seconds = sizes * self.byte_seconds(turn.step) + (row + column) * self.saturated + row * column / sizes * held
        return self.startup + float(seconds.max()) + self.packing_seconds(turn)


MEASURED_DELTA = (
    WormholeConstants(
        startup=75e-6,
        exchange=0.281e-6,
        send_receive=0.261e-6,
        single=0.281e-6,
        saturated=0.0842e-6,
        held_exchange=0.0,
        held_send_receive=0.0155e-6,
    ),
    WormholeConstants(
        from_bytes=1536,
        startup=150e-6,
        exchange=0.0834e-6,
        send_receive=0.0664e-6,
        single=0.0834e-6,
        saturated=0.0750e-6,
        held_exchange=0.0029e-6,
        held_send_receive=0.0288e-6,
    ),
)
"""Touchstone Delta, fitted to Tables 4.4, 4.7, 4.9 and 4.10: α as printed, the other constants by least squares of log
ratios. An order of PEX, GEN and IPEX other than the measured one costs ten times as much in the fit. Ten constants for
119 measured times give a root mean square error of 0.112. The printed crossovers are therefore fitted, not predicted.
REX is modelled with the send method of a pair's bytes, however large its own messages are: with large-message
constants the fit error was 0.155, and REX was the fastest for small messages on a mesh.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypercube:
    """Hypercube with links between ranks that differ in one bit; lowest bits change first (e-cube routing).

    Wang and Leiss, section 3 (nCUBE 2).

    >>> Hypercube(dimensions=2).loads(np.array([0, 0]), np.array([3, 2])).reshape(2, 4).tolist()
    [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]
    """

    dimensions: int
    """Number of dimensions: bits of a rank."""

    def __post_init__(self) -> None:
        check_whole(dimensions=self.dimensions)
        if not 0 <= self.dimensions <= 30:
            raise ScheduleError(f"a hypercube of {self.dimensions} dimensions is none: there are 0 to 30")

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return 1 << self.dimensions

    def loads(self, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        """Return the messages or bytes on each link, by bit and then by the link's source rank."""
        loads, here = np.zeros((self.dimensions, self.ranks)), np.array(sources)
        for bit, load in enumerate(loads):
            turns = (here ^ destinations) >> bit & 1 == 1
            load += np.bincount(here[turns], None if sizes is None else sizes[turns], self.ranks)
            here = np.where(turns, here ^ 1 << bit, here)
        return loads.ravel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Torus:
    """Torus with rings as rows and columns; messages go along their row first, the shorter way round.

    At half the ring, messages from even places go right and down, so that both directions are used equally.

    >>> Torus(rows=1, columns=4).loads(np.array([0]), np.array([3]))[4:8].tolist()
    [1.0, 0.0, 0.0, 0.0]
    """

    rows: int
    """Number of rows: ranks in a column."""
    columns: int
    """Number of columns: ranks in a row."""

    def __post_init__(self) -> None:
        check_whole(rows=self.rows, columns=self.columns)
        if self.rows < 1 or self.columns < 1:
            raise ScheduleError(f"a torus of {self.rows} x {self.columns} has no ranks: both must be at least 1")

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.rows * self.columns

    def loads(self, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        """Return the messages or bytes on each link: right, left, down and up from each rank; rows, then columns."""
        (y, x), (to_y, to_x) = divmod(sources, self.columns), divmod(destinations, self.columns)
        across = _ring_loads(y, x, to_x, (self.rows, self.columns), sizes)
        along = _ring_loads(to_x, y, to_y, (self.columns, self.rows), sizes)
        return np.concatenate([across, along])


def _ring_loads(
    ring: np.ndarray, start: np.ndarray, stop: np.ndarray, shape: tuple[int, int], sizes: np.ndarray | None
) -> np.ndarray:
    """Return the load of the rings' links, clockwise first; a message uses an interval, possibly across the seam."""
    rings, length = shape
    ahead, back = (stop - start) % length, (start - stop) % length
    clockwise = (ahead < back) | ((ahead == back) & (start % 2 == 0))
    loads = []
    for mine, first, reach in ((clockwise, start, ahead), (~clockwise, (start - back + 1) % length, back)):
        begin = ring[mine] * 2 * length + first[mine]
        weights = None if sizes is None else sizes[mine]
        ends = begin + reach[mine]
        many = 2 * rings * length + 1
        line = np.cumsum(np.bincount(begin, weights, many) - np.bincount(ends, weights, many))[:-1]
        loads.append(line.reshape(rings, 2, length).sum(axis=1, dtype=float).ravel())
    return np.concatenate(loads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dragonfly:
    """Dragonfly: groups of routers, with all routers of a group linked, and one link between each two groups.

    A message goes to the router with the link to the other group, over it, and on to its target's router. The link from
    group g to the k-th of the other groups is at router k mod the number of routers of g.

    >>> Dragonfly(groups=3, routers=2, ranks_a_router=2).ranks
    12
    """

    groups: int
    """Number of groups."""
    routers: int
    """Number of routers in a group."""
    ranks_a_router: int
    """Number of ranks at a router, each with a link in and a link out."""

    def __post_init__(self) -> None:
        check_whole(groups=self.groups, routers=self.routers, ranks_a_router=self.ranks_a_router)
        if min(self.groups, self.routers, self.ranks_a_router) < 1:
            shape = f"{self.groups}x{self.routers}x{self.ranks_a_router}"
            raise ScheduleError(f"a dragonfly of {shape} has no ranks: groups, routers and ranks must be at least 1")

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.groups * self.routers * self.ranks_a_router

    def loads(self, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        """Return the messages or bytes on each link: out of ranks, into ranks, within groups, between groups."""
        moves = sources != destinations
        sources, destinations = sources[moves], destinations[moves]
        weights = None if sizes is None else sizes[moves]
        (group, router), (to_group, to_router) = (
            divmod(rank // self.ranks_a_router, self.routers) for rank in (sources, destinations)
        )
        away = group != to_group
        out = np.where(away, self._gate(group, to_group), to_router)
        into = np.where(away, self._gate(to_group, group), to_router)
        within = np.zeros((self.groups, self.routers, self.routers))
        for place, start, stop in ((group, router, out), (to_group, into, to_router)):
            taken = start != stop
            link = (place * self.routers + start) * self.routers + stop
            many = None if weights is None else weights[taken]
            within += np.bincount(link[taken], many, within.size).reshape(within.shape)
        between = np.bincount(
            (group * self.groups + to_group)[away], None if weights is None else weights[away], self.groups**2
        )
        ends = [np.bincount(ranks, weights, self.ranks) for ranks in (sources, destinations)]
        return np.concatenate([*ends, within.ravel(), between]).astype(float)

    def _gate(self, group: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the router of a group that has the link to another group."""
        return (other - (other > group)) % self.routers
