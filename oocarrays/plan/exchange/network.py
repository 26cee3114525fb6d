"""Networks that route every message of a step, and count how many share each link.

    Mesh(rows=2, columns=3)                              FatTree(ranks=16)

    0 ──► 1 ──► 2     0 to 5 takes 0→1, 1→2, 2→5         level 2          ●            8 links up, 8 down
                │     0 to 2 shares two of them:                    ┌───┬─┴─┬───┐
                ▼     their load is 2                    level 1    ●   ●   ●   ●      4 up, 4 down, each
    3     4     5                                                   ╷╷╷ ╷╷╷ ╷╷╷ ╷╷╷
                                                         ranks      four below each    2 up, 2 down, each

Contention is messages (or bytes) on a link; where a node has several alike, those on all of them over how many they
are. A message takes an interval of links along each axis of a mesh, or the links of a few nodes: so a step is counted
by a few `bincount`, however many messages it has. Thakur 1995, section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from oocarrays.errors import ScheduleError
from oocarrays.mapping.given import whole


class Network(Protocol):
    """A network: it carries messages between ranks."""

    @property
    def ranks(self) -> int:
        """Ranks that it connects."""

    def loads(self, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        """Messages that share each directed link, or their bytes, where ``sizes`` has those of each message."""


def busiest(network: Network, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> float:
    """Messages on the busiest link, or bytes: what the thesis calls f(i); 0 where nothing is sent."""
    return float(network.loads(sources, destinations, sizes).max(initial=0))


def check_whole(**counts: object) -> None:
    """Refuse numbers of a network that are not whole ones."""
    for name, given in counts.items():
        whole(given, name, error=ScheduleError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Ranks row by row on a mesh whose links go both ways; messages go along their row first (XY routing).

    Thakur 1995, section 4.1.2 (Touchstone Delta).
    """

    rows: int
    """Ranks in a column."""
    columns: int
    """Ranks in a row."""

    def __post_init__(self) -> None:
        check_whole(rows=self.rows, columns=self.columns)
        if self.rows < 1 or self.columns < 1:
            raise ScheduleError(f"a mesh of {self.rows} x {self.columns} has no ranks: both must be at least 1")

    @property
    def ranks(self) -> int:
        """Ranks on it."""
        return self.rows * self.columns

    def loads(self, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        """Messages or bytes on each link: right, left, down, up; row by row, then column by column.

        A message takes an interval of links along its row, and one along its target's column: their beginnings less
        their ends, summed up along the links, are what each link carries.
        """
        starts, stops = self._intervals(sources, destinations)
        weights = None if sizes is None else np.tile(sizes, 2)
        begin, end = (np.bincount(ends.ravel(), weights, 4 * self.ranks) for ends in (starts, stops))
        return np.cumsum(begin - end)

    def legs(self, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        """The load of the busiest link on each message's way along its row, and along its column: (2, messages).

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
        """The first link of each message along its row and along its column, and one past the last: (2, messages)."""
        (y, x), (to_y, to_x) = divmod(sources, self.columns), divmod(destinations, self.columns)
        across = y * self.columns + (to_x < x) * self.ranks
        along = to_x * self.rows + (2 + (to_y < y)) * self.ranks
        return (
            np.stack([across + np.minimum(x, to_x), along + np.minimum(y, to_y)]),
            np.stack([across + np.maximum(x, to_x), along + np.maximum(y, to_y)]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FatTree:
    """Ranks below a tree of four children a node, whose nodes have the more links the higher they stand.

    Messages rise to the lowest node above both ranks; on the way up, and down, they share the links of a node evenly.
    Thakur 1995, section 4.1.1 (CM-5).

    >>> FatTree(ranks=1024).links
    (2, 4, 8, 32, 128)
    """

    ranks: int
    """Ranks."""

    def __post_init__(self) -> None:
        check_whole(ranks=self.ranks)
        if self.ranks < 1:
            raise ScheduleError(f"a fat tree of {self.ranks} ranks has none: there must be at least 1")

    @property
    def links(self) -> tuple[int, ...]:
        """Links from a node of each level to its parent, and as many from it: of a rank first.

        A node is two switches at level 1, doubled to level 3 and quadrupled from there; a switch has two parents at
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
        """Messages or bytes on each node's links up and down, divided by how many they are, level by level."""
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
    """Ranks with a way in and a way out each; those on one host share what works for messages there.

    A message takes its source's way out and its target's way in, and a lane of each one's host: its cores and its
    memory bus, of which both ends of a message take their part.

    >>> FlatCluster.of(4).loads(np.array([0, 1]), np.array([2, 2])).tolist()
    [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0]
    """

    hosts: tuple[int, ...]
    """The host of each rank."""
    lanes: float = field(default=float("inf"))
    """Ends of messages that a host works for at one time, each at a link's speed."""

    @classmethod
    def of(cls, *ranks: int, lanes: float = float("inf")) -> FlatCluster:
        """Ranks on each host, one host after the other.

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
        """Ranks on all hosts."""
        return len(self.hosts)

    def loads(self, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        """Messages or bytes that leave each rank, that come to it, and that each host works for, by its lanes."""
        ways = [np.bincount(ends, sizes, self.ranks).astype(float) for ends in (sources, destinations)]
        if self.lanes == float("inf"):
            return np.concatenate(ways)
        return np.concatenate([*ways, np.bincount(self.hosts, ways[0] + ways[1]) / self.lanes])
