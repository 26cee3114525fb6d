"""Networks that route the messages of a step and count the load of each link.

    Mesh(rows=2, columns=3)                              FatTree(ranks=16)

    0 ──► 1 ──► 2     0 to 5 takes 0→1, 1→2, 2→5         level 2          ●            8 links up, 8 down
                │     0 to 2 shares two of them:                    ┌───┬─┴─┬───┐
                ▼     their load is 2                    level 1    ●   ●   ●   ●      4 up, 4 down, each
    3     4     5                                                   ╷╷╷ ╷╷╷ ╷╷╷ ╷╷╷
                                                         ranks      four below each    2 up, 2 down, each

    Hypercube(dimensions=3)     Torus(rows=2, columns=4)        Dragonfly(groups=3, routers=2, ranks_a_router=2)

      6────7                    ┌─────────────┐                   group 0      group 1      group 2
     /│   /│                    └─0──1──2──3──┘                   a ─── b      c ─── d      e ─── f
    2─┼──3 │                      │  │  │  │                      │     │      │     │      │     │
    │ 4──┼─5                    ┌─4──5──6──7──┐                   └─────┼──────┘     └──────┘     │
    │/   │/                     └─────────────┘                         └─────────────────────────┘
    0────1                      0 to 3 is one link to the left    routers of a group are all linked, and so are groups

Contention is the number of messages (or bytes) on a link; parallel links of a node share their load evenly. A message
uses an interval of links along each axis of a mesh, or the links of a few nodes. A few `bincount` calls therefore count
a whole step. Thakur 1995, section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from oocarrays.errors import ScheduleError
from oocarrays.mapping.given import whole


class Network(Protocol):
    """Protocol of networks that carry messages between ranks."""

    @property
    def ranks(self) -> int:
        """Number of ranks that the network connects."""

    def loads(self, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        """Return the number of messages on each directed link, or their bytes if ``sizes`` gives them."""


def busiest(network: Network, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> float:
    """Return the messages (or bytes) on the busiest link, f(i) in the thesis; 0 for an empty step."""
    return float(network.loads(sources, destinations, sizes).max(initial=0))


def check_whole(**counts: object) -> None:
    for name, given in counts.items():
        whole(given, name, error=ScheduleError)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """Ranks in rows and columns, numbered row by row."""

    rows: int
    """Number of rows: ranks in a column."""
    columns: int
    """Number of columns: ranks in a row."""

    def __post_init__(self) -> None:
        check_whole(rows=self.rows, columns=self.columns)
        if self.rows < 1 or self.columns < 1:
            raise ScheduleError(
                f"a {type(self).__name__.lower()} of {self.rows} x {self.columns} has no ranks: both must be at least 1"
            )

    @property
    def ranks(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh(_Grid):
    """Mesh with ranks numbered row by row and bidirectional links; messages go along their row first (XY routing).

    Thakur 1995, section 4.1.2 (Touchstone Delta).
    """

    def loads(self, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        """Return the messages or bytes on each link: right, left, down, up; row by row, then column by column.

        A message uses an interval of links along its row, and one along its target's column. The cumulative sum of
        interval starts minus ends gives the load of each link.
        """
        starts, stops = self._intervals(sources, destinations)
        weights = None if sizes is None else np.tile(sizes, 2)
        begin, end = (np.bincount(ends.ravel(), weights, 4 * self.ranks) for ends in (starts, stops))
        return np.cumsum(begin - end)

    def legs(self, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        """Return the busiest load on each message's leg along its row, and along its column: (2, messages).

        >>> Mesh(rows=2, columns=3).legs(np.array([0, 0]), np.array([5, 2])).tolist()
        [[2.0, 2.0], [1.0, 0.0]]
        """
        starts, stops = self._intervals(sources, destinations)
        lengths = stops - starts
        most, reach = self.loads(sources, destinations, sizes).astype(float), 1
        legs = np.zeros(starts.shape)
        while (lengths >= reach).any():
            here = (lengths >= reach) & (lengths < 2 * reach)
            legs[here] = np.maximum(most[starts[here]], most[stops[here] - reach])
            most = np.maximum(most, np.roll(most, -reach))
            reach *= 2
        return legs

    def _intervals(self, sources: np.ndarray, destinations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds of each message's links along its row and its column: first, and one past the last."""
        (y, x), (to_y, to_x) = divmod(sources, self.columns), divmod(destinations, self.columns)
        across = y * self.columns + (to_x < x) * self.ranks
        along = to_x * self.rows + (2 + (to_y < y)) * self.ranks
        return (
            np.stack([across + np.minimum(x, to_x), along + np.minimum(y, to_y)]),
            np.stack([across + np.maximum(x, to_x), along + np.maximum(y, to_y)]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FatTree:
    """Fat tree with ranks as leaves, four children per node, and more links per node at higher levels.

    Messages rise to the lowest common ancestor of both ranks; up and down, they share the links of a node evenly.
    Thakur 1995, section 4.1.1 (CM-5).

    >>> FatTree(ranks=1024).links
    (2, 4, 8, 32, 128)
    """

    ranks: int
    """Number of ranks."""

    def __post_init__(self) -> None:
        check_whole(ranks=self.ranks)
        if self.ranks < 1:
            raise ScheduleError(f"a fat tree of {self.ranks} ranks has none: there must be at least 1")

    @property
    def links(self) -> tuple[int, ...]:
        """Number of links from a node of each level to its parent, and as many back; level 0 is a rank.

        A node is two switches at level 1, doubled up to level 3 and quadrupled above it; a switch has two parents at
        levels 1 and 2, and four above.
        """
        links = [2]
        switches = 2
        while 4 ** len(links) < self.ranks:
            level = len(links)
            links.append(switches * (2 if level < 3 else 4))
            switches *= 2 if level < 3 else 4
        return tuple(links)

    def loads(self, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        """Return the messages or bytes on each node's links up and down, per link, level by level."""
        loads = []
        for level, links in enumerate(self.links):
            nodes = -(-self.ranks // 4**level)
            below, to_below = sources >> 2 * level, destinations >> 2 * level
            leaves = below != to_below
            weights = None if sizes is None else sizes[leaves]
            loads += [np.bincount(ends[leaves], weights, nodes) / links for ends in (below, to_below)]
        return np.concatenate(loads)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatCluster:
    """Cluster of hosts; each rank has one link in and one link out, and ranks of a host share its lanes.

    A message uses its source's outgoing link, its target's incoming link, and one lane at each end's host. Lanes stand
    for the cores and the memory bus, which both ends of a message use.

    >>> FlatCluster.of(4).loads(np.array([0, 1]), np.array([2, 2])).tolist()
    [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0]
    """

    hosts: tuple[int, ...]
    """Host of each rank."""
    lanes: float = field(default=float("inf"))
    """Number of message ends that a host handles at one time at full link speed."""

    @classmethod
    def of(cls, *ranks: int, lanes: float = float("inf")) -> FlatCluster:
        """Return a cluster with the given number of ranks on each host, one host after the other.

        >>> FlatCluster.of(2, 2).hosts
        (0, 0, 1, 1)
        """
        for each in ranks:
            check_whole(ranks=each)
        if not isinstance(lanes, int | float):
            raise ScheduleError(f"lanes={lanes!r} must be a number")
        if not ranks or min(ranks) < 1 or lanes <= 0:
            raise ScheduleError(f"ranks={ranks}, lanes={lanes}: each host has at least one rank, and some lanes")
        return cls(hosts=tuple(host for host, many in enumerate(ranks) for _ in range(many)), lanes=lanes)

    @property
    def ranks(self) -> int:
        """Number of ranks on all hosts."""
        return len(self.hosts)

    def loads(self, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        """Return the messages or bytes that leave each rank, reach each rank, and use each host, per lane."""
        ways = [np.bincount(ends, sizes, self.ranks).astype(float) for ends in (sources, destinations)]
        if self.lanes == float("inf"):
            return np.concatenate(ways)
        return np.concatenate([*ways, np.bincount(self.hosts, ways[0] + ways[1]) / self.lanes])


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
            raise ScheduleError(f"a hypercube of {self.dimensions} dimensions is invalid: dimensions must be 0 to 30")

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
class Torus(_Grid):
    """Torus with rings as rows and columns; messages go along their row first, the shorter way round.

    At half the ring, messages from even places go right and down, so that both directions are used equally.

    >>> Torus(rows=1, columns=4).loads(np.array([0]), np.array([3]))[4:8].tolist()
    [1.0, 0.0, 0.0, 0.0]
    """

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
