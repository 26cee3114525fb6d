"""The theorem of channel-disjoint routings, by routing; and the same on networks of other kinds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from oocarrays.errors import ScheduleError
from oocarrays.networks import Dragonfly, FatTree, FlatCluster, Hypercube, Mesh, Torus
from tests.plan.queueing.routing import by_routings, channel_nodes, ecube_route, first_channel, routings

pytestmark = pytest.mark.once


@pytest.mark.parametrize("dimensions", range(11))
def test_routes_that_begin_with_different_bits_share_no_channel(dimensions: int) -> None:
    """All pairs are routed, bit by bit; each channel is used by routes of one first bit only."""
    nodes = np.arange(1 << dimensions)
    for source in nodes:
        first = first_channel(source, nodes)
        owner = np.full((dimensions, len(nodes)), -1)
        here = np.full_like(nodes, source)
        for bit in range(dimensions):
            turns = (here ^ nodes) >> bit & 1 == 1
            owner[bit, here[turns]] = first[turns]
            assert (owner[bit, here[turns]] == first[turns]).all()
            here = np.where(turns, here ^ 1 << bit, here)
        assert (here == nodes).all()
        used = [np.unique(owner[bit][owner[bit] >= 0]) for bit in range(dimensions)]
        assert all((channels <= bit).all() for bit, channels in enumerate(used))
        assert all(owner[bit, source] in (bit, -1) for bit in range(dimensions))


def test_first_channels_and_routes_of_all_pairs_of_a_small_cube() -> None:
    for x in range(32):
        for y in range(32):
            route = ecube_route(x, y)
            steps = [(a ^ b).bit_length() - 1 for a, b in pairwise(route)]
            assert route[0] == x
            assert route[-1] == y
            assert steps == sorted(set(steps))
            assert int(first_channel(x, y)) == (steps[0] if steps else -1)


def test_the_theorem_counts_as_links_do() -> None:
    """The number of different first bits, beside groups of routes that share a link as they are routed."""
    random = np.random.default_rng(0)
    for _ in range(200):
        cube = Hypercube(dimensions=int(random.integers(1, 8)))
        source, *places = random.integers(0, cube.ranks, 9).tolist()
        ways = [set(pairwise(ecube_route(source, place))) for place in places]
        found = routings(cube, source, places)
        for i, one in enumerate(ways):
            for j, other in enumerate(ways):
                alike = bool(one & other) or places[i] == places[j]
                assert (found.of[i] == found.of[j]) == alike
        assert found.count == len(set(first_channel(source, np.array(places)).tolist()))


def test_who_should_do_the_io_on_the_ncube() -> None:
    """Four disjoint routings to 8 I/O nodes, which the paper hopes for, are the most; others have one."""
    cube = Hypercube(dimensions=10)
    found = by_routings(cube, [channel_nodes(io_node) for io_node in range(8)])
    assert len(found) == 1024
    assert {each.count for each in found} == {4, 1}
    assert all((each.count == 4) == (each.source % 4 == 3) for each in found)


Network = Dragonfly | FatTree | FlatCluster | Hypercube | Mesh | Torus
NETWORKS: dict[str, tuple[Network, int, list[int], tuple[int, ...]]] = {
    "mesh, from a corner": (Mesh(rows=3, columns=3), 0, [1, 2, 3, 8], (0, 0, 1, 0)),
    "mesh, from the middle": (Mesh(rows=3, columns=3), 4, [1, 3, 5, 7], (0, 1, 2, 3)),
    "torus, from a corner": (Torus(rows=3, columns=3), 0, [1, 2, 3, 6], (0, 1, 2, 3)),
    "fat tree, two links a rank": (FatTree(ranks=64), 5, [1, 20, 40, 60], (0, 1, 0, 1)),
    "flat, one way out": (FlatCluster.of(4, 4), 0, [1, 4, 5], (0, 0, 0)),
    "flat, its own disk": (FlatCluster.of(4), 0, [0], (0,)),
    "dragonfly, one way out": (Dragonfly(groups=3, routers=2, ranks_a_router=2), 0, [1, 4, 11], (0, 0, 0)),
}


@pytest.mark.parametrize(("network", "source", "places", "expected"), NETWORKS.values(), ids=NETWORKS)
def test_routings_by_the_links_that_are_used(
    network: Network, source: int, places: list[int], expected: tuple[int, ...]
) -> None:
    assert routings(network, source, places).of == expected


def test_a_disk_beside_the_rank_is_a_routing_of_its_own() -> None:
    assert routings(Mesh(rows=2, columns=2), 0, [0, 1, 2, 3]).of == (0, 1, 2, 1)
    assert by_routings(Mesh(rows=2, columns=2), [0, 1, 2])[0].source == 0


def test_a_rank_that_is_not_there_is_refused() -> None:
    with pytest.raises(ScheduleError, match="rank 9 is none of the 4"):
        routings(Mesh(rows=2, columns=2), 0, [9])
    with pytest.raises(ScheduleError, match="only on a hypercube"):
        by_routings(Mesh(rows=2, columns=2), [[1, 2]])
