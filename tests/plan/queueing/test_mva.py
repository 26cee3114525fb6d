"""Mean value analysis beside the plain recursion over all populations, and beside closed forms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.errors import InputError
from oocarrays.plan.queueing import striping
from oocarrays.plan.queueing.striping import BlockTimes, ClosedNetwork, Solution, solve, striped_network
from tests.plan.queueing.measures import queues, utilisation
from tests.profiles import examples
from tests.work import CALLS_A_SECOND, counted

pytestmark = pytest.mark.once


def plain(network: ClosedNetwork) -> np.ndarray:
    """Residence by the recursion as the books have it: every number of requests of every class."""
    demands = network.demands
    many = network.requests.tolist()
    queues = {}
    for here in sorted(itertools.product(*(range(n + 1) for n in many)), key=sum):
        queue, stays = np.zeros(len(network.stations)), {}
        for i in (i for i, n in enumerate(here) if n):
            before = queues[(*here[:i], here[i] - 1, *here[i + 1 :])]
            stays[i] = demands[i] * (1 + before)
            queue += here[i] * stays[i] / stays[i].sum()
        queues[here] = queue
    return np.array([stays[i] for i in range(len(many))])


SECONDS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.25])


def approximated(network: ClosedNetwork) -> Solution:
    """The solution as of a network that is out of reach of exact analysis."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(striping, "REACH", 0)
        return solve(network)


@st.composite
def networks(draw: st.DrawFn, most_requests: int = 3) -> ClosedNetwork:
    stations = draw(st.integers(1, 4))
    demands = draw(st.lists(st.tuples(*[SECONDS] * stations).filter(any), min_size=1, max_size=4))
    requests = draw(st.lists(st.integers(1, most_requests), min_size=len(demands), max_size=len(demands)))
    names = tuple(f"station {k}" for k in range(stations))
    return ClosedNetwork(stations=names, demands=np.array(demands, float), requests=np.array(requests))


def lawful(found: Solution) -> None:
    """What holds of any steady state: all requests are somewhere, and no station works more than all the time."""
    assert queues(found).sum(axis=1) == pytest.approx(found.network.requests)
    assert (utilisation(found) <= 1 + 1e-9).all()
    assert (found.residence >= found.network.demands - 1e-12).all()


@examples(150)
@given(networks())
def test_exact_analysis_is_the_plain_recursion(network: ClosedNetwork) -> None:
    found = solve(network)
    assert found.exact
    assert found.error == 0
    assert found.residence == pytest.approx(plain(network), rel=1e-9)
    lawful(found)


@examples(150)
@given(networks())
def test_the_approximation_obeys_the_laws_and_is_near(network: ClosedNetwork) -> None:
    near, exact = approximated(network), solve(network)
    assert not near.exact
    lawful(near)
    assert near.throughput.sum() == pytest.approx(exact.throughput.sum(), rel=0.2)
    assert near.error == pytest.approx(abs(near.throughput.sum() / exact.throughput.sum() - 1), abs=1e-6)


def test_alike_disks_are_solved_in_both_ways() -> None:
    """What the approximation says of its own error, beside its true one."""
    for requests in (1, 2):
        network = striped_network(BlockTimes(block=1, cpu=0.2e-3, network=0.1e-3, disks=(0.02,) * 9), requests)
        exact, near = solve(network), approximated(network)
        assert exact.exact
        off = abs(near.throughput[0] / exact.throughput[0] - 1)
        assert off < 0.03
        assert near.error == pytest.approx(off, abs=0.02)


def test_approximation_is_taken_beyond_reach_and_says_by_how_much_it_misses() -> None:
    disks = tuple(0.02 + 0.0001 * k for k in range(64))
    network = striped_network(BlockTimes(block=1, cpu=0.3e-3, network=0.4e-3, disks=disks), 2, 8)
    found = solve(network)
    assert not found.exact
    assert 0 < found.error < 0.05


@pytest.mark.parametrize("alike", [True, False])
def test_eight_classes_exact_and_64_disks_nearly_are_a_matter_of_milliseconds(alike: bool) -> None:
    """Both are to take less than 50 ms."""
    for many in (8, 64):
        disks = tuple(0.02 + 0.0001 * k * (not alike) for k in range(many))
        network = striped_network(BlockTimes(block=1, cpu=1e-3, network=2e-3, disks=disks), 2, 4)
        with counted() as work:
            found = solve(network)
        assert found.exact == (many == 8)
        assert work.calls < CALLS_A_SECOND * 0.05


@pytest.mark.parametrize(("disk", "cpu"), [(0.0, 0.0), (-1.0, 1.0), (math.inf, 0.0), (math.nan, 1.0)])
def test_times_that_are_none_are_refused(disk: float, cpu: float) -> None:
    with pytest.raises(InputError, match="seconds, some of them above 0"):
        striped_network(BlockTimes(block=1, disks=(0.02, disk), cpu=cpu), 1)
