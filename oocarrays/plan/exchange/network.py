"""Networks that route the messages of a step and count the load of each link.

    Mesh(rows=2, columns=3)                              FatTree(ranks=16)

    0 ──► 1 ──► 2     0 to 5 takes 0→1, 1→2, 2→5         level 2          ●            8 links up, 8 down
                │     0 to 2 shares two of them:                    ┌───┬─┴─┬───┐
                ▼     their load is 2                    level 1    ●   ●   ●   ●      4 up, 4 down, each
    3     4     5                                                   ╷╷╷ ╷╷╷ ╷╷╷ ╷╷╷
                                                         ranks      four below each    2 up, 2 down, each

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
    """Raise if a parameter of a network is not a whole number."""
    for name, given in counts.items():
        whole(given, name, error=ScheduleError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Mesh with ranks numbered row by row and bidirectional links; messages go along their row first (XY routing).

    Thakur 1995, section 4.1.2 (Touchstone Delta).
    """

    rows: int
    """Number of rows: ranks in a column."""
    columns: int
    """Number of columns: ranks in a row."""

    def __post_init__(self) -> None:
        check_whole(rows=self.rows, columns=self.columns)
        if self.rows < 1 or self.columns < 1:
            raise ScheduleError(f"a mesh of {self.rows} x {self.columns} has no ranks: both must be at least 1")

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.rows * self.columns

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
