"""Channel-disjoint routings: how many messages leave a rank for several disks without waiting for each other's links.

    nodes 3 = 0011, 7 = 0111, 11 = 1011, 15 = 1111        3 → 7         bit 2       routing A
    e-cube routing changes the lowest bit first           3 → 11        bit 3       routing B
                                                          3 → 7 → 15    bit 2       routing A

Theorem (Wang and Leiss, section 3): routes from one node that begin with different bits share no channel; so there are
as many disjoint routings as there are right-most different bits P̄(source, disk). On any other network two routes are of
one routing if they share a link, and links that a network has several times carry as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oocarrays.errors import ScheduleError
from oocarrays.plan.exchange.network import Hypercube, Network


def first_channel(x: np.ndarray | int, y: np.ndarray | int) -> np.ndarray:
    """Return P̄(x, y): the right-most bit in which they differ, counted from 0; -1 where they are the same.

    >>> first_channel(3, np.array([7, 11, 15, 3])).tolist()
    [2, 3, 2, -1]
    """
    differ = np.bitwise_xor(x, y)
    lowest = differ & -differ
    channel: np.ndarray = np.bitwise_count(np.maximum(lowest - 1, 0)).astype(np.int64) - (differ == 0)
    return channel


def ecube_route(source: int, destination: int) -> list[int]:
    """Return the nodes that a message comes by in a hypercube, both ends among them.

    >>> ecube_route(3, 15), ecube_route(5, 5)
    ([3, 7, 15], [5])
    """
    nodes = [source]
    while nodes[-1] != destination:
        nodes.append(nodes[-1] ^ 1 << int(first_channel(nodes[-1], destination)))
    return nodes


@dataclass(frozen=True, slots=True)
class Routings:
    """The routings from one rank to several places."""

    source: int
    """The rank."""
    of: tuple[int, ...]
    """The routing of each place, from 0 in the order in which they are first used."""

    @property
    def count(self) -> int:
        """Routings that share no link."""
        return len(set(self.of))


def routings(network: Network, source: int, places: Sequence[int]) -> Routings:
    """Return which of the messages from a rank to some places wait for each other.

    Examples
    --------
    >>> routings(Hypercube(dimensions=10), 3, [7, 11, 15])
    Routings(source=3, of=(0, 1, 0))
    >>> from oocarrays.plan.exchange.network import FatTree, Mesh
    >>> routings(Mesh(rows=3, columns=3), 4, [0, 1, 5, 8]).of, routings(FatTree(ranks=16), 0, [4, 8, 12]).of
    ((0, 1, 2, 2), (0, 1, 0))
    """
    wrong = [rank for rank in (source, *places) if not 0 <= rank < network.ranks]
    if wrong:
        raise ScheduleError(f"rank {wrong[0]} is none of the {network.ranks} of the network")
    if isinstance(network, Hypercube):
        found = first_channel(source, np.array(places, np.int64)).tolist()
    else:
        found = _sharing(network, source, places)
    order = {each: number for number, each in enumerate(dict.fromkeys(found))}
    return Routings(source, tuple(order[each] for each in found))


def _sharing(network: Network, source: int, places: Sequence[int]) -> list[tuple[int, int]]:
    """Put places together whose messages share a link; a link of several, each a share of a message, takes as many."""
    ways = np.array([network.loads(np.array([source]), np.array([place])) for place in places])
    ways = ways[:, (ways > 0).sum(axis=0) > 1]
    groups: list[list[int]] = []
    for number, way in enumerate(ways):
        joint = [group for group in groups if (ways[group][:, way > 0] > 0).any()]
        groups = [group for group in groups if group not in joint]
        groups.append(sorted([number, *(each for group in joint for each in group)]))
    found = [(0, 0)] * len(places)
    for group in groups:
        side_by_side = int(1 / ways[group].max(initial=1 / len(group)))
        for turn, number in enumerate(group):
            found[number] = group[0], turn % side_by_side
    return found


def nearest(network: Hypercube, rank: int, candidates: Sequence[int]) -> int:
    """Return the node of fewest links from a rank: where its messages go that have several nodes with a way to a disk.

    >>> nearest(Hypercube(dimensions=10), 130, [3, 67, 131, 195])
    131
    """
    return min(candidates, key=lambda node: ((rank ^ node).bit_count(), node))


def channel_nodes(io_node: int, channels: int = 8) -> tuple[int, ...]:
    """Return the compute nodes that are linked to an I/O node of an nCUBE 2's board, by channel (Table 1).

    >>> channel_nodes(2)
    (11, 75, 139, 203, 267, 331, 395, 459)
    """
    return tuple(3 + 4 * io_node + 64 * channel for channel in range(channels))


def by_routings(network: Network, places: Sequence[int | Sequence[int]]) -> list[Routings]:
    """Return every rank's routings to some disks, those with the most first: who should do the I/O for all.

    Examples
    --------
    >>> cube, disks = Hypercube(dimensions=10), [channel_nodes(io_node) for io_node in range(8)]
    >>> best = by_routings(cube, disks)[0]
    >>> best.source, best.count, by_routings(cube, disks)[-1].count
    (3, 4, 1)
    >>> from oocarrays.plan.exchange.network import Mesh
    >>> [(each.source, each.count) for each in by_routings(Mesh(rows=3, columns=3), [1, 3, 5, 7])[:4]]
    [(1, 4), (4, 4), (7, 4), (0, 2)]
    """
    found = (routings(network, rank, _chosen(network, rank, places)) for rank in range(network.ranks))
    return sorted(found, key=lambda each: (-each.count, each.source))


def _chosen(network: Network, rank: int, places: Sequence[int | Sequence[int]]) -> list[int]:
    chosen = []
    for place in places:
        if isinstance(place, (int, np.integer)):
            chosen.append(int(place))
        elif isinstance(network, Hypercube):
            chosen.append(nearest(network, rank, place))
        else:
            raise ScheduleError(f"places={places!r}: only on a hypercube a disk can be at several ranks")
    return chosen
