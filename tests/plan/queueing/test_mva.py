"""Mean value analysis beside the plain recursion over all populations, and beside closed forms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocarrays.errors import InputError
from oocarrays.plan.queueing.closed import Centre, ClosedNetwork, RequestClass, Solution, solve
from oocarrays.plan.queueing.striping import BlockTimes, striped_network
from tests.plan.queueing.measures import queues, utilisation
from tests.profiles import examples
from tests.work import CALLS_A_SECOND, counted

pytestmark = pytest.mark.once


def plain(network: ClosedNetwork) -> np.ndarray:
    """Residence by the recursion as the books have it: every number of requests of every class."""
    demands, delay = network.demands, np.isinf(network.servers)
    many = network.requests.tolist()
    queues = {}
    for here in sorted(itertools.product(*(range(n + 1) for n in many)), key=sum):
        queue, stays = np.zeros(len(network.stations)), {}
        for i in (i for i, n in enumerate(here) if n):
            before = queues[(*here[:i], here[i] - 1, *here[i + 1 :])]
            stays[i] = np.where(delay, demands[i], demands[i] * (1 + before))
            queue += np.where(delay, 0, here[i] * stays[i] / stays[i].sum())
        queues[here] = queue
    return np.array([stays[i] for i in range(len(many))])


SECONDS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.25])


@st.composite
def networks(draw: st.DrawFn, most_requests: int = 3) -> ClosedNetwork:
    stations = [
        Centre(name=f"station {k}", servers=draw(st.sampled_from([1.0, 1.0, math.inf])))
        for k in range(draw(st.integers(1, 4)))
    ]
    shapes = draw(st.lists(st.tuples(*[SECONDS] * len(stations)).filter(any), min_size=1, max_size=4))
    classes = [
        RequestClass(
            name=f"class {k}",
            requests=draw(st.integers(1, most_requests)),
            demands={each.name: seconds for each, seconds in zip(stations, shape, strict=True)},
        )
        for k, shape in enumerate(shapes)
    ]
    return ClosedNetwork.of(stations, classes)


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
    near, exact = solve(network, "approximate"), solve(network)
    assert not near.exact
    lawful(near)
    assert near.throughput.sum() == pytest.approx(exact.throughput.sum(), rel=0.2)
    assert near.error == pytest.approx(abs(near.throughput.sum() / exact.throughput.sum() - 1), abs=1e-6)


@pytest.mark.parametrize(("requests", "service", "think"), [(1, 2.0, 5.0), (4, 1.0, 3.0), (30, 0.5, 7.0)])
def test_a_delay_centre_is_the_repairman_s(requests: int, service: float, think: float) -> None:
    """Requests at one queue and one delay: the probability of an idle server is a finite sum."""
    idle = 1 / sum(math.perm(requests, k) * (service / think) ** k for k in range(requests + 1))
    stations = [Centre(name="queue"), Centre(name="think", servers=math.inf)]
    alone = RequestClass(name="all", requests=requests, demands={"queue": service, "think": think})
    found = solve(ClosedNetwork.of(stations, [alone]))
    assert found.throughput[0] == pytest.approx((1 - idle) / service)
    assert utilisation(found)[1] == 0


def test_servers_between_one_and_all_lie_between() -> None:
    rates = []
    for servers in (1, 2, 4, math.inf):
        stations = [Centre(name="a", servers=servers), Centre(name="b")]
        classes = [RequestClass(name="all", requests=4, demands={"a": 4.0, "b": 1.0})]
        rates.append(float(solve(ClosedNetwork.of(stations, classes)).throughput[0]))
    assert rates == sorted(rates)


def test_64_alike_disks_are_solved_in_both_ways() -> None:
    """What the approximation says of its own error, beside its true one."""
    for requests in (1, 2):
        network = striped_network(BlockTimes(block=1, cpu=0.2e-3, network=0.1e-3, disks=(0.02,) * 64), requests)
        exact, near = solve(network), solve(network, "approximate")
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
    with pytest.raises(InputError, match="method='exact' would take"):
        solve(network, "exact")


@pytest.mark.parametrize("alike", [True, False])
def test_eight_classes_exact_and_64_disks_nearly_are_a_matter_of_milliseconds(alike: bool) -> None:
    """Both are to take less than 50 ms."""
    for many, method in ((8, "exact"), (64, "approximate")):
        disks = tuple(0.02 + 0.0001 * k * (not alike) for k in range(many))
        network = striped_network(BlockTimes(block=1, cpu=1e-3, network=2e-3, disks=disks), 2, 4)
        with counted() as work:
            solve(network, method)
        assert work.calls < CALLS_A_SECOND * 0.05


STATION = Centre(name="disk")
REFUSED = {
    "no stations": ([], [], "stations"),
    "no classes": ([STATION], [], "classes"),
    "two of one name": ([STATION, STATION], [RequestClass(name="a", requests=1, demands={"disk": 1.0})], "stations"),
    "no requests": ([STATION], [RequestClass(name="a", requests=0, demands={"disk": 1.0})], "requests of class 'a'"),
    "nowhere": ([STATION], [RequestClass(name="a", requests=1, demands={"tape": 1.0})], "visits 'tape'"),
    "no time": ([STATION], [RequestClass(name="a", requests=1, demands={"disk": 0.0})], "above 0"),
    "less than none": ([STATION], [RequestClass(name="a", requests=1, demands={"disk": -1.0})], "above 0"),
    "half a server": (
        [Centre(name="disk", servers=0.5)],
        [RequestClass(name="a", requests=1, demands={"disk": 1.0})],
        "servers=0.5",
    ),
}


@pytest.mark.parametrize(("stations", "classes", "what"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_network_is_refused(stations: list[Centre], classes: list[RequestClass], what: str) -> None:
    with pytest.raises(InputError, match=what):
        ClosedNetwork.of(stations, classes)


def test_an_unknown_method_is_refused() -> None:
    network = ClosedNetwork.of([STATION], [RequestClass(name="a", requests=1, demands={"disk": 1.0})])
    with pytest.raises(InputError, match="method='fast' is unknown"):
        solve(network, "fast")
